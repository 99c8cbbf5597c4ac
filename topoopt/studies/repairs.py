"""A fabric after cables fail: detours, new routes, rings without the dead."""

from collections import deque
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_kind, told
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from codesign_base.rows import summed
from parallelism.taskgraph import Group
from routing.network import Network
from routing.paths import ecmp_routes, forwarding_nodes
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import Rings, ring_loads
from topoopt.fabric.route_rows import RouteRows
from topoopt.topology.ring_links import ring_links

REPAIRS = ("detour", "reroute", "drop-rings", "new-rings")
"""How a fabric goes on: see `repaired`."""
MAX_PARTS = 16
"""Parts that an AllReduce is divided into at most, over rings from before a failure."""
# What differs by rounding alone decides nothing.
_ROUNDED = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class Survivors:
    """A network after failures.

    Parameters
    ----------
    network : Network
        Without the links that have no cable left; capacities of the cables that are.
    link : int64 array, shape (links before,)
        Index of each old link in it; -1: dead.
    """

    network: Network
    link: Ints


def fail_cables(network: Network, cables: Ints) -> Survivors:
    """Take cables out of a network.

    Parameters
    ----------
    network : Network
    cables : int64 array
        Link index of each failed cable; a link of m cables may occur up to m times.

    Returns
    -------
    Survivors

    Raises
    ------
    InputError
        If a link does not exist or has fewer cables.
    """
    instead = "a Network, such as topoopt.plan.rebuild.rebuild(plan).fabric.network"
    check_kind("network", network, Network, instead)
    given, cables = cables, np.asarray(cables)
    if cables.ndim != 1 or (cables.size and cables.dtype.kind not in "iu"):
        raise InputError(f"cables is {told(given)}; give an array of links' numbers")
    if cables.size and not 0 <= cables.min() <= cables.max() < network.links:
        raise InputError(f"a failed cable names a link outside 0..{network.links - 1}")
    failed = np.bincount(cables.astype(np.int64), minlength=network.links)
    left = network.multiplicity - failed
    if left.min(initial=0) < 0:
        link = int(left.argmin())
        at = f"of link {network.source[link]}->{network.target[link]}"
        raise InputError(
            f"{counted(failed[link], f'cable {at} fails', f'cables {at} fail')}, it has "
            f"{network.multiplicity[link]}"
        )
    alive = left > 0
    index = np.where(alive, np.cumsum(alive) - 1, -1).astype(np.int64)
    smaller = Network(
        name=network.name,
        hosts=network.hosts,
        switches=network.switches,
        source=network.source[alive],
        target=network.target[alive],
        capacity=(network.capacity * left / network.multiplicity)[alive],
        latency=network.latency[alive],
        multiplicity=left[alive],
    )
    return Survivors(smaller, index)


def _shortest_detour(network: Network, source: int, target: int) -> list[int] | None:
    """Return the links of a shortest path (lowest links on ties), or None."""
    forwards = forwarding_nodes(network)
    back: dict[int, int] = {source: -1}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        if node == target:
            path = []
            while back[node] >= 0:
                path.append(back[node])
                node = int(network.source[back[node]])
            return path[::-1]
        if forwards[node] or node == source:
            for link in range(network.out_offsets[node], network.out_offsets[node + 1]):
                after = int(network.target[link])
                if after not in back:
                    back[after] = link
                    queue.append(after)
    return None


def detoured(routes: Routes, before: Network, survivors: Survivors) -> Routes:
    """Send what crossed a dead link around it, from its one end to its other; all else stays.

    This is fast reroute: the two ends of a link decide, and no other table changes.

    Parameters
    ----------
    routes : Routes
        Over the network before.
    before : Network
    survivors : Survivors

    Returns
    -------
    Routes
        Over the surviving network.

    Raises
    ------
    InfeasibleError
        If the survivors do not connect the ends of a dead link that a route uses.
    InputError
        If an argument is of another kind.
    """
    check_kind("routes", routes, Routes, "the Routes of a Fabric")
    check_kind("before", before, Network, "the Network of that Fabric")
    check_kind("survivors", survivors, Survivors, "what fail_cables returned")
    after = survivors.network
    dead = survivors.link < 0
    used = np.unique(routes.links[dead[routes.links]])
    around: dict[int, list[int]] = {}
    for link in used.tolist():
        source, target = int(before.source[link]), int(before.target[link])
        detour = _shortest_detour(after, source, target)
        if detour is None:
            raise InfeasibleError(
                f"no path is left from {source} to {target}; fewer cables must fail"
            )
        around[link] = detour
    pairs = routes.latency.size
    row = np.repeat(np.arange(pairs), np.diff(routes.offsets))
    hit = dead[routes.links]
    rows, links, weights = [row[~hit]], [survivors.link[routes.links[~hit]]], [routes.weights[~hit]]
    latency = routes.latency.copy()
    extra = np.zeros(pairs)
    for entry in np.flatnonzero(hit).tolist():
        link = int(routes.links[entry])
        path = np.array(around[link], dtype=np.int64)
        rows.append(np.full(path.size, row[entry]))
        links.append(path)
        weights.append(np.full(path.size, routes.weights[entry]))
        longer = float(after.latency[path].sum() - before.latency[link])
        extra[row[entry]] += max(longer, 0.0)
    keys = np.concatenate(rows) * np.int64(after.links) + np.concatenate(links)
    unique, inverse = np.unique(keys, return_inverse=True)
    total = summed(inverse, np.concatenate(weights), unique.size)
    of = unique // after.links
    return Routes(
        hosts=routes.hosts,
        offsets=np.searchsorted(of, np.arange(pairs + 1)).astype(np.int64),
        links=(unique % after.links).astype(np.int64),
        weights=total,
        latency=latency + extra,
        hops=summed(of, total, pairs),
        pairs=routes.pairs,
    )


