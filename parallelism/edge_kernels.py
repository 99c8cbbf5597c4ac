"""The compiled part of fusing tasks: what waits for each of those that are left."""

import numpy as np

from codesign_base.arrays import Ints
from codesign_base.jit import kernel


@kernel
def sort_rows(offsets: Ints, successors: Ints) -> None:
    """Sort the rows of the tasks that wait for each task, in place; most ascend already."""
    for t in range(offsets.size - 1):
        for i in range(offsets[t] + 1, offsets[t + 1]):
            if successors[i] <= successors[i - 1]:
                successors[offsets[t] : offsets[t + 1]].sort()
                break


@kernel
def merged_rows(
    offsets: Ints, successors: Ints, place: Ints, count: int
) -> tuple[Ints, Ints, Ints]:
    """Return the dependencies of a task graph some of whose tasks became one.

    Parameters
    ----------
    offsets, successors : int64 arrays
        Rows of the tasks that wait for each task, ascending.
    place : int64 array, shape (tasks,)
        Which of ``count`` tasks each has become; it ascends for most, so few rows are sorted.

    Returns
    -------
    offsets, successors, predecessors : int64 arrays
        Of these, what is listed twice once; what became one task does not wait for itself.
    """
    tasks = place.size
    begin = np.zeros(count + 1, np.int64)
    for t in range(tasks):
        begin[place[t] + 1] += offsets[t + 1] - offsets[t]
    for t in range(count):
        begin[t + 1] += begin[t]
    end = begin[:-1].copy()
    rows = np.empty(successors.size, np.int64)
    for t in range(tasks):
        own = place[t]
        for i in range(offsets[t], offsets[t + 1]):
            rows[end[own]] = place[successors[i]]
            end[own] += 1
    sort_rows(begin, rows)
    merged = np.zeros(count + 1, np.int64)
    predecessors = np.zeros(count, np.int64)
    at = int(np.int64(0))
    for t in range(count):
        first = at
        for i in range(begin[t], begin[t + 1]):
            if rows[i] != t and (at == first or rows[i] != rows[at - 1]):
                rows[at] = rows[i]
                predecessors[rows[i]] += 1
                at += 1
        merged[t + 1] = at
    return merged, rows[:at].copy(), predecessors
