"""The question as arrays: time model, costs, constraints, objective."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from topoopt.bandwidth.constraints import Constraints, Floats
from topoopt.bandwidth.time_model import TimeModel


class Objective(StrEnum):
    """What is minimised: LIBRA's PerfOpt, its PerfPerCost, or the cost under a deadline."""

    TIME = "time"
    TIME_COST = "time*cost"
    COST = "cost"


@dataclass(frozen=True, eq=False)
class Problem:
    """Bandwidths ``b >= 0`` (bytes/s per NPU) that minimise an objective.

    Parameters
    ----------
    time : TimeModel
    cost : float64 array, shape (dimensions,)
        US dollars per byte/s, of the whole cluster.
    fixed_cost : float
        US dollars that do not depend on b (the NPUs).
    constraints : Constraints
    objective : Objective
    deadline : float, optional
        Largest iteration time allowed, in seconds.
    """

    time: TimeModel
    cost: Floats
    fixed_cost: float
    constraints: Constraints
    objective: Objective = Objective.TIME
    deadline: float | None = None

    @property
    def dimensions(self) -> int:
        """Number of dimensions."""
        return len(self.cost)

    @property
    def loaded(self) -> npt.NDArray[np.bool_]:
        """Whether each dimension carries traffic, shape (dimensions,)."""
        carrying: npt.NDArray[np.bool_] = np.any(self.time.loads > 0, axis=0)
        return carrying

    def cost_of(self, bandwidth: Floats) -> float:
        """Return the cost in US dollars at bandwidths in bytes/s."""
        return float(self.cost @ bandwidth) + self.fixed_cost

    def value(self, bandwidth: Floats) -> float:
        """Return the objective: seconds, seconds x US dollars, or US dollars."""
        if self.objective == Objective.COST:
            return self.cost_of(bandwidth)
        time = self.time.time(bandwidth)
        return time if self.objective == Objective.TIME else time * self.cost_of(bandwidth)


def check_problem(problem: Problem) -> None:
    """Refuse what can be seen to have no answer without solving.

    Raises
    ------
    InputError
        If the deadline is out of range, cost is minimised without one, nothing limits a
        bandwidth that pays, or nothing keeps the bandwidths of time x cost from zero.
    """
    deadline = problem.deadline
    if deadline is not None and not 0 < deadline < float("inf"):
        raise InputError(f"deadline is {deadline} s; give a positive time")
    if problem.objective == Objective.COST and deadline is None:
        raise InputError(
            "the objective cost has no deadline, so that zero bandwidth would be optimal; "
            "give one with --deadline"
        )
    limits = problem.constraints
    unpriced = problem.objective == Objective.TIME_COST and problem.fixed_cost == 0
    if not np.all(_bounded(problem)) or (unpriced and np.any(problem.cost <= 0)):
        from topoopt.bandwidth.diagnose import explain

        explain(problem)
    if (
        problem.objective == Objective.TIME_COST
        and problem.fixed_cost == 0
        and deadline is None
        and bool(np.all(limits.bound[~limits.equality] >= 0))
        and bool(np.all(limits.bound[limits.equality] == 0))
    ):
        raise InputError(
            "zero bandwidth would be optimal for time*cost: no constraint keeps it from zero "
            "and the NPUs cost nothing; give --npu-cost, a budget that is spent in full "
            "(500GB/s without <=), or a --deadline"
        )


def _bounded(problem: Problem) -> npt.NDArray[np.bool_]:
    """Say which bandwidths are bounded, or of no use beyond some size.

    A constraint bounds a bandwidth if all others that could make room for it are bounded. This
    finds almost every bound; a linear program decides on the rest.
    """
    limits = problem.constraints
    rows = np.vstack([limits.matrix, -limits.matrix[limits.equality]])
    bounded: npt.NDArray[np.bool_] = ~problem.loaded
    if problem.objective != Objective.TIME:
        bounded |= problem.cost > 0
    while not np.all(bounded):
        closed = np.all((rows >= 0) | bounded, axis=1)
        found = bounded | np.any(rows[closed] > 0, axis=0)
        if np.array_equal(found, bounded):
            break
        bounded = found
    return bounded
