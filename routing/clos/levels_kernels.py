"""Compiled max-min fair rates that are kept up to date by relaxation, not solved anew.

Every link that can be a bottleneck has a *level*, the rate at which it holds back the flows
that nothing else holds back more. When flows come or go, the levels of their links are computed
again, then those of the links that the changes reach, until nothing changes. A fixed point of
this is the max-min allocation, which is unique; an event costs what it changes, not the size of
the fabric.
"""

import numpy as np

from codesign_base.jit import inner_kernel
from routing.clos.run_kernels import CAP, LEVEL, LIMIT, NEWS, PLACE, ROOM, SLOTS, TOUCHED, Rates

SAME = 1e-12  # two levels or instants that differ by less, relatively, are one


@inner_kernel
def limit(f: int, without: int, rates: Rates) -> float:
    """Return the rate that everything but one link allows a flow."""
    flow, links, link = rates.flow, rates.links, rates.link
    allowed = flow[CAP, f]
    for slot in range(SLOTS):
        other = links[f, slot]
        if other >= 0 and other != without and link[LEVEL, other] < allowed:
            allowed = link[LEVEL, other]
    return float(allowed)


@inner_kernel
def level_of(name: int, rates: Rates) -> float:
    """Return a link's level given those of all other links; infinite if it is not full."""
    mark, link, limits = rates.mark, rates.link, rates.flow[LIMIT]
    begin, members = rates.begin, rates.members
    count = 0
    for entry in range(begin[name], begin[name + 1]):
        f = members[entry]
        if mark[PLACE, f] >= 0:
            limits[count] = limit(f, name, rates)
            count += 1
    room = link[ROOM, name]
    while count > 0:
        level = room / count
        # Flows that others hold below the level leave their share to the rest.
        kept = 0
        for i in range(count):
            if limits[i] <= level:
                room -= limits[i]
            else:
                limits[kept] = limits[i]
                kept += 1
        if kept == count:
            return float(level)
        count = kept
    return float(np.inf)


@inner_kernel
def relax(count: int, fresh: int, rates: Rates) -> int:
    """Bring all levels to their fixed point; return how many flows may have new rates."""
    flow, mark, links, link = rates.flow, rates.mark, rates.links, rates.link
    begin, members, news = rates.begin, rates.members, mark[NEWS]
    queue, queued = rates.queue, rates.queued
    head = 0
    size = queue.size
    while count > 0:
        name = queue[head]
        head += 1
        if head == size:
            head = 0
        count -= 1
        queued[name] = False
        old = link[LEVEL, name]
        new = level_of(name, rates)
        # Infinity is within any fraction of infinity, so compare with the finite one.
        if new == old or abs(new - old) <= SAME * min(new, old):
            continue
        link[LEVEL, name] = new
        for entry in range(begin[name], begin[name + 1]):
            f = members[entry]
            if mark[PLACE, f] < 0:
                continue
            if mark[TOUCHED, f] == 0:
                mark[TOUCHED, f] = 1
                news[fresh] = f
                fresh += 1
            before = min(old, flow[CAP, f])
            after = min(new, flow[CAP, f])
            if before == after:
                continue
            least = min(before, after)
            for slot in range(SLOTS):
                other = links[f, slot]
                if other < 0 or other == name or queued[other]:
                    continue
                if least < link[LEVEL, other]:
                    tail = head + count
                    if tail >= size:
                        tail -= size
                    queue[tail] = other
                    queued[other] = True
                    count += 1
    return fresh
