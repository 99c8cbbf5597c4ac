"""Compiled kernels of breadth-first distances and of shortest and equal-cost paths.

All kernels read a network as CSR arrays (``offsets``, ``target``: the links out of each node,
ascending by target), a mask ``transit`` of the nodes that may forward for others, and
``toward[t, v]``, the hops from node v to host t (-1: unreachable). Where ``place`` is given,
``toward`` has rows for some hosts only: that of host t is ``place[t]``.
"""

import numpy as np

from codesign_base.array_kernels import grown
from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel, kernel


@kernel
def distances_into(back_offsets: Ints, back_source: Ints, transit: Ints, targets: Ints) -> Ints:
    """Return hops from all nodes to some, shape (targets, nodes); -1 where there is no path.

    ``back_source[back_offsets[v] : back_offsets[v + 1]]`` are the nodes with a link into v.
    """
    nodes = back_offsets.size - 1
    distance = np.full((targets.size, nodes), -1, np.int64)
    queue = np.empty(nodes, np.int64)
    for number in range(targets.size):
        row = distance[number]
        end = targets[number]
        row[end] = 0
        queue[0] = end
        head, tail = 0, 1
        while head < tail:
            w = queue[head]
            head += 1
            if w != end and transit[w] == 0:
                continue
            for position in range(back_offsets[w], back_offsets[w + 1]):
                v = back_source[position]
                if row[v] < 0:
                    row[v] = row[w] + 1
                    queue[tail] = v
                    tail += 1
    return distance


@inner_kernel
def sort_prefix(values: Ints, count: int) -> None:
    """Sort the first values in place (Shell's method: np.sort compiles for seconds).

    Most of them arrive sorted.
    """
    for i in range(1, count):
        if values[i] < values[i - 1]:
            break
    else:
        return
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            value = values[i]
            place = i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 3


@kernel
def shortest_path_counts(
    offsets: Ints,
    target: Ints,
    transit: Ints,
    toward: Ints,
    nearest: Ints,
) -> Floats:
    """Return how many shortest paths lead from each node to each host, shape of ``toward``.

    ``nearest[t]`` lists all nodes in ascending order of ``toward[t]``.
    """
    hosts, nodes = toward.shape
    counts = np.zeros((hosts, nodes))
    for t in range(hosts):
        counts[t, t] = 1.0
        for v in nearest[t]:
            left = toward[t, v]
            if left < 1:
                continue
            for link in range(offsets[v], offsets[v + 1]):
                w = target[link]
                if toward[t, w] == left - 1 and (w == t or transit[w] != 0):
                    counts[t, v] += counts[t, w]
    return counts


@kernel
def single_paths(
    offsets: Ints,
    target: Ints,
    transit: Ints,
    toward: Ints,
    counts: Floats,
    draws: Floats,
) -> Ints:
    """Return one shortest path of every host pair, links in travel order, pairs in order.

    Without ``draws`` it is the path of lowest node sequence; otherwise ``draws`` holds one
    number in [0, 1) a link, and every shortest path is equally likely.
    """
    hosts = toward.shape[0]
    total = 0
    for s in range(hosts):
        for t in range(hosts):
            total += toward[t, s]
    links = np.empty(total, np.int64)
    used = 0
    for s in range(hosts):
        for t in range(hosts):
            v = s
            while v != t:
                chosen = -1
                below = 0.0
                for link in range(offsets[v], offsets[v + 1]):
                    w = target[link]
                    if toward[t, w] != toward[t, v] - 1 or (w != t and transit[w] == 0):
                        continue
                    chosen = link
                    if draws.size == 0:
                        break
                    below += counts[t, w]
                    if draws[used] * counts[t, v] < below:
                        break
                links[used] = chosen
                used += 1
                v = target[chosen]
    return links


