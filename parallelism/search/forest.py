"""The cheapest configurations under costs that add up over operators and edges.

Exact, by dynamic programming over a forest of the model's edges (chains, towers, trees); edges
beyond the forest count nothing.
"""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats
from parallelism.search.space import Degrees


@dataclass(frozen=True)
class SplitCosts:
    """The costs of all configurations of a model's operators.

    Parameters
    ----------
    own : tuple of float64 arrays, shape (own features, configurations)
        One an operator.
    reader : tuple of int
        For each operator the reader that its edge in the forest goes to, -1 for none.
    shared : tuple of (float64 array or None)
        One an operator, for that edge: shape (shared features, configurations, the reader's).
    degrees : tuple of tuple of (sample, parameter, mode)
        What the configurations of each operator are; empty if nobody asks.
    """

    own: tuple[Floats, ...]
    reader: tuple[int, ...]
    shared: tuple[Floats | None, ...]
    degrees: tuple[tuple[Degrees, ...], ...] = ()


def least(choices: SplitCosts, own: Floats, shared: Floats) -> tuple[float, list[int]]:
    """Return the least weighted cost over all strategies, and one that has it.

    Parameters
    ----------
    choices : SplitCosts
    own : float64 array, shape (operators, own features)
    shared : float64 array, shape (operators, shared features)

    Returns
    -------
    float
    list of int
        A configuration an operator (the first of equals).
    """
    count = len(choices.own)
    total = [own[o] @ choices.own[o] for o in range(count)]
    follow: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None] = [None] * count
    value = 0.0
    # Readers come later, so a forward sweep has all that flows into an operator.
    for o in range(count):
        reader = choices.reader[o]
        table = choices.shared[o]
        if reader < 0:
            value += float(total[o].min())
        elif table is None or not shared[o].any():
            total[reader] = total[reader] + float(total[o].min())
        else:
            costs = np.tensordot(shared[o], table, 1) + total[o][:, None]
            follow[o] = costs.argmin(axis=0)
            total[reader] = total[reader] + costs.min(axis=0)
    chosen = [0] * count
    for o in reversed(range(count)):
        best = follow[o]
        chosen[o] = int(total[o].argmin()) if best is None else int(best[chosen[choices.reader[o]]])
    return value, chosen
