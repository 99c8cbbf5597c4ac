"""Gradients that are reduced together: which of them, and their task graph."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from parallelism.iterations import chosen_tasks
from parallelism.rotation import Rotated, refined_classes, rotated_classes
from parallelism.taskgraph import TaskGraph, reduces_gradients


def bucket_allreduces(
    tasks: TaskGraph, bucket_bytes: float, ready: Floats
) -> tuple[TaskGraph, Ints]:
    """Fuse the gradient AllReduces of each group into buckets.

    In the order in which their gradients are ready, AllReduces of one group join a bucket until
    it holds at least so many bytes; then it is closed. A bucket waits for all its gradients, and
    all that waited for one of them waits for the bucket. Its bytes, and its delay inside
    servers, are the sums of its parts'. AllReduces of no bytes stay as they are.

    Parameters
    ----------
    tasks : TaskGraph
        AllReduces of one group may go in turn, but what comes between those of one bucket must
        wait for none of them.
    bucket_bytes : float
        Least bytes of a bucket; the last one of a group may hold less.
    ready : float64 array, shape (tasks,)
        When each AllReduce could begin, seconds; ties go by number.

    Returns
    -------
    fused : TaskGraph
        A bucket takes the place and the operator of its last part.
    place : int64 array, shape (tasks,)
        Which of its tasks does the work of each task of ``tasks``.

    Raises
    ------
    InputError
        If the size is not positive.

    References
    ----------
    S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"
    (VLDB 2020), sec. 3.2.3: gradient bucketing.
    """
    from parallelism.edge_kernels import merged_rows

    syncs = _gradients(tasks)
    filled = _filled(tasks, syncs, ready, bucket_bytes)
    into = np.arange(tasks.tasks, dtype=np.int64)
    into[syncs] = syncs[filled.into]
    size, delay = tasks.size.copy(), tasks.delay.copy()
    size[syncs], delay[syncs] = filled.size, filled.delay
    stays = into == np.arange(tasks.tasks)
    kept = np.flatnonzero(stays)
    place = (np.cumsum(stays) - 1)[into]
    offsets, successors, predecessors = merged_rows(
        tasks.successor_offsets, tasks.successors, place, kept.size
    )
    fused = replace(
        chosen_tasks(replace(tasks, size=size, delay=delay), kept),
        successor_offsets=offsets,
        successors=successors,
        predecessors=predecessors,
    )
    fused.rotations.find = partial(_rotated_fused, tasks, into)
    return fused, place


def _rotated_fused(tasks: TaskGraph, into: Ints, fused: TaskGraph, period: int) -> Rotated | None:
    """Return which tasks a rotation maps on each other where some AllReduces are fused.

    Those that a rotation maps on themselves, as the ones over all servers, it does so fused.
    """
    found = rotated_classes(tasks, period)
    if found is None:
        return None
    stays = into == np.arange(tasks.tasks)
    members, gone = np.bincount(found.of_task), found.of_task[~stays]
    if (members[gone] > 1).any() or (members[found.of_task[into[~stays]]] > 1).any():
        return refined_classes(fused, period)
    left = np.ones(members.size, dtype=np.bool_)
    left[gone] = False
    number, place = np.cumsum(left) - 1, np.cumsum(stays) - 1
    return Rotated(found.step, number[found.of_task[stays]], place[found.first[left]])


def different_buckets(tasks: TaskGraph, sizes: Sequence[float], ready: Floats) -> list[float]:
    """Return the sizes of buckets that `bucket_allreduces` fills differently.

    Parameters
    ----------
    tasks : TaskGraph
    sizes : sequence of float
        Bytes.
    ready : float64 array, shape (tasks,)
        As of `bucket_allreduces`.

    Returns
    -------
    list of float
        The first of those that hold the same gradients; none that leaves each by itself.

    Raises
    ------
    InputError
        If a size is not positive.
    """
    syncs = _gradients(tasks)
    known = [np.arange(syncs.size)]
    different = []
    for size in sizes:
        into = _filled(tasks, syncs, ready, size).into
        if not any(np.array_equal(into, other) for other in known):
            known.append(into)
            different.append(size)
    return different


def _gradients(tasks: TaskGraph) -> Ints:
    # Without bytes it is no gradient: the end of a round of an AllReduce that is written out.
    return np.flatnonzero(reduces_gradients(tasks) & (tasks.size > 0.0))


def _filled(tasks: TaskGraph, syncs: Ints, ready: Floats, bucket_bytes: float) -> "Filled":
    return fill_buckets(
        tasks.first[syncs], tasks.size[syncs], tasks.delay[syncs], ready[syncs], bucket_bytes
    )


def packet_bucket(tasks: TaskGraph, packet_bytes: float) -> float | None:
    """Return the bucket size from which on no member's part of an AllReduce is below a packet.

    An AllReduce of S bytes over n servers leaves each with a part of S / n to pass on, in whole
    packets: below n packets it takes as long as n of them.

    Parameters
    ----------
    tasks : TaskGraph
    packet_bytes : float

    Returns
    -------
    float or None
        Bytes: a packet for each member of the largest group whose gradients are reduced in
        smaller parts anywhere. None if there is none, or if no packets are sent (0 bytes).

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import replace
    >>> from parallelism.taskgraph import Phase, TaskGraph, TaskKind
    >>> reduced = (TaskKind.ALLREDUCE, 0, -1, 20e3, 0.0)
    >>> tasks = TaskGraph.from_lists(4, [reduced], [], ((0, 1, 2, 3),))
    >>> tasks = replace(tasks, phase=np.array([int(Phase.SYNCHRONISE)]))
    >>> packet_bucket(tasks, 4e3), packet_bucket(tasks, 8e3)
    (None, 32000.0)
    """
    syncs = np.flatnonzero(reduces_gradients(tasks))
    members = np.array([len(group) for group in tasks.groups], dtype=np.int64)
    return least_bucket(members[tasks.first[syncs]], tasks.size[syncs], packet_bytes)


def least_bucket(members: Ints, size: Floats, packet_bytes: float) -> float | None:
    """Return what `packet_bucket` does, of the AllReduces of gradients alone.

    Parameters
    ----------
    members : int64 array, shape (gradients,)
        Servers of the group of each.
    size : float64 array, shape (gradients,)
        Bytes.
    packet_bytes : float

    Returns
    -------
    float or None

    Examples
    --------
    >>> import numpy as np
    >>> least_bucket(np.array([4, 2]), np.array([20e3, 1e3]), 8e3)
    32000.0
    """
    least = members * packet_bytes
    short = (members > 1) & (size > 0.0) & (size < least)
    return float(least[short].max()) if short.any() else None


class Filled(NamedTuple):
    """Gradients in buckets, each array of shape (gradients,).

    ``into``: the last gradient of the bucket of each. ``size`` and ``delay``: of what is last,
    bytes and seconds of its bucket; of others their own.
    """

    into: Ints
    size: Floats
    delay: Floats


def fill_buckets(
    group: Ints, size: Floats, delay: Floats, ready: Floats, bucket_bytes: float
) -> Filled:
    """Fill the buckets of each group in the order in which gradients are ready.

    Parameters
    ----------
    group : int64 array, shape (gradients,)
    size, delay, ready : float64 arrays, shape (gradients,)
        Bytes; seconds inside servers; when each is ready, where ties go by number.
    bucket_bytes : float
        As of `bucket_allreduces`.

    Returns
    -------
    Filled

    Raises
    ------
    InputError
        If the size is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> sizes = np.array([3.0, 1.0, 2.0])
    >>> fill_buckets(np.zeros(3, np.int64), sizes, np.zeros(3), -np.arange(3.0), 3.0).into
    array([0, 1, 1])
    """
    if not bucket_bytes > 0.0:
        raise InputError(f"bucket size is {bucket_bytes} bytes; give a positive size")
    count = size.size
    into, total, inside = np.arange(count, dtype=np.int64), size.copy(), delay.copy()
    order = np.lexsort((np.arange(count), ready, group))
    ends = np.append(group[order][1:] != group[order][:-1], True)[:count].tolist()
    members: list[int] = []
    held = 0.0
    for at, each in enumerate(order.tolist()):
        members.append(each)
        held += float(size[each])
        if held >= bucket_bytes or ends[at]:
            into[members] = each
            total[each] = held
            inside[each] = float(delay[members].sum())
            members, held = [], 0.0
    return Filled(into, total, inside)
