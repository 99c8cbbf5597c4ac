"""Edge-disjoint Hamiltonian cycles: regular graphs taken apart into AllReduce rings.

The arcs of a regular graph fall into permutations, one a generator. Two permutations can exchange
arcs along any closed trail that alternates between them, and stay permutations; this is done at
random, and mostly kept where cycles merge, until each permutation is one cycle.
"""

import numpy as np

from codesign_base import InputError
from routing.network import IntArray

_TEMPERATURE = 0.4
# Moves before a search gives up, a vertex and ring.
_MOVES = 60
_LEAST_MOVES = 4_000


def hamiltonian_cycles(
    permutations: IntArray,
    wanted: int | None = None,
    *,
    both_ways: bool = False,
    seed: int = 0,
    attempts: int = 3,
) -> IntArray | None:
    """Take the union of permutations apart into Hamiltonian cycles.

    Parameters
    ----------
    permutations : int64 array, shape (rows, n)
        Rows i -> ``row[i]`` without fixed points. With ``both_ways`` a row stands for links
        without direction, of which no two may be the same.
    wanted : int, optional
        Cycles wanted; by default one a row.
    both_ways : bool
    seed : int
        Of the exchanges.
    attempts : int
        Starts with other random numbers.

    Returns
    -------
    int64 array, shape (rows, n), or None
        Permutations that together have the same arcs (with ``both_ways``: the same links), the
        first ``wanted`` of them single cycles. None if none were found, which does not mean
        that there are none.

    Raises
    ------
    InputError
        If a row is no permutation without fixed points, or ``wanted`` is out of range.
    """
    from topoopt.topology.cayley_kernels import merge_arcs, merge_links

    given = np.ascontiguousarray(permutations, dtype=np.int64)
    rows, n = given.shape
    if (np.sort(given, axis=1) != np.arange(n)).any() or (given == np.arange(n)).any():
        raise InputError("rows to make cycles of must be permutations without fixed points")
    count = rows if wanted is None else wanted
    if not 1 <= count <= rows:
        raise InputError(f"{count} cycles wanted of {rows} permutations; give 1 to {rows}")
    if not both_ways and count == rows and parity(given) != (rows * (n - 1)) % 2:
        return None
    rng = np.random.default_rng(seed)
    for _ in range(attempts):
        draws = rng.random((max(_LEAST_MOVES, _MOVES * n * rows), 4))
        if both_ways:
            beside = np.stack((given, np.argsort(given, axis=1)), axis=2)
            if merge_links(beside, count, draws, _TEMPERATURE) == 0:
                return np.array([_directed(factor) for factor in beside])
        else:
            following = given.copy()
            if merge_arcs(following, count, draws, _TEMPERATURE) == 0:
                return following
        if rows == 1:
            break
    return None


def parity(permutations: IntArray) -> int:
    """Return 1 if the product of the rows is an odd permutation, 0 if it is even.

    Exchanging arcs between two permutations turns both even or both odd, so the product stays as
    it is: r Hamiltonian cycles of n vertices make an odd one where r (n - 1) is odd.
    """
    from topoopt.topology.cayley_kernels import count_cycles

    rows, n = permutations.shape
    seen = np.empty(n, np.int64)
    cycles = sum(int(count_cycles(row, seen)) for row in permutations)
    return int((rows * n - cycles) % 2)


def ring_of(following: IntArray) -> tuple[int, ...]:
    """Return the cycle of a permutation that begins with vertex 0."""
    order = [0]
    while following[order[-1]] != 0:
        order.append(int(following[order[-1]]))
    return tuple(order)


def _directed(beside: IntArray) -> IntArray:
    """Return a permutation that goes round the cycles of a 2-factor."""
    following = np.full(beside.shape[0], -1, dtype=np.int64)
    for start in range(following.size):
        last, here = -1, start
        while following[here] < 0:
            ahead = int(beside[here, 0] if beside[here, 0] != last else beside[here, 1])
            following[here] = ahead
            last, here = here, ahead
    return following
