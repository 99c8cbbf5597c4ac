"""The fabrics of direct-connect topologies: routes of transfers and of rings by a routing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph
from routing.balanced import balanced_routes
from routing.coin_change import coin_change_routes
from routing.network import Network
from routing.paths import (
    USUAL_PATHS,
    USUAL_SLACK,
    ecmp_routes,
    k_shortest_routes,
    shortest_routes,
)
from routing.routes import Routes, tabled
from topoopt.evaluate.mcf_routes import least_congestion_routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import demand_of
from topoopt.fabric.used_pairs import pairs_in_use
from topoopt.problem.options import PACKET_SERVERS
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology
from topoopt.topology.totient import ring_places
from topoopt.topology.wiring import Ring, ring_orders

# How often pairs of many servers are routed again where none alone can do better, for each server.
_AGAIN = 32

NAMED = (Routing.ECMP, Routing.K_SHORTEST)
"""Routings whose routes follow from the network alone."""


def direct_fabric(
    topology: Topology,
    routing: Routing = Routing.ECMP,
    seed: int = 0,
    tasks: TaskGraph | None = None,
    *,
    on_demand: bool = False,
) -> Fabric:
    """Return the fabric of a direct-connect topology under a routing.

    Parameters
    ----------
    topology : Topology
    routing : Routing
    seed : int
        Used by ``single`` only.
    tasks : TaskGraph, optional
        One iteration of the strategy; needed by ``mcf`` and ``balanced``, which route for it.
    on_demand : bool
        Make routes of the pairs that are asked for, of few servers as of many.

    Returns
    -------
    Fabric
        With the topology's rings for its AllReduce groups.
    """
    network = topology.network
    make = Routes.on_demand if on_demand else Routes.of_all
    if routing is Routing.SINGLE:
        routes = shortest_routes(network, seed=np.random.default_rng(seed))
    elif routing in set(Routing):
        routes = make(network.hosts, transfer_router(network, routing))
    else:
        raise InputError(f"routing is {routing!r}; choose {', '.join(Routing)}")
    fabric = Fabric(
        "topoopt",
        network,
        routes,
        ring_orders(topology.rings),
        allreduce_routes(network, topology.rings, routing, on_demand=on_demand),
    )
    if routing not in (Routing.MCF, Routing.BALANCED):
        return fabric
    if tasks is None:
        raise InputError(f"routing is {routing.value!r} but no strategy is given; give its tasks")
    if routing is Routing.BALANCED:
        demand = demand_of(fabric, tasks)
        # On few servers every wiring that is tried has its own, and packet trains improve the best.
        again = 0 if network.hosts <= PACKET_SERVERS else _AGAIN * network.hosts
        return replace(fabric, routes=balanced_routes(network, demand, again))
    return replace(fabric, routes=least_congestion_routes(fabric, tasks))


def transfer_router(network: Network, routing: Routing) -> Callable[..., Routes]:
    """Return what routes pairs as they are asked for, whatever else is sent.

    Parameters
    ----------
    network : Network
        Direct-connect.
    routing : Routing
        All shortest paths for those that are made for a demand, or drawn: of pairs without any.

    Returns
    -------
    callable
        Takes ``pairs``.
    """
    if routing is Routing.K_SHORTEST:
        return partial(k_shortest_routes, network, USUAL_PATHS, slack=USUAL_SLACK)
    return partial(ecmp_routes, network)


def plainest_routing(
    topology: Topology,
    fabric: Fabric,
    tasks: TaskGraph,
    routing: Routing,
    known: Sequence[Routing],
) -> Routing:
    """Return the first routing that gives the routes of a fabric, so that each has one name.

    Parameters
    ----------
    topology : Topology
    fabric : Fabric
        Of this topology, with routes of ``routing``.
    tasks : TaskGraph
        One iteration, whose AllReduces must take the same links, too.
    routing : Routing
    known : sequence of Routing
        In the order of preference; of them `Routing.ECMP` and `Routing.K_SHORTEST` are tried.

    Returns
    -------
    Routing
    """
    for other in known:
        if other is routing:
            break
        if other in NAMED and _routed_alike(fabric, direct_fabric(topology, other), tasks):
            return other
    return routing


def _routed_alike(one: Fabric, other: Fabric, tasks: TaskGraph) -> bool:
    """Whether two fabrics of one network send everything of an iteration over the same links."""
    if tabled(one.network.hosts):
        if not one.routes.like(other.routes):
            return False
    else:
        moves, _ = pairs_in_use(one, tasks)
        if not one.routes.of(moves).like(other.routes.of(moves)):
            return False
    for group in tasks.groups:
        if len(group) > 1:
            mine, theirs = one.group_streams(group), other.group_streams(group)
            if not (
                np.array_equal(mine.links, theirs.links)
                and np.allclose(mine.weights, theirs.weights, rtol=1e-9)
                and np.isclose(mine.round_latency, theirs.round_latency, rtol=1e-9, atol=0.0)
            ):
                return False
    return True


def allreduce_routes(
    network: Network,
    rings: Iterable[Ring],
    routing: Routing,
    *,
    on_demand: bool = False,
) -> Routes | None:
    """Return the routes of ring edges, where they differ from those of transfers.

    Parameters
    ----------
    network : Network
        Direct-connect.
    rings : iterable of Ring
        Of which those over all servers count; there may be none.
    routing : Routing
    on_demand : bool
        As in `direct_fabric`.

    Returns
    -------
    Routes or None
        None for ``ecmp`` and ``balanced``, which keep the edge between neighbours on their link
        anyway.
        All shortest paths for ``mcf``. Otherwise CoinChangeMod's over the rings over all servers
        (TopoOpt, NSDI'23, sec. 4.3), or shortest paths where there is no such ring, or one of no
        single step.
    """
    if routing in (Routing.ECMP, Routing.BALANCED):
        return None
    make = Routes.on_demand if on_demand else Routes.of_all
    whole = [ring for ring in rings if len(ring.members) == network.hosts]
    steps = sorted({ring.generator for ring in whole})
    if routing is Routing.MCF or not whole or steps[0] == 0:
        return make(network.hosts, partial(ecmp_routes, network))
    places = ring_places(whole[0].members, whole[0].generator)
    return make(network.hosts, partial(coin_change_routes, network, steps, places))


def no_network() -> Fabric:
    """Return the fabric of a single server, which sends nothing."""
    empty = np.zeros(0)
    none = np.zeros(0, dtype=np.int64)
    network = Network("one server", 1, 0, none, none, empty, empty, none)
    routes = Routes(1, np.zeros(2, dtype=np.int64), none, empty, np.zeros(1), np.zeros(1))
    return Fabric("topoopt", network, routes, {})
