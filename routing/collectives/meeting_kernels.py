"""Compiled helpers of meetings: trees over few links, and messages spread evenly over waves."""

import numpy as np

from codesign_base.arrays import Flags, Floats, Ints, SmallInts
from codesign_base.jit import kernel

_NEVER = np.int64(1) << 40


@kernel
def cover(near: Flags, cost: Ints) -> Ints:
    """Return columns that together are near every row: at each step that which is near most more.

    Parameters
    ----------
    near : bool array, shape (n, n)
        True on the diagonal.
    cost : int64 array, shape (n,)
        Of columns that are near as many the least of these is taken.

    Returns
    -------
    int64 array
        Ascending.
    """
    n = cost.size
    gain = np.zeros(n, np.int64)
    for row in range(n):
        for column in range(n):
            gain[column] += near[row, column]
    chosen = np.zeros(n, np.int64)
    left = np.ones(n, np.int64)
    rows = n
    while rows > 0:
        best = 0
        for column in range(1, n):
            more = gain[column] - gain[best]
            if more > 0 or (more == 0 and cost[column] < cost[best]):
                best = column
        chosen[best] = 1
        for row in range(n):
            if left[row] == 1 and near[row, best]:
                left[row] = 0
                rows -= 1
                for column in range(n):
                    gain[column] -= near[row, column]
    return np.flatnonzero(chosen)


@kernel
def _short_tree(
    depth: Ints, offsets: Ints, link: Ints, above: Ints, member: Ints, needed: Ints,
    cost: Floats, load: Floats, begin: int, ends: Ints, bounds: Ints, links: SmallInts,
    down: bool,
) -> int:  # fmt: skip
    """Write the messages of a tree of shortest paths that holds some members.

    Nodes nearer to the root are taken that other paths pass already, then those over the link
    of least load, which grows by its cost. Returns the number of messages with those before.
    """
    nodes = depth.size
    order = np.argsort(depth, kind="mergesort")
    up = np.full(nodes, -1, np.int64)
    over = np.full(nodes, -1, np.int64)
    for at in range(nodes - 1, -1, -1):
        v = order[at]
        if needed[v] == 0 or depth[v] <= 0:
            continue
        best = -1
        for i in range(offsets[v], offsets[v + 1]):
            if depth[above[i]] != depth[v] - 1:
                continue
            if best >= 0:
                here, there = needed[above[i]], needed[above[best]]
                if here < there or (here == there and load[link[i]] >= load[link[best]]):
                    continue
            best = i
        up[v], over[v] = above[best], link[best]
        needed[up[v]] = 1
        load[over[v]] += cost[over[v]]
    count = begin
    for i in range(nodes):
        v = order[i] if down else order[nodes - 1 - i]
        if needed[v] == 0 or member[v] == 0 or depth[v] <= 0:
            continue
        far, at = v, bounds[count]
        while True:
            links[at] = over[v]
            at += 1
            v = up[v]
            if member[v] == 1:
                break
        if down:
            first, last = bounds[count], at - 1
            while first < last:
                links[first], links[last] = links[last], links[first]
                first, last = first + 1, last - 1
        ends[count, 0], ends[count, 1] = (v, far) if down else (far, v)
        bounds[count + 1] = at
        count += 1
    return count


@kernel
def part_messages(
    into: Ints, out: Ints, gatherers: Ints, spreaders: Ints, offsets_into: Ints, link_into: Ints,
    above_into: Ints, offsets_out: Ints, link_out: Ints, above_out: Ints, member: Ints,
    cost: Floats, load: Floats, ends: Ints, about: Ints, bounds: Ints, links: SmallInts,
) -> int:  # fmt: skip
    """Write the messages of one part, each after those that it waits for.

    Parameters
    ----------
    into, out : int64 arrays, shape (nodes, nodes)
        Hops from the column's node to the row's, and the other way; of members' rows only.
    gatherers, spreaders : int64 arrays
        Members.
    offsets_into, link_into, above_into, offsets_out, link_out, above_out : int64 arrays
        Links that lead nearer to where a sum goes, and from where a copy comes: of node v they
        are ``link[offsets[v]:offsets[v + 1]]``, and ``above`` their other ends.
    member : int64 array, shape (nodes,)
        1 for members.
    cost, load : float64 arrays, shape (links,)
        What a message adds to a link's load, and the load so far; changed.
    ends : int64 array, shape (most messages, 2)
        Written: members that each message is from and to.
    about : int64 array, shape (most messages, 2)
        Written: 0 gathers, 1 is an exchange, 2 spreads; whose sum an exchange is, otherwise -1.
    bounds, links : arrays
        Written: message m passes ``links[bounds[m]:bounds[m + 1]]``.

    Returns
    -------
    int
        Number of messages.
    """
    nodes = member.size
    bounds[0] = 0
    depth = np.empty(nodes, np.int64)
    for v in range(nodes):
        depth[v] = nodes
        for g in gatherers:
            if 0 <= into[g, v] < depth[v]:
                depth[v] = into[g, v]
    count = _short_tree(
        depth, offsets_into, link_into, above_into, member, member.copy(), cost, load, 0, ends,
        bounds, links, False,
    )  # fmt: skip
    about[:count, 0] = 0
    about[:count, 1] = -1
    spreads = np.zeros(nodes, np.int64)
    for s in spreaders:
        spreads[s] = 1
    for g in gatherers:
        begin = count
        count = _short_tree(
            out[g], offsets_out, link_out, above_out, member, spreads.copy(), cost, load, begin,
            ends, bounds, links, True,
        )  # fmt: skip
        about[begin:count, 0] = 1
        about[begin:count, 1] = g
    for v in range(nodes):
        depth[v] = nodes
        for s in spreaders:
            if 0 <= out[s, v] < depth[v]:
                depth[v] = out[s, v]
    begin = count
    count = _short_tree(
        depth, offsets_out, link_out, above_out, member, member.copy(), cost, load, begin, ends,
        bounds, links, True,
    )  # fmt: skip
    about[begin:count, 0] = 2
    about[begin:count, 1] = -1
    return count


