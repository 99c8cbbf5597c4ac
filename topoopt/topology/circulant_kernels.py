"""Compiled search for circulant generator sets, and for who sits where on them."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel


@kernel
def offset_distances(n: int, steps: Ints, distance: Ints, queue: Ints) -> int:
    """Fill the hops of every offset modulo n; return the farthest, or -1 if one is not reached.

    ``steps`` are all directed steps in 1 .. n-1. ``distance`` and ``queue`` have n entries.
    """
    for offset in range(n):
        distance[offset] = -1
    distance[0] = 0
    queue[0] = 0
    head, tail = 0, 1
    while head < tail:
        here = queue[head]
        head += 1
        for k in range(steps.size):
            there = here + steps[k]
            if there >= n:
                there -= n
            if distance[there] < 0:
                distance[there] = distance[here] + 1
                queue[tail] = there
                tail += 1
    return distance[queue[tail - 1]] if tail == n else -1


@kernel
def step_cost(
    n: int, steps: Ints, weight: Floats, farthest_weight: float, distance: Ints, queue: Ints
) -> float:
    """Return sum of weight x hops plus ``farthest_weight`` x diameter; infinite if unreached."""
    farthest = offset_distances(n, steps, distance, queue)
    if farthest < 0:
        return np.inf
    cost = farthest_weight * farthest
    for offset in range(1, n):
        cost += weight[offset] * distance[offset]
    return cost


@kernel
def _set_step(steps: Ints, slot: int, step: int, n: int, both_ways: bool) -> None:
    """Write one generator (and its reverse) at its slot among the directed steps."""
    if both_ways:
        steps[2 * slot] = step
        steps[2 * slot + 1] = n - step
    else:
        steps[slot] = step


@kernel
def every_set(
    n: int,
    steps: Ints,
    first: int,
    choose: int,
    pool: Ints,
    both_ways: bool,
    weight: Floats,
    farthest_weight: float,
    floor: float,
) -> Ints:
    """Try every choice of ``choose`` generators of the pool; stop at one no worse than floor.

    ``steps`` holds the directed steps; generators ``first .. first + choose - 1`` are tried,
    the others stay. Returns pool indices; the first best counts.
    """
    picked = np.arange(choose)
    best = picked.copy()
    lowest = np.inf
    distance = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    while True:
        for k in range(choose):
            _set_step(steps, first + k, pool[picked[k]], n, both_ways)
        cost = step_cost(n, steps, weight, farthest_weight, distance, queue)
        if cost < lowest:
            lowest = cost
            for k in range(choose):
                best[k] = picked[k]
            if lowest <= floor:
                break
        at = choose - 1
        while at >= 0 and picked[at] == pool.size - choose + at:
            at -= 1
        if at < 0:
            break
        picked[at] += 1
        for k in range(at + 1, choose):
            picked[k] = picked[k - 1] + 1
    return best


@kernel
def exchange_generators(
    n: int,
    steps: Ints,
    first: int,
    picked: Ints,
    pool: Ints,
    both_ways: bool,
    weight: Floats,
    farthest_weight: float,
) -> float:
    """Exchange one generator at a time for the best other of the pool until none helps.

    ``picked`` (pool indices) is improved in place. Returns the cost.
    """
    distance = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    used = np.zeros(pool.size, np.int64)
    for k in range(picked.size):
        used[picked[k]] = 1
        _set_step(steps, first + k, pool[picked[k]], n, both_ways)
    lowest = step_cost(n, steps, weight, farthest_weight, distance, queue)
    better = True
    while better:
        better = False
        for k in range(picked.size):
            chosen = picked[k]
            for other in range(pool.size):
                if used[other]:
                    continue
                _set_step(steps, first + k, pool[other], n, both_ways)
                cost = step_cost(n, steps, weight, farthest_weight, distance, queue)
                if cost < lowest:
                    lowest = cost
                    chosen = other
                    better = True
            used[picked[k]] = 0
            used[chosen] = 1
            picked[k] = chosen
            _set_step(steps, first + k, pool[chosen], n, both_ways)
    return lowest


@kernel
def placement_cost(demand: Floats, between: Ints, at: Ints) -> float:
    """Return the sum of bytes x hops where server i sits at place ``at[i]``.

    ``between`` holds the hops from place to place, shape (n, n).
    """
    n = at.size
    cost = 0.0
    for i in range(n):
        for j in range(n):
            if demand[i, j] > 0.0:
                cost += demand[i, j] * between[at[i], at[j]]
    return cost


@kernel
def swap_gain(demand: Floats, between: Ints, at: Ints, u: int, v: int) -> float:
    """Return by how much bytes x hops fall if servers u and v change places."""
    n = at.size
    here, there = at[u], at[v]
    gain = 0.0
    gain += (demand[u, v] - demand[v, u]) * (between[here, there] - between[there, here])
    for w in range(n):
        if w in (u, v):
            continue
        out = demand[u, w] - demand[v, w]
        into = demand[w, u] - demand[w, v]
        if out != 0.0:
            gain += out * (between[here, at[w]] - between[there, at[w]])
        if into != 0.0:
            gain += into * (between[at[w], here] - between[at[w], there])
    return float(gain)


@kernel
def improve_placement(
    demand: Floats, between: Ints, at: Ints, order: Ints, least: float, swaps: int
) -> int:
    """Swap servers' places in place while that gains more than ``least``.

    ``order`` is a shuffle of the servers that says in which order pairs are tried. Returns how
    many of the ``swaps`` evaluations that were allowed are left.
    """
    n = at.size
    better = True
    while better:
        better = False
        for a in range(n):
            for b in range(a + 1, n):
                if swaps <= 0:
                    return 0
                swaps -= 1
                u, v = order[a], order[b]
                if swap_gain(demand, between, at, u, v) > least:
                    held = at[u]
                    at[u] = at[v]
                    at[v] = held
                    better = True
    return swaps
