"""Max-min fairness across jobs: how fast every job is under an assignment.

The first layer of what arXiv 2503.05324 calls two-layered max-min fairness. This is our
definition; the paper's formula is not public to us.

Let w_f be the bytes of flow f over those of its job's largest flow and
n_jl the sum of w_f over the flows of job j on link l, whose capacity c_l is in units of a NIC's
rate. All u_j rise together from 0 to at most 1 subject to sum_j n_jl u_j <= c_l; when a link
saturates, the jobs that use it stop. u_j is the speed of job j's AllReduce relative to an empty
network: if jobs control their rates so that flow f sends w_f u_j NIC rates, the flows of a step
end together after 1 / u_j of the time that they need alone. The *efficiency vector* is the
ascending sorted (u_j); vectors are compared lexicographically.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.counted import counted
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.assignment import Assignment, check_assignment
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.paths import clos_paths

TOLERANCE = 1e-9
"""Relative difference of two speeds that counts as none."""


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

    jobs: Ints
    speed: Floats
    max_load: float

    @cached_property
    def vector(self) -> Floats:
        """The efficiency vector: speeds, ascending."""
        return np.sort(self.speed)

    @property
    def slowest_job(self) -> int:
        """Number of the slowest job (the lowest of several); -1 without jobs."""
        return int(self.jobs[np.argmin(self.speed)]) if self.jobs.size else -1

    @property
    def mean_slowdown(self) -> float:
        """Mean of 1 / speed over jobs; infinity if a job does not advance."""
        if not self.jobs.size:
            return 1.0
        return float(np.mean(1.0 / self.speed)) if self.vector[0] > 0 else float("inf")

    @property
    def jain(self) -> float:
        """Jain's index of the speeds: 1 if all are equal, 1 / jobs if one job has all."""
        squares = float(np.sum(self.speed**2)) * self.jobs.size
        return float(np.sum(self.speed)) ** 2 / squares if squares > 0 else 1.0


def evaluate(clos: Clos, flows: ClosFlows, assignment: Assignment) -> Efficiency:
    """Return the jobs' speeds under an assignment on a two-layer fabric.

    Parameters
    ----------
    clos : Clos
        The fabric.
    flows : ClosFlows
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


def evaluate_paths(paths: ClosPaths, flows: ClosFlows, way: SmallInts) -> Efficiency:
    """Return the jobs' speeds when flow f takes path ``way[f]`` (-1: needs no link).

    Parameters
    ----------
    paths : ClosPaths
        Candidates on any fabric.
    flows : ClosFlows
        What is sent.
    way : int32 array, shape (flows,)
        Path of each flow.

    Returns
    -------
    Efficiency

    Examples
    --------
    >>> import numpy as np
    >>> from routing.clos.flows import ClosFlows
    >>> from routing.clos.paths import listed_paths
    >>> paths = listed_paths([1.0, 1.0], [[[0], [1]], [[0], [1]]])  # two flows, two links for each
    >>> flows = ClosFlows.of([0, 0], [1, 1], [0, 1])
    >>> evaluate_paths(paths, flows, np.array([0, 0], dtype=np.int32)).vector.tolist()
    [0.5, 0.5]
    """
    from routing.clos.state import AssignmentState

    state = AssignmentState(paths, flows)
    state.set(np.asarray(way, dtype=np.int32))
    return Efficiency(flows.jobs, state.speed.copy(), state.max_load)


def compare_vectors(left: Floats, right: Floats) -> int:
    """Compare two efficiency vectors lexicographically.

    Parameters
    ----------
    left, right : float64 arrays, shape (jobs,)
        Ascending.

    Returns
    -------
    int
        1 if the left is better, -1 if the right is, 0 if no job differs by more than `TOLERANCE`.
    """
    if left.shape != right.shape:
        raise InputError(f"vectors of {left.size} and {counted(right.size, 'job')} do not compare")
    differ = np.abs(left - right) > TOLERANCE * np.maximum(np.abs(left), np.abs(right))
    if not differ.any():
        return 0
    first = int(np.argmax(differ))
    return 1 if left[first] > right[first] else -1
