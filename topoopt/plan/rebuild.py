"""From a plan file back to the objects that it describes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from codesign_base import InputError
from parallelism.accelerators import Accelerator
from parallelism.builder import TaskGraphBuilder
from parallelism.device import ComputeModel, RooflineModel, Server
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind, Split
from parallelism.profile import ProfileModel
from parallelism.profile_file import Profile
from parallelism.strategy import OperatorConfig, Strategy
from routing.network import Network
from routing.routes import Routes
from topoopt.evaluate.scheduling import Played, batch_tasks, play_schedule
from topoopt.evaluate.scoring import allreduce_routes
from topoopt.fabric.fabric import Fabric
from topoopt.plan.plan import ModelRecord, OperatorPlan, Plan, ScheduleRecord
from topoopt.problem.job import Cluster, Optimizer
from topoopt.problem.routing import Routing
from topoopt.problem.schedule import Schedule


@dataclass(frozen=True)
class Rebuilt:
    """The objects of a plan.

    Parameters
    ----------
    builder : TaskGraphBuilder
    compute : ComputeModel
        The times that the builder uses.
    server : Server
    cluster : Cluster
    strategy : Strategy
    fabric : Fabric
    schedule : Schedule
    """

    builder: TaskGraphBuilder
    compute: ComputeModel
    server: Server
    cluster: Cluster
    strategy: Strategy
    fabric: Fabric
    schedule: Schedule

    def play(self) -> Played:
        """Simulate the plan's iteration under its schedule."""
        tasks = batch_tasks(self.builder, self.strategy, self.schedule.microbatches)
        return play_schedule(self.fabric, tasks, self.schedule)


def rebuild_model(record: ModelRecord) -> ModelGraph:
    """Return the model graph of a plan."""
    operators = []
    for op in record.operators:
        if op.kind not in set(OperatorKind):
            raise InputError(f"model: operator {op.name!r} has unknown kind {op.kind!r}")
        operators.append(
            Operator(
                name=op.name,
                kind=OperatorKind(op.kind),
                inputs=tuple(op.inputs),
                output_shape=tuple(op.output_shape),
                forward_flops=op.forward_flops,
                backward_flops=op.backward_flops,
                parameters=op.parameters,
                forward_bytes=op.forward_bytes,
                backward_bytes=op.backward_bytes,
                splits=tuple(Split(mode_named(m), extent) for m, extent in op.splits.items()),
                sparse=op.sparse,
                profile_key=op.profile_key,
            )
        )
    return ModelGraph(record.name, tuple(operators), record.batch_per_gpu, record.element_bytes)


def mode_named(name: str) -> Mode:
    """Return the split mode of this (lower-case) name."""
    try:
        return Mode[name.upper()]
    except KeyError:
        names = ", ".join(mode.name.lower() for mode in Mode)
        raise InputError(f"split mode is {name!r}; choose {names}") from None


def rebuild_strategy(graph: ModelGraph, records: list[OperatorPlan]) -> Strategy:
    """Return the strategy of a plan or of one of its baselines."""
    names = [op.name for op in graph.operators]
    if [record.operator for record in records] != names:
        raise InputError("strategy does not list the model's operators in their order")
    return Strategy(
        tuple(
            OperatorConfig(r.sample, r.parameter, mode_named(r.mode), tuple(r.servers))
            for r in records
        )
    )


def rebuild_compute(plan: Plan, server: Server) -> ComputeModel:
    """Return the model of operator times that a plan was made with."""
    recorded: dict[str, Any] = dict(plan.compute)
    kind = recorded.get("kind")
    if kind == "roofline":
        return RooflineModel(
            server,
            efficiency=recorded["efficiency"],
            memory_efficiency=recorded["memory_efficiency"],
            launch_overhead=recorded["launch_overhead_s"],
            precision=recorded["precision"],
        )
    if kind == "profile":
        return ProfileModel(
            Profile.from_dict(recorded["profile"]), server, missing=recorded["missing"]
        )
    raise InputError(f"plan: compute model kind is {kind!r}; expected 'roofline' or 'profile'")


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
    pairs = network.hosts**2
    if offsets.size != pairs + 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
        raise InputError(f"routes: offsets must be {pairs + 1} ascending numbers from 0")
    if links.size != offsets[-1] or weights.size != links.size:
        raise InputError(
            f"routes: {links.size} links and {weights.size} weights for {offsets[-1]} entries"
        )
    if links.size and (links.min() < 0 or links.max() >= network.links):
        raise InputError(
            f"routes use link {links.max()}, but the plan has {network.links} links; "
            "every route must use existing links"
        )
    row = np.repeat(np.arange(pairs), np.diff(offsets))
    hops = np.bincount(row, weights=weights, minlength=pairs).astype(np.float64)
    latency = np.array(table.latency_s, dtype=np.float64)
    if latency.size != pairs:
        raise InputError(f"routes: {latency.size} latencies for {pairs} pairs")
    rings: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for ring in plan.rings:
        rings.setdefault(tuple(sorted(ring.order)), []).append(tuple(ring.order))
    if plan.routing not in set(Routing):
        raise InputError(f"routing is {plan.routing!r}; expected one of {', '.join(Routing)}")
    routing = Routing(plan.routing)
    whole = [(r.order, r.generator) for r in plan.rings if len(r.order) == network.hosts]
    return Fabric(
        "topoopt",
        network,
        Routes(network.hosts, offsets, links, weights, latency, hops),
        {group: tuple(orders) for group, orders in rings.items()},
        allreduce_routes(network, whole, routing),
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
        If a part of the plan is not well formed.
    """
    recorded = dict(plan.server)
    try:
        accelerator = Accelerator(**recorded.pop("accelerator"))
        server = Server(accelerator=accelerator, **recorded)
        compute = rebuild_compute(plan, server)
    except InputError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"plan: server or compute record is malformed ({error})") from None
    graph = rebuild_model(plan.model)
    cluster = Cluster(
        servers=plan.cluster.servers,
        degree=plan.cluster.degree,
        bandwidth=plan.cluster.bandwidth_bytes_per_s,
        ports=plan.cluster.ports,
        latency=plan.cluster.latency_s,
    )
    if plan.optimizer not in set(Optimizer):
        raise InputError(f"optimizer is {plan.optimizer!r}; expected {', '.join(Optimizer)}")
    builder = TaskGraphBuilder(
        graph,
        compute,
        server,
        cluster.servers,
        plan.global_batch,
        Optimizer(plan.optimizer).states,
    )
    strategy = rebuild_strategy(graph, plan.strategy)
    fabric = rebuild_fabric(plan)
    return Rebuilt(
        builder, compute, server, cluster, strategy, fabric, rebuild_schedule(plan.schedule)
    )


def rebuild_schedule(record: ScheduleRecord) -> Schedule:
    """Return the schedule of a plan."""
    return Schedule(
        record.overlap, record.compute, record.network, record.bucket_bytes, record.microbatches
    )
