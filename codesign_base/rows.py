"""Lists of different lengths, one after another in one array."""

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Ints


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
