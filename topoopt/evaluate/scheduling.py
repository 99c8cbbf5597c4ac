"""Schedules inside the iteration: in which order and in which pieces its tasks run."""

from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread
from parallelism.buckets import bucket_allreduces
from parallelism.iterations import carried_edges, unroll, with_edges
from parallelism.longest_path_kernels import heads_and_tails
from parallelism.taskgraph import Phase, TaskGraph, TaskKind, edges_of
from routing.routes import tabled
from topoopt.bounds.critical import span_of
from topoopt.bounds.turns import longest_turn
from topoopt.bounds.wired import routed_least
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.orders import alone_seconds, task_orders
from topoopt.fabric.represented import tasks_over, whole_tasks
from topoopt.fabric.rotated import for_each
from topoopt.fabric.simulation import timeline_of
from topoopt.fabric.timeline import compute_on_critical_path
from topoopt.problem.schedule import LEVELS, Schedule

# Flows that end within this share of their age are batched where scores are near, not exact: the
# error is about 0.1 %.
NEAR = 0.03
MOST_CROSSINGS = 50_000_000
"""Links that the transfers of an iteration cross, beyond which it is simulated nearly: rates are
worked out anew over all of them at every change, and there are hundreds of thousands of changes."""
MOST_TRANSFERS = 200_000
"""Transfers of an iteration on many servers beyond which it is simulated nearly, too."""
ITERATIONS = 6
"""Iterations in a row whose steady state gives the period without a barrier."""

# Remaining paths that differ by less than this share of the longest count as equal, so that
# rounding does not tell apart what is symmetric.
_ALIKE = 1e-9


@dataclass(frozen=True, eq=False)
class Simulated:
    """An iteration under a schedule.

    Parameters
    ----------
    time : float
        Seconds: the makespan, or with overlapping iterations their period.
    computing : float
        Seconds of it that are compute on the critical path; with overlapping iterations the
        busiest device's.
    tasks : TaskGraph
        One iteration as scheduled, with its priorities.
    resolved : int
        Streams re-solved, a measure of what the simulation cost.
    near : bool
        Whether completions were batched, because there are more than `MOST_TRANSFERS` or
        `MOST_CROSSINGS`.
    start : float64 array, shape (tasks,), optional
        When each task of one iteration starts, seconds; not of overlapping iterations.
    """

    time: float
    computing: float
    tasks: TaskGraph
    resolved: int
    near: bool = False
    start: Floats | None = None


def crossings(fabric: Fabric, tasks: TaskGraph) -> int:
    """Return how many links the transfers of an iteration cross in all.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    int
        Each link that carries a share of a transfer counts once for it; none where tasks stand
        for others, whose simulation is small.
    """
    if tasks.alike is not None:
        return 0
    moves = tasks.kind == TaskKind.TRANSFER
    begin, end = fabric.rows.entries(
        tasks.first[moves] * fabric.network.hosts + tasks.second[moves]
    )
    return int((end - begin).sum())


