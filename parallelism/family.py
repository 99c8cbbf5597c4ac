"""Families of parallelizations: what may vary when a job is spread over servers.

Everything after the task graph (wiring, routes, simulation, bounds of one task graph, studies)
sees a family through `Family` alone; bounds over everything, searches, and what shows or checks
a parallelization know which it is. Two exist: operators split one by one
(`parallelism.operator_family`), and layouts of a transformer (`parallelism.transformers.family`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from typing_extensions import TypeVar

from codesign_base.arrays import Floats
from parallelism.strategy import Strategy
from parallelism.taskgraph import TaskGraph

# What is not said to be of another family is of operators.
P = TypeVar("P", default=Strategy)


class Shorter(NamedTuple):
    """Shorter iterations of a parallelization, from whose times that of the whole one follows.

    Parameters
    ----------
    graphs : tuple of TaskGraph
        Three, each of as many more microbatches than the one before.
    steps : float
        How many times as many microbatches the whole iteration has more than the last one.
    """

    graphs: tuple[TaskGraph, TaskGraph, TaskGraph]
    steps: float


class Family(Protocol[P]):
    """One job on a number of servers, and the parallelizations that it may have.

    Attributes
    ----------
    kind : str
        Names the family in plan files.
    noun : str
        What a parallelization of it is called.
    refused : mapping of str to str
        Options that say nothing for this family, and why: what follows "X is given, but".
    overlaps : bool
        Whether iterations can overlap, so that a schedule may have no barrier between them.
    enumerated : bool
        Whether all parallelizations are listed, so that few of them are wired, each in all ways;
        not proposed one after another by moves, of which hundreds are.
    servers : int
    batch : int
        Samples of an iteration.
    memory_limit : float
        Bytes of each GPU that a parallelization may use.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    refused: ClassVar[Mapping[str, str]]
    overlaps: ClassVar[bool]
    enumerated: ClassVar[bool]

    @property
    def servers(self) -> int: ...  # noqa: D102
    @property
    def batch(self) -> int: ...  # noqa: D102
    @property
    def memory_limit(self) -> float: ...  # noqa: D102

    def build(self, parallelization: P, /) -> TaskGraph:
        """Return the task graph of one iteration."""
        ...

    def represented(self, parallelization: P, /) -> TaskGraph:
        """Return the same, or where it is large, one task of each kind (`TaskGraph.alike`)."""
        ...

    def shorter(self, parallelization: P, /) -> Shorter | None:
        """Return shorter iterations if the whole one repeats itself so often that they save work.

        None if it does not.
        """
        ...

    def memory(self, parallelization: P, /) -> Floats:
        """Return the bytes that a GPU needs, of each server or of each pipeline stage."""
        ...

    def least_seconds(self, parallelization: P, /) -> float:
        """Return what no iteration is shorter than, known before its tasks are made; or 0."""
        ...

    def in_buckets(self, packet_bytes: float, /) -> "Family[P]":
        """Return the same with gradients fused that have less than a packet for each server.

        0: each is reduced by itself. A family that fuses all gradients anyway returns itself.
        """
        ...

    def tokens_per_s(self, seconds: float, /) -> float | None:
        """Return the tokens trained with in a second; None where samples have none."""
        ...

    def utilisation(self, seconds: float, /) -> float | None:
        """Return the share of the GPUs' peak that the model's own operations take, if told."""
        ...

    def on(self, servers: int, batch: int, /) -> "Family[P]":
        """Return the same job on other servers, for so many samples an iteration."""
        ...

    def question(self) -> Any:
        """Return the record from which the family is made again, beside the servers."""
        ...

    def record(self, parallelization: P, /) -> Any:
        """Return a parallelization as a plan file holds it."""
        ...

    def read(self, record: Any, /) -> P:
        """Return the parallelization of a record.

        Raises
        ------
        InputError
            If it is not legal, or does not fit in memory.
        """
        ...

    def microbatched(self, parallelization: P, microbatches: int, /) -> TaskGraph | None:
        """Return one iteration in so many microbatches one after another; None if it cannot be."""
        ...

    def assumptions(self, parallelization: P, /, microbatches: int = 1) -> Sequence[str]:
        """Return what the times of a parallelization rest on, one sentence each."""
        ...

    def task_label(self, tasks: TaskGraph, task: int) -> str:
        """Return what a trace calls a task."""
        ...
