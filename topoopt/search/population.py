"""The pairs that a joint search starts from: strategies for an ideal switch, wired.

On an ideal switch no topology limits a strategy. Those that are fastest there have
topologies built for them.
"""

from collections.abc import Iterable
from dataclasses import replace
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
from topoopt.base.second import Task
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.space_terms import trade_off
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import MADE_WORK, Scorer
from topoopt.problem.budget import Budget
from topoopt.problem.routing import Routing
from topoopt.search.driver import free, make_rounds, round_steps
from topoopt.search.finalists import finalists
from topoopt.search.gains import Gains
from topoopt.search.joint_moves import nearly_wired, promising
from topoopt.search.of_fewer import best_of_fewer, fewer_servers
from topoopt.search.result import SearchResult
from topoopt.search.search_state import SearchState
from topoopt.search.starts import USUAL
from topoopt.search.steps import SPLITS_GAIN, Deadline, Round, Search, stay, timed
from topoopt.search.yielding import measured_yielding

# Strategies that are sought on the ideal switch, a chain; and those that are wired, a chain.
_SOUGHT, _WIRED = 2, 4
# Those that are wired of many servers, in all ways.
_FEW_WIRED = 6
# How many rounds' proposals each of them has.
_SOUGHT_ROUNDS = 3
# What each of them may cost there, of the search's whole work: a few are a hundred times as many
# transfers as the others, and are then hardly ever the best once they are wired.
_SOUGHT_WORK = 0.3
# Starts this much slower than the best on the ideal switch are not improved there.
_HOPEFUL = 1.5
# Strategies this much slower than the best on the ideal switch are not wired.
_NEAR = 1.35
# Where the last topologies gained little, strategies are wired no more that are not so many times
# faster on the ideal switch than the best pair.
_MUCH_FASTER = 1.1
NEARLY = 1.01
"""Near times, off by about 0.1 %, do for what takes so many times as long as the best."""
# Places at which streams on halves begin and end where scores are costly.
_FEW_CUTS, _FEW_FROM = 4, 32
# The same of widening branches; how many of them are wired, and how many of both are searched.
_FEW_WIDENINGS = 5
_WIDENED, _FEW_WIDENED = 64, 8
_LIKE = 2
# How many of the best on the ideal switch have their concatenations split by channels, too.
_SLICED = 4
# Widening branches that are slower by no more than this may be faster in packet trains.
_WORTH_PACKETS = 1.03
# How many of the best named ones are tried with the tables of the best start.
_MIXED = 5
# Operators up to which some servers alone may work, and how many of such strategies are wired.
_NARROW_CUTS, _NARROW_WIRED = 17, 4
# Weights of device time against link-bytes in the additive costs.
_WEIGHTS = (1.0, 0.8, 0.6, 0.4, 0.2)

_Timed = list[tuple[float, Strategy]]


def best_starts(
    search: Search, state: SearchState, pairs: list[Pair], deadline: Deadline
) -> list[Pair]:
    """Return the fastest starting pair of each chain."""
    # Where fewer strategies fit than there are chains, several start at the same one.
    return [pairs[c % len(pairs)] for c in range(search.options.chains)]


