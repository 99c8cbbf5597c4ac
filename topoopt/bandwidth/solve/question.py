"""What is asked of a network, and the problem that it makes of a network and its times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codesign_base import InputError
from codesign_base.arguments import check_kind, is_number, member, several, told
from topoopt.bandwidth.model.collectives import PartialGroups
from topoopt.bandwidth.model.cost import CostModel, cost_coefficients, default_cost
from topoopt.bandwidth.model.loops import Loop, TrainingLoop
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.bandwidth.model.time_model import TimeModel
from topoopt.bandwidth.solve.constraints import budget_constraint, parse_constraints
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.problem.prices import MOST_USD


@dataclass(frozen=True, eq=False)
class Question:
    """What bandwidths shall achieve and obey, on whatever network.

    Parameters
    ----------
    budget : str, optional
        Sum of the bandwidths of an NPU: ``"500GB/s"`` (exactly) or ``"<= 500GB/s"``.
    constraints : sequence of str, optional
        See `constraints.parse_constraints`.
    objective : AllocationObjective, optional
    loop : Loop or callable, optional
        How the layers add up, see `loops.add_up`.
    partial : PartialGroups, optional
        What a group that fills a part of a dimension may use.
    cost : CostModel, optional
        LIBRA's default prices by default.
    npu_cost : float, optional
        US dollars of an NPU, replacing the cost model's.
    deadline : float, optional
        Largest iteration time in seconds (of the combined time, with several workloads).

    Raises
    ------
    InputError
        If the budget cannot be read, the price of an NPU is negative or beyond `MOST_USD`, or an
        argument is of another kind.
    """

    budget: str | None = None
    constraints: Sequence[str] = ()
    objective: AllocationObjective = AllocationObjective.TIME
    loop: Loop | TrainingLoop = Loop.NONE
    partial: PartialGroups = PartialGroups.USABLE
    cost: CostModel | None = None
    npu_cost: float | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            budget_constraint(self.budget)
        wanted = "several texts, such as ('b0 >= 2 b1',)"
        found: dict[str, object] = {
            "constraints": several("constraints", self.constraints, wanted),
            "objective": member("objective", self.objective, AllocationObjective),
            "loop": self.loop if callable(self.loop) else member("loop", self.loop, Loop),
            "partial": member("partial", self.partial, PartialGroups),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)
        check_kind("cost", self.cost, CostModel | None, "what load_cost returns, or leave it out")
        if not (is_number(self.prices.npu) and 0 <= self.prices.npu <= MOST_USD):
            raise InputError(
                f"NPU cost is {told(self.prices.npu)} USD; give zero or more, at most {MOST_USD:g}"
            )
        if not (self.deadline is None or is_number(self.deadline)):
            raise InputError(f"deadline is {told(self.deadline)}; give seconds, or leave it out")

    @property
    def texts(self) -> tuple[str, ...]:
        """All constraints, the budget first if there is one."""
        budget = () if self.budget is None else (budget_constraint(self.budget),)
        return (*budget, *self.constraints)

    @cached_property
    def prices(self) -> CostModel:
        """Component prices, with that of an NPU that counts."""
        prices = default_cost() if self.cost is None else self.cost
        return prices if self.npu_cost is None else replace(prices, npu=self.npu_cost)

    def problem(self, network: MultiDimNetwork, time: TimeModel) -> AllocationProblem:
        """Return the problem as arrays, of a network and its times."""
        cost = cost_coefficients(network, self.prices)
        fixed = self.prices.npu * network.npus
        constraints = parse_constraints(self.texts, network.dimensions, cost, fixed)
        return AllocationProblem(time, cost, fixed, constraints, self.objective, self.deadline)
