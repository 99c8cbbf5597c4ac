"""Compiled two-leg routes over intermediates."""

import numpy as np

from codesign_base.array_kernels import grown
from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel
from routing.flow_kernels import cancel_cycles, loop_free_order

# Flow of a unit below this is rounding.
_DUST = 1e-12


@kernel
def equal_split(
    offsets: Ints, target: Ints, transit: Ints, toward: Ints, source: int, goal: int, flow: Floats
) -> None:
    """Add to ``flow`` a unit from source to goal, split equally over shortest next hops.

    ``toward[v]`` is the hops from v to the goal.
    """
    nodes = offsets.size - 1
    share = np.zeros(nodes)
    share[source] = 1.0
    queue = np.empty(nodes, np.int64)
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        v = queue[head]
        head += 1
        if v == goal:
            continue
        count = 0
        for link in range(offsets[v], offsets[v + 1]):
            w = target[link]
            if toward[w] == toward[v] - 1 and (w == goal or transit[w] != 0):
                count += 1
        for link in range(offsets[v], offsets[v + 1]):
            w = target[link]
            if toward[w] == toward[v] - 1 and (w == goal or transit[w] != 0):
                if share[w] == 0.0:
                    queue[tail] = w
                    tail += 1
                flow[link] += share[v] / count
                share[w] += share[v] / count


@kernel
def two_leg_rows(
    offsets: Ints,
    target: Ints,
    latency: Floats,
    transit: Ints,
    toward: Ints,
    hosts: int,
    middle: Ints,
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Return the table of routes (as in `Routes`); ``toward[t, v]``: hops from node v to t."""
    links = target.size
    nodes = offsets.size - 1
    # The legs do not depend on the other end, so they add up over intermediates separately.
    out = np.zeros((hosts, links))
    back = np.zeros((hosts, links))
    leg = np.zeros(links)
    share = 1.0 / max(middle.size, 1)
    for m in middle:
        for h in range(hosts):
            leg[:] = 0.0
            equal_split(offsets, target, transit, toward[m], h, m, leg)
            for link in range(links):
                out[h, link] += share * leg[link]
            leg[:] = 0.0
            equal_split(offsets, target, transit, toward[h], m, h, leg)
            for link in range(links):
                back[h, link] += share * leg[link]
    row_offsets = np.zeros(hosts * hosts + 1, np.int64)
    row_links = np.empty(4 * hosts * hosts, np.int64)
    row_weights = np.empty(4 * hosts * hosts)
    slowest = np.zeros(hosts * hosts)
    mean_hops = np.zeros(hosts * hosts)
    arrival = np.zeros(nodes)
    order = np.empty(nodes, np.int64)
    used = 0
    for s in range(hosts):
        for t in range(hosts):
            pair = s * hosts + t
            if s != t:
                for link in range(links):
                    leg[link] = out[s, link] + back[t, link]
                    # What comes back to the source, or goes on from the target, is a loop.
                cancel_cycles(offsets, target, leg, _DUST)
                arrival[:] = 0.0
                row_links = grown(row_links, used + links)
                row_weights = grown(row_weights, used + links)
                for link in range(links):
                    if leg[link] > 0.0:
                        row_links[used] = link
                        row_weights[used] = leg[link]
                        mean_hops[pair] += leg[link]
                        used += 1
                for place in range(loop_free_order(offsets, target, leg, order)):
                    v = order[place]
                    for link in range(offsets[v], offsets[v + 1]):
                        if leg[link] > 0.0:
                            w = target[link]
                            arrival[w] = max(arrival[w], arrival[v] + latency[link])
                slowest[pair] = arrival[t]
            row_offsets[pair + 1] = used
    return row_offsets, row_links[:used], row_weights[:used], slowest, mean_hops
