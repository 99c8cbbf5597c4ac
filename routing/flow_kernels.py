"""Compiled helpers of flows on links: distances, route rows of paths, loops, decomposition."""

import numpy as np

from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import kernel
from routing.multicommodity_kernels import shortest_tree
from routing.path_kernels import sort_prefix


@kernel
def demand_distance(
    offsets: Ints, target: Ints, transit: Ints, length: Floats, demand: Floats
) -> float:
    """Return the sum of demand times distance; infinity if a demand cannot be served."""
    hosts = demand.shape[0]
    nodes = offsets.size - 1
    distance = np.empty(nodes)
    entry = np.empty(nodes, np.int32)
    heap = np.empty(nodes, np.int32)
    place = np.empty(nodes, np.int32)
    total = 0.0
    for source in range(hosts):
        asked = False
        for t in range(hosts):
            asked = asked or demand[source, t] > 0.0
        if not asked:
            continue
        shortest_tree(offsets, target, transit, length, source, distance, entry, heap, place)
        for t in range(hosts):
            if demand[source, t] > 0.0:
                total += demand[source, t] * distance[t]
    return total


@kernel
def tree_entries(
    offsets: Ints, target: Ints, transit: Ints, length: Floats, source: int
) -> tuple[Floats, SmallInts]:
    """Return the distance of each node from the source and the shortest tree's link into it."""
    nodes = offsets.size - 1
    distance = np.empty(nodes)
    entry = np.empty(nodes, np.int32)
    heap = np.empty(nodes, np.int32)
    place = np.empty(nodes, np.int32)
    shortest_tree(offsets, target, transit, length, source, distance, entry, heap, place)
    return distance, entry


@kernel
def rows_of_paths(
    link_count: int,
    path_offsets: Ints,
    link_offsets: Ints,
    path_links: SmallInts,
    shares: Floats,
    latency: Floats,
) -> tuple[Ints, Ints, Floats, Floats]:
    """Sum each pair's path shares per link, links ascending.

    Returns
    -------
    row_offsets : int64 array, shape (pairs + 1,)
    links : int64 array
    weights : float64 array
    slowest : float64 array, shape (pairs,)
        Seconds of the slowest path.
    """
    pairs = path_offsets.size - 1
    row_offsets = np.zeros(pairs + 1, np.int64)
    links = np.empty(path_links.size, np.int64)
    weights = np.empty(path_links.size)
    slowest = np.zeros(pairs)
    weight = np.zeros(link_count)
    row = np.empty(link_count, np.int64)
    used = 0
    for pair in range(pairs):
        count = 0
        for path in range(path_offsets[pair], path_offsets[pair + 1]):
            seconds = 0.0
            for position in range(link_offsets[path], link_offsets[path + 1]):
                link = path_links[position]
                seconds += latency[link]
                if weight[link] == 0.0:
                    row[count] = link
                    count += 1
                weight[link] += shares[path]
            slowest[pair] = max(slowest[pair], seconds)
        sort_prefix(row, count)
        for position in range(count):
            links[used] = row[position]
            weights[used] = min(weight[row[position]], 1.0)
            weight[row[position]] = 0.0
            used += 1
        row_offsets[pair + 1] = used
    return row_offsets, links[:used], weights[:used], slowest


@kernel
def cancel_cycles(offsets: Ints, target: Ints, flow: Floats, dust: float) -> int:
    """Take flow off directed cycles, in place, until none is left; return how many there were.

    Flows of at most ``dust`` are set to zero first. Depth first along links that carry flow;
    when a node of the walk is met again, the loop loses its least flow, and the walk goes back
    to the loop's start.
    """
    nodes = offsets.size - 1
    for link in range(flow.size):
        if flow[link] <= dust:
            flow[link] = 0.0
    state = np.zeros(nodes, np.int32)  # 1: on the walk, 2: no cycle through it
    pointer = offsets[:nodes].copy()
    walk = np.empty(nodes + 1, np.int64)
    taken = np.empty(nodes + 1, np.int64)
    cycles = 0
    for start in range(nodes):
        if state[start] != 0:
            continue
        depth = 0
        walk[0] = start
        state[start] = 1
        while depth >= 0:
            v = walk[depth]
            if pointer[v] >= offsets[v + 1]:
                state[v] = 2
                depth -= 1
                if depth >= 0:
                    pointer[walk[depth]] += 1
                continue
            link = pointer[v]
            w = target[link]
            if flow[link] <= 0.0 or state[w] == 2:
                pointer[v] += 1
                continue
            taken[depth] = link
            if state[w] == 0:
                depth += 1
                walk[depth] = w
                state[w] = 1
                continue
            # A cycle: from w's place on the walk to here.
            cycles += 1
            begin = depth
            while walk[begin] != w:
                begin -= 1
            least = flow[link]
            for place in range(begin, depth + 1):
                least = min(least, flow[taken[place]])
            for place in range(begin, depth + 1):
                flow[taken[place]] -= least
                if flow[taken[place]] <= dust:
                    flow[taken[place]] = 0.0
            for place in range(begin + 1, depth + 1):
                state[walk[place]] = 0
                # Links before its pointer led nowhere or into finished nodes, and still do.
            depth = begin
    return cycles


