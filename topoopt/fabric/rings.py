"""Rings for AllReduce groups that were given none, and the load of rings on the links."""

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric.route_rows import RouteRows

Rings = tuple[tuple[int, ...], ...]

STARTS = 4
SAMPLE = 256  # ring edges looked at to rank "+p" orders of larger groups


def ring_pairs(orders: Ints, hosts: int) -> Ints:
    """Return the row of `Routes` of every ring edge, shape (rings, group size)."""
    # Not np.roll, which costs several times as much for short rings.
    return orders * hosts + np.concatenate((orders[:, 1:], orders[:, :1]), axis=1)


def ring_loads(routes: Routes | RouteRows, links: int, orders: Ints) -> Floats:
    """Return how much of a ring edge's traffic each link carries, per ring order.

    Parameters
    ----------
    routes : Routes or RouteRows
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


def pair_loads(routes: Routes | RouteRows, links: int, pairs: Ints) -> Floats:
    """Return the sum of route weights on each link, for sets of pairs.

    Parameters
    ----------
    routes : Routes or RouteRows
    links : int
        Number of links of the network.
    pairs : int64 array, shape (sets, pairs of each)
        As ``source * hosts + target``.

    Returns
    -------
    float64 array, shape (sets, links)

    Raises
    ------
    InputError
        If a pair has no route.
    """
    rows = RouteRows(routes) if isinstance(routes, Routes) else routes
    flat = pairs.ravel()
    begin, end = rows.entries(flat)
    counts = end - begin
    if counts.size and counts.min() == 0:
        raise _unrouted(int(flat[np.argmin(counts)]), rows.hosts)
    entries = spread(begin, counts)
    of = np.repeat(np.repeat(np.arange(pairs.shape[0]), pairs.shape[1]), counts)
    loads = np.bincount(
        of * links + rows.links[entries],
        weights=rows.weights[entries],
        minlength=pairs.shape[0] * links,
    )
    return loads.astype(np.float64).reshape(pairs.shape[0], links)


def default_rings(
    network: Network,
    routes: Routes | RouteRows,
    group: tuple[int, ...],
    *,
    forwarding: bool = False,
) -> Rings:
    """Choose rings that let one AllReduce over the group, alone on the network, end soonest.

    First, rings are taken one by one from the 16 orders "+p" over the sorted members, p coprime
    to the group's size, whose edges take the fewest hops. Then the same with tours added that
    always go on to the nearest member left, from a few starts, where links cost more the more
    the rings so far load them. The best of all these sets, of up to 8 rings each, is returned.
    It ends early when the time meets its bound (a member's links in or out, all full), or when
    three more rings have not helped. Where there are switches and servers do not forward, one ring
    in sorted order.

    Parameters
    ----------
    network : Network
    routes : Routes or RouteRows
    group : tuple of int
        Sorted hosts, at least two.
    forwarding : bool
        Whether servers forward although there are switches, by nodes of their own.

    Returns
    -------
    tuple of tuple of int
        Ring orders. One may occur twice, and then carries two parts.

    Raises
    ------
    InputError
        If two consecutive members have no route.

    References
    ----------
    The "+p" orders are TotientPerms of TopoOpt (NSDI 2023), section 4.3; choosing among them by
    the load of their routed edges is ours, for groups that the topology was not built for.
    """
    check_kind("network", network, Network, "a Network")
    check_kind("routes", routes, Routes | RouteRows, "the Routes of a Fabric")
    check_kind("group", group, tuple, "its hosts, such as (0, 1, 2)")
    if (network.switches > 0 and not forwarding) or len(group) < 3:
        return (group,)

    from topoopt.fabric.rings_kernels import choose_rings

    members: Ints = np.array(group, dtype=np.int64)
    size = members.size
    out, into = network.out_rate(), network.in_rate()
    bound = float((1.0 / np.maximum(np.minimum(out, into)[members], 1e-300)).max())
    rows = RouteRows(routes) if isinstance(routes, Routes) else routes
    begin, end = rows.entries(members[:, None] * rows.hosts + members)
    orders, lost = choose_rings(
        members,
        begin,
        end,
        rows.links,
        rows.weights,
        1.0 / network.capacity,
        bound,
        np.unique(np.arange(STARTS) * size // STARTS),
        1 + size // SAMPLE,
    )
    if lost >= 0:
        source, target = divmod(lost, size)
        raise _unrouted(int(members[source] * rows.hosts + members[target]), rows.hosts)
    return tuple(tuple(order) for order in orders.tolist())


def _unrouted(pair: int, hosts: int) -> InputError:
    source, target = divmod(pair, hosts)
    return InputError(f"a ring uses {source}->{target}, which has no route; route that pair")
