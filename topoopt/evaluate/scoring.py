"""Scores of (strategy, fabric) pairs, and the fabrics of direct-connect topologies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

import numpy as np

from codesign_base import InputError
from parallelism.family import Family, P
from parallelism.rotation import rotated_classes
from parallelism.taskgraph import TaskGraph, TaskKind
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
from topoopt.bounds.wired import topology_bound
from topoopt.evaluate.least_times import busiest, of_servers, sent_seconds
from topoopt.evaluate.mcf_routes import least_congestion_routes
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scheduling import NEAR, ordered_tasks
from topoopt.fabric.collapse import seeks_symmetry
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import Run
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.fabric.reconfigurable import AnyFabric, run_iteration
from topoopt.fabric.represented import tasks_within, whole_size, whole_tasks
from topoopt.fabric.rotated import rotated_kinds
from topoopt.fabric.tasks import demand_of, pairs_in_use
from topoopt.fabric.varying import VaryingRun
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology
from topoopt.topology.totient import ring_places

# Beyond this size a search scores with flows that end within this share of their age batched
# (error about 0.1 %); whatever it keeps is simulated again exactly.
_EXACT_SERVERS = 32
SEARCH_TOLERANCE = NEAR
NAMED = (Routing.ECMP, Routing.K_SHORTEST)
"""Routings whose routes follow from the network alone."""
CHOSEN_UP_TO = 64
"""Members of a group whose rings are chosen, where a wiring of many servers has none for it."""
MOST_MOVES = 100
"""Transfers of each of many servers beyond which nothing is scored beside what is faster."""
MOST_FOLDED = 1e7
"""Transfers beyond which it is not looked for what a rotation of the servers maps on each other."""
# Costs in units of one re-solved flow, fitted to measurements on 16 and 128 servers.
_TASK_WORK = 0.5
_BOUND_WORK = 0.8
# Adding up what devices have to do, before any task is made.
_DEVICE_WORK = 2e3
# Making, where it was not made before, a task: memory counts as much as time.
BUILD_WORK = 50.0
# Making a task, and looking for what a rotation maps on it, where a job has millions of them. It
# counts where strategies are wired: counted for scores, too, it would end the search of fabrics
# that are compared with, and of strategies on the ideal switch, before it found anything.
MADE_WORK = 10.0
# Looking for symmetry, a task.
_COLLAPSE_WORK = 4.0
# Ranking the tasks by their remaining paths, a task.
_ORDER_WORK = 1.0


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
    rings: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for ring in topology.rings:
        rings.setdefault(ring.group, []).append(ring.members)
    whole = [(r.members, r.generator) for r in topology.rings if len(r.group) == network.hosts]
    fabric = Fabric(
        "topoopt",
        network,
        routes,
        {group: tuple(orders) for group, orders in rings.items()},
        allreduce_routes(network, whole, routing, on_demand=on_demand),
    )
    if routing not in (Routing.MCF, Routing.BALANCED):
        return fabric
    if tasks is None:
        raise InputError(f"routing is {routing.value!r} but no strategy is given; give its tasks")
    if routing is Routing.BALANCED:
        demand = demand_of(fabric, tasks)
        return replace(fabric, routes=balanced_routes(network, demand))
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
    rings: Sequence[tuple[Sequence[int], int]],
    routing: Routing,
    *,
    on_demand: bool = False,
) -> Routes | None:
    """Return the routes of ring edges, where they differ from those of transfers.

    Parameters
    ----------
    network : Network
        Direct-connect.
    rings : sequence of (sequence of int, int)
        Orders and steps of the rings over all servers; those of steps have their places in
        common, step 0 is a ring of no single step. There may be none.
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
    if routing is Routing.MCF or not rings or any(step == 0 for _, step in rings):
        return make(network.hosts, partial(ecmp_routes, network))
    steps, places = sorted({step for _, step in rings}), ring_places(*rings[0])
    return make(network.hosts, partial(coin_change_routes, network, steps, places))


def search_tolerance(servers: int) -> float:
    """Return the completion tolerance that a search scores with."""
    return SEARCH_TOLERANCE if servers > _EXACT_SERVERS else 0.0


