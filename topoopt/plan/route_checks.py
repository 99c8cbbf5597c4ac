"""Checks of a plan's routes: unit flows over its links, and those of the stated routing."""

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import traffic_of
from routing.paths import hop_distances
from topoopt.evaluate.mcf_routes import check_least_congestion
from topoopt.evaluate.routed import NAMED, direct_fabric, plainest_routing
from topoopt.fabric.used_pairs import recorded_routes
from topoopt.plan.arithmetic import require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology

# Route weights are sums of a few fractions.
_WEIGHT = 1e-9


def check_routes(plan: Plan, rebuilt: Rebuilt) -> None:
    """Check that routes are unit flows, of the stated routing, and that the traffic adds up.

    Parameters
    ----------
    plan : Plan
    rebuilt : Rebuilt

    Raises
    ------
    InputError
        Naming the first pair whose route is wrong.
    """
    _check_table(plan)
    check_flows(plan, rebuilt)
    if plan.cluster.servers > 1:
        _check_name(plan, rebuilt)
    if plan.routing == Routing.MCF:
        check_least_congestion(rebuilt.fabric, rebuilt.represented())
    elif plan.routing == Routing.BALANCED:
        _check_single_shortest(rebuilt)
    elif plan.cluster.servers > 1:
        _check_routing(plan, rebuilt)
    traffic = traffic_of(rebuilt.represented())
    require_same("allreduce_bytes", plan.allreduce_bytes, traffic.allreduce_sent())
    require_same("transfer_bytes", plan.transfer_bytes, traffic.transfer_sent())


def _check_table(plan: Plan) -> None:
    """The table is written in the one way: rows ascend, and so do the weights, which all occur."""
    table = plan.routes
    links, offsets = np.array(table.links), np.array(table.offsets)
    ascending = np.diff(links) > 0
    ascending[offsets[(offsets > 0) & (offsets < links.size)] - 1] = True
    if not ascending.all():
        raise InputError("routes: the links of a row do not ascend")
    values = np.array(table.weight_values)
    if np.any(np.diff(values) <= 0) or np.unique(table.weights).size != values.size:
        raise InputError("routes: weight_values do not ascend, or one of them does not occur")


def _check_listed(plan: Plan, rebuilt: Rebuilt) -> None:
    """The pairs listed are those that the iteration sends between."""
    if plan.routes.pairs is None:
        return
    fabric = rebuilt.fabric
    used = recorded_routes(
        fabric, rebuilt.represented(), named=Routing(plan.routing) in NAMED
    ).listed
    if not np.array_equal(fabric.routes.listed, used):
        odd = int(np.setxor1d(fabric.routes.listed, used)[0])
        a, b = divmod(odd, fabric.network.hosts)
        raise InputError(
            f"routes list the pair {a}->{b}, which the iteration does not send between, or lack it"
        )


