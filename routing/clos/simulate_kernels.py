"""The compiled event loop of barrier-synchronised rings under max-min fair rates."""

import numpy as np

import routing.clos.run_kernels as k
from codesign_base.arrays import Flags, Floats, Ints, SmallInts
from codesign_base.jit import inner_kernel, kernel
from routing.clos.levels_kernels import SAME, limit, relax
from routing.clos.run_kernels import Rates, RingRun


@inner_kernel
def _settle(place: int, run: RingRun) -> None:
    """Move one entry of the heap of completion times to where it belongs."""
    flow, mark, size = run.rates.flow, run.rates.mark, run.rates.counts[k.HEAPED]
    heap = mark[k.HEAP]
    name = heap[place]
    due = flow[k.DUE, name]
    while place > 0:
        parent = (place - 1) >> 1
        if flow[k.DUE, heap[parent]] <= due:
            break
        heap[place] = heap[parent]
        mark[k.PLACE, heap[place]] = place
        place = parent
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and flow[k.DUE, heap[child + 1]] < flow[k.DUE, heap[child]]:
            child += 1
        if flow[k.DUE, heap[child]] >= due:
            break
        heap[place] = heap[child]
        mark[k.PLACE, heap[place]] = place
        place = child
    heap[place] = name
    mark[k.PLACE, name] = place


@inner_kernel
def _touch(f: int, rates: Rates) -> None:
    """Have a flow's rate computed again."""
    mark, counts = rates.mark, rates.counts
    if mark[k.TOUCHED, f] == 0:
        mark[k.TOUCHED, f] = 1
        mark[k.NEWS, counts[k.FRESH]] = f
        counts[k.FRESH] += 1


@inner_kernel
def _disturb(name: int, rates: Rates) -> None:
    """Have a link's level computed again; -1 is none."""
    if name >= 0 and not rates.queued[name]:
        rates.queued[name] = True
        rates.queue[rates.counts[k.QUEUED]] = name
        rates.counts[k.QUEUED] += 1


@inner_kernel
def _disturb_links(f: int, rates: Rates) -> None:
    """Have the levels of a flow's links computed again."""
    for slot in range(k.SLOTS):
        _disturb(rates.links[f, slot], rates)


@kernel
def relink(wanted: SmallInts, present: Flags, rates: Rates) -> None:
    """Put the present flows on their links; what was sent so far stays sent.

    Links that all their flows together cannot fill are left out: they never bind.

    Parameters
    ----------
    wanted : int32 array, shape (flows, SLOTS)
        Links of each flow; -1: none.
    present : bool array, shape (flows,)
        Whether the flow's job is there.
    rates : Rates
        Links, their members and levels are written, and what `run_until` computes first.
    """
    flow, mark, links, link = rates.flow, rates.mark, rates.links, rates.link
    begin, members, counts = rates.begin, rates.members, rates.counts
    flows = wanted.shape[0]
    names = link.shape[1]
    demand = np.zeros(names)
    counts[k.QUEUED] = 0
    counts[k.FRESH] = 0
    for f in range(flows):
        mark[k.TOUCHED, f] = 0
        if mark[k.PLACE, f] >= 0:
            _touch(f, rates)
        if present[f]:
            for slot in range(k.SLOTS):
                if wanted[f, slot] >= 0:
                    demand[wanted[f, slot]] += flow[k.NIC, f]
    for name in range(names + 1):
        begin[name] = 0
    for f in range(flows):
        for slot in range(k.SLOTS):
            name = wanted[f, slot]
            links[f, slot] = -1
            if present[f] and name >= 0 and demand[name] > link[k.ROOM, name] * (1.0 + SAME):
                links[f, slot] = name
                begin[name + 1] += 1
    for name in range(names):
        rates.queued[name] = False
        if begin[name + 1] > 0:
            _disturb(name, rates)
        begin[name + 1] += begin[name]
        link[k.LEVEL, name] = np.inf
    place = begin.copy()
    for f in range(flows):
        for slot in range(k.SLOTS):
            name = links[f, slot]
            if name >= 0:
                members[place[name]] = f
                place[name] += 1


