"""How often an operator can come round where iterations overlap.

A forward pass waits for the weights that the iteration before it has updated. So whatever else
overlaps, an operator's next forward pass begins no sooner than its last one, and then the longest
chain from there over its own backward pass, its AllReduce and its update: the period is at least
the longest such turn.
"""

import numpy as np

from codesign_base.arrays import Ints
from parallelism.taskgraph import Phase, TaskGraph, TaskKind
from topoopt.bounds.critical import Least, Span, span_of, steady_span

# Passes whose turns are measured, those first that may have the longest.
MOST_TURNS = 24


def turns(tasks: TaskGraph) -> tuple[Ints, Ints]:
    """Return forward passes, and what their own next ones wait for in the same iteration.

    Parameters
    ----------
    tasks : TaskGraph
        Of the builder, with any buckets and microbatches.

    Returns
    -------
    opening, closing : int64 arrays
        A forward pass, and the update of its part; where there is none the AllReduce of its
        gradients, and where there is none either its backward pass. Fewer than there are passes
        where the iteration is not of that form.
    """
    compute = tasks.kind == TaskKind.COMPUTE
    base = int(tasks.part.max(initial=0)) + 1
    key = tasks.operator * base + tasks.part
    backward = np.flatnonzero(compute & (tasks.phase == Phase.BACKWARD))
    last = {int(key[task]): int(task) for task in backward.tolist()}
    for part, task in list(last.items()):
        after = tasks.successors[tasks.successor_offsets[task] : tasks.successor_offsets[task + 1]]
        gradients = (tasks.kind[after] == TaskKind.ALLREDUCE) & (
            tasks.phase[after] == Phase.SYNCHRONISE
        )
        if gradients.any():
            last[part] = int(after[gradients.argmax()])
    update = np.flatnonzero(compute & (tasks.phase == Phase.UPDATE))
    last |= {int(key[task]): int(task) for task in update.tolist()}
    forward = np.flatnonzero(compute & (tasks.phase == Phase.FORWARD)).tolist()
    pairs = [(task, last[int(key[task])]) for task in forward if int(key[task]) in last]
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def longest_turn(tasks: TaskGraph, least: Least, span: Span) -> float:
    """Return seconds that a turn of some operator takes at least.

    Parameters
    ----------
    tasks : TaskGraph
    least : Least
        What each task takes at least.
    span : Span
        Of a single iteration.

    Returns
    -------
    float
        0 where tasks stand for others.
    """
    from parallelism.longest_path_kernels import topological_order
    from topoopt.bounds.critical_kernels import longest_from

    if tasks.alike is not None:
        return 0.0
    opening, closing = turns(tasks)
    # A turn is no longer than what can precede its end or follow its beginning.
    before = span.early[closing] - tasks.delay[closing] + least.length[closing]
    begin = span.early[opening] - tasks.delay[opening]
    follow = span.late[opening] - least.after[opening] + least.length[opening]
    most = np.minimum(before - begin, follow)
    offsets, successors = np.array(tasks.successor_offsets), np.array(tasks.successors)
    order = topological_order(offsets, successors, np.array(tasks.predecessors))
    best = 0.0
    for place in np.argsort(-most, kind="stable")[:MOST_TURNS].tolist():
        if most[place] <= best:
            break
        head = longest_from(
            int(opening[place]), order, least.length, least.through, offsets, successors
        )
        best = max(best, float(head[closing[place]] + least.length[closing[place]]))
    return best


def span_and_chain(tasks: TaskGraph, least: Least, *, steady: bool) -> tuple[Span, float]:
    """Return what bounds of resources count from, and the bound by dependencies alone.

    Parameters
    ----------
    tasks : TaskGraph
    least : Least
        What each task takes at least.
    steady : bool
        Of the period of iterations that overlap, rather than of a single one.

    Returns
    -------
    span : Span
        All uses of a resource count from zero where iterations overlap.
    chain : float
        Seconds of the longest path, or of the longest turn.
    """
    span = span_of(tasks, least)
    return (steady_span(tasks), longest_turn(tasks, least, span)) if steady else (span, span.chain)
