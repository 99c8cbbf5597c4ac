"""The search over operator strategies: starts, population, rounds, conclusion.

Every method goes the same way, after the alternating optimization of TopoOpt (NSDI'23, sec. 4);
what it does at each step is its own (`topoopt.search.steps.SearchMethod`).
"""

import os
import time as clock
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from threading import Event, Lock
from typing import NoReturn

import numpy as np

from codesign_base import InfeasibleError
from parallelism.strategy import Strategy
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import IDEAL_SWITCH
from topoopt.evaluate.rewire import Rewirer
from topoopt.problem.budget import Budget
from topoopt.problem.routing import Routing
from topoopt.search.finalists import finalists
from topoopt.search.gains import Gains
from topoopt.search.result import SearchResult
from topoopt.search.search_state import Keeper, SearchState
from topoopt.search.starts import LEAST_MEMORY, SLOW_START, USUAL, start_pair, starting_strategies
from topoopt.search.steps import After, Deadline, Round, Search, timed
from topoopt.search.wirer import Wirer

# A round that improves the best time by less than this share counts as converged.
_CONVERGED = 1e-3
_PATIENCE = 10
# At least and at most so much work in all is done before rounds end by what they gain.
_ROUNDS_WORK = (3e6, 5e7)
# Where a score is expensive a round has fewer proposals, so that the default budget holds this
# many of them.
_LEAST_ROUND_STEPS = 8
_ROUNDS = 10
# The first round, of so few, may pass the budget by this share of it, as one score says.
_OVERDRAWN = 0.1


def run(
    search: Search,
    budget: Budget,
    progress: ProgressCallback | None = None,
    keeper: Keeper | None = None,
) -> SearchResult:
    """Search strategies and topologies from the best starting pairs on.

    In every round each chain makes proposals on its present fabric and changes its topology;
    then the chains are mixed. Stops when the budget is spent, or when no chain improved for some
    rounds. Work is looked at between rounds only, and a round that time cuts short is discarded,
    so that a budget of the steps that the result reports reproduces it.

    Parameters
    ----------
    search : Search
    budget : Budget
    progress : callable, optional
    keeper : Keeper, optional
        Is given the state between rounds, and may give back one to go on from.

    Returns
    -------
    SearchResult
        Also when interrupted from the keyboard, provided that any pair was scored.
    """
    deadline = Deadline.begun(budget, progress)
    state = keeper.load(search) if keeper else None
    if state is None:
        state = _begun(search, deadline)
        state.yielding = search.yielding
    search.yielding = state.yielding
    result, chains = state.result, len(state.current)
    if result.interrupted and not chains:
        _settle(search, result)
        return result
    cut = False
    while (
        chains and not result.interrupted
        and not _nothing_to_try(search, state) and not _settled_down(state, budget)
        and not (free(budget) and search.exhausted(result.best.time))
        and result.steps < budget.steps and _affordable(state, budget)
    ):  # fmt: skip
        if keeper:
            keeper.save(search, state)
        cut = not _round(search, state, deadline)
        if cut:
            break
        state.gains.note(result.work, result.best.time)
    if keeper and not cut and not result.interrupted:
        keeper.save(search, state, last=True)
    search.method.conclude(search, state)
    _settle(search, result)
    result.converged = _nothing_to_try(search, state)
    return result


def start(
    search: Search, progress: ProgressCallback | None = None
) -> tuple[list[Pair], dict[str, float], bool]:
    """Score every named strategy on a topology of its own, by its time in the fluid model.

    Returns
    -------
    pairs : list of Pair
        Those that fit, fastest first.
    times : dict
        Seconds by name; infinity where a strategy does not fit. Those that are slower than
        the best few are left out.
    interrupted : bool
        Whether it was stopped from the keyboard after at least one pair was scored.

    Raises
    ------
    InfeasibleError
        If none fits in memory.
    """
    problem = search.problem
    named = starting_strategies(search.space, problem.family, search.method.starts)
    times = {name: float("inf") for name, s in named.items() if not problem.fits(s)}
    fitting = [(strategy, name) for name, strategy in named.items() if name not in times]
    pairs: list[Pair] = []
    best = float("inf")
    interrupted = False

    wirer = Wirer(problem, search.space, search.second)

    def limit() -> float:
        return 0.0 if search.exhausted(best) else SLOW_START * best

    try:
        # On many servers what is slow is not even wired, once the first of them says what is.
        alone = 1 if problem.spares else 0
        wired = chain(
            wirer.in_turn(start_pair, fitting[:alone], limit),
            wirer.in_turn(start_pair, fitting[alone:], limit),
        )
        for done, pair in enumerate(wired):
            if pair is not None:
                pairs = sorted([*pairs, pair], key=lambda pair: pair.time)
                best = pairs[0].time
                # Only those that chains may start from, and the usual two, go on from here: the
                # routes of many servers fill memory.
                chains = search.options.chains
                pairs = pairs[:chains] + [p for p in pairs[chains:] if p.origin in USUAL]
            if progress:
                progress(Progress("start", len(times) + done + 1, len(named), best))
    except KeyboardInterrupt:
        if not pairs:
            raise
        interrupted = True
    if not pairs:
        _refuse(search, named[LEAST_MEMORY])
    times |= {pair.origin: pair.time for pair in pairs}
    if problem.spares and not interrupted:
        # Only the best is worth all wirings there.
        best_pair = pairs[0]
        found = Rewirer(problem).wire(
            best_pair.strategy, best_pair.origin, limit=best_pair.time, weighted=True,
            known=best_pair,
        )  # fmt: skip
        if found is not None and found.time < best_pair.time:
            pairs[0] = found
    return pairs, times, interrupted


