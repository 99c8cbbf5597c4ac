"""Cayley graphs with short paths whose links fall into AllReduce rings.

Server g has a link to g s for every generator s. As in a union of rings +p, which is the Cayley
graph of a cyclic group, every server sees the same network, so one breadth-first search measures
it; where steps do not commute, more of their products differ, and paths are shorter. What a ring
+p is by itself must be found here: Hamiltonian cycles that share no link. (Replaces TotientPerms of
TopoOpt, NSDI 2023, arXiv 2202.00433, section 4.)
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from topoopt.topology.groups import FiniteGroup
from topoopt.topology.groups_of_order import groups_of_order
from topoopt.topology.hamiltonian import hamiltonian_cycles, ring_of
from topoopt.topology.moore import moore_bound

# Sets of one group that are tried exhaustively; beyond, a local search.
_MOST_SETS = 7_000
# Steps of breadth-first searches that all groups together may take, about: a second.
_SEARCH_STEPS = 5e8
# Groups that are searched again from several random sets.
_SECOND_LOOKS = 6
_RESTARTS = 8
# Sets, the shortest first, that are tried for Hamiltonian cycles.
_MOST_RINGED = 40
# Sets of one group among them.
_KEPT = 12
_LARGEST = 1024
# Costs that differ by less are the same.
_SAME = 1e-9
# Sets of a group with the shortest paths whose links' loads are measured.
_MEASURED = 256
# Groups of up to so many elements are remembered.
_KEPT_ORDERS = 128


@dataclass(frozen=True, slots=True, eq=False)
class CayleyGraph:
    """A network in which every server sees the same, and its rings.

    Parameters
    ----------
    group : str
        What its elements are; see `topoopt.topology.groups`.
    generators : tuple of int
        Elements of the group; in bidirectional networks with their inverses.
    rings : tuple of tuple of int
        Hamiltonian cycles that share no link.
    rest : tuple of (int, int)
        Links on no ring; in bidirectional networks each once, low server first.
    diameter : int
        Hops.
    mean_distance : float
        Hops, over pairs of different servers.
    exact : bool
        Whether no set of any group tried is better (all were tried, or the Moore bound is met).
    between : int64 array, shape (servers, servers)
        Hops from row to column.
    """

    group: str
    generators: tuple[int, ...]
    rings: tuple[tuple[int, ...], ...]
    rest: tuple[tuple[int, int], ...]
    diameter: int
    mean_distance: float
    exact: bool
    between: Ints = field(repr=False)


def select_cayley(
    servers: int,
    degree: int,
    *,
    bidirectional: bool = False,
    rings: int | None = None,
    seed: int = 0,
) -> CayleyGraph:
    """Choose a group and generators for short paths on the mean, whose links make rings.

    Parameters
    ----------
    servers : int
        n, 3 .. 1024.
    degree : int
        Ports of a server, 1 .. n - 1.
    bidirectional : bool
        Each generator comes with its inverse; one that is its own inverse takes one port.
    rings : int, optional
        Hamiltonian cycles wanted; by default as many as the ports can make, one a port or, of
        bidirectional ones, one every two.
    seed : int
        Of random generator sets, and of the search for cycles.

    Returns
    -------
    CayleyGraph

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If no network with rings was found.

    Notes
    -----
    The groups are those of `topoopt.topology.groups_of_order`, cyclic ones with steps that
    are not coprime to n among them. Of a group all sets are tried if there are at most
    ``_MOST_SETS``, otherwise generators are exchanged one at a time, once for every group and again
    from random sets for the best few. In a group of many elements that commute sets are longer,
    so these come last and may be left out where n is large.

    Directed rings of all ports need a group of odd order, or an even number of ports, or a cyclic
    Sylow 2-subgroup: otherwise every generator is an even permutation, and an odd number of
    cycles of even length makes an odd one.
    """
    if not 3 <= servers <= _LARGEST:
        raise InputError(f"a Cayley graph of {counted(servers, 'server')}; give 3 to {_LARGEST}")
    if not 1 <= degree < servers:
        raise InputError(
            f"a Cayley graph of degree {degree}; give 1 to {servers - 1}, less than the servers"
        )
    if bidirectional and (degree == 1 or (servers * degree) % 2):
        raise InputError(
            f"a bidirectional Cayley graph of {servers} servers and degree {degree}; give at "
            "least degree 2, and an even one where the number of servers is odd"
        )
    most = degree // 2 if bidirectional else degree
    wanted = most if rings is None else rings
    if not 1 <= wanted <= most:
        raise InputError(
            f"{counted(wanted, 'ring')} of {counted(degree, 'port')}; give 1 to {most}"
        )
    graph = _selected(servers, degree, bidirectional, wanted, seed)
    if graph is None:
        raise InfeasibleError(
            f"no Cayley graph of {servers} servers and {counted(degree, 'port')} with "
            f"{counted(wanted, 'ring')} was found; ask for fewer rings or another degree"
        )
    return graph


@lru_cache(maxsize=4)
def _few_groups(n: int) -> tuple[FiniteGroup, ...]:
    return tuple(groups_of_order(n))


@lru_cache(maxsize=256)
def _selected(n: int, degree: int, both_ways: bool, rings: int, seed: int) -> CayleyGraph | None:
    """Search; the same question comes again for every group and wiring, whatever the answer."""
    bound = moore_bound(n, degree, both_ways)
    by_farthest = 0.5 / n  # breaks ties
    floor = round(bound.mean_distance * (n - 1)) + by_farthest * bound.diameter
    # The tables of large groups take much memory.
    groups = _few_groups(n) if n <= _KEPT_ORDERS else groups_of_order(n)
    searches = [_Search(g, degree, both_ways, rings, by_farthest) for g in groups]
    budget = _SEARCH_STEPS / (n * degree)  # sets
    tried = 0
    for index, search in enumerate(searches):
        if tried < budget:
            tried += search.look(np.random.default_rng((seed, index)))
    promising = sorted(range(len(searches)), key=lambda g: (searches[g].lowest, g))
    for index in promising[:_SECOND_LOOKS]:
        rng = np.random.default_rng((seed, index, 1))
        for _ in range(_RESTARTS):
            if searches[index].exhausted or searches[promising[0]].lowest <= floor:
                break
            if tried < 2 * budget:
                tried += searches[index].look(rng)
    ranked = sorted(
        (cost, index, units)
        for index, search in enumerate(searches)
        for units, cost in search.best()
    )
    exhausted = all(search.exhausted for search in searches)
    # Sets of equal paths differ in their cuts: those whose links are loaded alike come first.
    alike = [row for row in ranked if row[0] <= ranked[0][0] + _SAME]
    alike.sort(key=lambda row: (searches[row[1]].busiest([row[2]]), row))
    for cost, index, units in (alike + ranked[len(alike) :])[:_MOST_RINGED]:
        # What is better and has no rings that were found might have some.
        exact = cost <= floor or (exhausted and cost <= ranked[0][0])
        graph = searches[index].ringed(units, seed, exact)
        if graph is not None:
            return graph
    return None


class _Search:
    """Generator sets of one group, made of units: a step, or a step and its inverse.

    Parameters
    ----------
    group : FiniteGroup
    degree : int
    both_ways : bool
    rings : int
    by_farthest : float
        Cost of the diameter; the sum of distances counts once.
    """

    def __init__(
        self, group: FiniteGroup, degree: int, both_ways: bool, rings: int, by_farthest: float
    ) -> None:
        self.group = group
        self.degree = degree
        self.both_ways = both_ways
        self.rings = rings
        self.by_farthest = by_farthest
        self.right = np.ascontiguousarray(group.table.T)
        steps = np.arange(1, group.order)
        back = group.inverse[1:] if both_ways else steps
        # Steps with an inverse of their own come first: one of the two stands for both.
        pairs, own = steps[steps < back], steps[steps == back]
        self.units = np.stack(
            (np.concatenate((pairs, own)), np.concatenate((back[pairs - 1], own))), axis=1
        )
        # A generator's cycles are as long as its order.
        self.cycles = group.order // group.element_orders[self.units[:, 0]]
        self.pairs = pairs.size
        makings = [(0, degree)]
        if both_ways:
            makings = [(a, degree - 2 * a) for a in range(degree // 2, -1, -1)]
        self.makings = [(a, b) for a, b in makings if a <= pairs.size and b <= own.size]
        sets = sum(comb(pairs.size, a) * comb(own.size, b) for a, b in self.makings)
        self.small = sets <= _MOST_SETS
        self.exhausted = not self.makings
        self.costs: dict[tuple[int, ...], float] = {}

    @property
    def lowest(self) -> float:
        """Cost of the best set so far."""
        return min(self.costs.values(), default=float("inf"))

    def best(self) -> list[tuple[tuple[int, ...], float]]:
        """Return the best sets that join all servers and may have the rings, and their costs.

        Of those with the shortest paths, some with the least load on the busiest link.
        """
        able = self._may_have_rings(list(self.costs))
        joined = [row for row, rings in zip(self.costs.items(), able, strict=True) if rings]
        joined = [row for row in joined if row[1] < float("inf")]
        joined.sort(key=lambda row: (row[1], row[0]))
        alike = [row for row in joined if row[1] <= joined[0][1] + _SAME]
        if not alike:
            return []
        some = alike[:: -(-len(alike) // _MEASURED)]
        loads = self.busiest([units for units, _ in some])
        some = [row for _, row in sorted(zip(loads, some, strict=True))]
        return (some + joined[len(alike) :])[:_KEPT]

    def _may_have_rings(self, sets: list[tuple[int, ...]]) -> list[bool]:
        if self.both_ways or self.rings < self.degree or not sets:
            return [True] * len(sets)
        n = self.group.order
        cycles = self.cycles[np.array(sets)].sum(axis=1)
        able: list[bool] = ((n * self.degree - cycles) % 2 == self.degree * (n - 1) % 2).tolist()
        return able

    def look(self, rng: np.random.Generator) -> int:
        """Try all sets, or improve a random one of each making; return how many were tried."""
        from topoopt.topology.cayley_kernels import exchange_units, set_costs

        if self.small:
            for a, b in self.makings:
                sets, steps = self._all_sets(a, b)
                costs = set_costs(self.right, steps, self.by_farthest)
                self.costs.update(zip(sets, costs.tolist(), strict=True))
            self.exhausted = True
            return len(self.costs)
        tried = 0
        for a, b in self.makings:
            low = np.repeat([0, self.pairs], (a, b))
            high = np.repeat([self.pairs, self.units.shape[0]], (a, b))
            picked = np.concatenate((
                rng.permutation(self.pairs)[:a],
                self.pairs + rng.permutation(self.units.shape[0] - self.pairs)[:b],
            ))  # fmt: skip
            cost, more = exchange_units(self.right, self.units, picked, low, high, self.by_farthest)
            tried += more
            self.costs[tuple(sorted(picked.tolist()))] = cost
        return tried

    def _all_sets(self, a: int, b: int) -> tuple[list[tuple[int, ...]], Ints]:
        """Return all sets of ``a`` units of two steps and ``b`` of one, and their steps."""
        own = range(self.pairs, self.units.shape[0])
        sets = [
            first + rest
            for first in combinations(range(self.pairs), a)
            for rest in combinations(own, b)
        ]
        rows = np.array(sets, dtype=np.int64).reshape(len(sets), a + b)
        both = self.units[rows[:, :a]].reshape(len(sets), 2 * a)
        return sets, np.hstack((both, self.units[rows[:, a:], 0]))

    def _steps(self, units: tuple[int, ...]) -> Ints:
        """Return all directed steps of a set of units."""
        return np.array(
            [s for u in units for s in dict.fromkeys(self.units[u].tolist())], dtype=np.int64
        )

    def busiest(self, sets: list[tuple[int, ...]]) -> list[float]:
        """Return the load of each set's busiest link where all send one unit to all.

        A server shares what it forwards equally among its links on shortest paths. As all servers
        see the same, what goes to one of them tells the load of each generator's links.
        """
        from topoopt.topology.cayley_kernels import word_lengths

        n, queue = self.group.order, np.empty(self.group.order, np.int64)
        steps = np.array([self._steps(units) for units in sets])
        length = np.empty((len(sets), n), np.int64)
        for row, made in zip(length, steps, strict=True):
            word_lengths(self.right, made, row, queue)
        left = length[:, self.group.inverse]  # from each server to server 0
        amount, load = np.ones((len(sets), n)), np.zeros(steps.shape)
        for hops in range(int(left.max()), 0, -1):
            of, here = np.nonzero(left == hops)
            after = self.right[steps[of], here[:, None]]
            nearer = left[of[:, None], after] == hops - 1
            share = amount[of, here] / nearer.sum(axis=1)
            part = np.where(nearer, share[:, None], 0.0)
            np.add.at(load, of, part)
            np.add.at(amount, (of[:, None], after), part)
        most: list[float] = load.max(axis=1).round(9).tolist()
        return most

    def ringed(self, units: tuple[int, ...], seed: int, exact: bool) -> CayleyGraph | None:
        """Return the Cayley graph of a set with its rings, if such are found."""
        from topoopt.topology.cayley_kernels import word_lengths

        n = self.group.order
        paired = [u for u in units if u < self.pairs or not self.both_ways]
        own = [int(self.units[u, 0]) for u in units if u >= self.pairs and self.both_ways]
        for odd in own if len(own) % 2 else [None]:
            rows = [self.right[self.units[u, 0]] for u in paired]
            used = [s for s in own if s != odd]
            rows += [
                _alternating(self.right[s], self.right[t])
                for s, t in zip(used[::2], used[1::2], strict=True)
            ]
            taken = hamiltonian_cycles(
                np.array(rows), self.rings, both_ways=self.both_ways, seed=seed
            )
            if taken is None:
                continue
            steps = self._steps(units)
            length = np.empty(n, np.int64)
            diameter = int(word_lengths(self.right, steps, length, np.empty(n, np.int64)))
            rest = [*taken[self.rings :], *([] if odd is None else [self.right[odd]])]
            links = {(a, b) for row in rest for a, b in enumerate(row.tolist())}
            if self.both_ways:
                links = {(min(a, b), max(a, b)) for a, b in links}
            between = length[self.group.table[self.group.inverse]]
            between.setflags(write=False)
            return CayleyGraph(
                group=self.group.name,
                generators=tuple(steps.tolist()),
                rings=tuple(ring_of(row) for row in taken[: self.rings]),
                rest=tuple(sorted(links)),
                diameter=diameter,
                mean_distance=float(length.sum()) / (n - 1),
                exact=exact,
                between=between,
            )
        return None


def _alternating(one: Ints, other: Ints) -> Ints:
    """Return the permutation that goes round the cycles of two perfect matchings' union."""
    following = np.full(one.size, -1, dtype=np.int64)
    for start in range(one.size):
        at = start
        while following[at] < 0:
            following[at] = one[at]
            following[one[at]] = other[one[at]]
            at = int(other[one[at]])
    return following
