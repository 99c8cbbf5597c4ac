"""How much of an AllReduce each member should add up and pass on, and how much links carry of it.

An AllReduce may reduce any share of the buffer to any member, and broadcast it from there at the
same time. How large shares and how fast all of it can be is a linear program: links part their
capacity between sums and whole parts, and by Edmonds' theorem trees of both exist where no cut is
too small for them (Zhao et al., "ForestColl", 2024, on AllReduce). There are too many cuts to write
down, so those that a solution breaks are added until none is broken (cutting planes). Where all
hosts are members and links are as fast both ways, trees of one are those of the other backwards,
and the best rate is the network's strength (Nash-Williams, Tutte, 1961).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats, Ints
from routing.collectives.cuts import Cuts, joined_arcs
from routing.collectives.member_links import TooMuchWorkError
from routing.network import Network

MOST_LINKS = 8192
"""Of a network whose shares are found: links of two ways, and cuts, are one linear program."""

_ACCURACY = 1e-4
"""Share of the rate that a cut may lack."""

_MOST_ROUNDS = 40
# Links of all rounds after which a corner is not looked for any more.
_MOST_WORK = 10_000
_SCALE = 10**9
# Prices of links that are not zero.
_PRICED = 1e-7

_Cut = tuple[int, frozenset[int]]
"""Whether of sums, and the nodes of the roots' side."""


@dataclass(frozen=True)
class Shares:
    """Shares of an AllReduce that members add up and broadcast.

    Parameters
    ----------
    bytes_per_s : float
        Of the whole buffer: no trees pass it that reduce every part to a root and broadcast it from
        there, and that hosts outside the group and switches only forward.
    roots : float64 array, shape (members,)
        Share of the buffer that each member is the root of.
    gather, scatter : float64 arrays, shape (links,)
        How much of the buffer links carry of broadcasts, and of sums.
    alike : bool
        Whether links are as fast both ways. Sums then take the ways of broadcasts back.
    parts : int64 array, shape (nodes,)
        A part of each node, between which links have a price.
    """

    bytes_per_s: float
    roots: Floats
    gather: Floats
    scatter: Floats
    alike: bool
    parts: Ints


def best_shares(network: Network, members: Sequence[int]) -> Shares:
    """Return the shares with which an AllReduce over trees is fastest.

    Parameters
    ----------
    network : Network
    members : sequence of int
        Hosts; the others and switches forward.

    Returns
    -------
    Shares
        Within 0.01 % of what all cuts allow, unless `_MOST_ROUNDS` end before: the rate is then no
        less than the best.

    Raises
    ------
    InfeasibleError
        If members cannot reach each other.
    TooMuchWorkError
        Of more than `MOST_LINKS`.
    """
    if network.links > MOST_LINKS:
        raise TooMuchWorkError(
            f"network {network.name!r} has {network.links} links; the best shares of an AllReduce "
            f"are found for up to {MOST_LINKS}"
        )
    program = _Program(network, members)
    middle = best = program.solve()
    for round_ in range(_MOST_ROUNDS):
        # Of the middle of all solutions fewer cuts are broken than of each (Ben-Ameur and Neto,
        # 2007), but that of one corner is in fewer parts.
        middle = (middle + best) / 2.0
        broken = program.broken(middle)
        if not program.add(broken):
            others = program.broken(best)
            if not others:
                return program.shares(best)
            if not broken and round_ * network.links > _MOST_WORK:
                break
            program.add(others)
        best = program.solve()
    return program.shares(middle)


