"""Rings as trees: every member's part goes all the way round."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import gcd

import networkx as nx

from codesign_base import InfeasibleError, InputError
from routing.collectives.cuts import Arc
from routing.collectives.rate import members_of, roots_of
from routing.collectives.trees import Forest, Tree, of_links, shared_rate
from routing.network import Network

MOST_STRIDES = 64
"""Strides over the sorted members that rings are chosen from."""

Ways = dict[Arc, tuple[int, ...]]


def ring_forest(
    network: Network, orders: Sequence[Sequence[int]], root: int | None = None
) -> Forest:
    """Return an AllGather over rings, each of which carries the same share of every part.

    Parameters
    ----------
    network : Network
    orders : sequence of sequence of int
        Hosts of each ring, the same ones in all; neighbours that no link joins use a shortest path.
    root : int, optional
        Only this member broadcasts.

    Returns
    -------
    Forest

    Raises
    ------
    InputError
        If there is no ring, rings have other hosts, or the root is none of them.
    InfeasibleError
        If a host cannot be reached from the one before it.
    """
    if not orders:
        raise InputError("a collective over no ring; give at least one")
    members = members_of(network, orders[0])
    for order in orders:
        if tuple(sorted(order)) != members:
            raise InputError(f"ring {list(order)} has other hosts than ring {list(orders[0])}")
    ways = _ways(network, orders)
    trees = []
    for order in orders:
        along = [ways[pair] for pair in _pairs(order)]
        trees += [
            Tree(root, 1, tuple([*along[at:], *along[:at]][:-1])) for at, root in enumerate(order)
        ]
    name = "ring" if len(orders) == 1 else "rings"
    if root is not None:
        trees = [tree for tree in trees if tree.root in roots_of(members, root)]
        rate = shared_rate(network, trees, len(orders))
        return Forest(name, members, rate, len(orders), tuple(trees))
    # Every part but one's passes each pair of neighbours.
    load = sum((_load(ways, order) for order in orders), Counter[Arc]())
    rate = len(orders) / (len(members) - 1) / _busiest(load, of_links(network, network.capacity))
    return Forest(name, members, rate, len(orders), tuple(trees))


def strided_rings(network: Network, group: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Return rings of equal strides over the sorted members that together are fastest.

    Strides coprime to the number of members visit all of them (Wang et al., "TopoOpt", 2023,
    section 4.2). Rings are added one at a time as long as the rate grows.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts.
    most : int
        Rings, at least one.

    Returns
    -------
    list of tuple of int
    """
    members = members_of(network, group)
    size = len(members)
    strides = [s for s in range(1, size) if gcd(s, size) == 1][:MOST_STRIDES]
    orders = [tuple(members[at * stride % size] for at in range(size)) for stride in strides]
    ways, capacity = _ways(network, orders), of_links(network, network.capacity)
    loads = [_load(ways, order) for order in orders]
    chosen: list[tuple[int, ...]] = []
    total: Counter[Arc] = Counter()
    best = 0.0
    while len(chosen) < most:
        rates = [(len(chosen) + 1) / _busiest(total + load, capacity) for load in loads]
        top = max(range(len(orders)), key=lambda at: (rates[at], -at))
        if rates[top] <= best:
            break
        best = rates[top]
        chosen.append(orders[top])
        total += loads[top]
    return chosen


def _pairs(order: Sequence[int]) -> list[Arc]:
    return list(pairwise([*order, order[0]]))


def _load(ways: Ways, order: Sequence[int]) -> "Counter[Arc]":
    return Counter(pair for arc in _pairs(order) for pair in pairwise(ways[arc]))


def _busiest(load: "Counter[Arc]", capacity: dict[Arc, float]) -> float:
    return max(amount / capacity[pair] for pair, amount in load.items())


def _ways(network: Network, orders: Sequence[Sequence[int]]) -> Ways:
    """Return a shortest path from each host of a ring to the next."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(network.hosts))
    graph.add_edges_from(zip(network.source.tolist(), network.target.tolist(), strict=True))
    after: dict[int, set[int]] = {}
    for order in orders:
        for a, b in _pairs(order):
            after.setdefault(a, set()).add(b)
    found: Ways = {}
    for a, following in after.items():
        paths = nx.single_source_shortest_path(graph, a)
        for b in sorted(following):
            if b not in paths:
                raise InfeasibleError(
                    f"network {network.name!r}: host {b} cannot be reached from host {a}; choose a "
                    "group that is connected both ways"
                )
            found[a, b] = tuple(paths[b])
    return found
