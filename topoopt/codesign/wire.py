"""The best wiring and routing of one task graph: no model, no search of parallelizations."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats
from parallelism.family import Family
from parallelism.taskgraph import TaskGraph
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.baselines import baseline_fabrics
from topoopt.bounds.bounds import Bound, strategy_bound
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.fabric.fabric import Fabric, check_tasks
from topoopt.fabric.simulation import score
from topoopt.problem.cluster import CLUSTER_EXAMPLE, Cluster
from topoopt.problem.prices import PRICES_EXAMPLE, PriceTable, default_prices, direct_connect_cost
from topoopt.problem.seeds import checked_seed

WIRE_BASELINES = ("fat-tree", "ideal-switch")
"""What a wiring is compared with: the Fat-tree of its cost, and one switch of its bandwidth."""


@dataclass(frozen=True)
class ScoredFabric:
    """A task graph on another fabric.

    Parameters
    ----------
    time_s : float
    cost_usd : float or None
    bandwidth_bytes_per_s : float
        Of a server's link.
    note : str
        How bandwidth and cost were set.
    """

    time_s: float
    cost_usd: float | None
    bandwidth_bytes_per_s: float
    note: str


@dataclass(frozen=True, eq=False)
class Wired:
    """A task graph on the best wiring and routes that were found for it.

    Parameters
    ----------
    pair : Pair
        Topology, routing, fabric and time; its ``strategy`` is the task graph.
    bound : Bound
        Of any wiring of as many ports, and any routing.
    topology : Bound
        Of this wiring and any routing; this and the next two are never below the one before.
    routes : Bound
        Of these routes as well, and any schedules of AllReduces.
    collective : Bound
        Of these rings as well, and any order of events.
    cost_usd : float
    baselines : dict of str to ScoredFabric
    """

    pair: Pair[TaskGraph]
    bound: Bound
    topology: Bound
    routes: Bound
    collective: Bound
    cost_usd: float
    baselines: dict[str, ScoredFabric]

    @property
    def gap(self) -> float:
        """How much longer the iteration takes than its bound, as a share of it."""
        return self.pair.time / self.bound.seconds - 1.0


class _OneTaskGraph:
    """What a search asks of a family, where there is one parallelization only: its task graph."""

    memory_limit = 1.0
    enumerated = True
    # As of few servers: simulations are not cut short where there is nothing else to try.
    servers = 0

    def represented(self, tasks: TaskGraph) -> TaskGraph:
        return tasks

    def shorter(self, tasks: TaskGraph) -> None:
        return

    def memory(self, tasks: TaskGraph) -> Floats:
        return np.zeros(tasks.devices)


def wire_tasks(
    tasks: TaskGraph,
    cluster: Cluster,
    *,
    seed: int = 0,
    prices: PriceTable | None = None,
) -> Wired:
    """Wire and route a cluster for one task graph.

    Candidates are those of a co-design's plane of topologies (`topoopt.evaluate.rewire`), with
    every split of ports between rings and transfers, and every routing that plans may have.

    Parameters
    ----------
    tasks : TaskGraph
        Over all servers of the cluster.
    cluster : Cluster
    seed : int
        Of random shortest paths.
    prices : PriceTable, optional
        The default prices otherwise.

    Returns
    -------
    Wired

    Raises
    ------
    InputError
        If an argument is of another kind.
    InfeasibleError
        If there is one server only, nothing is sent or computed, or the degree cannot join the
        servers.
    """
    check_tasks(tasks)
    check_kind("cluster", cluster, Cluster, CLUSTER_EXAMPLE)
    check_kind("prices", prices, PriceTable | None, PRICES_EXAMPLE)
    if cluster.servers < 2:
        raise InfeasibleError("one server needs no network; give a task graph of two or more")
    table = default_prices() if prices is None else prices
    # One task graph is no family with records, neighbours and memory, and is asked for none.
    family = cast("Family[Any]", _OneTaskGraph())
    problem = Problem(family, cluster, seed=checked_seed(seed))
    rewirer: Rewirer[TaskGraph] = Rewirer(problem)
    pair = rewirer.wire(tasks, "task graph", weighted=True)
    assert pair is not None  # without a limit every pair is simulated
    # A message is announced over at least one hop, and sent over it.
    lag = pair.fabric.transport.ways * cluster.hop_latency
    bound = strategy_bound(tasks, cluster.degree, cluster.port_rate, lag)
    if bound.seconds <= 0.0:
        raise InfeasibleError(
            "the task graph computes and sends nothing, so any network is as good; give one that "
            "takes time"
        )
    # What bounds more choices bounds fewer: it stands for one of them that happens to be weaker.
    topology = max(bound, topology_bound(pair.fabric, tasks), key=_seconds)
    routes = max(topology, routes_bound(pair.fabric, tasks), key=_seconds)
    return Wired(
        pair,
        bound,
        topology,
        routes,
        max(routes, collective_bound(pair.fabric, tasks), key=_seconds),
        direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, table),
        {
            base.fabric.name: _compared(base, tasks)
            for base in baseline_fabrics(WIRE_BASELINES, cluster, table, seed)
        },
    )


def _seconds(bound: Bound) -> float:
    return bound.seconds


def _compared(base: BaselineFabric, tasks: TaskGraph) -> ScoredFabric:
    assert isinstance(base.fabric, Fabric)  # neither of the two has circuits that change
    return ScoredFabric(score(base.fabric, tasks), base.cost, base.bandwidth, base.note)