@kernel
def exchange_links(movers: Ints, wanted: SmallInts, rates: Rates) -> None:
    """Let flows take over each other's links; no link's number of flows changes.

    Parameters
    ----------
    movers : int64 array
        The flows.
    wanted : int32 array, shape (movers, SLOTS)
        New links of each, ``-1`` where they never bind.
    rates : Rates
        As in `relink`.
    """
    links, begin, members = rates.links, rates.begin, rates.members
    for f in movers:
        for slot in range(k.SLOTS):
            name = links[f, slot]
            if name >= 0:
                for entry in range(begin[name], begin[name + 1]):
                    if members[entry] == f:
                        members[entry] = -1
                        break
    for i in range(movers.size):
        f = movers[i]
        if rates.mark[k.PLACE, f] >= 0:
            _touch(f, rates)
        for slot in range(k.SLOTS):
            old, name = links[f, slot], wanted[i, slot]
            links[f, slot] = name
            if name >= 0:
                for entry in range(begin[name], begin[name + 1]):
                    if members[entry] < 0:
                        members[entry] = f
                        break
            _disturb(old, rates)
            _disturb(name, rates)


@kernel
def hold(held: Ints, until: float, rates: Rates) -> None:
    """Let flows send nothing before a time: those in flight stop, others begin later.

    Parameters
    ----------
    held : int64 array
        The flows.
    until : float
        When they may send.
    rates : Rates
        As in `relink`.
    """
    flow, mark = rates.flow, rates.mark
    for f in held:
        flow[k.CAP, f] = 0.0
        flow[k.HELD, f] = until
        if mark[k.PLACE, f] >= 0:
            _touch(f, rates)
            _disturb_links(f, rates)


