"""Bandwidths from lists of rates: branch and bound around the convex problem.

A node is a box of rates, from a lowest to a highest of each dimension. Its bound is the
certified lower bound of the convex problem inside the box; boxes of few points are enumerated
instead. The proof of the answer is the smallest bound of all boxes that were put aside.
"""

from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from topoopt.bandwidth.solve.boxes import BoxSearch
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.solver import Solution, solution_of, solve

NODES = 20_000
LEAF = 256


@dataclass(frozen=True, eq=False)
class DiscreteSolution:
    """The best rates with the proof.

    Parameters
    ----------
    solution : Solution
        Its ``dual`` bounds all rates, its ``duals`` are those of the convex problem.
    relaxed : float
        Lower bound of the convex problem over the range of the rates.
    nodes : int
        Boxes looked at.
    complete : bool
        False if the limit of nodes ended the search; the gap still holds.
    """

    solution: Solution
    relaxed: float
    nodes: int
    complete: bool


def solve_among(
    problem: AllocationProblem, rates: tuple[Floats, ...] | None, start: Floats | None = None
) -> tuple[Solution, DiscreteSolution | None]:
    """Solve a problem, over rates if there are some.

    Parameters
    ----------
    problem : AllocationProblem
    rates : tuple of float64 array, or None
        As `solve_discrete`; None for any.
    start : float64 array, shape (dimensions,), optional
        Bandwidths near the answer.

    Returns
    -------
    Solution
    DiscreteSolution or None
        How the search over rates went.
    """
    if rates is None:
        near = start if start is None else np.maximum(start, 1e-9 * float(start.max()))
        return solve(problem, near), None
    found = solve_discrete(problem, rates)
    return found.solution, found


def solve_discrete(
    problem: AllocationProblem, rates: tuple[Floats, ...], nodes: int = NODES, leaf: int = LEAF
) -> DiscreteSolution:
    """Choose one rate a dimension.

    Parameters
    ----------
    problem : AllocationProblem
    rates : tuple of float64 array
        Ascending bytes/s >= 0, one array a dimension.
    nodes : int, optional
        Most boxes to look at.
    leaf : int, optional
        Boxes of at most so many points are enumerated.

    Returns
    -------
    DiscreteSolution
        With a gap of at most 1e-7 if complete. Of equally fast rates the cheapest.

    Raises
    ------
    InputError
        If the rates do not fit the problem.
    InfeasibleError
        If no rates satisfy the constraints, or none were found within the limit of nodes.

    References
    ----------
    A. H. Land and A. G. Doig, Econometrica 28(3), 1960 (branch and bound).
    """
    _check(problem, rates, nodes, leaf)
    rates = tuple(
        r[r > 0] if loaded else r for r, loaded in zip(rates, problem.loaded, strict=True)
    )
    search = BoxSearch(problem, rates, leaf)
    complete = search.run(nodes, relax_first=True)
    best = search.best
    if best is None:
        if complete:
            exact = any("==" in name for name in problem.constraints.names)
            remedy = "a budget as a limit ('<= 500GB/s')" if exact else "looser constraints"
            raise InfeasibleError(
                f"no combination of the rates satisfies {_named(problem)}; give other rates, or "
                f"{remedy}"
            )
        raise InfeasibleError(
            f"no rates that satisfy {_named(problem)} were found in {counted(nodes, 'node')}; "
            "allow more nodes or looser constraints"
        )
    looked = search.looked
    cheapest = best
    if problem.objective == AllocationObjective.TIME:
        cheapest, more = _cheapest(problem, rates, best, max(nodes - looked, 1), leaf)
        looked += more
    dual = min(search.bound, problem.value(cheapest))
    broken = not np.array_equal(cheapest, best)
    solution = solution_of(problem, cheapest, dual, search.root, broken, search.root_bandwidth)
    return DiscreteSolution(solution, search.relaxed, looked, complete)


def _check(problem: AllocationProblem, rates: tuple[Floats, ...], nodes: int, leaf: int) -> None:
    if len(rates) != problem.dimensions:
        raise InputError(
            f"rates for {len(rates)} of {counted(problem.dimensions, 'dimension')}; give each"
        )
    if nodes < 1 or leaf < 1:
        raise InputError(f"nodes {nodes}, leaf {leaf}; give at least 1 each")
    for d, listed in enumerate(rates):
        if not listed.size or not np.all(np.isfinite(listed)) or np.any(np.diff(listed) <= 0):
            raise InputError(f"rates of b{d} are {listed.tolist()}; give ascending finite rates")
        if listed[0] < 0:
            raise InputError(f"rates of b{d} begin with {listed[0]}; give zero or more")
        if problem.loaded[d] and listed[-1] == 0:
            raise InfeasibleError(f"dimension b{d} carries traffic, but its only rate is zero")


def _named(problem: AllocationProblem) -> str:
    names = [repr(name) for name in problem.constraints.names]
    if problem.deadline is not None:
        names.append("the deadline")
    return " and ".join(names) if names else "the problem"


def _cheapest(
    problem: AllocationProblem, rates: tuple[Floats, ...], best: Floats, nodes: int, leaf: int
) -> tuple[Floats, int]:
    """Return the cheapest rates that are as fast as the best, and the boxes looked at."""
    time = problem.time.time(best)
    asked = replace(problem, objective=AllocationObjective.COST, deadline=time)
    search = BoxSearch(asked, rates, leaf)
    search.offer(best[None, :])
    search.run(nodes)
    return (best if search.best is None else search.best), search.looked
