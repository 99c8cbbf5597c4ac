"""One search of checked arguments, and the plan that is made of what it finds."""

from dataclasses import replace
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.jit import compiled_cache_is_warm, kernels_are_shared
from parallelism.taskgraph import traffic_of
from parallelism.transformers.family import LayoutFamily
from routing.routes import tabled
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.base.processes import granted_cores
from topoopt.base.progress import ProgressCallback
from topoopt.base.second import second_process
from topoopt.base.side_by_side import THREADED_FROM, Beside
from topoopt.base.version import installed_version
from topoopt.baselines.baselines import baseline_fabrics
from topoopt.bounds.bounds import Bound
from topoopt.bounds.everything import AnyFamily
from topoopt.bounds.gap import plan_bounds
from topoopt.codesign.baseline_search import AnySearch, BaselineSearch
from topoopt.codesign.from_others import faster_of_others
from topoopt.codesign.question import PlanQuestion
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import NAMED, plainest_routing
from topoopt.evaluate.schedule_search import (
    Scheduled,
    fused,
    ordered,
    plainly,
    schedule_pairs,
)
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.used_pairs import recorded_routes
from topoopt.plan.notes import (
    bounded_notes,
    left_out_notes,
    near_notes,
    price_notes,
    schedule_notes,
    skipped_notes,
    unsimulated_notes,
    unused_notes,
)
from topoopt.plan.plan import Plan
from topoopt.plan.recorded import (
    bound_record,
    degree_split,
    gap_record,
    link_records,
    ring_records,
    route_record,
    schedule_record,
)
from topoopt.plan.records import Baseline, ClusterRecord, SearchRecord
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PriceTable, default_prices, direct_connect_cost
from topoopt.search.confirm import (
    NO_PACKET_TIME,
    PACKET_MODEL,
    Confirmed,
    confirm_pairs,
    states_packets,
)
from topoopt.search.layouts import LayoutSearch
from topoopt.search.operators import OperatorSearch
from topoopt.search.result import SearchResult
from topoopt.search.scheduled import scheduled_search
from topoopt.search.search_state import Keeper

# GPUs from which on a second process helps to search layouts: it takes a second to start.
_MANY_GPUS = 64
# Seconds of a search by operators before a second process is started for it.
_SOON_S = 0.2


def optimize_once(
    asked: PlanQuestion,
    *,
    progress: ProgressCallback | None = None,
    keeper: Keeper | None = None,
) -> Plan:
    """Make one search; see `co_optimize`.

    Parameters
    ----------
    asked : PlanQuestion
    progress : callable, optional
    keeper : Keeper, optional
        Keeps the search's state, to go on from.

    Returns
    -------
    Plan
    """
    cluster, options, seed = asked.cluster, asked.options, asked.seed
    table = default_prices() if asked.prices is None else asked.prices
    family = asked.job.family(cluster.servers)
    problem: Problem[Any] = Problem(family, cluster, options, seed, wiring=asked.wiring)
    layouts, search = isinstance(family, LayoutFamily), search_of(problem)
    two = _worth_two(family)
    with (
        interrupts_between_steps(progress, everywhere=layouts) as report,
        second_process(search.shared, wanted=two, after=0.0 if layouts else _SOON_S) as second,
        search.using(second),
    ):
        # Once the second process has begun: this loads libraries that take some time.
        chosen = baseline_fabrics(asked.baselines, cluster, table, seed, options.reconfiguration)
        result: SearchResult[Any] = search.run(report, keeper)
        with Beside(report, _beside(cluster.servers)) as beside:
            bound = None if layouts or second.there else beside.start(search.bound)
            comparison = BaselineSearch(search, result, chosen, beside, second)
            comparison.begin()
            if isinstance(search, OperatorSearch) and search.astray(result):
                comparison.forget()
                search.search_again(result, beside.report)
                comparison.begin()
            confirmed = (
                _confirm(search, result, beside.report) if options.confirm == "packet" else None
            )
            scheduled = _schedule(search, result, beside.report)
            packets = _packets(search, result, confirmed, beside.report)
            compared, interrupted = comparison.made()
            stopped = interrupted or result.interrupted or options.faithful is not None
            if options.scheduling == "plain" and not stopped:
                before = result.best, packets, scheduled, compared
                try:
                    expander = "expander" in asked.baselines and asked.wiring is None
                    better = faster_of_others(comparison, packets, expander)
                    if better is not None:
                        result.best, packets = better
                        scheduled = plainly(problem.family, result.best)
                        compared, interrupted = comparison.made()
                except KeyboardInterrupt:
                    interrupted = True
                if interrupted:
                    result.best, packets, scheduled, compared = before
            result.interrupted = result.interrupted or interrupted
            try:
                quick = result.interrupted
                plain_bound = search.bound(quick=quick) if bound is None else bound.result()
            except KeyboardInterrupt:
                # A plan is nothing without it; who presses Ctrl-C again has none.
                result.interrupted, plain_bound = True, search.bound(quick=True)
    names = [base.fabric.name for base in chosen]
    return _assemble(search, result, packets, scheduled, compared, names, table, plain_bound)


