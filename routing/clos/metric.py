"""Two-layered max-min fairness: how fast every job is under an assignment.

This is our definition; the formula of the paper that names the metric is not public to us.

*Layer one, across jobs.* Let w_f be the bytes of flow f over those of its job's largest flow and
n_jl the sum of w_f over the flows of job j on link l, whose capacity c_l is in units of a NIC's
rate. All u_j rise together from 0 to at most 1 subject to sum_j n_jl u_j <= c_l; when a link
saturates, the jobs that use it stop. u_j is the speed of job j's AllReduce relative to an empty
network: if jobs control their rates so that flow f sends w_f u_j NIC rates, the flows of a step
end together after 1 / u_j of the time that they need alone. The *efficiency vector* is the
ascending sorted (u_j); vectors are compared lexicographically.

*Layer two, within a job.* What layer one leaves free is shared max-min among the flows: flow f
rises to the speed u_j + d_f, with d_f the max-min rates (use w_f d_f of each link) on the
capacities left, and no flow beyond its NIC (w_f (u_j + d_f) <= 1). The layer-two vector of a
job is the ascending sorted speeds of its flows; it begins with u_j unless u_j is 1.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codesign_base import InputError
from routing.clos.assignment import Assignment, check_assignment
from routing.clos.fabric import Clos, FloatArray, IntArray
from routing.clos.flows import Flows
from routing.clos.paths import Paths, SmallInts, clos_paths
from routing.fairness import max_min_rates

TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Speeds of all jobs under an assignment.

    Parameters
    ----------
    jobs : int64 array, shape (jobs,)
        Their numbers, ascending.
    speed : float64 array, shape (jobs,)
        u_j in 0 to 1 (1: as in an empty network).
    max_load : float
        Largest weighted load of a link over its capacity; the least speed is
        ``1 / max(1, max_load)``.
    """

    jobs: IntArray
    speed: FloatArray
    max_load: float

    @cached_property
    def vector(self) -> FloatArray:
        """The efficiency vector: speeds, ascending."""
        return np.sort(self.speed)

    @property
    def slowest_job(self) -> int:
        """Number of the slowest job (the lowest of several); -1 without jobs."""
        return int(self.jobs[np.argmin(self.speed)]) if self.jobs.size else -1

    @property
    def mean_slowdown(self) -> float:
        """Mean of 1 / speed over jobs; infinity if a job stands still."""
        if not self.jobs.size:
            return 1.0
        return float(np.mean(1.0 / self.speed)) if self.vector[0] > 0 else float("inf")

    @property
    def worst_slowdown(self) -> float:
        """1 / speed of the slowest job; infinity if it stands still."""
        if not self.jobs.size:
            return 1.0
        return float(1.0 / self.vector[0]) if self.vector[0] > 0 else float("inf")

    @property
    def jain(self) -> float:
        """Jain's index of the speeds: 1 if all are equal, 1 / jobs if one job has all."""
        squares = float(np.sum(self.speed**2)) * self.jobs.size
        return float(np.sum(self.speed)) ** 2 / squares if squares > 0 else 1.0


def evaluate(clos: Clos, flows: Flows, assignment: Assignment) -> Efficiency:
    """Return the jobs' speeds under an assignment on a two-layer fabric.

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : Flows
        What is sent.
    assignment : Assignment
        A spine for every flow that leaves its ToR. A flow over a failed link has speed 0.

    Returns
    -------
    Efficiency

    Raises
    ------
    InputError
        If a flow lacks a spine, has one that does not exist or needs none.
    """
    check_assignment(clos, flows, assignment.spine)
    return evaluate_paths(clos_paths(clos, flows), flows, assignment.spine.astype(np.int32))


def evaluate_paths(paths: Paths, flows: Flows, way: SmallInts) -> Efficiency:
    """Return the jobs' speeds when flow f takes path ``way[f]`` (-1: needs no link).

    Parameters
    ----------
    paths : Paths
        Candidates on any fabric.
    flows : Flows
        What is sent.
    way : int32 array, shape (flows,)
        Path of each flow.

    Returns
    -------
    Efficiency
    """
    from routing.clos.state import SearchState

    state = SearchState(paths, flows.weight, flows.job_index, flows.jobs.size)
    state.set(np.asarray(way, dtype=np.int32))
    return efficiency_of(state.speed.copy(), state.load, paths, flows)


def efficiency_of(speed: FloatArray, load: FloatArray, paths: Paths, flows: Flows) -> Efficiency:
    """Return the record of given speeds and loads."""
    room, load = paths.capacity[:-1], load[:-1]
    full = np.where(load > 0, np.inf, 0.0)
    ratio = np.divide(load, room, out=full, where=room > 0)
    return Efficiency(flows.jobs, speed, float(ratio.max(initial=0.0)))


def flow_speeds(clos: Clos, flows: Flows, assignment: Assignment) -> FloatArray:
    """Return layer two: every flow's speed, relative to what the job's largest flow has alone.

    Parameters
    ----------
    clos, flows, assignment
        As in `evaluate`.

    Returns
    -------
    float64 array, shape (flows,)
        At least the speed of the flow's job; flow f sends ``weight[f] * speed[f]`` NIC rates.
    """
    speed = evaluate(clos, flows, assignment).speed[flows.job_index]
    paths = clos_paths(clos, flows)
    at = paths.links(assignment.spine)
    use = flows.weight * speed
    none = paths.capacity.size - 1
    left = paths.capacity[:-1].copy()
    for slot in range(paths.slots):
        np.subtract.at(left, at[flows.crosses, slot], use[flows.crosses])
    # Rounding must not leave a saturated link a little room, nor less than none.
    left = np.where(left <= TOLERANCE * paths.capacity[:-1], 0.0, left)
    nic = np.arange(flows.count) + none
    rows = np.concatenate((at, nic[:, None]), axis=1)
    used = rows != none
    used[:, -1] = True
    offsets = np.concatenate(([0], np.cumsum(used.sum(axis=1))))
    weights = np.broadcast_to(flows.weight[:, None], rows.shape)[used]
    room = np.concatenate((left, np.maximum(1.0 - use, 0.0)))
    extra: FloatArray = speed + max_min_rates(offsets, rows[used], weights, room)
    return extra


def layer_two(clos: Clos, flows: Flows, assignment: Assignment) -> tuple[FloatArray, ...]:
    """Return, for every job in the order of `Flows.jobs`, its flows' speeds ascending."""
    speeds = flow_speeds(clos, flows, assignment)
    return tuple(np.sort(speeds[flows.job_index == j]) for j in range(flows.jobs.size))


def compare(left: FloatArray, right: FloatArray, tolerance: float = TOLERANCE) -> int:
    """Compare two efficiency vectors lexicographically.

    Parameters
    ----------
    left, right : float64 arrays, shape (jobs,)
        Ascending.
    tolerance : float, default 1e-9
        Relative difference that counts as none.

    Returns
    -------
    int
        1 if the left is better, -1 if the right is, 0 if they are equal.
    """
    if left.shape != right.shape:
        raise InputError(f"vectors of {left.size} and {right.size} jobs do not compare")
    differ = np.abs(left - right) > tolerance * np.maximum(np.abs(left), np.abs(right))
    if not differ.any():
        return 0
    first = int(np.argmax(differ))
    return 1 if left[first] > right[first] else -1
