"""Compiled kernels of minimum-congestion routing: shortest trees and shifts between paths.

Pairs are numbered by (source, target) and grouped by source: those of source s are
``first[s] .. first[s + 1]``.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import inner_kernel, kernel

# Marks of links while two paths of a pair are compared.
_BEST, _BOTH = 1, 2


class FlowPaths(NamedTuple):
    """The paths of all pairs, and the flow on them.

    Each pair has a chain of paths: ``head[pair]``, then ``following``, ending with -1. A path's
    links are ``pool[begin[path] .. begin[path] + hops[path]]``, from the target back.
    """

    head: SmallInts
    following: SmallInts
    begin: Ints
    hops: SmallInts
    flow: Floats
    pool: SmallInts


class Graph(NamedTuple):
    """Links out of each node (CSR) with their ends, and 1 for nodes that may forward."""

    offsets: Ints
    origin: Ints
    target: Ints
    transit: Ints


class Pairs(NamedTuple):
    """Pairs with demand, see above."""

    first: Ints
    target: Ints
    demand: Floats


class LinkPrices(NamedTuple):
    """The links, kept up to date with every shift of flow.

    A link's *price* is exp(sharpness * utilisation) / capacity, the gradient of a soft maximum of
    the utilisations ``used``. ``slowness`` is 1 / capacity; ``mark`` is zero between calls.
    """

    price: Floats
    used: Floats
    slowness: Floats
    mark: SmallInts


@kernel
def shortest_tree(
    offsets: Ints,
    target: Ints,
    transit: Ints,
    price: Floats,
    source: int,
    distance: Floats,
    entry: SmallInts,
    heap: SmallInts,
    place: SmallInts,
) -> None:
    """Fill ``distance`` (infinity: unreachable) and ``entry``, the tree's link into each node.

    Dijkstra's algorithm with an indexed binary heap; ``place`` holds each node's place in it,
    -1 before it entered and -2 after it left.
    """
    nodes = offsets.size - 1
    for v in range(nodes):
        distance[v] = np.inf
        entry[v] = -1
        place[v] = -1
    distance[source] = 0.0
    heap[0] = source
    place[source] = 0
    size = 1
    while size > 0:
        v = heap[0]
        place[v] = -2
        size -= 1
        if size > 0:
            moved = heap[size]
            key = distance[moved]
            here = 0
            while True:
                child = 2 * here + 1
                if child >= size:
                    break
                if child + 1 < size and distance[heap[child + 1]] < distance[heap[child]]:
                    child += 1
                if distance[heap[child]] >= key:
                    break
                heap[here] = heap[child]
                place[heap[here]] = here
                here = child
            heap[here] = moved
            place[moved] = here
        if v != source and transit[v] == 0:
            continue
        reached = distance[v]
        for link in range(offsets[v], offsets[v + 1]):
            w = target[link]
            longer = reached + price[link]
            if longer < distance[w]:
                distance[w] = longer
                entry[w] = link
                here = place[w]
                if here < 0:
                    here = size
                    size += 1
                while here > 0:
                    above = (here - 1) >> 1
                    other = heap[above]
                    if distance[other] <= longer:
                        break
                    heap[here] = other
                    place[other] = here
                    here = above
                heap[here] = w
                place[w] = here


@inner_kernel
def settle(
    paths: FlowPaths, links: LinkPrices, pair: int, sharpness: float, tolerance: float
) -> None:
    """Shift a pair's flow to its cheapest path until others cost the same or carry nothing.

    Each shift minimises the soft maximum along its direction: with A and B the prices of the
    links that only the one and only the other path uses, log A is convex in the amount shifted,
    and log B rises at most as fast as on its slowest link. The step up to where these two meet
    never overshoots, and is exact where capacities are equal.
    """
    head, following, begin, hops, flow, pool = paths
    price, used, slowness, mark = links
    best = head[pair]
    if following[best] < 0:
        return
    cheapest = np.inf
    path = head[pair]
    while path >= 0:
        cost = 0.0
        for position in range(begin[path], begin[path] + hops[path]):
            cost += price[pool[position]]
        if cost < cheapest:
            cheapest = cost
            best = path
        path = following[path]
    before = -1
    path = head[pair]
    while path >= 0:
        after = following[path]
        if path == best:
            before = path
            path = after
            continue
        for position in range(begin[best], begin[best] + hops[best]):
            mark[pool[position]] = _BEST
        costly, slope, cheap, steepest = 0.0, 0.0, 0.0, 0.0
        for position in range(begin[path], begin[path] + hops[path]):
            link = pool[position]
            if mark[link] == _BEST:
                mark[link] = _BOTH
            else:
                costly += price[link]
                slope += price[link] * slowness[link]
        for position in range(begin[best], begin[best] + hops[best]):
            link = pool[position]
            if mark[link] == _BEST:
                cheap += price[link]
                steepest = max(steepest, slowness[link])
        if costly - cheap > tolerance * cheapest:
            step = flow[path]
            if cheap > 0.0:
                rate = sharpness * (slope / costly + steepest)
                step = min(step, np.log(costly / cheap) / rate)
            flow[path] -= step
            flow[best] += step
            last, growth = -1.0, 1.0
            for position in range(begin[path], begin[path] + hops[path]):
                link = pool[position]
                if mark[link] != _BOTH:
                    if slowness[link] != last:
                        last = slowness[link]
                        growth = np.exp(-sharpness * step * last)
                    used[link] -= step * last
                    price[link] *= growth
            last = -1.0
            for position in range(begin[best], begin[best] + hops[best]):
                link = pool[position]
                if mark[link] == _BEST:
                    if slowness[link] != last:
                        last = slowness[link]
                        growth = np.exp(sharpness * step * last)
                    used[link] += step * last
                    price[link] *= growth
        for position in range(begin[best], begin[best] + hops[best]):
            mark[pool[position]] = 0
        if flow[path] <= 0.0:
            if before < 0:
                head[pair] = after
            else:
                following[before] = after
        else:
            before = path
        path = after


@kernel
def settle_all(paths: FlowPaths, links: LinkPrices, sharpness: float, tolerance: float) -> None:
    """Settle every pair in turn."""
    for pair in range(paths.head.size):
        settle(paths, links, pair, sharpness, tolerance)


@kernel
def packed_paths(given: FlowPaths) -> tuple[Ints, Ints, SmallInts, Floats]:
    """Return the paths pair by pair, without those that nothing uses any more.

    Returns
    -------
    path_offsets : int64 array, shape (pairs + 1,)
    link_offsets : int64 array, shape (paths + 1,)
    links : int32 array
    flow : float64 array, shape (paths,)
    """
    head, following, begin, hops, flow, pool = given
    paths, entries = 0, 0
    for pair in range(head.size):
        path = head[pair]
        while path >= 0:
            if flow[path] > 0.0:
                paths += 1
                entries += hops[path]
            path = following[path]
    path_offsets = np.zeros(head.size + 1, np.int64)
    link_offsets = np.zeros(paths + 1, np.int64)
    links = np.empty(entries, np.int32)
    kept = np.empty(paths)
    paths, entries = 0, 0
    for pair in range(head.size):
        path = head[pair]
        while path >= 0:
            if flow[path] > 0.0:
                kept[paths] = flow[path]
                for position in range(begin[path], begin[path] + hops[path]):
                    links[entries] = pool[position]
                    entries += 1
                paths += 1
                link_offsets[paths] = entries
            path = following[path]
        path_offsets[pair + 1] = paths
    return path_offsets, link_offsets, links, kept


@kernel
def extend_paths(
    source: int, count: int, entries: int, graph: Graph, pairs: Pairs, paths: FlowPaths,
    links: LinkPrices, frozen: Floats, sharpness: float, tolerance: float, live: bool,
) -> tuple[int, int, int, float]:  # fmt: skip
    """Give pairs the shortest paths under frozen prices, and settle each with live ones.

    Works through the sources from ``source`` on, as long as there is room for the worst case.
    With ``live``, trees follow live prices too, and the bound means nothing. Links are stored
    from the target back, so that a path is written as it is found.

    Returns
    -------
    source : int
        The next source; their number if all are done.
    count, entries : int
        Paths and pool entries in use.
    bound : float
        Sum of demand times frozen distance over the sources done.
    """
    distance = np.empty(graph.offsets.size - 1)
    entry = np.empty(distance.size, np.int32)
    heap = np.empty(distance.size, np.int32)
    place = np.empty(distance.size, np.int32)
    bound = 0.0
    while source < pairs.first.size - 1:
        more = pairs.first[source + 1] - pairs.first[source]
        if count + more > paths.flow.size or entries + more * distance.size > paths.pool.size:
            break
        if more > 0:
            shortest_tree(
                graph.offsets, graph.target, graph.transit, links.price if live else frozen,
                source, distance, entry, heap, place,
            )  # fmt: skip
        count, entries, bound = _extend(
            source, count, entries, bound, distance, entry, graph.origin, pairs, paths, links,
            frozen, sharpness, tolerance,
        )  # fmt: skip
        source += 1
    return source, count, entries, bound


@inner_kernel
def _extend(
    source: int, count: int, entries: int, bound: float, distance: Floats, entry: SmallInts,
    origin: Ints, pairs: Pairs, paths: FlowPaths, links: LinkPrices, frozen: Floats,
    sharpness: float, tolerance: float,
) -> tuple[int, int, float]:  # fmt: skip
    """Give the pairs of one source their paths in a tree, and settle each."""
    head, following, begin, hops, flow, pool = paths
    price, used, slowness, _ = links
    demand = pairs.demand
    for pair in range(pairs.first[source], pairs.first[source + 1]):
        t = pairs.target[pair]
        bound += demand[pair] * distance[t]
        cheapest = np.inf
        path = head[pair]
        while path >= 0:
            cost = 0.0
            for position in range(begin[path], begin[path] + hops[path]):
                cost += frozen[pool[position]]
            cheapest = min(cheapest, cost)
            path = following[path]
        length = 0
        if distance[t] < cheapest * (1.0 - tolerance):
            v = t
            while v != source:
                link = entry[v]
                pool[entries + length] = link
                length += 1
                v = origin[link]
            begin[count] = entries
            hops[count] = length
            following[count] = head[pair]
            flow[count] = 0.0
            if head[pair] < 0:
                flow[count] = demand[pair]
                for position in range(entries, entries + length):
                    link = pool[position]
                    used[link] += demand[pair] * slowness[link]
                    growth = np.exp(min(sharpness * demand[pair] * slowness[link], 99.0))
                    price[link] = min(price[link] * growth, 1e200)
            head[pair] = count
            count += 1
            entries += length
        settle(paths, links, pair, sharpness, tolerance)
        # Stale prices also suggest paths that nothing moved to: their room is free again.
        if length > 0 and head[pair] != count - 1:
            count -= 1
            entries -= length
    return count, entries, bound


@kernel
def utilisation(paths: FlowPaths, slowness: Floats) -> Floats:
    """Return each link's load over its capacity, summed from the paths' flows."""
    head, following, begin, hops, flow, pool = paths
    used = np.zeros(slowness.size)
    for pair in range(head.size):
        path = head[pair]
        while path >= 0:
            for position in range(begin[path], begin[path] + hops[path]):
                used[pool[position]] += flow[path]
            path = following[path]
    for link in range(used.size):
        used[link] *= slowness[link]
    return used