def search_of(problem: Problem[Any]) -> AnySearch:
    """Return the search of a problem's family."""
    if isinstance(problem.family, LayoutFamily):
        return LayoutSearch(problem)
    return OperatorSearch(problem)


def _beside(servers: int) -> int:
    """Return how many threads search what a plan is compared with.

    Where simulations take seconds, a third keeps both cores of a small machine at work though some
    fabrics take longer; of more servers it would fill memory, of few the interpreter is the limit.
    """
    return 3 if servers >= THREADED_FROM and tabled(servers) else 2


def _worth_two(family: AnyFamily) -> bool:
    """Whether a second process is worth its start: it finds what it needs compiled."""
    if isinstance(family, LayoutFamily):
        helps = family.gpus >= _MANY_GPUS
    else:
        helps = 1 < family.servers < THREADED_FROM
    return (
        helps
        and granted_cores() > 1
        and kernels_are_shared()
        and compiled_cache_is_warm("fabric_*/*")
    )


def _confirm(
    search: AnySearch, result: SearchResult[Any], progress: ProgressCallback | None
) -> Confirmed[Any] | None:
    """Let the packet model choose among the best pairs; nothing if it is interrupted."""
    problem: Problem[Any] = search.problem
    if problem.cluster.servers == 1:
        return None
    try:
        candidates: list[Pair[Any]] = search.candidates(result, progress)
        confirmed: Confirmed[Any] = confirm_pairs(problem, candidates, progress)
    except KeyboardInterrupt:
        result.interrupted = True
        return None
    result.best = confirmed.pair
    return confirmed


def _schedule(
    search: AnySearch, result: SearchResult[Any], progress: ProgressCallback | None
) -> Scheduled[Any]:
    """Choose a schedule for the best pairs; the plain one if that is asked or interrupted.

    What is fused while strategies are sought is so after an interruption, too.
    """
    family: Any = search.problem.family
    scheduling = search.problem.options.scheduling
    if scheduling == "compute":
        return ordered(family, result.best, search.problem.options.compute_order)
    if scheduling == "fused":
        return fused(family, result.best)
    if scheduling != "plain" and not result.interrupted:
        try:
            if isinstance(search, OperatorSearch):
                scheduled = scheduled_search(search.search, result, progress)
            else:
                scheduled = schedule_pairs(family, result.others, scheduling, progress)
        except KeyboardInterrupt:
            result.interrupted = True
        else:
            result.best = scheduled.pair
            return scheduled
    return plainly(family, result.best)


def _packets(
    search: AnySearch,
    result: SearchResult[Any],
    confirmed: Confirmed[Any] | None,
    progress: ProgressCallback | None,
) -> Confirmed[Any] | None:
    """Return what packet trains say of the best pair, whether or not they chose it."""
    problem: Problem[Any] = search.problem
    if problem.options.confirm == "packet" or not states_packets(problem) or result.interrupted:
        return confirmed
    try:
        return confirm_pairs(problem, [result.best], progress)
    except KeyboardInterrupt:
        result.interrupted = True
        return None


