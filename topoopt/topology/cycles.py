"""Few servers on one cycle, in every order.

Rings of AllReduce groups and matchings put what sends most next to each other. Where one pair sends
nearly all, as two stages of a pipeline, it may be faster between servers that are opposite on a
cycle, which both ways round join them. Where messages follow each other, all cables one way round
carry each in the least time.
"""

from collections.abc import Iterator
from itertools import permutations

from topoopt.problem.ports import PortModel
from topoopt.topology.finder import Topology, topology_of
from topoopt.topology.wiring import Wiring

# The orders of more would take most of a search.
_FEWEST, _MOST = 3, 5


def cycle_wirings(
    servers: int, degree: int, bandwidth: float, latency: float, ports: PortModel
) -> Iterator[Topology]:
    """Wire all ports of three to five servers along one cycle, in every order.

    Parameters
    ----------
    servers : int
    degree : int
        Ports a server: between directed ones all cables go one way round, or every second one
        goes the other way.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds a hop.
    ports : PortModel

    Yields
    ------
    Topology
        None for fewer or more servers, or a bidirectional port. One of each two orders that are
        each other's reverse where that makes no difference; on three servers only those whose
        cables all go one way, as others join all of them.
    """
    wiring = Wiring(servers, degree, ports)
    everyone = tuple(range(servers))
    if not _FEWEST <= servers <= _MOST or degree < wiring.ring_ports(everyone):
        return
    directed = not wiring.bidirectional
    either_way = not directed or degree % 2 == 0
    for rest in permutations(everyone[1:]):
        order, back = (0, *rest), (0, *rest[::-1])
        if servers > 3 and not (either_way and order > back):
            yield _around(Wiring(servers, degree, ports), order, back, bandwidth, latency)
        if directed and degree > 1:
            yield _around(Wiring(servers, degree, ports), order, order, bandwidth, latency)


def _around(
    wiring: Wiring, order: tuple[int, ...], back: tuple[int, ...], bandwidth: float, latency: float
) -> Topology:
    """Wire all ports along two orders of all servers in turn."""
    everyone = tuple(sorted(order))
    while wiring.free(everyone) >= wiring.ring_ports(everyone):
        wiring.add_cycle(everyone, order)
        order, back = back, order
    wiring.fill()
    return topology_of(wiring, wiring.degree, bandwidth, latency)


__all__ = ["cycle_wirings"]
