"""The pairs that a joint search starts from: strategies for an ideal switch, wired.

On an ideal switch no topology limits a strategy. Those that are fastest there have
topologies built for them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from parallelism.strategy import Strategy
from topoopt.base.second import Task
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.rewire import Rewirer
from topoopt.problem.budget import Budget
from topoopt.problem.routing import Routing
from topoopt.search.driver import free, make_rounds, round_steps
from topoopt.search.finalists import finalists
from topoopt.search.gains import Gains
from topoopt.search.joint_moves import nearly_wired
from topoopt.search.of_fewer import best_of_fewer, fewer_servers
from topoopt.search.on_switch import Timed, narrow, seeds, starts_of, streams_apart, widening_apart
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
# Widening branches that are slower by no more than this may be faster in packet trains.
_WORTH_PACKETS = 1.03


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
    # Few servers are cheap to search whole.
    near = _NEAR * pairs[0].time if search.threaded else np.inf
    known = [pair.strategy for pair in pairs]
    host = next((pair for pair in pairs if pair.origin in USUAL), pairs[0])
    # The second process begins with the last.
    begins_narrow = None if search.threaded else _asked(search, narrow, host=host, best=pairs[0])
    on_halves = _asked(search, streams_apart, near=near)
    widens = _asked(search, widening_apart, known=known, best=pairs[0].time, near=near)
    try:
        own = seeds(search, score, known, near)
        streams = _answer(search, result, on_halves)
        widened = _answer(search, result, widens)
    except KeyboardInterrupt:
        result.interrupted = True
        return []
    starts = starts_of(own, streams, widened)
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
        on_host = [] if begins_narrow is None else _answer(search, result, begins_narrow)
        if search.moves_by_packets:
            beside = [replace(host, strategy=each, time=time) for time, each in on_host]
            pairs = _weighed(search, state, candidates, beside, pairs)
        first = [(score(strategy), strategy) for _, strategy in on_host]
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
    search: Search, state: SearchState, first: Timed, steps: int, deadline: Deadline
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


def _weighed(
    search: Search, state: SearchState, candidates: Timed, narrow: list[Pair], pairs: list[Pair]
) -> list[Pair]:
    """Let packet trains say how much transfers yield; return the starting pairs with that score."""
    result = state.result

    order = sorted(range(len(candidates)), key=lambda c: candidates[c][0])
    distinct = dict.fromkeys(candidates[c][1] for c in order)
    # Its work is not counted: where wirings are expensive it would leave none for the rounds.
    wired = search.wirer().in_turn(
        nearly_wired, ((strategy, None) for strategy in distinct), lambda: np.inf
    )
    # Those that begin narrow have both gradients and messages, which others may not have.
    search.yielding = measured_yielding(search.problem, filter(None, wired), narrow)
    pairs = sorted(timed(search.sought, pairs, result), key=lambda pair: pair.time)
    result.best = pairs[0]
    result.others = finalists(pairs, search.method.spacing, search.kept)
    return pairs


def _asked(search: Search, function: Callable[..., Any], **arguments: Any) -> Task:
    """Let a second process, if it has nothing else to do, seek strategies."""
    return search.second.share(function, [arguments])[0]


def _answer(search: Search, result: SearchResult, task: Task) -> Timed:
    """Return what was sought, and count what it cost."""
    found, work = task.result()
    result.work += work
    return [(time, search.space.intern(strategy)) for time, strategy in found]


def _asked_of_fewer(search: Search, budget: Budget) -> Task | None:
    """Begin a search on fewer servers, with what it finds one chain begins.

    Where steps or seconds are given there is none, since nothing would end it in time.
    """
    if search.threaded or not free(budget) or fewer_servers(search) is None:
        return None
    return _asked(search, best_of_fewer)


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
    asked = [(search.space.intern(strategy), None) for strategy in strategies]
    found = wirer.in_turn(nearly_wired, asked, lambda: _NEAR * best)
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
    search: Search, state: SearchState, first: Timed, candidates: Timed, widened: Timed,
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

    def wire(strategies: list[Strategy], slack: float, made: list[Pair]) -> None:
        """Add wirings of strategies to those made, until the last ones gained too little."""
        asked = [(strategy, (slack, formula)) for strategy in strategies]
        pairs = wirer.in_turn(_promising_wired, asked, lambda: slack * fastest([*found, *made]))
        for strategy, pair in zip(strategies, pairs, strict=True):
            result.work = before + wirer.work
            if pair is not None:
                made.append(pair)
            gains.note(result.work, fastest([*found, *made]))
            # They gained little, and this is not much faster on the ideal switch.
            if gains.over and fastest(found) <= _MUCH_FASTER * ideal[strategy]:
                break

    wire(chosen, SPLITS_GAIN, found)
    # Widening branches are much alike on the ideal switch, and differ once they are wired.
    late: list[Pair] = []
    slack = _WORTH_PACKETS if search.moves_by_packets else 1.0
    wire([strategy for _, strategy in widened if strategy not in seen], slack, late)
    late.sort(key=lambda pair: pair.time)
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
