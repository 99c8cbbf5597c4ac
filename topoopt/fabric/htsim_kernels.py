"""The order in which htsim finds the tasks that are ready at the start."""

import numpy as np

from codesign_base.arrays import Ints
from codesign_base.jit import kernel

_NONE, _HEAD = -1, -2


@kernel
def hash_table_order(ids: Ints, sizes: Ints) -> Ints:
    """Return the places of distinct ids in the order of a hash table that they were put into.

    As libstdc++'s ``unordered_map`` keeps them: one list through all buckets; what goes into an
    empty bucket becomes the first of the list, else the first of its bucket, and the list is
    dealt out anew into more buckets when there are as many ids as buckets.

    Parameters
    ----------
    ids : int64 array
        Not negative, in the order of insertion.
    sizes : int64 array
        Numbers of buckets, ascending; the last must hold all ids.
    """
    count = ids.size
    following = np.full(count, _NONE, np.int64)
    head = int(np.int64(_NONE))
    step = 0
    buckets = int(np.int64(0))
    before = np.full(1, _NONE, np.int64)  # what precedes the first of each bucket
    for place in range(count):
        if place + 1 > buckets:
            buckets = sizes[step]
            step += 1
            before = np.full(buckets, _NONE, np.int64)
            node = head
            head = int(np.int64(_NONE))
            first = int(np.int64(0))  # bucket of the list's first node
            while node != _NONE:
                after = following[node]
                bucket = ids[node] % buckets
                if before[bucket] == _NONE:
                    following[node] = head
                    head = node
                    if following[node] != _NONE:
                        before[first] = node
                    before[bucket] = _HEAD
                    first = bucket
                elif before[bucket] == _HEAD:
                    following[node] = head
                    head = node
                else:
                    following[node] = following[before[bucket]]
                    following[before[bucket]] = node
                node = after
        bucket = ids[place] % buckets
        if before[bucket] == _NONE:
            following[place] = head
            head = place
            if following[place] != _NONE:
                before[ids[following[place]] % buckets] = place
            before[bucket] = _HEAD
        elif before[bucket] == _HEAD:
            following[place] = head
            head = place
        else:
            following[place] = following[before[bucket]]
            following[before[bucket]] = place
    order = np.empty(count, np.int64)
    node = head
    for place in range(count):
        order[place] = node
        node = following[node]
    return order
