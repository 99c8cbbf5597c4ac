"""Strategies to begin a search with, by their times on a switch on which no topology limits them.

What each of them takes depends on nothing else, so that a second process may score some.
"""

from collections.abc import Iterable
from functools import partial
from itertools import chain

import numpy as np

from parallelism.graph import Mode
from parallelism.search.forest import least
from parallelism.search.mcmc import Score
from parallelism.search.named import data_parallel, named_strategies
from parallelism.search.partition import partitions
from parallelism.search.seeds import (
    narrow_first,
    narrow_last,
    on_tables_of,
    placed_degrees,
    streams_on_halves,
    widening_branches,
)
from parallelism.search.slices import all_sliced, all_together
from parallelism.strategy import Strategy
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.space_terms import trade_off
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.scoring import MADE_WORK, Scorer
from topoopt.search.joint_moves import promising
from topoopt.search.steps import Search

# Places at which streams on halves begin and end where scores are costly.
_FEW_CUTS, _FEW_FROM = 4, 32
# The same of widening branches; how many of them are wired, and how many of both are searched.
_FEW_WIDENINGS = 5
_WIDENED, _FEW_WIDENED = 64, 8
_LIKE = 2
# How many of the best on the ideal switch have their concatenations split by channels, too.
_SLICED = 4
# How many of the best named ones are tried with the tables of the best start.
_MIXED = 5
# Operators up to which some servers alone may work, and how many of such strategies are wired.
_NARROW_CUTS, _NARROW_WIRED = 17, 4
# Weights of device time against link-bytes in the additive costs.
_WEIGHTS = (1.0, 0.8, 0.6, 0.4, 0.2)

Timed = list[tuple[float, Strategy]]
"""Strategies with their times, seconds."""


def starts_of(own: Timed, streams: Timed, widened: Timed) -> Timed:
    """Return what was found, fastest first; of widening branches the best few."""
    times: dict[Strategy, float] = {}
    for time, strategy in (*own, *streams, *widened[:_LIKE]):
        times.setdefault(strategy, time)
    return [(times[strategy], strategy) for strategy in sorted(times, key=lambda s: times[s])]


def promising_widening(
    search: Search, score: Scorer, known: list[Strategy], best: float, near: float = np.inf
) -> Timed:
    """Return the best widening branches, from few places first where effort is to be saved.

    Parameters
    ----------
    search : Search
    score : Scorer
    known : list of Strategy
        As in `widening`.
    best : float
        If none is faster than this on the ideal switch, no more places are tried.
    near : float
        As in `widening`.
    """
    if search.effort.least_gain > 0.0:
        few = widening(search, score, known, near, _FEW_WIDENINGS, _FEW_WIDENED)
        if not few or few[0][0] >= best or search.effort.widenings <= _FEW_WIDENINGS:
            return few
    return widening(search, score, known, near)


def widening(
    search: Search, score: Score, known: list[Strategy], near: float = np.inf,
    cuts: int | None = None, count: int = _WIDENED,
) -> Timed:  # fmt: skip
    """Return the best widening branches with their times on the ideal switch, fastest first.

    Those that take as long as ``near`` (seconds) there are left out. What is in no branch is
    data-parallel, or as in the first of ``known``.
    """
    if search.cluster.servers > _FEW_FROM:
        cuts, count = _FEW_WIDENINGS, _FEW_WIDENED
    elif cuts is None:
        cuts = search.effort.widenings
    space, regions, seconds = search.space, search.regions, partial(_part_seconds, search)
    wide = space.intern(data_parallel(space))
    found = widening_branches(space, regions, seconds, cuts, wide)
    if known[0] != wide:
        # Whole branches only, because what is split in two ways is many tasks.
        found = chain(found, widening_branches(space, regions, seconds, 2, known[0]))
    # Of short branches several places to go on are one.
    distinct = dict.fromkeys(map(space.intern, found))
    return promising(score, distinct, near, count, _worth(search))


def seeds(search: Search, score: Score, known: list[Strategy], near: float = np.inf) -> Timed:
    """Return starting strategies with their times, but for those on stretches of servers.

    Parameters
    ----------
    search : Search
    score : callable
        Says these times: on the ideal switch, or where `score_starts` asks for them.
    known : list of Strategy
        Some that fit.
    near : float
        Those but the known that take longer, in seconds, are left out.

    Returns
    -------
    list of (float, Strategy)
        Distinct, those that do not fit left out.
    """
    space, regions = search.space, search.regions
    named = [space.intern(strategy) for strategy in named_strategies(space).values()]
    found = [*known, *named]
    found += partitions(space, regions, lambda i, parts: _part_seconds(search, i, parts)).values()
    found += _traded(search)
    timed: dict[Strategy, float] = {}

    def add(strategies: Iterable[Strategy]) -> None:
        for strategy in map(space.intern, strategies):
            if strategy not in timed:
                limit = np.inf if strategy in known else near
                own = score(strategy, limit)
                timed[strategy] = own if own <= limit else np.inf

    add(found)
    few = not search.threaded
    if few or (search.problem.spares and _made_again(search, known[0])):
        # No move changes all dense operators and keeps the tables. On 128 servers that takes long
        # and made no plan faster.
        hopeful = [strategy for strategy in named if timed[strategy] < np.inf]
        hopeful = sorted(hopeful, key=lambda strategy: timed[strategy])[:_MIXED]
        add(on_tables_of(space, known[0], strategy) for strategy in hopeful)
    for strategy in sorted(timed, key=lambda strategy: timed[strategy])[:_SLICED]:
        changed = [strategy.replace(change) for change in all_sliced(space, strategy)]
        if few:
            changed += [all_together(space, strategy, tables=tables) for tables in (False, True)]
        for new in changed:
            if new not in timed:
                own = score(new, near)
                timed[new] = own if own <= near else np.inf
    return [(time, strategy) for strategy, time in timed.items() if time < np.inf]