def wired_population(
    search: Search, state: SearchState, pairs: list[Pair], deadline: Deadline
) -> list[Pair]:
    """Seek strategies on an ideal switch, wire the best, and return the best pairs."""
    chains, budget, result = search.options.chains, deadline.budget, state.result
    if search.cluster.servers == 1 or budget.steps == 0 or search.exhausted(pairs[0].time):
        return best_starts(search, state, pairs, deadline)
    score, before = search.quick_scorer(search.ideal), (result.steps, result.work)
    fewer = _asked_of_fewer(search, budget)
    try:
        # Few servers are cheap to search whole.
        near = _NEAR * pairs[0].time if search.threaded else np.inf
        known = [pair.strategy for pair in pairs]
        widened = promising_widening(search, score, known, pairs[0].time, near)
        starts = seeds(search, score, known, widened, near)
    except KeyboardInterrupt:
        result.interrupted = True
        return []
    result.work += score.work
    first = [s for s in starts[: _SOUGHT * chains] if s[0] <= _HOPEFUL * starts[0][0]]
    steps, _ = round_steps(search, pairs[0], chains, search.method.round_steps)
    rounds = _sought(search, state, first, _SOUGHT_ROUNDS * steps, deadline)
    if rounds is None:
        # What time cut short is as if it had not begun: no number of steps would end there.
        result.steps, result.work = before
        return []
    if result.interrupted:
        return []
    candidates = [(r.pair.time, r.pair.strategy) for r in rounds] + starts
    try:
        narrow = [] if search.threaded else _narrow_first(search, result, pairs)
        if search.moves_by_packets:
            pairs = _weighed(search, state, candidates, narrow, pairs)
        first = [(score(pair.strategy), pair.strategy) for pair in narrow]
        wired = _wired(search, state, first, candidates, widened, pairs)
        if fewer is not None:
            few = _of_fewer(search, result, deadline, fewer, wired[0].time)
            if few is not None and (chains > 1 or few.time < wired[0].time):
                wired[-1] = few
        return wired
    except KeyboardInterrupt:
        result.interrupted = True
        return []


def _sought(
    search: Search, state: SearchState, first: _Timed, steps: int, deadline: Deadline
) -> list[Round] | None:
    """Improve strategies on the ideal switch; None where time did not suffice."""
    result, budget, key = state.result, deadline.budget, search.problem.seed
    rounds = [
        Round(
            Pair(strategy, None, Routing.ECMP, search.ideal, time, "search"),
            np.random.default_rng(np.random.SeedSequence(key, spawn_key=(500 + c,))),
            0,
            most_work=_SOUGHT_WORK * search.method.budget(search.cluster.servers).work,
        )
        for c, (time, strategy) in enumerate(first)
    ]
    gains = Gains(search.effort.least_gain, search.effort.least_work)
    gains.note(result.work, first[0][0])
    made, proposing = 0, rounds
    while proposing and made < steps and result.steps < budget.steps and not gains.over:
        # What costs little altogether is not cut into slices, which would be looked at one by one.
        cut = search.effort.slice_steps if result.work > search.effort.least_work else 0
        count = min(cut or steps, steps - made)
        left, chains = budget.steps - result.steps, len(proposing)
        for c, r in enumerate(proposing):
            r.steps, r.done, r.work = min(count, left // chains + (c < left % chains)), 0, 0.0
        whole, result.interrupted = make_rounds(search, state, proposing, deadline, stay)
        if not whole and not result.interrupted:
            return None
        # What is exhausted counts as well, so that as many steps give the same search.
        result.steps += sum(r.done if result.interrupted else r.steps for r in proposing)
        result.work += sum(r.work for r in proposing)
        if result.interrupted:
            break
        for r in proposing:
            r.most_work -= r.work
        proposing = [r for r in proposing if r.done == r.steps and r.most_work > 0.0]
        made += count
        gains.note(result.work, min(r.pair.time for r in rounds))
    return rounds


def promising_widening(
    search: Search, score: Scorer, known: list[Strategy], best: float, near: float = np.inf
) -> _Timed:
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
) -> _Timed:  # fmt: skip
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