@dataclass
class Scorer(Generic[P]):
    """Scores parallelizations of one job on one fabric; counts what does not fit as infinite.

    Parameters
    ----------
    problem : Problem
        Reconfigurable fabrics know fluid scores and devices in order of arrival only.
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
    tolerance : float
        Completion tolerance of the simulation; 0 is exact.
    budget : float
        Work of one simulation of plain fluid time on fabrics that stay as they are. What would
        take more counts as a bound that no iteration is shorter than.
    wired_later : bool
        Whether, on many servers, what has too many transfers to be wired is left out on this
        fabric, too, because what is found here is to be wired.

    Attributes
    ----------
    bounded : bool
        Whether the last simulation passed the budget, so that its time is a bound.
    near : bool
        Whether it was not exact.
    work : float
        What all of that cost, in units of one re-solved flow (about 0.13 microseconds), counted
        from the work done and not from a clock, so that budgets in it are reproducible.
    """

    problem: Problem[Family[P]]
    fabric: AnyFabric
    tolerance: float = 0.0
    budget: float = float("inf")
    wired_later: bool = False
    work: float = 0.0
    bounded: bool = False
    near: bool = False

    def __call__(self, strategy: P, limit: float = float("inf")) -> float:
        """Return the iteration time of a parallelization.

        Parameters
        ----------
        strategy : P
        limit : float
            If the time provably exceeds this many seconds, a larger number is returned
            instead: a bound, which costs far less than a simulation, or infinity if only the
            simulation found out.

        Returns
        -------
        float
            Seconds; infinity if the strategy does not fit.
        """
        if not self.problem.fits(strategy):
            return float("inf")
        limited = limit < float("inf")
        spares = self.problem.spares and limited
        if spares or (limited and self.tolerance > 0.0):
            bound = self.problem.least_seconds(strategy)
            self.work += _DEVICE_WORK
            if bound > limit:
                return bound
        bound = 0.0
        if spares and isinstance(self.fabric, Fabric):
            load = self.problem.port_load(strategy)
            self.work += _BOUND_WORK * load.tasks
            net, hosts = self.fabric.network, load.sent.size
            bound = sent_seconds(load.sent, net.out_rate()[:hosts], net.in_rate()[:hosts])
            if bound > limit:
                return bound
            direct = not net.switches
            kept_out = direct or self.wired_later
            if kept_out and load.transfers > MOST_FOLDED:
                self.work += _COLLAPSE_WORK * load.tasks
                return float("inf")
            tasks = self.problem.family.represented(strategy)
            if kept_out and moves_too_often(tasks, self.fabric):
                self.work += _COLLAPSE_WORK * tasks.tasks
                return float("inf")
            if direct and _rings_to_choose(self.fabric, tasks):
                return float("inf")
        else:
            tasks = self.problem.family.represented(strategy)
        if limit < float("inf"):
            self.work += _BOUND_WORK * tasks.tasks
            bound = busiest(self.fabric, tasks, limit)
            if bound > limit:
                return bound
        return self.timed(tasks, limit, bound)

    def timed(self, tasks: TaskGraph, limit: float = float("inf"), bound: float = 0.0) -> float:
        """Return the score of a task graph that is known to fit.

        Parameters
        ----------
        tasks : TaskGraph
        limit : float
            As in a call.
        bound : float
            Seconds that no simulation of it is below.

        Returns
        -------
        float
            Seconds.
        """
        if self.problem.score == "fluid" or not isinstance(self.fabric, Fabric):
            return self.simulate(tasks, limit)
        most = 2.0 * limit - bound
        fluid = self.simulate(tasks, most)
        if fluid > most:
            return float("inf")
        return 0.5 * (fluid + self.simulate(tasks, 2.0 * limit - fluid, transfers_yield=True))

    def simulate(
        self, tasks: TaskGraph, limit: float = float("inf"), transfers_yield: bool = False
    ) -> float:
        """Return the iteration time of a task graph that is known to fit.

        Parameters
        ----------
        tasks : TaskGraph
        limit : float
            As in a call.
        transfers_yield : bool
            Whether transfers have what AllReduces leave of a link, rather than a fair share.

        Returns
        -------
        float
            Seconds.
        """
        self.bounded, self.near = False, False
        if self.problem.options.compute_order != "ready" and isinstance(self.fabric, Fabric):
            if BUILD_WORK * whole_size(tasks) > self.budget:
                return self._bound(self.fabric, tasks)
            tasks, _ = ordered_tasks(self.fabric, whole_tasks(tasks), self.problem.schedule)
            self.work += _ORDER_WORK * tasks.tasks
        over = self.within(tasks)
        if over is None:
            assert isinstance(self.fabric, Fabric | GpuPorts)
            return self._bound(of_servers(self.fabric), tasks)
        if transfers_yield:
            later = (over.kind == TaskKind.TRANSFER).astype(np.int64)
            over = replace(over, priority=later + (0 if over.priority is None else over.priority))
        run = self.run(over, limit)
        if isinstance(run, Run) and run.spent and isinstance(self.fabric, Fabric | GpuPorts):
            return max(run.least, self._bound(of_servers(self.fabric), over))
        if over.alike is None and seeks_symmetry(over):
            self.work += _COLLAPSE_WORK * over.tasks
        return run.makespan

    def within(self, tasks: TaskGraph) -> TaskGraph | None:
        """Return a task graph in which a task stands for what is alike on this fabric.

        Parameters
        ----------
        tasks : TaskGraph

        Returns
        -------
        TaskGraph or None
            None where it would have more tasks than the budget allows.
        """
        most = self.budget / BUILD_WORK
        if isinstance(self.fabric, GpuPorts):
            # All of them would be made: none stands for another where ports are not alike.
            many = tasks.alike is not None and tasks.copies.sum() > most
            return None if many else whole_tasks(tasks)
        if not isinstance(self.fabric, Fabric):
            return tasks
        over = tasks_within(self.fabric, tasks, most)
        if over is not None and tasks.alike is None and over.alike is not None:
            self.work += (_TASK_WORK + _COLLAPSE_WORK) * tasks.tasks
        return over

    def run(self, over: TaskGraph, limit: float = float("inf")) -> Run | VaryingRun:
        """Simulate what `within` returned.

        Parameters
        ----------
        over : TaskGraph
        limit : float
            As in a call.

        Returns
        -------
        Run or VaryingRun
        """
        run = run_iteration(
            self.fabric, over, self.tolerance, limit=limit, budget=self.budget,
            exact_classes=self.problem.spares,
        )  # fmt: skip
        self.work += _TASK_WORK * over.tasks + run.resolved
        self.near = run.near if isinstance(run, Run) else self.tolerance > 0.0
        return run

    def _bound(self, fabric: Fabric, tasks: TaskGraph) -> float:
        """Return seconds that no simulation of a task graph is below."""
        self.bounded, self.near = True, False
        wired = topology_bound(fabric, tasks).seconds
        return max(wired, busiest(fabric, tasks))


def _rings_to_choose(fabric: Fabric, tasks: TaskGraph) -> bool:
    """Whether the routes of all pairs of a large group would be made to choose its rings."""
    return any(len(group) > CHOSEN_UP_TO and group not in fabric.rings for group in tasks.groups)


def moves_too_often(
    tasks: TaskGraph, fabric: Fabric | None = None, most: float | None = None
) -> bool:
    """Whether a task graph of many servers has more transfers than are routed for a proposal.

    Parameters
    ----------
    tasks : TaskGraph
    fabric : Fabric, optional
        Where one transfer is routed for all that a rotation maps on each other; by default on
        networks that allow any rotation.
    most : float, optional
        Transfers a server; by default `MOST_MOVES`.
    """
    most = MOST_MOVES if most is None else most
    moves = int(np.count_nonzero(tasks.kind == TaskKind.TRANSFER))
    if moves <= most * tasks.servers:
        return False
    if moves > MOST_FOLDED:
        return True
    found = rotated_classes(tasks, 1) if fabric is None else rotated_kinds(fabric, tasks)
    kinds = tasks.kind if found is None else tasks.kind[found.first]
    return int(np.count_nonzero(kinds == TaskKind.TRANSFER)) > most * tasks.servers
