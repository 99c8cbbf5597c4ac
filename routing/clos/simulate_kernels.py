"""The compiled event loop of barrier-synchronised rings under max-min fair rates."""

import numpy as np

from codesign_base.jit import kernel
from routing.clos.levels_kernels import (
    BEGAN,
    CAP,
    DUE,
    LEVEL,
    PLACE,
    RATE,
    REST,
    RING,
    ROOM,
    SAME,
    SINCE,
    SIZE,
    SLOTS,
    TOUCHED,
    Flags,
    Floats,
    Ints,
    SmallInts,
    limit,
    relax,
)

# Rows of the table of jobs, of their times (next AllReduce, computing), and of the rings' table.
PHASE, EPOCH, LEFT, STEPS, EPOCHS, RING_0, RING_1, FCT_0, WATCH = 0, 1, 2, 3, 4, 5, 6, 7, 8
NEXT, COMPUTE = 0, 1
OWNER, STEP, OPEN, FLOW_0, FLOW_1 = 0, 1, 2, 3, 4  # OPEN: flows of the step that have not ended
# Phases of a job.
WAITING, SENDING, GONE = 0, 1, 2
# Why the event loop stopped.
REACHED, STARTED, LEFT_NOW, FINISHED, STUCK, STEPPED = 0, 1, 2, 3, 4, 5


@kernel
def _settle(heap: Ints, place: int, flow: Floats, mark: Ints, size: int) -> None:
    """Move one entry of the heap of completion times to where it belongs."""
    name = heap[place]
    due = flow[DUE, name]
    while place > 0:
        parent = (place - 1) >> 1
        if flow[DUE, heap[parent]] <= due:
            break
        heap[place] = heap[parent]
        mark[PLACE, heap[place]] = place
        place = parent
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and flow[DUE, heap[child + 1]] < flow[DUE, heap[child]]:
            child += 1
        if flow[DUE, heap[child]] >= due:
            break
        heap[place] = heap[child]
        mark[PLACE, heap[place]] = place
        place = child
    heap[place] = name
    mark[PLACE, name] = place


@kernel
def relink(
    wanted: SmallInts,
    present: Flags,
    flow: Floats,
    mark: Ints,
    links: SmallInts,
    link: Floats,
    begin: Ints,
    members: SmallInts,
    queue: Ints,
    queued: Flags,
    news: Ints,
    pending: Ints,
) -> None:
    """Put the present flows on their links; what was sent so far stays sent.

    Links that all their flows together cannot fill are left out: they never bind.

    Parameters
    ----------
    wanted : int32 array, shape (flows, SLOTS)
        Links of each flow; -1: none.
    present : bool array, shape (flows,)
        Whether the flow's job is there.
    flow, mark, links, link, begin, members
        The tables; ``links``, ``begin``, ``members`` and the levels are written.
    queue, queued, news, pending
        Written: links whose level and flows whose rate `advance` computes first.
    """
    flows = wanted.shape[0]
    names = link.shape[1]
    demand = np.zeros(names)
    pending[0] = 0
    pending[1] = 0
    for f in range(flows):
        mark[TOUCHED, f] = 0
        if mark[PLACE, f] >= 0:
            mark[TOUCHED, f] = 1
            news[pending[1]] = f
            pending[1] += 1
        if present[f]:
            for slot in range(SLOTS):
                if wanted[f, slot] >= 0:
                    demand[wanted[f, slot]] += flow[CAP, f]
    for name in range(names + 1):
        begin[name] = 0
    for f in range(flows):
        for slot in range(SLOTS):
            name = wanted[f, slot]
            links[f, slot] = -1
            if present[f] and name >= 0 and demand[name] > link[ROOM, name] * (1.0 + SAME):
                links[f, slot] = name
                begin[name + 1] += 1
    for name in range(names):
        queued[name] = begin[name + 1] > 0
        if queued[name]:
            queue[pending[0]] = name
            pending[0] += 1
        begin[name + 1] += begin[name]
        link[LEVEL, name] = np.inf
    place = begin.copy()
    for f in range(flows):
        for slot in range(SLOTS):
            name = links[f, slot]
            if name >= 0:
                members[place[name]] = f
                place[name] += 1


