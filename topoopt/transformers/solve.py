"""From a transformer and a cluster to a complete plan."""

from collections.abc import Iterable
from typing import Literal, cast

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, traffic_of
from parallelism.transformers.costs import model_flops
from parallelism.transformers.memory import memory_use
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.base.progress import ProgressCallback
from topoopt.base.version import installed_version
from topoopt.bounds.bounds import Bound, strategy_bound
from topoopt.bounds.gap import gap_parts, routes_bound, topology_bound
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.simulate import simulate
from topoopt.fabric.timeline import compute_on_critical_path
from topoopt.fabrics.baselines import BASELINES, PLAN_BASELINES
from topoopt.plan.plan import ClusterRecord, GapRecord
from topoopt.plan.records import bound_record, link_records, ring_records
from topoopt.problem.job import Cluster
from topoopt.problem.prices import PriceTable, default_prices, direct_connect_cost
from topoopt.transformers.candidates import layout_bound
from topoopt.transformers.job import TransformerJob
from topoopt.transformers.plan import TransformerBaseline, TransformerPlan, TransformerSearch
from topoopt.transformers.play import tasks_of
from topoopt.transformers.search import SIMULATED, Found, search

HOW = {
    "layout": "bound of this layout, any placement, wiring and routing, less that over all layouts",
    "topology": "bound of this placed layout and wiring, any routing, less that of the layout",
    "routing": "bound of these routes and rings, any order of events, less that of any routing",
    "scheduling": "simulated time, less the bound of these routes",
}


def plan_transformer(
    job: TransformerJob,
    cluster: Cluster,
    *,
    seed: int = 0,
    simulated: int = SIMULATED,
    baselines: Iterable[str] = PLAN_BASELINES,
    prices: PriceTable | None = None,
    progress: ProgressCallback | None = None,
) -> TransformerPlan:
    """Choose layout, placement, topology and routing of a transformer's training job.

    Parameters
    ----------
    job : TransformerJob
    cluster : Cluster
    seed : int
        The same seed gives the same plan.
    simulated : int
        Layouts that are simulated, best estimates first.
    baselines : iterable of str
        Names of `topoopt.fabrics.baselines.BASELINES`.
    prices : PriceTable, optional
        Component prices; the default table otherwise.
    progress : callable, optional

    Returns
    -------
    TransformerPlan
        Marked as interrupted if it was stopped from the keyboard.

    Raises
    ------
    InputError
        If an argument is out of range.
    InfeasibleError
        If no layout is legal, none fits in memory, or the degree cannot connect the servers.
    """
    for what, count, least in (("seed", seed, 0), ("simulated", simulated, 1)):
        if isinstance(count, bool) or not isinstance(count, int) or count < least:
            raise InputError(f"{what} is {count!r}; give a whole number of at least {least}")
    names = tuple(baselines)
    for name in names:
        if name not in BASELINES:
            raise InputError(f"fabric is {name!r}; choose {', '.join(BASELINES)}")
    table = default_prices() if prices is None else prices
    with interrupts_between_steps(progress) as report:
        found = search(job, cluster, names, table, simulated=simulated, seed=seed, progress=report)
    return _assemble(job, cluster, found, table, simulated, seed)


def levels(
    cluster: Cluster, fabric: Fabric, tasks: TaskGraph, layout: Bound
) -> tuple[Bound, Bound, Bound]:
    """Return the bounds of a placed layout, of its wiring, and of its routes.

    Parameters
    ----------
    cluster : Cluster
    fabric : Fabric
        The plan's.
    tasks : TaskGraph
        One iteration of the placed layout.
    layout : Bound
        Of the layout wherever its ranks sit.

    Returns
    -------
    tuple of Bound
        The first is the tighter of the layout's own and of its task graph over any wiring.
    """
    lag = (2.0 if fabric.transport.handshake else 1.0) * cluster.hop_latency
    placed = strategy_bound(tasks, cluster.degree, cluster.port_rate, lag)
    tighter = placed if placed.seconds > layout.seconds else layout
    return tighter, topology_bound(fabric, tasks), routes_bound(fabric, tasks)


