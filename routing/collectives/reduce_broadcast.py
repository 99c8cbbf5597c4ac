"""An AllReduce that reduces shares of the buffer to some members, each of which broadcasts its own.

Sums and whole parts flow at the same time, so links part their capacity between them, and roots
have the shares that are best for the network (`routing.collectives.shares`; Zhao et al.,
"ForestColl", 2024, on AllReduce; Wang et al., "Blink", 2020, packs such trees where links are as
fast both ways).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from routing.collectives.cuts import Arc, Cuts, joined_arcs
from routing.collectives.forest import packed_trees
from routing.collectives.member_links import TooMuchWorkError
from routing.collectives.rate import members_of
from routing.collectives.shares import Shares, best_shares
from routing.collectives.trees import Forest, Tree, of_links, shared_rate, turned
from routing.network import Network, NodePath

REDUCE_BROADCAST = "reduce-broadcast"
"""What this schedule is called."""

MOST_LOST = 0.005
"""Share of the best rate that whole copies may cost."""

# Copies of all trees together: no more than this, and so few that rounding shares and loads to
# them costs no more than this share of the rate, if some do.
_MOST_COPIES = 2520
_LOSS = 0.002
# Shares and loads below are none.
_NONE = 1e-6


def reduce_broadcast_forests(network: Network, group: Sequence[int]) -> tuple[Forest, Forest]:
    """Return trees of an AllReduce whose sums and whole parts flow at the same time.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts; the others and switches forward.

    Returns
    -------
    scatter : Forest
        Of the sums, on the network whose links point the other way.
    gather : Forest
        Of the same shares of the same roots. Where links are as fast both ways, the same trees,
        each from the root that is in the middle of it.

    Raises
    ------
    InputError, InfeasibleError
        As `best_shares` and `routing.collectives.forest.packed_trees`. TooMuchWorkError if whole
        copies cost more than `MOST_LOST`.
    """
    members = members_of(network, group)
    shares = best_shares(network, members)
    copies, sums, parts = _whole(network, members, shares)
    trees = packed_trees(parts, members, copies, network.name)
    if shares.alike:
        others = trees = _centred(network, members, trees)
    else:
        others = packed_trees(sums, members, copies, network.name)
    units = sum(copies.values())
    scatter, gather = (
        Forest(REDUCE_BROADCAST, members, shared_rate(on, some, units), units, some)
        for on, some in ((turned(network), others), (network, trees))
    )
    return scatter, gather


def rate_both_ways(network: Network, scatter: Forest, gather: Forest) -> float:
    """Return the bytes per second of an AllReduce whose sums and whole parts flow at once.

    Parameters
    ----------
    network : Network
    scatter : Forest
        On the network whose links point the other way.
    gather : Forest
        Of as many copies.
    """
    sums = [replace(tree, paths=tuple(path[::-1] for path in tree.paths)) for tree in scatter.trees]
    return shared_rate(network, [*sums, *gather.trees], gather.copies)


def _centred(
    network: Network, members: tuple[int, ...], trees: tuple[Tree, ...]
) -> tuple[Tree, ...]:
    """Return trees from those roots from and to which they take least time; links load the same."""
    latency = of_links(network, network.latency)
    rooted = dict.fromkeys(members, 0)
    found = []
    for tree in trees:
        onward: dict[int, list[tuple[NodePath, float, float]]] = {member: [] for member in members}
        for path in tree.paths:
            there = sum(latency[pair] for pair in pairwise(path))
            back = sum(latency[pair[::-1]] for pair in pairwise(path))
            onward[path[0]].append((path, there, back))
            onward[path[-1]].append((path[::-1], back, there))
        best: tuple[tuple[float, int], Tree] | None = None
        for root in members:
            # Seconds from the root, and to it.
            away = {root: (0.0, 0.0)}
            paths = []
            for here in (queue := [root]):
                for path, there, back in onward[here]:
                    if path[-1] not in away:
                        away[path[-1]] = away[here][0] + there, away[here][1] + back
                        paths.append(path)
                        queue.append(path[-1])
            # Latencies added in another order are the same; of such roots the least used.
            far = round(max(d for d, _ in away.values()) + max(d for _, d in away.values()), 15)
            if best is None or (far, rooted[root]) < best[0]:
                best = (far, rooted[root]), replace(tree, root=root, paths=tuple(paths))
        assert best is not None
        rooted[best[1].root] += tree.copies
        found.append(best[1])
    return tuple(found)


def _whole(
    network: Network, members: tuple[int, ...], shares: Shares
) -> tuple[dict[int, int], dict[Arc, int], dict[Arc, int]]:
    """Return copies of each root, and what links carry of sums, turned round, and whole parts.

    There are as few copies as lose no more of the rate than `_LOSS`, or else `_MOST_COPIES`.
    """
    rooted = np.flatnonzero(shares.roots > _NONE)
    part = shares.roots[rooted] / shares.roots[rooted].sum()
    most = network.capacity / shares.bytes_per_s  # of a buffer, in the time of one
    loads = np.stack((shares.scatter, shares.gather))
    outside = np.ones(network.nodes, dtype=bool)
    outside[list(members)] = False
    up = 1.0
    for total in range(rooted.size, _MOST_COPIES + 1):
        load = np.ceil(total * loads - _NONE)
        off = np.abs(np.rint(total * part) - total * part).sum()
        for each in load if outside.any() else ():
            out = np.bincount(network.source, each, network.nodes)
            off += np.abs(out - np.bincount(network.target, each, network.nodes))[outside].sum()
        if float((load.sum(axis=0) / most).max() + off) <= total * (1.0 + _LOSS):
            break
    else:
        up = 0.0  # the next whole number would be too much for slow links
    copies = np.maximum(np.rint(total * part), 1.0)
    while copies.sum() != total:
        change = 1.0 if copies.sum() < total else -1.0
        off = np.where(copies + change > 0.0, change * (total * part - copies), -np.inf)
        copies[off.argmax()] += change
    roots = {members[at]: int(n) for at, n in zip(rooted.tolist(), copies.tolist(), strict=True)}
    ends = list(zip(network.source.tolist(), network.target.tolist(), strict=True))
    ways = []
    for each, pairs in ((shares.scatter, [(b, a) for a, b in ends]), (shares.gather, ends)):
        whole = np.floor(total * each + max(up - _NONE, _NONE))
        held = dict(zip(pairs, map(int, whole.tolist()), strict=True))
        _widen(held, dict(zip(pairs, most.tolist(), strict=True)), roots, members)
        _balance(held, members)
        ways.append({pair: amount for pair, amount in held.items() if amount})
    load = np.array([ways[0].get((b, a), 0) + ways[1].get((a, b), 0) for a, b in ends])
    if float((load / most).max()) > total * (1.0 + MOST_LOST):
        raise TooMuchWorkError(
            f"network {network.name!r}: trees of an AllReduce with the best shares of all roots "
            "would be too many; choose a smaller group, or one of all hosts"
        )
    return roots, ways[0], ways[1]


def _widen(
    held: dict[Arc, int], room: dict[Arc, float], roots: dict[int, int], members: Sequence[int]
) -> None:
    """Add copies to links, those that have most room, until no cut is too small for all trees."""
    feed, needed = max(max(pair) for pair in held) + 1, sum(roots.values())
    # To a node that only forwards, and maybe not to where copies are missing, only where some go.
    aside = {pair for pair, amount in held.items() if not amount and not {*pair} <= {*members}}
    for member in members:
        while True:
            cuts = Cuts(joined_arcs(held.items(), (((feed, m), n) for m, n in roots.items())))
            lacks = needed - cuts.value(feed, member)
            if not lacks:
                break
            side = cuts.side()
            out = [pair for pair in held if pair[0] in side and pair[1] not in side]
            for _ in range(lacks):
                pair = min(out, key=lambda p: (p in aside, (held[p] + 1) / room[p], p))
                held[pair] += 1


def _balance(held: dict[Arc, int], members: Sequence[int]) -> None:
    """Add copies to links until those who forward receive as many as they send."""
    over: dict[int, int] = {}
    for (a, b), amount in held.items():
        over[a] = over.get(a, 0) - amount
        over[b] = over.get(b, 0) + amount
    for node in sorted(over.keys() - set(members)):
        # What is too much goes on to the nearest member, what is missing comes from it.
        onward = over[node] > 0
        links = [pair for pair, amount in held.items() if amount]
        before: dict[int, Arc] = {}
        queue = [node]
        for here in queue:
            if here in members:
                break
            for pair in links:
                near, far = pair if onward else pair[::-1]
                if near == here and far not in before and far != node:
                    before[far] = pair
                    queue.append(far)
        while over[node] and here != node:
            pair = before[here]
            held[pair] += abs(over[node])
            here = pair[0] if onward else pair[1]
