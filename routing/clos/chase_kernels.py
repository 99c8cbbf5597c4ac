"""Compiled min-conflicts search: make every job as fast as asked, or say that it was not found.

With a wanted speed for every job, a flow needs the share ``weight * wanted[job]`` of each link
of its path, and all is well when no link is asked for more than it has. Flows of overfull links
move to where the overload grows least; a flow does not return at once to where it left (tabu).
"""

import numpy as np

from codesign_base.arrays import Floats, Words
from codesign_base.jit import inner_kernel, kernel
from routing.clos.arrays_kernels import AssignmentSearch, ClosPaths, Demand, State
from routing.clos.state_kernels import insert, remove

SLACK = 1e-9  # relative overload that counts as none
PROGRESS = 0.1  # fall of the penalty that counts as progress
FIXED = 0.05  # penalty of an overfull link, besides its overload (in NIC rates)
REFUSALS = 4  # how many sizes of flows `refused` counts


def seeded(seed: int) -> Words:
    """Return a state for `random_below`: never zero, and not alike for small seeds."""
    mixed = (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64 or 1
    return np.array([mixed], dtype=np.uint64)


@inner_kernel
def random_below(state: Words, below: int) -> int:
    """Return a number of ``0 .. below - 1`` (xorshift)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int(np.int64((x >> np.uint64(11)) % np.uint64(below)))


@kernel
def room_of_groups(paths: ClosPaths, thresholds: Floats) -> Floats:
    """Return what each group of links holds: its capacity, then flows above each threshold."""
    capacity = paths.capacity
    groups = paths.group_of_link.max() + 1  # the stand-in for no link has -1
    room = np.zeros((groups, REFUSALS + 1))
    largest = 0.0
    for link in range(capacity.size - 1):
        largest = max(largest, capacity[link])
    for size in range(REFUSALS):
        thresholds[size] = largest / (size + 1)
    for link in range(capacity.size - 1):
        group = paths.group_of_link[link]
        if group < 0 or capacity[link] <= 0.0:
            continue
        room[group, 0] += capacity[link]
        for size in range(REFUSALS):
            # Flows above the threshold: n of them fit only if n * threshold < capacity.
            fit = np.ceil(capacity[link] / thresholds[size] * (1.0 - SLACK)) - 1.0
            room[group, size + 1] += max(fit, 0.0)
    return room


@inner_kernel
def refused(wanted: Floats, demand: Demand, state: State, search: AssignmentSearch) -> bool:
    """Say whether a count of flows at their ToRs already rules out the wanted speeds."""
    weight, group = demand.weight, demand.paths.group
    room, thresholds, asked = search.room, search.thresholds, search.asked
    if room.shape[0] == 0:
        return False
    asked[:] = 0.0
    for flow in range(weight.size):
        if state.chosen[flow] < 0:
            continue
        share = weight[flow] * wanted[demand.job[flow]]
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


@inner_kernel
def roll_back(moves: int, demand: Demand, state: State, search: AssignmentSearch) -> None:
    """Undo moves, the last one first."""
    for i in range(moves - 1, -1, -1):
        flow = search.log[0, i]
        remove(flow, demand, state)
        insert(flow, search.log[1, i], demand, state)


@inner_kernel
def _mark(link: int, count: int, state: State, search: AssignmentSearch) -> int:
    """Enter or strike a link in the list of overfull ones; return the list's length."""
    overfull, place = state.listed, search.place
    full = state.use[link] > search.limit[link]
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


@inner_kernel
def chase(
    wanted: Floats, effort: int, budget: int, demand: Demand, state: State, search: AssignmentSearch
) -> int:
    """Move flows until the wanted speeds fit; return the moves, negative (less 1) if they do not.

    Parameters
    ----------
    wanted : float64 array, shape (jobs,)
    effort, budget : int
        Candidates to look at without progress and in all, about.
    """
    bits, weight, job = demand.bits, demand.weight, demand.job
    base, kind, shift = demand.paths.base, demand.paths.kind, demand.paths.shift
    capacity, ways = demand.paths.capacity, demand.paths.ways
    chosen, at, head, after = state.chosen, state.at, state.head, state.after
    use, overfull = state.use, state.listed
    limit, place, random = search.limit, search.place, search.random
    tabu, log = search.tabu, search.log
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
        node = head[overfull[random_below(random, count)]]
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
            way = random_below(random, many)
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
        tabu[1, flow] = step + 2 + random_below(random, 6 + count // 4)
        for own in range(flow << bits, (flow + 1) << bits):
            use[at[own]] -= share
            count = _mark(at[own], count, state, search)
        remove(flow, demand, state)
        insert(flow, best_way, demand, state)
        for own in range(flow << bits, (flow + 1) << bits):
            use[at[own]] += share
            count = _mark(at[own], count, state, search)
        score += best
        if score < lowest - PROGRESS:
            lowest = score
            since = work
    search.spent[0] += work
    for i in range(count):
        place[overfull[i]] = -1
    return moves if count == 0 else -moves - 1


@kernel
def pursue(
    wanted: Floats, effort: int, budget: int, demand: Demand, state: State, search: AssignmentSearch
) -> bool:
    """Reach the wanted speeds, or leave everything as it was; say which.

    Parameters are those of `chase`.
    """
    search.spent[0] += demand.weight.size // 4
    if refused(wanted, demand, state, search):
        return False
    moves = chase(wanted, effort, budget, demand, state, search)
    if moves < 0:
        roll_back(-moves - 1, demand, state, search)
    return moves >= 0
