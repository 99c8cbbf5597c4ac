"""Compiled kernels of the bounds of one task graph: how long a resource is busy."""

import numpy as np

from codesign_base.jit import kernel
from routing.fairness_kernels import Floats, Ints


@kernel
def busiest_span(
    resource: Ints, seconds: Floats, begin: Floats, late: Floats, count: int
) -> Floats:
    """Return the least end of each resource, over all sets of uses that begin late enough.

    Parameters
    ----------
    resource : int64 array, shape (uses,)
        Uses by resource, then by descending ``begin``.
    seconds : float64 array, shape (uses,)
        How long each occupies its resource.
    begin, late : float64 arrays, shape (uses,)
        When it can begin at the earliest, and what must follow its end.
    count : int
        Number of resources.

    Returns
    -------
    float64 array, shape (count,)
    """
    result = np.zeros(count)
    total = 0.0
    least = np.inf
    for use in range(resource.size):
        name = resource[use]
        if use == 0 or name != resource[use - 1]:
            total = 0.0
            least = np.inf
        total += seconds[use]
        least = min(least, late[use])
        result[name] = max(result[name], begin[use] + total + least)
    return result


@kernel
def longest_from(
    source: int,
    order: Ints,
    length: Floats,
    through: Floats,
    offsets: Ints,
    successors: Ints,
) -> Floats:
    """Return how long after a task begins those that follow it can begin at the earliest.

    Parameters
    ----------
    source : int
        The task.
    order : int64 array
        Tasks in an order that dependencies allow.
    length, through, offsets, successors
        As in `parallelism.longest_path_kernels.heads_and_tails`.

    Returns
    -------
    float64 array, shape (tasks,)
        Seconds; minus infinity for tasks that do not follow it.
    """
    head = np.full(length.size, -np.inf)
    first = np.full(length.size, np.inf)
    total = np.zeros(length.size)
    head[source] = 0.0
    for task in order:
        if total[task] > 0.0:
            head[task] = max(head[task], first[task] + total[task])
        if head[task] < 0.0:
            continue
        for entry in range(offsets[task], offsets[task + 1]):
            after = successors[entry]
            head[after] = max(head[after], head[task] + length[task])
            if through[task] > 0.0:
                first[after] = min(first[after], head[task])
                total[after] += through[task]
    return head
