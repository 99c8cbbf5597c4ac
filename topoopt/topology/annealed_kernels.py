"""Compiled annealing of networks that a rotation of the servers leaves as they are."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel

# More than any sum of distances.
_FAR = np.int64(1) << 50


@inner_kernel
def _spread(near: Ints, orbits: int, length: Ints, queue: Ints, enough: np.int64) -> np.int64:
    """Return the hops from one server of each orbit to all, summed; ``_FAR`` if not below enough.

    A link that is there twice, or leads nowhere, counts as n hops more.
    """
    n, links = near.shape
    total = np.int64(0)
    for source in range(orbits):
        for v in range(n):
            length[v] = -1
        length[source] = 0
        queue[0] = source
        head, tail = 0, 1
        while head < tail and tail < n:
            here = queue[head]
            head += 1
            hops = length[here] + 1
            for k in range(links):
                there = near[here, k]
                if length[there] < 0:
                    length[there] = hops
                    total += hops
                    queue[tail] = there
                    tail += 1
            if head == 1:
                total += n * (links + 1 - tail)
        if tail < n or total >= enough:
            return _FAR
    return total


@inner_kernel
def _set_links(
    near: Ints, column: int, orbit: int, target: int, shift: int, orbits: int, both_ways: bool
) -> None:
    """Write the links of one orbit in one column, and with both ways those back."""
    turns = near.shape[0] // orbits
    for p in range(turns):
        there = (p + shift) % turns * orbits + target
        if both_ways:
            near[p * orbits + orbit, 2 * column] = there
            near[there, 2 * column + 1] = p * orbits + orbit
        else:
            near[p * orbits + orbit, column] = there


@kernel
def anneal_links(
    near: Ints, target: Ints, shift: Ints, both_ways: bool, odd: int, draws: Floats, hot: float,
    stop: Ints,
) -> int:  # fmt: skip
    """Exchange the ends of orbits of links until paths are short on the mean.

    Parameters
    ----------
    near : int64 array, shape (n, links)
        Where the links of each server lead: of column k at k, with ``both_ways`` at 2 k and those
        back at 2 k + 1. Columns beyond those of ``target`` stay. Server i + orbits p is server i
        turned p times. Changed in place.
    target, shift : int64 arrays, shape (orbits, columns)
        A link of server i leads to ``target[i]`` turned ``shift[i]`` times; each column of
        ``target`` is a permutation. The best that was found is left here and in ``near``.
    both_ways : bool
    odd : int
        Whether the columns' product as permutations of the servers must be odd; -1: either.
    draws : float64 array, shape (moves, 6)
        Random numbers in [0, 1).
    hot : float
        Temperature of the first move, in hops summed over all servers from one of each orbit; it
        falls to 0 in a line.
    stop : int64 array, shape (1,)
        No move is made from when it is not zero; another thread may write to it.

    Returns
    -------
    int
        Those hops of the best network; more than 2^49 if none that serves was found.
    """
    orbits, columns = target.shape
    n = near.shape[0]
    turns = n // orbits
    length = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    now = _spread(near, orbits, length, queue, _FAR)
    parity = _parity(target, shift, turns, queue)
    best = now if odd < 0 or parity == odd else _FAR
    best_target = np.empty_like(target)
    best_shift = np.empty_like(shift)
    for i in range(orbits):
        for k in range(columns):
            best_target[i, k] = target[i, k]
            best_shift[i, k] = shift[i, k]
    moves = draws.shape[0]
    for move in range(moves):
        if stop[0] != 0:
            break
        k = min(int(draws[move, 0] * columns), columns - 1)
        a = min(int(draws[move, 1] * orbits), orbits - 1)
        b = min(int(draws[move, 2] * orbits), orbits - 1)
        to_a, to_b, by_a, by_b = target[a, k], target[b, k], shift[a, k], shift[b, k]
        target[a, k] = to_b
        target[b, k] = to_a
        shift[a, k] = min(int(draws[move, 3] * turns), turns - 1)
        if a != b and draws[move, 4] < 0.5:
            shift[b, k] = min(int(2.0 * draws[move, 4] * turns), turns - 1)
        _set_links(near, k, a, target[a, k], shift[a, k], orbits, both_ways)
        _set_links(near, k, b, target[b, k], shift[b, k], orbits, both_ways)
        limit = now - hot * (1.0 - move / moves) * np.log(1.0 - draws[move, 5])
        then = _spread(near, orbits, length, queue, min(np.int64(limit) + 1, _FAR))
        if then < _FAR:
            now = then
            turned = (shift[a, k] - by_a) + (shift[b, k] - by_b if a != b else 0)
            parity = (parity + (turns - 1) * turned + (turns if a != b else 0)) % 2
            if now < best and (odd < 0 or parity == odd):
                best = now
                for i in range(orbits):
                    for c in range(columns):
                        best_target[i, c] = target[i, c]
                        best_shift[i, c] = shift[i, c]
        else:
            target[a, k] = to_a
            target[b, k] = to_b
            shift[a, k] = by_a
            shift[b, k] = by_b
            _set_links(near, k, a, to_a, by_a, orbits, both_ways)
            _set_links(near, k, b, to_b, by_b, orbits, both_ways)
    for i in range(orbits):
        for k in range(columns):
            target[i, k] = best_target[i, k]
            shift[i, k] = best_shift[i, k]
            _set_links(near, k, i, target[i, k], shift[i, k], orbits, both_ways)
    return int(best)


@inner_kernel
def _parity(target: Ints, shift: Ints, turns: int, seen: Ints) -> int:
    """Return 1 if the product of the columns, as permutations of the servers, is odd."""
    orbits, columns = target.shape
    odd = 0
    for k in range(columns):
        for i in range(orbits):
            seen[i] = 0
        for i in range(orbits):
            # A turn of all servers of an orbit by one place is a cycle of ``turns``.
            odd += (turns - 1) * shift[i, k]
            if seen[i]:
                continue
            here = i
            while not seen[here]:
                seen[here] = 1
                here = target[here, k]
                odd += turns if here != i else 0
    return odd % 2
