"""Lists of different lengths, one after another in one array."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints


def starts(counts: npt.ArrayLike) -> Ints:
    """Return where lists of these lengths begin, and where the last one ends."""
    lengths = np.asarray(counts, dtype=np.int64)
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def spread(begin: Ints, counts: Ints) -> Ints:
    """Return the ranges begin[i] .. begin[i] + counts[i], one after another."""
    offsets = starts(counts)
    return np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], counts)


def summed(rows: npt.NDArray[np.integer[Any]], amounts: Floats, count: int) -> Floats:
    """Return what the amounts add up to in each of ``count`` rows."""
    # The type of numpy's sums is that of counts where there is nothing to add up.
    return np.bincount(rows, amounts, count).astype(np.float64, copy=False)


def dependency_order(
    waits: Iterable[int], offsets: Ints, after: Ints
) -> tuple[list[int], list[int]]:
    """Return items in an order in which each comes after all that it waits for.

    Parameters
    ----------
    waits : iterable of int
        For how many each item waits.
    offsets, after : int64 arrays
        Lists of the items that wait for each.

    Returns
    -------
    order, stuck : list of int
        Those that never start, since they are in a cycle or wait for one that is, are in the
        second, ascending.

    Examples
    --------
    >>> dependency_order([0, 1, 1], np.array([0, 1, 1, 2]), np.array([1, 2]))
    ([0, 1], [2])
    """
    left = list(waits)
    begin, follow = offsets.tolist(), after.tolist()
    order = [item for item, count in enumerate(left) if count == 0]
    for item in order:
        for other in follow[begin[item] : begin[item + 1]]:
            left[other] -= 1
            if left[other] == 0:
                order.append(other)
    return order, [item for item, count in enumerate(left) if count > 0]
