"""What a problem is made of, so that budgets and prices can be changed and solved again."""

from dataclasses import dataclass

import numpy as np

from topoopt.bandwidth.model.cost import CostModel, cost_coefficients
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.time_model import Floats, TimeModel
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.discrete import NODES, DiscreteSolution, solve_discrete
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.solver import Solution, solve


@dataclass(frozen=True, eq=False)
class AllocationSetting:
    """A question with everything in it that may change.

    Parameters
    ----------
    network : MultiDimNetwork
    time : TimeModel
        Of all workloads together.
    texts : tuple of str
        Constraints, the budget first if there is one.
    prices : CostModel
        With the price of an NPU that counts.
    objective : AllocationObjective
    deadline : float or None
        Seconds.
    rates : tuple of float64 array, or None
        Bytes/s that each dimension may have; None for any.
    nodes : int
        Limit of the search over rates.
    """

    network: MultiDimNetwork
    time: TimeModel
    texts: tuple[str, ...]
    prices: CostModel
    objective: AllocationObjective = AllocationObjective.TIME
    deadline: float | None = None
    rates: tuple[Floats, ...] | None = None
    nodes: int = NODES

    def problem(self) -> AllocationProblem:
        """Return the problem as arrays."""
        cost = cost_coefficients(self.network, self.prices)
        fixed = self.prices.npu * self.network.npus
        limits = parse_constraints(self.texts, self.network.dimensions, cost, fixed)
        return AllocationProblem(self.time, cost, fixed, limits, self.objective, self.deadline)

    def answer(
        self, problem: AllocationProblem, start: Floats | None = None
    ) -> tuple[Solution, DiscreteSolution | None]:
        """Solve a problem of this setting, over the rates if there are some.

        Parameters
        ----------
        problem : AllocationProblem
        start : float64 array, shape (dimensions,), optional
            Bandwidths near the answer.

        Returns
        -------
        Solution
        DiscreteSolution or None
            How the search over rates went.
        """
        if self.rates is None:
            near = start if start is None else np.maximum(start, 1e-9 * float(start.max()))
            return solve(problem, near), None
        found = solve_discrete(problem, self.rates, self.nodes)
        return found.solution, found