def repaired(fabric: Fabric, survivors: Survivors, how: str) -> Fabric:
    """Return the fabric that goes on after failures.

    Parameters
    ----------
    fabric : Fabric
        Before.
    survivors : Survivors
    how : {"detour", "reroute", "drop-rings", "new-rings"}
        detour: what crossed a dead link goes around it, nothing else changes. reroute: all routes
        anew (ECMP over shortest paths), rings keep their order. drop-rings: besides, rings with
        an edge whose link is dead are given up where their group has others. new-rings: besides,
        all groups choose rings anew, as `default_rings` does (other generators take over), or keep
        theirs, of which those that lost least carry several parts, if these end sooner. Groups
        whose rings the fabric does not list choose theirs anew in all of these.

    Returns
    -------
    Fabric

    Raises
    ------
    InputError
        If an argument is of another kind, or the repair is not known.
    InfeasibleError
        If the survivors are not connected.
    """
    check_kind("fabric", fabric, Fabric, "that of topoopt.plan.rebuild.rebuild(plan)")
    check_kind("survivors", survivors, Survivors, "what fail_cables returned")
    if how not in REPAIRS:
        raise InputError(f"repair is {how!r}; choose {', '.join(REPAIRS)}")
    network = survivors.network
    if how == "detour":
        edges = fabric.ring_routes
        return replace(
            fabric,
            network=network,
            routes=detoured(fabric.routes, fabric.network, survivors),
            ring_routes=None if edges is None else detoured(edges, fabric.network, survivors),
        )
    rings = dict(fabric.rings)
    whole = {group: _unbroken(fabric.network, network, rings[group]) for group in rings}
    if how == "drop-rings":
        rings = whole
    routes = Routes.of_all(network.hosts, partial(ecmp_routes, network))
    after = replace(fabric, network=network, routes=routes, rings=rings, ring_routes=None)
    if how == "new-rings":
        anew = replace(after, rings={})
        rows = RouteRows(routes)
        kept = {group: _soonest(anew, rows, group, rings[group], whole[group]) for group in rings}
        after = replace(after, rings=kept)
    return after


def _unbroken(before: Network, after: Network, orders: Rings) -> Rings:
    """Return the rings of a group that have no edge whose link is dead, or all if none is so."""
    return (
        tuple(
            order
            for order in orders
            if all(after.has_link(a, b) or not before.has_link(a, b) for a, b in ring_links(order))
        )
        or orders
    )


def _soonest(anew: Fabric, rows: RouteRows, group: Group, before: Rings, whole: Rings) -> Rings:
    """Return the rings that a group chooses anew, or those from before if they end sooner.

    Of the latter, those that lost least may carry several parts: the choice anew looks at few
    sets of rings, and may find worse ones on a wiring of which others are a rotation.
    """
    found = [
        (float(_seconds_a_byte(anew.network, rows, rings).sum(axis=0).max()) / len(rings), rings)
        for rings in (anew.rings_of(group), before, whole)
    ]
    old = _seconds_a_byte(anew.network, rows, before)
    total, picked = np.zeros(anew.network.links), list[int]()
    for parts in range(1, MAX_PARTS + 1):
        loaded = total + old
        most = loaded.max(axis=1)
        # Of several with the same busiest link the one that loads the others most evenly, rather
        # than the first: rings have no order.
        alike = np.flatnonzero(most <= most.min() * _ROUNDED)
        picked.append(int(alike[(loaded[alike] ** 2).sum(axis=1).argmin()]))
        total = loaded[picked[-1]]
        found.append((float(total.max()) / parts, tuple(before[at] for at in sorted(picked))))
    least = min(seconds for seconds, _ in found) * _ROUNDED
    # Fewer parts are sent in larger messages.
    return min((rings for seconds, rings in found if seconds <= least), key=len)


def _seconds_a_byte(network: Network, rows: RouteRows, rings: Rings) -> Floats:
    """Return how long each ring keeps each link busy, for a byte over each of its edges."""
    return ring_loads(rows, network.links, np.array(rings)) / network.capacity
