"""The best bandwidths and the best bound that a few cone programs give."""

from dataclasses import dataclass, replace

import numpy as np

from codesign_base.arrays import Floats
from topoopt.bandwidth.solve.certificate import Certificate, prove
from topoopt.bandwidth.solve.conic import solve_conic
from topoopt.bandwidth.solve.form import from_form, make_form, to_form
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem

GAP = 1e-7
_ATTEMPTS = 6
_ON_TIME = 1 + 1e-8  # a deadline that equals the fastest time is met by this only
_SHARE = 1e-9  # to which part of itself the share of the fastest bandwidths in a mix is found


@dataclass(frozen=True, eq=False)
class Answer:
    """The best bandwidths and the best bound of a few cone programs; None without any.

    Parameters
    ----------
    bandwidth : float64 array, shape (dimensions,), or None
        Feasible bandwidths.
    bound : Certificate or None
    gap : float
        Relative, of the two.
    """

    bandwidth: Floats | None
    bound: Certificate | None
    gap: float


def optimise(problem: AllocationProblem, start: Floats | None) -> Answer:
    """Return the best bandwidths and bound of a few cone programs, whatever they are worth.

    `solve` explains what is missing and breaks ties; searches over many problems call this.
    """
    form = make_form(problem)
    if start is None or not 0 < start.max(initial=0.0) < np.inf:
        point = first_guess(problem)
    else:
        point = np.maximum(start, 1e-9 * start.max())
    best: Floats | None = None
    bound: Certificate | None = None
    value, gap, tolerance = np.inf, np.inf, 1e-9
    size = float(point.max())
    fastest: Floats | None = None
    for _ in range(_ATTEMPTS):
        found = solve_conic(form, to_form(form, problem, point), tolerance)
        if "Infeasible" in found.status or not np.all(np.isfinite(found.x)):
            break
        certificate = prove(form, found)
        if bound is None or certificate.bound > bound.bound:
            bound = certificate
        x = np.maximum(found.x, 1e-12 * to_form(form, problem, point))
        bandwidth = repair(problem, _without_dust(problem, from_form(form, x), size))
        if _late(problem, bandwidth):
            if fastest is None:
                asked = replace(problem, objective=AllocationObjective.TIME, deadline=None)
                fastest = optimise(asked, bandwidth).bandwidth
            bandwidth = _in_time(problem, bandwidth, fastest)
        if _feasible(problem, bandwidth) and problem.value(bandwidth) < value:
            best, value = bandwidth, problem.value(bandwidth)
        gap = relative_gap(value, bound.bound)
        if gap <= GAP / 2:
            break
        if bandwidth.max() > 0:
            point = np.maximum(bandwidth, 1e-9 * bandwidth.max())
        tolerance = 1e-11
    return Answer(best, bound, gap)


def _feasible(problem: AllocationProblem, bandwidth: Floats) -> bool:
    if np.any(bandwidth < 0) or problem.constraints.violation(bandwidth) > 1e-8:
        return False
    return problem.deadline is None or problem.time.time(bandwidth) <= problem.deadline * _ON_TIME


def _late(problem: AllocationProblem, bandwidth: Floats) -> bool:
    """Say whether bandwidths miss the deadline by what may be rounding."""
    if problem.deadline is None:
        return False
    return problem.deadline < problem.time.time(bandwidth) < 1.1 * problem.deadline


def _in_time(problem: AllocationProblem, bandwidth: Floats, fastest: Floats | None) -> Floats:
    """Mix bandwidths that miss the deadline by rounding with the fastest ones."""
    deadline = problem.deadline
    if deadline is None or fastest is None:
        return bandwidth
    if problem.time.time(fastest) > deadline:
        # There is no room to mix; the fastest may be on time but for rounding.
        return fastest
    low, high = 0.0, 1.0
    # The time is convex in the share. Where nothing limits bandwidths the fastest are so large that
    # tiny shares are needed: the share has to be exact to a part of itself.
    while high - low > _SHARE * high:
        share = 0.5 * (low + high)
        mixed = bandwidth + share * (fastest - bandwidth)
        low, high = (low, share) if problem.time.time(mixed) <= deadline else (share, high)
    made: Floats = bandwidth + high * (fastest - bandwidth)
    return made


def _without_dust(problem: AllocationProblem, bandwidth: Floats, size: float) -> Floats:
    """Set the solver's rounding on dimensions without traffic to zero."""
    dust = (bandwidth < max(1e-8 * bandwidth.max(), 1e-9 * size)) & ~problem.loaded
    return np.where(dust, 0.0, bandwidth)


def relative_gap(primal: float, dual: float) -> float:
    """Return the gap relative to the primal value."""
    if primal == dual:
        return 0.0
    if not np.isfinite(primal) or not np.isfinite(dual):
        return float("inf")
    return (primal - dual) / max(abs(primal), 1e-300)


def first_guess(problem: AllocationProblem) -> Floats:
    """Return positive bandwidths of about the right size, to normalise by.

    Proportional to the root of the load (per price, where cost counts), which is optimal when
    one dimension after the other is waited for.
    """
    load = problem.time.loads.sum(axis=0)
    share = np.sqrt(load / load.max()) if load.max(initial=0.0) > 0 else np.ones_like(load)
    if problem.objective != AllocationObjective.TIME and np.all(problem.cost > 0):
        share = share / np.sqrt(problem.cost / problem.cost.max())
    share = np.maximum(share, 1e-3 * share.max())
    limits = problem.constraints
    tops = [
        float(bound) / float(row @ share)
        for row, bound in zip(limits.matrix, limits.bound, strict=True)
        if bound > 0 and np.all(row >= 0)
    ]
    widest = float(np.max(np.abs(limits.bound[~limits.in_dollars]), initial=0.0))
    guess: Floats = share * (min(tops) if tops else widest or 1e11)
    return guess


def repair(problem: AllocationProblem, bandwidth: Floats) -> Floats:
    """Move bandwidths by the solver's rounding onto the constraints.

    Equalities and violated inequalities are met by a projection in which each bandwidth
    counts relative to its size.
    """
    limits = problem.constraints
    b = bandwidth
    for _ in range(2):
        excess = limits.matrix @ b - limits.bound
        active = np.flatnonzero(limits.equality | (excess > 0))
        active = active[excess[active] != 0.0]
        if not len(active):
            break
        # Rows that hold exactly stay as they are while the others are met.
        tight = np.flatnonzero(np.abs(excess) <= 1e-9 * (np.abs(limits.matrix) @ b))
        rows = np.union1d(active, tight)
        scaled = limits.matrix[rows] * b
        size = np.abs(scaled).max(axis=1)
        size = np.where(size > 0, size, 1.0)
        step = np.linalg.lstsq(scaled / size[:, None], -excess[rows] / size, rcond=1e-10)[0]
        if np.abs(step).max(initial=0.0) > 1e-3:
            break
        b = b * (1.0 + step)
    return b
