"""Lower bounds of one parallelization on one wiring: of any routes, of its routes, of its rings."""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts
from parallelism.alike import Alike
from parallelism.taskgraph import TRANSFER, TaskGraph
from routing.paths import hop_distances
from topoopt.bounds.bounds import Bound
from topoopt.bounds.collectives import (
    COLLECTIVE_KINDS,
    GroupRates,
    group_sizes,
    least_collective_seconds,
    link_bytes_each,
)
from topoopt.bounds.critical import (
    Least,
    Span,
    device_end,
    least_end,
    least_of,
    transfer_ports,
)
from topoopt.bounds.port_uses import port_uses
from topoopt.bounds.turns import span_and_chain
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.orders import alone_seconds, in_parts, link_uses, senders, task_orders
from topoopt.fabric.rounding import ROUNDED_DOWN

# Uses of links beyond which sets of them are not sorted by time.
MOST_USES = 4_000_000


class _Wired(NamedTuple):
    """A network as bounds see it.

    Parameters
    ----------
    out, into : float64 arrays, shape (hosts,)
        Bytes/s of all links of a host.
    capacity : float
        Bytes/s of all links.
    distance : int64 array, shape (hosts, hosts)
        Hops.
    lag : float
        Seconds that any message takes beyond its bytes, a hop.
    groups : GroupRates
        Of the groups of a task graph.
    """

    out: Floats
    into: Floats
    capacity: float
    distance: Ints
    lag: float
    groups: GroupRates


def _wired(fabric: Fabric, tasks: TaskGraph) -> _Wired:
    network = fabric.wired
    hosts = network.hosts
    out, into = network.out_rate()[:hosts], network.in_rate()[:hosts]
    distance = np.maximum(hop_distances(network)[:hosts, :hosts], 0)
    latency = float(network.latency.min(initial=np.inf)) if network.links else 0.0
    lag = fabric.transport.ways * latency
    rows = np.ones((4, group_sizes(tasks).size))
    for number, group in enumerate(tasks.groups):
        if len(group) > 1:
            some = list(group)
            rows[:, number] = (
                min(out[some].mean(), into[some].mean()), np.minimum(out, into)[some].min(),
                out[some].max(), lag * distance[np.ix_(some, some)].max(),
            )  # fmt: skip
    return _Wired(out, into, float(network.capacity.sum()), distance, lag, GroupRates(*rows))


def topology_bound(fabric: Fabric, tasks: TaskGraph, *, steady: bool = False) -> Bound:
    """Bound the iteration time of one strategy on one network over all routings.

    Parameters
    ----------
    fabric : Fabric
        Its routes and rings are not looked at.
    tasks : TaskGraph
    steady : bool
        As in `strategy_bound`.

    Returns
    -------
    Bound
        ``compute`` and ``chain`` as in `strategy_bound`, with the ports that are wired.
        ``ports``: the busiest links out of or into a server, or the servers of a group together.
        ``distance``: bytes times the distance that they must go (of collectives to or from the
        nearest member), over all links.
    """
    wired = _wired(fabric, tasks)
    moves = tasks.kind == TRANSFER
    first, second = np.where(moves, tasks.first, 0), np.where(moves, tasks.second, 0)
    out, into = np.where(moves, wired.out[first], 1.0), np.where(moves, wired.into[second], 1.0)
    hops = wired.distance[first, second].astype(np.float64)
    if tasks.alike is not None:
        hops = _least_hops(tasks, tasks.alike, wired.distance)
    least = least_of(tasks, out, into, wired.lag * hops, wired.groups, wired.lag)
    span, chain = span_and_chain(tasks, least, steady=steady)
    terms = {"compute": device_end(tasks, span)}
    terms["ports"] = max(
        least_end(use.task, use.ports, use.size / use.rates(rate)[use.ports], span, use.sets)
        for use, rate in zip(port_uses(tasks), (wired.out, wired.into), strict=True)
    )
    terms["distance"] = _distance_end(tasks, wired, span, _hops_each(tasks, wired.distance))
    terms["chain"] = chain
    return Bound(max(terms.values()) * ROUNDED_DOWN, terms)


def _distance_end(tasks: TaskGraph, wired: _Wired, span: Span, hops: Floats) -> float:
    """Bound by link-bytes over the capacity of all links; transfers go so many hops each."""
    moves = np.flatnonzero(tasks.kind == TRANSFER)
    reduces = np.flatnonzero(tasks.collective)
    groups = tasks.groups if tasks.alike is None else tasks.alike.pattern.groups
    each = link_bytes_each(groups, wired.distance)
    of = tasks.first[reduces]
    if tasks.alike is not None:
        # Those of all collectives of a class.
        elements = np.flatnonzero(tasks.alike.pattern.group >= 0)
        classes = tasks.alike.classes
        sums = np.zeros((classes.first_element.size, len(COLLECTIVE_KINDS)))
        np.add.at(sums, classes.element[elements], each[tasks.alike.pattern.group[elements]])
        each, of = sums, tasks.alike.of_task[reduces]
    column = np.searchsorted(np.array(COLLECTIVE_KINDS), tasks.kind[reduces])
    gathered = tasks.size[reduces] * each[of, column] if reduces.size else np.zeros(0)
    uses = np.concatenate((moves, reduces))
    carried = np.concatenate((tasks.size[moves] * hops[moves], gathered))
    seconds = carried / max(wired.capacity, 1e-300)
    return least_end(uses, np.zeros_like(uses), seconds, span, 1)