@kernel
def exchange(
    movers: Ints,
    wanted: SmallInts,
    mark: Ints,
    links: SmallInts,
    begin: Ints,
    members: SmallInts,
    queue: Ints,
    queued: Flags,
    news: Ints,
    pending: Ints,
) -> None:
    """Let flows take over each other's links; no link's number of flows changes.

    Parameters
    ----------
    movers : int64 array
        The flows.
    wanted : int32 array, shape (movers, SLOTS)
        New links of each, ``-1`` where they never bind.
    mark, links, begin, members, queue, queued, news, pending
        As in `relink`.
    """
    for f in movers:
        for slot in range(SLOTS):
            name = links[f, slot]
            if name >= 0:
                for entry in range(begin[name], begin[name + 1]):
                    if members[entry] == f:
                        members[entry] = -1
                        break
    for i in range(movers.size):
        f = movers[i]
        if mark[PLACE, f] >= 0 and mark[TOUCHED, f] == 0:
            mark[TOUCHED, f] = 1
            news[pending[1]] = f
            pending[1] += 1
        for slot in range(SLOTS):
            old, name = links[f, slot], wanted[i, slot]
            links[f, slot] = name
            if name >= 0:
                for entry in range(begin[name], begin[name + 1]):
                    if members[entry] < 0:
                        members[entry] = f
                        break
            for dirty in (old, name):
                if dirty >= 0 and not queued[dirty]:
                    queued[dirty] = True
                    queue[pending[0]] = dirty
                    pending[0] += 1


