"""Collectives done on numbers, and smallest cuts by enumeration: oracles of their schedules."""

from collections import Counter
from itertools import combinations, pairwise

import networkx as nx
import numpy as np

from routing.collectives.meeting import EXCHANGE, GATHER, SPREAD
from routing.collectives.reduce_broadcast import REDUCE_BROADCAST


def least_ratio(network, members):
    """Capacity out of a set over its members, by every set that lacks a member."""
    nodes = network.hosts + network.switches
    ends = list(zip(network.source.tolist(), network.target.tolist(), strict=True))
    best = None
    for size in range(1, nodes):
        for some in combinations(range(nodes), size):
            side = set(some)
            inside = len(side & set(members))
            if 0 < inside < len(members):
                out = sum(
                    amount for (a, b), amount in zip(ends, network.capacity.tolist(), strict=True)
                    if a in side and b not in side
                )  # fmt: skip
                best = out / inside if best is None else min(best, out / inside)
    return best


def least_flow(network, members, root):
    """Bytes/s of the smallest cut between a root and a member, by a library's flows."""
    graph = nx.DiGraph()
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    for (a, b), capacity in zip(ends, network.capacity.tolist(), strict=True):
        graph.add_edge(a, b, capacity=capacity)
    return min(nx.maximum_flow_value(graph, root, m) for m in members if m != root)


def shares_of(forest):
    """Copies of each root's trees."""
    found = Counter()
    for tree in forest.trees:
        found[tree.root] += tree.copies
    return dict(sorted(found.items()))


def check(network, forest, roots=None):
    """Trees reach all members once, and together load no link above its capacity."""
    load = Counter()
    for tree in forest.trees:
        has = {tree.root}
        for path in tree.paths:
            assert path[0] in has
            assert path[-1] not in has
            has.add(path[-1])
            for pair in pairwise(path):
                load[pair] += tree.copies
        assert has == set(forest.members)
    shares = shares_of(forest)
    if forest.name == REDUCE_BROADCAST:
        assert sum(shares.values()) == forest.units
        assert shares.keys() <= set(roots or forest.members)
    else:
        assert shares == dict.fromkeys(roots or forest.members, forest.units)
    capacity = dict(
        zip(zip(network.source.tolist(), network.target.tolist(), strict=True),
            network.capacity.tolist(), strict=True)
    )  # fmt: skip
    busiest = max(
        amount / forest.units * forest.bytes_per_s / capacity[p] for p, amount in load.items()
    )
    assert busiest <= 1.0 + 1e-12
    return busiest


def gathered(forest, parts):
    """Do an AllGather: every member ends with every unit of every part."""
    held = {member: {} for member in forest.members}
    for root, part in parts.items():
        at = 0
        for tree in (tree for tree in forest.trees if tree.root == root):
            units = {(root, unit): part[unit] for unit in range(at, at + tree.copies)}
            at += tree.copies
            at_node = {root: units}
            for path in tree.paths:
                at_node[path[-1]] = at_node[path[0]]
            for member in forest.members:
                held[member].update(at_node[member])
    return held


def reduced(forest, buffers):
    """Do a ReduceScatter over trees from their leaves: sums at their roots, and what it took."""
    sums = {}
    for root in dict.fromkeys(tree.root for tree in forest.trees):
        at = 0
        for tree in (tree for tree in forest.trees if tree.root == root):
            units = slice(at, at + tree.copies)
            at += tree.copies
            here = {member: buffers[member][root][units].copy() for member in forest.members}
            for path in reversed(tree.paths):
                here[path[0]] += here.pop(path[-1])  # each is added once, or missing here
            assert set(here) == {root}
            sums.setdefault(root, []).append(here[root])
    return {root: np.concatenate(parts) for root, parts in sums.items()}


def paths_of(network, meeting):
    """Nodes of every message; links of one follow each other."""
    source, target = network.source.tolist(), network.target.tolist()
    found = []
    for at, end in pairwise(meeting.offsets.tolist()):
        links = meeting.links[at:end].tolist()
        nodes = [source[links[0]]]
        for link in links:
            assert source[link] == nodes[-1]
            nodes.append(target[link])
        found.append(nodes)
    return found


def met(network, meeting, parts):
    """Do an AllReduce wave by wave: what every member ends with, part by part.

    A sum that was sent is gone, so that what would arrive after it is missing in the end.
    """
    paths = paths_of(network, meeting)
    inside = set(meeting.members)
    for path, (a, b) in zip(paths, meeting.ends.tolist(), strict=True):
        assert (path[0], path[-1]) == (a, b)
        assert not inside & set(path[1:-1])
    results = []
    for part, numbers in enumerate(parts):
        mine = [
            (wave, kind, origin, paths[at])
            for at, (p, kind, origin, wave) in enumerate(meeting.messages.tolist())
            if p == part
        ]
        origins = {origin for _, kind, origin, _ in mine if kind == EXCHANGE}
        sent = {}
        kept = dict(numbers)  # sums on their way
        sums = {}  # (origin, member) -> a gatherer's sum
        total = {}
        senders = {path[0] for _, kind, _, path in mine if kind == GATHER}
        gatherers = inside - senders
        spreaders = inside - {path[-1] for _, kind, _, path in mine if kind == SPREAD}
        assert origins <= gatherers

        def complete(host, kept=kept, sums=sums, gatherers=gatherers):
            return sum(kept[g] if g == host else sums[g, host] for g in gatherers)

        last = max(wave + len(path) - 1 for wave, _, _, path in mine)
        for now in range(last + 1):
            arriving = [each for each in mine if each[0] + len(each[3]) - 1 == now]
            # What arrives by the end of a wave was sent before what begins in the next.
            for _, kind, origin, path in arriving:
                if kind == GATHER:
                    kept[path[-1]] += sent[id(path)]
                elif kind == EXCHANGE:
                    assert (origin, path[-1]) not in sums
                    sums[origin, path[-1]] = sent[id(path)]
                else:
                    assert path[-1] not in total
                    total[path[-1]] = sent[id(path)]
            for wave, kind, origin, path in mine:
                if wave == now:
                    a = path[0]
                    if kind == GATHER:
                        sent[id(path)] = kept.pop(a)
                    elif kind == EXCHANGE:
                        sent[id(path)] = kept[a] if a == origin else sums[origin, a]
                    else:
                        sent[id(path)] = complete(a) if a in spreaders else total[a]
        total |= {host: complete(host) for host in spreaders}
        results.append(total)
    return results
