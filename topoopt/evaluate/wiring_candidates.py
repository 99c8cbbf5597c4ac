"""Topologies with routes that a parallelization may get, and the best of them so far."""

from dataclasses import dataclass
from typing import NamedTuple

from parallelism.family import Shorter
from topoopt.fabric.fabric import Fabric
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology
from topoopt.topology.wiring import Ring

WiringKey = tuple[bytes, tuple[Ring, ...]]
"""What tells a topology apart: its links, and its rings."""


def wiring_key(topology: Topology) -> WiringKey:
    """Return what tells a topology apart."""
    network = topology.network
    links = (network.source, network.target, network.multiplicity)
    return b"".join(array.tobytes() for array in links), topology.rings


class WiringCandidate(NamedTuple):
    """A topology with routes, and a bound of its time.

    ``place`` is that among all candidates, ``fabric`` None where it is made again when its turn
    comes, ``links`` the mean links of a pair's routes, 0 where that is not known.
    """

    bound: float
    place: int
    topology: Topology
    routing: Routing
    fabric: Fabric | None
    links: float


def promising_first(one: WiringCandidate) -> tuple[float, int]:
    """Return what puts the most promising first, and of equal ones that which was made first."""
    return one.bound, one.place


@dataclass
class BestWiring:
    """The fastest topology and routes so far, and the topology that looked fastest unsimulated.

    Until a faster one is found, ``whole`` more wirings of many servers are simulated to their end,
    whatever that takes; ``cut`` simulations took too much work, and on ``large`` wirings the routes
    would have more links than ``routed``. Where more transfers than ``moves`` a server would be
    routed, nothing is simulated, nor is it where the time is known (``simulated``). What a long
    iteration takes may follow from ``shorter`` ones.
    """

    time: float
    whole: float
    routed: float
    moves: float
    cut: int = 0
    large: int = 0
    found: tuple[Topology, Routing, Fabric] | None = None
    promising: Topology | None = None
    simulated: tuple[WiringKey, Routing] | None = None
    shorter: Shorter | None = None
