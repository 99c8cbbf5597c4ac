"""Drawing the paths of messages, with hashes for random numbers."""

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.hash_kernels import hash_word
from codesign_base.jit import inner_kernel


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
