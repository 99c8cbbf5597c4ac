"""The flows that are active in the fabric: joining, leaving, and exact incremental rates.

Flows over the same row of links have the same max-min rate, whenever they began. So the
*stream* of a row stands for all of them: it counts the bytes that each member has received
since the stream began (its service), and a member leaves when the service reaches its mark
(service on joining, plus its bytes).

Streams live in slots ``0 .. active - 1``; blocks of slots keep the earliest end and the largest
rate, so that neither is searched over all slots.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import inner_kernel, kernel
from routing.fairness_kernels import Workspace, refill, workspace

# Rows of the tables.
COPIES, RATE, SERVICE, SINCE, DUE, CAP = 0, 1, 2, 3, 4, 5  # slot: members; bytes/s of each, -1
# before the first solve; bytes each had at SINCE (s); when its first member has all its bytes
# (s); bytes/s that no member exceeds
BEGIN, END, ROW, HEAD, LEVEL = 0, 1, 2, 3, 4  # index: entries of the slot's links, row, first
# member; level, to which the levels below leave what they do not use
MARK, JOINED = 0, 1  # member: service at which it leaves; when it joined (s)
EARLIEST, LARGEST = 0, 1  # block: least DUE, largest RATE
SPARE, LOAD, CAPACITY, SLACK = 0, 1, 2, 3  # link: bytes/s that no stream uses; weight of all
# members; bytes that may yet pass unused if all that must pass is to end by a horizon, see
# `leave_idle`
ACTIVE, NEWS, SOLVES, RESOLVED, ENDED = 0, 1, 2, 3, 4  # count

# Counters begin as ``int(np.int64(0))``, because numba compiles every helper that takes a
# literal 0 once more, for that literal.
BLOCK = 64
# Streams this little slower than the lowest rate that can change are re-solved all the same, so
# that rounding never leaves out one that must change.
MARGIN = 1e-9
# Link loads are kept by adding and subtracting; recounted so often, rounding cannot build up.
RECOUNT = 256


class Flows(NamedTuple):
    """The streams of a fabric, the flows in them, and the links under them.

    Parameters
    ----------
    slot : float64 array, shape (6, slots)
    numbers : int64 array, shape (5, slots)
    slot_of_row : int32 array, shape (rows,)
        -1: no stream.
    block : float64 array, shape (2, blocks)
    member : float64 array, shape (2, tasks)
    following : int64 array, shape (tasks,)
        The next member of a stream, by its mark; -1 for the last.
    link : float64 array, shape (4, links)
    news : int64 array, shape (tasks,)
        Rows that flows joined since the last `update_rates`.
    counts : int64 array, shape (5,)
    chosen : int32 array, shape (slots,)
        Work space, as ``work``.
    work : Workspace
    links, weights : arrays
        Entries of all rows.
    """

    slot: Floats
    numbers: Ints
    slot_of_row: SmallInts
    block: Floats
    member: Floats
    following: Ints
    link: Floats
    news: Ints
    counts: Ints
    chosen: SmallInts
    work: Workspace
    links: SmallInts
    weights: Floats


@kernel
def no_flows(
    tasks: int, rows: int, slots: int, entries: int, links: SmallInts, weights: Floats,
    capacity: Floats,
) -> Flows:  # fmt: skip
    """Return the state in which nothing flows.

    Parameters
    ----------
    tasks, rows : int
    slots, entries : int
        Upper bounds of the distinct rows, and of their entries, in use at once.
    links, weights, capacity : arrays
        Of the entries of rows, of the links (bytes/s).
    """
    room = (slots + BLOCK - 1) // BLOCK * BLOCK
    slot = np.empty((6, room))
    for s in range(room):
        slot[DUE, s] = np.inf
        slot[RATE, s] = -1.0
    link = np.zeros((4, capacity.size))
    for name in range(capacity.size):
        link[SPARE, name] = capacity[name]
        link[CAPACITY, name] = capacity[name]
    return Flows(
        slot,
        np.empty((5, room), np.int64),
        np.full(rows, -1, np.int32),
        np.empty((2, room // BLOCK)),
        np.empty((2, tasks)),
        np.empty(tasks, np.int64),
        link,
        np.empty(max(tasks, 1), np.int64),
        np.zeros(5, np.int64),
        np.empty(slots, np.int32),
        workspace(capacity.size, slots, entries),
        links,
        weights,
    )


@inner_kernel
def refresh_block(slot: Floats, block: Floats, number: int) -> None:
    """Recompute the extremes of one block of slots; empty slots hold infinity and -1.

    Four at a time, because one chain of comparisons waits for itself.
    """
    first = np.uint64(number * BLOCK)
    step = np.uint64(BLOCK // 4)
    d0 = d1 = d2 = d3 = np.inf
    r0 = r1 = r2 = r3 = -1.0
    for a in range(first, first + step):
        b = a + step
        c = b + step
        d = c + step
        d0 = slot[DUE, a] if slot[DUE, a] < d0 else d0
        d1 = slot[DUE, b] if slot[DUE, b] < d1 else d1
        d2 = slot[DUE, c] if slot[DUE, c] < d2 else d2
        d3 = slot[DUE, d] if slot[DUE, d] < d3 else d3
        r0 = slot[RATE, a] if slot[RATE, a] > r0 else r0
        r1 = slot[RATE, b] if slot[RATE, b] > r1 else r1
        r2 = slot[RATE, c] if slot[RATE, c] > r2 else r2
        r3 = slot[RATE, d] if slot[RATE, d] > r3 else r3
    block[EARLIEST, number] = min(min(d0, d1), min(d2, d3))
    block[LARGEST, number] = max(max(r0, r1), max(r2, r3))


@inner_kernel
def earliest_end(block: Floats, count: Ints) -> float:
    """Return the time at which the first flow has all its bytes (infinity: none)."""
    earliest = np.inf
    for number in range((count[ACTIVE] + BLOCK - 1) // BLOCK):
        earliest = min(earliest, block[EARLIEST, number])
    return earliest


@inner_kernel
def leave_idle(link: Floats, seconds: float) -> bool:
    """Let time pass; say whether a link now cannot carry what it must by its horizon.

    At time t a link has the slack ``capacity * (horizon - t) - left``, where ``left`` are the bytes
    that flows of now and of later must still send over it: as it passes ``rate`` bytes/s of them,
    the slack falls by ``capacity - rate``, what it leaves unused. Below zero, ``left`` cannot all
    pass by the horizon at the link's capacity. So without a tolerance the last flow over the
    link, and the run, end later. With one they may not: who leaves early sends on until its
    predicted end, but its remainder is no longer in ``left``, and others soon have its rate, so
    that more than the capacity passes and the slack rises (see `take_ended`).
    """
    late = False
    for name in range(np.uint64(link.shape[1])):
        slack = link[SLACK, name] - link[SPARE, name] * seconds
        link[SLACK, name] = slack
        late |= slack < 0.0
    return late


@inner_kernel
def add_flow(
    flows: Flows, task: int, row: int, begin: int, end: int, size: float, cap: float, level: int,
    now: float,
) -> None:  # fmt: skip
    """Add a flow. Its rate, and what it changes, come with the next `update_rates`."""
    slot, index, slot_of_row, block = flows.slot, flows.numbers, flows.slot_of_row, flows.block
    member, following, link = flows.member, flows.following, flows.link
    news, count, links, weights = flows.news, flows.counts, flows.links, flows.weights
    news[count[NEWS]] = row
    count[NEWS] += 1
    member[JOINED, task] = now
    for entry in range(np.uint64(begin), np.uint64(end)):
        link[LOAD, np.uint64(links[entry])] += weights[entry]
    s = slot_of_row[row]
    if s < 0:
        s = count[ACTIVE]
        count[ACTIVE] += 1
        slot_of_row[row] = s
        slot[COPIES, s] = 1.0
        slot[RATE, s] = -1.0
        slot[SERVICE, s] = 0.0
        slot[SINCE, s] = now
        slot[DUE, s] = np.inf
        slot[CAP, s] = cap
        index[BEGIN, s] = begin
        index[END, s] = end
        index[ROW, s] = row
        index[HEAD, s] = task
        index[LEVEL, s] = level
        member[MARK, task] = size
        following[task] = -1
        if s % BLOCK == 0:
            block[EARLIEST, s // BLOCK] = np.inf
            block[LARGEST, s // BLOCK] = -1.0
        return
    held = max(slot[RATE, s], 0.0)
    slot[SERVICE, s] += held * (now - slot[SINCE, s])
    slot[SINCE, s] = now
    slot[COPIES, s] += 1.0
    mark = slot[SERVICE, s] + size
    member[MARK, task] = mark
    ahead = -1
    after = index[HEAD, s]
    while after >= 0 and (
        member[MARK, after] < mark or (member[MARK, after] == mark and after < task)
    ):
        ahead = after
        after = following[after]
    following[task] = after
    if ahead >= 0:
        following[ahead] = task
    else:
        index[HEAD, s] = task
        if held > 0.0:
            slot[DUE, s] = now + size / held
    for entry in range(np.uint64(begin), np.uint64(end)):
        link[SPARE, np.uint64(links[entry])] -= weights[entry] * held


@inner_kernel
def leave(flows: Flows, s: int) -> None:
    """Take out the first member of a slot; the last slot fills the place of one left empty."""
    slot, index, member, link = flows.slot, flows.numbers, flows.member, flows.link
    following, count, links, weights = flows.following, flows.counts, flows.links, flows.weights
    slot_of_row, block = flows.slot_of_row, flows.block
    rate = slot[RATE, s]
    for entry in range(np.uint64(index[BEGIN, s]), np.uint64(index[END, s])):
        link[LOAD, np.uint64(links[entry])] -= weights[entry]
        link[SPARE, np.uint64(links[entry])] += weights[entry] * rate
    slot[COPIES, s] -= 1.0
    head = following[index[HEAD, s]]
    index[HEAD, s] = head
    if head >= 0:
        slot[DUE, s] = slot[SINCE, s] + (member[MARK, head] - slot[SERVICE, s]) / rate
        return
    slot_of_row[index[ROW, s]] = -1
    count[ACTIVE] -= 1
    last = count[ACTIVE]
    if s < last:
        for field in range(slot.shape[0]):
            slot[field, s] = slot[field, last]
        for field in range(index.shape[0]):
            index[field, s] = index[field, last]
        slot_of_row[index[ROW, s]] = s
    slot[DUE, last] = np.inf
    slot[RATE, last] = -1.0
    refresh_block(slot, block, last // BLOCK)


@inner_kernel
def take_ended(
    flows: Flows, now: float, limit: float, tolerance: float, ended: Ints, ended_at: Floats
) -> tuple[float, float]:
    """Take out every flow that has all its bytes by ``limit``, or nearly so.

    With a tolerance, a flow also leaves if what is left of its time is at most that fraction of
    the time it has been in the network, and of the shortest such time among the flows that end
    now; it then ends at its own predicted time. Not so flows that share their row, which gain
    most from each other's end.
    The flows and their ends are the first ``count[ENDED]`` of ``ended`` and ``ended_at``.

    Returns
    -------
    lowest : float
        Lowest rate of a flow that left (infinity: none left).
    late : float
        By how many seconds, at worst, a link was late for its horizon just before a flow left it
        early (-infinity: none did). A slack rises at no other moment.
    """
    slot, index, block, member = flows.slot, flows.numbers, flows.block, flows.member
    link, count, links, weights = flows.link, flows.counts, flows.links, flows.weights
    found = 0
    lowest = np.inf
    late = -np.inf
    horizon = limit
    if tolerance > 0.0:
        youngest = 0.0
        for number in range((count[ACTIVE] + BLOCK - 1) // BLOCK):
            if block[EARLIEST, number] <= limit:
                for s in range(number * BLOCK, min(number * BLOCK + BLOCK, count[ACTIVE])):
                    if slot[DUE, s] <= limit:
                        youngest = max(youngest, member[JOINED, index[HEAD, s]])
        horizon = max(limit, now + tolerance * (now - youngest))
    just_left = int(np.int64(-1))
    number = int(np.int64(0))
    while number * BLOCK < count[ACTIVE]:
        if block[EARLIEST, number] <= horizon:
            s = number * BLOCK
            while s < min(number * BLOCK + BLOCK, count[ACTIVE]):
                due = slot[DUE, s]
                task = index[HEAD, s]
                if due <= limit or (
                    due <= horizon
                    and slot[COPIES, s] == 1.0
                    and index[ROW, s] != just_left
                    and due - now <= tolerance * (now - member[JOINED, task])
                ):
                    ended[found] = task
                    ended_at[found] = max(due, now) if tolerance > 0.0 else now
                    found += 1
                    if due > now:  # what it leaves undelivered no longer waits for the link
                        left = slot[RATE, s] * (due - now)
                        for entry in range(np.uint64(index[BEGIN, s]), np.uint64(index[END, s])):
                            name = np.uint64(links[entry])
                            late = max(late, -link[SLACK, name] / link[CAPACITY, name])
                            link[SLACK, name] += weights[entry] * left
                    lowest = min(lowest, slot[RATE, s])
                    just_left = index[ROW, s]
                    leave(flows, s)
                else:
                    s += 1
            refresh_block(slot, block, number)
        number += 1
    count[ENDED] = found
    return lowest, late


@inner_kernel
def _sort_by_level(chosen: SmallInts, count: int, level: Ints) -> None:
    """Sort the first slots of ``chosen`` by level, then by number (Shell's sort)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            s = chosen[i]
            at = i
            while at >= gap:
                other = chosen[at - gap]
                if level[other] < level[s] or (level[other] == level[s] and other < s):
                    break
                chosen[at] = other
                at -= gap
            chosen[at] = s
        gap //= 3


@inner_kernel
def update_rates(flows: Flows, threshold: float, levels: int, now: float) -> None:
    """Bring all rates up to date after flows joined and left.

    Progressive filling runs the same with and without a flow until the level at which that flow
    freezes. So only rates at or above a threshold can change: the lowest rate of a flow that
    left (given), lowered here by what each flow that joined gets at the very least, the smallest
    capacity over total weight among its links. With several levels every rate is worked out
    anew, level by level, each over what the ones before leave; a stream may then have no rate.
    """
    slot, index, slot_of_row, block = flows.slot, flows.numbers, flows.slot_of_row, flows.block
    member, link, news, count = flows.member, flows.link, flows.news, flows.counts
    chosen, links, weights = flows.chosen, flows.links, flows.weights
    active = count[ACTIVE]
    found = int(np.int64(0))
    for i in range(count[NEWS]):
        s = slot_of_row[news[i]]
        if s < 0:
            continue
        for entry in range(np.uint64(index[BEGIN, s]), np.uint64(index[END, s])):
            name = np.uint64(links[entry])
            # Shares that are rounding errors can cancel to a load of nothing.
            if link[LOAD, name] > 0.0:
                threshold = min(threshold, link[CAPACITY, name] / link[LOAD, name])
        if slot[RATE, s] == -1.0:
            slot[RATE, s] = -2.0  # a row that several tasks joined at once counts once
            chosen[found] = s
            found += 1
    threshold = 0.0 if levels > 1 else threshold * (1.0 - MARGIN)
    for number in range((active + BLOCK - 1) // BLOCK):
        if block[LARGEST, number] >= threshold:
            for s in range(number * BLOCK, min(number * BLOCK + BLOCK, active)):
                rate = slot[RATE, s]
                if rate >= threshold and rate >= 0.0:
                    chosen[found] = s
                    found += 1
                    slot[SERVICE, s] += rate * (now - slot[SINCE, s])
                    slot[SINCE, s] = now
    count[NEWS] = 0
    count[SOLVES] += 1
    count[RESOLVED] += found
    if found == active or count[SOLVES] % RECOUNT == 0:
        for each in range(link.shape[1]):
            link[SPARE, each] = link[CAPACITY, each]
        for s in range(active):
            if found == active:
                slot[RATE, s] = -1.0
                continue
            held = slot[COPIES, s] * max(slot[RATE, s], 0.0)
            for entry in range(np.uint64(index[BEGIN, s]), np.uint64(index[END, s])):
                link[SPARE, np.uint64(links[entry])] -= weights[entry] * held
    if levels > 1:
        _sort_by_level(chosen, found, index[LEVEL])
    done = int(np.int64(0))
    while done < found:
        stop = found
        if levels > 1:
            stop = done + 1
            while stop < found and index[LEVEL, chosen[stop]] == index[LEVEL, chosen[done]]:
                stop += 1
        refill(
            chosen[done:], stop - done, index[BEGIN], index[END], slot[COPIES], slot[CAP],
            slot[RATE], links, weights, link[SPARE], flows.work,
        )  # fmt: skip
        done = stop
    stale = int(np.int64(-1))
    for i in range(found):
        s = chosen[i]
        head = index[HEAD, s]
        slot[DUE, s] = np.inf
        if slot[RATE, s] > 0.0:
            slot[DUE, s] = now + (member[MARK, head] - slot[SERVICE, s]) / slot[RATE, s]
        number = s // BLOCK
        if number != stale and stale >= 0:
            refresh_block(slot, block, stale)
        stale = number
    if stale >= 0:
        refresh_block(slot, block, stale)
