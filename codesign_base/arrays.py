"""Names of the arrays that functions take and return, one for each type of element."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SmallInts = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
"""Hashes, and sets of up to 64 members as bits."""
