"""The gap between a plan and the bound over everything, taken apart.

A telescope of bounds, each over fewer things that are still free: everything; topologies and
routings for the plan's strategy; routings on its wiring; the order of events over its routes.
Each is at least the one before, and the differences add up to the gap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parallelism.alike import Alike
from parallelism.taskgraph import TRANSFER, FloatArray, IntArray, TaskGraph
from routing.paths import hop_distances
from topoopt.bounds.bounds import (
    ROUNDING,
    Bound,
    strategy_bound,
)
from topoopt.bounds.critical import (
    Least,
    Span,
    device_end,
    least_end,
    least_of,
    port_uses,
    ring_uses,
    span_of,
    steady_span,
    transfer_ports,
)
from topoopt.bounds.everything import AnyFamily, everything_bound, own_bound
from topoopt.bounds.turns import longest_turn
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.orders import alone_seconds, in_parts, link_uses, senders, task_orders
from topoopt.fabric.represented import tasks_over
from topoopt.problem.job import Cluster
from topoopt.problem.schedule import Schedule

# Uses of links beyond which sets of them are not sorted by time.
MOST_USES = 4_000_000


def how(part: str, noun: str) -> str:
    """Return what is subtracted from what in a part of the gap.

    Parameters
    ----------
    part : str
        Name of the part; the first is called like the parallelizations.
    noun : str
        What the family calls its parallelizations.
    """
    return {
        noun: f"bound of this {noun}, any wiring and routing, less the bound over everything",
        "topology": f"bound of this {noun} and wiring, any routing, less that of any wiring",
        "routing": "bound of these routes and rings, any order of events, less that of any routing",
        "scheduling": "simulated time, less the bound of these routes",
    }[part]


@dataclass(frozen=True)
class GapPart:
    """What one kind of choice may cost.

    Parameters
    ----------
    name : str
        See `how`, which says what is subtracted from what.
    seconds : float
        How much higher the bound (or the plan) is than with that choice free.
    binding : str
        The term that fixes the higher one.
    """

    name: str
    seconds: float
    binding: str


@dataclass(frozen=True)
class PlanBounds:
    """All bounds of one plan, and the gap taken apart."""

    everything: Bound
    parallelization: Bound
    topology: Bound
    routes: Bound
    parts: tuple[GapPart, ...]


def plan_bounds(
    family: AnyFamily,
    cluster: Cluster,
    parallelization: Any,
    fabric: Fabric,
    tasks: TaskGraph,
    time: float,
    *,
    weights: Mapping[str, float] | None = None,
    schedule: Schedule | None = None,
    everything: Bound | None = None,
) -> PlanBounds:
    """Bound a plan at every level.

    Parameters
    ----------
    family : OperatorFamily or LayoutFamily
    cluster : Cluster
    parallelization : Strategy or Placement
        The plan's.
    fabric : Fabric
        The plan's.
    tasks : TaskGraph
        One iteration of the plan, as scheduled.
    time : float
        Its simulated time.
    weights : mapping of str to float, optional
        As in `space_bound`.
    schedule : Schedule, optional
        The plan's; plain by default. All bounds hold for any order of tasks and any buckets.
        Where iterations overlap, only what resources must do, and turns of operators, bound
        their period.
    everything : Bound, optional
        `everything_bound`, where it is at hand.

    Returns
    -------
    PlanBounds
    """
    # A message is announced over at least one hop, and sent over it.
    hops = 2.0 if fabric.transport.handshake else 1.0
    schedule = schedule or Schedule.plain()
    steady = schedule.streaming
    tasks = tasks_over(fabric, tasks)
    if everything is None:
        everything = everything_bound(
            family, cluster, hops=hops, weights=weights, schedule=schedule
        )
    lag = hops * cluster.hop_latency
    bound = strategy_bound(tasks, cluster.degree, cluster.port_rate, lag, steady=steady)
    own = own_bound(family, cluster, parallelization)
    if own is not None and bound.seconds <= own.seconds:
        bound = own
    topology = topology_bound(fabric, tasks, steady=steady)
    routes = routes_bound(fabric, tasks, steady=steady)
    parts = gap_parts(everything, bound, topology, routes, time, family.noun)
    return PlanBounds(everything, bound, topology, routes, parts)


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
        ``ports``: the busiest server's links out or in. ``distance``: bytes times the distance
        that they must go (to the nearest member of the group for AllReduce), over all links.
    """
    network = fabric.network
    out = np.bincount(network.source, weights=network.capacity, minlength=network.nodes)
    into = np.bincount(network.target, weights=network.capacity, minlength=network.nodes)
    moves = tasks.kind == TRANSFER
    first, second = np.where(moves, tasks.first, 0), np.where(moves, tasks.second, 0)
    distance = _distances(fabric)
    lag = (2.0 if fabric.transport.handshake else 1.0) * _least_latency(fabric)
    # Both servers of a transfer need its bytes to pass all of their links.
    rate = np.minimum(out, into)[: network.hosts]
    pair = np.where(moves, np.minimum(out[first], into[second]), 1.0)
    hops = distance[first, second].astype(np.float64)
    if tasks.alike is not None:
        hops = _least_hops(tasks, tasks.alike, distance)
    slowest = np.array(
        [rate[list(group)].min() if len(group) > 1 else 1.0 for group in tasks.groups]
    )
    least = least_of(tasks, pair, lag * hops, slowest, lag)
    whole = span_of(tasks, least)
    span = steady_span(tasks) if steady else whole
    terms = {"compute": device_end(tasks, span)}
    task, server, size, received = port_uses(tasks)
    terms["ports"] = max(
        least_end(task[side], server[side], size[side] / ports[server[side]], span, network.hosts)
        for side, ports in ((received, into), (~received, out))
    )
    terms["distance"] = _distance_end(tasks, span, distance, float(network.capacity.sum()))
    terms["chain"] = longest_turn(tasks, least, whole) if steady else span.chain
    return Bound(max(terms.values()) * ROUNDING, terms)


