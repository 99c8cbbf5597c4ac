"""Compiled broadcast trees over the edges of rings, one from every member."""

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Ints, SmallInts
from codesign_base.jit import kernel

Bytes = npt.NDArray[np.int8]


@kernel
def tree_hops(after: Ints, hops: SmallInts) -> None:
    """Fill in the fewest hops from every member to every other over ring edges.

    Parameters
    ----------
    after : int64 array, shape (rings, members)
        The member after each one on each ring.
    hops : int32 array, shape (members, members)
        Filled: from each root (row) to each member.
    """
    rings, members = after.shape
    queue = np.empty(members, np.int64)
    for root in range(members):
        for member in range(members):
            hops[root, member] = -1
        hops[root, root] = 0
        queue[0] = root
        head, tail = 0, 1
        while head < tail:
            here = queue[head]
            head += 1
            for k in range(rings):
                there = after[k, here]
                if hops[root, there] < 0:
                    hops[root, there] = hops[root, here] + 1
                    queue[tail] = there
                    tail += 1


@kernel
def grow_trees(before: Ints, hops: SmallInts, ring: Bytes, load: Ints) -> None:
    """Grow a tree of fewest hops from every member, over the ring edges that are used least.

    Parameters
    ----------
    before : int64 array, shape (rings, members)
        The member before each one on each ring.
    hops : int32 array, shape (members, members)
        To each member (row, as they are asked for one after another) from each root.
    ring : int8 array, shape (members, members)
        Filled: on which ring each member (row) hears of each root; -1 for the root itself.
    load : int64 array, shape (rings, members)
        Zeros. Filled: how many trees use the edge that leads to each member on each ring.
    """
    rings, members = before.shape
    choices = np.empty(members, np.int64)
    for here in range(members):
        for root in range(members):
            choices[root] = 0
            for k in range(rings):
                if hops[before[k, here], root] + 1 == hops[here, root]:
                    choices[root] += 1
        ring[here, here] = -1
        # Those that have no choice first.
        for free in range(1, rings + 1):
            for root in range(members):
                if choices[root] == free and root != here:
                    least = -1
                    for k in range(rings):
                        nearer = hops[before[k, here], root] + 1 == hops[here, root]
                        if nearer and (least < 0 or load[k, here] < load[least, here]):
                            least = k
                    ring[here, root] = least
                    load[least, here] += 1
