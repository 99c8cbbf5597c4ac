"""Compiled kernels of the longest paths through a task graph."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel


@kernel
def topological_order(offsets: Ints, successors: Ints, predecessors: Ints) -> Ints:
    """Return the tasks in an order that dependencies allow, without those behind a cycle."""
    waiting = predecessors.copy()
    order = np.empty(waiting.size, np.int64)
    known = 0
    for task in range(waiting.size):
        if waiting[task] == 0:
            order[known] = task
            known += 1
    place = 0
    while place < known:
        task = order[place]
        place += 1
        for entry in range(offsets[task], offsets[task + 1]):
            after = successors[entry]
            waiting[after] -= 1
            if waiting[after] == 0:
                order[known] = after
                known += 1
    return order[:known]


@kernel
def heads_and_tails(
    length: Floats,
    through: Floats,
    offsets: Ints,
    successors: Ints,
    predecessors: Ints,
    copies: Floats,
) -> tuple[Floats, Floats]:
    """Return when each task can begin at the earliest, and what must follow its end.

    Parameters
    ----------
    length : float64 array, shape (tasks,)
        Least seconds of each task.
    through : float64 array, shape (tasks,)
        Least seconds that all ports of a server need for a transfer; zero for other tasks. The
        transfers that one task waits for enter one server, those that wait for one task leave
        one server.
    offsets, successors, predecessors : int64 arrays
        As in `parallelism.taskgraph.TaskGraph`; tasks of a cycle keep what is known so far.
    copies : float64 array, shape (dependencies,)
        How many transfers each dependency on or of a transfer stands for; empty: one each.

    Returns
    -------
    head, tail : float64 arrays, shape (tasks,)
        Seconds.
    """
    tasks = length.size
    order = topological_order(offsets, successors, predecessors)
    head = np.zeros(tasks)
    first = np.full(tasks, np.inf)
    total = np.zeros(tasks)
    for task in order:
        if total[task] > 0.0:
            head[task] = max(head[task], first[task] + total[task])
        for entry in range(offsets[task], offsets[task + 1]):
            after = successors[entry]
            head[after] = max(head[after], head[task] + length[task])
            if through[task] > 0.0:
                first[after] = min(first[after], head[task])
                total[after] += through[task] * (copies[entry] if copies.size else 1.0)
    tail = np.zeros(tasks)
    for place in range(order.size - 1, -1, -1):
        task = order[place]
        most = 0.0
        sent = 0.0
        least = np.inf
        for entry in range(offsets[task], offsets[task + 1]):
            after = successors[entry]
            most = max(most, length[after] + tail[after])
            if through[after] > 0.0:
                sent += through[after] * (copies[entry] if copies.size else 1.0)
                least = min(least, tail[after])
        if sent > 0.0:
            most = max(most, sent + least)
        tail[task] = most
    return head, tail
