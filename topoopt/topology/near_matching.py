"""A matching of many servers within a proven gap of the best, where the exact one takes long."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from topoopt.topology.assignment_kernels import cheapest_assignment
from topoopt.topology.matching_kernels import exchange_partners


def near_matching(weight: Floats) -> tuple[list[tuple[int, int]], float]:
    """Match vertices by the assignment relaxation and exchanges of partners.

    Parameters
    ----------
    weight : float64 array, shape (n, n)
        Symmetric, not negative, zero diagonal.

    Returns
    -------
    edges : list of (int, int)
        Pairs with positive weight, low vertex first, sorted.
    gap : float
        No matching weighs more than ``1 + gap`` times this one.

    Notes
    -----
    The best assignment of vertices to vertices weighs at least twice the best matching. Its even
    cycles split into two matchings, the heavier of which loses nothing; of an odd cycle the best
    vertex is left out, and those left out are joined to one another. Exchanging partners makes
    up for some of it.
    """
    n = weight.shape[0]
    even = n + n % 2
    padded = np.zeros((even, even))
    padded[:n, :n] = weight
    barred = padded.copy()
    np.fill_diagonal(barred, -1.0)
    assigned = cheapest_assignment(-barred)
    relaxed = float(padded[np.arange(even), assigned].sum()) / 2.0
    partner = _split_cycles(padded, assigned)
    top = float(padded.max(initial=0.0))
    exchange_partners(padded, partner, 1e-12 * top)
    matched = float(padded[np.arange(even), partner].sum()) / 2.0
    pairs = [(a, b) for a, b in enumerate(partner.tolist()) if a < b and padded[a, b] > 0]
    gap = relaxed / matched - 1.0 if matched > 0 else 0.0
    return pairs, max(gap, 0.0)


def _split_cycles(weight: Floats, assigned: Ints) -> Ints:
    """Return a perfect matching made of an assignment's cycles."""
    n = assigned.size
    partner = np.full(n, -1, dtype=np.int64)
    seen = np.zeros(n, dtype=np.bool_)
    alone: list[int] = []
    for start in range(n):
        if seen[start]:
            continue
        cycle = [start]
        seen[start] = True
        while not seen[assigned[cycle[-1]]]:
            cycle.append(int(assigned[cycle[-1]]))
            seen[cycle[-1]] = True
        alone += _match_cycle(weight, cycle, partner)
    for a, b in zip(alone[::2], alone[1::2], strict=True):
        partner[a], partner[b] = b, a
    return partner


def _match_cycle(weight: Floats, cycle: list[int], partner: Ints) -> list[int]:
    """Match a cycle's neighbours as heavily as possible; return the vertex left out, if any."""
    size = len(cycle)
    if size == 1:
        return cycle
    around = np.array(cycle)
    edges = weight[around, np.roll(around, -1)]
    # The matching that leaves out vertex s of an odd cycle takes edges s + 1, s + 3, ...
    starts = range(2) if size % 2 == 0 else range(size)
    doubled = np.concatenate((edges, edges))
    pairs = size // 2
    sums = [float(doubled[s + 1 : s + 2 * pairs : 2].sum()) for s in starts]
    best = int(np.argmax(sums))
    for k in range(pairs):
        a, b = cycle[(best + 1 + 2 * k) % size], cycle[(best + 2 + 2 * k) % size]
        partner[a], partner[b] = b, a
    return [cycle[best]] if size % 2 else []
