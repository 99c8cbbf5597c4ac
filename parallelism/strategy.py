"""A parallelization strategy: how each operator is split, and where its parts run."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.graph import Mode, ModelGraph


@dataclass(frozen=True)
class OperatorConfig:
    """How one operator is split and placed.

    Part (i, j) is sample shard i of ``sample`` and parameter shard j of ``parameter``; it runs
    on ``servers[i * parameter + j]``. The servers are distinct. Replicas of parameter shard j
    (all i) form one AllReduce group.

    Parameters
    ----------
    sample, parameter : int
        Degrees of sample and of parameter (tensor) parallelism.
    mode : Mode
        How the parameter dimension is split (immaterial when ``parameter`` is 1).
    servers : tuple of int
        One server a part.
    """

    sample: int
    parameter: int
    mode: Mode
    servers: tuple[int, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Searches look configurations up millions of times, and servers may be thousands.
        return hash((self.sample, self.parameter, self.mode, self.servers))

    @property
    def parts(self) -> int:
        """Number of parts, ``sample * parameter``."""
        return self.sample * self.parameter

    @cached_property
    def servers_array(self) -> npt.NDArray[np.int64]:
        """The servers as an array."""
        return np.asarray(self.servers, dtype=np.int64)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """For each parameter shard, the sorted servers that replicate it."""
        p = self.parameter
        return tuple(tuple(sorted(self.servers[j::p])) for j in range(p))


@dataclass(frozen=True)
class Strategy:
    """One configuration an operator, in the order of the model graph."""

    configs: tuple[OperatorConfig, ...]

    def replace(self, changes: Iterable[tuple[int, OperatorConfig]]) -> "Strategy":
        """Return a copy in which some operators have another configuration."""
        configs = list(self.configs)
        for index, config in changes:
            configs[index] = config
        return Strategy(tuple(configs))


def parted(graph: ModelGraph, strategy: Strategy) -> tuple[int, int] | None:
    """Return two operators of the same weights that a strategy divides differently; None without.

    Parameters
    ----------
    graph : ModelGraph
    strategy : Strategy

    Returns
    -------
    (int, int) or None
    """
    for first, *others in graph.shared:
        mine = strategy.configs[first]
        for other in others:
            theirs = strategy.configs[other]
            alike = mine.parameter == 1 or mine.mode is theirs.mode
            if (mine.parameter, mine.servers) != (theirs.parameter, theirs.servers) or not alike:
                return first, other
    return None


def check_legal(graph: ModelGraph, strategy: Strategy, servers: int, batch: int) -> None:
    """Check that a strategy is legal for a model on so many servers.

    Parameters
    ----------
    graph : ModelGraph
    strategy : Strategy
    servers : int
        Number of servers.
    batch : int
        Global batch, samples an iteration.

    Raises
    ------
    InputError
        Naming the operator and the rule it breaks: one configuration an operator, positive
        degrees, a part a distinct existing server, sample degree dividing the batch, parameter
        degree dividing the extent of a split that the operator has, operators of the same weights
        alike.
    """
    if len(strategy.configs) != len(graph.operators):
        raise InputError(
            f"strategy has {counted(len(strategy.configs), 'configuration')} for "
            f"{counted(len(graph.operators), 'operator')} of model {graph.name!r}; give one each"
        )
    for op, config in zip(graph.operators, strategy.configs, strict=True):
        where = f"strategy of operator {op.name!r}"
        if config.sample < 1 or config.parameter < 1:
            raise InputError(
                f"{where}: degrees {config.sample} x {config.parameter}; give at least 1 each"
            )
        if len(config.servers) != config.parts:
            raise InputError(
                f"{where}: {counted(config.parts, 'part')} on "
                f"{counted(len(config.servers), 'server')}; give one each"
            )
        if len(set(config.servers)) != config.parts:
            raise InputError(f"{where}: a server holds two parts; use distinct servers")
        if min(config.servers) < 0 or max(config.servers) >= servers:
            raise InputError(
                f"{where}: server {max(config.servers)} does not exist; "
                f"servers are 0..{servers - 1}"
            )
        if batch % config.sample:
            raise InputError(
                f"{where}: sample degree {config.sample} does not divide the global batch "
                f"{batch}; choose a divisor"
            )
        if config.parameter > 1:
            split = op.split(config.mode)
            if split is None or split.extent % config.parameter:
                raise InputError(
                    f"{where}: cannot be split {config.parameter} ways by "
                    f"{config.mode.name.lower()}; "
                    f"legal splits: {[(s.mode.name.lower(), s.extent) for s in op.splits]}"
                )
    apart = parted(graph, strategy)
    if apart is not None:
        first, other = (graph.operators[index].name for index in apart)
        raise InputError(
            f"strategy of operator {other!r}: it uses the weights of {first!r}; give both the same "
            "parts on the same servers"
        )