def check_flows(plan: Plan, rebuilt: Rebuilt) -> None:
    """Check that every pair that sends has routes, which are unit flows, whatever their routing.

    What a pair sends leaves its source once, is kept by every node between, and arrives.

    Parameters
    ----------
    plan : Plan
    rebuilt : Rebuilt

    Raises
    ------
    InputError
        Naming the first pair whose route is wrong.
    """
    _check_listed(plan, rebuilt)
    network, routes = rebuilt.fabric.network, rebuilt.fabric.routes
    hosts = network.hosts
    pairs = routes.listed
    pair = np.repeat(pairs, np.diff(routes.offsets))
    if np.any((routes.weights <= 0) | (routes.weights > 1 + _WEIGHT)):
        raise InputError("a route weight lies outside (0, 1]")
    # What leaves a node less what enters it, by (pair, node), must be one at the source and
    # minus one at the target; pairs of a server with itself cancel.
    source, target = np.divmod(pairs, hosts)
    keys = np.concatenate((
        pair * network.nodes + network.source[routes.links],
        pair * network.nodes + network.target[routes.links],
        pairs * network.nodes + source,
        pairs * network.nodes + target,
    ))  # fmt: skip
    one = np.ones(pairs.size)
    amounts = np.concatenate((routes.weights, -routes.weights, -one, one))
    used, place = np.unique(keys, return_inverse=True)
    bad = used[np.abs(np.bincount(place, weights=amounts)) > _WEIGHT]
    if bad.size:
        a, b = divmod(int(bad[0]) // network.nodes, hosts)
        raise InputError(f"the route {a}->{b} is not a unit flow from {a} to {b}")


def _check_single_shortest(rebuilt: Rebuilt) -> None:
    """Every pair has one path, and none is shorter."""
    network, routes = rebuilt.fabric.network, rebuilt.fabric.routes
    least = hop_distances(network)[: network.hosts, : network.hosts].ravel()[routes.listed]
    counts = np.diff(routes.offsets)
    latency = np.bincount(
        np.repeat(np.arange(counts.size), counts),
        weights=network.latency[routes.links],
        minlength=counts.size,
    )
    wrong = (
        (counts != least)
        | (np.abs(routes.hops - least) > _WEIGHT)
        | (np.abs(routes.latency - latency) > 1e-9 * np.maximum(latency, 1e-12))
    )
    if wrong.any():
        a, b = divmod(int(routes.listed[np.flatnonzero(wrong)[0]]), network.hosts)
        raise InputError(
            f"the route {a}->{b} is not one shortest path with its latency, as balanced routing "
            "promises"
        )


def _topology(plan: Plan, rebuilt: Rebuilt) -> Topology:
    rings = tuple(ring.wired for ring in plan.rings)
    return Topology.wired(rebuilt.fabric.network, rebuilt.cluster, rings, plan.degree_allreduce)


def _check_name(plan: Plan, rebuilt: Rebuilt) -> None:
    """Of the routings that give these routes, the first is named."""
    first = plainest_routing(
        _topology(plan, rebuilt), rebuilt.fabric, rebuilt.represented(), Routing(plan.routing),
        plan.search.options.plan_routings(plan.cluster.servers),
    )  # fmt: skip
    if first != plan.routing:
        raise InputError(
            f"routing is {plan.routing!r}, but these are the routes of {first.value!r}"
        )


def _check_routing(plan: Plan, rebuilt: Rebuilt) -> None:
    """The routes are those that the stated routing gives on these links."""
    network, routes = rebuilt.fabric.network, rebuilt.fabric.routes
    expected = direct_fabric(_topology(plan, rebuilt), Routing(plan.routing), plan.seed).routes
    hosts, listed = network.hosts, routes.listed
    if routes.pairs is not None or expected.pairs is not None:
        expected = expected.of(listed)
    counts = np.diff(routes.offsets) != np.diff(expected.offsets)
    if counts.any():
        raise _other_route(plan, int(listed[np.flatnonzero(counts)[0]]), hosts)
    pair = np.repeat(listed, np.diff(routes.offsets))
    entries = (routes.links != expected.links) | (
        np.abs(routes.weights - expected.weights) > _WEIGHT
    )
    if entries.any():
        raise _other_route(plan, int(pair[np.flatnonzero(entries)[0]]), hosts)
    slow = np.abs(routes.latency - expected.latency) > 1e-9 * np.maximum(expected.latency, 1e-12)
    if slow.any():
        at = int(np.flatnonzero(slow)[0])
        a, b = divmod(int(listed[at]), hosts)
        raise InputError(
            f"the latency of route {a}->{b} is {routes.latency[at]} s, recomputed "
            f"{expected.latency[at]} s"
        )


def _other_route(plan: Plan, pair: int, hosts: int) -> InputError:
    a, b = divmod(pair, hosts)
    return InputError(f"the route {a}->{b} is not what {plan.routing} routing gives on these links")
