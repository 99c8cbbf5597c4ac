"""How much transfers yield to AllReduces in one job, as packet trains say of a few pairs.

Packet trains lie between two fluid times: with max-min fair shares of every link, and with
transfers that have only what AllReduces leave. Where on the way depends on the job: on how long the
messages of rings are beside a first window, on how many rings meet on a link, and on how many hops
transfers take. Of a few servers and long messages packets are where fair shares are; of sixteen
servers with four ports each beyond the middle. A search by another score is sent astray: of two
strategies it takes the one that packets like less.
"""

from collections.abc import Iterable
from itertools import islice

import numpy as np

from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Scorer
from topoopt.search.confirm import packet_time

YIELDING = 0.5
"""The weight of transfers that yield where packet trains have not said it."""
# Pairs that packet trains simulate, and by how much the two fluid times of one must differ.
_SIMULATED, _APART = 2, 0.01
# Weights as near as this to 0 and 1 are these, which takes one fluid time instead of two.
_NEAR = 0.1


def measured_yielding(
    problem: Problem, pairs: Iterable[Pair], others: Iterable[Pair] = ()
) -> float:
    """Return how much transfers yield, from packet trains of the first two pairs.

    Parameters
    ----------
    problem : Problem
    pairs : iterable of Pair
        The best first; made only as long as more are needed.
    others : iterable of Pair
        Of which the first two say it where the fluid times of neither of those differ.

    Returns
    -------
    float
        A weight as in `topoopt.evaluate.problem.Problem`: the mean of those that explain the
        packet times; `YIELDING` where the two fluid times of no pair differ.
    """
    weights = _weights(problem, pairs) or _weights(problem, others)
    if not weights:
        return YIELDING
    weight = float(np.mean(weights))
    if weight < _NEAR:
        return 0.0
    return 1.0 if weight > 1.0 - _NEAR else weight


def _weights(problem: Problem, pairs: Iterable[Pair]) -> list[float]:
    found: list[float] = []
    for pair in islice(pairs, _SIMULATED):
        scorer = Scorer(problem.scored(0.0), pair.fabric)
        tasks = problem.family.build(pair.strategy)
        fluid, late = scorer.timed(tasks), scorer.simulate(tasks, transfers_yield=True)
        if late > fluid * (1.0 + _APART):
            share = (packet_time(problem, pair) - fluid) / (late - fluid)
            found.append(float(np.clip(share, 0.0, 1.0)))
    return found