def _assemble(
    job: TransformerJob,
    cluster: Cluster,
    found: Found,
    prices: PriceTable,
    simulated: int,
    seed: int,
) -> TransformerPlan:
    best = found.best
    placement, layout = best.placed.placement, best.placed.candidate.layout
    tasks = tasks_of(job, placement)
    timeline = simulate(best.fabric, tasks)
    total = timeline.makespan
    computing = compute_on_critical_path(tasks, timeline)
    everything = found.survey.bound
    own, wiring, routes = levels(cluster, best.fabric, tasks, layout_bound(job, cluster, layout))
    uses = memory_use(job.model, layout, job.global_batch, job.implementation, sequence=job.tokens)
    traffic = traffic_of(tasks)
    useful = traffic.allreduce_sent() + traffic.transfer_sent()
    topology, network = best.topology, best.fabric.network
    peak = job.gpus(cluster) * job.server.accelerator.bf16_flops
    flops = model_flops(job.model, job.global_batch, sequence=job.tokens)
    alone = cluster.servers == 1
    parts = gap_parts(everything, own, wiring, routes, total)
    return TransformerPlan(
        iteration_time_s=total,
        tokens_per_s=job.global_batch * job.tokens / total,
        model_flops_utilisation=flops / (total * peak),
        lower_bound_s=everything.seconds,
        gap=total / everything.seconds - 1.0,
        compute_time_s=computing,
        exposed_communication_s=total - computing,
        cost_usd=0.0
        if alone
        else direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices),
        memory_per_gpu_bytes=max(use.total for use in uses),
        layout=layout,
        order=placement.order,
        stages=list(uses),
        degree_allreduce=topology.degree_allreduce if topology else 0,
        degree_transfer=topology.degree_transfer if topology else 0,
        routing=cast(Literal["ecmp", "k-shortest"], best.routing.value),
        allreduce_bytes=traffic.allreduce_sent(),
        transfer_bytes=traffic.transfer_sent(),
        bandwidth_tax=float(timeline.link_bytes.sum() / useful) if useful else 1.0,
        baselines={
            name: TransformerBaseline(
                iteration_time_s=other.time_s,
                cost_usd=other.base.cost,
                bandwidth_bytes_per_s=other.base.bandwidth,
                layout=other.placed.candidate.layout,
                order=other.placed.placement.order,
                note=other.base.note,
            )
            for name, other in found.baselines.items()
        },
        links=link_records(network),
        rings=ring_records(topology.rings if topology else ()),
        bound=bound_record(everything),
        layout_bound=bound_record(own),
        topology_bound=bound_record(wiring),
        routes_bound=bound_record(routes),
        gap_parts=[
            GapRecord(name=name, seconds=part.seconds, binding=part.binding, how=HOW[name])
            for name, part in zip(HOW, parts, strict=True)
        ],
        notes=notes_of(job),
        model=job.model,
        sequence=job.tokens,
        global_batch=job.global_batch,
        server=job.server,
        rates=job.gpu_rates,
        implementation=job.implementation,
        choices=job.choices,
        memory_reserve=float(job.memory_reserve),
        cluster=ClusterRecord(
            servers=cluster.servers,
            degree=cluster.degree,
            bandwidth_bytes_per_s=cluster.port_rate,
            ports=cluster.ports,
            latency_s=cluster.hop_latency,
        ),
        prices=prices.to_dict(),
        search=TransformerSearch(
            layouts=found.survey.layouts,
            fitting=found.survey.fitting,
            simulated=found.simulated,
            wired=found.wired,
            most_simulated=simulated,
            interrupted=found.interrupted,
        ),
        fabric_model=FABRIC_MODEL,
        seed=seed,
        version=installed_version(),
    )


def notes_of(job: TransformerJob) -> list[str]:
    """Return the assumptions that a plan rests on, one sentence each."""
    rates = job.gpu_rates
    fitted = rates.fitted or "nothing: they are the user's own"
    found = [
        f"times of products and attention are those of {rates.accelerator.name} with rates "
        f"fitted on {fitted}",
        f"{job.memory_reserve:.0%} of each GPU's memory is left free",
    ]
    if job.implementation.load_imbalance > 1.0:
        found.append(
            f"the busiest expert rank has {job.implementation.load_imbalance:g} times its share "
            "of tokens"
        )
    elif job.model.experts:
        found.append("tokens are spread evenly over experts")
    return found


__all__ = ["HOW", "levels", "notes_of", "plan_transformer"]
