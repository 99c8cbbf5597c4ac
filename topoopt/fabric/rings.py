"""Rings for AllReduce groups that were given none, and the load of rings on the links."""

from math import gcd

import numpy as np
import numpy.typing as npt

from routing.network import FloatArray, IntArray, Network
from routing.routes import Routes
from topoopt_base import InputError

Rings = tuple[tuple[int, ...], ...]

MAX_CANDIDATES = 16
MAX_RINGS = 8


def ring_pairs(orders: IntArray, hosts: int) -> IntArray:
    """Return the row of `Routes` of every ring edge, shape (rings, group size)."""
    return orders * hosts + np.roll(orders, -1, axis=1)


def ring_loads(routes: Routes, links: int, orders: IntArray) -> FloatArray:
    """Return how much of a ring edge's traffic each link carries, per ring order.

    Parameters
    ----------
    routes : Routes
    links : int
        Number of links of the network.
    orders : int64 array, shape (rings, group size)
        Ring orders; consecutive members (cyclically) are joined by an edge.

    Returns
    -------
    float64 array, shape (rings, links)
        Sum of the route weights of the ring's edges.

    Raises
    ------
    InputError
        If two consecutive members have no route.
    """
    pairs = ring_pairs(orders, routes.hosts)
    flat = pairs.ravel()
    begin = routes.offsets[flat]
    counts = routes.offsets[flat + 1] - begin
    if counts.size and counts.min() == 0:
        source, target = divmod(int(flat[np.argmin(counts)]), routes.hosts)
        raise InputError(f"a ring uses {source}->{target}, which has no route; route that pair")
    ends = np.cumsum(counts)
    entries = np.arange(ends[-1]) + np.repeat(begin - ends + counts, counts)
    ring = np.repeat(np.repeat(np.arange(orders.shape[0]), orders.shape[1]), counts)
    loads = np.bincount(
        ring * links + routes.links[entries],
        weights=routes.weights[entries],
        minlength=orders.shape[0] * links,
    )
    return loads.reshape(orders.shape[0], links)


def _generators(size: int) -> list[int]:
    """Return generators coprime to the size, at most `MAX_CANDIDATES` of them spread evenly."""
    coprime = [p for p in range(1, size) if gcd(p, size) == 1]
    if len(coprime) <= MAX_CANDIDATES:
        return coprime
    spread = np.linspace(0, len(coprime) - 1, MAX_CANDIDATES).round().astype(int)
    return [coprime[i] for i in spread]


def _nearest_neighbour_tour(hops: FloatArray) -> IntArray:
    """Return a tour that always goes on to the nearest member not yet visited."""
    size = hops.shape[0]
    distance = hops.copy()
    tour = np.zeros(size, dtype=np.int64)
    distance[:, 0] = np.inf
    for step in range(1, size):
        nearest = int(distance[tour[step - 1]].argmin())
        tour[step] = nearest
        distance[:, nearest] = np.inf
    return tour


def default_rings(network: Network, routes: Routes, group: tuple[int, ...]) -> Rings:
    """Choose rings that let one AllReduce over the group, alone on the network, end soonest.

    Candidates are the orders "+p" over the sorted members for p coprime to the group's size
    (at most 16 of them, spread evenly), and a nearest-neighbour tour by hops. The best one is
    taken; then the ring that lowers the time most is added, while one does, up to 8 rings.
    Where there are switches, one ring in sorted order.

    Parameters
    ----------
    network : Network
    routes : Routes
    group : tuple of int
        Sorted hosts, at least two.

    Returns
    -------
    tuple of tuple of int
        Ring orders.

    Raises
    ------
    InputError
        If two consecutive members have no route.

    References
    ----------
    The "+p" orders are TotientPerms of TopoOpt (NSDI 2023), section 4.3; choosing among them by
    the load of their routed edges is ours, for groups that the topology was not built for.
    """
    size = len(group)
    members: npt.NDArray[np.int64] = np.array(group, dtype=np.int64)
    if network.switches > 0 or size <= 3:
        orders = (
            members[None, :]
            if size < 3 or network.switches > 0
            else members[[[0, 1, 2], [0, 2, 1]]]
        )
    else:
        steps = np.array(_generators(size), dtype=np.int64)
        orders = members[np.outer(steps, np.arange(size)) % size]
        hops = routes.hops.reshape(routes.hosts, routes.hosts)[np.ix_(members, members)]
        orders = np.vstack((orders, members[_nearest_neighbour_tour(hops)]))
    if orders.shape[0] == 1:
        return (tuple(orders[0].tolist()),)
    times = ring_loads(routes, network.links, orders) / network.capacity
    used = np.flatnonzero(times.any(axis=0))
    times = times[:, used]
    chosen: list[int] = []
    total = np.zeros(used.size)
    best = np.inf
    while len(chosen) < min(MAX_RINGS, orders.shape[0]):
        trial = (total + times).max(axis=1) / (len(chosen) + 1)
        trial[chosen] = np.inf
        pick = int(trial.argmin())
        if not trial[pick] < best * (1.0 - 1e-9):
            break
        best = float(trial[pick])
        chosen.append(pick)
        total = total + times[pick]
    return tuple(tuple(orders[pick].tolist()) for pick in chosen)
