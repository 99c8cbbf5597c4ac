"""The compiled choice of rings for a group that was given none; see `rings.default_rings`."""

import numpy as np

from codesign_base.array_kernels import copy_into
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import inner_kernel, kernel

MAX_RINGS = 8
MAX_CIRCULANT = 16
_PATIENCE = 3
STEEPNESS = 8.0  # price of a fully loaded link over that of an idle one, less one
# What differs by less is equal, and the earlier is chosen: rounding must decide nothing.
_CLOSE = 1e-9


@inner_kernel
def _largest(values: Floats) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


@inner_kernel
def _price_routes(
    members: Ints,
    begin: Ints,
    end: Ints,
    links: SmallInts,
    weights: Floats,
    slowness: Floats,
    total: Floats,
    price: Floats,
    cost: Floats,
) -> None:
    """Work out what the route between any two members costs beside the rings so far."""
    most = max(_largest(total), 1e-300)
    for link in range(total.size):
        price[link] = slowness[link] * (1.0 + STEEPNESS * total[link] / most)
    for i in range(members.size):
        for j in range(members.size):
            cost[i, j] = np.inf
            if i != j and end[i, j] > begin[i, j]:
                paid = 0.0
                for entry in range(begin[i, j], end[i, j]):
                    paid += weights[entry] * price[links[entry]]
                cost[i, j] = paid


@inner_kernel
def _tour(cost: Floats, start: int, tour: Ints, left: Ints) -> None:
    """Go on to the cheapest place left, from a start."""
    left[:] = 1
    here = start
    for step in range(tour.size):
        tour[step] = here
        left[here] = 0
        nearest = here
        for there in range(tour.size):
            if left[there] and (nearest == here or cost[here, there] < cost[here, nearest]):
                nearest = there
        here = nearest


@inner_kernel
def _ring_times(
    order: Ints,
    begin: Ints,
    end: Ints,
    links: SmallInts,
    weights: Floats,
    slowness: Floats,
    times: Floats,
) -> int:
    """Work out how long a ring occupies each link; return a pair without a route, or -1."""
    times[:] = 0.0
    for place in range(order.size):
        after = order[place + 1] if place + 1 < order.size else order[0]
        here = order[place]
        if end[here, after] == begin[here, after]:
            return int(here * order.size + after)
        for entry in range(begin[here, after], end[here, after]):
            times[links[entry]] += weights[entry]
    for link in range(times.size):
        times[link] *= slowness[link]
    return -1


@inner_kernel
def _cheapest_steps(cost: Floats, seen: int, steps: Ints, price: Floats) -> int:
    """Put the steps coprime to the size whose sampled edges cost least first; count them."""
    size = cost.shape[0]
    found = 0
    for step in range(1, size):
        a, b = size, step
        while b:
            a, b = b, a % b
        if a == 1:
            price[found] = 0.0
            for place in range(0, size, seen):
                price[found] += cost[place, (place + step) % size]
            steps[found] = step
            found += 1
    kept = min(found, MAX_CIRCULANT)
    for rank in range(kept):
        best = rank
        for other in range(rank + 1, found):
            if price[other] < price[best] * (1.0 - _CLOSE):
                best = other
        # The others keep their order.
        least, step = price[best], steps[best]
        for other in range(best, rank, -1):
            price[other], steps[other] = price[other - 1], steps[other - 1]
        price[rank], steps[rank] = least, step
    return kept


@inner_kernel
def _disjoint_enough(times: Floats, count: int, total: Floats, chosen: Ints) -> float:
    """Add rings, each the one that leaves the time lowest; return the best time.

    The rings of the best time are in ``chosen``, up to the first that is negative.
    """
    total[:] = 0.0
    best = np.inf
    keep = 0
    for size in range(1, min(MAX_RINGS, count) + 1):
        pick = -1
        least = np.inf
        for ring in range(count):
            taken = False
            for before in range(size - 1):
                taken = taken or chosen[before] == ring
            if taken:
                continue
            most = 0.0
            for link in range(total.size):
                most = max(most, total[link] + times[ring, link])
            if pick < 0 or most < least * (1.0 - _CLOSE):
                pick, least = ring, most
        chosen[size - 1] = pick
        for link in range(total.size):
            total[link] += times[pick, link]
        if least / size < best * (1.0 - _CLOSE):
            best, keep = least / size, size
    chosen[keep:] = -1
    return best


