"""Edge-disjoint Hamiltonian cycles of any direct-connect wiring, by search."""

import numpy as np

from routing.network import IntArray

_TRIES = 12
# Steps of a search for one cycle, in multiples of the number of servers.
_PATIENCE = 60


def disjoint_cycles(cables: IntArray, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Search for cycles through all servers that share no cable.

    Parameters
    ----------
    cables : int64 array, shape (servers, servers)
        Cables from row to column.
    seed : int

    Returns
    -------
    tuple of tuple of int
        Orders that begin with server 0; the largest set found in a few tries, which may be empty.

    Notes
    -----
    Each cycle is searched for in the cables that the ones before it have left. If every cable has
    one back, by rotations of a path (Posa, Discrete Mathematics, 1976), and every cycle is taken
    both ways. Otherwise by a random cover with cycles, any two of which are joined where two of
    their links can be exchanged for two between them.
    """
    n = cables.shape[0]
    if n < 3:
        return ((0, 1),) * int(min(cables[0, 1], cables[1, 0])) if n == 2 else ()
    both_ways = np.array_equal(cables, cables.T)
    least = int(min(cables.sum(axis=0).min(), cables.sum(axis=1).min()))
    most = least // 2 if both_ways else least
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3000,)))
    best: list[list[int]] = []
    for _ in range(_TRIES):
        left = cables.copy()
        found: list[list[int]] = []
        while len(found) < most:
            cycle = _rotate(left, rng) if both_ways else _join_cover(left, rng)
            if cycle is None:
                break
            order = np.array(cycle)
            left[order, np.roll(order, -1)] -= 1
            if both_ways:
                left[np.roll(order, -1), order] -= 1
            found.append(cycle)
        if len(found) > len(best):
            best = found
        if len(best) == most:
            break
    turned = [cycle[cycle.index(0) :] + cycle[: cycle.index(0)] for cycle in best]
    if both_ways:
        turned = [way for cycle in turned for way in (cycle, [0, *reversed(cycle[1:])])]
    return tuple(tuple(cycle) for cycle in turned)


def _rotate(cables: IntArray, rng: np.random.Generator) -> list[int] | None:
    """Grow a path by a random free neighbour, or turn its end, until it closes on all servers."""
    n = cables.shape[0]
    near = [np.flatnonzero(row).tolist() for row in cables]
    if min(map(len, near)) < 2:
        # Parallel cables between two servers cannot both be in one cycle.
        return None
    path = [int(rng.integers(n))]
    place = [-1] * n
    place[path[0]] = 0
    draws = rng.random(_PATIENCE * n).tolist()
    for draw in draws:
        end = path[-1]
        free = [v for v in near[end] if place[v] < 0]
        if free:
            # The neighbour with the fewest ways on first.
            ways = [sum(place[w] < 0 for w in near[v]) for v in free]
            few = [v for v, way in zip(free, ways, strict=True) if way == min(ways)]
            path.append(few[int(draw * len(few))])
            place[path[-1]] = len(path) - 1
            continue
        if len(path) == n and path[0] in near[end]:
            return path
        turns = [v for v in near[end] if place[v] < len(path) - 2]
        if not turns:
            return None
        keep = place[turns[int(draw * len(turns))]]
        path[keep + 1 :] = path[:keep:-1]
        for position in range(keep + 1, len(path)):
            place[path[position]] = position
    return None


def _join_cover(cables: IntArray, rng: np.random.Generator) -> list[int] | None:
    """Cover all servers with directed cycles, and join them to one."""
    from scipy.optimize import linear_sum_assignment

    n = cables.shape[0]
    allowed = (cables > 0) & ~np.eye(n, dtype=bool)
    rows, after = linear_sum_assignment(np.where(allowed, rng.random((n, n)), n + 1.0))
    if not allowed[rows, after].all():
        return None
    after = after.astype(np.int64)
    while True:
        of = _cycle_of(after)
        if not of.any():
            break
        # u -> after[u] and v -> after[v] become u -> after[v] and v -> after[u].
        swap = allowed[:, after]
        one, other = np.nonzero(swap & swap.T & (of[:, None] != of))
        if one.size == 0:
            return None
        pick = int(rng.integers(one.size))
        u, v = one[pick], other[pick]
        after[u], after[v] = after[v], after[u]
    order = [0]
    while after[order[-1]] != 0:
        order.append(int(after[order[-1]]))
    return order


def _cycle_of(after: IntArray) -> IntArray:
    """Return the number of the cycle that each server is on."""
    of = np.full(after.size, -1, dtype=np.int64)
    number = 0
    for start in range(after.size):
        here = start
        while of[here] < 0:
            of[here] = number
            here = int(after[here])
        number = int(of.max()) + 1
    return of