def seeds(
    search: Search, score: Score, known: list[Strategy], widened: _Timed, near: float = np.inf,
    cuts: int | None = None,
) -> _Timed:  # fmt: skip
    """Return starting strategies with their times, fastest first.

    Parameters
    ----------
    search : Search
    score : callable
        Says these times: on the ideal switch, or where `score_starts` asks for them.
    known : list of Strategy
        Some that fit.
    widened : list of (float, Strategy)
        What `widening` returns, of which the best few count.
    near : float
        Those but the known that take longer, in seconds, are left out.
    cuts : int, optional
        Places at which streams on halves begin and end; by default the effort's, few on many
        servers.

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
    cuts = search.effort.cuts if cuts is None else cuts
    if search.cluster.servers > _FEW_FROM:
        cuts = min(cuts, _FEW_CUTS)
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
    # Of the many streams on halves and widening branches only the best few: they are much alike.
    halves = map(space.intern, streams_on_halves(space, regions, cuts))
    for time, strategy in promising(score, halves, near, _LIKE, _worth(search)) + widened[:_LIKE]:
        timed.setdefault(strategy, time)
    order = sorted(timed, key=lambda strategy: timed[strategy])
    return [(timed[s], s) for s in order if timed[s] < np.inf]


def score_starts(search: Search, score: Score, known: list[Strategy], near: float) -> None:
    """Score strategies like those that a plan is begun from on another fabric, if they fit.

    Those on stretches of servers begin and end at few places. Given up are those that take longer
    than ``near`` seconds.
    """
    widened = widening(search, score, known, near, _FEW_WIDENINGS, _FEW_WIDENED)
    seeds(search, score, known, widened, near, _FEW_CUTS)


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


def _narrow_first(search: Search, result: SearchResult, pairs: list[Pair]) -> list[Pair]:
    """Return the best strategies that begin on some servers, go on on all, and may end on some.

    An ideal switch, on which nothing is forwarded, has others before them. So they are sought on
    the wiring of a usual strategy, whose rings serve their gradients.
    """
    space = search.space
    host = next((pair for pair in pairs if pair.origin in USUAL), pairs[0])
    score = Scorer(search.problem, host.fabric)

    def fastest(strategies: Iterable[Strategy]) -> _Timed:
        fitting = filter(search.problem.fits, dict.fromkeys(map(space.intern, strategies)))
        return promising(score, fitting, pairs[0].time, _NARROW_WIRED)

    best = fastest(narrow_first(space, pairs[0].strategy, _NARROW_CUTS))
    if best:
        best += fastest(narrow_last(space, best[0][1], _NARROW_CUTS))
        best = sorted(best, key=lambda timed: timed[0])[:_NARROW_WIRED]
    result.work += score.work
    return [replace(host, strategy=s, time=time, origin="search") for time, s in best]


def _weighed(
    search: Search, state: SearchState, candidates: _Timed, narrow: list[Pair], pairs: list[Pair]
) -> list[Pair]:
    """Let packet trains say how much transfers yield; return the starting pairs with that score."""
    result = state.result

    order = sorted(range(len(candidates)), key=lambda c: candidates[c][0])
    distinct = dict.fromkeys(candidates[c][1] for c in order)
    # Its work is not counted: where wirings are expensive it would leave none for the rounds.
    wired = search.wirer().in_twos(
        nearly_wired, ((strategy, np.inf) for strategy in distinct), lambda: np.inf
    )
    # Those that begin narrow have both gradients and messages, which others may not have.
    search.yielding = measured_yielding(search.problem, filter(None, wired), narrow)
    pairs = sorted(timed(search.sought, pairs, result), key=lambda pair: pair.time)
    result.best = pairs[0]
    result.others = finalists(pairs, search.method.spacing, search.kept)
    return pairs


def _asked_of_fewer(search: Search, budget: Budget) -> Task | None:
    """Begin a search on fewer servers, with what it finds one chain begins.

    Where steps or seconds are given there is none, since nothing would end it in time.
    """
    if search.threaded or not free(budget) or fewer_servers(search) is None:
        return None
    return search.second.share(best_of_fewer, [{}])[0]


def _of_fewer(
    search: Search, result: SearchResult, deadline: Deadline, fewer: Task, best: float
) -> Pair | None:
    """Return the best wiring of what a search on fewer servers found.

    As a start for all chains it would keep them from what only these servers allow.
    """
    strategies, work = (
        best_of_fewer(search, deadline.progress) if fewer.begin() else fewer.result(hear=True)
    )
    wirer = search.wirer()
    asked = [(search.space.intern(strategy), np.inf) for strategy in strategies]
    found = wirer.in_twos(nearly_wired, asked, lambda: _NEAR * best)
    pairs = [pair for pair in found if pair is not None]
    result.work += work + wirer.work
    search.keep(result, pairs)
    return min(pairs, key=lambda pair: pair.time, default=None)


def _promising_wired(
    rewirer: Rewirer, strategy: Strategy, allowed: tuple[float, float], limit: float
) -> Pair | None:
    """Wire what may be slower by a factor than the best; for the formula's wiring it is another."""
    slack, formula = allowed
    best = limit / slack
    pair = rewirer.wire(
        strategy, "search", formula_limit=formula * best, limit=limit, exact=False,
        weighted=rewirer.spares,
    )  # fmt: skip
    return rewirer.exactly(pair) if pair is not None and pair.time <= NEARLY * best else pair


