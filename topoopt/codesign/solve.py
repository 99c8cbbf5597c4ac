"""The main job: from a job and a cluster to a complete plan."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Literal, cast

import numpy as np

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.device import ComputeModel
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.taskgraph import traffic_of
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.base.progress import ProgressCallback
from topoopt.base.version import installed_version
from topoopt.bounds.gap import HOW, plan_bounds
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.schedule_search import (
    Scheduled,
    check_scheduling,
    ordered,
    plainly,
    schedule_pairs,
)
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.tasks import link_bytes
from topoopt.fabrics.baselines import (
    PLAN_BASELINES,
    BaselineFabric,
    baseline_fabrics,
    best_on,
)
from topoopt.fabrics.reconfiguration import Reconfiguration
from topoopt.plan.plan import (
    Baseline,
    ClusterRecord,
    GapRecord,
    Method,
    Plan,
    RouteTable,
    SearchRecord,
)
from topoopt.plan.records import (
    bound_record,
    compute_notes,
    confirmation_record,
    link_records,
    model_record,
    price_notes,
    reconfiguration_record,
    ring_records,
    schedule_notes,
    schedule_record,
    strategy_record,
)
from topoopt.problem.budget import Budget
from topoopt.problem.job import Cluster, Job
from topoopt.problem.options import Settings
from topoopt.problem.prices import PriceTable, default_prices, direct_connect_cost
from topoopt.problem.routing import Routing
from topoopt.problem.schedule import Schedule
from topoopt.search.alternating import AlternatingSearch
from topoopt.search.confirm import (
    FINALISTS,
    PLAYED,
    Confirmed,
    check_confirm,
    confirm_pairs,
    screened,
)
from topoopt.search.joint import SEARCHES
from topoopt.search.result import SearchResult
from topoopt.search.route_moves import other_routes
from topoopt.search.search_state import Keeper
from topoopt.search.train_moves import TrainMoves

# Share of the main search's steps and work that each baseline's search may use.
_BASELINE_SHARE = 0.1
# Restarts, workers, engine and checkpoint of a single search.
_ALONE = (1, 1, "local", None)


def co_optimize(
    job: Job,
    cluster: Cluster,
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    chains: int = 3,
    faithful: str | None = None,
    method: str = "joint",
    parameter_splits: bool = True,
    baselines: Iterable[str | BaselineFabric] = PLAN_BASELINES,
    prices: PriceTable | None = None,
    reconfiguration: Reconfiguration | None = None,
    confirm: str | None = None,
    schedule: str = "plain",
    restarts: int = 1,
    workers: int = 1,
    engine: str = "local",
    checkpoint: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> Plan:
    """Co-optimize parallelization strategy, topology and routing of a training job.

    Strategies are sought on an ideal switch first; the most promising are wired (TotientPerms,
    matching), refined on their fabrics by a portfolio of searchers and wired anew, and scored
    crosswise on each other's topologies (after the alternation of TopoOpt, NSDI'23, sec. 4). The
    best pair ever scored is returned; it is never worse than the named starting strategies on
    topologies built for them (by its score, before packet trains or a schedule choose).

    Parameters
    ----------
    job : Job
    cluster : Cluster
    seed : int
        The same seed and steps give the same plan.
    steps : int, optional
        Strategy proposals; by default up to 20000, fewer where scores are expensive (see
        `topoopt.problem.budget.Budget`).
    seconds : float, optional
        A wall-clock budget instead; the plan records the steps that were made, and
        ``steps=plan.search.steps`` reproduces it.
    chains : int
        Search chains, each with a strategy and a topology of its own.
    faithful : {None, "paper", "artifact"}
        Switch back everything that departs from the paper, or from the published code.
    method : {"joint", "alternating", "sequential", "strategy-only", "topology-only"}
        How strategies and topologies are sought, see `topoopt.problem.options.Settings`; the
        last three are there to be compared with.
    parameter_splits : bool
        Whether operators may be split along their parameters; measured profiles hold only sample
        splits, so that times of parameter splits are assumed.
    baselines : iterable of str or BaselineFabric
        Fabrics to compare with: names that `topoopt.fabrics.baselines.baseline_fabric` knows, or
        fabrics of your own (which are not part of the plan file, so that `verify_plan` cannot
        check their times).
    prices : PriceTable, optional
        Component prices; the default table otherwise.
    reconfiguration : Reconfiguration, optional
        Of the baselines ``sip-ml`` and ``ocs-reconfig``.
    confirm : {None, "train"}
        Simulate the best few pairs found with packet trains as well, and plan the one with the
        lowest mean there. Times, bounds and baselines of the plan stay those of the fluid model;
        what the trains say is recorded beside them. On up to 32 servers the search is wary: it
        goes by the mean of the times with fair shares and with transfers that yield, and the
        plan may be slower in the fluid model than one without confirmation.
    schedule : {"plain", "compute", "barrier", "auto"}
        plain: as published. compute: devices work on what has the longest remaining path first,
        while strategies are sought, too. Otherwise choose a schedule inside the iteration for the
        best few pairs found, and plan the one that is then fastest: barrier keeps the barrier
        between iterations, with auto they may overlap (see `topoopt.problem.schedule.Schedule`).
        Baselines keep the plain one, and but for compute starting strategies, too.
    restarts, workers, engine, checkpoint
        Independent searches with seeds derived from ``seed``, each with the whole budget, of
        which the best plan is returned; how many run at a time and where; and a file that keeps
        those that are finished. See `topoopt.codesign.restarts.co_optimize_with_restarts`.
    progress : callable, optional
        Called with a `Progress` after every step.

    Returns
    -------
    Plan
        Marked as interrupted if the search was stopped from the keyboard.

    Raises
    ------
    InputError
        If an argument is out of range.
    InfeasibleError
        If the model does not fit in memory, or the degree cannot connect the servers.
    """
    if steps is not None and seconds is not None:
        raise InputError(f"both steps={steps} and seconds={seconds} are given; give one of them")
    for what, count in (("steps", steps), ("seed", seed), ("chains", chains)):
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            raise InputError(f"{what} is {count!r}; give a whole number")
    if steps is not None and steps < 0:
        raise InputError(f"steps is {steps}; give zero or more")
    if seconds is not None and not seconds > 0:
        raise InputError(f"seconds is {seconds}; give a positive number")
    if seed < 0:
        raise InputError(f"seed is {seed}; give zero or more")
    check_confirm(confirm)
    check_scheduling(schedule, confirm)
    if type(restarts) is not int or (restarts, workers, engine, checkpoint) != _ALONE:
        from topoopt.codesign.restarts import co_optimize_with_restarts

        return co_optimize_with_restarts(
            job, cluster, seed=seed, restarts=restarts, workers=workers, engine=engine,
            checkpoint=checkpoint, progress=progress, steps=steps, seconds=seconds, chains=chains,
            faithful=faithful, baselines=tuple(baselines), prices=prices, confirm=confirm,
            schedule=schedule, reconfiguration=reconfiguration, method=method,
            parameter_splits=parameter_splits,
        )  # fmt: skip
    return optimize_once(
        job, cluster, seed=seed, progress=progress, steps=steps, seconds=seconds, chains=chains,
        faithful=faithful, baselines=baselines, prices=prices, confirm=confirm, schedule=schedule,
        reconfiguration=reconfiguration, method=method, parameter_splits=parameter_splits,
    )  # fmt: skip


def optimize_once(
    job: Job,
    cluster: Cluster,
    *,
    seed: int,
    steps: int | None,
    seconds: float | None,
    chains: int,
    faithful: str | None,
    method: str,
    parameter_splits: bool,
    baselines: Iterable[str | BaselineFabric],
    prices: PriceTable | None,
    reconfiguration: Reconfiguration | None,
    confirm: str | None,
    schedule: str,
    progress: ProgressCallback | None,
    keeper: Keeper | None = None,
) -> Plan:
    """Make one search of checked arguments; see `co_optimize`.

    Parameters
    ----------
    job : Job
    cluster : Cluster
    keeper : Keeper, optional
        Keeps the search's state, to go on from.

    Returns
    -------
    Plan
    """
    settings = Settings(
        faithful, chains, method=method, parameter_splits=parameter_splits,
        one_path=confirm is not None,
        compute_order="critical-path" if schedule == "compute" else "ready",
    )  # fmt: skip
    table = default_prices() if prices is None else prices
    compute = job.compute_model()
    builder = job.builder(cluster.servers, compute)
    memory_limit = job.server.accelerator.memory_bytes
    if seconds is not None:
        budget = Budget(seconds=seconds)
    else:
        budget = _default_budget(cluster, settings) if steps is None else Budget(steps=steps)
    chosen = baseline_fabrics(baselines, cluster, table, seed, reconfiguration)
    search = SEARCHES[settings.searched](builder, cluster, memory_limit, settings, seed)
    with interrupts_between_steps(progress) as report:
        result = search.run(budget, report, keeper)
        confirmed = _confirm(search, result, seed, report) if confirm else None
        scheduled = _schedule(search, result, schedule, report)
        compared, interrupted = _baselines(search, result, chosen, seed, report)
    result.interrupted = result.interrupted or interrupted
    return _assemble(
        job, cluster, builder, compute, search, result, confirmed, scheduled, compared, table, seed
    )


def _default_budget(cluster: Cluster, settings: Settings) -> Budget:
    return Budget.default(cluster.servers, settings.faithful is not None)


def _confirm(
    search: AlternatingSearch,
    result: SearchResult,
    seed: int,
    progress: ProgressCallback | None,
) -> Confirmed | None:
    """Let the train model choose among the best pairs; nothing if it is interrupted."""
    if search.cluster.servers == 1:
        return None
    try:
        builder, order = search.builder, search.settings.compute_order
        schedule = Schedule(compute=order)
        candidates = result.others
        if search.settings.routings == (Routing.BALANCED,):
            if search.moves_by_trains and not result.interrupted:
                moves = TrainMoves(
                    builder, search.space, search.regions, search.memory_limit, seed, order
                )
                candidates = moves.improved(candidates, result.steps, progress)[:FINALISTS]
                if moves.interrupted:
                    result.best, result.interrupted = candidates[0], True
                    return None
            candidates = other_routes(builder, candidates, search.memory_limit, order)
            candidates = screened(builder, candidates, seed, PLAYED, progress, schedule)
            candidates.sort(key=lambda pair: pair.time)
        confirmed = confirm_pairs(builder, candidates, seed, progress, schedule)
    except KeyboardInterrupt:
        result.interrupted = True
        return None
    result.best = confirmed.pair
    return confirmed


def _schedule(
    search: AlternatingSearch,
    result: SearchResult,
    scheduling: str,
    progress: ProgressCallback | None,
) -> Scheduled:
    """Choose a schedule for the best pairs; the plain one if that is asked or interrupted."""
    if scheduling == "compute":
        return ordered(search.builder, result.best, search.settings.compute_order)
    if scheduling != "plain" and not result.interrupted:
        try:
            scheduled = schedule_pairs(search.builder, result.others, scheduling, progress)
        except KeyboardInterrupt:
            result.interrupted = True
        else:
            result.best = scheduled.pair
            return scheduled
    return plainly(search.builder, result.best)


def _baselines(
    search: AlternatingSearch,
    result: SearchResult,
    chosen: list[BaselineFabric],
    seed: int,
    progress: ProgressCallback | None,
) -> tuple[dict[str, Baseline], bool]:
    """Score the job on the other fabrics, each with a strategy searched for it."""
    found: dict[str, Baseline] = {}
    if search.cluster.servers == 1:
        return found, False
    starts = {"plan": result.best.strategy}
    for name, plain in named_strategies(search.space).items():
        starts[name] = search.space.intern(plain)
    share = 0 if result.interrupted else _BASELINE_SHARE
    budget = Budget(steps=int(result.steps * share), work=result.work * share)
    for number, base in enumerate(chosen):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2000 + number,)))
        try:
            strategy, time, origin = best_on(
                base.fabric, search.builder, search.space, search.memory_limit, starts, budget,
                rng, progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            return found, True
        found[base.fabric.name] = Baseline(
            iteration_time_s=time,
            cost_usd=base.cost,
            bandwidth_bytes_per_s=base.bandwidth,
            strategy_origin=origin,
            strategy=strategy_record(search.builder, strategy),
            note=base.note,
            reconfiguration=reconfiguration_record(base.fabric),
        )
    return found, False


def _assemble(
    job: Job,
    cluster: Cluster,
    builder: TaskGraphBuilder,
    compute: ComputeModel,
    search: AlternatingSearch,
    result: SearchResult,
    confirmed: Confirmed | None,
    scheduled: Scheduled,
    compared: dict[str, Baseline],
    prices: PriceTable,
    seed: int,
) -> Plan:
    """Gather everything that the plan file holds."""
    pair, played = result.best, scheduled.played
    memory = job.server.accelerator.memory_bytes
    bounds = plan_bounds(
        builder, cluster, memory, pair.fabric, played.tasks, played.time,
        schedule=scheduled.schedule,
    )  # fmt: skip
    everything, strategy = bounds.everything, bounds.strategy
    if everything.seconds <= 0:
        raise InputError(
            f"model {job.model.name!r} takes no time on these devices, so no bound can be given; "
            "give its operators FLOPs or bytes"
        )
    tasks = builder.build(pair.strategy)
    traffic = traffic_of(tasks)
    carried = link_bytes(pair.fabric, tasks)
    network, routes, topology = pair.fabric.network, pair.fabric.routes, pair.topology
    useful = traffic.allreduce_sent() + traffic.transfer_sent()
    values, which = np.unique(routes.weights, return_inverse=True)
    alone = cluster.servers == 1
    return Plan(
        iteration_time_s=played.time,
        lower_bound_s=everything.seconds,
        strategy_lower_bound_s=max(strategy.seconds, everything.seconds),
        gap=played.time / everything.seconds - 1.0,
        compute_time_s=played.computing,
        exposed_communication_s=played.time - played.computing,
        cost_usd=0.0
        if alone
        else direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices),
        degree_allreduce=topology.degree_allreduce if topology else 0,
        degree_transfer=topology.degree_transfer if topology else 0,
        routing=pair.routing.value,
        bandwidth_tax=float(carried.sum() / useful) if useful else 1.0,
        allreduce_bytes=traffic.allreduce_sent(),
        transfer_bytes=traffic.transfer_sent(),
        memory_per_gpu_bytes=float(builder.memory(pair.strategy).max()),
        baselines=compared,
        named_strategies_s={
            name: float(time) if np.isfinite(time) else None for name, time in result.named.items()
        },
        strategy_origin=pair.origin,
        strategy=strategy_record(builder, pair.strategy),
        links=link_records(network),
        rings=ring_records(topology.rings if topology else ()),
        routes=RouteTable(
            offsets=routes.offsets.tolist(),
            links=routes.links.tolist(),
            weights=which.tolist(),
            weight_values=values.tolist(),
            latency_s=routes.latency.tolist(),
        ),
        bound=bound_record(everything),
        strategy_bound=bound_record(strategy),
        topology_bound=bound_record(bounds.topology),
        routes_bound=bound_record(bounds.routes),
        gap_parts=[
            GapRecord(
                name=part.name, seconds=part.seconds, binding=part.binding, how=HOW[part.name]
            )
            for part in bounds.parts
        ],
        notes=[
            *compute_notes(builder, compute, pair.strategy, scheduled.schedule.microbatches),
            *price_notes(cluster, compared, prices),
            *schedule_notes(scheduled),
        ],
        model=model_record(job.model),
        server=asdict(job.server),
        compute=compute.describe(),
        optimizer=job.optimizer,
        batch_per_gpu=job.batch_per_gpu or job.model.batch_per_gpu,
        global_batch=builder.batch,
        cluster=ClusterRecord(
            servers=cluster.servers,
            degree=cluster.degree,
            bandwidth_bytes_per_s=cluster.port_rate,
            ports=cluster.ports,
            latency_s=cluster.hop_latency,
        ),
        prices=prices.to_dict(),
        search=SearchRecord(
            steps=result.steps,
            chains=1 if search.settings.faithful else search.settings.chains,
            method=cast(Method, search.settings.searched),
            parameter_splits=search.settings.parameter_splits,
            one_path=search.settings.one_path,
            compute_order=cast(Literal["ready", "critical-path"], search.settings.compute_order),
            faithful=cast(Literal["paper", "artifact"] | None, search.settings.faithful),
            interrupted=result.interrupted,
            converged=result.converged,
        ),
        fabric_model=FABRIC_MODEL,
        confirmation=confirmation_record(confirmed),
        schedule=schedule_record(scheduled),
        seed=seed,
        version=installed_version(),
    )


def score_named(job: Job, cluster: Cluster, name: str, *, seed: int = 0) -> float:
    """Return the iteration time of a named strategy on a topology built for it.

    Parameters
    ----------
    job : Job
    cluster : Cluster
    name : str
        For example "data-parallel" or "hybrid".
    seed : int

    Returns
    -------
    float
        Seconds; infinity if the strategy does not fit in memory.
    """
    builder = job.builder(cluster.servers)
    limit = job.server.accelerator.memory_bytes
    space = StrategySpace(builder.graph, cluster.servers, builder.batch)
    strategies = named_strategies(space)
    if name not in strategies:
        raise InputError(f"strategy is {name!r}; choose {', '.join(strategies)}")
    strategy = space.intern(strategies[name])
    if builder.memory(strategy).max() > limit:
        return float("inf")
    rewirer = Rewirer(builder, cluster, limit, Settings(), seed)
    pair = rewirer.wire(strategy, name, formula_only=True)
    assert pair is not None  # without a limit every pair is simulated
    return pair.time


__all__ = ["co_optimize", "score_named"]
