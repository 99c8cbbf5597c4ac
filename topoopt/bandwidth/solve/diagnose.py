"""Why a problem has no answer: the constraints that conflict, or what nothing limits.

`check_problem` sees without solving, `starved` in what the solver found; `refuse` runs after either
failed. The conflict that it names is irreducible: without any one of the constraints the others
could be met (deletion filter).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Floats
from topoopt.bandwidth.solve.optimise import GAP, optimise
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.problem.units import format_time

_UNLIMITED = 1e6
_NEXT_TO_NOTHING = 1e-4  # of the largest bandwidth


def check_problem(problem: AllocationProblem) -> None:
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
    if problem.objective == AllocationObjective.COST and deadline is None:
        raise InputError(
            "the objective cost has no deadline, so that zero bandwidth would be optimal; "
            "give one with --deadline"
        )
    limits = problem.constraints
    unpriced = problem.objective == AllocationObjective.TIME_COST and problem.fixed_cost == 0
    if not np.all(_bounded(problem)) or (unpriced and np.any(problem.cost <= 0)):
        _explain(problem)
    if (
        problem.objective == AllocationObjective.TIME_COST
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


def _explain(problem: AllocationProblem) -> None:
    """Raise the error that says why a problem has no answer, if that is so.

    Parameters
    ----------
    problem : AllocationProblem

    Raises
    ------
    InfeasibleError
        If constraints conflict: names a smallest set of them.
    InputError
        If nothing limits a bandwidth that pays.

    Notes
    -----
    J. W. Chinneck and E. W. Dravnieks, ORSA Journal on Computing 3(2), 1991 (deletion filter).
    """
    everything = list(range(len(problem.constraints.names)))
    least = _least(problem, everything)
    if least is None:
        chosen = _filter(everything, lambda rows: _least(problem, rows) is None)
        raise InfeasibleError(f"no bandwidths satisfy {_names(problem, chosen)}; {_remedy(chosen)}")
    if least == 0.0:
        chosen = _filter(everything, lambda rows: not _least(problem, rows))
        dimension = _starved(problem, chosen)
        leave = "leaves" if len(chosen) == 1 else "leave"
        raise InfeasibleError(
            f"{_names(problem, chosen)} {leave} no bandwidth for dimension {dimension}, which "
            f"carries traffic; {_remedy(chosen)}"
        )
    unlimited = _unlimited(problem)
    pays = problem.objective == AllocationObjective.TIME
    if unlimited is not None and (pays or problem.cost[unlimited] == 0):
        raise InputError(
            f"no constraint limits b{unlimited}, so that unlimited bandwidth would be optimal; "
            "give a --budget"
        )
    if problem.deadline is not None:
        _explain_deadline(problem, everything)
    if (
        problem.objective == AllocationObjective.TIME_COST
        and problem.fixed_cost == 0
        and _free(problem)
    ):
        raise InputError(
            "time*cost has no optimum, because the constraints allow bandwidths that cost "
            "nothing; give every dimension a price, or --npu-cost"
        )


def refuse(problem: AllocationProblem) -> NoReturn:
    """Raise why a problem that the solver failed on has no answer."""
    _explain(problem)
    raise InfeasibleError(
        "the bandwidth problem is too badly scaled to be solved to 1e-7; give constraints "
        "whose bandwidths lie within a few orders of magnitude of each other"
    )


def starved(problem: AllocationProblem, bandwidth: Floats) -> bool:
    """Say whether the constraints leave a dimension that carries traffic nothing but rounding.

    Constraints hold to 1e-8 of what they speak of, so that bandwidths may seem to meet some that
    leave nothing. Asked of a linear program only where a bandwidth is next to nothing.
    """
    carrying = bandwidth[problem.loaded]
    if carrying.min(initial=np.inf) >= _NEXT_TO_NOTHING * bandwidth.max(initial=0.0):
        return False
    return _least(problem, list(range(len(problem.constraints.names)))) == 0.0


def _explain_deadline(problem: AllocationProblem, everything: list[int]) -> None:
    deadline = problem.deadline
    if deadline is None:
        return
    fastest = _fastest(problem, everything)
    if fastest <= deadline:
        return
    late: float = deadline
    chosen = _filter(everything, lambda rows: _fastest(problem, rows) > late)
    if not chosen:
        raise InfeasibleError(
            f"the deadline of {format_time(deadline)} is shorter than the iteration without "
            f"communication, {format_time(_fastest(problem, []))}; give a longer one"
        )
    raise InfeasibleError(
        f"the deadline of {format_time(deadline)} cannot be met under "
        f"{_names(problem, chosen)}: the fastest iteration takes "
        f"{format_time(_fastest(problem, chosen))}; relax one of them"
    )


def _filter(rows: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    """Return a smallest part of rows that still fails: drop what is not needed for it."""
    chosen = list(rows)
    for row in rows:
        fewer = [r for r in chosen if r != row]
        if fails(fewer):
            chosen = fewer
    return chosen


def _names(problem: AllocationProblem, rows: list[int]) -> str:
    quoted = [f"'{problem.constraints.names[r]}'" for r in rows]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


def _remedy(rows: list[int]) -> str:
    return "relax it" if len(rows) == 1 else "relax one of them"


def _minimum(
    goal: Floats,
    matrix: Floats,
    bound: Floats,
    equal: npt.NDArray[np.bool_],
    bounds: Sequence[tuple[float | None, float | None]],
) -> float | None:
    """Return the least value of a goal under constraints, None if there is none."""
    from scipy.optimize import linprog

    answer = linprog(
        goal, A_ub=matrix[~equal], b_ub=bound[~equal], A_eq=matrix[equal], b_eq=bound[equal],
        bounds=bounds, method="highs",
    )  # fmt: skip
    return float(answer.fun or 0.0) if answer.status == 0 else None


def _least(problem: AllocationProblem, rows: list[int], only: int | None = None) -> float | None:
    """Return the largest bandwidth that every loaded dimension (or one) can have at once.

    None if the constraints conflict.
    """
    limits = problem.constraints.keep(rows)
    n = problem.dimensions
    unit, size = _units(limits.matrix, limits.bound)
    loaded = np.flatnonzero(problem.loaded) if only is None else np.array([only])
    floor = np.zeros((len(loaded), n + 1))
    floor[np.arange(len(loaded)), loaded] = -1.0
    floor[:, -1] = 1.0
    goal = np.zeros(n + 1)
    goal[-1] = -1.0
    matrix = np.hstack([limits.matrix * unit / size[:, None], np.zeros((len(rows), 1))])
    level = _minimum(
        goal,
        np.vstack([matrix, floor]),
        np.append(limits.bound / size, np.zeros(len(loaded))),
        np.append(limits.equality, np.zeros(len(loaded), dtype=np.bool_)),
        [(0, None)] * n + [(None, 1e6)],
    )
    return None if level is None else -level if level < -1e-9 else 0.0


def _units(matrix: Floats, bound: Floats) -> tuple[float, Floats]:
    rows = np.abs(matrix).max(axis=1, initial=0.0)
    rows = np.where(rows > 0, rows, 1.0)
    unit = float(np.max(np.abs(bound) / rows, initial=0.0)) or 1e9
    return unit, rows * unit


def _bounded(problem: AllocationProblem) -> npt.NDArray[np.bool_]:
    """Say which bandwidths are bounded, or of no use beyond some size.

    A constraint bounds a bandwidth if all others that could make room for it are bounded. This
    finds almost every bound; a linear program decides on the rest.
    """
    limits = problem.constraints
    rows = np.vstack([limits.matrix, -limits.matrix[limits.equality]])
    bounded: npt.NDArray[np.bool_] = ~problem.loaded
    if problem.objective != AllocationObjective.TIME:
        bounded |= problem.cost > 0
    while not np.all(bounded):
        closed = np.all((rows >= 0) | bounded, axis=1)
        found = bounded | np.any(rows[closed] > 0, axis=0)
        if np.array_equal(found, bounded):
            break
        bounded = found
    return bounded


def _starved(problem: AllocationProblem, rows: list[int]) -> int:
    for dimension in np.flatnonzero(problem.loaded):
        if not _least(problem, rows, int(dimension)):
            return int(dimension)
    return int(np.flatnonzero(problem.loaded)[0])


def _unlimited(problem: AllocationProblem) -> int | None:
    """Return a loaded dimension that can grow for ever while none needs to shrink."""
    limits = problem.constraints
    size = np.abs(limits.matrix).max(axis=1, initial=0.0)
    matrix = limits.matrix / np.where(size > 0, size, 1.0)[:, None]
    still, n = np.zeros_like(limits.bound), problem.dimensions
    for dimension in np.flatnonzero(problem.loaded):
        least = _minimum(-np.eye(n)[dimension], matrix, still, limits.equality, [(0, 1)] * n)
        if least is not None and least < -1e-9:
            return int(dimension)
    return None


def _free(problem: AllocationProblem) -> bool:
    """Say whether some bandwidths that satisfy the constraints cost nothing."""
    limits = problem.constraints
    unit, size = _units(limits.matrix, limits.bound)
    least = _minimum(
        problem.cost / max(float(problem.cost.max()), 1e-300),
        limits.matrix * unit / size[:, None], limits.bound / size, limits.equality,
        [(0, None)] * problem.dimensions,
    )  # fmt: skip
    return least is not None and least <= 1e-9


def _fastest(problem: AllocationProblem, rows: list[int]) -> float:
    """Return the shortest iteration under some constraints.

    Where nothing limits a bandwidth it may be a million times what the constraints speak of.
    """
    limits = problem.constraints.keep(rows)
    unit, _ = _units(problem.constraints.matrix, problem.constraints.bound)
    n = problem.dimensions
    capped = limits.plus(("cap",) * n, np.eye(n), np.full(n, _UNLIMITED * unit))
    asked = replace(problem, constraints=capped, objective=AllocationObjective.TIME, deadline=None)
    answer = optimise(asked, None)
    if answer.bandwidth is None or answer.gap > GAP:
        refuse(asked)
    return asked.time.time(answer.bandwidth)