def make_rounds(
    search: Search, state: SearchState, rounds: list[Round], deadline: Deadline, after: After
) -> tuple[bool, bool]:
    """Let all chains make their rounds.

    Parameters
    ----------
    search : Search
    state : SearchState
        What they cost and find is not counted yet.
    rounds : list of Round
    deadline : Deadline
    after : callable
        A method's step that follows a chain's proposals.

    Returns
    -------
    whole : bool
        Whether time sufficed.
    interrupted : bool
        Whether they were stopped from the keyboard.
    """
    stop, lock = Event(), Lock()
    result = state.result

    def report() -> None:
        if deadline.progress:
            with lock:
                done = result.steps + sum(r.done for r in rounds)
                wired = (r.pair.time for r in rounds if r.pair.fabric.name != IDEAL_SWITCH)
                best = min([result.best.time, *wired])
                deadline.progress(
                    Progress("search", done, deadline.budget.steps, best, state.gains.gained)
                )

    def one_chain(r: Round) -> None:
        try:
            changed = _propose(search, r, stop, deadline.at, report)
            if not stop.is_set():
                after(search, state, r, changed)
        except BaseException:
            stop.set()
            raise

    if len(rounds) == 1 or not search.threaded:
        try:
            for r in rounds:
                one_chain(r)
        except KeyboardInterrupt:
            return False, True
        return not stop.is_set(), False
    with ThreadPoolExecutor(min(len(rounds), os.cpu_count() or 1)) as pool:
        try:
            for future in [pool.submit(one_chain, r) for r in rounds]:
                future.result()
        except KeyboardInterrupt:
            stop.set()
            return False, True
        finally:
            stop_now = stop.is_set()
    return not stop_now, False


def round_steps(search: Search, pair: Pair, chains: int, most: int) -> tuple[int, float]:
    """Return the proposals of a chain's round, ``most`` at most, and the work of one score."""
    scorer, method = search.quick_scorer(pair.fabric), search.method
    affordable = method.budget(search.cluster.servers).work / (_ROUNDS * chains)
    if search.problem.spares:
        # What takes more than this gets the fewest anyway.
        scorer.budget = affordable / _LEAST_ROUND_STEPS
    scorer.timed(search.builder.build(pair.strategy))
    steps = int(np.clip(affordable / (scorer.work + 1.0), _LEAST_ROUND_STEPS, most))
    return steps, scorer.work


def _begun(search: Search, deadline: Deadline) -> SearchState:
    """Score the starts, and return the state before the first round."""
    pairs, times, interrupted = start(search, deadline.progress)
    search.look_ahead()
    result = SearchResult(pairs[0], times, interrupted=interrupted, first=pairs[0])
    if search.yielding > 0.0:
        pairs = sorted(timed(search.sought, pairs, result), key=lambda pair: pair.time)
        result.best = pairs[0]
    result.others = finalists(pairs, search.method.spacing, search.kept)
    state = SearchState(result, gains=Gains(search.effort.least_gain, search.effort.least_work))
    current = [] if interrupted else search.method.population(search, state, pairs, deadline)
    chains = len(current)
    state.begin(
        current,
        [
            np.random.default_rng(np.random.SeedSequence(search.problem.seed, spawn_key=(c,)))
            for c in range(chains)
        ],
    )
    if chains:
        whole = search.method.round_steps
        state.round_steps, score_work = round_steps(search, pairs[0], chains, whole)
        if search.effort.slice_steps and result.work > search.effort.least_work:
            state.round_steps = min(state.round_steps, search.effort.slice_steps)
        if state.round_steps == _LEAST_ROUND_STEPS:
            state.first_round = chains * state.round_steps * score_work
    # Where the starts were cheap, a tenth of all work is a few proposals.
    if search.effort.again > 0.0:
        after = float(np.clip(search.effort.again * result.work, *_ROUNDS_WORK))
        state.gains.after = max(state.gains.after, after)
    state.gains.note(result.work, result.best.time)
    return state


