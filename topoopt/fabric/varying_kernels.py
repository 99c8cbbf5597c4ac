"""The compiled event loop over a network whose links change: simulated from change to change.

Between two calls a controller may change links, routes and rates; the state outlives the calls.
What cannot flow, because a link of its row is dark or it has no row, is *parked* until `unpark`
finds it a way.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel
from topoopt.fabric.arrays_kernels import Orders
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
    Flows,
    add_flow,
    earliest_end,
    take_ended,
    update_rates,
)
from topoopt.fabric.iteration_kernels import (
    INSTANT,
    STARTS,
    Iteration,
    begin_idle,
    drain,
    finish_due,
    make_ready,
)

# Why `advance` came back: nothing can happen any more, the given time, flows came to wait or
# ended, the horizon.
OVER, PAUSED, ASKED, GAVE_UP = 0, 1, 2, 3
NOW, LOWEST, SOLVE_AT = 0, 1, 2  # clock: s; lowest rate that may change; when it is worked out
PARKED, ASKS = 0, 1  # waits: parked tasks; whether flows came to wait or ended


class Changing(NamedTuple):
    """What an iteration over a network that changes has besides.

    Parameters
    ----------
    left : float64 array, shape (tasks,)
        Bytes that a network task has left when it joins.
    pace, hold : float64 arrays, shape (tasks,)
        Bytes of a round (0: no rounds), seconds that it takes besides.
    parked : int64 array, shape (tasks,)
    clock : float64 array, shape (3,)
    waits : int64 array, shape (2,)
    """

    left: Floats
    pace: Floats
    hold: Floats
    parked: Ints
    clock: Floats
    waits: Ints


@inner_kernel
def room_of(task: int, orders: Orders, link: Floats) -> float:
    """Return the bytes/s that a task's row carries alone; 0 if it is dark or has no links."""
    if orders.begin[task] == orders.end[task]:
        return 0.0
    room = np.inf
    for entry in range(orders.begin[task], orders.end[task]):
        name = np.uint64(orders.links[entry])
        room = min(room, link[CAPACITY, name] / orders.weights[entry])
    return room


@inner_kernel
def cap_of(pace: float, hold: float, room: float) -> float:
    """Return the rate at which a round takes its bytes and its lag (infinity: no rounds)."""
    if pace == 0.0 or hold == 0.0:
        return np.inf
    return pace / (pace / room + hold)


@inner_kernel
def let_go(orders: Orders, it: Iteration, changing: Changing, link: Floats) -> None:
    """Let go what is parked and has a way now, in its order."""
    kept = int(np.int64(0))
    for i in range(changing.waits[PARKED]):
        task = changing.parked[i]
        if room_of(task, orders, link) > 0.0:
            it.starting[it.number[STARTS]] = task
            it.number[STARTS] += 1
        else:
            changing.parked[kept] = task
            kept += 1
    changing.waits[PARKED] = kept


@kernel
def unpark(orders: Orders, it: Iteration, changing: Changing, flows: Flows) -> None:
    """Let go what is parked and has a way now, in its order."""
    let_go(orders, it, changing, flows.link)


@kernel
def note_left(changing: Changing, flows: Flows, out: Ints) -> int:
    """Note what every active flow has left; list the flows, return how many they are."""
    slot = flows.slot
    place = int(np.int64(0))
    for s in range(flows.counts[ACTIVE]):
        passed = changing.clock[NOW] - slot[SINCE, s]
        service = slot[SERVICE, s] + max(slot[RATE, s], 0.0) * passed
        task = flows.numbers[HEAD, s]
        while task >= 0:
            changing.left[task] = max(flows.member[MARK, task] - service, 0.0)
            out[place] = task
            place += 1
            task = flows.following[task]
    return place


@inner_kernel
def advance(
    orders: Orders, it: Iteration, changing: Changing, flows: Flows, until: float, horizon: float,
    tolerance: float, on_demand: bool, stop: Ints,
) -> int:  # fmt: skip
    """Simulate until a time, until the controller is needed, or to the end.

    Parameters
    ----------
    orders : Orders
        With the rows as they are now; caps count for nothing.
    it : Iteration
    changing : Changing
    flows : Flows
    until : float
        Seconds; what happens later is left for the next call.
    horizon : float
        Give up when the clock passes this many seconds.
    tolerance : float
        See `topoopt.fabric.simulate`.
    on_demand : bool
        Come back at every instant at which a flow came to wait or ended.
    stop : int64 array, shape (1,)
        Give up as soon as it is not zero; another thread may write to it.

    Returns
    -------
    int
        `OVER`, `PAUSED` (the clock is at ``until``), `ASKED` or `GAVE_UP`.
    """
    clock, waits, count = changing.clock, changing.waits, flows.counts
    while True:
        if stop[0] != 0:
            return GAVE_UP
        now = clock[NOW]
        # 1. What became ready at this instant, and what was let go.
        make_ready(orders, it, now, False)
        for i in range(it.number[STARTS]):
            task = it.starting[i]
            room = room_of(task, orders, flows.link)
            if room <= 0.0:
                changing.parked[waits[PARKED]] = task
                waits[PARKED] += 1
                waits[ASKS] = 1
                continue
            add_flow(
                flows, task, orders.resource[task], orders.begin[task], orders.end[task],
                changing.left[task], cap_of(changing.pace[task], changing.hold[task], room), 0, now,
            )  # fmt: skip
        it.number[STARTS] = 0
        # 2. Devices that fell idle.
        begin_idle(orders, it, now)
        # 3. The controller, then rates, unless more happens at this very instant.
        upcoming = it.times[0] if it.events[0] > 0 else np.inf
        if upcoming > now * (1.0 + INSTANT):
            if on_demand and waits[ASKS] > 0:
                waits[ASKS] = 0
                return ASKED
            if count[NEWS] > 0 or clock[SOLVE_AT] <= now:
                update_rates(flows, clock[LOWEST], 1, now)
                clock[LOWEST] = np.inf
                clock[SOLVE_AT] = np.inf
        # 4. The next instant.
        next_end = earliest_end(flows.block, count)
        upcoming = min(upcoming, next_end, clock[SOLVE_AT])
        if upcoming == np.inf and waits[PARKED] == 0:
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
        if next_end <= limit:
            slowest, _ = take_ended(flows, now, limit, tolerance, it.batch, it.ended_at)
            clock[LOWEST] = min(clock[LOWEST], slowest)
            for i in range(count[ENDED]):
                changing.left[it.batch[i]] = 0.0
            last = drain(orders, it, count[ENDED], now)
            waits[ASKS] = 1
            clock[SOLVE_AT] = min(clock[SOLVE_AT], now + 0.5 * (last - now))
        finish_due(orders, it, now, limit, False)


@kernel
def simulate_until(
    orders: Orders, it: Iteration, changing: Changing, flows: Flows, until: float, horizon: float,
    tolerance: float, stop: Ints,
) -> int:  # fmt: skip
    """Simulate until a time, or to the end; see `advance`."""
    return int(advance(orders, it, changing, flows, until, horizon, tolerance, False, stop))
