"""Few servers on one cycle, in every order.

Rings of AllReduce groups and matchings put what sends most next to each other. Where one pair sends
nearly all, as two stages of a pipeline, it may be faster between servers that are opposite on a
cycle, which both ways round join them. Where messages follow each other, all cables one way round
carry each in the least time.
"""

from collections.abc import Iterator
from itertools import permutations

from parallelism.taskgraph import Group
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.topology.finder import Topology, topology_of
from topoopt.topology.wiring import Wiring

# The orders of more would take most of a search.
_FEWEST, _MOST = 4, 5
_FEWEST_ONE_WAY = 3


def cycle_wirings(cluster: Cluster) -> Iterator[Topology]:
    """Wire all ports of four or five servers along one cycle, in every order.

    Parameters
    ----------
    cluster : Cluster
        Between directed ports every second cable goes the other way round.

    Yields
    ------
    Topology
        None for fewer or more servers, or a bidirectional port. One of each two orders that are
        each other's reverse where that makes no difference.
    """
    servers, degree = cluster.servers, cluster.degree
    wiring = _unwired(cluster)
    if not _FEWEST <= servers <= _MOST or degree < wiring.ring_ports(tuple(range(servers))):
        return
    either_way = wiring.bidirectional or degree % 2 == 0
    for order in _orders(servers):
        back = (0, *reversed(order[1:]))
        if not (either_way and order > back):
            yield _around(cluster, (order, back))


def one_way_wirings(cluster: Cluster) -> Iterator[Topology]:
    """Wire all directed ports of three to five servers one way round a cycle, in every order.

    Parameters
    ----------
    cluster : Cluster

    Yields
    ------
    Topology
        None for fewer or more servers, bidirectional ports or a single port. Without any of its
        servers the others are cut off from each other.
    """
    servers, both_ways = cluster.servers, cluster.port_model is PortModel.BIDIRECTIONAL
    if both_ways or cluster.degree == 1 or not _FEWEST_ONE_WAY <= servers <= _MOST:
        return
    for order in _orders(servers):
        yield _around(cluster, (order, order))


def _orders(servers: int) -> Iterator[Group]:
    """Yield every order of servers around a cycle."""
    return ((0, *rest) for rest in permutations(range(1, servers)))


def _unwired(cluster: Cluster) -> Wiring:
    return Wiring(cluster.servers, cluster.degree, cluster.port_model)


def _around(cluster: Cluster, orders: tuple[Group, Group]) -> Topology:
    """Wire all ports along two orders of all servers in turn."""
    wiring = _unwired(cluster)
    everyone = tuple(range(wiring.servers))
    (order, after) = orders
    while wiring.free(everyone) >= wiring.ring_ports(everyone):
        wiring.add_cycle(order)
        order, after = after, order
    wiring.fill()
    return topology_of(wiring, wiring.degree, cluster.port_rate, cluster.hop_latency)
