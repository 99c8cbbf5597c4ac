"""What a builder of task graphs knows of a strategy before it makes any task."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from parallelism.memory_kernels import PARAMETER, SAMPLE, SLICES_INPUT, SLICES_OUTPUT
from parallelism.strategy import OperatorConfig

# Rows of times: seconds forward, backward and of the update, gradient bytes, seconds inside a
# server, memory.
SECONDS = 3
UPDATE, GRADIENT, MEMORY = 2, 3, 5


@dataclass(frozen=True)
class Record:
    """What one configuration of one operator implies."""

    config: OperatorConfig  # kept alive, because records are found by its identity
    splits: tuple[int, int, int, int, int]
    times: tuple[float, float, float, float, float, float]
    groups: Ints


class SplitArrays(NamedTuple):
    """How operators are split and placed, as kernels take it."""

    sample: Ints
    parameter: Ints
    slices_input: npt.NDArray[np.bool_]
    slices_output: npt.NDArray[np.bool_]
    offsets: Ints
    servers: Ints


class StrategyRecords(NamedTuple):
    """The records of a strategy, an operator a column."""

    configs: tuple[OperatorConfig, ...]
    records: tuple[Record, ...]
    splits: Ints
    times: Floats
    offsets: Ints
    servers: Ints

    @property
    def split(self) -> SplitArrays:
        """How operators are split and placed."""
        reads, writes = (self.splits[row].astype(np.bool_) for row in (SLICES_INPUT, SLICES_OUTPUT))
        sample, parameter = self.splits[SAMPLE], self.splits[PARAMETER]
        return SplitArrays(sample, parameter, reads, writes, self.offsets, self.servers)


class Edges(NamedTuple):
    """Which operators read which, and what: an edge an entry, but for ``features``."""

    source: Ints
    target: Ints
    bytes: Floats
    # First feature, and features, of each input of a concatenation, else zeros.
    beside: Ints
    # Of each operator.
    features: Ints


class PortLoad(NamedTuple):
    """What a strategy sends, told without its task graph.

    ``tasks``: of the task graph; ``transfers``: those of them that are transfers. ``sent``:
    bytes that each server sends, and receives as many, in transfers and in its part of
    AllReduces, shape (servers,).
    """

    tasks: int
    transfers: int
    sent: Floats
