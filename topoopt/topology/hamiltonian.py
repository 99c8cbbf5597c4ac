"""Edge-disjoint Hamiltonian cycles: AllReduce rings that share no cable.

Regular graphs are taken apart into them. The arcs of a regular graph fall into permutations, one a
generator. Two permutations can exchange arcs along any closed trail that alternates between them,
and stay permutations; this is done at random, and mostly kept where cycles merge, until each
permutation is one cycle. In any other wiring as many as can be found are sought, one after another.
"""

from collections.abc import Callable

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from topoopt.base.interrupts import interruptible

# Of regular graphs: temperature of the exchanges, and moves before a search gives up, a vertex
# and ring.
_TEMPERATURE = 0.4
_MOVES = 60
_LEAST_MOVES = 4_000
_ATTEMPTS = 3
# Vertices from which on they may take longer than an interrupt should wait.
_WATCHED_FROM = 128
# Of other wirings: searches, and steps of one for a cycle, in multiples of the servers.
_TRIES = 12
_PATIENCE = 60


def hamiltonian_cycles(
    permutations: Ints,
    wanted: int | None = None,
    *,
    both_ways: bool = False,
    seed: int = 0,
) -> Ints | None:
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
        raise InputError(
            f"{count} cycles wanted of {counted(rows, 'permutation')}; give 1 to {rows}"
        )
    if not both_ways and count == rows and parity(given) != (rows * (n - 1)) % 2:
        return None
    rng = np.random.default_rng(seed)
    for _ in range(_ATTEMPTS):
        draws = rng.random((max(_LEAST_MOVES, _MOVES * n * rows), 4))
        if both_ways:
            beside = np.stack((given, np.argsort(given, axis=1)), axis=2)
            if _merged(merge_links, beside, count, draws) == 0:
                return np.array([_directed(factor) for factor in beside])
        else:
            following = given.copy()
            if _merged(merge_arcs, following, count, draws) == 0:
                return following
        if rows == 1:
            break
    return None


def _merged(merge: Callable[..., int], cycles: Ints, wanted: int, draws: Floats) -> int:
    """Run one of the kernels that merge cycles, so that Ctrl-C is heard where that takes long."""
    return interruptible(
        lambda stop: merge(cycles, wanted, draws, _TEMPERATURE, stop),
        long=cycles.shape[1] >= _WATCHED_FROM,
    )


def parity(permutations: Ints) -> int:
    """Return 1 if the product of the rows is an odd permutation, 0 if it is even.

    Exchanging arcs between two permutations turns both even or both odd, so the product stays as
    it is: r Hamiltonian cycles of n vertices make an odd one where r (n - 1) is odd.
    """
    from topoopt.topology.cayley_kernels import count_cycles

    rows, n = permutations.shape
    seen = np.empty(n, np.int64)
    cycles = sum(int(count_cycles(row, seen)) for row in permutations)
    return int((rows * n - cycles) % 2)


def ring_of(following: Ints) -> tuple[int, ...]:
    """Return the cycle of a permutation that begins with vertex 0."""
    order = [0]
    while following[order[-1]] != 0:
        order.append(int(following[order[-1]]))
    return tuple(order)


def _directed(beside: Ints) -> Ints:
    """Return a permutation that goes round the cycles of a 2-factor."""
    following = np.full(beside.shape[0], -1, dtype=np.int64)
    for start in range(following.size):
        last, here = -1, start
        while following[here] < 0:
            ahead = int(beside[here, 0] if beside[here, 0] != last else beside[here, 1])
            following[here] = ahead
            last, here = here, ahead
    return following


def cycles_of_regular(cables: Ints, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Take a regular wiring apart into as many cycles through all servers as may be.

    Parameters
    ----------
    cables : int64 array, shape (servers, servers)
        Cables from row to column.
    seed : int

    Returns
    -------
    tuple of tuple of int
        Orders that begin with server 0: one for each port of a server or, where parity or luck
        forbids that, one less. Empty where servers have unlike numbers of cables out or in, or so
        many were not found.

    Notes
    -----
    A regular wiring is a sum of permutations (Koenig, 1916), which `hamiltonian_cycles` merges.
    """
    from topoopt.topology.assignment_kernels import cheapest_assignment

    ports = np.unique(np.concatenate((cables.sum(axis=0), cables.sum(axis=1))))
    if ports.size != 1 or ports[0] == 0 or cables.shape[0] < 3:
        return ()
    left, permutations = cables.copy(), []
    for _ in range(int(ports[0])):
        after = cheapest_assignment((left == 0).astype(float))
        left[np.arange(len(after)), after] -= 1
        permutations.append(after)
    for count in range(len(permutations), max(0, len(permutations) - 2), -1):
        found = hamiltonian_cycles(np.array(permutations), count, seed=seed)
        if found is not None:
            return tuple(ring_of(following) for following in found[:count])
    return ()


def disjoint_cycles(cables: Ints, seed: int = 0) -> tuple[tuple[int, ...], ...]:
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


def _rotate(cables: Ints, rng: np.random.Generator) -> list[int] | None:
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


def _join_cover(cables: Ints, rng: np.random.Generator) -> list[int] | None:
    """Cover all servers with directed cycles, and join them to one."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    from topoopt.topology.assignment_kernels import cheapest_assignment

    n = cables.shape[0]
    allowed = (cables > 0) & ~np.eye(n, dtype=bool)
    after = cheapest_assignment(np.where(allowed, rng.random((n, n)), n + 1.0))
    if not allowed[np.arange(n), after].all():
        return None
    while True:
        # The number of the cycle that each server is on.
        of = connected_components(csr_array((np.ones(n), (np.arange(n), after)), shape=(n, n)))[1]
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
    return list(ring_of(after))