@kernel
def advance(
    clock: Floats,
    until: float,
    pause: bool,
    job: Ints,
    times: Floats,
    ring: Ints,
    flow: Floats,
    mark: Ints,
    links: SmallInts,
    link: Floats,
    begin: Ints,
    members: SmallInts,
    heap: Ints,
    heaped: Ints,
    queue: Ints,
    queued: Flags,
    news: Ints,
    pending: Ints,
    starts: Floats,
    ends: Floats,
    fct: Floats,
) -> int:
    """Simulate events up to a time; return why it stopped there.

    Parameters
    ----------
    clock : float64 array, shape (1,)
        Now; moved on.
    until : float
        Where to stop at the latest.
    pause : bool
        Stop also after each instant at which a job began an AllReduce, or a ring of a watched
        job a step.
    job, times, ring, flow, mark, links, link, begin, members
        The tables; see the names of their rows above.
    heap, heaped : int64 arrays, shapes (flows,) and (1,)
        Flows in flight by completion time, and how many.
    queue, queued, news, pending
        Links and flows to begin with, as `relink` and `exchange` leave them; emptied.
    starts, ends : float64 arrays, shape (jobs, epochs)
        Written: when each AllReduce began and ended.
    fct : float64 array
        Written: seconds of each flow of each step, if not empty.
    """
    waiting = pending[0]
    fresh = pending[1]
    pending[0] = 0
    pending[1] = 0
    limits = np.empty(flow.shape[1] + 1)
    begun = np.empty(ring.shape[1], dtype=np.int64)
    now = clock[0]
    reason = REACHED
    while True:
        # 1. Rates after what the last instant changed.
        fresh = relax(
            queue, queued, waiting, news, fresh,
            flow, mark, links, link, begin, members, limits,
        )  # fmt: skip
        waiting = 0
        for i in range(fresh):
            f = news[i]
            mark[TOUCHED, f] = 0
            if mark[PLACE, f] < 0:
                continue
            rate = limit(f, -1, flow, links, link)
            old = flow[RATE, f]
            if old >= 0.0 and abs(rate - old) <= SAME * old:
                continue
            if old > 0.0:
                flow[REST, f] -= old * (now - flow[SINCE, f])
            flow[SINCE, f] = now
            flow[RATE, f] = rate
            flow[DUE, f] = now + max(flow[REST, f], 0.0) / rate if rate > 0.0 else np.inf
            _settle(heap, mark[PLACE, f], flow, mark, heaped[0])
        fresh = 0
        if reason != REACHED:
            break
        # 2. The next instant.
        instant = flow[DUE, heap[0]] if heaped[0] > 0 else np.inf
        alive = False
        for j in range(job.shape[1]):
            if job[PHASE, j] == WAITING:
                instant = min(instant, times[NEXT, j])
            alive = alive or job[PHASE, j] != GONE
        if not alive:
            reason = FINISHED
            break
        if instant > until:
            now = max(now, until)
            break
        if instant == np.inf:
            reason = STUCK
            break
        now = max(now, instant)
        horizon = now * (1.0 + SAME)
        beginning = 0
        # 3. Flows that end; rings whose step is over go on, or are done.
        while heaped[0] > 0 and flow[DUE, heap[0]] <= horizon:
            f = heap[0]
            heaped[0] -= 1
            mark[PLACE, f] = -1
            if heaped[0] > 0:
                heap[0] = heap[heaped[0]]
                mark[PLACE, heap[0]] = 0
                _settle(heap, 0, flow, mark, heaped[0])
            for slot in range(SLOTS):
                name = links[f, slot]
                if name >= 0 and not queued[name]:
                    queue[waiting] = name
                    queued[name] = True
                    waiting += 1
            r = mark[RING, f]
            j = ring[OWNER, r]
            if fct.size > 0:
                first = ring[FLOW_0, job[RING_0, j]]
                last = ring[FLOW_1, job[RING_1, j] - 1]
                step = job[EPOCH, j] * job[STEPS, j] + ring[STEP, r]
                fct[job[FCT_0, j] + step * (last - first) + f - first] = now - flow[BEGAN, f]
            ring[OPEN, r] -= 1
            if ring[OPEN, r] > 0:
                continue
            ring[STEP, r] += 1
            if pause and job[WATCH, j] > 0 and reason == REACHED:
                reason = STEPPED
            if ring[STEP, r] < job[STEPS, j]:
                begun[beginning] = r
                beginning += 1
                continue
            job[LEFT, j] -= 1
            if job[LEFT, j] > 0:
                continue
            ends[j, job[EPOCH, j]] = now
            job[EPOCH, j] += 1
            if job[EPOCH, j] < job[EPOCHS, j]:
                job[PHASE, j] = WAITING
                times[NEXT, j] = now + times[COMPUTE, j]
            else:
                job[PHASE, j] = GONE
                reason = LEFT_NOW
        # 4. Jobs that begin an AllReduce.
        for j in range(job.shape[1]):
            if job[PHASE, j] != WAITING or times[NEXT, j] > horizon:
                continue
            job[PHASE, j] = SENDING
            starts[j, job[EPOCH, j]] = now
            job[LEFT, j] = job[RING_1, j] - job[RING_0, j]
            for r in range(job[RING_0, j], job[RING_1, j]):
                ring[STEP, r] = 0
                begun[beginning] = r
                beginning += 1
            if pause and reason != LEFT_NOW:
                reason = STARTED
        for i in range(beginning):
            r = begun[i]
            ring[OPEN, r] = ring[FLOW_1, r] - ring[FLOW_0, r]
            for f in range(ring[FLOW_0, r], ring[FLOW_1, r]):
                flow[REST, f] = flow[SIZE, f]
                flow[BEGAN, f] = now
                flow[SINCE, f] = now
                flow[RATE, f] = -1.0
                flow[DUE, f] = np.inf
                heap[heaped[0]] = f
                mark[PLACE, f] = heaped[0]
                heaped[0] += 1
                if mark[TOUCHED, f] == 0:
                    mark[TOUCHED, f] = 1
                    news[fresh] = f
                    fresh += 1
                for slot in range(SLOTS):
                    name = links[f, slot]
                    if name >= 0 and not queued[name]:
                        queue[waiting] = name
                        queued[name] = True
                        waiting += 1
    clock[0] = now
    return reason


@kernel
def work_left(now: float, job: Ints, ring: Ints, flow: Floats, mark: Ints) -> Floats:
    """Return the share of its AllReduce that each flow's ring has before it."""
    left = np.zeros(flow.shape[1])
    for r in range(ring.shape[1]):
        j = ring[OWNER, r]
        steps = job[STEPS, j]
        if job[PHASE, j] != SENDING or ring[STEP, r] >= steps:
            continue
        most = 0.0
        for f in range(ring[FLOW_0, r], ring[FLOW_1, r]):
            if mark[PLACE, f] >= 0:
                rest = flow[REST, f] - max(flow[RATE, f], 0.0) * (now - flow[SINCE, f])
                most = max(most, rest / flow[SIZE, f])
        share = (steps - ring[STEP, r] - 1 + most) / steps
        for f in range(ring[FLOW_0, r], ring[FLOW_1, r]):
            left[f] = share
    return left