@kernel
def level(
    first: Ints, about: Ints, ends: Ints, bounds: Ints, links: SmallInts, spreads: Ints,
    offsets_into: Ints, link_into: Ints, above_into: Ints, offsets_out: Ints, link_out: Ints,
    above_out: Ints, member: Ints, cost: Floats, sweeps: int,
) -> Ints:  # fmt: skip
    """Choose the wave in which each message begins, so that links carry alike in all waves.

    A message over one link may also come from another member that has the same by then, or go to
    one that adds it to what it has yet to send.

    Parameters
    ----------
    first : int64 array, shape (parts + 1,)
        Messages of part p are ``first[p]`` to ``first[p + 1]``.
    about, ends, bounds, links : arrays
        As `part_messages` writes them, of all parts; ``ends`` and ``links`` are changed.
    spreads : int64 array, shape (parts, nodes)
        1 for the spreaders of each part.
    offsets_into, link_into, above_into, offsets_out, link_out, above_out, member, cost : arrays
        As in `part_messages`.
    sweeps : int
        Times that every message is moved to where its links carry least.

    Returns
    -------
    int64 array
        First wave of each message. The waves are as many as must follow each other in the given
        messages.
    """
    nodes = member.size
    start = np.zeros(about.shape[0], np.int64)
    ready = np.zeros(nodes, np.int64)  # waves by which a node has what it sends
    summed = np.zeros(nodes, np.int64)  # waves by which a node's gathering, or all of it, is done
    until = np.zeros(nodes, np.int64)  # the first wave in which a node passes on what it has
    spread_at = np.zeros(nodes, np.int64)
    add_at = np.zeros(nodes, np.int64)  # the first wave in which a node needs all that it adds
    load = np.zeros((1, cost.size))
    waves = 0
    for sweep in range(sweeps + 1):
        if sweep == 1:
            load = np.zeros((waves, cost.size))
            for m in range(about.shape[0]):
                for i in range(bounds[m], bounds[m + 1]):
                    load[start[m] + i - bounds[m], links[i]] += cost[links[i]]
        for part in range(first.size - 1):
            begin, end = first[part], first[part + 1]
            summed[:] = 0
            add_at[:] = _NEVER
            spread_at[:] = _NEVER
            if sweep > 0:
                for m in range(begin, end):
                    a, b, over = ends[m, 0], ends[m, 1], start[m] + bounds[m + 1] - bounds[m]
                    if about[m, 0] == 0:
                        summed[b] = max(summed[b], over)
                        add_at[a] = start[m]
                    elif about[m, 0] == 1:
                        if a == about[m, 1]:
                            add_at[a] = min(add_at[a], start[m])
                    else:
                        spread_at[a] = min(spread_at[a], start[m])
            m = begin
            while m < end and about[m, 0] == 0:
                # A sum: to any member that has not sent on yet, or gathers itself.
                a, b, hops = ends[m, 0], ends[m, 1], bounds[m + 1] - bounds[m]
                if sweep == 0:
                    start[m] = summed[a]
                    waves = max(waves, start[m] + hops)
                else:
                    _take(load, links, bounds, cost, start, m)
                    high = add_at[b]
                    if spreads[part, b] == 1:
                        high = min(high, spread_at[b])
                    best, least = _least(load, links, bounds, m, summed[a], min(high, waves), hops)
                    if hops == 1:
                        for i in range(offsets_into[a], offsets_into[a + 1]):
                            v = above_into[i]
                            if member[v] == 0 or v == b:
                                continue
                            high = add_at[v]
                            if spreads[part, v] == 1:
                                high = min(high, spread_at[v])
                            for w in range(summed[a], min(high, waves)):
                                if load[w, link_into[i]] < least - 1e-9:
                                    best, least = w, load[w, link_into[i]]
                                    ends[m, 1] = v
                                    links[bounds[m]] = link_into[i]
                    start[m] = best
                    add_at[a] = best
                    _give(load, links, bounds, cost, start, m)
                b = ends[m, 1]
                summed[b] = max(summed[b], start[m] + hops)
                m += 1
            while m < end and about[m, 0] == 1:
                # A copy of one gatherer's sum.
                origin, last = about[m, 1], m
                while last < end and about[last, 0] == 1 and about[last, 1] == origin:
                    last += 1
                ready[:] = _NEVER
                until[:] = _NEVER
                ready[origin] = _gathered(begin, end, about, ends, bounds, start, origin)
                if sweep > 0:
                    for k in range(m, last):
                        until[ends[k, 0]] = min(until[ends[k, 0]], start[k])
                        ready[ends[k, 1]] = start[k] + bounds[k + 1] - bounds[k]
                for k in range(m, last):
                    b, hops = ends[k, 1], bounds[k + 1] - bounds[k]
                    if sweep == 0:
                        start[k] = ready[ends[k, 0]]
                        waves = max(waves, start[k] + hops)
                    else:
                        high = until[b]
                        if spreads[part, b] == 1:
                            high = min(high, spread_at[b])
                        _move(
                            k, high, waves, load, links, bounds, cost, start, ends, ready, until,
                            offsets_out, link_out, above_out, member,
                        )  # fmt: skip
                    ready[b] = start[k] + hops
                    summed[b] = max(summed[b], start[k] + hops)
                m = last
            for v in range(nodes):
                ready[v] = summed[v] if spreads[part, v] == 1 else _NEVER
                until[v] = _NEVER
            if sweep > 0:
                for k in range(m, end):
                    until[ends[k, 0]] = min(until[ends[k, 0]], start[k])
                    ready[ends[k, 1]] = start[k] + bounds[k + 1] - bounds[k]
            for k in range(m, end):
                b, hops = ends[k, 1], bounds[k + 1] - bounds[k]
                if sweep == 0:
                    start[k] = ready[ends[k, 0]]
                    waves = max(waves, start[k] + hops)
                else:
                    _move(
                        k, until[b], waves, load, links, bounds, cost, start, ends, ready, until,
                        offsets_out, link_out, above_out, member,
                    )  # fmt: skip
                ready[b] = start[k] + hops
    return start


