"""Quantiles of weighted values, for the tables and figures of experiments."""

from collections.abc import Sequence

import numpy as np

from codesign_base.arrays import Floats


def weighted_quantiles(
    values: Floats, weights: Floats, shares: Sequence[float]
) -> list[float | None]:
    """Return the smallest value that at least each share of the weight does not exceed.

    Parameters
    ----------
    values, weights : float64 array, shape (n,)
        Weights of zero or more.
    shares : sequence of float
        In 0 .. 1.

    Returns
    -------
    list of (float or None)
        None without weight.
    """
    order = np.argsort(values, kind="stable")
    ordered, total = values[order], np.cumsum(weights[order])
    if not total.size or total[-1] <= 0:
        return [None] * len(shares)
    # Rounding of the sums must not step past the last value that has weight.
    last = int(np.searchsorted(total, total[-1]))
    places = np.searchsorted(total, np.array(shares) * total[-1] * (1 - 1e-12))
    return [float(ordered[min(int(place), last)]) for place in places]
