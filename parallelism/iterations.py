"""Task graphs of other schedules: microbatches, iterations in a row."""

from dataclasses import replace

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.rows import spread
from parallelism.taskgraph import (
    Phase,
    TaskGraph,
    TaskKind,
    dependency_lists,
    edges_of,
    reduces_gradients,
)


def accumulate(tasks: TaskGraph, microbatches: int) -> TaskGraph:
    """Return an iteration of several microbatches whose gradients are summed.

    Parameters
    ----------
    tasks : TaskGraph
        The iteration of one microbatch, that is of a global batch so many times smaller.
    microbatches : int

    Returns
    -------
    TaskGraph
        Forward and backward passes and their transfers once a microbatch, with nothing but their
        devices and links in common; gradient AllReduces and updates once, after the backward
        passes of all microbatches.

    Raises
    ------
    InputError
        If the number of microbatches is not positive.
    """
    if microbatches < 1:
        raise InputError(f"microbatches is {microbatches}; give at least 1")
    if microbatches == 1:
        return tasks
    updates = (tasks.kind == TaskKind.COMPUTE) & (tasks.phase == Phase.UPDATE)
    once = reduces_gradients(tasks) | updates
    each, last = np.flatnonzero(~once), np.flatnonzero(once)
    place = np.empty((microbatches, tasks.tasks), dtype=np.int64)
    place[:, each] = np.arange(microbatches * each.size).reshape(microbatches, each.size)
    place[:, last] = microbatches * each.size + np.arange(last.size)
    before, after = edges_of(tasks)
    many = chosen_tasks(tasks, np.concatenate((np.tile(each, microbatches), last)))
    return with_edges(many, place[:, before].ravel(), place[:, after].ravel())


def carried_edges(tasks: TaskGraph) -> tuple[Ints, Ints]:
    """Return what of the next iteration waits for what of this one.

    The forward pass of a part needs its weights: it waits for their update, where there is none
    for the AllReduce of its shard, and where there is none either for its own backward passes
    (of all microbatches). So no activations of two iterations are held at a time.

    Parameters
    ----------
    tasks : TaskGraph
        Of the builder: forward and backward passes of every part.

    Returns
    -------
    before, after : int64 arrays
        Task of this iteration; task of the next one.

    Raises
    ------
    InputError
        If a forward pass has no backward pass.
    """
    compute = tasks.kind == TaskKind.COMPUTE
    base = int(tasks.part.max(initial=0)) + 1
    key = tasks.operator * base + tasks.part
    forward = np.flatnonzero(compute & (tasks.phase == Phase.FORWARD))
    backward = np.flatnonzero(compute & (tasks.phase == Phase.BACKWARD))
    update = np.flatnonzero(compute & (tasks.phase == Phase.UPDATE))
    syncs = np.flatnonzero(reduces_gradients(tasks))
    shards = np.bincount(tasks.operator[syncs], minlength=int(tasks.operator.max(initial=0)) + 1)
    own = shards[tasks.operator[forward]]
    shard = tasks.operator[forward] * base + tasks.part[forward] % np.maximum(own, 1)
    closing, opening = [], []
    open_ = np.ones(forward.size, dtype=np.bool_)
    for candidates, wanted in (
        (update, key[forward]),
        (syncs, np.where(own > 0, shard, -1)),
        (backward, key[forward]),
    ):
        ordered = candidates[np.argsort(key[candidates], kind="stable")]
        low = np.searchsorted(key[ordered], wanted)
        count = np.where(open_, np.searchsorted(key[ordered], wanted, side="right") - low, 0)
        closing.append(ordered[spread(low, count)])
        opening.append(np.repeat(forward, count))
        open_ &= count == 0
    if open_.any():
        lost = int(forward[open_.argmax()])
        raise InputError(
            f"task graph: forward pass {lost} of operator {tasks.operator[lost]} has no "
            "backward pass, so that no next iteration can follow it; give a training iteration"
        )
    return np.concatenate(closing), np.concatenate(opening)


def unroll(
    tasks: TaskGraph, iterations: int, carried: tuple[Ints, Ints] | None = None
) -> TaskGraph:
    """Return several iterations in a row as one task graph.

    Parameters
    ----------
    tasks : TaskGraph
        One iteration.
    iterations : int
    carried : (int64 array, int64 array), optional
        Dependencies of each iteration on the one before, as from `carried_edges` (the default).

    Returns
    -------
    TaskGraph
        Task t of iteration i is task ``i * tasks.tasks + t``. Nothing but the carried
        dependencies holds an iteration back: there is no barrier.

    Raises
    ------
    InputError
        If the number of iterations is not positive, or as `carried_edges`.
    """
    if iterations < 1:
        raise InputError(f"iterations is {iterations}; give at least 1")
    closing, opening = carried_edges(tasks) if carried is None else carried
    before, after = edges_of(tasks)
    count = tasks.tasks
    shifts = np.arange(iterations, dtype=np.int64)[:, None] * count
    many = chosen_tasks(tasks, np.tile(np.arange(count, dtype=np.int64), iterations))
    return with_edges(
        many,
        np.concatenate(((before + shifts).ravel(), (closing + shifts[:-1]).ravel())),
        np.concatenate(((after + shifts).ravel(), (opening + shifts[1:]).ravel())),
    )


def chosen_tasks(tasks: TaskGraph, which: Ints) -> TaskGraph:
    """Return some tasks, in this order, with the dependencies that they had (to be replaced)."""
    return replace(
        tasks,
        kind=tasks.kind[which],
        first=tasks.first[which],
        second=tasks.second[which],
        size=tasks.size[which],
        delay=tasks.delay[which],
        operator=tasks.operator[which],
        phase=tasks.phase[which],
        part=tasks.part[which],
        ids=None,
        priority=None if tasks.priority is None else tasks.priority[which],
    )


def with_edges(tasks: TaskGraph, before: Ints, after: Ints) -> TaskGraph:
    """Return the tasks with these dependencies; what is listed twice counts once.

    Parameters
    ----------
    tasks : TaskGraph
    before, after : int64 arrays, shape (dependencies,)
        Pairs of tasks.

    Returns
    -------
    TaskGraph
    """
    offsets, successors, predecessors = dependency_lists(before, after, tasks.tasks, once=True)
    return replace(
        tasks, successor_offsets=offsets, successors=successors, predecessors=predecessors
    )
