"""The compiled event loop over a network whose links change: played from change to change.

Between two calls of `advance` a controller may change links, routes and rates; the state lies in
arrays that outlive the calls. What cannot flow, because a link of its row is dark or it has no
row, is *parked* until `unpark` finds it a way.
"""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import kernel
from routing.fairness_kernels import Floats, Ints, SmallInts
from topoopt.fabric.device_kernels import enqueue
from topoopt.fabric.flows_kernels import (
    ACTIVE,
    CAPACITY,
    ENDED,
    HEAD,
    MARK,
    NEWS,
    RATE,
    SERVICE,
    SINCE,
    earliest_end,
    join,
    solve,
    take_ended,
)
from topoopt.fabric.heap_kernels import pop, push

INSTANT = 1e-12

# Why `advance` came back: nothing can happen any more, the given time, flows came to wait or
# ended, the horizon.
OVER, PAUSED, ASKED, GAVE_UP = 0, 1, 2, 3
NOW, LOWEST, SOLVE_AT = 0, 1, 2  # clock: s; lowest rate that may change; when it is worked out
FRESH, STARTS, PARKED, DONE, INSTANTS, ASKS, IDLES = 0, 1, 2, 3, 4, 5, 6  # number
# device: task that runs, that ran before, ends of its queue; devices that fell idle, and whether
DEVICE_RUNNING, DEVICE_BEFORE, DEVICE_FRONT, DEVICE_BACK = 0, 1, 2, 3
DEVICE_IDLE, DEVICE_ASKS = 4, 5
NETWORK, DRAINED = 1, 2  # nature of a task, beside 0 (compute)

Bytes = npt.NDArray[np.int8]


@kernel
def room_of(
    task: int, begin: Ints, end: Ints, links: SmallInts, weights: Floats, link: Floats
) -> float:
    """Return the bytes/s that a task's row carries alone; 0 if it is dark or has no links."""
    if begin[task] == end[task]:
        return 0.0
    room = np.inf
    for entry in range(begin[task], end[task]):
        room = min(room, link[CAPACITY, np.uint64(links[entry])] / weights[entry])
    return room


@kernel
def cap_of(pace: float, hold: float, room: float) -> float:
    """Return the rate at which a round takes its bytes and its lag (infinity: no rounds)."""
    if pace == 0.0 or hold == 0.0:
        return np.inf
    return pace / (pace / room + hold)


@kernel
def unpark(
    parked: Ints, starting: Ints, number: Ints, begin: Ints, end: Ints, links: SmallInts,
    weights: Floats, link: Floats,
) -> None:  # fmt: skip
    """Let go what is parked and has a way now, in its order."""
    kept = int(np.int64(0))
    for i in range(number[PARKED]):
        task = parked[i]
        if room_of(task, begin, end, links, weights, link) > 0.0:
            starting[number[STARTS]] = task
            number[STARTS] += 1
        else:
            parked[kept] = task
            kept += 1
    number[PARKED] = kept


@kernel
def note_left(
    left: Floats, out: Ints, begin_at: int, clock: Floats, slot: Floats, index: Ints,
    member: Floats, behind: Ints, count: Ints,
) -> int:  # fmt: skip
    """Note what every active flow has left; list the flows from a place on, return the end."""
    place = begin_at
    for s in range(count[ACTIVE]):
        passed = clock[NOW] - slot[SINCE, s]
        service = slot[SERVICE, s] + max(slot[RATE, s], 0.0) * passed
        task = index[HEAD, s]
        while task >= 0:
            left[task] = max(member[MARK, task] - service, 0.0)
            out[place] = task
            place += 1
            task = behind[task]
    return place


