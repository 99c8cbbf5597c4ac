"""Rings for AllReduce groups that were given none, and the load of rings on the links."""

from math import gcd

import numpy as np

from codesign_base import InputError
from routing.network import FloatArray, IntArray, Network
from routing.routes import Routes

Rings = tuple[tuple[int, ...], ...]

MAX_RINGS = 8
MAX_CIRCULANT = 16
STARTS = 4
PATIENCE = 3
NORM = 8
STEEPNESS = 8.0  # price of a fully loaded link over that of an idle one, less one
SAMPLE = 256  # ring edges looked at to rank "+p" orders of larger groups


def ring_pairs(orders: IntArray, hosts: int) -> IntArray:
    """Return the row of `Routes` of every ring edge, shape (rings, group size)."""
    # Not np.roll, which costs several times as much for short rings.
    return orders * hosts + np.concatenate((orders[:, 1:], orders[:, :1]), axis=1)


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
    return pair_loads(routes, links, ring_pairs(orders, routes.hosts))


def pair_loads(routes: Routes, links: int, pairs: IntArray) -> FloatArray:
    """Return the sum of route weights on each link, for sets of pairs.

    Parameters
    ----------
    routes : Routes
    links : int
        Number of links of the network.
    pairs : int64 array, shape (sets, pairs of each)
        Rows of `Routes`.

    Returns
    -------
    float64 array, shape (sets, links)

    Raises
    ------
    InputError
        If a pair has no route.
    """
    flat = pairs.ravel()
    begin = routes.offsets[flat]
    counts = routes.offsets[flat + 1] - begin
    if counts.size and counts.min() == 0:
        source, target = divmod(int(flat[np.argmin(counts)]), routes.hosts)
        raise InputError(f"a ring uses {source}->{target}, which has no route; route that pair")
    ends = np.cumsum(counts)
    entries = np.arange(ends[-1]) + np.repeat(begin - ends + counts, counts)
    of = np.repeat(np.repeat(np.arange(pairs.shape[0]), pairs.shape[1]), counts)
    loads = np.bincount(
        of * links + routes.links[entries],
        weights=routes.weights[entries],
        minlength=pairs.shape[0] * links,
    )
    return loads.astype(np.float64).reshape(pairs.shape[0], links)


def _circulant_orders(members: IntArray, cost: FloatArray) -> IntArray:
    """Return the orders "+p", p coprime to the group's size, whose edges cost least, best first."""
    size = members.size
    steps = np.array([p for p in range(1, size) if gcd(p, size) == 1], dtype=np.int64)
    seen = np.arange(0, size, 1 + size // SAMPLE)
    total = cost[seen, (seen + steps[:, None]) % size].sum(axis=1)
    best = np.argsort(total, kind="stable")[:MAX_CIRCULANT]
    return members[np.outer(steps[best], np.arange(size)) % size]


def _disjoint_enough(times: FloatArray) -> tuple[float, list[int]]:
    """Add rings, each the one that leaves the time lowest; return the best time and its rings."""
    total = np.zeros(times.shape[1])
    free = np.zeros(len(times))
    chosen: list[int] = []
    best, keep = np.inf, 0
    for _ in range(min(MAX_RINGS, len(times))):
        pick = int(((total + times).max(axis=1) + free).argmin())
        chosen.append(pick)
        free[pick] = np.inf
        total += times[pick]
        if total.max() / len(chosen) < best * (1.0 - 1e-9):
            best, keep = float(total.max()) / len(chosen), len(chosen)
    return best, chosen[:keep]


def default_rings(network: Network, routes: Routes, group: tuple[int, ...]) -> Rings:
    """Choose rings that let one AllReduce over the group, alone on the network, end soonest.

    First, rings are taken one by one from the 16 orders "+p" over the sorted members, p coprime
    to the group's size, whose edges take the fewest hops. Then the same with tours added that
    always go on to the nearest member left, from a few starts, where links cost more the more
    the rings so far load them. The best of all these sets, of up to 8 rings each, is returned.
    It ends early when the time meets its bound (a member's links in or out, all full), or when
    three more rings have not helped. Where there are switches, one ring in sorted order.

    Parameters
    ----------
    network : Network
    routes : Routes
    group : tuple of int
        Sorted hosts, at least two.

    Returns
    -------
    tuple of tuple of int
        Ring orders. One may stand twice, and then carries two parts.

    Raises
    ------
    InputError
        If two consecutive members have no route.

    References
    ----------
    The "+p" orders are TotientPerms of TopoOpt (NSDI 2023), section 4.3; choosing among them by
    the load of their routed edges is ours, for groups that the topology was not built for.
    """
    if network.switches > 0 or len(group) < 3:
        return (group,)

    from topoopt.fabric.rings_kernels import nearest_neighbour_tours, route_prices

    members: IntArray = np.array(group, dtype=np.int64)
    size = members.size
    slowness = 1.0 / network.capacity
    out = np.bincount(network.source, weights=network.capacity, minlength=network.nodes)
    into = np.bincount(network.target, weights=network.capacity, minlength=network.nodes)
    bound = float((1.0 / np.maximum(np.minimum(out, into)[members], 1e-300)).max())
    starts = np.unique(np.arange(STARTS) * size // STARTS)

    def prices(load: FloatArray) -> FloatArray:
        price = slowness * (1.0 + STEEPNESS * load / max(float(load.max()), 1e-300))
        return route_prices(
            members, routes.hosts, routes.offsets, routes.links, routes.weights, price
        )

    total = np.zeros(network.links)
    cost = prices(total)
    orders = _circulant_orders(members, cost)
    times = ring_loads(routes, network.links, orders) * slowness
    best, kept = _disjoint_enough(times)
    chosen: list[int] = []
    idle, lowest = 0, np.inf
    while len(chosen) < MAX_RINGS and idle < PATIENCE and best > bound * (1.0 + 1e-9):
        fresh = members[nearest_neighbour_tours(cost, starts)]
        orders = np.vstack((orders, fresh))
        times = np.vstack((times, ring_loads(routes, network.links, fresh) * slowness))
        trial = total + times
        # A high norm rather than the maximum: it still tells candidates apart when all of them
        # load some link equally.
        norm = ((trial / trial.max()) ** NORM).sum(axis=1)
        norm[chosen] = np.inf
        chosen.append(int(norm.argmin()))
        total = trial[chosen[-1]]
        time = float(total.max()) / len(chosen)
        idle = 0 if time < lowest * (1.0 - 1e-9) else idle + 1
        lowest = min(lowest, time)
        if time < best * (1.0 - 1e-9):
            best, kept = time, list(chosen)
        cost = prices(total)
    return tuple(tuple(orders[pick].tolist()) for pick in kept)
