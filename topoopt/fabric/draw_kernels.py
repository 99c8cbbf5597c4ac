"""Drawing the paths of messages, with hashes for random numbers."""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import inner_kernel
from routing.fairness_kernels import Floats, Ints, SmallInts

Words = npt.NDArray[np.uint64]


@inner_kernel
def hash_word(value: np.uint64) -> np.uint64:
    """Return a 64-bit hash (the finalizer of splitmix64)."""
    word = value + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@inner_kernel
def draw_path(
    source: int,
    target: int,
    begin: int,
    end: int,
    draw: np.uint64,
    links: SmallInts,
    weights: Floats,
    link_source: Ints,
    link_target: Ints,
    path: SmallInts,
) -> int:
    """Walk a pair's row of links from its source, each link as likely as its share; its hops."""
    node = source
    hops = int(np.int64(0))
    word = draw
    while node != target and hops < path.size:
        total = 0.0
        ways = 0
        only = int(np.int64(-1))
        for entry in range(begin, end):
            if link_source[links[entry]] == node:
                total += weights[entry]
                ways += 1
                only = entry
        if ways == 0:
            return -1
        if ways > 1:
            word = hash_word(word)
            rest = total * (np.float64(word >> np.uint64(11)) / 9007199254740992.0)
            for entry in range(begin, end):
                if link_source[links[entry]] == node:
                    only = entry
                    rest -= weights[entry]
                    if rest < 0.0:
                        break
        path[hops] = links[only]
        node = link_target[links[only]]
        hops += 1
    return hops if node == target else -1
