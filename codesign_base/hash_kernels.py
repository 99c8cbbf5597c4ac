"""A hash of words, inside kernels."""

import numpy as np

from codesign_base.jit import inner_kernel


@inner_kernel
def hash_word(value: np.uint64) -> np.uint64:
    """Return a 64-bit hash (splitmix64)."""
    word = value + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