@kernel
def run_until(until: float, pause: bool, steps: bool, run: RingRun) -> int:
    """Simulate events up to a time; return why it stopped there.

    Parameters
    ----------
    until : float
        Where to stop at the latest.
    pause, steps : bool
        Stop also after each instant at which a job began an AllReduce; a ring of a watched job
        a step.
    run : RingRun
        Moved on, beginning with the pending links and flows of its rates.
    """
    rates, job, times, ring = run.rates, run.job, run.times, run.ring
    flow, mark, counts = rates.flow, rates.mark, rates.counts
    heap, news, clock, fct = mark[k.HEAP], mark[k.NEWS], run.clock, run.fct
    begun = np.empty(ring.shape[1], dtype=np.int64)
    now = clock[0]
    reason = k.REACHED
    while True:
        # 1. Rates after what the last instant changed.
        fresh = relax(counts[k.QUEUED], counts[k.FRESH], rates)
        counts[k.QUEUED] = 0
        counts[k.FRESH] = 0
        for i in range(fresh):
            f = news[i]
            mark[k.TOUCHED, f] = 0
            if mark[k.PLACE, f] < 0:
                continue
            rate = limit(f, -1, rates)
            old = flow[k.RATE, f]
            # Flows that stood still may do so until another time, which is computed below.
            if old > 0.0 and abs(rate - old) <= SAME * old:
                continue
            if old > 0.0:
                flow[k.REST, f] -= old * (now - flow[k.SINCE, f])
            flow[k.SINCE, f] = now
            flow[k.RATE, f] = rate
            if rate > 0.0:
                flow[k.DUE, f] = now + max(flow[k.REST, f], 0.0) / rate
            else:
                flow[k.DUE, f] = flow[k.HELD, f] if flow[k.CAP, f] == 0.0 else np.inf
            _settle(mark[k.PLACE, f], run)
        if reason != k.REACHED:
            break
        # 2. The next instant.
        instant = flow[k.DUE, heap[0]] if counts[k.HEAPED] > 0 else np.inf
        alive = False
        for j in range(job.shape[1]):
            if job[k.PHASE, j] == k.WAITING:
                instant = min(instant, times[k.NEXT, j])
            alive = alive or job[k.PHASE, j] != k.GONE
        if not alive:
            reason = k.FINISHED
            break
        if instant > until:
            now = max(now, until)
            break
        if instant == np.inf:
            reason = k.STUCK
            break
        now = max(now, instant)
        horizon = now * (1.0 + SAME)
        beginning = 0
        # 3. Flows that end; rings whose step is over go on, or are done.
        while counts[k.HEAPED] > 0 and flow[k.DUE, heap[0]] <= horizon:
            f = heap[0]
            if flow[k.CAP, f] == 0.0:
                # It was being moved, and may be so again.
                flow[k.DUE, f] = flow[k.HELD, f]
                if flow[k.HELD, f] <= horizon:
                    flow[k.CAP, f] = flow[k.NIC, f]
                    flow[k.DUE, f] = np.inf
                    _touch(f, rates)
                    _disturb_links(f, rates)
                _settle(0, run)
                continue
            counts[k.HEAPED] -= 1
            mark[k.PLACE, f] = -1
            if counts[k.HEAPED] > 0:
                heap[0] = heap[counts[k.HEAPED]]
                mark[k.PLACE, heap[0]] = 0
                _settle(0, run)
            _disturb_links(f, rates)
            r = mark[k.RING, f]
            j = ring[k.OWNER, r]
            first = ring[k.FLOW_0, job[k.RING_0, j]]
            last = ring[k.FLOW_1, job[k.RING_1, j] - 1]
            step = job[k.EPOCH, j] * job[k.STEPS, j] + ring[k.STEP, r]
            fct[job[k.FCT_0, j] + step * (last - first) + f - first] = now - flow[k.BEGAN, f]
            ring[k.OPEN, r] -= 1
            if ring[k.OPEN, r] > 0:
                continue
            ring[k.STEP, r] += 1
            if steps and job[k.WATCH, j] > 0 and reason == k.REACHED:
                reason = k.STEPPED
            if ring[k.STEP, r] < job[k.STEPS, j]:
                begun[beginning] = r
                beginning += 1
                continue
            job[k.LEFT, j] -= 1
            if job[k.LEFT, j] > 0:
                continue
            run.spans[1, j, job[k.EPOCH, j]] = now
            job[k.EPOCH, j] += 1
            if job[k.EPOCH, j] < job[k.EPOCHS, j]:
                job[k.PHASE, j] = k.WAITING
                times[k.NEXT, j] = now + times[k.COMPUTE, j]
            else:
                job[k.PHASE, j] = k.GONE
                reason = k.LEFT_NOW
        # 4. Jobs that begin an AllReduce.
        for j in range(job.shape[1]):
            if job[k.PHASE, j] != k.WAITING or times[k.NEXT, j] > horizon:
                continue
            job[k.PHASE, j] = k.SENDING
            run.spans[0, j, job[k.EPOCH, j]] = now
            job[k.LEFT, j] = job[k.RING_1, j] - job[k.RING_0, j]
            for r in range(job[k.RING_0, j], job[k.RING_1, j]):
                ring[k.STEP, r] = 0
                begun[beginning] = r
                beginning += 1
            if pause and reason != k.LEFT_NOW:
                reason = k.STARTED
        for i in range(beginning):
            r = begun[i]
            ring[k.OPEN, r] = ring[k.FLOW_1, r] - ring[k.FLOW_0, r]
            for f in range(ring[k.FLOW_0, r], ring[k.FLOW_1, r]):
                flow[k.REST, f] = flow[k.SIZE, f]
                flow[k.BEGAN, f] = now
                flow[k.SINCE, f] = now
                flow[k.RATE, f] = -1.0
                flow[k.DUE, f] = np.inf
                heap[counts[k.HEAPED]] = f
                mark[k.PLACE, f] = counts[k.HEAPED]
                counts[k.HEAPED] += 1
                if flow[k.CAP, f] == 0.0 and flow[k.HELD, f] <= horizon:
                    flow[k.CAP, f] = flow[k.NIC, f]
                _touch(f, rates)
                _disturb_links(f, rates)
    clock[0] = now
    return reason


@kernel
def work_left(run: RingRun) -> Floats:
    """Return the share of its AllReduce that each flow's ring has before it."""
    job, ring, flow, mark = run.job, run.ring, run.rates.flow, run.rates.mark
    now = run.clock[0]
    left = np.zeros(flow.shape[1])
    for r in range(ring.shape[1]):
        j = ring[k.OWNER, r]
        steps = job[k.STEPS, j]
        if job[k.PHASE, j] != k.SENDING or ring[k.STEP, r] >= steps:
            continue
        most = 0.0
        for f in range(ring[k.FLOW_0, r], ring[k.FLOW_1, r]):
            if mark[k.PLACE, f] >= 0:
                rest = flow[k.REST, f] - max(flow[k.RATE, f], 0.0) * (now - flow[k.SINCE, f])
                most = max(most, rest / flow[k.SIZE, f])
        share = (steps - ring[k.STEP, r] - 1 + most) / steps
        for f in range(ring[k.FLOW_0, r], ring[k.FLOW_1, r]):
            left[f] = share
    return left
