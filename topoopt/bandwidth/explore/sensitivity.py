"""How the answer changes with each constraint and price: solved again, not extrapolated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.allocate import Allocation
from topoopt.bandwidth.model.cost import LevelPrice
from topoopt.bandwidth.model.network import BuildingBlock
from topoopt.bandwidth.solve.constraints import Constraints
from topoopt.bandwidth.solve.problem import AllocationProblem
from topoopt.bandwidth.solve.setting import AllocationSetting

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
    time : float or None
        Seconds (relative, with several workloads).
    cost : float or None
        US dollars.
    objective : float or None
        In the objective's unit.
    bandwidth : tuple of float or None
        Bytes/s.
    gap : float or None
        Relative, of the proof.
    message : str
        Why there is no answer.
    """

    what: str
    change: float
    time: float | None
    cost: float | None
    objective: float | None
    bandwidth: tuple[float, ...] | None
    gap: float | None
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
    setting, problem = answer.setting, answer.problem
    found = []
    for row, name in enumerate(problem.constraints.names):
        if _right_hand_side(problem, row) == 0:
            continue
        for change in changes:
            limits = _scaled(problem, row, 1 + change)
            asked = replace(problem, constraints=limits)
            found.append(_solved(name, change, setting, asked, answer))
    if problem.deadline is not None:
        for change in changes:
            asked = replace(problem, deadline=problem.deadline * (1 + change))
            found.append(_solved("deadline", change, setting, asked, answer))
    for name, changed in _prices(setting):
        for change in changes:
            own = changed(1 + change)
            found.append(_solved(name, change, own, own.problem(), answer))
    return tuple(found)


def _solved(
    what: str,
    change: float,
    setting: AllocationSetting,
    problem: AllocationProblem,
    answer: Allocation,
) -> Sensitivity:
    try:
        solution, _ = setting.answer(problem, answer.bandwidth)
    except (InfeasibleError, InputError) as error:
        return Sensitivity(what, change, None, None, None, None, None, str(error))
    return Sensitivity(
        what, change, solution.time, solution.cost, solution.primal,
        tuple(solution.bandwidth.tolist()), solution.gap,
    )  # fmt: skip


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


class _Scale:
    """A price of a setting, to be multiplied."""

    def __init__(self, setting: AllocationSetting, level: str, field: str) -> None:
        self.setting, self.level, self.field = setting, level, field

    def __call__(self, factor: float) -> AllocationSetting:
        prices = self.setting.prices
        if not self.level:
            return replace(self.setting, prices=replace(prices, npu=prices.npu * factor))
        own: LevelPrice = prices.levels[self.level]
        changed = replace(own, **{self.field: getattr(own, self.field) * factor})
        levels = {**prices.levels, self.level: changed}
        return replace(self.setting, prices=replace(prices, levels=levels))


def _prices(setting: AllocationSetting) -> list[tuple[str, _Scale]]:
    network, prices = setting.network, setting.prices
    found: dict[str, _Scale] = {}
    for block, level in zip(network.blocks, network.levels, strict=True):
        fields = ("link", "switch", "nic") if block == BuildingBlock.SWITCH else ("link",)
        for field in fields:
            if getattr(prices.levels[level], field):
                label = "NIC" if field == "nic" else field
                found[f"price of {level} {label}"] = _Scale(setting, level, field)
    if prices.npu > 0:
        found["price of an NPU"] = _Scale(setting, "", "npu")
    return list(found.items())


def relative_change(value: float | None, base: float) -> float | None:
    """Return by how much a value differs, relative to a base; None without either."""
    if value is None or base == 0 or not np.isfinite(base):
        return None
    return value / base - 1.0
