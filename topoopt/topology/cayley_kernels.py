"""Compiled search for Cayley graphs with short paths, and for Hamiltonian cycles in them."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel


@kernel
def word_lengths(right: Ints, steps: Ints, length: Ints, queue: Ints) -> int:
    """Fill how many steps make each element; return the most, or -1 if one is not made.

    ``right[s, g]`` is the element g s. ``length`` and ``queue`` have as many entries as there
    are elements; element 0 is the identity.
    """
    n = length.size
    for g in range(n):
        length[g] = -1
    length[0] = 0
    queue[0] = 0
    head, tail = 0, 1
    while head < tail:
        here = queue[head]
        head += 1
        for k in range(steps.size):
            there = right[steps[k], here]
            if length[there] < 0:
                length[there] = length[here] + 1
                queue[tail] = there
                tail += 1
    return length[queue[tail - 1]] if tail == n else -1


@inner_kernel
def _cost_below(
    right: Ints,
    steps: Ints,
    by_farthest: float,
    length: Ints,
    queue: Ints,
    enough: float,
) -> float:
    """Return the cost of a set, or infinity as soon as it cannot be less than ``enough``."""
    n = length.size
    for g in range(n):
        length[g] = -1
    length[0] = 0
    queue[0] = 0
    head, tail, level_end = 0, 1, 1
    level, total = 0, 0
    while head < tail:
        if head == level_end:
            level += 1
            level_end = tail
        # What is not made yet takes a step more than this level, or two.
        left = n - tail
        near = min(left, (level_end - head) * steps.size)
        least = total + left * (level + 2) - near
        farthest = level + (0 if left == 0 else 1 if left == near else 2)
        if least + by_farthest * farthest >= enough:
            return np.inf
        here = queue[head]
        head += 1
        for k in range(steps.size):
            there = right[steps[k], here]
            if length[there] < 0:
                length[there] = level + 1
                total += level + 1
                queue[tail] = there
                tail += 1
        if tail == n:
            break
    if tail < n:
        return np.inf
    return float(total + by_farthest * length[queue[tail - 1]])


@kernel
def set_costs(right: Ints, steps: Ints, by_farthest: float) -> Floats:
    """Return each set's cost: the sum of word lengths and, weighted, the longest.

    Infinite if not all elements are made. ``steps``, shape (sets, degree), holds what each
    set is made of.
    """
    n = right.shape[1]
    length, queue = np.empty(n, np.int64), np.empty(n, np.int64)
    costs = np.empty(steps.shape[0])
    for row in range(steps.shape[0]):
        costs[row] = _cost_below(right, steps[row], by_farthest, length, queue, np.inf)
    return costs


@kernel
def exchange_units(
    right: Ints,
    units: Ints,
    picked: Ints,
    low: Ints,
    high: Ints,
    by_farthest: float,
) -> tuple[float, int]:
    """Exchange one unit at a time for the best other of its kind until none helps.

    ``units`` (rows of a step and its inverse, or of the same step twice) come kind by kind;
    slot k holds unit ``picked[k]``, one of ``low[k] .. high[k] - 1``, and is improved in place.
    Returns the cost and the number of sets tried.
    """
    n = right.shape[0]
    length = np.empty(n, np.int64)
    queue = np.empty(n, np.int64)
    slots = picked.size
    begin = np.zeros(slots + 1, np.int64)
    used = np.zeros(units.shape[0], np.int64)
    for k in range(slots):
        begin[k + 1] = begin[k] + (1 if units[picked[k], 0] == units[picked[k], 1] else 2)
        used[picked[k]] = 1
    steps = np.empty(begin[slots], np.int64)
    for k in range(slots):
        steps[begin[k]] = units[picked[k], 0]
        steps[begin[k + 1] - 1] = units[picked[k], 1]
    lowest = _cost_below(right, steps, by_farthest, length, queue, np.inf)
    tried = 1
    better = True
    while better:
        better = False
        for k in range(slots):
            chosen = picked[k]
            for other in range(low[k], high[k]):
                if used[other]:
                    continue
                steps[begin[k]] = units[other, 0]
                steps[begin[k + 1] - 1] = units[other, 1]
                cost = _cost_below(right, steps, by_farthest, length, queue, lowest)
                tried += 1
                if cost < lowest:
                    lowest = cost
                    chosen = other
                    better = True
            used[picked[k]] = 0
            used[chosen] = 1
            picked[k] = chosen
            steps[begin[k]] = units[chosen, 0]
            steps[begin[k + 1] - 1] = units[chosen, 1]
    return lowest, tried


@kernel
def count_cycles(following: Ints, seen: Ints) -> int:
    """Return the number of cycles of a permutation; ``seen`` has as many entries."""
    for v in range(following.size):
        seen[v] = 0
    cycles = 0
    for v in range(following.size):
        if seen[v]:
            continue
        cycles += 1
        w = v
        while not seen[w]:
            seen[w] = 1
            w = following[w]
    return cycles


@kernel
def swap_closed(one: Ints, other: Ints, before_one: Ints, start: int) -> None:
    """Exchange the arcs of ``start`` between two permutations, and all that must follow.

    ``before_one`` is the inverse of ``one``. Doing it twice changes nothing.
    """
    v = start
    while True:
        mine, theirs = one[v], other[v]
        one[v] = theirs
        other[v] = mine
        # Two arcs of the one now lead to ``theirs``: the older must go, too.
        v = before_one[theirs]
        if v == start:
            break
    for w in range(one.size):
        before_one[one[w]] = w


@kernel
def merge_arcs(following: Ints, wanted: int, draws: Floats, temperature: float, stop: Ints) -> int:
    """Exchange arcs between permutations until each of the first is a single cycle.

    Parameters
    ----------
    following : int64 array, shape (rows, n)
        Permutations; changed in place, the arcs of all together stay.
    wanted : int
        Rows that are to be single cycles.
    draws : float64 array, shape (moves, 4)
        Random numbers in [0, 1): how many moves are made, and which.
    temperature : float
        A move that makes one cycle more is kept with probability exp(-1 / temperature).
    stop : int64 array, shape (1,)
        No move is made from when it is not zero; another thread may write to it.

    Returns
    -------
    int
        Cycles that are left in the first rows, less ``wanted``.
    """
    rows, n = following.shape
    seen = np.empty(n, np.int64)
    before = np.empty(n, np.int64)
    cycles = np.zeros(rows, np.int64)
    for k in range(wanted):
        cycles[k] = count_cycles(following[k], seen)
    total = cycles.sum() - wanted
    for move in range(draws.shape[0]):
        if total == 0 or rows < 2 or stop[0] != 0:
            break
        a = min(int(draws[move, 0] * wanted), wanted - 1)
        b = (a + 1 + min(int(draws[move, 1] * (rows - 1)), rows - 2)) % rows
        v = min(int(draws[move, 2] * n), n - 1)
        if following[a, v] == following[b, v]:
            continue
        for w in range(n):
            before[following[a, w]] = w
        swap_closed(following[a], following[b], before, v)
        now_a = count_cycles(following[a], seen)
        now_b = count_cycles(following[b], seen) if b < wanted else 0
        more = now_a + now_b - cycles[a] - cycles[b]
        if more <= 0 or draws[move, 3] < np.exp(-more / temperature):
            cycles[a], cycles[b] = now_a, now_b
            total += more
        else:
            swap_closed(following[a], following[b], before, v)
    return int(total)


@kernel
def count_rounds(beside: Ints, seen: Ints) -> int:
    """Return the number of cycles of a 2-factor, ``beside[v]`` the two neighbours of v."""
    for v in range(seen.size):
        seen[v] = 0
    cycles = 0
    for v in range(seen.size):
        if seen[v]:
            continue
        cycles += 1
        last, here = -1, v
        while not seen[here]:
            seen[here] = 1
            ahead = beside[here, 0] if beside[here, 0] != last else beside[here, 1]
            last = here
            here = ahead
    return cycles


@kernel
def random_trail(
    beside: Ints, a: int, b: int, start: int, state: int, trail: Ints, used: Ints
) -> tuple[int, int]:
    """Walk over links of two 2-factors in turn, no link twice, until the walk is closed.

    Rows of ``trail`` become a vertex and which of its two links in factor a and in factor b the
    walk takes. ``used``, shape (n, 2, 2), is zero before and after. Returns the number of rows,
    0 if the walk ended elsewhere, and the next state of the random numbers.
    """
    count, phase, closed = 0, 0, False
    here = start
    trail[0, 0] = start
    while True:
        factor = b if phase else a
        state = (state * 1103515245 + 12345) % 2147483648
        slot = (state >> 16) % 2
        if used[here, phase, slot]:
            slot = 1 - slot
        if used[here, phase, slot]:
            break
        used[here, phase, slot] = 1
        trail[count, 1 + phase] = slot
        ahead = beside[factor, here, slot]
        back = 0 if beside[factor, ahead, 0] == here else 1
        used[ahead, phase, back] = 1
        if phase == 1 and ahead == start:
            trail[0, 2] = back
            closed = True
            break
        count += 1
        trail[count, 0] = ahead
        trail[count, 1 + phase] = back
        here = ahead
        phase = 1 - phase
    for i in range(count + 1):
        for place in range(4):
            used[trail[i, 0], place // 2, place % 2] = 0
    return (count + 1 if closed else 0), state


@kernel
def swap_trail(beside: Ints, a: int, b: int, trail: Ints, count: int) -> None:
    """Exchange the links of a closed trail between two 2-factors."""
    for i in range(count):
        v, mine, theirs = trail[i, 0], trail[i, 1], trail[i, 2]
        held = beside[a, v, mine]
        beside[a, v, mine] = beside[b, v, theirs]
        beside[b, v, theirs] = held


@kernel
def merge_links(beside: Ints, wanted: int, draws: Floats, temperature: float, stop: Ints) -> int:
    """Exchange links between 2-factors until each of the first is a single cycle.

    ``beside``, shape (rows, n, 2), holds the two neighbours of every vertex in each factor, no
    link twice; the rest is as in `merge_arcs`.
    """
    rows, n = beside.shape[0], beside.shape[1]
    seen = np.empty(n, np.int64)
    trail = np.zeros((2 * n + 2, 3), np.int64)
    used = np.zeros((n, 2, 2), np.int64)
    cycles = np.zeros(rows, np.int64)
    for k in range(wanted):
        cycles[k] = count_rounds(beside[k], seen)
    total = cycles.sum() - wanted
    for move in range(draws.shape[0]):
        if total == 0 or rows < 2 or stop[0] != 0:
            break
        a = min(int(draws[move, 0] * wanted), wanted - 1)
        b = (a + 1 + min(int(draws[move, 1] * (rows - 1)), rows - 2)) % rows
        state = int(draws[move, 2] * 2147483647.0)
        count, state = random_trail(beside, a, b, state % n, state, trail, used)
        if count == 0:
            continue
        swap_trail(beside, a, b, trail, count)
        now_a = count_rounds(beside[a], seen)
        now_b = count_rounds(beside[b], seen) if b < wanted else 0
        more = now_a + now_b - cycles[a] - cycles[b]
        if more <= 0 or draws[move, 3] < np.exp(-more / temperature):
            cycles[a], cycles[b] = now_a, now_b
            total += more
        else:
            swap_trail(beside, a, b, trail, count)
    return int(total)
