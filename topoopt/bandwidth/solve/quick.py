"""A lower bound on a problem in a few products, to leave hopeless problems unsolved.

Choosing one dimension of each load and one part of each maximum gives a function
``c + sum of mu_d / b_d`` that is nowhere above the iteration time. So is an average of such
functions, and over all b of a sum or a cost it has a closed minimum (Cauchy and Schwarz).
"""

import numpy as np

from codesign_base.arrays import Floats
from topoopt.bandwidth.model.time_model import TimeModel
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem

_ROUNDS = 6


def minorant_at(time: TimeModel, bandwidth: Floats) -> tuple[float, Floats]:
    """Return c and loads of ``c + loads . (1 / b)``, nowhere above the iteration time.

    The function meets it at some bandwidths > 0.
    """
    count = len(time.loads)
    weight = time.weights.copy()
    constant = time.constant
    if time.nodes > count:
        values = time.node_values(bandwidth)
        sizes = time.part_constant + time.part_coefficients @ values
        for node in range(time.nodes - 1, count - 1, -1):
            rows = np.flatnonzero(time.part_node == node)
            best = rows[np.argmax(sizes[rows])]
            constant += weight[node] * time.part_constant[best]
            weight = weight + weight[node] * time.part_coefficients[best]
    loads = np.zeros(time.dimensions)
    if count:
        slowest = np.argmax(time.loads / bandwidth, axis=1)
        np.add.at(loads, slowest, weight[:count] * time.loads[np.arange(count), slowest])
    return float(constant), loads


def quick_bound(problem: AllocationProblem, spent: float | None) -> float:
    """Return a lower bound on the objective.

    Parameters
    ----------
    problem : AllocationProblem
    spent : float or None
        Upper limit of the sum of bandwidths in bytes/s, if the constraints have one.

    Returns
    -------
    float
    """
    total = spent if spent is not None else 1e12
    b = np.full(problem.dimensions, total / problem.dimensions)
    priced = problem.objective != AllocationObjective.TIME
    constant, loads = 0.0, np.zeros(problem.dimensions)
    best = -np.inf
    for step in range(_ROUNDS):
        constant_there, loads_there = minorant_at(problem.time, b)
        constant += (constant_there - constant) / (step + 1)
        loads = loads + (loads_there - loads) / (step + 1)
        best = max(best, _closed(problem, constant, loads, spent))
        share = np.sqrt(loads / np.where(problem.cost > 0, problem.cost, 1.0) if priced else loads)
        share = np.maximum(share, 1e-3 * share.max(initial=1e-300))
        b = share * (total / share.sum())
    return best


def _closed(
    problem: AllocationProblem, constant: float, loads: Floats, spent: float | None
) -> float:
    time = constant
    if spent is not None:
        time += float(np.sqrt(loads).sum()) ** 2 / spent
    if problem.objective == AllocationObjective.TIME:
        return time
    root = float(np.sqrt(loads * problem.cost).sum())
    if problem.objective == AllocationObjective.TIME_COST:
        # (k + s)(f + p) with s p >= root^2: either by Cauchy and Schwarz, or term by term.
        together = (np.sqrt(constant * problem.fixed_cost) + root) ** 2
        least = problem.fixed_cost + _least_sum(problem) * float(problem.cost.min())
        apart = constant * least + (time - constant) * problem.fixed_cost + root**2
        return float(max(together, apart))
    room = (problem.deadline or np.inf) - constant
    if room <= 0 < root:
        return float("inf")
    return float(problem.fixed_cost + (root**2 / room if root else 0.0))


def largest_sum(problem: AllocationProblem) -> float | None:
    """Return the upper limit that one constraint sets on the sum of bandwidths, if one does."""
    limits = problem.constraints
    found = [
        float(bound) / float(row.min())
        for row, bound in zip(limits.matrix, limits.bound, strict=True)
        if row.min() > 0 and bound >= 0
    ]
    return min(found) if found else None


def _least_sum(problem: AllocationProblem) -> float:
    """Return the lower limit that one constraint sets on the sum of bandwidths, else 0."""
    limits = problem.constraints
    found = 0.0
    for row, bound, equal in zip(limits.matrix, limits.bound, limits.equality, strict=True):
        if equal and row.min() > 0:
            found = max(found, float(bound) / float(row.max()))
        elif row.max() < 0 and bound < 0:
            found = max(found, float(bound) / float(row.min()))
    return found