def _round(search: Search, state: SearchState, deadline: Deadline) -> bool:
    """Make one round and mix the chains; say whether it counts."""
    result, chains = state.result, len(state.current)
    left = deadline.budget.steps - result.steps
    rounds = [
        Round(pair, rng, min(state.round_steps, left // chains + (c < left % chains)), *carried)
        for c, (pair, rng, carried) in enumerate(
            zip(state.current, state.streams, state.carried, strict=True)
        )
    ]
    whole, result.interrupted = make_rounds(search, state, rounds, deadline, search.method.after)
    if not whole and not result.interrupted:
        return False
    before = result.best.time
    state.first_round = 0.0
    result.steps += sum(r.done for r in rounds)
    result.work += sum(r.work for r in rounds)
    state.current = current = [r.pair for r in rounds]
    search.keep(result, current)
    if result.interrupted:
        return False
    try:
        for step in search.method.mix:
            current = step(search, state, current)
    except KeyboardInterrupt:
        result.interrupted = True
        return True
    state.current = current
    # What searches a pair goes on where it is, for as long as the pair stays.
    state.carried = [
        (r.searcher, r.moves) if pair is r.pair else (None, None)
        for pair, r in zip(current, rounds, strict=True)
    ]
    state.stale = state.stale + 1 if result.best.time > before * (1 - _CONVERGED) else 0
    return True


def _propose(
    search: Search, r: Round, stop: Event, deadline: float, report: Callable[[], None]
) -> bool:
    """Search strategies on a chain's fabric; say whether a faster one was found."""
    pair = r.pair
    score = search.quick_scorer(pair.fabric)
    searcher = r.searcher or search.method.searcher(search, pair)
    r.searcher = searcher
    try:
        while r.done < r.steps and score.work < r.most_work and not stop.is_set():
            if clock.monotonic() >= deadline:
                stop.set()
                break
            if not searcher.step(score, r.rng):
                break
            r.done += 1
            report()
    finally:
        # An interruption must not lose what this round has found so far.
        if searcher.best is not pair.strategy:
            exact = search.scorer(pair.fabric)
            time = exact(searcher.best, pair.time)
            score.work += exact.work
            if time < pair.time:
                r.pair = replace(pair, strategy=searcher.best, time=time, origin="search")
        r.work += score.work
    return r.pair is not pair


def _nothing_to_try(search: Search, state: SearchState) -> bool:
    """Whether there is nothing left to try: no reserve, and many rounds in vain.

    Short rounds, between which gains are looked at, count as the parts of one that they are.
    """
    parts = 1
    if search.effort.slice_steps and state.round_steps == search.effort.slice_steps:
        parts = search.method.round_steps // state.round_steps
    return not state.reserve and state.stale >= _PATIENCE * parts


def _settled_down(state: SearchState, budget: Budget) -> bool:
    """Whether the last rounds gained too little; steps and seconds that were given are spent."""
    return free(budget) and state.gains.over


def _affordable(state: SearchState, budget: Budget) -> bool:
    """Whether work is left, and the first round takes hardly more."""
    left = budget.work - state.result.work
    return left > 0.0 and state.first_round <= left + _OVERDRAWN * budget.work


def free(budget: Budget) -> bool:
    """Say whether no steps or seconds were given, which are spent whatever they gain."""
    return budget.seconds == float("inf") and budget.work < float("inf")


def _settle(search: Search, result: SearchResult) -> None:
    """Route anew what was routed for an earlier strategy of its chain; give fluid times."""
    if search.yielding > 0.0 or search.moves_by_packets:
        # In the order of the scores that the search went by.
        result.others = timed(search.problem, result.others, result)
        result.best = result.others[0]
    if not any(pair.routing is Routing.MCF for pair in result.others):
        return
    rewirer = search.rewirer()
    settled = map(rewirer.settled, result.others)
    result.others = finalists(settled, search.method.spacing, search.kept)
    result.best = result.others[0]
    result.work += rewirer.work


def _refuse(search: Search, strategy: Strategy) -> NoReturn:
    family = search.problem.family
    least, limit = float(family.memory(strategy).max()), family.memory_limit
    raise InfeasibleError(
        f"model {search.builder.graph.name!r} does not fit: even split for least memory it needs "
        f"{least / 1e9:.4g} GB on a GPU that has {limit / 1e9:.4g} GB, "
        f"{(least - limit) / 1e9:.4g} GB too much; use more servers, more GPUs per "
        "server, a smaller batch, fewer or smaller embedding tables, or accelerators with more "
        "memory"
    )
