"""The compiled event loop that simulates a task graph over the fabric."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.flows_kernels import (
    ENDED,
    NEWS,
    RESOLVED,
    SLACK,
    SOLVES,
    Flows,
    add_flow,
    earliest_end,
    leave_idle,
    no_flows,
    take_ended,
    update_rates,
)
from topoopt.fabric.foresight_kernels import Foresight, devices_late, foresight
from topoopt.fabric.iteration_kernels import (
    DONE,
    INSTANT,
    INSTANTS,
    STARTS,
    Iteration,
    begin_idle,
    begun,
    drain,
    finish_due,
    make_ready,
)

LATE, SPENT, STOPPED = 1, 2, 3
"""Why a simulation gave up: its limit of time, its budget of work, or it was told to."""

# Bytes of a link are counted lower by this share, so that rounding never rules anything out.
_ROUNDING = 1e-9


@kernel
def simulate_fluid(
    orders: Orders,
    tolerance: float,
    horizon: float,
    foresee: bool,
    full: bool,
    arrival_order: bool,
    budget: int,
    stop: Ints,
) -> tuple[Floats, Floats, Ints, float, int, Ints]:
    """Simulate all tasks; see `topoopt.fabric.simulate` for the meaning.

    Parameters
    ----------
    orders : Orders
    tolerance : float
    horizon : float
        Give up when the clock, or ``least``, passes this many seconds.
    foresee : bool
        Give up, too, as soon as a link has been left unused for so long that what it must carry
        cannot end by the horizon, or a device for so long that what it must do, and what must
        follow, cannot.
    full : bool
        Re-solve all rates every time (for tests).
    arrival_order : bool
        Tasks of a device that become ready at one time run in the order in which that was found
        out, rather than by their numbers.
    budget : int
        Give up after so many streams re-solved.
    stop : int64 array, shape (1,)
        Give up as soon as it is not zero; another thread may write to it.

    Returns
    -------
    start, finish, binding : arrays, shape (tasks,)
        ``finish`` is infinite for tasks that never ran.
    least : float
        Seconds by which the links could carry all bytes at their capacity, as they were reckoned
        while flows left early; 0 without a tolerance. If the budget ran out, not less than the
        clock then.
    done : int
        Number of tasks that ran.
    work : int64 array, shape (4,)
        Instants, rate solves, streams re-solved, and why it gave up, if it did: `LATE`, `SPENT`
        or `STOPPED`.
    """
    flows = no_flows(
        orders.compute.size, orders.rows, orders.slots, orders.entries, orders.links,
        orders.weights, orders.capacity,
    )  # fmt: skip
    it = begun(orders)
    ahead = foresight(orders) if foresee else Foresight(np.zeros(0), np.zeros(0))
    least, gave_up = _run_events(
        orders, it, flows, ahead, tolerance, horizon, foresee, full, arrival_order, budget, stop
    )
    count = flows.counts
    work = np.array([it.number[INSTANTS], count[SOLVES], count[RESOLVED], gave_up])
    return it.start, it.finish, it.binding, least, it.number[DONE], work


@inner_kernel
def _run_events(
    orders: Orders, it: Iteration, flows: Flows, ahead: Foresight, tolerance: float,
    horizon: float, foresee: bool, full: bool, arrival_order: bool, budget: int, stop: Ints,
) -> tuple[float, int]:  # fmt: skip
    """Simulate to the end, or until it gives up; return ``least``, and why it gave up, or 0.

    A function of its own, because in one that makes arrays every use of any counts references.
    """
    link, count = flows.link, flows.counts
    limited = horizon < np.inf
    origin = horizon if limited else 0.0  # of slacks
    for name in range(orders.capacity.size):
        link[SLACK, name] = orders.capacity[name] * origin
    counted = foresee or tolerance > 0.0
    if counted:
        for task in range(orders.compute.size):
            if not orders.compute[task]:
                size = (1.0 - _ROUNDING) * orders.volume[task]
                for entry in range(orders.begin[task], orders.end[task]):
                    link[SLACK, orders.links[entry]] -= orders.weights[entry] * size
    lowest = np.inf
    solve_at = np.inf
    gave_up = 0
    least = 0.0
    now = 0.0
    while True:
        if stop[0] != 0:
            gave_up = STOPPED
            break
        if count[RESOLVED] > budget:
            gave_up = SPENT
            least = max(least, now)
            break
        # 1. What became ready at this instant, and what goes onto the network.
        make_ready(orders, it, now, arrival_order)
        for i in range(it.number[STARTS]):
            task = it.starting[i]
            add_flow(
                flows, task, orders.resource[task], orders.begin[task], orders.end[task],
                orders.volume[task], orders.cap[task], orders.priority[task], now,
            )  # fmt: skip
        it.number[STARTS] = 0
        # 2. Devices that fell idle.
        if foresee and devices_late(orders, it, ahead, now, horizon):
            gave_up = LATE
            break
        begin_idle(orders, it, now)
        # 3. Rates, unless more happens at this very instant.
        upcoming = it.times[0] if it.events[0] > 0 else np.inf
        again = upcoming <= now * (1.0 + INSTANT)
        if not again and (count[NEWS] > 0 or solve_at <= now):
            update_rates(flows, 0.0 if full else lowest, orders.levels, now)
            lowest = np.inf
            solve_at = np.inf
        # 4. The next instant.
        next_end = earliest_end(flows.block, count)
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
                gave_up = LATE
                break
        now = max(now, upcoming)
        if now > horizon:
            gave_up = LATE
            break
        limit = now * (1.0 + INSTANT)
        it.number[INSTANTS] += 1
        if next_end <= limit:
            slowest, overdue = take_ended(flows, now, limit, tolerance, it.batch, it.ended_at)
            if tolerance > 0.0:
                least = max(least, origin + overdue)
                if limited and overdue > 0.0:
                    gave_up = LATE
                    break
            lowest = min(lowest, slowest)
            last = drain(orders, it, count[ENDED], now)
            solve_at = min(solve_at, now + 0.5 * (last - now))
        finish_due(orders, it, now, limit, arrival_order)
    return least, gave_up