def simulate_schedule(
    fabric: Fabric,
    tasks: TaskGraph,
    schedule: Schedule,
    limit: float = float("inf"),
    ready: Floats | None = None,
) -> Simulated:
    """Simulate an iteration under a schedule, in the fluid model.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        One iteration, in the schedule's microbatches.
    schedule : Schedule
    limit : float
        An iteration that is known to take longer than this many seconds takes infinitely long.
    ready : float64 array, shape (tasks,), optional
        When the tasks of the unfused iteration start, where that is known and the schedule only
        fuses.

    Returns
    -------
    Simulated

    Raises
    ------
    InputError
        As `simulate`; or if iterations should overlap and a forward pass has no backward pass.

    Notes
    -----
    The period is the longest of the intervals between the ends of iterations 2 to 5 of 6. The
    first iteration finds everything idle and the last has none behind it that competes, so
    their ends say little. No schedule can go on for long faster than its busiest device or link
    works, or than an operator's next forward pass comes round
    (`topoopt.bounds.turns`), so where so few iterations hide that (by working ahead) that time is
    the period.
    """
    folds = schedule.only_fuses and tasks.alike is None
    plain = schedule == Schedule.plain()
    known = folds and ready is not None
    tasks = tasks_over(fabric, tasks) if plain or (folds and not known) else whole_tasks(tasks)
    if not schedule.streaming:
        if folds:
            own = tasks_over(fabric, _fused(fabric, tasks, schedule, ready)[0])
        else:
            own, _ = ordered_tasks(fabric, tasks, schedule)
        near = _costly(fabric, own)
        run = run_fluid(fabric, own, NEAR if near else 0.0, limit=limit, foresee=True)
        if run.finish.max(initial=0.0) > limit:
            return _too_long(own, run.resolved)
        timeline = timeline_of(fabric, own, run)
        computing = compute_on_critical_path(own, timeline)
        return Simulated(timeline.makespan, computing, own, run.resolved, near, run.start)
    carried = carried_edges(tasks)
    tasks, place = _fused(fabric, tasks, schedule)
    busy = float(tasks.device_seconds().max(initial=0.0))
    orders = task_orders(fabric, tasks)
    alone = routed_least(fabric, tasks, orders)
    turn = longest_turn(tasks, alone, span_of(tasks, alone))
    least = max(busy, busiest_link(orders), turn)
    if least > limit:
        return _too_long(tasks, 0)
    many = unroll(tasks, ITERATIONS, (place[carried[0]], place[carried[1]]))
    priority = _priorities(fabric, tasks, schedule, many, ITERATIONS)
    run = run_fluid(fabric, replace(many, priority=priority))
    ends = run.finish.reshape(ITERATIONS, tasks.tasks).max(axis=1, initial=0.0)
    period = float(np.diff(ends)[1:-1].max())
    own = replace(tasks, priority=None if priority is None else priority[: tasks.tasks])
    return Simulated(max(period, least), busy, own, run.resolved)


def _costly(fabric: Fabric, tasks: TaskGraph) -> bool:
    """Whether an exact simulation takes minutes."""
    if tasks.alike is not None:
        return False
    moves = 0 if tabled(tasks.servers) else int(np.count_nonzero(tasks.kind == TaskKind.TRANSFER))
    return moves > MOST_TRANSFERS or crossings(fabric, tasks) > MOST_CROSSINGS


def _too_long(tasks: TaskGraph, resolved: int) -> Simulated:
    never = float("inf")
    return Simulated(never, never, tasks, resolved)


def ordered_tasks(fabric: Fabric, tasks: TaskGraph, schedule: Schedule) -> tuple[TaskGraph, Ints]:
    """Return one iteration with the buckets and priorities of a schedule.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Where tasks stand for others, made by `topoopt.fabric.rotated.rotated_tasks`.
    schedule : Schedule
        That keeps the barrier.

    Returns
    -------
    tasks : TaskGraph
        With buckets each stands for itself.
    place : int64 array
        Which of these tasks does the work of each of the given ones, or of what they stand for.

    Raises
    ------
    InputError
        If iterations should overlap, or as `simulate`.
    """
    if schedule.streaming:
        raise InputError(
            f"overlap is {schedule.overlap!r}, which needs several iterations; give 'barrier'"
        )
    fused, place = _fused(fabric, tasks, schedule)
    return replace(fused, priority=_priorities(fabric, fused, schedule, fused, 1)), place


def chained_tasks(fabric: Fabric, tasks: TaskGraph, schedule: Schedule) -> TaskGraph:
    """Return one iteration in which the passes of a device wait for each other in turn.

    Any simulator that respects dependencies then keeps the order of the schedule's simulation,
    though it serves devices first in first out. Optimizer steps wait for the pass before them, too,
    so that they overtake none; nothing need wait for them. Of a step, and passes that take less
    with all that follows them, either may be first where both are ready at one moment.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    schedule : Schedule
        That keeps the barrier and the links fair.

    Returns
    -------
    TaskGraph
        Without priorities.

    Raises
    ------
    InputError
        As `ordered_tasks`.
    """
    own, _ = ordered_tasks(fabric, tasks, schedule)
    run = run_fluid(fabric, own)
    compute = np.flatnonzero(own.kind == TaskKind.COMPUTE)
    # Of tasks that take no time at one moment, those that others wait for come first.
    depth = _remaining(own, np.ones(own.tasks))[1]
    place = np.lexsort(
        (compute, -depth[compute], run.finish[compute], run.start[compute], own.first[compute])
    )
    order = compute[place]
    passes = own.phase[order] != Phase.UPDATE
    # The last pass before each task, and none before the first.
    last = np.maximum.accumulate(np.where(passes, np.arange(order.size), -1))[:-1]
    waits, pass_before = order[1:][last >= 0], order[last[last >= 0]]
    follows = own.first[waits] == own.first[pass_before]
    before, after = edges_of(own)
    return with_edges(
        replace(own, priority=None),
        np.concatenate((before, pass_before[follows])),
        np.concatenate((after, waits[follows])),
    )


