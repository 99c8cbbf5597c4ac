"""The question as arrays: time model, costs, constraints, objective."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats
from topoopt.bandwidth.model.time_model import TimeModel
from topoopt.bandwidth.solve.constraints import Constraints


class AllocationObjective(StrEnum):
    """What is minimised: LIBRA's PerfOpt, its PerfPerCost, or the cost under a deadline."""

    TIME = "time"
    TIME_COST = "time*cost"
    COST = "cost"


@dataclass(frozen=True, eq=False)
class AllocationProblem:
    """Bandwidths ``b >= 0`` (bytes/s per NPU) that minimise an objective.

    Parameters
    ----------
    time : TimeModel
    cost : float64 array, shape (dimensions,)
        US dollars per byte/s, of the whole cluster.
    fixed_cost : float
        US dollars that do not depend on b (the NPUs).
    constraints : Constraints
    objective : AllocationObjective
    deadline : float, optional
        Largest iteration time allowed, in seconds.
    """

    time: TimeModel
    cost: Floats
    fixed_cost: float
    constraints: Constraints
    objective: AllocationObjective = AllocationObjective.TIME
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
        if self.objective == AllocationObjective.COST:
            return self.cost_of(bandwidth)
        time = self.time.time(bandwidth)
        return (
            time if self.objective == AllocationObjective.TIME else time * self.cost_of(bandwidth)
        )
