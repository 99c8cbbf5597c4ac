"""How the answer changes with each constraint and price: solved again, not extrapolated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.allocate import Allocation
from topoopt.bandwidth.model.cost import CostModel
from topoopt.bandwidth.solve.constraints import Constraints
from topoopt.bandwidth.solve.discrete import solve_among
from topoopt.bandwidth.solve.problem import AllocationProblem
from topoopt.bandwidth.solve.solver import Solution
from topoopt.topology.zoo.blocks import BuildingBlock

CHANGES = (-0.5, -0.1, 0.1, 1.0)


@dataclass(frozen=True)
class Sensitivity:
    """The answer after one change; None where there is none.

    Parameters
    ----------
    what : str
        The constraint, "deadline", or a price such as "InterPod Switch price".
    change : float
        Relative: 0.1 is ten percent more.
    solution : Solution or None
        Its times are relative with several workloads.
    message : str
        Why there is no answer.
    """

    what: str
    change: float
    solution: Solution | None
    message: str = ""


def sensitivity(answer: Allocation, changes: Sequence[float] = CHANGES) -> tuple[Sensitivity, ...]:
    """Return the answers after finite changes of every constraint and price.

    Parameters
    ----------
    answer : Allocation
    changes : sequence of float, optional
        Relative, above -1. Constraints whose right-hand side is zero (``b0 >= 2 b1``) do not
        change with it and are left out; their shadow prices say more.

    Returns
    -------
    tuple of Sensitivity
        Constraints in order, the deadline, then the prices that the network pays.

    Raises
    ------
    InputError
        If a change is out of range.

    Notes
    -----
    A price changes the optimum of time x cost and cost; of time only the bill.
    """
    for change in changes:
        if not -1 < change < float("inf"):
            raise InputError(f"change of {change}; give a number above -1, such as 0.1 for 10 %")
    problem = answer.problem
    found = []
    for row, name in enumerate(problem.constraints.names):
        if _right_hand_side(problem, row) == 0:
            continue
        for change in changes:
            asked = replace(problem, constraints=_scaled(problem, row, 1 + change))
            found.append(_solved(name, change, asked, answer))
    if problem.deadline is not None:
        for change in changes:
            asked = replace(problem, deadline=problem.deadline * (1 + change))
            found.append(_solved("deadline", change, asked, answer))
    for name, level, field in _prices(answer):
        for change in changes:
            prices = _repriced(answer.question.prices, level, field, 1 + change)
            own = replace(answer.question, cost=prices, npu_cost=None)
            asked = own.problem(answer.network, problem.time)
            found.append(_solved(name, change, asked, answer))
    return tuple(found)


def _solved(
    what: str, change: float, problem: AllocationProblem, answer: Allocation
) -> Sensitivity:
    try:
        solution, _ = solve_among(problem, answer.rates, answer.bandwidth)
    except (InfeasibleError, InputError) as error:
        return Sensitivity(what, change, None, str(error))
    return Sensitivity(what, change, solution)


def _right_hand_side(problem: AllocationProblem, row: int) -> float:
    """Return the constant of a constraint as the user wrote it, up to its sign."""
    limits = problem.constraints
    bound = float(limits.bound[row])
    return bound + _money(problem, row) * problem.fixed_cost


def _money(problem: AllocationProblem, row: int) -> float:
    """Return the factor of ``cost`` in a constraint on it, whose bound excludes fixed cost."""
    limits = problem.constraints
    if not limits.in_dollars[row]:
        return 0.0
    return float(limits.matrix[row] @ problem.cost / (problem.cost @ problem.cost))


def _scaled(problem: AllocationProblem, row: int, factor: float) -> Constraints:
    bound = problem.constraints.bound.copy()
    bound[row] = _right_hand_side(problem, row) * factor - _money(problem, row) * problem.fixed_cost
    return replace(problem.constraints, bound=bound)


def _repriced(prices: CostModel, level: str, field: str, factor: float) -> CostModel:
    if field == "npu":
        return replace(prices, npu=prices.npu * factor)
    own = prices.levels[level]
    changed = replace(own, **{field: getattr(own, field) * factor})
    return replace(prices, levels={**prices.levels, level: changed})


def _prices(answer: Allocation) -> list[tuple[str, str, str]]:
    """Return name, level and field of the prices that a network pays, each once."""
    network, prices = answer.network, answer.question.prices
    found = {}
    for block, level in zip(network.blocks, network.levels, strict=True):
        fields = ("link", "switch", "nic") if block == BuildingBlock.SWITCH else ("link",)
        for field in fields:
            if getattr(prices.levels[level], field):
                label = f"price of {level} {'NIC' if field == 'nic' else field}"
                found[label] = (label, level, field)
    if prices.npu > 0:
        found["npu"] = ("price of an NPU", "", "npu")
    return list(found.values())


def relative_change(value: float, base: float) -> float | None:
    """Return by how much a value differs, relative to a base; None without one."""
    if base == 0 or not np.isfinite(base):
        return None
    return value / base - 1.0
