"""Compiled kernels of the bounds of one task graph: how long a resource is busy."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel


@kernel
def busiest_span(
    order: Ints,
    resource: Ints,
    seconds: Floats,
    early: Floats,
    late: Floats,
    count: int,
    same: float,
) -> Floats:
    """Return the least end of each resource, over all sets of uses that begin late enough.

    Parameters
    ----------
    order : int64 array, shape (uses,)
        Uses by resource, then by descending ``early``.
    resource : int64 array, shape (uses,)
    seconds : float64 array, shape (uses,)
        How long each occupies its resource.
    early, late : float64 arrays, shape (uses,)
        When it can begin at the earliest, and what must follow its end.
    count : int
        Number of resources.
    same : float
        Seconds by which the beginnings of uses may differ that begin together. Of these those
        that most follows are taken first, and the earliest beginning counts for all.

    Returns
    -------
    float64 array, shape (count,)
    """
    result = np.zeros(count)
    places = np.empty(order.size, np.int64)
    total = 0.0
    least = np.inf
    before = int(np.int64(-1))
    place = 0
    while place < order.size:
        name = resource[order[place]]
        if name != before:
            before = name
            total = 0.0
            least = np.inf
        end = place + 1
        while (
            end < order.size
            and resource[order[end]] == name
            and early[order[end - 1]] - early[order[end]] <= same
        ):
            end += 1
        begin = early[order[end - 1]]
        for at in range(place, end):
            places[at] = at
        _sort_by_late(places, place, end, order, late)
        for at in range(place, end):
            use = order[places[at]]
            total += seconds[use]
            least = min(least, late[use])
            result[name] = max(result[name], begin + total + least)
        place = end
    return result


@inner_kernel
def _sort_by_late(places: Ints, low: int, high: int, order: Ints, late: Floats) -> None:
    """Sort these places by what follows, most first, and equal ones by place.

    Shell's method: numba compiles its own sorts for seconds.
    """
    gap = 1
    while gap < (high - low) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(low + gap, high):
            value = places[i]
            follows = late[order[value]]
            at = i
            while at >= low + gap:
                other = places[at - gap]
                before = late[order[other]]
                if before > follows or (before == follows and other < value):
                    break
                places[at] = other
                at -= gap
            places[at] = value
        gap //= 3


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
