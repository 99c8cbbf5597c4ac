"""Compiled choice of one shortest path a pair that balances the load of links."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel

# A link's price is this power of its load: high enough that the most loaded links decide.
_POWER = 8


@kernel
def balanced_paths(
    offsets: Ints,
    target: Ints,
    transit: Ints,
    toward: Ints,
    slowness: Floats,
    demand: Floats,
    order: Ints,
    sweeps: int,
) -> Ints:
    """Return one shortest path of every pair: links in travel order, a row of the longest a pair.

    Pairs are routed in the given order, each over the path that raises the sum of all loads to
    the 8th power least; then again, as long as that changes anything, at most ``sweeps`` times.
    ``toward[t, v]`` are hops from node v to host t. Rows are filled up with -1.
    """
    hosts, nodes = toward.shape
    longest = 1
    for host in range(hosts):
        for node in range(nodes):
            longest = max(longest, toward[host, node])
    paths = np.full((hosts * hosts, longest), -1, np.int64)
    load = np.zeros(target.size)
    cost = np.empty(nodes)
    before = np.empty(nodes, np.int64)
    seen = np.full(nodes, -1, np.int64)
    queue = np.empty(nodes, np.int64)
    visit = 0
    scale = 0.0
    for sweep in range(sweeps + 1):
        moved = False
        # Loads as shares of the highest, so that powers neither vanish nor overflow.
        scale = 0.0
        for link in range(load.size):
            scale = max(scale, load[link])
        if scale == 0.0:
            for pair in order:
                scale += demand[pair]
            slowest = 0.0
            for link in range(slowness.size):
                slowest = max(slowest, slowness[link])
            scale *= slowest / max(1, target.size)
        for pair in order:
            s, t = pair // hosts, pair % hosts
            length = toward[t, s]
            if length < 1:
                continue
            amount = demand[pair]
            if sweep > 0:
                for hop in range(length):
                    link = paths[pair, hop]
                    load[link] -= amount * slowness[link]
            visit += 1
            cost[s], seen[s], queue[0] = 0.0, visit, s
            head, tail = 0, 1
            while head < tail:
                v = queue[head]
                head += 1
                left = toward[t, v]
                if left == 0:
                    break
                for link in range(offsets[v], offsets[v + 1]):
                    w = target[link]
                    if toward[t, w] != left - 1 or (w != t and transit[w] == 0):
                        continue
                    old = load[link] / scale
                    new = old + amount * slowness[link] / scale
                    price = cost[v] + new**_POWER - old**_POWER
                    if seen[w] != visit:
                        seen[w] = visit
                        queue[tail] = w
                        tail += 1
                        cost[w], before[w] = price, link
                    elif price < cost[w]:
                        cost[w], before[w] = price, link
            v, hop = t, length - 1
            while hop >= 0:
                link = before[v]
                moved = moved or paths[pair, hop] != link
                paths[pair, hop] = link
                load[link] += amount * slowness[link]
                # The link's source: the node whose row holds it.
                low, high = 0, nodes - 1
                while low < high:
                    middle = (low + high + 1) // 2
                    if offsets[middle] <= link:
                        low = middle
                    else:
                        high = middle - 1
                v = low
                hop -= 1
        if not moved:
            break
    return paths
