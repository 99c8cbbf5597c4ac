"""Few servers on one cycle, in every order.

Rings of AllReduce groups and matchings put what sends most next to each other. Where one pair sends
nearly all, as two stages of a pipeline, it may be faster between servers that are opposite on a
cycle, which both ways round join them.
"""

from collections.abc import Iterator
from itertools import permutations

from topoopt.problem.ports import PortModel
from topoopt.topology.finder import Topology, topology_of
from topoopt.topology.wiring import Wiring

# On three there is one cycle; the orders of more would take most of a search.
_FEWEST, _MOST = 4, 5


def cycle_wirings(
    servers: int, degree: int, bandwidth: float, latency: float, ports: PortModel
) -> Iterator[Topology]:
    """Wire all ports of four or five servers along one cycle, in every order.

    Parameters
    ----------
    servers : int
    degree : int
        Ports a server: between directed ones every second cable goes the other way round.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds a hop.
    ports : PortModel

    Yields
    ------
    Topology
        None for fewer or more servers, or a bidirectional port. One of each two orders that are
        each other's reverse where that makes no difference.
    """
    wiring = Wiring(servers, degree, ports)
    everyone = tuple(range(servers))
    if not _FEWEST <= servers <= _MOST or degree < wiring.ring_ports(everyone):
        return
    either_way = wiring.bidirectional or degree % 2 == 0
    for rest in permutations(everyone[1:]):
        if either_way and rest > rest[::-1]:
            continue
        wiring = Wiring(servers, degree, ports)
        order, back = (0, *rest), (0, *rest[::-1])
        while wiring.free(everyone) >= wiring.ring_ports(everyone):
            wiring.add_cycle(everyone, order)
            order, back = back, order
        wiring.fill()
        yield topology_of(wiring, degree, bandwidth, latency)


__all__ = ["cycle_wirings"]