def _wired(
    search: Search, state: SearchState, first: _Timed, candidates: _Timed, widened: _Timed,
    pairs: list[Pair],
) -> list[Pair]:  # fmt: skip
    """Wire some, then candidates from the fastest on the ideal switch; return the best pairs."""
    chains, result, wirer = search.options.chains, state.result, search.wirer()
    before, formula = result.work, search.formula_limit(1.0)
    order = sorted(range(len(candidates)), key=lambda c: candidates[c][0])
    near = _NEAR * candidates[order[0]][0]
    found, seen = list(pairs), {pair.strategy for pair in pairs}
    hopeful = [candidates[c][1] for c in order if candidates[c][0] <= near]
    most = _FEW_WIRED if search.problem.spares else _WIRED * chains
    hopeful = [strategy for _, strategy in first] + hopeful
    chosen = [s for s in dict.fromkeys(hopeful) if s not in seen][: most + len(first)]
    seen |= set(chosen)

    def fastest(wired: list[Pair]) -> float:
        return min(pair.time for pair in wired)

    ideal = {strategy: time for time, strategy in (*reversed(candidates), *widened, *first)}
    gains = Gains(search.effort.least_gain, search.effort.least_work)
    gains.note(result.work, fastest(found))

    def wired(strategies: list[Strategy], slack: float, beside: list[Pair]) -> list[Pair]:
        """Wire strategies until the last ones gained too little."""
        made: list[Pair] = []
        asked = [(strategy, (slack, formula)) for strategy in strategies]
        pairs = wirer.in_twos(_promising_wired, asked, lambda: slack * fastest(beside + made))
        for strategy, pair in zip(strategies, pairs, strict=True):
            result.work = before + wirer.work
            if pair is not None:
                made.append(pair)
            gains.note(result.work, fastest(beside + made))
            # They gained little, and this is not much faster on the ideal switch.
            if gains.over and fastest(beside + made) <= _MUCH_FASTER * ideal[strategy]:
                break
        return made

    found += wired(chosen, SPLITS_GAIN, found)
    # Widening branches are much alike on the ideal switch, and differ once they are wired.
    slack = _WORTH_PACKETS if search.moves_by_packets else 1.0
    fresh = [strategy for _, strategy in widened if strategy not in seen]
    late = sorted(wired(fresh, slack, found), key=lambda pair: pair.time)
    found += late[:chains]
    search.keep(result, found + late)
    found.sort(key=lambda pair: pair.time)
    if search.threaded:
        # A round on what is far slower costs as much, and does not catch up.
        found = [pair for pair in found if pair.time <= _NEAR * found[0].time]
    state.reserve = found[chains:]
    if search.wirings_costly:
        return found[:chains]
    return [found[c % len(found)] for c in range(chains)]
