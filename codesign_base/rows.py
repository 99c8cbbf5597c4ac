"""Lists of different lengths, one after another in one array."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def starts(counts: npt.ArrayLike) -> IntArray:
    """Return where lists of these lengths begin, and where the last one ends."""
    lengths = np.asarray(counts, dtype=np.int64)
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def spread(begin: IntArray, counts: IntArray) -> IntArray:
    """Return the ranges begin[i] .. begin[i] + counts[i], one after another."""
    offsets = starts(counts)
    return np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], counts)
