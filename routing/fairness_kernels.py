"""Compiled progressive filling: the inner loop of every simulation.

Filling is written for a *chosen* subset of flows over the capacity that the others leave, so
that one kernel serves a full allocation and the exact incremental re-solve of the simulator.

Indices are made unsigned where it pays: for signed ones numba adds code to each access that
lets them count from the end.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import inner_kernel, kernel

# Rows of the work space.
WEIGHT, SHARE = 0, 1  # real: weight of the flows not yet frozen; the heap's keys
OPEN, STOP, NAME = 0, 1, 2  # whole: entries of flows not yet frozen; end of the link's part of
# CROSSING; the heap's links. OPEN is zero on entry and on return.
LINK, CROSSING = 0, 1  # near: links of the chosen flows; chosen flows link by link


class Workspace(NamedTuple):
    """Work space of `refill`.

    Parameters
    ----------
    real : float64 array, shape (2, links + 1)
    whole : int32 array, shape (3, links)
        Zero on entry.
    near : int32 array, shape (2, entries of the chosen flows, or more)
    amounts : float64 array, of the same length
    given : float64 array, shape (chosen flows, or more)
    first : int64 array, shape (2 chosen flows + 1, or more)
    """

    real: Floats
    whole: SmallInts
    near: SmallInts
    amounts: Floats
    given: Floats
    first: Ints


@kernel
def workspace(links: int, flows: int, entries: int) -> Workspace:
    """Return work space for so many links, chosen flows and entries of theirs."""
    return Workspace(
        np.empty((2, links + 1)),
        np.zeros((3, links), np.int32),
        np.empty((2, entries), np.int32),
        np.empty(entries),
        np.empty(flows),
        np.empty(2 * flows + 2, np.int64),
    )


@inner_kernel
def _sift_down(share: Floats, link: SmallInts, size: int, place: int) -> None:
    """Restore the heap order below one place; ``share[size]`` is infinite."""
    one = np.uint64(1)
    here = np.uint64(place)
    end = np.uint64(size)
    key = share[here]
    name = link[here]
    while True:
        child = here + here + one
        if child >= end:
            break
        if share[child + one] < share[child]:
            child = child + one
        if share[child] >= key:
            break
        share[here] = share[child]
        link[here] = link[child]
        here = child
    share[here] = key
    link[here] = name


@inner_kernel
def _sort_by_cap(places: Ints, begin: int, count: int, chosen: SmallInts, cap: Floats) -> None:
    """Sort a part of ``places`` by the caps of the flows chosen there (Shell's sort)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(begin + gap, begin + count):
            place = places[i]
            key = cap[chosen[place]]
            at = i
            while at >= begin + gap:
                other = places[at - gap]
                held = cap[chosen[other]]
                if held < key or (held == key and other < place):
                    break
                places[at] = other
                at -= gap
            places[at] = place
        gap //= 3


@inner_kernel
def refill(
    chosen: SmallInts,
    count: int,
    begin: Ints,
    end: Ints,
    copies: Floats,
    cap: Floats,
    rate: Floats,
    links: SmallInts,
    weights: Floats,
    spare: Floats,
    work: Workspace,
) -> None:
    """Give the chosen flows their max-min fair rates, all other flows staying as they are.

    The heap of link shares is lazy: while flows freeze at the lowest share, the share of every
    other link can only rise, so a popped link whose share has risen is put back. The entries of
    the chosen flows are first copied next to each other, for the sake of the processor's cache.
    D. Bertsekas and R. Gallager, *Data Networks*, 2nd ed., section 6.5.2 (progressive filling);
    weights generalise it to flows that split over paths and to coupled streams.

    Parameters
    ----------
    chosen : int32 array
        The first ``count`` entries are the flows to fill; each crosses at least one link.
    begin, end : int64 arrays, shape (flows,)
        Entries ``begin[f] .. end[f]`` of ``links`` and ``weights`` belong to flow f.
    copies : float64 array, shape (flows,)
        Number of identical flows that f stands for; each gets the rate.
    cap : float64 array, shape (flows,)
        Rate that a flow does not exceed (infinity: none), as if it had a link of its own.
    rate : float64 array, shape (flows,)
        In: rates held (negative: none yet). Out: new rates of the chosen flows.
    links, weights
        Route entries.
    spare : float64 array, shape (links,)
        Capacity that no flow uses; updated.
    work : Workspace
    """
    real, whole, near, amounts, given, first = work
    weight, heap_share = real[WEIGHT], real[SHARE]
    open_, stop, heap_link = whole[OPEN], whole[STOP], whole[NAME]
    link_of, crossing = near[LINK], near[CROSSING]
    touched = 0
    place = 0
    capped = int(np.int64(0))
    after_all = count + 1  # where ``first`` lists the capped flows
    for i in range(count):
        flow = np.uint64(chosen[i])
        if cap[flow] < np.inf:
            first[after_all + capped] = i
            capped += 1
        many = copies[flow]
        held = max(rate[flow], 0.0)
        first[i] = place
        given[i] = -1.0
        for entry in range(np.uint64(begin[flow]), np.uint64(end[flow])):
            link = np.uint64(links[entry])
            amount = weights[entry] * many
            if open_[link] == 0:
                heap_link[touched] = link
                touched += 1
                weight[link] = 0.0
            open_[link] += 1
            weight[link] += amount
            spare[link] += amount * held
            link_of[place] = link
            amounts[place] = amount
            place += 1
    first[count] = place
    _sort_by_cap(first, after_all, capped, chosen, cap)
    place = 0
    for t in range(touched):
        link = np.uint64(heap_link[t])
        stop[link] = place
        place += open_[link]
        heap_share[t] = max(spare[link], 0.0) / weight[link]
    for i in range(count):
        for entry in range(np.uint64(first[i]), np.uint64(first[i + 1])):
            link = np.uint64(link_of[entry])
            crossing[np.uint64(stop[link])] = i
            stop[link] += 1
    heap_share[touched] = np.inf
    for t in range(touched // 2 - 1, -1, -1):
        _sift_down(heap_share, heap_link, touched, t)
    top = touched - touched
    level = 0.0
    left = count
    size = touched
    tried = int(np.int64(0))
    lowest_cap = cap[chosen[first[after_all]]] if capped > 0 else np.inf
    while left > 0:
        link = np.uint64(heap_link[0])
        if open_[link] > 0:
            # Weights that are rounding errors may cancel: then this link stops nobody by itself.
            share = np.inf if heap_share[0] < np.inf else level
            if weight[link] > 0.0:
                share = max(spare[link], 0.0) / weight[link]
            if share > heap_share[0]:
                heap_share[0] = share
                _sift_down(heap_share, heap_link, size, top)
                continue
            if lowest_cap <= share:
                found = np.uint64(first[after_all + tried])
                if given[found] < 0.0:
                    level = max(level, lowest_cap)
                    given[found] = lowest_cap
                    left -= 1
                    after = found + np.uint64(1)
                    for entry in range(np.uint64(first[found]), np.uint64(first[after])):
                        other = np.uint64(link_of[entry])
                        amount = amounts[entry]
                        spare[other] -= amount * lowest_cap
                        weight[other] -= amount
                        open_[other] -= 1
                tried += 1
                lowest_cap = cap[chosen[first[after_all + tried]]] if tried < capped else np.inf
                continue
            level = max(level, share)
            place = stop[link]
            while open_[link] > 0:  # all of its flows are found before its part begins
                place -= 1
                found = np.uint64(crossing[np.uint64(place)])
                if given[found] >= 0.0:
                    continue
                given[found] = level
                left -= 1
                after = found + np.uint64(1)
                for entry in range(np.uint64(first[found]), np.uint64(first[after])):
                    other = np.uint64(link_of[entry])
                    amount = amounts[entry]
                    spare[other] -= amount * level
                    weight[other] -= amount
                    open_[other] -= 1
        size -= 1
        heap_share[0] = heap_share[size]
        heap_link[0] = heap_link[size]
        heap_share[size] = np.inf
        _sift_down(heap_share, heap_link, size, top)
    for i in range(count):
        rate[chosen[i]] = given[i]
