"""Solve, certify, break ties by cost: the answer to one problem."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from topoopt.bandwidth.solve.certificate import Certificate
from topoopt.bandwidth.solve.diagnose import check_problem, refuse, starved
from topoopt.bandwidth.solve.optimise import GAP, optimise, relative_gap, repair
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.ties import tied_problem

_SPARE = 1e-6  # share of a limit that may be left although it binds: rounding


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimal bandwidths with the proof.

    Parameters
    ----------
    bandwidth : float64 array, shape (dimensions,)
        Bytes/s per NPU.
    time : float
        Seconds of the iteration.
    cost : float
        US dollars of the cluster, NPUs included if they are priced.
    primal, dual : float
        The objective (s, s x USD or USD) and the lower bound that the multipliers prove.
    gap : float
        ``(primal - dual) / primal``.
    duals : float64 array, shape (constraints,)
        How much the objective falls for each byte/s (or dollar) by which a constraint's right
        hand side ``A b <= h`` grows; exactly 0 where it does not bind.
    deadline_dual : float
        The same for a second of deadline.
    ties_broken : bool
        Whether cheaper bandwidths of equal time were chosen.
    """

    bandwidth: Floats
    time: float
    cost: float
    primal: float
    dual: float
    gap: float
    duals: Floats
    deadline_dual: float
    ties_broken: bool


def solve(problem: AllocationProblem, start: Floats | None = None) -> Solution:
    """Solve a problem.

    Parameters
    ----------
    problem : AllocationProblem
    start : float64 array, shape (dimensions,), optional
        Positive bandwidths near the expected answer (a neighbouring problem's): the problem is
        normalised by them.

    Returns
    -------
    Solution
        With a relative gap of at most 1e-7.

    Raises
    ------
    InputError
        If zero or unlimited bandwidth would be optimal.
    InfeasibleError
        If no bandwidths satisfy the constraints; the message names those that conflict.

    Notes
    -----
    The variables are counted in the starting point, then in the solution found, until the
    proof is good enough; nearly always once. Equal-time optima differ only on dimensions that
    carry no marginal load; there the cheapest bandwidths are taken. Thread-safe.
    """
    check_problem(problem)
    if start is not None and start.shape != (problem.dimensions,):
        raise InputError(
            f"start has shape {start.shape} for {counted(problem.dimensions, 'dimension')}; "
            "give one bandwidth each"
        )
    answer = optimise(problem, start)
    bandwidth, bound = answer.bandwidth, answer.bound
    if bandwidth is None or bound is None or answer.gap > GAP or starved(problem, bandwidth):
        refuse(problem)
    broken = False
    if problem.objective == AllocationObjective.TIME:
        cheaper = _break_ties(problem, bandwidth, bound)
        if cheaper is not None:
            bandwidth, broken = cheaper, True
    return solution_of(problem, bandwidth, bound.bound, bound, broken)


def solution_of(
    problem: AllocationProblem,
    bandwidth: Floats,
    dual: float,
    bound: Certificate | None,
    ties_broken: bool,
    priced_at: Floats | None = None,
) -> Solution:
    """Return bandwidths as a solution with a lower bound, and multipliers if there are some.

    Parameters
    ----------
    problem : AllocationProblem
    bandwidth : float64 array, shape (dimensions,)
    dual : float
        A lower bound of the objective.
    bound : Certificate or None
        Has the multipliers.
    ties_broken : bool
        Whether these are the cheapest bandwidths of equal value.
    priced_at : float64 array, optional
        The optimum whose multipliers they are, by default ``bandwidth``.

    Returns
    -------
    Solution
    """
    value, cost = problem.value(bandwidth), problem.cost_of(bandwidth)
    limits = len(problem.constraints.names)
    duals, deadline_dual = np.zeros(limits), 0.0
    if bound is not None:
        # With time x cost A y <= h t: a change of h counts t times.
        scale = 1.0 / cost if problem.objective == AllocationObjective.TIME_COST else 1.0
        duals, deadline_dual = _of_what_binds(
            problem,
            bandwidth if priced_at is None else priced_at,
            bound.duals[:limits] * scale,
            bound.limit_dual * scale,
        )
    return Solution(
        bandwidth=bandwidth,
        time=problem.time.time(bandwidth),
        cost=cost,
        primal=value,
        dual=dual,
        gap=max(relative_gap(value, dual), 0.0),
        duals=duals,
        deadline_dual=deadline_dual,
        ties_broken=ties_broken,
    )


def _of_what_binds(
    problem: AllocationProblem, bandwidth: Floats, duals: Floats, deadline_dual: float
) -> tuple[Floats, float]:
    """Set the multipliers of limits that do not bind to zero, which the solver only approaches.

    Of a limit's slack and its multiplier one is zero at an optimum (complementary slackness).
    The solver leaves a little of both, so the smaller one counts as zero: the slack as a share
    of the limit, the multiplier as what so much of it is worth as a share of the objective. A
    worth within the gap of the proof is nothing, also that of an equality.
    """
    limits = problem.constraints
    terms = np.abs(limits.matrix * bandwidth).max(axis=1, initial=0.0)
    size = np.append(np.maximum(terms, np.abs(limits.bound)), problem.deadline or 0.0)
    spare = np.append(
        np.where(limits.equality, 0.0, limits.bound - limits.matrix @ bandwidth),
        0.0 if problem.deadline is None else problem.deadline - problem.time.time(bandwidth),
    )
    every = np.append(duals, deadline_dual)
    share = spare / np.where(size > 0, size, 1.0)
    worth = np.abs(every) * size / max(abs(problem.value(bandwidth)), 1e-300)
    free = (worth <= GAP) | ((share > _SPARE) & (worth < share))
    every = np.where(free, 0.0, every)
    return every[:-1], float(every[-1])


def _break_ties(problem: AllocationProblem, bandwidth: Floats, bound: Certificate) -> Floats | None:
    """Return cheaper bandwidths of the same time, or None if there are none."""
    tied = tied_problem(problem, bandwidth, bound)
    if tied is None:
        return None
    smaller, free = tied
    answer = optimise(smaller, np.maximum(bandwidth[free], 1e-6 * bandwidth.max()))
    if answer.bandwidth is None:
        return None
    chosen = bandwidth.copy()
    chosen[free] = answer.bandwidth
    chosen = repair(problem, chosen)
    saved = problem.cost_of(bandwidth) - problem.cost_of(chosen)
    if saved <= 1e-9 * problem.cost_of(bandwidth):
        return None
    if problem.time.time(chosen) > problem.time.time(bandwidth) * (1.0 + 1e-9):
        return None
    return chosen
