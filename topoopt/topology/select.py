"""SelectPermutations: which of a group's ring orderings to wire.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4: steps close to the geometric sequence
1, x, x^2, ... with x = n^(1/d), so that every distance is a sum of few steps and the diameter
is O(d n^(1/d)).
"""

import math

from codesign_base import InputError
from topoopt.topology.totient import totient_permutations


def select_permutations(n: int, d_k: int, bidirectional: bool = False) -> tuple[int, ...]:
    """Choose the coprime steps nearest to n^(i / d_k), i = 0 .. d_k - 1.

    Parameters
    ----------
    n : int
        Servers in the group, at least 2.
    d_k : int
        Number of ring steps wanted. In bidirectional mode each stands for +p and -p.
    bidirectional : bool
        Steps p and n - p make the same pair of rings, so only p <= n / 2 are considered.

    Returns
    -------
    tuple of int
        Distinct steps in the order of the sequence, the first of which is 1; fewer than ``d_k``
        if the coprime ones run out.

    Raises
    ------
    InputError
        If n is below 2, or ``d_k`` is negative.

    Notes
    -----
    Ties go to the lower step; a step already taken is passed over for the next nearest.
    """
    pool = _pool(n, d_k)
    if bidirectional:
        pool = sorted({min(p, n - p) for p in pool})
    chosen: list[int] = []
    for aim in _aims(n, d_k):
        if not pool:
            break
        step = min(pool, key=lambda p: (abs(p - aim), p))
        pool.remove(step)
        chosen.append(step)
    return tuple(chosen)


def artifact_generators(n: int, degree: int, bidirectional: bool = True) -> tuple[int, ...]:
    """Choose steps as the published TopoOpt code does: round the sequence up, not to nearest.

    Parameters
    ----------
    n : int
        Servers, at least 2.
    degree : int
        Ports a server: half as many steps in bidirectional mode, one a port otherwise.
    bidirectional : bool
        The published code knows only bidirectional rings.

    Returns
    -------
    tuple of int
        Distinct steps, no two of which are each other's reverse in bidirectional mode.

    Raises
    ------
    InputError
        If n is below 2 or the degree negative.

    Notes
    -----
    The smallest coprime that is at least n^(i / d) reproduces the lists that the code ships:
    n = 16 with 4 and 8 ports {1, 5} and {1, 3, 5, 9}, n = 128 {1, 13} and {1, 5, 13, 39}.
    Where none is left above, the largest below is taken.
    """
    steps = degree // 2 if bidirectional else degree
    pool = _pool(n, steps)
    chosen: list[int] = []
    for aim in _aims(n, steps):
        if not pool:
            break
        above = [p for p in pool if p >= aim]
        step = above[0] if above else pool[-1]
        chosen.append(step)
        pool = [p for p in pool if p != step and not (bidirectional and p == n - step)]
    return tuple(chosen)


def _pool(n: int, steps: int) -> list[int]:
    """Return the coprime steps, ascending."""
    if steps < 0:
        raise InputError(f"{steps} ring steps wanted; give zero or more")
    return list(totient_permutations(n))


def _aims(n: int, steps: int) -> list[float]:
    """Return n^(i / steps), exact where it is an integer."""
    aims = [n ** (i / steps) for i in range(steps)]
    return [float(round(a)) if math.isclose(a, round(a), rel_tol=1e-12) else a for a in aims]