def best_streams(
    search: Search, score: Score, near: float = np.inf, cuts: int | None = None
) -> Timed:
    """Return the best few streams on halves of the servers: the many are much alike.

    Parameters
    ----------
    search : Search
    score : callable
        As in `seeds`.
    near : float
        Those that take as long, in seconds, are left out.
    cuts : int, optional
        Places at which they begin and end; by default the effort's, few on many servers.

    Returns
    -------
    list of (float, Strategy)
        Fastest first.
    """
    cuts = search.effort.cuts if cuts is None else cuts
    if search.cluster.servers > _FEW_FROM:
        cuts = min(cuts, _FEW_CUTS)
    streams = streams_on_halves(search.space, search.regions, cuts)
    return promising(score, map(search.space.intern, streams), near, _LIKE, _worth(search))


def score_starts(search: Search, score: Score, known: list[Strategy], near: float) -> None:
    """Score strategies like those that a plan is begun from on another fabric, if they fit.

    Those on stretches of servers begin and end at few places. Given up are those that take longer
    than ``near`` seconds.
    """
    widening(search, score, known, near, _FEW_WIDENINGS, _FEW_WIDENED)
    seeds(search, score, known, near)
    best_streams(search, score, near, _FEW_CUTS)


def _made_again(search: Search, strategy: Strategy) -> bool:
    """Whether making as many tasks as those of a strategy takes no more than the whole budget."""
    tasks = search.problem.family.represented(strategy).tasks
    return MADE_WORK * tasks <= search.method.budget(search.cluster.servers).work


def _worth(search: Search) -> float:
    """Return the work after which starts that are much alike, none of them near, are given up."""
    return search.method.budget(search.cluster.servers).work if search.threaded else np.inf


def _part_seconds(search: Search, index: int, parts: int) -> float:
    time = search.builder.part_time(index, parts, 1, Mode.OUTPUT)
    return time.forward + time.backward + time.update


def _traded(search: Search) -> list[Strategy]:
    """Return the best degrees under additive costs of several weights, placed."""
    builder, space = search.builder, search.space
    choices, terms = trade_off(builder, wirings_of(search.problem.family, search.cluster))
    compute, network = (terms.names.index(name) for name in ("compute", "network"))
    found = []
    for weight in _WEIGHTS:
        own = weight * terms.own[compute] + (1.0 - weight) * terms.own[network]
        shared = weight * terms.shared[compute] + (1.0 - weight) * terms.shared[network]
        _, chosen = least(choices, own, shared)
        degrees = [choices.degrees[o][c] for o, c in enumerate(chosen)]
        if all(d in space.degrees(o) for o, d in enumerate(degrees)):
            found.append(
                placed_degrees(
                    space, degrees,
                    lambda i, parts: builder.part_time(i, parts, 1, Mode.OUTPUT).forward,
                )
            )  # fmt: skip
    return found


def narrow(search: Search, host: Pair, best: Pair) -> tuple[Timed, float]:
    """Return the best strategies that begin on some servers, go on on all, and may end on some.

    An ideal switch, on which nothing is forwarded, has others before them. So they are sought on
    the wiring of a usual strategy, whose rings serve their gradients.

    Parameters
    ----------
    search : Search
    host : Pair
        Of a usual strategy.
    best : Pair
        What takes as long as this is left out.

    Returns
    -------
    found : list of (float, Strategy)
        With their times on that wiring.
    work : float
        What finding them cost.
    """
    space = search.space
    score = Scorer(search.problem, host.fabric)

    def fastest(strategies: Iterable[Strategy]) -> Timed:
        fitting = filter(search.problem.fits, dict.fromkeys(map(space.intern, strategies)))
        return promising(score, fitting, best.time, _NARROW_WIRED)

    found = fastest(narrow_first(space, space.intern(best.strategy), _NARROW_CUTS))
    if found:
        found += fastest(narrow_last(space, found[0][1], _NARROW_CUTS))
        found = sorted(found, key=lambda timed: timed[0])[:_NARROW_WIRED]
    return found, score.work


def streams_apart(search: Search, near: float) -> tuple[Timed, float]:
    """Return what `best_streams` finds, and the work of it, also in another process."""
    score = search.quick_scorer(search.ideal)
    return best_streams(search, score, near), score.work


def widening_apart(
    search: Search, known: list[Strategy], best: float, near: float
) -> tuple[Timed, float]:
    """Return what `promising_widening` finds, and the work of it, also in another process."""
    score = search.quick_scorer(search.ideal)
    known = [search.space.intern(strategy) for strategy in known]
    return promising_widening(search, score, known, best, near), score.work