@kernel
def loop_free_order(offsets: Ints, target: Ints, split: Floats, order: Ints) -> int:
    """Fill ``order`` so that links in use lead to later nodes; return how many nodes fit."""
    nodes = offsets.size - 1
    waiting = np.zeros(nodes, np.int64)
    for link in range(split.size):
        if split[link] > 0.0:
            waiting[target[link]] += 1
    tail = 0
    for v in range(nodes):
        if waiting[v] == 0:
            order[tail] = v
            tail += 1
    head = 0
    while head < tail:
        v = order[head]
        head += 1
        for link in range(offsets[v], offsets[v + 1]):
            if split[link] > 0.0:
                w = target[link]
                waiting[w] -= 1
                if waiting[w] == 0:
                    order[tail] = w
                    tail += 1
    return tail


@kernel
def first_loop(offsets: Ints, target: Ints, split: Floats) -> int:
    """Return a node on or behind a loop of links in use; -1 if there is no loop."""
    nodes = offsets.size - 1
    order = np.empty(nodes, np.int64)
    found = loop_free_order(offsets, target, split, order)
    if found == nodes:
        return -1
    seen = np.zeros(nodes, np.int64)
    for place in range(found):
        seen[order[place]] = 1
    for v in range(nodes):
        if seen[v] == 0:
            return v
    return -1


@kernel
def decompose(
    offsets: Ints,
    origin: Ints,
    target: Ints,
    into_offsets: Ints,
    into: Ints,
    source: int,
    flow: Floats,
    targets: Ints,
    demand: Floats,
    dust: float,
) -> tuple[Ints, Ints, SmallInts, Floats]:
    """Split one source's flow into paths to its targets, widest last link first.

    ``into`` lists links by the node they enter. The flow is used up, in place.

    Returns
    -------
    path_offsets : int64 array, shape (targets + 1,)
    link_offsets : int64 array, shape (paths + 1,)
    links : int32 array
        From the target back.
    amounts : float64 array, shape (paths,)
        What the paths carry; what rounding leaves unserved is missing.
    """
    nodes = offsets.size - 1
    cancel_cycles(offsets, target, flow, dust)
    limit = flow.size + targets.size + 1
    path_offsets = np.zeros(targets.size + 1, np.int64)
    link_offsets = np.zeros(limit + 1, np.int64)
    links = np.empty(limit * nodes, np.int32)
    amounts = np.empty(limit)
    paths, entries = 0, 0
    for index in range(targets.size):
        left = demand[index]
        while left > dust and paths < limit:
            v = targets[index]
            amount = left
            end = entries
            while v != source:
                widest, best = 0.0, -1
                for position in range(into_offsets[v], into_offsets[v + 1]):
                    if flow[into[position]] > widest:
                        widest, best = flow[into[position]], into[position]
                if best < 0:
                    break
                amount = min(amount, widest)
                links[end] = best
                end += 1
                v = origin[best]
            if v != source:
                break
            for position in range(entries, end):
                link = links[position]
                flow[link] -= amount
                if flow[link] <= dust:
                    flow[link] = 0.0
            amounts[paths] = amount
            left -= amount
            paths += 1
            entries = end
            link_offsets[paths] = entries
        path_offsets[index + 1] = paths
    return path_offsets, link_offsets[: paths + 1], links[:entries], amounts[:paths]