@kernel
def advance(
    until: float,
    horizon: float,
    tolerance: float,
    on_demand: bool,
    nature: Bytes,
    resource: Ints,
    volume: Floats,
    delay: Floats,
    successor_offsets: Ints,
    successors: Ints,
    waiting: Ints,
    ready: Floats,
    start: Floats,
    finish: Floats,
    binding: Ints,
    left: Floats,
    times: Floats,
    names: Ints,
    events: Ints,
    device: Ints,
    following: Ints,
    fresh: Ints,
    starting: Ints,
    parked: Ints,
    batch: Ints,
    ended_at: Floats,
    clock: Floats,
    number: Ints,
    pace: Floats,
    hold: Floats,
    lag: Floats,
    begin: Ints,
    end: Ints,
    links: SmallInts,
    weights: Floats,
    slot: Floats,
    index: Ints,
    slot_of_row: SmallInts,
    block: Floats,
    member: Floats,
    behind: Ints,
    link: Floats,
    news: Ints,
    count: Ints,
    chosen: SmallInts,
    real: Floats,
    whole: SmallInts,
    near: SmallInts,
    amounts: Floats,
    given: Floats,
    first: Ints,
    priority: Ints,
) -> int:
    """Play on until a time, until the controller is needed, or to the end.

    Parameters
    ----------
    until : float
        Seconds; what happens later is left for the next call.
    horizon : float
        Give up when the clock passes this many seconds.
    tolerance : float
        See `topoopt.fabric.simulate.simulate`.
    on_demand : bool
        Come back at every instant at which a flow came to wait or ended.
    nature : int8 array, shape (tasks,)
        0: compute. `NETWORK`: bytes to send. `DRAINED`: nothing left but a lag.
    resource, begin, end : int64 arrays, shape (tasks,)
        Device, or row of links and its entries in ``links`` and ``weights``.
    volume, left : float64 arrays, shape (tasks,)
        Seconds of compute; bytes that a network task has left when it joins.
    pace, hold, lag : float64 arrays, shape (tasks,)
        Bytes of a round (0: no rounds), seconds that it takes besides, seconds after all bytes.
    device : int64 array, shape (6, devices)
        Task running, task before, ends of the queue, devices that fell idle, and whether.
    clock, number : arrays
        See the constants.
    others
        As in `topoopt.fabric.simulate_kernels.play` and `topoopt.fabric.flows_kernels`.

    Returns
    -------
    int
        `OVER`, `PAUSED` (the clock is at ``until``), `ASKED` or `GAVE_UP`.
    """
    while True:
        now = clock[NOW]
        # 1. What became ready at this instant, and what was let go.
        for i in range(number[FRESH]):
            task = fresh[i]
            ready[task] = now
            start[task] = now
            if nature[task] == 0:
                place = resource[task]
                enqueue(
                    task, place, now, False, priority, ready, device[DEVICE_FRONT],
                    device[DEVICE_BACK], following,
                )  # fmt: skip
                if device[DEVICE_RUNNING, place] < 0 and device[DEVICE_ASKS, place] == 0:
                    device[DEVICE_ASKS, place] = 1
                    device[DEVICE_IDLE, number[IDLES]] = place
                    number[IDLES] += 1
            elif nature[task] == DRAINED:
                push(times, names, events, now + delay[task] + lag[task], task)
            elif delay[task] > 0.0:
                push(times, names, events, now + delay[task], task)
            else:
                starting[number[STARTS]] = task
                number[STARTS] += 1
        number[FRESH] = 0
        for i in range(number[STARTS]):
            task = starting[i]
            room = room_of(task, begin, end, links, weights, link)
            if room <= 0.0:
                parked[number[PARKED]] = task
                number[PARKED] += 1
                number[ASKS] = 1
                continue
            join(
                task, resource[task], begin[task], end[task], left[task],
                cap_of(pace[task], hold[task], room), 0, now, slot, index, slot_of_row, block,
                member, behind, link, news, count, links, weights,
            )  # fmt: skip
        number[STARTS] = 0
        # 2. Devices that fell idle, and have work, begin it.
        for i in range(number[IDLES]):
            place = device[DEVICE_IDLE, i]
            device[DEVICE_ASKS, place] = 0
            task = device[DEVICE_FRONT, place]
            device[DEVICE_FRONT, place] = following[task]
            device[DEVICE_RUNNING, place] = task
            start[task] = now
            if ready[task] < now:
                binding[task] = device[DEVICE_BEFORE, place]
            push(times, names, events, now + volume[task], task)
        number[IDLES] = 0
        # 3. The controller, then rates, unless more happens at this very instant.
        upcoming = times[0] if events[0] > 0 else np.inf
        if upcoming > now * (1.0 + INSTANT):
            if on_demand and number[ASKS] > 0:
                number[ASKS] = 0
                return ASKED
            if count[NEWS] > 0 or clock[SOLVE_AT] <= now:
                solve(
                    clock[LOWEST], 1, now, slot, index, slot_of_row, block, member, link, news,
                    count, links, weights, chosen, real, whole, near, amounts, given, first,
                )  # fmt: skip
                clock[LOWEST] = np.inf
                clock[SOLVE_AT] = np.inf
        # 4. The next instant.
        next_end = earliest_end(block, count)
        upcoming = min(upcoming, next_end, clock[SOLVE_AT])
        if upcoming == np.inf and number[PARKED] == 0:
            return OVER
        if upcoming > until:
            clock[NOW] = max(now, until)
            return PAUSED
        if upcoming == np.inf:
            return OVER
        now = max(now, upcoming)
        clock[NOW] = now
        if now > horizon:
            return GAVE_UP
        limit = now * (1.0 + INSTANT)
        number[INSTANTS] += 1
        if next_end <= limit:
            slowest, _ = take_ended(
                now, limit, tolerance, batch, ended_at, slot, index, slot_of_row, block, member,
                behind, link, count, links, weights,
            )  # fmt: skip
            clock[LOWEST] = min(clock[LOWEST], slowest)
            last = now
            for i in range(count[ENDED]):
                task = batch[i]
                nature[task] = DRAINED
                left[task] = 0.0
                last = max(last, ended_at[i])
                push(times, names, events, ended_at[i] + lag[task], task)
            number[ASKS] = 1
            clock[SOLVE_AT] = min(clock[SOLVE_AT], now + 0.5 * (last - now))
        size = int(np.int64(0))
        while events[0] > 0 and times[0] <= limit:
            batch[size] = names[0]
            size += 1
            pop(times, names, events)
        batch[:size] = np.sort(batch[:size])
        for i in range(size):
            task = batch[i]
            if nature[task] == NETWORK:
                starting[number[STARTS]] = task
                number[STARTS] += 1
                continue
            finish[task] = now
            number[DONE] += 1
            if nature[task] == 0:
                place = resource[task]
                device[DEVICE_RUNNING, place] = -1
                device[DEVICE_BEFORE, place] = task
                if device[DEVICE_FRONT, place] >= 0:
                    device[DEVICE_ASKS, place] = 1
                    device[DEVICE_IDLE, number[IDLES]] = place
                    number[IDLES] += 1
            for entry in range(successor_offsets[task], successor_offsets[task + 1]):
                after = successors[entry]
                waiting[after] -= 1
                if waiting[after] == 0:
                    binding[after] = task
                    fresh[number[FRESH]] = after
                    number[FRESH] += 1
        fresh[: number[FRESH]] = np.sort(fresh[: number[FRESH]])
