"""Compiled min-conflicts search: make every job as fast as asked, or say that it was not found.

With a wanted speed for every job, a flow needs the share ``weight * wanted[job]`` of each link
of its path, and all is well when no link is asked for more than it has. Flows of overfull links
move to where the overload grows least; a flow does not return at once to where it left (tabu).
"""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import kernel
from routing.clos.state_kernels import insert, remove

Floats = npt.NDArray[np.float64]
SmallInts = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

SLACK = 1e-9  # relative overload that counts as none
PROGRESS = 0.1  # fall of the penalty that counts as progress
FIXED = 0.05  # penalty of an overfull link, besides its overload (in NIC rates)
REFUSALS = 4  # how many sizes of flows `refused` counts


def seeded(seed: int) -> Words:
    """Return a state for `draw`: never zero, and not alike for small seeds."""
    mixed = (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64 or 1
    return np.array([mixed], dtype=np.uint64)


@kernel
def draw(state: Words, below: int) -> int:
    """Return a number of ``0 .. below - 1`` (xorshift)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int(np.int64((x >> np.uint64(11)) % np.uint64(below)))


@kernel
def room_of_groups(
    capacity: Floats, group_of_link: SmallInts, groups: int, thresholds: Floats
) -> Floats:
    """Return what each group of links holds: its capacity, then flows above each threshold."""
    room = np.zeros((groups, REFUSALS + 1))
    largest = 0.0
    for link in range(capacity.size - 1):
        largest = max(largest, capacity[link])
    for size in range(REFUSALS):
        thresholds[size] = largest / (size + 1)
    for link in range(capacity.size - 1):
        group = group_of_link[link]
        if group < 0 or capacity[link] <= 0.0:
            continue
        room[group, 0] += capacity[link]
        for size in range(REFUSALS):
            # Flows above the threshold: n of them fit only if n * threshold < capacity.
            fit = np.ceil(capacity[link] / thresholds[size] * (1.0 - SLACK)) - 1.0
            room[group, size + 1] += max(fit, 0.0)
    return room


@kernel
def refused(
    wanted: Floats,
    weight: Floats,
    job: SmallInts,
    group: SmallInts,
    chosen: SmallInts,
    room: Floats,
    thresholds: Floats,
    asked: Floats,
) -> bool:
    """Say whether a count of flows at their ToRs already rules out the wanted speeds."""
    if room.shape[0] == 0:
        return False
    asked[:] = 0.0
    for flow in range(weight.size):
        if chosen[flow] < 0:
            continue
        share = weight[flow] * wanted[job[flow]]
        sizes = 0
        while sizes < REFUSALS and share <= thresholds[sizes] * (1.0 + SLACK):
            sizes += 1
        for side in range(2):
            where = group[flow, side]
            if where >= 0:
                asked[where, 0] += share
                if sizes < REFUSALS:
                    asked[where, sizes + 1] += 1.0
    for where in range(room.shape[0]):
        if asked[where, 0] > room[where, 0] * (1.0 + SLACK):
            return True
        count = 0.0
        for size in range(REFUSALS):
            count += asked[where, size + 1]
            if count > room[where, size + 1] + 0.5:
                return True
    return False


@kernel
def roll_back(
    moves: int,
    log: SmallInts,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    weight: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
) -> None:
    """Undo moves, the last one first."""
    for i in range(moves - 1, -1, -1):
        flow = log[0, i]
        remove(flow, bits, weight, chosen, at, head, after, before, load)
        insert(
            flow, log[1, i], bits, base, kind, shift, weight, chosen, at, head, after, before, load
        )


@kernel
def _mark(
    link: int, use: Floats, limit: Floats, overfull: SmallInts, place: SmallInts, count: int
) -> int:
    """Enter or strike a link in the list of overfull ones; return the list's length."""
    full = use[link] > limit[link]
    if full and place[link] < 0:
        place[link] = count
        overfull[count] = link
        return count + 1
    if not full and place[link] >= 0:
        count -= 1
        last = overfull[count]
        overfull[place[link]] = last
        place[last] = place[link]
        place[link] = -1
    return count


@kernel
def chase(
    wanted: Floats,
    effort: int,
    budget: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    ways: SmallInts,
    weight: Floats,
    job: SmallInts,
    capacity: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
    use: Floats,
    limit: Floats,
    overfull: SmallInts,
    place: SmallInts,
    tabu: SmallInts,
    log: SmallInts,
    random: Words,
    spent: SmallInts,
) -> int:
    """Move flows until the wanted speeds fit; return the moves, negative (less 1) if they do not.

    Parameters
    ----------
    wanted : float64 array, shape (jobs,)
    effort, budget : int
        Candidates to look at without progress and in all, about.
    use, limit : float64 arrays, shape (links + 1,)
        Work space, and the load from which a link is overfull.
    overfull, place : int32 arrays, shape (links + 1,)
        Work space; ``place`` is -1 on entry and return.
    tabu : int32 array, shape (2, flows)
        Work space: the path that a flow left, and until when it does not return.
    log : int32 array, shape (2, most moves)
        Out: flows moved and the paths they left.
    spent : int32 array, shape (1,)
        Candidates looked at are added.
    """
    none = capacity.size - 1
    slots = 1 << bits
    use[:] = 0.0
    for flow in range(weight.size):
        share = weight[flow] * wanted[job[flow]]
        tabu[1, flow] = -1
        for node in range(flow << bits, (flow + 1) << bits):
            use[at[node]] += share
    count = 0
    for link in range(none):
        if use[link] > limit[link]:
            place[link] = count
            overfull[count] = link
            count += 1
    moves = 0
    step = 0
    score = 0.0  # penalty now, less that at the start
    lowest = 0.0
    work = weight.size // 2
    since = work
    while count > 0 and work - since < effort and work < budget and moves < log.shape[1]:
        step += 1
        work += 12
        best = np.inf
        best_flow = -1
        best_way = -1
        node = head[overfull[draw(random, count)]]
        while node >= 0:
            flow = node >> bits
            node = after[node]
            share = weight[flow] * wanted[job[flow]]
            if share <= 0.0:
                continue
            row = kind[flow]
            gain = 0.0
            for own in range(flow << bits, (flow + 1) << bits):
                link = at[own]
                if use[link] > limit[link]:
                    gain += FIXED + use[link] - limit[link]
                use[link] -= share
                if use[link] > limit[link]:
                    gain -= FIXED + use[link] - limit[link]
            many = ways[row]
            work += many
            way = draw(random, many)
            for _ in range(many):
                way += 1
                if way >= many:
                    way = 0
                if way == chosen[flow]:
                    continue
                cost = -gain
                for slot in range(slots):
                    link = base[flow, slot] + shift[row, slot, way]
                    asked = use[link] + share
                    if asked > limit[link]:
                        cost += asked - limit[link]
                        if use[link] <= limit[link]:
                            cost += FIXED
                        else:
                            cost -= use[link] - limit[link]
                        if capacity[link] <= 0.0:
                            cost = np.inf
                    if cost >= best:
                        break
                if cost >= best:
                    continue
                held = tabu[1, flow] >= step and tabu[0, flow] == way
                if held and score + cost >= lowest - SLACK:
                    continue
                best = cost
                best_flow = flow
                best_way = way
                if cost <= -gain:
                    break
            for own in range(flow << bits, (flow + 1) << bits):
                use[at[own]] += share
        if best_flow < 0:
            continue
        flow = best_flow
        share = weight[flow] * wanted[job[flow]]
        log[0, moves] = flow
        log[1, moves] = chosen[flow]
        moves += 1
        tabu[0, flow] = chosen[flow]
        tabu[1, flow] = step + 2 + draw(random, 6 + count // 4)
        for own in range(flow << bits, (flow + 1) << bits):
            use[at[own]] -= share
            count = _mark(at[own], use, limit, overfull, place, count)
        remove(flow, bits, weight, chosen, at, head, after, before, load)
        insert(
            flow, best_way, bits, base, kind, shift, weight, chosen, at, head, after, before, load
        )
        for own in range(flow << bits, (flow + 1) << bits):
            use[at[own]] += share
            count = _mark(at[own], use, limit, overfull, place, count)
        score += best
        if score < lowest - PROGRESS:
            lowest = score
            since = work
    spent[0] += work
    for i in range(count):
        place[overfull[i]] = -1
    return moves if count == 0 else -moves - 1


@kernel
def pursue(
    wanted: Floats,
    effort: int,
    budget: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    ways: SmallInts,
    weight: Floats,
    job: SmallInts,
    capacity: Floats,
    group: SmallInts,
    room: Floats,
    thresholds: Floats,
    asked: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
    use: Floats,
    limit: Floats,
    overfull: SmallInts,
    place: SmallInts,
    tabu: SmallInts,
    log: SmallInts,
    random: Words,
    spent: SmallInts,
) -> bool:
    """Reach the wanted speeds, or leave everything as it was; say which.

    Parameters are those of `refused` and `chase`.
    """
    spent[0] += weight.size // 4
    if refused(wanted, weight, job, group, chosen, room, thresholds, asked):
        return False
    moves = chase(
        wanted, effort, budget, bits, base, kind, shift, ways, weight, job, capacity, chosen, at,
        head, after, before, load, use, limit, overfull, place, tabu, log, random, spent,
    )  # fmt: skip
    if moves < 0:
        roll_back(
            -moves - 1, log, bits, base, kind, shift, weight, chosen, at, head, after, before, load
        )
    return moves >= 0
