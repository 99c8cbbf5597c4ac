"""Compiled kernels of the k shortest loopless paths; arrays as in `path_kernels`."""

import numpy as np

from codesign_base.array_kernels import grown
from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel
from routing.path_kernels import sort_prefix

_FAR = 1 << 60


@kernel
def residual_distances(
    back_offsets: Ints,
    back_source: Ints,
    transit: Ints,
    on_path: Ints,
    t: int,
    queue: Ints,
    residual: Ints,
) -> None:
    """Fill ``residual`` with the hops to t that avoid the nodes of the current path."""
    residual[:] = -1
    residual[t] = 0
    queue[0] = t
    head, tail = 0, 1
    while head < tail:
        w = queue[head]
        head += 1
        for position in range(back_offsets[w], back_offsets[w + 1]):
            v = back_source[position]
            if residual[v] < 0 and on_path[v] == 0 and transit[v] != 0:
                residual[v] = residual[w] + 1
                queue[tail] = v
                tail += 1


@kernel
def loopless_paths(
    offsets: Ints,
    target: Ints,
    back_offsets: Ints,
    back_source: Ints,
    transit: Ints,
    rest: Ints,
    s: int,
    t: int,
    k: int,
    slack: int,
    budget: int,
    path_links: Ints,
    path_length: Ints,
) -> int:
    """Write up to k shortest loopless paths from s to t; return how many.

    Depth-first search with a length limit that rises to the next possible length; a branch is
    cut where the distance to t (``rest``) shows that the limit cannot be met. Where loops make
    that bound useless (more than ``budget`` nodes entered), the search starts again with exact
    distances that avoid the current path, so that every node entered lies on a path.

    Parameters
    ----------
    rest : shape (nodes,)
        Hops from every node to t.
    slack : int
        Longest detour in hops; negative: no limit.
    path_links : shape (k, nodes), output
        Links of each path in travel order; paths by length, then by node sequence.
    path_length : shape (k,), output
    """
    nodes = offsets.size - 1
    longest = nodes - 1 if slack < 0 else rest[s] + slack
    node = np.empty(nodes, np.int64)
    cursor = np.empty(nodes, np.int64)
    step = np.empty(nodes, np.int64)
    on_path = np.zeros(nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    residual = np.empty((1, 1), np.int64)
    exact = False
    work = 0
    found = 0
    limit = rest[s]
    while found < k and limit <= longest:
        following = _FAR
        restart = False
        depth = 0
        node[0] = s
        cursor[0] = offsets[s]
        on_path[s] = 1
        if exact:
            residual_distances(back_offsets, back_source, transit, on_path, t, queue, residual[0])
        while depth >= 0:
            v = node[depth]
            link = cursor[depth]
            if link == offsets[v + 1]:
                on_path[v] = 0
                depth -= 1
                continue
            cursor[depth] += 1
            w = target[link]
            if w == t:
                if depth + 1 == limit:
                    step[depth] = link
                    for position in range(limit):
                        path_links[found, position] = step[position]
                    path_length[found] = limit
                    found += 1
                    if found == k:
                        break
                continue
            if on_path[w] != 0 or transit[w] == 0:
                continue
            left = residual[depth, w] if exact else rest[w]
            if left < 0:
                continue
            if depth + 1 + left > limit:
                following = min(following, depth + 1 + left)
                continue
            work += 1
            if work > budget and not exact:
                restart = True
                break
            step[depth] = link
            depth += 1
            node[depth] = w
            cursor[depth] = offsets[w]
            on_path[w] = 1
            if exact:
                residual_distances(
                    back_offsets, back_source, transit, on_path, t, queue, residual[depth]
                )
        on_path[:] = 0
        if restart:
            exact = True
            residual = np.empty((nodes, nodes), np.int64)
            found = 0
            limit = rest[s]
        else:
            limit = following
    return found


@kernel
def k_shortest_rows(
    offsets: Ints,
    target: Ints,
    latency: Floats,
    back_offsets: Ints,
    back_source: Ints,
    transit: Ints,
    toward: Ints,
    place: Ints,
    pairs: Ints,
    k: int,
    slack: int,
    budget: int,
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Split the traffic of each of ``pairs`` equally over its k shortest loopless paths.

    Returns row offsets, links, weights, and the latency and hops of each pair.
    """
    hosts, nodes = place.size, toward.shape[1]
    row_offsets = np.zeros(pairs.size + 1, np.int64)
    pair_latency = np.zeros(pairs.size)
    pair_hops = np.zeros(pairs.size)
    links = np.empty(max(16, 8 * pairs.size), np.int64)
    weights = np.empty(max(16, 8 * pairs.size))
    uses = np.zeros(target.size, np.int64)
    row = np.empty(target.size, np.int64)
    path_links = np.empty((k, nodes), np.int64)
    path_length = np.empty(k, np.int64)
    used = 0
    for pair in range(pairs.size):
        s, t = pairs[pair] // hosts, pairs[pair] % hosts
        if s == t:
            row_offsets[pair + 1] = used
            continue
        found = loopless_paths(
            offsets, target, back_offsets, back_source, transit, toward[place[t]],
            s, t, k, slack, budget, path_links, path_length,
        )  # fmt: skip
        count = 0
        total = 0
        slowest = 0.0
        for path in range(found):
            seconds = 0.0
            total += path_length[path]
            for position in range(path_length[path]):
                link = path_links[path, position]
                seconds += latency[link]
                if uses[link] == 0:
                    row[count] = link
                    count += 1
                uses[link] += 1
            slowest = max(slowest, seconds)
        links = grown(links, used + count)
        weights = grown(weights, used + count)
        sort_prefix(row, count)
        for position in range(count):
            link = row[position]
            links[used] = link
            weights[used] = uses[link] / found
            uses[link] = 0
            used += 1
        pair_latency[pair] = slowest
        pair_hops[pair] = total / found
        row_offsets[pair + 1] = used
    return row_offsets, links[:used], weights[:used], pair_latency, pair_hops