def _assemble(
    search: AnySearch,
    result: SearchResult[Any],
    packets: Confirmed[Any] | None,
    scheduled: Scheduled[Any],
    compared: dict[str, Baseline],
    asked: list[str],
    prices: PriceTable,
    plain_bound: Bound | None,
) -> Plan:
    """Gather everything that the plan file holds."""
    pair, simulated, problem = result.best, scheduled.simulated, search.problem
    family: Any = problem.family
    cluster = problem.cluster
    bounds = plan_bounds(
        family, cluster, pair.strategy, pair.fabric, simulated.tasks, simulated.time,
        schedule=scheduled.schedule, everything=plain_bound,
    )  # fmt: skip
    everything, own = bounds.everything, bounds.parallelization
    if everything.seconds <= 0:
        raise InputError(
            f"model {family.question().model.name!r} takes no time on these devices, so no bound "
            "can be given; give its operators FLOPs or bytes"
        )
    tasks = family.represented(pair.strategy)
    traffic = traffic_of(tasks)
    carried = link_bytes(pair.fabric, tasks)
    network, topology = pair.fabric.network, pair.topology
    useful = traffic.allreduce_sent() + traffic.transfer_sent()
    alone = cluster.servers == 1
    layouts = isinstance(family, LayoutFamily)
    routing = pair.routing
    if topology is not None:
        known = problem.options.plan_routings(cluster.servers)
        routing = plainest_routing(topology, pair.fabric, tasks, routing, known)
    routes = recorded_routes(pair.fabric, tasks, named=routing in NAMED)
    # Rings over some servers may have been wired for what these exchange.
    reduced = {*traffic.groups, tuple(range(cluster.servers))}
    wired, given = topology.rings if topology else (), problem.wiring is not None
    rings = ring_records(ring for ring in wired if given or ring.group in reduced)
    links = link_records(network, rings)
    split = degree_split(links, 0 if alone else cluster.degree)
    jitter = None if packets is None else packets.jitter
    counted = {}
    if packets is not None and jitter is not None and problem.options.confirm == "packet":
        counted["candidates"] = len(packets.candidates)
    return Plan(
        iteration_time_s=simulated.time,
        packet_time_s=None if jitter is None else jitter.mean,
        packet_spread_s=None if jitter is None else jitter.spread,
        lower_bound_s=everything.seconds,
        parallelization_lower_bound_s=max(own.seconds, everything.seconds),
        gap=simulated.time / everything.seconds - 1.0,
        compute_time_s=simulated.computing,
        exposed_communication_s=simulated.time - simulated.computing,
        cost_usd=direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices),
        degree_allreduce=split[0],
        degree_transfer=split[1],
        routing=routing.value,
        bandwidth_tax=float(carried.sum() / useful) if useful else 1.0,
        allreduce_bytes=traffic.allreduce_sent(),
        transfer_bytes=traffic.transfer_sent(),
        memory_per_gpu_bytes=float(family.memory(pair.strategy).max()),
        tokens_per_s=family.tokens_per_s(simulated.time),
        model_flops_utilisation=family.utilisation(simulated.time),
        baselines=compared,
        named_strategies_s={
            name: float(time) if np.isfinite(time) else None for name, time in result.named.items()
        },
        origin=pair.origin,
        parallelization=family.record(pair.strategy),
        links=links,
        rings=rings,
        routes=route_record(routes),
        bound=bound_record(everything),
        parallelization_bound=bound_record(own),
        topology_bound=bound_record(bounds.topology),
        routes_bound=bound_record(bounds.routes),
        collective_bound=bound_record(bounds.collective),
        gap_parts=[gap_record(part, family.noun) for part in bounds.parts],
        notes=_notes(problem, result, packets, scheduled, compared, prices),
        job=family.question(),
        global_batch=family.batch,
        cluster=ClusterRecord(
            servers=cluster.servers,
            degree=cluster.degree,
            bandwidth_bytes_per_s=cluster.port_rate,
            ports=cluster.ports,
            latency_s=cluster.hop_latency,
        ),
        prices=prices.to_dict(),
        search=SearchRecord(
            options=_recorded(problem.options, result, layouts),
            baselines=asked,
            steps=result.steps,
            counts=result.counts | counted,
            interrupted=result.interrupted,
            converged=result.converged,
            wiring="given" if given else "free",
        ),
        fabric_model=FABRIC_MODEL,
        packet_model=None if jitter is None else PACKET_MODEL,
        schedule=schedule_record(scheduled),
        seed=problem.seed,
        version=installed_version(),
    )


def _notes(
    problem: Problem[Any],
    result: SearchResult[Any],
    packets: Confirmed[Any] | None,
    scheduled: Scheduled[Any],
    compared: dict[str, Baseline],
    prices: PriceTable,
) -> list[str]:
    """Return what a plan assumes, and what was left out in making it."""
    family, cluster, options = problem.family, problem.cluster, problem.options
    layouts = isinstance(family, LayoutFamily)
    return [
        *family.assumptions(result.best.strategy, microbatches=scheduled.schedule.microbatches),
        *unused_notes(family.choices.without_effect(family.layouts()) if layouts else ()),
        *price_notes(cluster, compared, prices),
        *left_out_notes(cluster.servers, compared),
        *bounded_notes(compared),
        *skipped_notes(result.skipped, options.memory_bytes),
        *unsimulated_notes(result.unsimulated),
        *near_notes(scheduled.simulated.near),
        *schedule_notes(scheduled, options.scheduling),
        *_packet_notes(problem, packets, result.interrupted),
    ]


def _packet_notes(
    problem: Problem[Any], packets: Confirmed[Any] | None, interrupted: bool
) -> list[str]:
    """Say it where packets were to choose, but an iteration takes them too long."""
    asked = problem.options.confirm == "packet" and problem.cluster.servers > 1
    untimed = packets is None or packets.jitter is None
    return [NO_PACKET_TIME] if asked and untimed and not interrupted else []


def _recorded(options: SearchOptions, result: SearchResult[Any], layouts: bool) -> SearchOptions:
    """Return the options with the steps that one search made as its budget, whatever ended it."""
    if layouts or options.restarts > 1:
        return options
    return replace(options, steps=result.steps, seconds=None)
