"""The last stage of a search: a schedule for its best pairs."""

from dataclasses import dataclass, replace
from typing import Generic

from codesign_base.arrays import Floats
from parallelism.buckets import different_buckets, packet_bucket
from parallelism.family import Family, P
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.scheduling import ITERATIONS, Simulated, simulate_schedule
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.represented import whole_size, whole_tasks
from topoopt.fabric.rotated import for_each
from topoopt.problem.schedule import COMPUTE_ORDERS, NETWORK_ORDERS, OVERLAPS, Schedule

MICROBATCHES = (1, 2, 4, 8)
BUCKETS_BYTES = (1e6, 5e6, 25e6, 100e6)
TRIED_PAIRS = 3
"""Best pairs of a search for which schedules are tried."""
MOST_WORK = 1.5e8
"""Work that simulations may take in all, in the units of `topoopt.evaluate.scoring.Scorer`; then
the stage ends with what it has."""

MOST_TASKS = 1_000_000
"""Tasks that are made where one of each kind was enough for the plain schedule: more fill memory,
and such a schedule is not tried."""

# What unrolling, ranking and simulating a task costs beside the streams that are re-solved.
_TASK_WORK = 10.0
# A schedule is worth its trouble if it saves this share of the iteration.
_WORTH = 1e-4
_PASSES = 2
_STEPS = 4


@dataclass(frozen=True, eq=False)
class Scheduled(Generic[P]):
    """A pair with the schedule that suits it best.

    Parameters
    ----------
    pair : Pair
    schedule : Schedule
    simulated : Simulated
        The pair under that schedule.
    plain_time : float
        The pair's time under the plain schedule, seconds.
    tried : int
        Schedules simulated, for all pairs together.
    """

    pair: Pair[P]
    schedule: Schedule
    simulated: Simulated
    plain_time: float
    tried: int


def schedule_pairs(
    family: Family[P],
    pairs: list[Pair[P]],
    scheduling: str,
    progress: ProgressCallback | None = None,
) -> Scheduled[P]:
    """Choose a schedule for each of the best pairs, and the pair that is then fastest.

    From the plain schedule on, one choice after another is set to what is fastest with all
    others kept (microbatches with the order of compute; order of messages; buckets; overlap),
    until nothing improves or `MOST_WORK` is used up.

    Parameters
    ----------
    family : Family
    pairs : list of Pair
        At least one, fastest first; ties go to the earlier.
    scheduling : {"barrier", "auto"}
        barrier: keep the barrier between iterations. auto: let them overlap.
    progress : callable, optional

    Returns
    -------
    Scheduled
    """
    found: list[Scheduled[P]] = []
    tried = 0
    left = MOST_WORK
    kept = pairs[:TRIED_PAIRS]
    for pair in kept:
        plain, best, schedule, count, used = _descend(family, pair, scheduling == "auto", left)
        tried += count
        left -= used
        found.append(Scheduled(pair, schedule, best, plain.time, tried))
        if progress:
            least = min(each.simulated.time for each in found)
            progress(Progress("schedules", len(found), len(kept), least))
    return replace(min(found, key=lambda each: each.simulated.time), tried=tried)


def plainly(family: Family[P], pair: Pair[P]) -> Scheduled[P]:
    """Return a pair under the plain schedule.

    Parameters
    ----------
    family : Family
    pair : Pair

    Returns
    -------
    Scheduled
    """
    plain, simulated = Schedule.plain(), pair.simulated
    if simulated is None:
        simulated = simulate_schedule(pair.fabric, family.represented(pair.strategy), plain)
    return Scheduled(pair, plain, simulated, simulated.time, 1)


def ordered(family: Family[P], pair: Pair[P], compute_order: str) -> Scheduled[P]:
    """Return a pair whose devices work in an order, all else plain.

    Parameters
    ----------
    family : Family
    pair : Pair
    compute_order : {"ready", "critical-path"}

    Returns
    -------
    Scheduled
    """
    plain = plainly(family, pair)
    schedule = Schedule(compute=compute_order)
    simulated = simulate_schedule(pair.fabric, family.represented(pair.strategy), schedule)
    return replace(plain, schedule=schedule, simulated=simulated)