@kernel
def ecmp_rows(
    offsets: Ints,
    target: Ints,
    latency: Floats,
    transit: Ints,
    toward: Ints,
    place: Ints,
    pairs: Ints,
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Split the traffic of each of ``pairs`` equally over the shortest next hops of every node.

    Returns row offsets, links, weights, and the latency and hops of each pair.
    """
    hosts, nodes = place.size, toward.shape[1]
    row_offsets = np.zeros(pairs.size + 1, np.int64)
    pair_latency = np.zeros(pairs.size)
    pair_hops = np.zeros(pairs.size)
    links = np.empty(max(16, 4 * pairs.size), np.int64)
    weights = np.empty(max(16, 4 * pairs.size))
    link_weight = np.zeros(target.size)
    row = np.empty(target.size, np.int64)
    share = np.zeros(nodes)
    arrival = np.zeros(nodes)
    queued = np.zeros(nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    used = 0
    for pair in range(pairs.size):
        s, t = pairs[pair] // hosts, pairs[pair] % hosts
        if s == t:
            row_offsets[pair + 1] = used
            continue
        left = toward[place[t]]
        queue[0] = s
        share[s], arrival[s] = 1.0, 0.0
        head, tail, count = 0, 1, 0
        # Breadth first: all nodes one hop farther from t come before, so a node's share
        # is complete when it is taken.
        while head < tail:
            v = queue[head]
            head += 1
            if v == t:
                continue
            first = count
            for link in range(offsets[v], offsets[v + 1]):
                w = target[link]
                if left[w] != left[v] - 1 or (w != t and transit[w] == 0):
                    continue
                row[count] = link
                count += 1
                if queued[w] == 0:
                    queued[w] = 1
                    share[w], arrival[w] = 0.0, 0.0
                    queue[tail] = w
                    tail += 1
                arrival[w] = max(arrival[w], arrival[v] + latency[link])
            part = share[v] / (count - first)
            for position in range(first, count):
                link_weight[row[position]] = part
                share[target[row[position]]] += part
        for position in range(tail):
            queued[queue[position]] = 0
        links = grown(links, used + count)
        weights = grown(weights, used + count)
        hops = 0.0
        sort_prefix(row, count)
        for position in range(count):
            link = row[position]
            links[used] = link
            weights[used] = link_weight[link]
            hops += link_weight[link]
            used += 1
        pair_latency[pair] = arrival[t]
        pair_hops[pair] = hops
        row_offsets[pair + 1] = used
    return row_offsets, links[:used], weights[:used], pair_latency, pair_hops


@kernel
def ecmp_loads(
    offsets: Ints,
    target: Ints,
    transit: Ints,
    toward: Ints,
    targets: Ints,
    demand: Floats,
) -> Floats:
    """Return what a demand puts on each link, split as `ecmp_rows` does, target by target.

    Row i of ``toward`` holds the hops to host ``targets[i]``; others are sent nothing.
    """
    hosts, nodes = demand.shape[0], toward.shape[1]
    loads = np.zeros(target.size)
    amount = np.zeros(nodes)
    begin = np.zeros(nodes + 1, np.int64)
    order = np.empty(nodes, np.int64)
    for number in range(targets.size):
        t, left = targets[number], toward[number]
        # Sorted by distance, farthest last; those that cannot reach the target come first.
        begin[:] = 0
        for v in range(nodes):
            begin[left[v] + 1] += 1
        for level in range(nodes):
            begin[level + 1] += begin[level]
        for v in range(nodes - 1, -1, -1):
            begin[left[v] + 1] -= 1
            order[begin[left[v] + 1]] = v
            amount[v] = demand[v, t] if v < hosts else 0.0
        for position in range(nodes - 1, -1, -1):
            v = order[position]
            if left[v] <= 0 or amount[v] == 0.0:
                continue
            ways = 0
            for link in range(offsets[v], offsets[v + 1]):
                w = target[link]
                if left[w] == left[v] - 1 and (w == t or transit[w] != 0):
                    ways += 1
            part = amount[v] / ways
            for link in range(offsets[v], offsets[v + 1]):
                w = target[link]
                if left[w] == left[v] - 1 and (w == t or transit[w] != 0):
                    loads[link] += part
                    amount[w] += part
    return loads