@kernel
def _gathered(
    begin: int, end: int, about: Ints, ends: Ints, bounds: Ints, start: Ints, host: int
) -> int:
    """Return the waves by which a gatherer has all that it adds."""
    done = 0
    for m in range(begin, end):
        if about[m, 0] != 0:
            break
        if ends[m, 1] == host:
            done = max(done, start[m] + bounds[m + 1] - bounds[m])
    return done


@kernel
def _move(
    m: int, high: int, waves: int, load: Floats, links: SmallInts, bounds: Ints, cost: Floats,
    start: Ints, ends: Ints, ready: Ints, until: Ints, offsets: Ints, link: Ints, above: Ints,
    member: Ints,
) -> None:  # fmt: skip
    """Give a copy the wave, and where it is of one link the sender, of the least load."""
    a, b, hops = ends[m, 0], ends[m, 1], bounds[m + 1] - bounds[m]
    high = min(high, waves)
    _take(load, links, bounds, cost, start, m)
    best, least = _least(load, links, bounds, m, ready[a], high, hops)
    if hops == 1:
        for i in range(offsets[b], offsets[b + 1]):
            v = above[i]
            if member[v] == 0 or v == a:
                continue
            for w in range(ready[v], high):
                if load[w, link[i]] < least - 1e-9:
                    best, least = w, load[w, link[i]]
                    ends[m, 0] = v
                    links[bounds[m]] = link[i]
    start[m] = best
    until[ends[m, 0]] = min(until[ends[m, 0]], best)
    _give(load, links, bounds, cost, start, m)


@kernel
def _least(
    load: Floats, links: SmallInts, bounds: Ints, m: int, low: int, high: int, hops: int
) -> tuple[int, float]:
    """Return the wave in which the links of a message carry least, and how much."""
    best, least = low, np.inf
    for w in range(low, high - hops + 1):
        most = 0.0
        for i in range(hops):
            most = max(most, load[w + i, links[bounds[m] + i]])
        if most < least - 1e-9:
            best, least = w, most
    return best, least


@kernel
def _take(load: Floats, links: SmallInts, bounds: Ints, cost: Floats, start: Ints, m: int) -> None:
    for i in range(bounds[m], bounds[m + 1]):
        load[start[m] + i - bounds[m], links[i]] -= cost[links[i]]


@kernel
def _give(load: Floats, links: SmallInts, bounds: Ints, cost: Floats, start: Ints, m: int) -> None:
    for i in range(bounds[m], bounds[m + 1]):
        load[start[m] + i - bounds[m], links[i]] += cost[links[i]]