@inner_kernel
def _next_ring(times: Floats, count: int, total: Floats, taken: Ints) -> int:
    """Return the ring not taken that leaves the links loaded most evenly.

    By the eighth power of the loads rather than by the maximum: it still tells candidates apart
    when all of them load some link equally.
    """
    most = 1e-300
    for ring in range(count):
        for link in range(total.size):
            most = max(most, total[link] + times[ring, link])
    pick = -1
    least = np.inf
    for ring in range(count):
        if taken[ring]:
            continue
        norm = 0.0
        for link in range(total.size):
            share = (total[link] + times[ring, link]) / most
            square = share * share
            norm += square * square * square * square
        if pick < 0 or norm < least * (1.0 - _CLOSE):
            pick, least = ring, norm
    return pick


@kernel
def choose_rings(
    members: Ints,
    begin: Ints,
    end: Ints,
    links: SmallInts,
    weights: Floats,
    slowness: Floats,
    bound: float,
    starts: Ints,
    seen: int,
) -> tuple[Ints, int]:
    """Choose rings; see `topoopt.fabric.rings.default_rings`.

    Parameters
    ----------
    members : int64 array, shape (size,)
        Sorted hosts, at least three.
    begin, end : int64 arrays, shape (size, size)
        Entries of the route from a member to another.
    links, weights : arrays
        Of all entries.
    slowness : float64 array, shape (links,)
        Seconds a byte.
    bound : float
        Seconds a byte that no set of rings is below.
    starts : int64 array
        Places in ``members`` where tours begin.
    seen : int
        Of the edges of "+p" orders every so manieth is looked at.

    Returns
    -------
    orders : int64 array, shape (rings, size)
    lost : int
        Places of two members without a route, as ``source * size + target``; -1: none.
    """
    size = members.size
    total = np.zeros(slowness.size)
    price = np.empty(slowness.size)
    cost = np.empty((size, size))
    _price_routes(members, begin, end, links, weights, slowness, total, price, cost)
    steps = np.empty(size, np.int64)
    count = _cheapest_steps(cost, seen, steps, np.empty(size))
    room = count + starts.size * MAX_RINGS
    orders = np.empty((room, size), np.int64)
    times = np.empty((room, slowness.size))
    for ring in range(count):
        for place in range(size):
            orders[ring, place] = steps[ring] * place % size
        lost = _ring_times(orders[ring], begin, end, links, weights, slowness, times[ring])
        if lost >= 0:
            return orders[:0], lost
    kept = np.full(MAX_RINGS + 1, -1, np.int64)
    best = _disjoint_enough(times, count, total, kept)
    total[:] = 0.0
    chosen = np.full(MAX_RINGS + 1, -1, np.int64)
    taken = np.zeros(room, np.int64)
    left = np.empty(size, np.int64)
    rings = 0
    idle = 0
    lowest = np.inf
    while rings < MAX_RINGS and idle < _PATIENCE and best > bound * (1.0 + _CLOSE):
        for start in starts:
            _tour(cost, start, orders[count], left)
            lost = _ring_times(orders[count], begin, end, links, weights, slowness, times[count])
            if lost >= 0:
                return orders[:0], lost
            count += 1
        pick = _next_ring(times, count, total, taken)
        taken[pick] = 1
        chosen[rings] = pick
        rings += 1
        for link in range(total.size):
            total[link] += times[pick, link]
        time = _largest(total) / rings
        idle = 0 if time < lowest * (1.0 - _CLOSE) else idle + 1
        lowest = min(lowest, time)
        if time < best * (1.0 - _CLOSE):
            best = time
            copy_into(kept, chosen)
        _price_routes(members, begin, end, links, weights, slowness, total, price, cost)
    found = 0
    while kept[found] >= 0:
        found += 1
    result = np.empty((found, size), np.int64)
    for ring in range(found):
        for place in range(size):
            result[ring, place] = members[orders[kept[ring], place]]
    return result, -1
