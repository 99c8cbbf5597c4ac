"""Upper bounds on the efficiency vector: how near to optimal an assignment provably is."""

import numpy as np

from codesign_base.arrays import Floats
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors

MOST_SUBSETS = 10  # jobs up to which every set of jobs is looked at


def bound_of_paths(paths: ClosPaths, flows: ClosFlows) -> Floats:
    """Return a lexicographic upper bound of the efficiency vector on any fabric.

    Parameters
    ----------
    paths : ClosPaths
        Candidates.
    flows : ClosFlows
        What is sent.

    Returns
    -------
    float64 array, shape (jobs,)
        Ascending, at most 1. The first coordinate bounds the speed of the slowest job.

    Notes
    -----
    Every flow takes one link of those that leave its source ToR and one of those that enter its
    target ToR (the groups of `ClosPaths`). The lexicographically smaller of two bounds is returned.

    *Fluid*: links of a group act as one, so that flows may split; the filling of jobs over the
    groups gives the best vector of that relaxation.

    *Sets of jobs*: in any assignment whose slowest job has speed b_1, the fastest k jobs all
    have at least the k-th highest speed v and the others at least b_1. Then the weights times
    these speeds fit into each group, and of the flows that ask for more than C / s (C the
    largest capacity; s = 1 .. 4) a link of capacity c holds at most ceil(c s / C) - 1. The
    largest v that passes for some set of k jobs bounds that coordinate. With more than 10 jobs
    only b_1 is bounded so and the others by the fluid bound.

    Examples
    --------
    >>> from routing.clos.flows import ClosFlows
    >>> from routing.clos.paths import ThreeLayer
    >>> flows = ClosFlows.of([0, 0], [1, 1], [0, 1])  # between two ToRs with one way
    >>> fabric = ThreeLayer(pods=2, tors=1, aggregations=1, cores=1)
    >>> bound_of_paths(fabric.paths(flows), flows).tolist()
    [0.5, 0.5]
    """
    from routing.clos.bound_kernels import best_level, level_of_jobs
    from routing.clos.chase_kernels import REFUSALS, room_of_groups

    jobs = flows.jobs.size
    fluid = np.sort(_fluid(paths, flows))
    moving = np.flatnonzero((paths.ways[paths.kind] > 0) & (paths.group[:, 0] >= 0))
    if moving.size == 0:
        return fluid
    thresholds = np.zeros(REFUSALS)
    room = room_of_groups(paths, thresholds)
    group = paths.group[moving].ravel()
    flow = np.repeat(moving, 2)
    order = np.lexsort((flow, -flows.weight[flow], group))
    first = np.searchsorted(group[order], np.arange(paths.groups + 1))
    fixed = (first, flow[order], flows.weight, flows.job_index, room, thresholds)
    bound = np.ones(jobs)
    bound[0] = level_of_jobs(np.ones(jobs, dtype=np.bool_), 0.0, *fixed)
    if jobs <= MOST_SUBSETS:
        for i in range(1, jobs):
            bound[i] = max(bound[i - 1], best_level(jobs - i, bound[0], jobs, *fixed))
    return fluid if compare_vectors(fluid, bound) < 0 else bound


def _fluid(paths: ClosPaths, flows: ClosFlows) -> Floats:
    """Return the jobs' speeds when the links of every group act as one."""
    from routing.clos.state import AssignmentState

    size = max(paths.groups, 1)
    capacity = np.zeros(size)
    known = paths.group_of_link >= 0
    np.add.at(capacity, paths.group_of_link[known], paths.capacity[known])
    free = (paths.ways[paths.kind] == 0) | (paths.group[:, 0] < 0)
    merged = ClosPaths(
        np.append(capacity, np.inf),
        np.where(free[:, None], size, paths.group).astype(np.int32),
        np.zeros(flows.count, dtype=np.int32),
        np.zeros((1, 2, 1), dtype=np.int32),
        np.ones(1, dtype=np.int32),
        paths.group,
        np.full(size + 1, -1, dtype=np.int32),
    )
    state = AssignmentState(merged, flows)
    state.set(np.zeros(flows.count, dtype=np.int32))
    return state.speed


def gap(vector: Floats, bound: Floats) -> float:
    """Return how far the slowest job's speed lies below its bound, 0 if the bound is met.

    Parameters
    ----------
    vector, bound : float64 arrays, shape (jobs,)
        Ascending.

    Returns
    -------
    float
        Relative: 0.02 says that no assignment makes the slowest job more than 2 % faster.
    """
    if compare_vectors(vector, bound) >= 0 or bound[0] <= vector[0]:
        return 0.0
    return float(bound[0] / vector[0] - 1.0) if vector[0] > 0 else float("inf")
