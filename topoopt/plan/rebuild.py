"""From a plan file back to the objects that it describes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.counted import counted
from codesign_base.rows import summed
from parallelism.operator_family import OperatorFamily
from parallelism.operator_records import OperatorQuestion
from parallelism.taskgraph import TaskGraph
from parallelism.transformers.family import LayoutFamily
from routing.network import Network
from routing.routes import EVERY_PAIR_UP_TO, Routes, tabled
from topoopt.bounds.everything import AnyFamily
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import allreduce_routes, transfer_router
from topoopt.evaluate.scheduling import Simulated, simulate_schedule
from topoopt.fabric.fabric import Fabric
from topoopt.plan.plan import Plan
from topoopt.plan.records import ScheduleRecord
from topoopt.problem.cluster import Cluster
from topoopt.problem.routing import Routing
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import bandwidth_text, time_text
from topoopt.topology.finder import Topology
from topoopt.topology.wiring import ring_orders


@dataclass(frozen=True)
class Rebuilt:
    """The objects of a plan.

    Parameters
    ----------
    family : OperatorFamily or LayoutFamily
        The job on the plan's servers.
    cluster : Cluster
    strategy : Strategy or Placement
        The parallelization.
    fabric : Fabric
    schedule : Schedule
    """

    family: AnyFamily
    cluster: Cluster
    strategy: Any
    fabric: Fabric
    schedule: Schedule

    def tasks(self) -> TaskGraph:
        """Return the task graph of the plain iteration."""
        return self.family.build(self.strategy)

    def represented(self) -> TaskGraph:
        """Return the same, or where it is large, one task of each kind."""
        return self.family.represented(self.strategy)

    @cached_property
    def simulated(self) -> Simulated:
        """The plan's iteration under its schedule."""
        return simulate_schedule(self.fabric, self.scheduled_tasks(), self.schedule)

    def scheduled_tasks(self) -> TaskGraph:
        """Return the tasks that the schedule puts in order.

        Raises
        ------
        InputError
            If the batch cannot be divided as the schedule says.
        """
        tasks = self.family.microbatched(self.strategy, self.schedule.microbatches)
        if tasks is None:
            raise InputError(
                f"microbatches is {self.schedule.microbatches}, into which the batch cannot be "
                "divided"
            )
        return tasks


def rebuild_network(plan: Plan) -> Network:
    """Return the network of a plan."""
    return Network(
        name="topoopt",
        hosts=plan.cluster.servers,
        switches=0,
        source=np.array([link.source for link in plan.links], dtype=np.int64),
        target=np.array([link.target for link in plan.links], dtype=np.int64),
        capacity=np.array([link.capacity_bytes_per_s for link in plan.links], dtype=np.float64),
        latency=np.array([link.latency_s for link in plan.links], dtype=np.float64),
        multiplicity=np.array([link.cables for link in plan.links], dtype=np.int64),
    )


def rebuild_fabric(plan: Plan) -> Fabric:
    """Return the routed fabric of a plan, with its rings."""
    network = rebuild_network(plan)
    table = plan.routes
    offsets = np.array(table.offsets, dtype=np.int64)
    links = np.array(table.links, dtype=np.int64)
    values = np.array(table.weight_values, dtype=np.float64)
    which = np.array(table.weights, dtype=np.int64)
    if which.size and (which.min() < 0 or which.max() >= values.size):
        raise InputError(f"routes: weight {which.max()} of {values.size} does not exist")
    weights = values[which]
    listed = None if table.pairs is None else np.array(table.pairs, dtype=np.int64)
    pairs = network.hosts**2
    if listed is not None:
        if tabled(network.hosts):
            raise InputError(
                f"routes: pairs are listed for {network.hosts} servers; up to {EVERY_PAIR_UP_TO} "
                "give the routes of all"
            )
        if listed.size and (listed.min() < 0 or listed.max() >= pairs):
            raise InputError(f"routes: pair {listed.max()} of {pairs} does not exist")
        pairs = listed.size
    if offsets.size != pairs + 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
        raise InputError(f"routes: offsets must be {pairs + 1} ascending numbers from 0")
    if links.size != offsets[-1] or weights.size != links.size:
        raise InputError(
            f"routes: {counted(links.size, 'link')} and {counted(weights.size, 'weight')} for "
            f"{offsets[-1]} entries"
        )
    if links.size and (links.min() < 0 or links.max() >= network.links):
        raise InputError(
            f"routes use link {links.max()}, but the plan has {counted(network.links, 'link')}; "
            "every route must use existing links"
        )
    row = np.repeat(np.arange(pairs), np.diff(offsets))
    hops = summed(row, weights, pairs)
    latency = np.array(table.latency_s, dtype=np.float64)
    if latency.size != pairs:
        raise InputError(f"routes: {latency.size} latencies for {counted(pairs, 'pair')}")
    if plan.routing not in set(Routing):
        raise InputError(f"routing is {plan.routing!r}; expected one of {', '.join(Routing)}")
    routing = Routing(plan.routing)
    rings = [ring.wired for ring in plan.rings]
    return Fabric(
        "topoopt",
        network,
        Routes(
            network.hosts,
            offsets,
            links,
            weights,
            latency,
            hops,
            listed,
            None if listed is None else transfer_router(network, routing),
        ),
        ring_orders(rings),
        allreduce_routes(network, rings, routing),
    )


def rebuild_cluster(plan: Plan) -> Cluster:
    """Return the cluster of a plan."""
    return Cluster(
        servers=plan.cluster.servers,
        degree=plan.cluster.degree,
        bandwidth=bandwidth_text(plan.cluster.bandwidth_bytes_per_s),
        ports=plan.cluster.ports,
        latency=time_text(plan.cluster.latency_s),
    )


def rebuild(plan: Plan) -> Rebuilt:
    """Return the objects that a plan describes.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    Rebuilt

    Raises
    ------
    InputError
        If a part of the plan is not well formed, or its parallelization does not go with its job.
    """
    check_kind("plan", plan, Plan, "a Plan, such as topoopt.load_plan returns")
    cluster = rebuild_cluster(plan)
    family: AnyFamily
    if isinstance(plan.job, OperatorQuestion):
        family = OperatorFamily.asked(plan.job, cluster.servers, plan.global_batch)
    else:
        family = LayoutFamily.asked(plan.job, cluster.servers, plan.global_batch)
    if plan.parallelization.kind != family.kind:
        raise InputError(
            f"parallelization is of {plan.parallelization.kind}, but the job of {family.kind}"
        )
    strategy = family.read(plan.parallelization)  # type: ignore[arg-type]  # of its kind
    return Rebuilt(family, cluster, strategy, rebuild_fabric(plan), rebuild_schedule(plan.schedule))


def problem_of(plan: Plan, rebuilt: Rebuilt) -> Problem[Any]:
    """Return what a plan was sought for: its job and cluster, with the options and the seed."""
    wiring = None
    if plan.search.wiring == "given":
        rings = tuple(ring.wired for ring in plan.rings)
        wiring = Topology.wired(rebuilt.fabric.network, rebuilt.cluster, rings)
    return Problem(rebuilt.family, rebuilt.cluster, plan.search.options, plan.seed, wiring=wiring)


def rebuild_schedule(record: ScheduleRecord) -> Schedule:
    """Return the schedule of a plan."""
    return Schedule(
        record.overlap, record.compute, record.network, record.bucket_bytes, record.microbatches
    )
