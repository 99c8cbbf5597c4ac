"""Compiled part of the bound: how fast a set of jobs can be while the others keep a speed."""

import numpy as np

from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.jit import kernel
from routing.clos.chase_kernels import SLACK


@kernel
def level_of_jobs(
    raised: Flags,
    low: float,
    first: Ints,
    member: Ints,
    weight: Floats,
    job: Ints,
    room: Floats,
    thresholds: Floats,
) -> float:
    """Return a level that the raised jobs cannot all exceed while the others have ``low``.

    Parameters
    ----------
    raised : bool array, shape (jobs,)
    low : float
        Speed of the other jobs.
    first, member : int64 arrays
        Flows ``member[first[g] : first[g + 1]]`` use one link of group g each, heaviest first.
    weight, job : arrays, shape (flows,)
    room : float64 array, shape (groups, 1 + sizes)
        Capacity of each group; how many flows above each threshold its links hold.
    thresholds : float64 array, shape (sizes,)
    """
    level = 1.0
    for group in range(first.size - 1):
        above = 0.0
        below = 0.0
        for i in range(first[group], first[group + 1]):
            if raised[job[member[i]]]:
                above += weight[member[i]]
            else:
                below += weight[member[i]]
        if above <= 0.0:
            continue
        level = min(level, max(room[group, 0] - low * below, 0.0) / above)
        for size in range(thresholds.size):
            left = room[group, size + 1]
            for i in range(first[group], first[group + 1]):
                flow = member[i]
                if not raised[job[flow]] and weight[flow] * low > thresholds[size] * (1.0 + SLACK):
                    left -= 1.0
            for i in range(first[group], first[group + 1]):
                flow = member[i]
                if not raised[job[flow]]:
                    continue
                left -= 1.0
                if left < -0.5:  # this one and the heavier ones cannot all be above
                    level = min(level, thresholds[size] / weight[flow])
                    break
    return level


@kernel
def best_level(
    count: int,
    low: float,
    jobs: int,
    first: Ints,
    member: Ints,
    weight: Floats,
    job: Ints,
    room: Floats,
    thresholds: Floats,
) -> float:
    """Return the highest `level_of_jobs` over all sets of so many jobs."""
    best = 0.0
    raised = np.zeros(jobs, dtype=np.bool_)
    for mask in range(1 << jobs):
        ones = 0
        for number in range(jobs):
            raised[number] = (mask >> number) & 1 == 1
            ones += (mask >> number) & 1
        if ones == count:
            best = max(
                best, level_of_jobs(raised, low, first, member, weight, job, room, thresholds)
            )
    return best