def _distances(fabric: Fabric) -> IntArray:
    hosts = fabric.network.hosts
    between: IntArray = np.maximum(hop_distances(fabric.network)[:hosts, :hosts], 0)
    return between


def _distance_end(tasks: TaskGraph, span: Span, distance: IntArray, total: float) -> float:
    """Bound by bytes times distance, over the capacity of all links."""
    moves = np.flatnonzero(tasks.kind == TRANSFER)
    if tasks.alike is not None:
        return _represented_distance(tasks, tasks.alike, span, distance, total)
    task, server, size = ring_uses(tasks)
    nearest = np.zeros((len(tasks.groups), distance.shape[0]))
    for number, group in enumerate(tasks.groups):
        if len(group) > 1:
            among = distance[np.ix_(group, group)] + np.diag([distance.max() + 1] * len(group))
            nearest[number, list(group)] = among.min(axis=1)
    ring = size * nearest[tasks.first[task], server] if task.size else size
    hops = distance[tasks.first[moves], tasks.second[moves]]
    seconds = np.concatenate((tasks.size[moves] * hops, ring)) / max(total, 1e-300)
    uses = np.concatenate((moves, task))
    return least_end(uses, np.zeros_like(uses), seconds, span, 1)


def _least_hops(tasks: TaskGraph, alike: Alike, distance: IntArray) -> FloatArray:
    """Return the fewest hops that any of the transfers goes which a task stands for."""
    pattern = alike.pattern
    own = np.flatnonzero(pattern.group < 0)
    least = np.full(alike.classes.first_element.size, np.inf)
    hops = distance[pattern.source[own], pattern.target[own]]
    np.minimum.at(least, alike.classes.element[own], hops)
    return np.where(tasks.kind == TRANSFER, least[alike.of_task], 0.0)


