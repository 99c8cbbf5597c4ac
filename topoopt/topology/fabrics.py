"""The networks that a co-designed topology is compared with, each with its routes."""

from functools import partial

import numpy as np

from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes
from topoopt.problem.ports import PortModel, port_model
from topoopt.topology.cables import both_ways, check_rates
from topoopt.topology.expander import random_regular_cables
from topoopt.topology.fat_tree import fat_tree_network
from topoopt.topology.wiring import Wiring


def ideal_switch(hosts: int, bandwidth: float, latency: float) -> tuple[Network, Routes]:
    """Join all hosts by one switch that is never the bottleneck.

    Parameters
    ----------
    hosts : int
    bandwidth : float
        Bytes per second of a host's link in each direction (TopoOpt compares with d x B).
    latency : float
        Seconds of each of the two links that a byte crosses.

    Returns
    -------
    Network, Routes

    Raises
    ------
    InputError
        If a number is out of range.
    """
    check_rates(hosts, bandwidth, latency, least=1)
    host = np.arange(hosts)
    network = both_ways(
        "ideal switch", hosts, 1, host, np.full(hosts, hosts), float(bandwidth), latency
    )
    return network, Routes.of_all(hosts, partial(ecmp_routes, network))


def fat_tree(
    hosts: int, bandwidth: float, latency: float, oversubscription: float = 1.0
) -> tuple[Network, Routes]:
    """Build the smallest k-ary fat-tree, routed over all equal-cost paths (fluid ECMP).

    Parameters
    ----------
    hosts : int
        k is the smallest even number with k^3 / 4 >= hosts; unused switches are left out.
    bandwidth : float
        Bytes per second of a host's link in each direction.
    latency : float
        Seconds of each link.
    oversubscription : float
        Ratio of a rack's bandwidth to that of its uplinks; 2 is 2:1 at the top of rack.

    Returns
    -------
    Network, Routes
        `routing.merging.merge_equivalent_links` shortens the rows from tens of links to six.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    check_rates(hosts, bandwidth, latency, least=1)
    network = fat_tree_network(hosts, bandwidth, latency, oversubscription)
    return network, ecmp_routes(network)


def merged_fat_tree(
    hosts: int, bandwidth: float, latency: float, oversubscription: float = 1.0
) -> tuple[Network, Routes]:
    """Build the same with the switches of each pod, and of the core, as one.

    Traffic is split evenly over them, so that their links carry as much as one of the sum of
    their capacities. Other than by `routing.merging.merge_equivalent_links`, the routes over all
    of them are never made: six links a pair, where 1,024 hosts have 138 on the average.

    Parameters
    ----------
    hosts, bandwidth, latency, oversubscription
        As in `fat_tree`, with its errors.

    Returns
    -------
    Network, Routes
    """
    check_rates(hosts, bandwidth, latency, least=1)
    whole = fat_tree_network(hosts, bandwidth, latency, oversubscription)
    source, target = whole.source, whole.target
    level = np.full(whole.nodes, 3)
    level[:hosts] = 0
    for below in (0, 1):
        above = target[level[source] == below]
        level[above[level[above] == 3]] = below + 1
    # A pod is called by its first rack: of the switches above racks, the first below them.
    name = np.arange(whole.nodes)
    down = (level[source] == 2) & (level[target] == 1)
    first = np.full(whole.nodes, whole.nodes)
    np.minimum.at(first, source[down], target[down])
    name[level == 2] = whole.nodes + first[level == 2]
    name[level == 3] = 3 * whole.nodes
    nodes, node = np.unique(name, return_inverse=True)
    links, which = np.unique(node[source] * nodes.size + node[target], return_inverse=True)
    network = Network(
        whole.name,
        hosts,
        nodes.size - hosts,
        links // nodes.size,
        links % nodes.size,
        np.bincount(which, weights=whole.capacity).astype(np.float64),
        np.full(links.size, latency),
        np.bincount(which, weights=whole.multiplicity).astype(np.int64),
    )
    return network, Routes.of_all(hosts, partial(ecmp_routes, network))


def even_fat_tree(hosts: int, bandwidth: float, latency: float) -> tuple[Network, Routes]:
    """Build what carries as much as a fat-tree, with all hosts in pods of their own.

    Traffic is split evenly over the switches of a fat-tree, and a link above them carries no more
    than all hosts below may send or receive, so that max-min fair rates are those of the hosts'
    own links, as here. Only pairs in one pod are further apart than they would be: all are as far
    as those in different pods.

    Parameters
    ----------
    hosts, bandwidth, latency
        As in `fat_tree`, with its errors.

    Returns
    -------
    Network, Routes
        Six links a pair. A rotation of the hosts changes nothing, however many there are.
    """
    check_rates(hosts, bandwidth, latency, least=1)
    lower = np.arange(3 * hosts)
    upper = np.minimum(lower + hosts, 3 * hosts)
    network = both_ways(
        "even fat-tree", hosts, 2 * hosts + 1, lower, upper, float(bandwidth), latency
    )
    return network, Routes.of_all(hosts, partial(ecmp_routes, network))


def random_regular(
    hosts: int,
    degree: int,
    bandwidth: float,
    latency: float,
    rng: np.random.Generator,
    ports: PortModel = PortModel.DIRECTED,
) -> tuple[Network, Routes]:
    """Build a random d-regular expander, routed over all shortest paths (fluid ECMP).

    Parameters
    ----------
    hosts : int
        At least 2.
    degree : int
        Ports a host. From ``hosts - 1`` ports on, every pair is joined, the rest in parallel.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds of each link.
    rng : numpy.random.Generator
    ports : PortModel
        Bidirectional: a random regular graph; if hosts x degree is odd, one port stays unused.
        Directed: a union of random permutations without fixed points or common links.

    Returns
    -------
    Network, Routes
        Strongly connected.

    Raises
    ------
    InputError
        If a number is out of range.
    DegreeTooSmallError
        If the degree cannot connect the hosts.
    """
    check_rates(hosts, bandwidth, latency, least=1)
    kind = port_model(ports)
    wiring = Wiring(hosts, degree, kind)
    wiring.cables = random_regular_cables(hosts, degree, rng, kind)
    network = wiring.network("expander", bandwidth, latency)
    return network, Routes.of_all(hosts, partial(ecmp_routes, network))
