"""Models by operators, each split and placed by itself, as a family of parallelizations."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from parallelism.builder import TaskGraphBuilder
from parallelism.builder_rows import PortLoad
from parallelism.device import ComputeModel, Server
from parallelism.iterations import accumulate
from parallelism.optimizer import Optimizer
from parallelism.profile import ProfileModel
from parallelism.strategy import Strategy, check_legal, parted
from parallelism.taskgraph import Phase, TaskGraph, TaskKind

if TYPE_CHECKING:
    from parallelism.operator_records import OperatorQuestion, StrategyRecord

_IN_GRAPH = (
    "the model is an operator graph, which has one already; give it to the transformer that the "
    "graph is made of (models.get_model, or a transformer with --per-operator), or leave it out"
)
_BATCH = (
    "the model is planned operator by operator; leave it out, or give the batch per GPU instead, "
    "or a language model by its layouts (in Python load_transformer)"
)
_LAYOUTS_ONLY = "the model is planned operator by operator, where it says nothing; leave it out"


@dataclass(frozen=True, eq=False)
class OperatorFamily:
    """All operator strategies of a model on some servers.

    Parameters
    ----------
    builder : TaskGraphBuilder
    server : Server
    compute : ComputeModel
        Times of operator parts; the builder's.
    batch_per_gpu : int
        Samples per GPU and iteration.
    optimizer : {"sgd", "momentum", "adam"}
    microbatches : int
        Parts of the batch that run one after another in the task graphs that it builds. Strategies
        whose sample shards do not divide them do not fit.
    packet_bytes : float
        Where an AllReduce has less than so many bytes for each member, the task graphs that it
        builds have gradients in buckets (`parallelism.buckets.packet_bucket`), filled in the
        reverse order of the operators. 0: every gradient is reduced by itself.
    """

    builder: TaskGraphBuilder
    server: Server
    compute: ComputeModel
    batch_per_gpu: int
    optimizer: str
    microbatches: int = 1
    packet_bytes: float = 0.0
    # What was built last, as long as anyone has it: it is often asked for again meanwhile.
    _last: list[tuple[Strategy, ref[TaskGraph]]] = field(
        default_factory=list, init=False, repr=False
    )

    kind: ClassVar[str] = "operators"
    noun: ClassVar[str] = "strategy"
    overlaps: ClassVar[bool] = True
    enumerated: ClassVar[bool] = False
    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("sequence", "mtp_layers"), _IN_GRAPH),
        **dict.fromkeys(
            (
                "choices", "implementation", "rates", "memory_reserve",
                "simulated", "memory_bytes",
            ),
            _LAYOUTS_ONLY,
        ),
        "global_batch": _BATCH,
    }  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to another process: nothing that can be worked out there."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"_last": []}

    @property
    def servers(self) -> int:
        """Number of servers."""
        return self.builder.servers

    @property
    def batch(self) -> int:
        """Samples of an iteration."""
        return self.builder.batch

    @property
    def memory_limit(self) -> float:
        """Bytes of each GPU."""
        return self.server.accelerator.memory_bytes

    def build(self, strategy: Strategy) -> TaskGraph:
        """Return the task graph of one iteration; see `TaskGraphBuilder.build`.

        Raises
        ------
        InputError
            If the batch cannot be divided.
        """
        tasks = self.microbatched(strategy, self.microbatches)
        if tasks is None:
            raise InputError(
                f"microbatches is {self.microbatches}, which sample shards of the strategy do not "
                f"divide in a batch of {self.batch}; choose fewer"
            )
        return tasks

    def represented(self, strategy: Strategy) -> TaskGraph:
        """Return the task graph of one iteration."""
        for known, last in self._last[:]:
            found = last() if known is strategy else None
            if found is not None:
                return found
        tasks = self.build(strategy)
        self._last[:] = [(strategy, ref(tasks))]
        return tasks

    def port_load(self, strategy: Strategy) -> PortLoad:
        """Return what each server sends an iteration; see `TaskGraphBuilder.port_load`.

        Tasks are counted of one microbatch.
        """
        return self.builder.port_load(strategy, self.packet_bytes)

    def in_buckets(self, packet_bytes: float) -> "OperatorFamily":
        """Return the same with gradients fused that have less than a packet for each server."""
        same = packet_bytes == self.packet_bytes
        return self if same else replace(self, packet_bytes=packet_bytes)

    def tokens_per_s(self, seconds: float) -> None:
        """Return None: a sample of a graph is no sequence of tokens."""

    def utilisation(self, seconds: float) -> None:
        """Return None: a graph's operations have no convention of counting."""

    def least_seconds(self, strategy: Strategy) -> float:
        """Return the seconds of the busiest device, which no iteration is shorter than."""
        return float(self.builder.device_seconds(strategy).max())

    def memory(self, strategy: Strategy) -> Floats:
        """Return the bytes that a GPU of each server needs; see `TaskGraphBuilder.memory`.

        Infinite for what is never trained so: operators of the same weights divided differently.
        """
        apart = parted(self.builder.graph, strategy) is not None
        if apart or not self._divides(strategy, self.microbatches):
            return np.full(self.servers, np.inf)
        return self.builder.memory(strategy)

    def shorter(self, strategy: Strategy) -> None:
        """Return None: nothing of an iteration is repeated."""
        return

    def microbatched(self, strategy: Strategy, microbatches: int) -> TaskGraph | None:
        """Return one iteration in so many microbatches; None where the batch cannot be divided.

        Gradients are in buckets as those of `build`.
        """
        if microbatches == 1:
            return self.builder.build(strategy, self.packet_bytes)
        if not self._divides(strategy, microbatches):
            return None
        small = self.builder.of_microbatch(microbatches)
        return accumulate(small.build(strategy, self.packet_bytes), microbatches)

    def _divides(self, strategy: Strategy, microbatches: int) -> bool:
        """Whether every sample shard has its share of every microbatch."""
        return microbatches == 1 or not any(
            self.batch % (microbatches * config.sample) for config in strategy.configs
        )

    def question(self) -> "OperatorQuestion":
        """Return the record from which the family is made again, beside the servers."""
        from parallelism.operator_records import OperatorQuestion, model_record

        return OperatorQuestion(
            model=model_record(self.builder.graph),
            server=self.server,
            batch_per_gpu=self.batch_per_gpu,
            optimizer=self.optimizer,
            compute=self.compute.describe(),
        )

    @classmethod
    def asked(cls, question: "OperatorQuestion", servers: int, batch: int) -> "OperatorFamily":
        """Return the family of a record on so many servers, for so many samples an iteration.

        Raises
        ------
        InputError
            If the record is not well formed.
        """
        from parallelism.operator_records import rebuild_compute, rebuild_model

        if question.optimizer not in set(Optimizer):
            raise InputError(
                f"optimizer is {question.optimizer!r}; expected {', '.join(Optimizer)}"
            )
        expected = servers * question.server.gpus * question.batch_per_gpu
        if batch != expected:
            raise InputError(f"global_batch is {batch}, servers x GPUs x batch is {expected}")
        compute = rebuild_compute(question.compute, question.server)
        builder = TaskGraphBuilder(
            rebuild_model(question.model), compute, question.server, servers, batch,
            Optimizer(question.optimizer).states,
        )  # fmt: skip
        return cls(builder, question.server, compute, question.batch_per_gpu, question.optimizer)

    def on(self, servers: int, batch: int) -> "OperatorFamily":
        """Return the same job on other servers, with the same samples per GPU."""
        old = self.builder
        builder = TaskGraphBuilder(
            old.graph, old.compute, old.server, servers, batch, old.optimizer_states
        )
        return replace(self, builder=builder)

    def record(self, strategy: Strategy) -> "StrategyRecord":
        """Return a strategy as a plan file holds it, with the times of its parts."""
        from parallelism.operator_records import strategy_record

        return strategy_record(self.builder, strategy)

    def read(self, record: "StrategyRecord") -> Strategy:
        """Return the strategy of a record.

        Raises
        ------
        InputError
            If it is not legal, or does not fit in memory.
        """
        from parallelism.operator_records import rebuild_strategy

        strategy = rebuild_strategy(self.builder.graph, record)
        check_legal(self.builder.graph, strategy, self.servers, self.batch)
        needed, limit = float(self.memory(strategy).max()), self.memory_limit
        if needed > limit:
            raise InputError(f"needs {needed:.4g} bytes on a GPU that has {limit:.4g}")
        return strategy

    def task_label(self, tasks: TaskGraph, task: int) -> str:
        """Return what a trace calls a task: its phase, its operator and its servers."""
        kind, phase = TaskKind(tasks.kind[task]), Phase(tasks.phase[task]).name.lower()
        operator = int(tasks.operator[task])
        operators = self.builder.graph.operators
        of = f" of {operators[operator].name}" if 0 <= operator < len(operators) else ""
        if kind is TaskKind.COMPUTE:
            return f"{phase}{of}"
        if kind is TaskKind.TRANSFER:
            return f"{phase}{of} {tasks.first[task]}->{tasks.second[task]}"
        return f"AllReduce{of} over {len(tasks.groups[tasks.first[task]])} servers"

    def assumptions(self, strategy: Strategy, microbatches: int = 1) -> tuple[str, ...]:
        """Return the assumptions behind a strategy's own times, not those of all that was tried."""
        if not isinstance(self.compute, ProfileModel):
            return self.compute.notes
        own = ProfileModel(
            self.compute.profile, self.compute.server, missing=self.compute.missing,
            roofline=self.compute.roofline,
        )  # fmt: skip
        for index, config in enumerate(strategy.configs):
            own.operator_time(
                self.builder.graph, index, self.batch // microbatches, config.sample,
                config.parameter, config.mode,
            )  # fmt: skip
        return own.notes