def fused(family: Family[P], pair: Pair[P]) -> Scheduled[P]:
    """Return a pair with its gradients in buckets of about a packet for each member, or plain.

    Parameters
    ----------
    family : Family
        Whose task graphs have every gradient by itself.
    pair : Pair

    Returns
    -------
    Scheduled
        Plain where no gradient is less than that, or buckets are no faster.
    """
    plain = plainly(family, pair)
    if not fused_schedules(pair.fabric, plain.simulated.tasks):
        return plain
    tasks, best = family.represented(pair.strategy), plain
    timed = plain.simulated
    assert timed.start is not None
    whole = whole_tasks(timed.tasks)
    ready = for_each(timed.tasks, whole, timed.start)
    schedules = fused_schedules(pair.fabric, whole, ready)
    for schedule in schedules:
        limit = best.simulated.time * (1.0 - _WORTH)
        simulated = simulate_schedule(pair.fabric, tasks, schedule, limit, ready)
        if simulated.time < limit:
            best = replace(plain, schedule=schedule, simulated=simulated)
    return replace(best, tried=1 + len(schedules))


def fused_schedules(
    fabric: Fabric, tasks: TaskGraph, ready: Floats | None = None
) -> tuple[Schedule, ...]:
    """Return the schedules with buckets of about a packet for each member, where they matter.

    Parameters
    ----------
    fabric : Fabric
        Says what a packet is.
    tasks : TaskGraph
        One plain iteration.
    ready : float64 array, shape (tasks,), optional
        When its tasks start: then only sizes that fill different buckets are returned.

    Returns
    -------
    tuple of Schedule
        With the size of `parallelism.buckets.packet_bucket`, half and a quarter of it: smaller
        ones send more packets, but no compute hides the last, and it ends sooner. None where no
        gradient is below that size.
    """
    bucket = packet_bucket(tasks, fabric.transport.segment_bytes)
    if bucket is None:
        return ()
    sizes = [share * bucket for share in (1.0, 0.5, 0.25)]
    if ready is not None:
        sizes = different_buckets(tasks, sizes, ready)
    return tuple(Schedule(bucket_bytes=size) for size in sizes)


def _descend(
    family: Family[P], pair: Pair[P], overlapping: bool, most: float
) -> tuple[Simulated, Simulated, Schedule, int, float]:
    """Improve a pair's schedule step by step.

    Returns
    -------
    plain, best : Simulated
        The pair under the plain schedule, and under the best.
    schedule : Schedule
        The best.
    tried : int
        Schedules simulated.
    used : float
        Work that this took; more than ``most`` by one simulation at most.
    """
    graphs: dict[int, TaskGraph | None] = {}
    runs: dict[Schedule, Simulated] = {}
    schedule = Schedule.plain()
    plain = simulate_schedule(pair.fabric, family.represented(pair.strategy), schedule)
    runs[schedule] = best = plain
    used = _TASK_WORK * plain.tasks.tasks + plain.resolved
    # What a task costs under the plain schedule it will cost about under others.
    each = used / max(plain.tasks.tasks, 1)

    def simulated_under(schedule: Schedule, limit: float) -> Simulated | None:
        nonlocal used
        if schedule not in runs:
            count = schedule.microbatches
            if count not in graphs:
                graphs[count] = family.microbatched(pair.strategy, count)
            tasks = graphs[count]
            if tasks is None:
                return None
            size = (ITERATIONS if schedule.streaming else 1) * whole_size(tasks)
            if used + size * each > most or (tasks.alike is not None and size > MOST_TASKS):
                return None
            runs[schedule] = simulate_schedule(pair.fabric, tasks, schedule, limit)
            used += _TASK_WORK * size + runs[schedule].resolved
        return runs[schedule]

    sums = float(plain.tasks.size[plain.tasks.kind == TaskKind.ALLREDUCE].sum())
    for _ in range(_PASSES):
        before = schedule
        for step in range(_STEPS):
            for trial in _variants(schedule, overlapping, sums, step):
                limit = best.time * (1.0 - _WORTH)
                simulated = simulated_under(trial, limit)
                if simulated is not None and simulated.time < limit:
                    schedule, best = trial, simulated
        if schedule == before:
            break
    return plain, best, schedule, len(runs), used


def _variants(schedule: Schedule, overlapping: bool, reduced: float, step: int) -> list[Schedule]:
    """Return what one of the `_STEPS` choices may be set to, all others kept."""
    if step == 0:
        return [
            replace(schedule, microbatches=count, compute=order)
            for count in MICROBATCHES
            for order in COMPUTE_ORDERS
        ]
    if step == 1:
        return [replace(schedule, network=order) for order in NETWORK_ORDERS]
    if step == 2:
        sizes = [size for size in BUCKETS_BYTES if size < reduced]
        return [replace(schedule, bucket_bytes=size) for size in (None, *sizes)]
    return [replace(schedule, overlap=way) for way in (OVERLAPS if overlapping else ())]
