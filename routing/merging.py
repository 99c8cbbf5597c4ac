"""Merge links that always carry proportional load, so that route rows become short.

In a fat-tree a pair's equal-cost row has tens of links, but all uplinks of one switch carry
the same load whatever the demand; one of them says what all of them allow.
"""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from routing.network import Network
from routing.routes import Routes

# Weights of a link are compared relative to its first, to this many decimals.
_DECIMALS = 10
# Rates of cables that differ by less of themselves are the same but for rounding.
_SAME_PACE = 1e-12


def merge_equivalent_links(network: Network, routes: Routes) -> tuple[Network, Routes, Ints]:
    """Represent each class of links with proportional columns by its tightest link.

    Two links whose columns in the (pair x link) weight matrix are proportional carry
    proportional load under every demand, so only the one with the largest weight per capacity
    can ever bind. Feasible rates, and so max-min fair rates, are unchanged. Where another link of
    a class has slower cables, it is kept as well: packets are stored there for longer.

    Parameters
    ----------
    network : Network
    routes : Routes
        Routes over that network.

    Returns
    -------
    network : Network
        The same nodes with one link a class or two, their own capacities and latencies. Links
        that no route uses are gone, so ports of this network mean nothing.
    routes : Routes
        The same rows over the kept links with their own weights. ``latency`` and ``hops`` are
        those of the original routes, so ``hops`` is no longer the sum of a row.
    link_class : int64 array, shape (links,)
        Index in the new network of the link that represents each old link; -1: unused.
    """
    pairs = routes.hosts * routes.hosts
    pair = np.repeat(np.arange(pairs, dtype=np.int64), np.diff(routes.offsets))
    by_link = np.argsort(routes.links, kind="stable")
    column = routes.links[by_link]
    column_pair = pair[by_link]
    used, start, size = np.unique(column, return_index=True, return_counts=True)
    weight = routes.weights[by_link]
    relative = np.round(weight / np.repeat(weight[start], size), _DECIMALS)
    member = _classes(column_pair, relative, start, size)

    # The tightest link of each class is kept; the lowest index on ties.
    tightness = weight[start] / network.capacity[used]
    order = np.lexsort((used, -tightness, member))
    first = np.concatenate(([True], np.diff(member[order]) != 0)) if used.size else order == 0
    tight, pace = used[order[first]], network.capacity / network.multiplicity
    slow = used[np.lexsort((used, pace[used], member))[first]]
    kept = np.sort(np.append(tight, slow[pace[slow] < pace[tight] * (1.0 - _SAME_PACE)]))
    kept_of_class = np.empty(int(member.max(initial=-1)) + 1, dtype=np.int64)
    kept_of_class[member[order[first]]] = np.searchsorted(kept, tight)
    link_class = np.full(network.links, -1, dtype=np.int64)
    link_class[used] = kept_of_class[member]

    new_index = np.full(network.links, -1, dtype=np.int64)
    new_index[kept] = np.arange(kept.size)
    stays = new_index[routes.links] >= 0
    lengths = np.bincount(pair[stays], minlength=pairs)
    merged = Routes(
        hosts=routes.hosts,
        offsets=starts(lengths),
        links=new_index[routes.links[stays]],
        weights=routes.weights[stays],
        latency=routes.latency,
        hops=routes.hops,
    )
    smaller = Network(
        name=network.name,
        hosts=network.hosts,
        switches=network.switches,
        source=network.source[kept],
        target=network.target[kept],
        capacity=network.capacity[kept],
        latency=network.latency[kept],
        multiplicity=network.multiplicity[kept],
    )
    return smaller, merged, link_class


def _classes(column_pair: Ints, relative: Floats, start: Ints, size: Ints) -> Ints:
    """Number the classes of equal columns; shape (used links,).

    Columns are grouped by a hash, then compared entry by entry with the first of their group;
    one that differs (a hash collision) stays alone.
    """
    mixed = column_pair.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= relative.view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    if start.size == 0:
        return np.empty(0, dtype=np.int64)
    digest = np.add.reduceat(mixed, start) ^ size.astype(np.uint64)
    _, leader, group = np.unique(digest, return_index=True, return_inverse=True)
    entry_link = np.repeat(np.arange(start.size), size)
    within = np.arange(column_pair.size) - start[entry_link]
    same_size = size[leader[group]] == size
    twin = np.where(same_size[entry_link], start[leader[group]][entry_link] + within, 0)
    differs = ~same_size
    unequal = (column_pair[twin] != column_pair) | (relative[twin] != relative)
    differs |= np.bincount(entry_link, weights=unequal, minlength=start.size) > 0
    member = group.astype(np.int64)
    member[differs] = leader.size + np.arange(int(differs.sum()))
    return member
