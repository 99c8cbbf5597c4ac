"""Bounds of one task graph from what its tasks take at least, alone and together."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats, Ints
from parallelism.alike import READS, SENDS, Alike
from parallelism.taskgraph import COMPUTE, TRANSFER, TaskGraph, edges_of
from topoopt.bounds.collectives import GroupRates, least_collective_seconds

# Times that differ by less of the latest are the same but for rounding.
SAME_TIME = 1e-12


@dataclass(frozen=True, eq=False)
class Least:
    """What the tasks of a task graph take at least on some set of fabrics.

    Parameters
    ----------
    length : float64 array, shape (tasks,)
        Seconds of each task from ready to finished, alone.
    through : float64 array, shape (tasks,)
        Seconds that a transfer occupies all ports of its source, or of its target if those are
        faster; zero for other tasks.
    after : float64 array, shape (tasks,)
        Part of ``length`` after the last byte is on its way (latency).
    """

    length: Floats
    through: Floats
    after: Floats


@dataclass(frozen=True, eq=False)
class Span:
    """When tasks can use a resource at the earliest, and what must follow at least.

    Parameters
    ----------
    early, late : float64 arrays, shape (tasks,)
        Seconds.
    chain : float
        The longest chain of dependencies.
    """

    early: Floats
    late: Floats
    chain: float


def least_of(
    tasks: TaskGraph, out: Floats, into: Floats, after: Floats, rates: GroupRates, lag: float
) -> Least:
    """Return what tasks take at least, each alone on some set of fabrics.

    Parameters
    ----------
    tasks : TaskGraph
    out, into : float64 arrays, shape (tasks,)
        Bytes/s of all ports of each transfer's source, and of its target.
    after : float64 array, shape (tasks,)
        Seconds that each transfer takes beyond its bytes.
    rates : GroupRates
        Of the members of each group.
    lag : float
        Seconds that any message takes beyond its bytes.

    Returns
    -------
    Least
    """
    moves = tasks.kind == TRANSFER
    after = np.where(moves, after, 0.0)
    # Its bytes pass all ports of both servers; beside others they hold each no longer than that
    # server's own ports take for them.
    length = np.where(moves, tasks.size / np.minimum(out, into) + after, tasks.size)
    through = np.where(moves, tasks.size / np.maximum(out, into), 0.0)
    reduces = np.flatnonzero(tasks.collective)
    length[reduces] = tasks.delay[reduces] + least_collective_seconds(tasks, reduces, rates, lag)
    return Least(length, through if transfer_ports(tasks) else np.zeros_like(through), after)


def span_of(tasks: TaskGraph, least: Least) -> Span:
    """Return heads and tails of every task.

    Parameters
    ----------
    tasks : TaskGraph
    least : Least

    Returns
    -------
    Span
    """
    from parallelism.longest_path_kernels import heads_and_tails

    head, tail = heads_and_tails(
        least.length,
        least.through,
        np.array(tasks.successor_offsets),
        np.array(tasks.successors),
        np.array(tasks.predecessors),
        np.zeros(0) if tasks.alike is None else _copies(tasks, tasks.alike),
    )
    chain = float((head + least.length + tail).max(initial=0.0))
    return Span(head + tasks.delay, tail + least.after, chain)


def steady_span(tasks: TaskGraph) -> Span:
    """Return the span that says nothing: where iterations overlap, any task may be under way."""
    return Span(np.zeros(tasks.tasks), np.zeros(tasks.tasks), 0.0)


def least_end(task: Ints, resource: Ints, seconds: Floats, span: Span, count: int) -> float:
    """Return the least time at which the last of several resources has done its work.

    A resource that serves one use at a time, or several at shares of its speed, cannot end
    before the earliest start of any set of uses, plus their seconds, plus the least that
    follows any of them. Sets of all uses that begin late, and of all that much follows, are
    tried (the preemptive one-machine bound over those sets). Of uses that begin together, up to
    rounding, those that most follows are taken first, so that it makes no difference in which
    order uses are given.

    Parameters
    ----------
    task, resource : int64 arrays, shape (uses,)
        Which task uses which resource.
    seconds : float64 array, shape (uses,)
        For how long, at full speed.
    span : Span
    count : int
        Number of resources.

    Returns
    -------
    float
    """
    from topoopt.bounds.critical_kernels import busiest_span

    if task.size == 0:
        return 0.0
    best = 0.0
    early, late = span.early[task], span.late[task]
    for begin, follow in ((early, late), (late, early)):
        order = np.lexsort((-begin, resource))
        same = SAME_TIME * float(begin.max())
        ends = busiest_span(order, resource, seconds, begin, follow, count, same)
        best = max(best, float(ends.max()))
    return best


def device_end(tasks: TaskGraph, span: Span) -> float:
    """Return the least time at which the last device has done its work."""
    own = np.flatnonzero(tasks.kind == COMPUTE)
    return least_end(own, tasks.first[own], tasks.size[own], span, tasks.devices)


def _copies(tasks: TaskGraph, alike: Alike) -> Floats:
    """Return how many transfers each dependency between a transfer and a rank stands for."""
    pattern, classes = alike.pattern, alike.classes
    kinds = classes.first_place.size
    kept = classes.first_place[classes.place[pattern.place]] == pattern.place
    kept &= pattern.group[pattern.element] < 0
    met = classes.element[pattern.element[kept]] * kinds + classes.place[pattern.place[kept]]
    # A transfer of tokens meets those who send them in one role, those who read in another.
    out, into = (met[pattern.role[kept] != role] for role in (READS, SENDS))
    before, after = edges_of(tasks)
    found = np.ones(after.size)
    compute = tasks.kind == COMPUTE
    moves = tasks.kind == TRANSFER
    for move, rank, pairs in ((after, before, out), (before, after, into)):
        edges = np.flatnonzero(moves[move] & compute[rank])
        keys = alike.of_task[move[edges]] * kinds + tasks.first[rank[edges]] % kinds
        known, counts = np.unique(pairs, return_counts=True)
        at = np.minimum(np.searchsorted(known, keys), max(known.size - 1, 0))
        if known.size:
            found[edges] = np.where(known[at] == keys, counts[at], 1)
    return found


def transfer_ports(tasks: TaskGraph) -> bool:
    """Whether all that one task waits for enters its server, and all that waits for it leaves it.

    Task graphs of the builder are so; others may not be.
    """
    before, after = edges_of(tasks)
    compute = tasks.kind == COMPUTE
    moves = tasks.kind == TRANSFER
    place = np.where(compute, tasks.server_of_device[np.where(compute, tasks.first, 0)], -1)
    into, out = moves[before], moves[after]
    if tasks.alike is not None:
        # Of ranks within servers, what computes sends from its server, and receives there.
        return bool(np.all(compute[after[into]]) and np.all(compute[before[out]]))
    return bool(
        np.all(place[after[into]] == tasks.second[before[into]])
        and np.all(place[before[out]] == tasks.first[after[out]])
    )
