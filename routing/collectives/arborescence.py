"""Cheapest spanning trees away from a root (Chu and Liu, 1965; Edmonds, 1967)."""

import numpy as np

from codesign_base.arrays import Floats, Ints


def cheapest_tree(cost: Floats, root: int) -> Ints:
    """Return the parent of each node in a spanning tree of least cost away from the root.

    Parameters
    ----------
    cost : float64 array, shape (n, n)
        Of an arc from row to column, finite except on the diagonal, which is not read.
    root : int

    Returns
    -------
    int64 array, shape (n,)
        The root is its own parent.
    """
    n = cost.shape[0]
    into = cost.copy()
    np.fill_diagonal(into, np.inf)
    parent: Ints = into.argmin(axis=0).astype(np.int64)
    parent[root] = root
    cycle = _cycle(parent, root)
    if not cycle:
        return parent
    # The cycle becomes one node, entered at the price of giving up the arc into the same place.
    inside = np.array(cycle)
    outside = np.setdiff1d(np.arange(n), inside)
    size = outside.size
    smaller = np.full((size + 1, size + 1), np.inf)
    smaller[:size, :size] = cost[np.ix_(outside, outside)]
    enter = cost[np.ix_(outside, inside)] - cost[parent[inside], inside]
    leave = cost[np.ix_(inside, outside)]
    smaller[:size, size] = enter.min(axis=1)
    smaller[size, :size] = leave.min(axis=0)
    above = cheapest_tree(smaller, int(np.searchsorted(outside, root)))
    for at, node in enumerate(outside.tolist()):
        if node != root:
            over = int(above[at])
            parent[node] = inside[leave[:, at].argmin()] if over == size else outside[over]
    entry = int(above[size])
    parent[inside[enter[entry].argmin()]] = outside[entry]
    return parent


def _cycle(parent: Ints, root: int) -> list[int]:
    """Return the nodes of one cycle of parents; none if all lead to the root."""
    seen = np.full(parent.size, -1)
    seen[root] = parent.size
    for start in range(parent.size):
        node = start
        while seen[node] < 0:
            seen[node] = start
            node = int(parent[node])
        if seen[node] == start and node != root:
            found = [node]
            while int(parent[found[-1]]) != node:
                found.append(int(parent[found[-1]]))
            return found
    return []
