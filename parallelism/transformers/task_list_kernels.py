"""Compiled kernel of task graphs under construction: who waits for whom, in order."""

import numpy as np

from codesign_base.arrays import Ints
from codesign_base.jit import kernel


@kernel
def successor_lists(before: Ints, after: Ints, tasks: int) -> tuple[Ints, Ints]:
    """Sort dependencies by both of their tasks, by counting, and keep each once.

    Parameters
    ----------
    before, after : int64 arrays, shape (dependencies,)
        Tasks that are waited for, and those that wait; a negative ``before`` is none.
    tasks : int

    Returns
    -------
    offsets : int64 array, shape (tasks + 1,)
    successors : int64 array
        Of each task those that wait for it, ascending.
    """
    counts = np.zeros(tasks + 1, np.int64)
    own = np.zeros(tasks + 1, np.int64)
    for edge in range(before.size):
        if before[edge] >= 0:
            counts[after[edge] + 1] += 1
            own[before[edge] + 1] += 1
    for task in range(tasks):
        counts[task + 1] += counts[task]
        own[task + 1] += own[task]
    total = own[tasks]
    # By those that wait, then, keeping that order, by those that are waited for.
    source = np.empty(total, np.int64)
    target = np.empty(total, np.int64)
    for edge in range(before.size):
        if before[edge] >= 0:
            at = counts[after[edge]]
            counts[after[edge]] += 1
            source[at] = before[edge]
            target[at] = after[edge]
    place = own.copy()
    ordered = np.empty(total, np.int64)
    for edge in range(total):
        at = place[source[edge]]
        place[source[edge]] += 1
        ordered[at] = target[edge]
    offsets = np.zeros(tasks + 1, np.int64)
    kept = 0
    for task in range(tasks):
        for entry in range(own[task], own[task + 1]):
            if entry == own[task] or ordered[entry] != ordered[entry - 1]:
                ordered[kept] = ordered[entry]
                kept += 1
        offsets[task + 1] = kept
    return offsets, ordered[:kept].copy()