def _hops_each(tasks: TaskGraph, distance: Ints) -> Floats:
    """Return the hops of each transfer at least, of all together that a task stands for."""
    moves = tasks.kind == TRANSFER
    if tasks.alike is None:
        first, second = np.where(moves, tasks.first, 0), np.where(moves, tasks.second, 0)
        return distance[first, second].astype(np.float64)
    pattern = tasks.alike.pattern
    own = np.flatnonzero(pattern.group < 0)
    kinds = tasks.alike.classes.first_element.size
    hops = distance[pattern.source[own], pattern.target[own]]
    sums = np.bincount(tasks.alike.classes.element[own], weights=hops, minlength=kinds)
    return np.where(moves, sums[tasks.alike.of_task], 0.0)


def _least_hops(tasks: TaskGraph, alike: Alike, distance: Ints) -> Floats:
    """Return the fewest hops that any of the transfers goes which a task stands for."""
    pattern = alike.pattern
    own = np.flatnonzero(pattern.group < 0)
    least = np.full(alike.classes.first_element.size, np.inf)
    hops = distance[pattern.source[own], pattern.target[own]]
    np.minimum.at(least, alike.classes.element[own], hops)
    return np.where(tasks.kind == TRANSFER, least[alike.of_task], 0.0)


def routes_bound(fabric: Fabric, tasks: TaskGraph, *, steady: bool = False) -> Bound:
    """Bound the iteration time of one strategy over fixed routes, by any schedules in any order.

    Parameters
    ----------
    fabric : Fabric
        Its rings are not looked at.
    tasks : TaskGraph
        As in `topoopt.fabric.orders.task_orders`.
    steady : bool
        As in `strategy_bound`.

    Returns
    -------
    Bound
        ``compute`` and ``chain`` as in `strategy_bound`, with the latencies and the slowest
        links of the routes of transfers. ``link``: the link busiest with them. ``distance``:
        their bytes on all links, and those of collectives as in `topology_bound`.
    """
    wired = _wired(fabric, tasks)
    orders = task_orders(fabric, tasks)
    least = routed_least(fabric, tasks, orders)
    reduces = np.flatnonzero(tasks.collective)
    least.length[reduces] = tasks.delay[reduces] + least_collective_seconds(
        tasks, reduces, wired.groups, wired.lag
    )
    least.after[reduces] = 0.0
    span, chain = span_and_chain(tasks, least, steady=steady)
    terms = {"compute": device_end(tasks, span)}
    sends = senders(orders)
    terms["link"] = _link_end(orders, sends[tasks.kind[sends] == TRANSFER], span)
    terms["distance"] = _distance_end(tasks, wired, span, _route_hops(tasks, orders))
    terms["chain"] = chain
    return Bound(max(terms.values()) * ROUNDED_DOWN, terms)


def _route_hops(tasks: TaskGraph, orders: Orders) -> Floats:
    """Return the hops of each transfer on its routes, of all together that a task stands for."""
    count = np.ones(orders.capacity.size)
    if tasks.alike is not None:
        links = np.bincount(tasks.alike.classes.resource).astype(np.float64)
        count = links[links.size - orders.capacity.size :]
    hops = np.zeros(tasks.tasks)
    moves = np.flatnonzero((tasks.kind == TRANSFER) & (orders.end > orders.begin))
    for part in in_parts(moves):
        counts = orders.end[part] - orders.begin[part]
        at = spread(orders.begin[part], counts)
        if at.size:
            each = orders.weights[at] * count[orders.links[at]]
            hops[part] = np.add.reduceat(each, starts(counts)[:-1])
    return hops


def _link_end(orders: Orders, sends: Ints, span: Span) -> float:
    """Bound by the busiest link of some tasks."""
    if (orders.end[sends] - orders.begin[sends]).sum() <= MOST_USES:
        _, counts, links, seconds = link_uses(orders, sends)
        uses = np.repeat(sends, counts)
        return least_end(uses, links, seconds, span, orders.capacity.size)
    load = np.zeros(orders.capacity.size)
    for part in in_parts(sends):
        _, _, links, seconds = link_uses(orders, part)
        load += np.bincount(links, weights=seconds, minlength=load.size)
    return float(load.max())


def collective_bound(fabric: Fabric, tasks: TaskGraph, *, steady: bool = False) -> Bound:
    """Bound the iteration time of one strategy over fixed routes and rings, in any order.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        As in `topoopt.fabric.orders.task_orders`.
    steady : bool
        As in `strategy_bound`.

    Returns
    -------
    Bound
        ``compute`` and ``chain`` as in `strategy_bound`, with the latencies and the slowest
        links of routes and rings. ``link``: the busiest link.
    """
    orders = task_orders(fabric, tasks)
    least = routed_least(fabric, tasks, orders)
    span, chain = span_and_chain(tasks, least, steady=steady)
    terms = {"compute": device_end(tasks, span)}
    terms["link"] = _link_end(orders, senders(orders), span)
    terms["chain"] = chain
    return Bound(max(terms.values()) * ROUNDED_DOWN, terms)


def routed_least(fabric: Fabric, tasks: TaskGraph, orders: Orders) -> Least:
    """Return what tasks take at least over fixed routes and rings, each alone.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    orders : Orders
        Of these tasks on this fabric.

    Returns
    -------
    Least
    """
    network = fabric.wired
    length = alone_seconds(orders, fabric, tasks)
    through = np.zeros(tasks.tasks)
    if transfer_ports(tasks):
        out, into = network.out_rate(), network.in_rate()
        moves = np.flatnonzero(tasks.kind == TRANSFER)
        faster = np.maximum(out[tasks.first[moves]], into[tasks.second[moves]])
        through[moves] = orders.volume[moves] / faster
    return Least(length, through, np.where(orders.compute, 0.0, orders.lag))
