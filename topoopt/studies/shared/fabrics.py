"""Fabrics that jobs share, and what each job runs on them."""

from dataclasses import replace
from functools import cache

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from parallelism.graph import ModelGraph
from parallelism.models import get_model
from parallelism.taskgraph import TaskGraph
from routing.network import Network
from routing.paths import shortest_routes
from routing.routes import Routes
from topoopt.baselines.baselines import baseline_fabric
from topoopt.fabric.fabric import Fabric
from topoopt.problem.budget import Budget
from topoopt.problem.cluster import Cluster
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import (
    PriceTable,
    default_prices,
    direct_connect_cost,
    equal_cost_fat_tree_bandwidth,
)
from topoopt.search.driver import run
from topoopt.search.methods import search_for
from topoopt.studies.fixed_fabric import best_on
from topoopt.studies.setting import setting
from topoopt.topology.fabrics import ideal_switch
from topoopt.topology.fat_tree import fat_tree_network

SHARED_FABRICS = (
    "ideal-switch", "fat-tree", "fat-tree-spread", "oversubscribed-fat-tree", "expander",
)  # fmt: skip
# Links between servers of different pods of a Fat-tree, over those through one switch.
_FAT_TREE_STRETCH = 3


def hashed_routes(network: Network, connections: int, rng: np.random.Generator) -> Routes:
    """Route every pair over random shortest paths, as ECMP that hashes connections does.

    Parameters
    ----------
    network : Network
    connections : int
        Paths drawn for each pair, each for an equal part of its bytes; one may be drawn twice.
    rng : numpy.random.Generator

    Returns
    -------
    Routes

    Raises
    ------
    InputError
        If there is no connection.
    """
    if connections < 1:
        raise InputError(f"connections is {connections} a pair of servers; give at least 1")
    drawn = [shortest_routes(network, seed=rng) for _ in range(connections)]
    pairs = network.hosts**2
    keys = np.concatenate(
        [
            np.repeat(np.arange(pairs), np.diff(routes.offsets)) * network.links + routes.links
            for routes in drawn
        ]
    )
    unique, times = np.unique(keys, return_counts=True)
    row = unique // network.links
    return Routes(
        hosts=network.hosts,
        offsets=np.searchsorted(row, np.arange(pairs + 1)).astype(np.int64),
        links=unique % network.links,
        weights=times / connections,
        latency=np.max([routes.latency for routes in drawn], axis=0),
        hops=np.mean([routes.hops for routes in drawn], axis=0),
    )


def shared_fabric(
    name: str, cluster: Cluster, prices: PriceTable, *, connections: int = 1, seed: int = 0
) -> tuple[Fabric, float]:
    """Build a fabric that all servers of a cluster share.

    Parameters
    ----------
    name : str
        One of `SHARED_FABRICS`. ``fat-tree`` and ``oversubscribed-fat-tree`` hash each
        connection to one path; ``fat-tree-spread`` splits everything evenly over all shortest
        paths, as no switch does, and then nothing collides. All three cost what the
        direct-connect fabric of the cluster does.
    cluster : Cluster
    prices : PriceTable
    connections : int
        Of each pair of servers, where they are hashed.
    seed : int
        Of hashes and random wirings.

    Returns
    -------
    fabric : Fabric
    bandwidth : float
        Bytes/s of a server's link (switched) or port (direct).

    Raises
    ------
    InputError
        If the name is unknown, or as `topoopt.baselines.baselines.baseline_fabric`.
    """
    if name not in SHARED_FABRICS:
        raise InputError(f"shared fabric is {name!r}; choose {', '.join(SHARED_FABRICS)}")
    if name in ("ideal-switch", "expander", "fat-tree-spread"):
        base = baseline_fabric(name.removesuffix("-spread"), cluster, prices, seed)
        assert isinstance(base.fabric, Fabric)  # none of these is rewired
        return base.fabric, base.bandwidth
    # The price alone: the network is made here, with other routes.
    ratio = 2.0 if name.startswith("over") else 1.0
    cost = direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices)
    bandwidth = equal_cost_fat_tree_bandwidth(cost, cluster.servers, prices, ratio)
    network = fat_tree_network(cluster.servers, bandwidth, cluster.hop_latency, ratio)
    routes = hashed_routes(network, connections, np.random.default_rng(seed))
    return Fabric(name, network, routes, {}), bandwidth


@cache
def partition_run(
    model: str, servers: int, degree: int, bandwidth_gbps: float, steps: int, seed: int
) -> tuple[TaskGraph, float]:
    """Co-optimize a job on a dedicated partition.

    Parameters
    ----------
    model : str
        A preset; default server, batch and roofline.
    servers, degree : int
        Of the partition.
    bandwidth_gbps : float
        Of a port, each way.
    steps : int
        Proposals of the search.
    seed : int

    Returns
    -------
    tasks : TaskGraph
        One iteration of the best strategy.
    time_s : float
        On the topology built for it.
    """
    given = setting(get_model(model), servers, degree, bandwidth_gbps)
    problem = given.problem(SearchOptions(method="alternating"), seed)
    found = run(search_for(problem), Budget(steps=steps))
    return given.builder.build(found.best.strategy), found.best.time


@cache
def tenant_run(
    model: str | ModelGraph,
    servers: int,
    fabric: str,
    bandwidth: float,
    steps: int,
    seed: int,
    degree: int = 1,
    ports: str = "directed",
    latency: str | float = 1e-6,
) -> TaskGraph:
    """Return one iteration of the best strategy found for a job that has a shared fabric alone.

    Parameters
    ----------
    model : str or ModelGraph
        A preset or a graph; default server, batch and roofline.
    servers : int
        Of the job.
    fabric : str
        One of `SHARED_FABRICS`. For switched ones the strategy is searched on one switch with
        their bandwidth, which is what a single job without collisions sees; for the expander on
        one of the job's size, where that has several servers.
    bandwidth : float
        Bytes/s, as from `shared_fabric`.
    steps : int
        Proposals of the search.
    seed : int
    degree : int
        Ports a server, of the expander.
    ports : {"directed", "bidirectional"}
        What they are.
    latency : str or float
        Seconds a hop.

    Returns
    -------
    TaskGraph
    """
    graph = get_model(model) if isinstance(model, str) else model
    given = setting(graph, servers, degree, bandwidth * 8 / 1e9)
    cluster = replace(given.cluster, ports=ports, latency=latency)
    if fabric == "expander" and servers > 1:
        alone = baseline_fabric("expander", cluster, default_prices(), seed).fabric
    else:
        hop = cluster.hop_latency * (1 if fabric == "ideal-switch" else _FAT_TREE_STRETCH)
        alone = Fabric(fabric, *ideal_switch(servers, bandwidth, hop), {})
    starts = given.strategies()
    if not starts:
        raise InfeasibleError(
            f"model {graph.name!r} does not fit on {counted(servers, 'server')}: by none of its "
            f"named strategies a GPU needs at most {given.family.memory_limit / 1e9:.4g} GB; give "
            "it more servers, or a smaller model"
        )
    strategy, _, _ = best_on(
        alone,
        given.problem(),
        given.space,
        starts,
        Budget(steps=steps),
        np.random.default_rng(seed),
    )
    return given.builder.build(strategy)
