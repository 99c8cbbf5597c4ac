"""The least of a weighted sum of bounds over all strategies, and the weights that raise it most.

Each *term* is a lower bound on the iteration time of a strategy that is a sum over its operators
and over its edges. A strategy may make any one of them small, but hardly all at once: it pays
for less AllReduce with slower operators or more transfers. For any weights that sum to 1 the
weighted sum is a bound for that strategy, too, and so its minimum over all strategies is one for
everything (Lagrangian relaxation). The minimum is exact over a forest of the model's edges, by
dynamic programming; edges beyond the forest count nothing.
"""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats
from parallelism.search.forest import SplitCosts, least

ROUNDS = 100
_CLOSE = 1e-4


@dataclass(frozen=True)
class Terms:
    """Bounds as sums over operators and edges, with a right-hand side.

    Parameters
    ----------
    names : tuple of str
    own : float64 array, shape (terms, operators, own features)
        How often each feature counts.
    shared : float64 array, shape (terms, operators, shared features)
        The same for the edge of each operator in the forest.
    """

    names: tuple[str, ...]
    own: Floats
    shared: Floats


def values(choices: SplitCosts, terms: Terms, chosen: list[int]) -> Floats:
    """Return every term of one strategy, shape (terms,)."""
    own = np.stack([table[:, c] for table, c in zip(choices.own, chosen, strict=True)])
    shared = np.zeros(terms.shared.shape[1:])
    for o, (table, reader) in enumerate(zip(choices.shared, choices.reader, strict=True)):
        if reader >= 0 and table is not None:
            shared[o] = table[:, chosen[o], chosen[reader]]
    result: Floats = np.tensordot(terms.own, own, 2) + np.tensordot(terms.shared, shared, 2)
    return result


def weighted(choices: SplitCosts, terms: Terms, weights: Floats) -> tuple[float, list[int]]:
    """Return the least weighted sum of the terms over all strategies, and one that has it."""
    return least(
        choices, np.tensordot(weights, terms.own, 1), np.tensordot(weights, terms.shared, 1)
    )


def best_weights(choices: SplitCosts, terms: Terms) -> tuple[float, Floats]:
    """Return the highest of these bounds, and the weights that give it.

    Cutting planes: strategies found so far, first those that make a single term least, bound
    from above what any weights can give; the next weights lie between those that would be best
    if these were all, and the best so far.

    Parameters
    ----------
    choices : SplitCosts
    terms : Terms

    Returns
    -------
    float
    float64 array, shape (terms,)
    """
    from scipy.optimize import linprog

    count = len(terms.names)
    rows: list[Floats] = []
    best, weights = -np.inf, np.zeros(count)
    trials = list(np.eye(count))
    for _ in range(ROUNDS):
        for trial in trials:
            value, chosen = weighted(choices, terms, trial)
            if value > best:
                best, weights = value, trial
            rows.append(values(choices, terms, chosen))
        # Maximise t subject to t <= weights . row for every strategy found.
        scale = max(float(np.max(rows)), 1e-300)
        solved = linprog(
            np.append(np.zeros(count), -1.0),
            A_ub=np.column_stack((-np.array(rows) / scale, np.ones(len(rows)))),
            b_ub=np.zeros(len(rows)),
            A_eq=np.append(np.ones(count), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * count + [(None, None)],
            method="highs-ds",
        )
        if solved.x is None or solved.x[-1] * scale <= best * (1.0 + _CLOSE):
            break
        fresh = np.maximum(solved.x[:-1], 0.0)
        trials = [0.5 * (fresh / fresh.sum()) + 0.5 * weights]
    return best, weights
