"""A parallelization on a wired and routed cluster, scored."""

from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np

from parallelism.family import P
from topoopt.evaluate.scheduling import Simulated
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.jitter import Jitter
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology


@dataclass(frozen=True)
class Pair(Generic[P]):
    """A parallelization on a wired and routed cluster, scored.

    Parameters
    ----------
    strategy : P
        The parallelization: an operator strategy, or a placed layout.
    topology : Topology or None
        None for a single server, which needs no network.
    routing : Routing
    fabric : Fabric
    time : float
        Iteration time, seconds.
    origin : str
        Where the strategy came from (a named strategy, or "search").
    in_trains : float, optional
        Seconds of one copy in long packet trains, where these have ranked the pair as it is.
    packets : Jitter, optional
        Times in packet trains that confirm the pair as it is, where they are known.
    simulated : Simulated, optional
        Its iteration under the plain schedule, where the pair as it is was simulated so.
    """

    strategy: P
    topology: Topology | None
    routing: Routing
    fabric: Fabric
    time: float
    origin: str
    in_trains: float | None = field(default=None, compare=False)
    packets: Jitter | None = field(default=None, compare=False)
    simulated: Simulated | None = field(default=None, compare=False)

    def wired_like(self, other: "Pair[Any]") -> bool:
        """Whether both have the same links, rings and routing."""
        mine, theirs = self.fabric.network, other.fabric.network
        return (
            self.routing is other.routing
            and self.fabric.rings == other.fabric.rings
            and np.array_equal(mine.source, theirs.source)
            and np.array_equal(mine.target, theirs.target)
            and np.array_equal(mine.capacity, theirs.capacity)
        )
