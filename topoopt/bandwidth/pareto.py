"""The frontier of iteration time against cost."""

from dataclasses import replace

import numpy as np

from codesign_base import InputError
from topoopt.bandwidth.problem import Objective, Problem
from topoopt.bandwidth.solver import Solution, solve


def pareto_frontier(problem: Problem, points: int = 20, slowest: float = 2.0) -> list[Solution]:
    """Return optimal trade-offs of time and cost, from the fastest to the cheapest.

    Parameters
    ----------
    problem : Problem
        Its objective does not matter; its constraints hold on the whole frontier.
    points : int, optional
        Number of trade-offs, at least 2.
    slowest : float, optional
        Where the frontier ends: this many times the fastest iteration.

    Returns
    -------
    list of Solution
        By increasing time and falling cost. The first is PerfOpt; the others have the least
        cost under deadlines in geometric steps, fewer if the deadlines stop binding.

    Raises
    ------
    InputError
        If a number is out of range, or the problem has no answer.
    """
    if points < 2:
        raise InputError(f"frontier of {points} points; give at least 2")
    if not 1 < slowest < float("inf"):
        raise InputError(f"frontier up to {slowest} times the fastest; give a factor above 1")
    found = [solve(replace(problem, objective=Objective.TIME, deadline=None))]
    fastest = found[0].time
    for factor in np.geomspace(1.0, slowest, points)[1:]:
        asked = replace(problem, objective=Objective.COST, deadline=fastest * float(factor))
        answer = solve(asked, found[-1].bandwidth)
        if answer.cost > found[-1].cost * (1 - 1e-7):
            break  # the constraints, not the deadline, hold the cost
        found.append(answer)
    return found
