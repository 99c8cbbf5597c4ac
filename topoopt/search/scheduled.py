"""Strategies that suit a schedule: sought, wired and scored in the microbatches that it has.

A schedule chosen for the pairs of a plain search keeps what is best without it. Microbatches hide
transfers behind compute, and so other strategies are best with them than without: those that send
more and reduce less.
"""

from dataclasses import replace
from itertools import islice

import numpy as np

from parallelism.operator_family import OperatorFamily
from parallelism.search.local import LocalSearch
from parallelism.strategy import Strategy
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.schedule_search import MOST_WORK, Scheduled, schedule_pairs
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.search.result import SearchResult
from topoopt.search.starts import starting_strategies
from topoopt.search.steps import Search

# In which microbatches strategies are sought where the plain pairs are best in one piece.
_TRIED = (2, 8)
# Strategies this much slower than the best so far are not scheduled: other choices gain more.
_NEAR = 1.1
_SCHEDULED = 2
# What may be spent, beside `MOST_WORK` for the schedules of a pair: in each number of microbatches
# on scoring pairs as they are wired, and on wiring strategies anew (tasks are made anew for every
# strategy, which is not counted); in all together on improving the best, less what wiring took.
_AS_WIRED, _WIRED, _MOVED = MOST_WORK / 2.0, MOST_WORK, MOST_WORK / 3.0
_SEED = 700


def scheduled_search(
    search: Search, result: SearchResult[Strategy], progress: ProgressCallback | None = None
) -> Scheduled[Strategy]:
    """Choose a schedule for the best pairs, and look for strategies that suit its microbatches.

    Starting strategies and those of the best pairs are wired anew for tasks in microbatches, and
    the best is improved on its fabric by a descent, as long as the work for it lasts. A search
    that made no proposals gets no descent. Above 128 servers, where the wiring of one strategy is
    as much, plain pairs only are scheduled.

    Parameters
    ----------
    search : Search
        Over operator strategies.
    result : SearchResult
        Of it.
    progress : callable, optional

    Returns
    -------
    Scheduled
        No slower than `schedule_pairs` of the result.
    """
    problem, scheduling = search.problem, search.options.scheduling
    best = schedule_pairs(problem.family, result.others, scheduling, progress)
    if problem.spares or search.cluster.servers == 1:
        return best
    count = best.schedule.microbatches
    counts = (count,) if count > 1 else _TRIED
    tried = best.tried
    known: list[Pair] = []
    for number, microbatches in enumerate(counts):
        time, most = best.simulated.time, _MOVED / len(counts)
        found = _sought(search, result, microbatches, time, most, progress)
        fresh = (p for p in found if not any(_same(p, each) for each in known))
        for pair in islice(fresh, _SCHEDULED):
            known.append(pair)
            other = schedule_pairs(problem.family, [pair], scheduling)
            tried += other.tried
            if other.simulated.time < best.simulated.time:
                best = other
        if progress:
            time = best.simulated.time
            progress(Progress("schedules", number + 1, len(counts), time))
    return replace(best, tried=tried)


def _same(pair: Pair, other: Pair) -> bool:
    return pair.strategy == other.strategy and pair.wired_like(other)


def in_microbatches(problem: Problem, microbatches: int) -> Problem:
    """Return a problem whose tasks are in microbatches, the longest remaining path first."""
    family: OperatorFamily = replace(problem.family, microbatches=microbatches)
    options = replace(problem.options, schedule="compute")
    return replace(problem, family=family, options=options, yielding=0.0)


def _sought(
    search: Search,
    result: SearchResult[Strategy],
    microbatches: int,
    time: float,
    most: float,
    progress: ProgressCallback | None,
) -> list[Pair]:
    """Seek pairs in microbatches; fastest first. The best is improved if wiring leaves work for it.

    Those much slower than the best, or than ``time``, are left out.
    """
    problem = in_microbatches(search.problem, microbatches)
    origins = {pair.strategy: pair.origin for pair in result.others}
    for name, strategy in starting_strategies(search.space, problem.family).items():
        origins.setdefault(strategy, name)
    found: dict[Strategy, Pair] = {}
    least, step, steps = time, 0, len(result.others) + len(origins)

    def take(pair: Pair | None) -> None:
        nonlocal least, step
        if pair is not None:
            found[pair.strategy] = min(
                found.get(pair.strategy, pair), pair, key=lambda each: each.time
            )
            least = min(least, pair.time)
        step += 1
        if progress:
            progress(Progress(f"{microbatches} microbatches", step, steps, least))

    # Where simulations take long, this says what to wire first.
    left = _AS_WIRED
    for pair in result.others:
        score = Scorer(problem, pair.fabric, search_tolerance(search.cluster.servers), left)
        taken = score(pair.strategy, _NEAR * least)
        left -= score.work
        if score.bounded or left <= 0.0:
            if not found:
                return []  # one alone takes too long
            break
        take(replace(pair, time=taken) if taken <= _NEAR * least else None)
    rewirer = Rewirer(problem, _WIRED)
    promising = sorted(found.values(), key=lambda pair: pair.time)
    for strategy in dict.fromkeys([*(pair.strategy for pair in promising), *origins]):
        if rewirer.work >= rewirer.most_work:
            break
        if problem.fits(strategy):
            take(rewirer.wire(strategy, origins[strategy], limit=_NEAR * least, exact=False))
    pairs = sorted(found.values(), key=lambda pair: pair.time)
    pairs = [pair for pair in pairs if pair.time <= _NEAR * least]
    if not pairs or result.steps == 0:
        return pairs  # by the count that is recorded, so that it gives the plan again
    moved = _moved(search, problem, pairs[0], most - rewirer.work)
    if moved.strategy != pairs[0].strategy:
        wired = rewirer.wire(moved.strategy, moved.origin, limit=moved.time)
        pairs.insert(0, moved if wired is None else wired)
    return pairs


def _moved(search: Search, problem: Problem, pair: Pair, most: float) -> Pair:
    """Improve a pair's strategy on its fabric until no move helps or the work is done."""
    score = Scorer(problem, pair.fabric)
    moves = LocalSearch(search.space, search.regions, pair.strategy, pair.time)
    rng = np.random.default_rng(np.random.SeedSequence(problem.seed, spawn_key=(_SEED,)))
    while score.work < most and moves.step(score, rng):
        pass
    if moves.best == pair.strategy:
        return pair
    return replace(pair, strategy=moves.best, time=moves.best_time, origin="search")
