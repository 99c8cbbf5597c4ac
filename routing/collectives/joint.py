"""Broadcast trees of several groups at once, on links that they share.

The rate of all groups together is a linear program over all trees, of which there are too many to
write down. Prices of links tell which tree is cheapest (over the distances between the members of a
group a spanning tree, because others only forward); such trees join the program until none is
cheaper than its price allows. Any prices prove a bound: what all links can carry, at their prices,
is no less than what the cheapest trees take (column generation; Dantzig and Wolfe, 1960).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Floats, Ints
from routing.collectives.arborescence import cheapest_tree
from routing.collectives.rate import members_of, roots_of
from routing.collectives.trees import Forest, Tree, of_links
from routing.network import Network

JOINT_TREES = "joint-trees"
"""What these trees are called."""

_UNITS = 2520
"""Parts that the trees of a root share out; many numbers of trees divide it."""
# Rounds of prices by load before those of the linear program, and of both together.
_BY_LOAD = 24
_MOST_ROUNDS = 60
# The rate is so close to the bound, unless these rounds end before.
_ACCURACY = 0.05
# How much more the busiest link costs than an idle one (exponent).
_STEEP = 12.0
# Share of the best prices so far in those that are tried next.
_KEPT_PRICE = 0.3

Column = tuple[int, tuple[tuple[int, ...], ...]]
"""Whose broadcast, and the paths of a tree."""


@dataclass(frozen=True)
class JointForests:
    """Broadcast trees of several groups that send at once.

    Parameters
    ----------
    forests : tuple of Forest
        An AllGather of each group.
    rate_bound : float
        That no trees of all groups pass.
    """

    forests: tuple[Forest, ...]
    rate_bound: float


def joint_forests(
    network: Network, groups: Sequence[Sequence[int]], root: int | None = None
) -> JointForests:
    """Return trees with which all groups do an AllGather of the same bytes at once.

    Parameters
    ----------
    network : Network
    groups : sequence of sequence of int
        Hosts of each group; in each group the others forward, and do not copy.
    root : int, optional
        Of one group the only member that broadcasts.

    Returns
    -------
    JointForests

    Raises
    ------
    InputError
        If there is no group, one is none of distinct hosts, or the root is no member.
    InfeasibleError
        If members cannot reach each other.
    """
    if not groups:
        raise InputError("collectives of no group; give at least one")
    packing = _Packing(network, [members_of(network, group) for group in groups], root)
    prices = packing.by_load(np.zeros(network.source.size))
    kept = prices
    rate = 0.0
    shares = np.zeros(0)
    for round_ in range(_MOST_ROUNDS):
        before = packing.bound
        load = packing.grow(prices)
        if packing.bound < before:
            kept = prices
        if round_ < _BY_LOAD:
            prices = packing.by_load(load)
            continue
        rate, shares, found = packing.solve()
        if rate * (1.0 + _ACCURACY) >= packing.bound:
            break
        prices = _KEPT_PRICE * kept / kept.sum() + (1.0 - _KEPT_PRICE) * found / found.sum()
    return packing.joined(shares)


def rate_at_once(network: Network, forests: Sequence[Forest]) -> float:
    """Return the bytes per second of the whole buffer of each group, where all send at once.

    Parameters
    ----------
    network : Network
    forests : sequence of Forest
        One AllGather a group, of the same number of bytes.

    Returns
    -------
    float
    """
    load: dict[tuple[int, int], float] = {}
    for forest in forests:
        part = 1.0 / (len(forest.members) * forest.units)
        for tree in forest.trees:
            for path in tree.paths:
                for pair in pairwise(path):
                    load[pair] = load.get(pair, 0.0) + part * tree.copies
    capacity = of_links(network, network.capacity)
    return float(min(capacity[pair] / amount for pair, amount in load.items()))


class _Packing:
    """Trees found so far, and the bound that prices proved."""

    def __init__(self, network: Network, groups: list[tuple[int, ...]], root: int | None) -> None:
        self.network = network
        self.groups = groups
        self.roots = [roots_of(group, root) for group in groups]
        self.owners = [(g, member) for g, roots in enumerate(self.roots) for member in roots]
        self.share = np.array([1.0 / len(self.roots[g]) for g, _ in self.owners])
        self.most = float(network.capacity.max()) if network.capacity.size else 1.0
        self.capacity = network.capacity / self.most
        ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
        self.link = {pair: at for at, pair in enumerate(ends)}
        self.columns: dict[Column, Ints] = {}
        self.bound = np.inf  # buffers of each group a second, in units of the largest capacity
        self.total = np.zeros(self.capacity.size)

    def by_load(self, load: Floats) -> Floats:
        """Return prices that grow with the load of links in the mean of all rounds."""
        self.total += load
        used = self.total / self.capacity
        return np.exp(_STEEP * used / max(float(used.max()), 1e-300)) / self.capacity

    def grow(self, prices: Floats) -> Floats:
        """Add the cheapest tree of every broadcast; return the load of one buffer a group."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        network = self.network
        nodes = network.hosts + network.switches
        graph = csr_array(
            (np.maximum(prices, 1e-12 * prices.max()), (network.source, network.target)),
            shape=(nodes, nodes),
        )
        starts = sorted({member for group in self.groups for member in group})
        far, last = dijkstra(graph, indices=starts, return_predecessors=True)
        row = {member: at for at, member in enumerate(starts)}
        load = np.zeros(prices.size)
        cost = 0.0
        at = 0
        for group, roots in zip(self.groups, self.roots, strict=True):
            members = np.array(group)
            between = far[np.ix_(np.array([row[m] for m in group]), members)]
            if not np.isfinite(between).all():
                a, b = np.argwhere(~np.isfinite(between))[0].tolist()
                raise InfeasibleError(
                    f"network {network.name!r}: host {group[b]} cannot be reached from host "
                    f"{group[a]}; choose groups that are connected both ways"
                )
            for root in map(group.index, roots):
                parent = cheapest_tree(between, root)
                links, paths = [], []
                for one in _outward(parent, root):
                    path = [group[one]]
                    while path[-1] != group[parent[one]]:
                        path.append(int(last[row[group[parent[one]]], path[-1]]))
                    path.reverse()
                    paths.append(tuple(path))
                    links += [self.link[pair] for pair in pairwise(path)]
                held = np.array(links, dtype=np.int64)
                self.columns.setdefault((at, tuple(paths)), held)
                np.add.at(load, held, self.share[at])
                cost += self.share[at] * float(between[parent, np.arange(members.size)].sum())
                at += 1
        spent = float((self.capacity * np.asarray(graph[network.source, network.target])).sum())
        self.bound = min(self.bound, spent / cost)
        return load

    def solve(self) -> tuple[float, Floats, Floats]:
        """Return the best rate of the trees so far, how much each carries, and prices of links."""
        from scipy import optimize
        from scipy.sparse import csr_array

        linprog = cast(Any, optimize.linprog)  # stubs know dense matrices only
        owners, links, count = len(self.owners), self.capacity.size, len(self.columns)
        rows, columns, values = [], [], []
        for at, ((owner, _), held) in enumerate(self.columns.items()):
            used, times = np.unique(held, return_counts=True)
            rows += [owner, *(owners + used).tolist()]
            columns += [at] * (1 + used.size)
            values += [-1.0, *times.tolist()]
        rows += range(owners)
        columns += [count] * owners
        values += self.share.tolist()
        matrix = csr_array((values, (rows, columns)), shape=(owners + links, count + 1))
        limit = np.concatenate((np.zeros(owners), self.capacity))
        objective = np.zeros(count + 1)
        objective[-1] = -1.0
        found = linprog(objective, A_ub=matrix, b_ub=limit, method="highs-ipm")
        if not found.success:
            raise InfeasibleError(
                f"network {self.network.name!r}: trees of all groups: {found.message}"
            )
        prices = np.maximum(-found.ineqlin.marginals[owners:], 0.0)
        return float(found.x[-1]), found.x[:-1], prices

    def joined(self, carried: Floats) -> JointForests:
        """Return the trees in whole units, and the rate of all together."""
        trees: list[list[Tree]] = [[] for _ in self.groups]
        load = np.zeros(self.capacity.size)
        some: list[list[tuple[float, tuple[tuple[int, ...], ...], Ints]]] = [
            [] for _ in self.owners
        ]
        for ((owner, paths), held), amount in zip(
            self.columns.items(), carried.tolist(), strict=True
        ):
            some[owner].append((amount, paths, held))
        for owner, ((g, root), mine) in enumerate(zip(self.owners, some, strict=True)):
            exact = np.array([amount for amount, _, _ in mine])
            exact *= _UNITS / exact.sum()
            copies = np.floor(exact).astype(np.int64)
            short = _UNITS - int(copies.sum())
            copies[np.argsort(copies - exact, kind="stable")[:short]] += 1
            for count, (_, paths, held) in zip(copies.tolist(), mine, strict=True):
                if count:
                    trees[g].append(Tree(root, count, paths))
                    np.add.at(load, held, self.share[owner] * count / _UNITS)
        rate = self.most / float((load / self.capacity).max())
        return JointForests(
            tuple(
                Forest(JOINT_TREES, group, rate / len(roots), _UNITS, tuple(own))
                for group, roots, own in zip(self.groups, self.roots, trees, strict=True)
            ),
            self.bound * self.most,
        )


def _outward(parent: Ints, root: int) -> list[int]:
    """Return all nodes but the root, each after its parent."""
    after: dict[int, list[int]] = {}
    for node, above in enumerate(parent.tolist()):
        if node != root:
            after.setdefault(above, []).append(node)
    order = [root]
    for node in order:
        order += after.get(node, [])
    return order[1:]