def _represented_distance(
    tasks: TaskGraph, alike: Alike, span: Span, distance: IntArray, total: float
) -> float:
    """Bound as `_distance_end` does, over all that tasks stand for."""
    pattern = alike.pattern
    own = np.flatnonzero(pattern.group < 0)
    hops = np.zeros(pattern.elements)
    hops[own] = distance[pattern.source[own], pattern.target[own]]
    nearest = np.zeros(len(pattern.groups))
    for number, group in enumerate(pattern.groups):
        size = len(group)
        if size > 1:
            among = distance[np.ix_(group, group)] + np.diag([distance.max() + 1] * size)
            nearest[number] = among.min(axis=1).sum() * (size - 1.0) / size
    reduces = np.flatnonzero(pattern.group >= 0)
    hops[reduces] = nearest[pattern.group[reduces]]
    by_class = np.bincount(alike.classes.element, weights=hops)
    members = np.array([len(group) for group in tasks.groups] or [1])
    sends = tasks.kind == TRANSFER
    rings = tasks.collective & (members[np.where(tasks.collective, tasks.first, 0)] > 1)
    uses = np.concatenate((np.flatnonzero(sends), np.flatnonzero(rings)))
    passes = np.where(tasks.collective, tasks.passes, 1.0)[uses]
    seconds = tasks.size[uses] * passes * by_class[alike.of_task[uses]] / max(total, 1e-300)
    return least_end(uses, np.zeros_like(uses), seconds, span, 1)


def routes_bound(fabric: Fabric, tasks: TaskGraph, *, steady: bool = False) -> Bound:
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
        links of the routes. ``link``: the busiest link.
    """
    orders = task_orders(fabric, tasks)
    sends = senders(orders)
    least = routed_least(fabric, tasks, orders)
    whole = span_of(tasks, least)
    span = steady_span(tasks) if steady else whole
    terms = {"compute": device_end(tasks, span)}
    if (orders.end[sends] - orders.begin[sends]).sum() <= MOST_USES:
        _, counts, links, seconds = link_uses(orders, sends)
        uses = np.repeat(sends, counts)
        terms["link"] = least_end(uses, links, seconds, span, orders.capacity.size)
    else:
        load = np.zeros(orders.capacity.size)
        for part in in_parts(sends):
            _, _, links, seconds = link_uses(orders, part)
            load += np.bincount(links, weights=seconds, minlength=load.size)
        terms["link"] = float(load.max())
    terms["chain"] = longest_turn(tasks, least, whole) if steady else span.chain
    return Bound(max(terms.values()) * ROUNDING, terms)


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
    network = fabric.network
    length = alone_seconds(orders, fabric, tasks)
    through = np.zeros(tasks.tasks)
    if transfer_ports(tasks):
        out = np.bincount(network.source, weights=network.capacity, minlength=network.nodes)
        into = np.bincount(network.target, weights=network.capacity, minlength=network.nodes)
        moves = np.flatnonzero(tasks.kind == TRANSFER)
        pair = np.minimum(out[tasks.first[moves]], into[tasks.second[moves]])
        through[moves] = orders.volume[moves] / pair
    return Least(length, through, np.where(orders.compute, 0.0, orders.lag))


def gap_parts(
    everything: Bound,
    parallelization: Bound,
    topology: Bound,
    routes: Bound,
    time: float,
    noun: str = "strategy",
) -> tuple[GapPart, ...]:
    """Take the gap between a time and the bound over everything apart.

    Parameters
    ----------
    everything, parallelization, topology, routes : Bound
        `everything_bound`, `strategy_bound`, `topology_bound` and `routes_bound` of one plan.
    time : float
        Its simulated iteration time.
    noun : str
        What the family calls its parallelizations.

    Returns
    -------
    tuple of GapPart
        The noun's, ``topology``, ``routing`` and ``scheduling``, none negative; with
        ``everything.seconds`` they add up to the time. A bound over fewer things may happen to
        be the weaker; then the one before it, which holds all the same, stands for it.
    """
    reached, binding = everything.seconds, everything.binding
    parts = []
    for name, bound in ((noun, parallelization), ("topology", topology), ("routing", routes)):
        if bound.seconds * ROUNDING > reached:  # rounding alone is no gap
            parts.append(GapPart(name, bound.seconds - reached, bound.binding))
            reached, binding = bound.seconds, bound.binding
        else:
            parts.append(GapPart(name, 0.0, binding))
    parts.append(GapPart("scheduling", max(time - reached, 0.0), "simulation"))
    return tuple(parts)


def _least_latency(fabric: Fabric) -> float:
    return float(fabric.network.latency.min(initial=np.inf)) if fabric.network.links else 0.0


__all__ = [
    "GapPart", "PlanBounds", "gap_parts", "how", "plan_bounds", "routes_bound", "topology_bound",
]  # fmt: skip
