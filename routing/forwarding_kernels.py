"""Compiled walks over forwarding tables: loops, and the routes that tables give."""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import kernel
from routing.path_kernels import grown_floats, grown_ints

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
def rows_of_splits(
    offsets: Ints, target: Ints, latency: Floats, splits: Floats
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Return the table of routes (as in `Routes`) that splits by destination give every pair.

    Pairs are worked through source by source, as their rows lie; orders of all destinations
    are found first.
    """
    hosts = splits.shape[0]
    nodes = offsets.size - 1
    orders = np.empty((hosts, nodes), np.int64)
    places = np.empty((hosts, nodes), np.int64)
    for t in range(hosts):
        loop_free_order(offsets, target, splits[t], orders[t])
        for place in range(nodes):
            places[t, orders[t, place]] = place
    row_offsets = np.zeros(hosts * hosts + 1, np.int64)
    links = np.empty(4 * hosts * hosts, np.int64)
    weights = np.empty(4 * hosts * hosts)
    slowest = np.zeros(hosts * hosts)
    mean_hops = np.zeros(hosts * hosts)
    share = np.zeros(nodes)
    arrival = np.zeros(nodes)
    weight = np.zeros(target.size)
    used = 0
    for s in range(hosts):
        for t in range(hosts):
            pair = s * hosts + t
            if s != t:
                split = splits[t]
                share[:] = 0.0
                arrival[:] = 0.0
                share[s] = 1.0
                lowest, highest = target.size, -1
                for place in range(places[t, s], places[t, t]):
                    v = orders[t, place]
                    if share[v] == 0.0:
                        continue
                    for link in range(offsets[v], offsets[v + 1]):
                        if split[link] > 0.0:
                            w = target[link]
                            weight[link] = share[v] * split[link]
                            share[w] += weight[link]
                            arrival[w] = max(arrival[w], arrival[v] + latency[link])
                            lowest = min(lowest, link)
                            highest = max(highest, link)
                links = grown_ints(links, used + highest - lowest + 1)
                weights = grown_floats(weights, used + highest - lowest + 1)
                hops = 0.0
                for link in range(lowest, highest + 1):
                    if weight[link] > 0.0:
                        links[used] = link
                        weights[used] = weight[link]
                        hops += weight[link]
                        weight[link] = 0.0
                        used += 1
                slowest[pair] = arrival[t]
                mean_hops[pair] = hops
            row_offsets[pair + 1] = used
    return row_offsets, links[:used], weights[:used], slowest, mean_hops
