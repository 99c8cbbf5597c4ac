"""The compiled part of folding a task graph: what elements put on links of each kind."""

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import kernel


@kernel
def orbit_loads(
    order: Ints,
    begin: Ints,
    end: Ints,
    turn: Ints,
    links: SmallInts,
    weights: Floats,
    image: Ints,
    orbit: Ints,
    slowness: Floats,
    room: int,
) -> tuple[Ints, Ints, Ints, Floats]:
    """Add up the entries of rows by kind of link.

    Parameters
    ----------
    order : int64 array, shape (rows,)
        The rows, by ``turn``.
    begin, end : int64 arrays, shape (rows,)
        Their entries.
    turn : int64 array, shape (rows,)
        How often a row is to be rotated before it is what it stands for.
    links, weights : arrays
        Of all entries.
    image : int64 array, shape (links,)
        On which link the rotation maps each link.
    orbit : int64 array, shape (links,)
        Kind of each link.
    slowness : float64 array, shape (links,)
        Seconds a byte.
    room : int
        Sums that there may be.

    Returns
    -------
    counts : int64 array, shape (rows,)
        Kinds that each row has.
    slowest : int64 array, shape (rows,)
        Its entry that takes longest; -1 of an empty row.
    kind : int64 array
        Of the rows in this order, each kind, ascending.
    total : float64 array
        Sum of its weights.
    """
    counts = np.zeros(order.size, np.int64)
    slowest = np.full(order.size, -1, np.int64)
    kind = np.empty(room, np.int64)
    total = np.empty(room, np.float64)
    kinds = 0
    for link in range(orbit.size):
        kinds = max(kinds, orbit[link] + 1)
    held = np.zeros(kinds, np.float64)
    met = np.zeros(kinds, np.bool_)
    own, moved = orbit.copy(), orbit.copy()
    turns = 0
    used = 0
    for row in order:
        while turns < turn[row]:
            for link in range(orbit.size):
                moved[link] = own[image[link]]
            own, moved = moved, own
            turns += 1
        longest = -1.0
        for entry in range(begin[row], end[row]):
            at = own[links[entry]]
            held[at] += weights[entry]
            met[at] = True
            seconds = weights[entry] * slowness[links[entry]]
            if seconds > longest:
                longest, slowest[row] = seconds, entry
        if longest < 0.0:
            continue
        for at in range(kinds):
            if met[at]:
                kind[used], total[used] = at, held[at]
                used += 1
                counts[row] += 1
                held[at], met[at] = 0.0, False
    return counts, slowest, kind[:used].copy(), total[:used].copy()
