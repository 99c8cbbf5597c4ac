"""The compiled event loop that plays a task graph over the fabric."""

import numpy as np

from codesign_base.jit import inner_kernel, kernel
from routing.fairness_kernels import Floats, Ints
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.device_kernels import enqueue
from topoopt.fabric.flows_kernels import (
    BLOCK,
    CAPACITY,
    DUE,
    ENDED,
    NEWS,
    RATE,
    RESOLVED,
    SLACK,
    SOLVES,
    SPARE,
    earliest_end,
    join,
    leave_idle,
    solve,
    take_ended,
)
from topoopt.fabric.heap_kernels import pop, push

# Events whose times differ by less than this fraction are one instant.
INSTANT = 1e-12
# Bytes of a link are counted lower by this share, so that rounding never rules anything out.
_ROUNDING = 1e-9


@inner_kernel
def _sort(values: Ints, count: int) -> None:
    """Sort the first values in place (Shell's sort); most batches arrive sorted."""
    for i in range(1, count):
        if values[i] < values[i - 1]:
            break
    else:
        return
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            value = values[i]
            place = i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 3


@kernel
def play(
    orders: Orders,
    tolerance: float,
    horizon: float,
    foresee: bool,
    full: bool,
    arrival_order: bool,
) -> tuple[Floats, Floats, Ints, float, int, Ints]:
    """Play all tasks; see `topoopt.fabric.simulate.simulate` for the meaning.

    Parameters
    ----------
    orders : Orders
    tolerance : float
    horizon : float
        Give up when the clock, or ``least``, passes this many seconds.
    foresee : bool
        Give up, too, as soon as a link has been left unused for so long that what it must carry
        cannot end by the horizon.
    full : bool
        Re-solve all rates every time (for tests).
    arrival_order : bool
        Tasks of a device that become ready at one time run in the order in which that was found
        out, rather than by their numbers.

    Returns
    -------
    start, finish, binding : arrays, shape (tasks,)
        ``finish`` is infinite for tasks that never ran.
    least : float
        Seconds by which the links could carry all bytes at their capacity, as they were reckoned
        while flows left early; 0 without a tolerance.
    done : int
        Number of tasks that ran.
    work : int64 array, shape (4,)
        Instants, rate solves, streams re-solved, and 1 if it gave up.
    """
    (
        compute, resource, volume, delay, lag, cap, begin, end, successor_offsets, successors,
        predecessors, start_order, priority, levels, devices, rows, slots, entries, links, weights,
        capacity,
    ) = orders  # fmt: skip
    tasks = compute.size
    waiting = predecessors.copy()
    ready = np.empty(tasks)
    start = np.empty(tasks)
    finish = np.full(tasks, np.inf)
    binding = np.full(tasks, -1, dtype=np.int64)
    drained = np.zeros(tasks, dtype=np.bool_)
    times = np.empty(tasks)
    names = np.empty(tasks, dtype=np.int64)
    events = np.zeros(1, dtype=np.int64)
    running = np.full(devices, -1, dtype=np.int64)
    before = np.full(devices, -1, dtype=np.int64)
    front = np.full(devices, -1, dtype=np.int64)
    back = np.full(devices, -1, dtype=np.int64)
    following = np.full(tasks, -1, dtype=np.int64)
    idle = np.empty(devices, dtype=np.int64)
    is_idle = np.zeros(devices, dtype=np.bool_)
    room = (slots + BLOCK - 1) // BLOCK * BLOCK
    slot = np.empty((6, room))
    for s in range(room):
        slot[DUE, s] = np.inf
        slot[RATE, s] = -1.0
    index = np.empty((5, room), dtype=np.int64)
    slot_of_row = np.full(rows, -1, dtype=np.int32)
    block = np.empty((2, room // BLOCK))
    member = np.empty((2, tasks))
    behind = np.empty(tasks, dtype=np.int64)
    link = np.zeros((4, capacity.size))
    limited = horizon < np.inf
    origin = horizon if limited else 0.0  # of slacks
    for name in range(capacity.size):
        link[SPARE, name] = capacity[name]
        link[CAPACITY, name] = capacity[name]
        link[SLACK, name] = capacity[name] * origin
    counted = foresee or tolerance > 0.0
    if counted:
        for task in range(tasks):
            if not compute[task]:
                size = (1.0 - _ROUNDING) * volume[task]
                for entry in range(begin[task], end[task]):
                    link[SLACK, links[entry]] -= weights[entry] * size
    news = np.empty(tasks, dtype=np.int64)
    chosen = np.empty(slots, dtype=np.int32)
    real = np.empty((2, capacity.size + 1))
    whole = np.zeros((3, capacity.size), dtype=np.int32)
    near = np.empty((2, entries), dtype=np.int32)
    amounts = np.empty(entries)
    given = np.empty(slots)
    first = np.empty(2 * slots + 2, dtype=np.int64)
    count = np.zeros(5, dtype=np.int64)
    lowest = np.inf
    solve_at = np.inf
    batch = np.empty(tasks, dtype=np.int64)
    fresh = np.empty(tasks, dtype=np.int64)
    starting = np.empty(tasks, dtype=np.int64)
    starts = int(np.int64(0))
    ended = np.empty(tasks, dtype=np.int64)
    ended_at = np.empty(tasks)
    instants = 0
    gave_up = 0
    least = 0.0
    done = 0
    now = 0.0
    idles = 0
    freshly = int(np.int64(0))
    for place in range(tasks):
        task = start_order[place]
        if waiting[task] == 0:
            fresh[freshly] = task
            freshly += 1
    while True:
        # 1. What became ready at this instant: queue it, put it on the network or delay it.
        for i in range(freshly):
            task = fresh[i]
            ready[task] = now
            start[task] = now
            if not compute[task]:
                if delay[task] > 0.0 or volume[task] == 0.0:
                    late = now + delay[task]
                    if volume[task] == 0.0:
                        drained[task] = True
                        late += lag[task]
                    push(times, names, events, late, task)
                else:
                    starting[starts] = task
                    starts += 1
                continue
            device = resource[task]
            enqueue(task, device, now, arrival_order, priority, ready, front, back, following)
            if running[device] < 0 and not is_idle[device]:
                is_idle[device] = True
                idle[idles] = device
                idles += 1
        freshly = int(np.int64(0))
        for i in range(starts):
            task = starting[i]
            join(
                task, resource[task], begin[task], end[task], volume[task], cap[task],
                priority[task], now, slot, index, slot_of_row, block, member, behind, link, news,
                count, links, weights,
            )  # fmt: skip
        starts = int(np.int64(0))
        # 2. Devices that fell idle, and have work, begin it.
        for i in range(idles):
            device = idle[i]
            is_idle[device] = False
            task = front[device]
            front[device] = following[task]
            running[device] = task
            start[task] = now
            if ready[task] < now:
                binding[task] = before[device]
            push(times, names, events, now + volume[task], task)
        idles = 0
        # 3. Rates, unless more happens at this very instant.
        upcoming = times[0] if events[0] > 0 else np.inf
        again = upcoming <= now * (1.0 + INSTANT)
        if not again and (count[NEWS] > 0 or solve_at <= now):
            solve(
                0.0 if full else lowest, levels, now, slot, index, slot_of_row, block, member,
                link, news, count, links, weights, chosen, real, whole, near, amounts, given, first,
            )  # fmt: skip
            lowest = np.inf
            solve_at = np.inf
        # 4. The next instant.
        next_end = earliest_end(block, count)
        upcoming = min(upcoming, next_end, solve_at)
        if upcoming == np.inf:
            break
        # The makespan is the last finish, or ``least`` if that is later. A link that is late stays
        # so until a flow leaves it early, and ``least`` then passes the horizon; or else until its
        # last byte, which then passes after the horizon. So the makespan exceeds the horizon just
        # if some link is late, or the clock passes it.
        if counted and upcoming > now:
            late = leave_idle(link, min(upcoming, horizon) - now)
            if late and foresee:
                gave_up = 1
                break
        now = max(now, upcoming)
        if now > horizon:
            gave_up = 1
            break
        limit = now * (1.0 + INSTANT)
        instants += 1
        if next_end <= limit:
            slowest, overdue = take_ended(
                now, limit, tolerance, ended, ended_at, slot, index, slot_of_row, block, member,
                behind, link, count, links, weights,
            )  # fmt: skip
            if tolerance > 0.0:
                least = max(least, origin + overdue)
                if limited and overdue > 0.0:
                    gave_up = 1
                    break
            lowest = min(lowest, slowest)
            last = now
            for i in range(count[ENDED]):
                task = ended[i]
                drained[task] = True
                last = max(last, ended_at[i])
                push(times, names, events, ended_at[i] + lag[task], task)
            solve_at = min(solve_at, now + 0.5 * (last - now))
        size = int(np.int64(0))
        while events[0] > 0 and times[0] <= limit:
            batch[size] = names[0]
            size += 1
            pop(times, names, events)
        _sort(batch, size)
        for i in range(size):
            task = batch[i]
            if not compute[task] and not drained[task]:
                starting[starts] = task
                starts += 1
                continue
            finish[task] = now
            done += 1
            if compute[task]:
                device = resource[task]
                running[device] = -1
                before[device] = task
                if front[device] >= 0:
                    is_idle[device] = True
                    idle[idles] = device
                    idles += 1
            for entry in range(successor_offsets[task], successor_offsets[task + 1]):
                after = successors[entry]
                waiting[after] -= 1
                if waiting[after] == 0:
                    binding[after] = task
                    fresh[freshly] = after
                    freshly += 1
        if not arrival_order:
            _sort(fresh, freshly)
    work = np.array([instants, count[SOLVES], count[RESOLVED], gave_up])
    return start, finish, binding, least, done, work
