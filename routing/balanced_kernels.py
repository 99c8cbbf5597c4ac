"""Compiled choice of one shortest path a pair that balances the load of links."""

import numpy as np

from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.jit import kernel

# A link's price is this power of its load: high enough that the most loaded links decide.
_POWER = 8
# By this share the sum of all prices must fall for an escape to be kept, and so often pairs are
# routed again beside one that has left a link.
_LEAST_GAIN, _REPAIRS = 1e-4, 2


@kernel
def balanced_paths(
    offsets: Ints,
    source: Ints,
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
    queue = np.empty(nodes, np.int64)
    met = np.empty(target.size, np.bool_)
    for _ in range(sweeps + 1):
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
            changed = _route(
                pair, demand[pair], scale, -1, offsets, source, target, transit, toward, slowness,
                load, paths, cost, before, queue, met,
            )  # fmt: skip
            moved = moved or changed
        if not moved:
            break
    return paths


@kernel
def relieve_paths(
    offsets: Ints,
    source: Ints,
    target: Ints,
    transit: Ints,
    toward: Ints,
    slowness: Floats,
    demand: Floats,
    order: Ints,
    heavy: int,
    most: int,
    paths: Ints,
) -> None:
    """Improve paths, in place, that no pair alone can change for the better.

    One of the pairs on the most loaded link leaves it although that costs more, and the pairs that
    it meets are routed again; so on, as long as the sum of all prices falls, until pairs were
    routed ``most`` times. Only the first ``heavy`` pairs in the given order are moved.
    """
    nodes = toward.shape[1]
    load, kept_load = np.zeros(target.size), np.empty(target.size)
    cost = np.empty(nodes)
    before = np.empty(nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    met = np.empty(target.size, np.bool_)
    changed = np.empty(max(1, heavy), np.int64)
    kept = np.empty((changed.size, paths.shape[1]), np.int64)
    for pair in order:
        _add(pair, demand[pair], slowness, paths, load)
    scale = load.max() if load.size else 0.0
    least = _total(load, scale)
    left = most
    gained = scale > 0.0
    while gained:
        gained = False
        top = 0
        for link in range(load.size):
            if load[link] > load[top]:
                top = link
        for first in order[:heavy]:
            if left <= 0 or gained:
                break
            met[:] = False
            met[top] = True
            if not _meets(first, met, paths):
                continue
            left -= 1
            for link in range(load.size):  # slices would compile what words numpy's errors
                kept_load[link] = load[link]
            kept[0], changed[0], count = paths[first], first, 0
            if _route(
                first, demand[first], scale, top, offsets, source, target, transit, toward,
                slowness, load, paths, cost, before, queue, met,
            ):  # fmt: skip
                count = 1
            for _ in range(_REPAIRS if count else 0):
                moved = False
                for pair in order[:heavy]:
                    if pair == first or count == changed.size or not _meets(pair, met, paths):
                        continue
                    left -= 1
                    kept[count], changed[count] = paths[pair], pair
                    if _route(
                        pair, demand[pair], scale, -1, offsets, source, target, transit, toward,
                        slowness, load, paths, cost, before, queue, met,
                    ):  # fmt: skip
                        moved = True
                        count += 1
                if not moved:
                    break
            new = _total(load, scale)
            if new < least * (1.0 - _LEAST_GAIN):
                least, gained = new, True
                continue
            for link in range(load.size):
                load[link] = kept_load[link]
            for place in range(count - 1, -1, -1):
                paths[changed[place]] = kept[place]


@kernel
def _total(load: Floats, scale: float) -> float:
    """Return the sum of all links' prices."""
    total = 0.0
    for each in load:
        total += (each / scale) ** _POWER
    return total


@kernel
def _meets(pair: int, met: Flags, paths: Ints) -> bool:
    """Say whether a pair's path goes over one of some links."""
    found = False
    for link in paths[pair]:
        found = found or (link >= 0 and met[link])
    return found


@kernel
def _add(pair: int, amount: float, slowness: Floats, paths: Ints, load: Floats) -> None:
    """Add an amount to the loads of a pair's path."""
    for link in paths[pair]:
        if link >= 0:
            load[link] += amount * slowness[link]


@kernel
def _route(
    pair: int,
    amount: float,
    scale: float,
    shunned: int,
    offsets: Ints,
    source: Ints,
    target: Ints,
    transit: Ints,
    toward: Ints,
    slowness: Floats,
    load: Floats,
    paths: Ints,
    cost: Floats,
    before: Ints,
    queue: Ints,
    met: Flags,
) -> bool:
    """Give a pair the path that raises the sum of prices least; say whether it is another one.

    Where it can, it leaves out the link ``shunned``. The links of another path are marked as met.
    """
    hosts = toward.shape[0]
    s, t = pair // hosts, pair % hosts
    length = toward[t, s]
    if length < 1:
        return False
    _add(pair, -amount, slowness, paths, load)
    cost[:] = np.inf
    cost[s], queue[0] = 0.0, s
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
            if link == shunned:
                price = 1e300
            if cost[w] == np.inf:
                queue[tail] = w
                tail += 1
                cost[w], before[w] = price, link
            elif price < cost[w]:
                cost[w], before[w] = price, link
    moved = False
    v = t
    for hop in range(length - 1, -1, -1):
        link = before[v]
        moved = moved or paths[pair, hop] != link
        paths[pair, hop] = link
        load[link] += amount * slowness[link]
        v = source[link]
    if moved:
        for link in paths[pair]:
            if link >= 0:
                met[link] = True
    return moved