def _fused(
    fabric: Fabric, tasks: TaskGraph, schedule: Schedule, ready: Floats | None = None
) -> tuple[TaskGraph, Ints]:
    """Fuse AllReduces in the order in which the unfused iteration has their gradients ready."""
    if schedule.bucket_bytes is None:
        return tasks, np.arange(tasks.tasks, dtype=np.int64)
    ready = _start_times(fabric, tasks) if ready is None else ready
    return bucket_allreduces(whole_tasks(tasks), schedule.bucket_bytes, ready)


def _start_times(fabric: Fabric, tasks: TaskGraph) -> Floats:
    """Return when each task starts, of all that the tasks stand for (network tasks only then)."""
    start = run_fluid(fabric, tasks, NEAR if _costly(fabric, tasks) else 0.0).start
    return for_each(tasks, whole_tasks(tasks), start)


def busiest_link(orders: Orders) -> float:
    """Return the seconds that the busiest link needs for all that it carries, in whole packets."""
    sends = np.flatnonzero(~orders.compute)
    counts = orders.end[sends] - orders.begin[sends]
    at = spread(orders.begin[sends], counts)
    carried = np.repeat(orders.volume[sends], counts) * orders.weights[at]
    load = np.bincount(orders.links[at], carried, orders.capacity.size)
    return float((load / orders.capacity).max(initial=0.0))


def _priorities(
    fabric: Fabric, tasks: TaskGraph, schedule: Schedule, scheduled: TaskGraph, iterations: int
) -> Ints | None:
    """Return the priority of every scheduled task, or None if all are equal."""
    if schedule.compute == "ready" and schedule.network == "fair":
        return None
    compute = scheduled.kind == TaskKind.COMPUTE
    priority = np.zeros(scheduled.tasks, dtype=np.int64)
    rank = priority
    if "critical-path" in (schedule.compute, schedule.network):
        rank = _critical_ranks(
            scheduled, np.tile(alone_seconds(task_orders(fabric, tasks)), iterations)
        )
    if schedule.compute == "critical-path":
        priority[compute] = rank[compute]
    if schedule.network == "transfers-first":
        priority[scheduled.collective] = 1
    elif schedule.network == "critical-path":
        # The first iteration stands for all: its remaining paths lead into the next ones.
        sends = np.flatnonzero(tasks.kind != TaskKind.COMPUTE)
        level = np.zeros(tasks.tasks, dtype=np.int64)
        level[sends] = _levels(rank[sends])
        priority[~compute] = np.tile(level, iterations)[~compute]
    return priority


def _critical_ranks(tasks: TaskGraph, seconds: Floats) -> Ints:
    """Rank tasks by the longest path that begins with them, longest first."""
    path = _remaining(tasks, seconds)[1] + seconds
    unit = float(path.max(initial=0.0)) * _ALIKE
    steps = np.rint(path / unit).astype(np.int64) if unit > 0.0 else np.zeros_like(tasks.kind)
    _, rank = np.unique(-steps, return_inverse=True)
    return np.asarray(rank, dtype=np.int64)


def _remaining(tasks: TaskGraph, seconds: Floats) -> tuple[Floats, Floats]:
    """Return the longest paths that end before each task, and that begin after it."""
    return heads_and_tails(
        seconds,
        np.zeros_like(seconds),
        np.array(tasks.successor_offsets),
        np.array(tasks.successors),
        np.array(tasks.predecessors),
        np.zeros(0),
    )


def _levels(rank: Ints) -> Ints:
    """Divide ranks into at most `LEVELS` levels of about as many tasks; equal ranks together."""
    cuts = np.sort(rank)[np.arange(1, LEVELS) * rank.size // LEVELS] if rank.size else rank
    return np.searchsorted(cuts, rank, side="right").astype(np.int64)
