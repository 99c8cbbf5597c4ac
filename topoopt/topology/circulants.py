"""Exact choice of ring generators: the circulant network with the shortest paths.

A union of rings +p over n servers looks the same from every server, so one breadth-first
search of n steps measures it. Multiplying all generators by a unit of Z_n only renames the
servers, so among coprime generators one may be taken as 1. (Replaces the geometric sequence of
TopoOpt, NSDI 2023, arXiv 2202.00433, section 4, SelectPermutations.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_kind, several, whole
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from topoopt.topology.moore import abelian_bound
from topoopt.topology.select import select_permutations
from topoopt.topology.totient import totient_permutations

# Sets that are tried exhaustively; beyond, a local search. A set of 128 servers takes about a
# microsecond.
_MOST_SETS = 200_000
_RESTARTS = 8
# Steps of breadth-first searches that the restarts may take, about; the first always runs.
_SEARCH_STEPS = 3e8
# Distance decides between sets that serve the demand equally well.
_TIE = 1e-6


class Objective(StrEnum):
    """What is minimised first; the other breaks ties."""

    MEAN = "mean"
    DIAMETER = "diameter"


def objective_named(value: str) -> Objective:
    """Return the objective of a name.

    Raises
    ------
    InputError
        If there is none.
    """
    if value not in set(Objective):
        raise InputError(f"objective is {value!r}; choose {' or '.join(Objective)}")
    return Objective(value)


class _Goal(NamedTuple):
    """The cost of a set: hops times the weight of each offset, and the farthest one times more.

    ``floor`` is a cost that no set is below.
    """

    weight: Floats
    farthest: float
    floor: float


@dataclass(frozen=True, slots=True)
class Circulant:
    """A chosen generator set.

    Parameters
    ----------
    generators : tuple of int
        Those fixed first, then ascending. In a bidirectional network each stands for +p and -p.
    diameter : int
        Hops.
    mean_distance : float
        Hops, over the offsets 1 .. n-1.
    exact : bool
        Whether no other set is better (all were tried, or a bound is met).
    """

    generators: tuple[int, ...]
    diameter: int
    mean_distance: float
    exact: bool


def circulant_distances(
    servers: int, generators: Sequence[int], bidirectional: bool = False
) -> Ints:
    """Return the hops to every offset of a union of rings.

    Parameters
    ----------
    servers : int
        n, at least 2.
    generators : sequence of int
        Steps in 1 .. n-1, coprime to n or not.
    bidirectional : bool
        Whether each step p also gives -p.

    Returns
    -------
    int64 array, shape (servers,)
        Hops from any server i to server i + offset (mod n).

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If some offset is no sum of steps.
    """
    from topoopt.topology.circulant_kernels import offset_distances

    _check(servers, generators)
    distance = np.empty(servers, np.int64)
    steps = _directed(servers, generators, bidirectional, False)
    if offset_distances(servers, steps, distance, np.empty(servers, np.int64)) < 0:
        raise InfeasibleError(
            f"steps {tuple(generators)} do not join {servers} servers; add a step coprime to "
            f"{servers}"
        )
    return distance


def select_circulant(
    servers: int,
    count: int,
    *,
    bidirectional: bool = False,
    half: bool = False,
    objective: str = Objective.MEAN,
    demand: Floats | None = None,
    fixed: Sequence[int] = (),
    coprime: bool = True,
    most: int = _MOST_SETS,
    seed: int = 0,
) -> Circulant:
    """Choose the generators of the circulant network with the shortest paths.

    Parameters
    ----------
    servers : int
        n, at least 2.
    count : int
        Generators wanted, those fixed included; fewer where the candidates run out.
    bidirectional : bool
        Each generator p gives +p and -p.
    half : bool
        Add a step of n / 2 (the odd port of bidirectional servers; n even).
    objective : {"mean", "diameter"}
        What is minimised first without demand.
    demand : float64 array, shape (servers,), optional
        Bytes to each offset, summed over all servers: then bytes x hops is minimised, and mean
        distance breaks ties.
    fixed : sequence of int
        Generators that are there already.
    coprime : bool
        Choose generators coprime to n only, each of which is one ring over all servers; any, as in
        published tables of circulant graphs, if False.
    most : int
        Try all sets if there are at most this many; otherwise exchange one generator at a time,
        from the geometric choice and from random ones.
    seed : int
        Of the random ones.

    Returns
    -------
    Circulant

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If no set joins the servers.
    """
    aim = objective_named(objective)
    servers = whole("servers", servers, "a whole number of at least 2")
    wanted = "several whole numbers, such as (1, 3)"
    fixed = [whole("one of fixed", step, wanted) for step in several("fixed", fixed, wanted)]
    check_kind("demand", demand, np.ndarray | None, "an array with a number for each offset")
    _check(servers, fixed)
    if whole("count", count, "a whole number, of generators") < max(1, len(fixed)):
        raise InputError(
            f"{counted(count, 'generator')} wanted; give at least {max(1, len(fixed))}"
        )
    if half and (servers % 2 or not bidirectional):
        raise InputError(
            f"a step of half the ring over {servers} servers; it needs an even number and "
            "bidirectional ports"
        )
    if demand is None:
        return _shortest(
            servers, count, bidirectional, half, aim, tuple(fixed), coprime, most, seed
        )
    if demand.shape != (servers,) or not np.all(np.isfinite(demand) & (demand >= 0)):
        raise InputError(f"demand of {servers} offsets must be as many numbers of bytes >= 0")
    scale = float(demand[1:].sum())
    weight = demand / scale if scale > 0 else np.zeros(servers)
    goal = _Goal(weight + _TIE / servers, 0.0, 0.0)
    return _search(servers, count, bidirectional, half, goal, tuple(fixed), coprime, most, seed)


@lru_cache(maxsize=4096)
def _shortest(
    n: int,
    count: int,
    both_ways: bool,
    half: bool,
    aim: Objective,
    fixed: tuple[int, ...],
    coprime: bool,
    most: int,
    seed: int,
) -> Circulant:
    """Search without demand; the same question comes again for every group and wiring."""
    # Sums of whole hops, so that ties are exact.
    farthest = float(n * n) if aim is Objective.DIAMETER else 1.0 / (2 * n)
    bound = abelian_bound(n, count, both_ways, half)
    floor = farthest * bound.diameter + round(bound.mean_distance * (n - 1))
    goal = _Goal(np.ones(n), farthest, floor)
    return _search(n, count, both_ways, half, goal, fixed, coprime, most, seed)


def _search(
    n: int,
    count: int,
    both_ways: bool,
    half: bool,
    goal: _Goal,
    fixed: tuple[int, ...],
    coprime: bool,
    most: int,
    seed: int,
) -> Circulant:
    from topoopt.topology.circulant_kernels import every_set, offset_distances

    pool = list(totient_permutations(n)) if coprime else list(range(1, n))
    if both_ways:
        pool = [p for p in pool if 2 * p <= n and not (half and 2 * p == n)]
    taken = {min(p, n - p) if both_ways else p for p in fixed}
    # With demand, or beside fixed generators, multiples of a set are not equal.
    if coprime and not fixed and goal.farthest > 0:
        fixed, taken = (1,), {1}
    free = np.array([p for p in pool if p not in taken], dtype=np.int64)
    choose = min(count - len(fixed), free.size)
    steps = _directed(n, (*fixed, *free[:choose].tolist()), both_ways, half)
    if comb(free.size, choose) <= most:
        picked = every_set(n, steps, len(fixed), choose, free, both_ways, *goal)
        exact = True
    else:
        picked, cost = _exchanged(n, steps, choose, free, both_ways, goal, fixed, seed)
        exact = cost <= goal.floor
    chosen = (*fixed, *sorted(free[picked].tolist()))
    steps = _directed(n, chosen, both_ways, half)
    distance = np.empty(n, np.int64)
    diameter = offset_distances(n, steps, distance, np.empty(n, np.int64))
    if diameter < 0:
        raise InfeasibleError(
            f"no {counted(count, 'step')} beside {fixed} join {n} servers; give more, or coprime "
            "ones"
        )
    mean = float(distance.sum()) / (n - 1)
    return Circulant(chosen, int(diameter), mean, exact)


def _exchanged(
    n: int,
    steps: Ints,
    choose: int,
    free: Ints,
    both_ways: bool,
    goal: _Goal,
    fixed: tuple[int, ...],
    seed: int,
) -> tuple[Ints, float]:
    """Improve the geometric choice, and random ones, by exchanging single generators."""
    from topoopt.topology.circulant_kernels import exchange_generators

    rng = np.random.default_rng(seed)
    geometric = select_permutations(n, choose + len(fixed), bidirectional=both_ways)
    place = {p: i for i, p in enumerate(free.tolist())}
    start = [place[p] for p in geometric if p in place][:choose]
    start += [i for i in range(free.size) if i not in start][: choose - len(start)]
    best, lowest = np.array(start, dtype=np.int64), float("inf")
    each = 4.0 * free.size * choose * n * steps.size
    for restart in range(int(np.clip(_SEARCH_STEPS / max(each, 1.0), 1, _RESTARTS))):
        picked = np.array(start, dtype=np.int64)
        if restart:
            picked = rng.permutation(free.size)[:choose]
        cost = exchange_generators(
            n, steps, len(fixed), picked, free, both_ways, goal.weight, goal.farthest
        )
        if cost < lowest:
            best, lowest = picked, cost
        if lowest <= goal.floor:
            break
    return best, lowest


def _directed(n: int, generators: Sequence[int], both_ways: bool, half: bool) -> Ints:
    """Return all directed steps: p, or p and n - p, and n / 2 at the end."""
    steps = [q for p in generators for q in ((p, n - p) if both_ways else (p,))]
    return np.array([*steps, n // 2] if half else steps, dtype=np.int64)


def _check(servers: int, generators: Sequence[int]) -> None:
    if servers < 2:
        raise InputError(f"generators of {counted(servers, 'server')}; a ring needs at least 2")
    for p in generators:
        if not 1 <= p < servers:
            raise InputError(f"step {p} lies outside 1..{servers - 1}; choose one inside")