class _Program:
    """The linear program of the cuts found so far: shares, then what links carry each way."""

    def __init__(self, network: Network, members: Sequence[int]) -> None:
        self.network, self.members = network, tuple(members)
        self.most = float(network.capacity.max())
        self.capacity = network.capacity / self.most
        ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
        place = {pair: at for at, pair in enumerate(ends)}
        back = np.array([place.get((b, a), -1) for a, b in place], dtype=np.int64)
        self.alike = bool((back >= 0).all() and (self.capacity[back] == self.capacity).all())
        self.back = back
        self.pairs = list(place)
        links, count = network.links, len(self.members)
        # Ends of links as their data go, and the first column of what they carry.
        self.ways = [(network.source, network.target, count)]
        if not self.alike:
            self.ways.append((network.target, network.source, count + links))
        self.columns = count + links * len(self.ways)
        self.cuts: dict[_Cut, Floats] = {}
        nodes = frozenset(range(network.nodes))
        for way in range(len(self.ways)):
            for member in self.members:
                self.add([(way, frozenset({member})), (way, nodes - {member})])
        self.prices = np.zeros(links)

    def add(self, cuts: Iterable[_Cut]) -> bool:
        """Add cuts, and return whether one is new.

        What leaves a set must be at least what its members are roots of.
        """
        new = [cut for cut in cuts if cut not in self.cuts]
        for way, side in new:
            source, target, first = self.ways[way]
            inside = np.zeros(self.network.nodes, dtype=bool)
            inside[list(side)] = True
            row = np.zeros(self.columns)
            row[: len(self.members)] = inside[list(self.members)]
            row[first : first + source.size] -= inside[source] & ~inside[target]
            self.cuts[way, side] = row
        return bool(new)

    def solve(self) -> Floats:
        """Return the best shares and loads within the cuts so far; keep prices of links."""
        from scipy import optimize
        from scipy.sparse import csr_array, hstack, identity, vstack

        linprog = cast(Any, optimize.linprog)  # stubs know dense matrices only
        links, count = self.network.links, len(self.members)
        one = identity(links, format="csr")
        # Without a way of its own what a link carries of sums is what the one back carries.
        both = one + one[self.back] if self.alike else hstack([one, one])
        shared = hstack([csr_array((links, count)), both])
        inside = vstack([csr_array(shared), csr_array(np.array(list(self.cuts.values())))])
        limit = np.concatenate((self.capacity, np.zeros(len(self.cuts))))
        # Who only forwards sends on what it receives.
        outside = sorted(set(range(self.network.nodes)) - set(self.members))
        at, ones, shape = np.arange(links), np.ones(links), (self.network.nodes, self.columns)
        kept = [
            csr_array((np.append(ones, -ones), (np.append(a, b), np.tile(first + at, 2))), shape)
            for a, b, first in self.ways
        ]
        equal = vstack([each[outside] for each in kept])
        objective = np.zeros(self.columns)
        objective[:count] = -1.0
        found = linprog(
            objective, A_ub=inside, b_ub=limit, A_eq=equal, b_eq=np.zeros(equal.shape[0]),
            method="highs-ds",
        )  # fmt: skip
        if not found.success or found.x[:count].sum() <= 0.0:
            raise InfeasibleError(
                f"network {self.network.name!r}: members of the group do not reach each other; "
                "choose a group that is connected both ways"
            )
        self.prices = np.maximum(-found.ineqlin.marginals[:links], 0.0)
        if self.alike:
            self.prices += self.prices[self.back]
        return np.maximum(np.asarray(found.x, dtype=np.float64), 0.0)

    def broken(self, solution: Floats) -> list[_Cut]:
        """Return cuts that a solution breaks, of each member one at most."""
        roots = solution[: len(self.members)]
        feed, needed = self.network.nodes, round(float(roots.sum()) * _SCALE)
        found = []
        for way, (source, target, first) in enumerate(self.ways):
            carried = np.rint(solution[first : first + source.size] * _SCALE)
            arcs = zip(source.tolist(), target.tolist(), strict=True)
            cuts = Cuts(
                joined_arcs(
                    zip(arcs, map(int, carried.tolist()), strict=True),
                    (
                        ((feed, m), round(x * _SCALE))
                        for m, x in zip(self.members, roots.tolist(), strict=True)
                    ),
                )
            )
            for member in self.members:
                if cuts.value(feed, member) < needed * (1.0 - _ACCURACY):
                    found.append((way, frozenset(cuts.side() - {feed})))
        return found

    def shares(self, solution: Floats) -> Shares:
        """Return a solution as shares of the buffer."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        network, count = self.network, len(self.members)
        rate = float(solution[:count].sum())
        whole = solution / rate
        gather = whole[count : count + network.links]
        scatter = gather[self.back] if self.alike else whole[count + network.links :]
        free = self.prices <= _PRICED * max(float(self.prices.max()), 1e-300)
        joined = csr_array(
            (np.ones(int(free.sum())), (network.source[free], network.target[free])),
            shape=(network.nodes, network.nodes),
        )
        parts = np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)
        return Shares(rate * self.most, whole[:count], gather, scatter, self.alike, parts)
