"""The search for a fabric to compare with: what the plan's search found, and as many steps more.

What a plan's search has kept is good on fabrics alike, too, so it is scored again on each; from
the best the same searchers go on as for the plan. Where packet trains choose the plan, they choose
here, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import cast
from zlib import crc32

import numpy as np

from parallelism.builder_rows import PortLoad
from parallelism.search.named import named_strategies
from parallelism.strategy import Strategy
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.side_by_side import in_twos
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.baselines import ALL_BASELINES
from topoopt.evaluate.baseline_scores import Took, baseline_scorer, in_other_buckets
from topoopt.evaluate.least_times import sent_seconds
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import MOST_MOVES, Scorer, moves_too_often, search_tolerance
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.jitter import Jitter
from topoopt.problem.routing import Routing
from topoopt.search.confirm import (
    fastest_in_packets,
    packet_times_in_turn,
    packet_times_on,
    screened,
)
from topoopt.search.finalists import finalists
from topoopt.search.gains import Gains
from topoopt.search.on_switch import score_starts
from topoopt.search.packet_moves import simulation_work
from topoopt.search.population import NEARLY
from topoopt.search.result import BestOnBaseline, SearchResult
from topoopt.search.steps import Search
from topoopt.search.yielding import measured_yielding

# Strategies of the plan's search that are scored again, and by how much they may be slower than the
# best so far on this fabric to be remembered.
_POOL, _NEAR = 40, 1.1
# Fabrics that take so many times as long as the plan by what may be simulated there are told by the
# fewest of too many transfers, too.
_FAR = 5.0
# Strategies that one copy in packet trains ranks for each that all copies choose among, as long as
# that costs no more than the plan's search: packets of several paths collide on switches, of which
# flows know nothing, by up to 30 % of the time.
_RANKED = 4
# Work of a plan's search that ended by its bound counts as so much at least.
_LEAST_SHARED = 2e7
# Proposals between two looks at what was gained, and in all: of a job of a few small tasks a
# proposal is so little work that without an end to them they go on for many minutes.
_SLICE = 25
_MOST_PROPOSALS = 6000
# Of proposals, by name (of others a hash of it): what is found may become the plan, which must not
# depend on the order in which fabrics are named. Those of every plan have the first three.
_STREAMS = {name: place for place, name in enumerate(ALL_BASELINES)} | {"expander": 2}


@dataclass
class _Remembering:
    """A scorer, and what the strategies took that it found no slower than was of interest."""

    scorer: Scorer[Strategy]
    met: dict[Strategy, Took] = field(default_factory=dict)

    @property
    def work(self) -> float:
        return self.scorer.work

    def __call__(self, strategy: Strategy, limit: float = float("inf")) -> float:
        time = self.scorer(strategy, limit)
        if time <= limit and time < float("inf"):
            self.met[strategy] = Took(time, self.scorer.bounded, self.scorer.near)
        return time

    def fastest_of(self, strategies: Iterable[Strategy], servers: int) -> float:
        """Return the least time of some, slower ones given up; `in_twos` from so many servers on.

        The first is scored alone, because its time is the limit of the others.
        """
        fastest = float("inf")

        def limit() -> float:
            return _NEAR * fastest

        def scored(strategy: Strategy, most: float) -> tuple[float, _Remembering]:
            fresh = _Remembering(replace(self.scorer, work=0.0))
            return fresh(strategy, most), fresh

        left = iter(strategies)
        for _, (time, fresh) in chain(
            in_twos(islice(left, 1), scored, limit, 0), in_twos(left, scored, limit, servers)
        ):
            self.scorer.work += fresh.work
            self.met |= fresh.met
            fastest = min(fastest, time)
        return fastest

    def once(self, strategy: Strategy, limit: float = float("inf")) -> float:
        """Return what a strategy took if it was of interest before, or score it."""
        known = self.met.get(strategy)
        return self(strategy, limit) if known is None else known.seconds

    def exactly(self, problem: Problem, strategy: Strategy) -> Took:
        """Return what a strategy takes by a problem's score, as exactly as fabrics are compared.

        What was simulated so is not simulated again.
        """
        mine = self.scorer
        known = self.met.get(strategy) if mine.problem is problem else None
        if known is not None and not known.near:
            return known
        exact = baseline_scorer(problem, mine.fabric, strategy)
        if known is None or (mine.tolerance, mine.budget) != (exact.tolerance, exact.budget):
            known = Took(exact(strategy), exact.bounded, exact.near)
        return known._replace(near=known.near and not known.bounded)

    def pairs(self, fabric: Fabric, count: int, spacing: float = 0.0) -> list[Pair]:
        """Return so many strategies on a fabric, fastest first; those apart in time go first."""
        found = (
            Pair(s, None, Routing.ECMP, fabric, took.seconds, "search")
            for s, took in self.met.items()
        )
        return finalists(found, spacing, count)


def best_on_baseline(
    search: Search,
    base: BaselineFabric,
    result: SearchResult[Strategy],
    progress: ProgressCallback | None = None,
) -> BestOnBaseline[Strategy]:
    """Find the best strategy for a fabric to compare with, by as much search as the plan had.

    Parameters
    ----------
    search : Search
        Of the plan.
    base : BaselineFabric
    result : SearchResult
        Of that search. After an interruption its strategies are scored, and nothing is searched.
    progress : callable, optional

    Returns
    -------
    BestOnBaseline
        With its exact fluid time, and those of packet trains if they chose it.

    Notes
    -----
    Scored first are the named strategies, the plan's, those of the pairs that its search kept, and,
    on few servers, such as it began from: what is best here may be far from the best elsewhere.
    From the best the searchers of the plan go on, by its score and its rule to stop: where the last
    tenth of all work, the plan's included, gained too little, or after `Effort.compared` of the
    plan's work or 6000 proposals. Where packet trains chose the plan, they choose here, too.
    """
    problem, fabric = search.problem.plain, base.fabric
    packets = search.moves_by_packets and isinstance(fabric, Fabric)
    servers, most_work = problem.family.servers, search.problem.baseline_work
    # Searchers ask whether two configurations are the same object: those that another process has
    # sent are not.
    own = search.space.intern
    starts = [own(result.best.strategy), *_named(search).values()]
    kept = [own(pair.strategy) for pair in result.others[:_POOL]]
    # Of a fabric that is rewired pairs are only carried along.
    host = cast("Fabric", fabric)
    scored = problem
    if packets and not result.interrupted:
        scored = problem.scored(_yielding(problem, base, dict.fromkeys([*starts, *kept])))
    score = _Remembering(Scorer(scored, fabric, search_tolerance(servers), most_work))
    fastest, often = _score_again(search, score, [*starts, *kept])
    if often and fastest > _FAR * result.best.time:
        # What has no transfers says nothing of the fabric where it moves whole tables.
        score(often[0])
    if search.compares_more and not result.interrupted:
        score_starts(search, score.once, starts[:1], _NEAR * fastest)
    times: Jitter | None = None
    first = score.pairs(host, search.options.chains)
    if not result.interrupted:
        shared = result.work
        if search.exhausted(result.best.time):
            # The plan's search ended early by its bound, which says nothing of other fabrics.
            shared = max(shared, _LEAST_SHARED)
        if problem.spares:
            # There a plan's work is that of wiring it, which these fabrics do not need.
            shared = min(shared, search.method.budget(servers).work)
        stream = _STREAMS.get(fabric.name, crc32(fabric.name.encode()))
        _improve(search, first, score, shared, stream, progress)
    if packets and not result.interrupted:
        real = cast("Fabric", base.unmerged)
        cost = simulation_work(real, problem.family.build(first[0].strategy))
        least, most = search.effort.confirmed + 1, _RANKED * search.effort.confirmed
        count = int(np.clip(shared / (cost + 1.0), least, most))
        met = score.pairs(real, count, search.method.spacing)
        ranked = screened(problem, met, search.effort.confirmed, progress)
        best, times = _fewest_seconds(problem, ranked)
        chosen = [best]
    else:
        # The search may have batched completions; what is reported is exact.
        both = [first[0], score.pairs(host, 1)[0]]
        chosen = [pair.strategy for pair in both if pair.time <= NEARLY * both[1].time]
    timed = [(score.exactly(problem, strategy), strategy) for strategy in dict.fromkeys(chosen)]
    took, best = min(timed, key=lambda each: each[0].seconds)
    took = in_other_buckets(problem, fabric, best, took)
    return BestOnBaseline(best, took.seconds, took.bounded, took.near, times)


def better_on_baseline(
    problem: Problem,
    base: BaselineFabric,
    best: BestOnBaseline[Strategy],
    others: Iterable[Strategy],
) -> BestOnBaseline[Strategy]:
    """Return the best strategy for a fabric to compare with, of one found and others.

    Parameters
    ----------
    problem : Problem
    base : BaselineFabric
    best : BestOnBaseline
        What `best_on_baseline` returned.
    others : iterable of Strategy

    Returns
    -------
    BestOnBaseline
        What is faster than the one found by flows and, if that has packet times, by packets: of
        such the fastest by packets, else by flows.
    """
    found = best
    for strategy in others:
        if strategy == found.parallelization or not problem.fits(strategy):
            continue
        # By packets an order of fabrics must not decide which of two good ones is rejected.
        most = best.time if found.packets is None else found.time
        scorer = baseline_scorer(problem, base.fabric, strategy)
        took = Took(scorer(strategy, most), scorer.bounded, scorer.near)
        if took.seconds >= most or took.bounded:
            continue
        packets = None
        if best.packets is not None:
            packets = packet_times_on(base, problem.family.build(strategy))
            if packets is None or packets.mean >= best.packets.mean:
                continue
        took = in_other_buckets(problem, base.fabric, strategy, took)
        best = BestOnBaseline(strategy, took.seconds, took.bounded, took.near, packets)
    return best


def _yielding(problem: Problem, base: BaselineFabric, strategies: Iterable[Strategy]) -> float:
    """Return how much transfers yield on a fabric, from the first few strategies that fit."""
    fabric = cast("Fabric", base.unmerged)
    pairs = (
        Pair(strategy, None, Routing.ECMP, fabric, np.inf, "search")
        for strategy in strategies
        if problem.fits(strategy)
    )
    return measured_yielding(problem, pairs)


def origin_of(search: Search, strategy: Strategy, result: SearchResult[Strategy]) -> str:
    """Say where a strategy comes from: "plan", the name of a usual one, or "search"."""
    if strategy == result.best.strategy:
        return "plan"
    return next((name for name, each in _named(search).items() if each == strategy), "search")


def _named(search: Search) -> dict[str, Strategy]:
    named = named_strategies(search.space)
    return {name: search.space.intern(strategy) for name, strategy in named.items()}


def _score_again(
    search: Search, score: _Remembering, strategies: list[Strategy]
) -> tuple[float, list[Strategy]]:
    """Score distinct strategies, on many servers those first that are not too many transfers.

    What comes after something that was simulated is ruled out by bounds, or left out; if all are
    too many, the fewest are simulated. Returned are the least time, and those that are too many,
    the fewest first.
    """
    problem, fabric = search.problem.plain, score.scorer.fabric
    later: list[tuple[PortLoad, Strategy]] = []
    often: list[tuple[int, Strategy]] = []
    soon: list[Strategy] = []
    few = MOST_MOVES * problem.family.servers
    for strategy in dict.fromkeys(strategies):
        if problem.spares and isinstance(fabric, Fabric):
            load = problem.port_load(strategy)
            if load.transfers > few and problem.fits(strategy):
                later.append((load, strategy))
                continue
        soon.append(strategy)
    # What is made for two of many servers would fill memory.
    fastest = score.fastest_of(soon, 0 if problem.spares else problem.family.servers)
    for load, strategy in later:
        assert isinstance(fabric, Fabric)
        net, hosts = fabric.wired, load.sent.size
        least = sent_seconds(load.sent, net.out_rate()[:hosts], net.in_rate()[:hosts])
        if least > _NEAR * fastest:
            continue
        tasks = None if fabric.rotation is None else problem.family.represented(strategy)
        # What was made is kept while it is scored.
        if tasks is None or moves_too_often(tasks, fabric):
            often.append((load.transfers, strategy))
        else:
            fastest = min(fastest, score(strategy, _NEAR * fastest))
    often.sort(key=lambda each: each[0])
    for _, strategy in often:
        fastest = min(fastest, score(strategy, _NEAR * fastest))
    return fastest, [strategy for _, strategy in often]


def _fewest_seconds(problem: Problem, pairs: list[Pair]) -> tuple[Strategy, Jitter | None]:
    """Return the strategy that packet trains take for the fastest, as they confirm a plan."""
    timed = packet_times_in_turn(
        pairs,
        lambda pair: problem.family.build(pair.strategy),
        0,
        ranked=problem.seed == 0,
    )
    pair, times = fastest_in_packets(list(timed))
    return pair.strategy, times


def _improve(
    search: Search,
    pairs: list[Pair],
    score: _Remembering,
    shared: float,
    stream: int,
    progress: ProgressCallback | None,
) -> None:
    """Let the searchers of the plan go on in turns from pairs on a fabric that stays as it is."""
    key = np.random.SeedSequence(search.problem.seed, spawn_key=(2000 + stream,))
    rng = np.random.default_rng(key)
    searchers = [search.method.searcher(search, pair) for pair in pairs]
    effort = search.effort
    gains = Gains(effort.least_gain, effort.least_work)
    before, made = score.work, 0
    most = before + max(effort.compared * shared, effort.least_work)
    gains.note(shared, pairs[0].time)
    while searchers and not gains.over and made < _MOST_PROPOSALS:
        for searcher in list(searchers):
            for _ in range(_SLICE):
                if score.work >= most:
                    return
                if not searcher.step(score, rng):
                    searchers.remove(searcher)
                    break
                made += 1
        best = min(took.seconds for took in score.met.values())
        gains.note(shared + score.work - before, best)
        if progress:
            progress(Progress(pairs[0].fabric.name, made, 0, best, gains.gained))
