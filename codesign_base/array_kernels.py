"""Copies between arrays, inside kernels.

Where kernels write ``into[:] = values``, numba compiles the general case of overlapping and
strided arrays, which takes seconds a process.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from codesign_base.jit import inner_kernel, kernel

Numbers = TypeVar("Numbers", npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float64])


@inner_kernel
def copy_into(into: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    """Write the values to the first places of an array that is as long or longer."""
    for place in range(values.size):
        into[place] = values[place]


@kernel
def grown(array: Numbers, needed: int) -> Numbers:
    """Return the array, or a copy at least twice as long if it is shorter than needed."""
    if needed <= array.size:
        return array
    bigger = np.empty(max(needed, 2 * array.size), array.dtype)
    copy_into(bigger, array)
    return bigger
