"""Alternating co-optimization of strategy, topology and routing (TopoOpt, NSDI'23, sec. 4)."""

import os
import time as clock
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event, Lock
from typing import NoReturn

import numpy as np

from codesign_base import InfeasibleError, InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.search.annealing import Annealer
from parallelism.search.local import LocalSearch
from parallelism.search.mcmc import Acceptance, Chain, Score
from parallelism.search.portfolio import Portfolio
from parallelism.search.regions import Regions
from parallelism.search.searcher import Searcher
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.side_by_side import THREADED_FROM, in_twos
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.rewire import Rewirer, no_network
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.fabric.fabric import Fabric
from topoopt.problem.budget import Budget
from topoopt.problem.job import Cluster
from topoopt.problem.options import SearchOptions
from topoopt.problem.ports import PortModel
from topoopt.problem.routing import Routing
from topoopt.search.confirm import TRAINED
from topoopt.search.finalists import FINALISTS, finalists
from topoopt.search.joint_moves import JointMoves
from topoopt.search.result import SearchResult
from topoopt.search.search_state import Keeper, SearchState
from topoopt.search.starts import (
    LEAST_MEMORY,
    SLOW_START,
    USUAL,
    start_pair,
    starting_strategies,
)
from topoopt.search.train_moves import moves_work

# The fabric that strategies are sought on before they are wired; times on it are no plan's.
IDEAL = "ideal-switch"
# A round that improves the best time by less than this share counts as converged.
_CONVERGED = 1e-3
_PATIENCE = 10
# Of many variants of one pair only the fastest is worth a truer simulation.
_SPACING = 0.004
# Up to this size trains are quick enough to go on from many pairs.
_TRAINED_SERVERS = 32
# Share of the work that they may take at most from what comes before them.
_MOST_LATER = 0.8
# Proposals that a chain makes on one fabric before the topology is built anew. Where a score
# is expensive there are fewer, so that the default budget holds this many rounds.
_ROUND_STEPS = 150
_PLAIN_STEPS = 60
_LEAST_ROUND_STEPS = 8
_ROUNDS = 10


class PlainChain:
    """The published search as a searcher: FlexFlow's moves and absolute acceptance."""

    def __init__(self, space: StrategySpace, acceptance: Acceptance, start: Pair) -> None:
        self.space = space
        self.acceptance = acceptance
        self.chain = Chain.start(start.strategy, start.time)

    @property
    def best(self) -> Strategy:
        """The fastest strategy seen."""
        return self.chain.best

    @property
    def best_time(self) -> float:
        """Its score, seconds."""
        return self.chain.best_time

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Go on from another strategy."""
        self.chain = Chain.start(strategy, time)

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Make one proposal; the temperature plays no part in absolute acceptance."""
        self.chain.step(self.space, score, rng, 0.0, self.acceptance, plain=True)
        return True


@dataclass
class Round:
    """One chain's share of a round: its own state, so that chains can run side by side."""

    pair: Pair
    rng: np.random.Generator
    steps: int
    searcher: Searcher | None = None
    moves: JointMoves | None = None
    rewire: bool = True
    done: int = 0
    work: float = 0.0


class AlternatingSearch:
    """The alternating optimizer of one job on one cluster.

    Parameters
    ----------
    builder : TaskGraphBuilder
    cluster : Cluster
    memory_limit : float
        Bytes of each GPU.
    options : SearchOptions
    seed : int
        Of the random proposals; the same seed and steps give the same result.
    """

    def __init__(
        self,
        builder: TaskGraphBuilder,
        cluster: Cluster,
        memory_limit: float,
        options: SearchOptions,
        seed: int,
    ) -> None:
        if options.faithful == "artifact" and cluster.port_model is not PortModel.BIDIRECTIONAL:
            raise InputError(
                "faithful is 'artifact' but ports is 'directed'; the artifact's rings are "
                "bidirectional, so give ports='bidirectional'"
            )
        self.builder = builder
        self.cluster = cluster
        self.memory_limit = memory_limit
        self.options = options
        self.seed = seed
        self.space = StrategySpace(
            builder.graph,
            cluster.servers,
            builder.batch,
            sample_only=options.faithful == "artifact",
            any_parts=options.faithful is None,
            parameter_splits=options.parameter_splits,
        )
        self.regions = Regions(builder.graph, self.space.alike)

    def rewirer(self, wary: bool | None = None) -> Rewirer:
        """Return what builds topologies for strategies of this job, wary as the search is."""
        limit, wary = self.memory_limit, self.moves_by_trains if wary is None else wary
        return Rewirer(self.builder, self.cluster, limit, self.options, self.seed, wary)

    def scorer(self, fabric: Fabric, tolerance: float = 0.0, wary: bool | None = None) -> Scorer:
        """Return what scores strategies of this job on a fabric, wary where trains follow."""
        limit, order = self.memory_limit, self.options.compute_order
        wary = self.moves_by_trains if wary is None else wary
        return Scorer(self.builder, fabric, limit, tolerance, order, wary)

    def start(
        self, progress: ProgressCallback | None = None
    ) -> tuple[list[Pair], dict[str, float], bool]:
        """Score every named strategy on a topology of its own, with fair shares.

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
        scorer = Scorer(self.builder, no_network(self.cluster.servers), self.memory_limit)
        named = starting_strategies(
            self.space, self.builder, self.memory_limit, self.options.faithful is not None
        )
        times = {name: float("inf") for name, s in named.items() if not scorer.fits(s)}
        fitting = [(name, strategy) for name, strategy in named.items() if name not in times]
        pairs: list[Pair] = []
        best = float("inf")
        interrupted = False

        def wire(item: tuple[str, Strategy], limit: float) -> Pair | None:
            name, strategy = item
            return start_pair(self.rewirer(wary=False), strategy, name, limit)

        try:
            wired = in_twos(fitting, wire, lambda: SLOW_START * best, self.cluster.servers)
            for done, (_, pair) in enumerate(wired):
                if pair is not None:
                    pairs.append(pair)
                    best = min(best, pair.time)
                if progress:
                    progress(Progress("start", len(times) + done + 1, len(named), best))
        except KeyboardInterrupt:
            if not pairs:
                raise
            interrupted = True
        if not pairs:
            self._refuse(named[LEAST_MEMORY])
        pairs.sort(key=lambda pair: pair.time)
        # Only those that chains may start from, and the usual two, need exact times.
        kept = [pair for pair in pairs if pair.origin in USUAL]
        others = [pair for pair in pairs[: self.options.chains] if pair.origin not in USUAL]
        exactly = in_twos(
            others, lambda pair, _: self.rewirer(wary=False).exactly(pair), lambda: 0.0,
            self.cluster.servers,
        )  # fmt: skip
        kept += [pair for _, pair in exactly]
        kept.sort(key=lambda pair: pair.time)
        times |= {pair.origin: pair.time for pair in kept}
        return kept, times, interrupted

    def _refuse(self, strategy: Strategy) -> NoReturn:
        least = float(self.builder.memory(strategy).max())
        raise InfeasibleError(
            f"model {self.builder.graph.name!r} does not fit: even split for least memory it needs "
            f"{least / 1e9:.4g} GB on a GPU that has {self.memory_limit / 1e9:.4g} GB, "
            f"{(least - self.memory_limit) / 1e9:.4g} GB too much; use more servers, more GPUs a "
            "server, a smaller batch, fewer or smaller embedding tables, or accelerators with more "
            "memory"
        )

    def run(
        self,
        budget: Budget,
        progress: ProgressCallback | None = None,
        keeper: Keeper | None = None,
    ) -> SearchResult:
        """Alternate strategy search and topology building from the best starting pairs.

        Each chain alternates on its own: a round of proposals on its present fabric, then new
        topologies for the best strategy found, of which the best is kept if it beats the
        present pair. The worst chain restarts from the best pair of all after each round.
        Stops when the budget is spent, or when no chain improved for some rounds. Work is
        looked at between rounds only, and a round that time cuts short is discarded, so that a
        budget of the steps that the result reports reproduces it.

        Parameters
        ----------
        budget : Budget
        progress : callable, optional
        keeper : Keeper, optional
            Is given the state between rounds, and may give back one to go on from.

        Returns
        -------
        SearchResult
            Also when interrupted from the keyboard, provided that any pair was scored.
        """
        deadline = clock.monotonic() + budget.seconds
        state = keeper.load(self) if keeper else None
        if state is None:
            state = self._begun(budget, deadline, progress)
        else:
            self.restore(state.own)
        result, chains = state.result, len(state.current)
        if result.interrupted and not chains:
            self._settle(result)
            return result
        cut = False
        while (
            chains and not result.interrupted and not self.over(state.stale)
            and result.steps < budget.steps and result.work < budget.work - state.later_work
        ):  # fmt: skip
            if keeper:
                keeper.save(self, state)
            left = budget.steps - result.steps
            rounds = [
                Round(
                    pair, rng, min(state.round_steps, left // chains + (c < left % chains)),
                    *carried, self.rewires,
                )
                for c, (pair, rng, carried) in enumerate(
                    zip(state.current, state.streams, state.carried, strict=True)
                )
            ]  # fmt: skip
            whole, result.interrupted = self.play(rounds, result, budget.steps, deadline, progress)
            before = result.best.time
            cut = not whole
            if cut and not result.interrupted:
                break
            result.steps += sum(r.done for r in rounds)
            result.work += sum(r.work for r in rounds)
            state.current = current = [r.pair for r in rounds]
            self.keep(result, current)
            if result.interrupted:
                break
            if self.options.faithful is None:
                try:
                    state.current = current = self.mixed(current, result)
                except KeyboardInterrupt:
                    result.interrupted = True
                    break
            # What searches a pair goes on where it is, for as long as the pair stays.
            state.carried = [
                (r.searcher, r.moves) if pair is r.pair else (None, None)
                for pair, r in zip(current, rounds, strict=True)
            ]
            state.stale = state.stale + 1 if result.best.time > before * (1 - _CONVERGED) else 0
        if keeper and not cut and not result.interrupted:
            keeper.save(self, state, last=True)
        self.concluded(state.current, result)
        self._settle(result)
        result.converged = self.over(state.stale)
        return result

    def _settle(self, result: SearchResult) -> None:
        """Route anew what was routed for an earlier strategy of its chain; give fair times."""
        if self.moves_by_trains:
            # In the order of the wary times that the search went by.
            result.others = self._timed(result.others, result, wary=False)
            result.best = result.others[0]
        if not any(pair.routing is Routing.MCF for pair in result.others):
            return
        rewirer = self.rewirer()
        result.others = finalists(map(rewirer.settled, result.others), self.spacing, self.kept)
        result.best = result.others[0]
        result.work += rewirer.work

    def _timed(self, pairs: list[Pair], result: SearchResult, wary: bool) -> list[Pair]:
        """Return pairs with other times than they have, and count what that costs."""
        found = []
        for pair in pairs:
            scorer = self.scorer(pair.fabric, wary=wary)
            found.append(replace(pair, time=scorer(pair.strategy)))
            result.work += scorer.work
        return found

    def _begun(
        self, budget: Budget, deadline: float, progress: ProgressCallback | None
    ) -> SearchState:
        """Score the starts, and return the state before the first round."""
        pairs, times, interrupted = self.start(progress)
        result = SearchResult(pairs[0], times, interrupted=interrupted)
        if self.moves_by_trains:
            pairs = sorted(self._timed(pairs, result, wary=True), key=lambda pair: pair.time)
            result.best = pairs[0]
        result.others = finalists(pairs, self.spacing, self.kept)
        current = []
        if not interrupted:
            current = self.population(pairs, result, budget, deadline, progress)
        chains = len(current)
        return SearchState(
            result,
            current,
            carried=[(None, None)] * chains,
            streams=[
                np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(c,)))
                for c in range(chains)
            ],
            round_steps=self.round_steps(pairs[0], chains) if chains else 0,
            later_work=min(self._moves_work(result.best), _MOST_LATER * budget.work),
        )

    def _moves_work(self, pair: Pair) -> float:
        """Return about what the moves by packet trains will cost."""
        if not self.moves_by_trains or pair.topology is None:
            return 0.0
        return moves_work(pair.fabric, self.builder.build(pair.strategy))

    def own(self) -> object:
        """Return what this method remembers between rounds beside the state of the chains."""
        return None

    def restore(self, own: object) -> None:
        """Remember again what `own` returned."""

    @property
    def spacing(self) -> float:
        """By how much the pairs differ that a truer model may choose among."""
        return 0.0 if self.options.faithful is not None else _SPACING

    @property
    def moves_by_trains(self) -> bool:
        """Whether the search goes on by simulations with packet trains."""
        balanced = self.options.routings == (Routing.BALANCED,)
        # Searches that hold the strategy or the topology fast are there to be compared with.
        return balanced and self.rewires and self.cluster.servers <= _TRAINED_SERVERS

    @property
    def kept(self) -> int:
        """How many pairs a truer model may choose among."""
        return TRAINED if self.moves_by_trains else FINALISTS

    def keep(self, result: SearchResult, found: list[Pair]) -> None:
        """Bring a result up to date with pairs that were found."""
        result.best = min([result.best, *found], key=lambda pair: pair.time)
        result.others = finalists([result.best, *result.others, *found], self.spacing, self.kept)

    def over(self, stale: int) -> bool:
        """Whether to stop after so many rounds without progress."""
        return stale >= _PATIENCE

    rewires = True
    """Whether every round ends with new topologies."""

    def population(
        self,
        pairs: list[Pair],
        result: SearchResult,
        budget: Budget,
        deadline: float,
        progress: ProgressCallback | None,
    ) -> list[Pair]:
        """Return the pairs that the chains start from.

        Parameters
        ----------
        pairs : list of Pair
            Starting strategies on topologies of their own, fastest first.
        result : SearchResult
            Brought up to date with what this costs and finds.
        budget : Budget
        deadline : float
            When time is up, on the monotonic clock.
        progress : callable or None

        Returns
        -------
        list of Pair
            Empty where there is nothing to search.
        """
        if self.options.faithful is not None:
            # The published search starts from tables placed whole and all else data-parallel.
            return [next((p for p in pairs if p.origin == "hybrid"), pairs[0])]
        # Where fewer strategies fit than there are chains, several start at the same one.
        return [pairs[c % len(pairs)] for c in range(self.options.chains)]

    def mixed(self, current: list[Pair], result: SearchResult) -> list[Pair]:
        """Return the pairs that the chains go on with: the worst from the best of all."""
        worst = max(range(len(current)), key=lambda c: (current[c].time, c))
        return [result.best if c == worst else pair for c, pair in enumerate(current)]

    def concluded(self, current: list[Pair], result: SearchResult) -> None:
        """Do what is left to do when the rounds are over."""

    def round_steps(self, pair: Pair, chains: int) -> int:
        """Return the proposals of a chain's round, from the cost of one score."""
        scorer = self.scorer(pair.fabric, search_tolerance(self.cluster.servers))
        scorer.timed(self.builder.build(pair.strategy))
        plain = self.options.faithful is not None
        affordable = Budget.default(self.cluster.servers, plain).work / (scorer.work + 1.0)
        most = _PLAIN_STEPS if plain else _ROUND_STEPS
        return int(np.clip(affordable / (_ROUNDS * chains), _LEAST_ROUND_STEPS, most))

    @property
    def threaded(self) -> bool:
        """Whether chains run side by side, and so can share nothing."""
        return self.cluster.servers >= THREADED_FROM

    def play(
        self,
        rounds: list[Round],
        result: SearchResult,
        planned: int,
        deadline: float,
        progress: ProgressCallback | None,
    ) -> tuple[bool, bool]:
        """Play all chains' rounds; say whether to the end, and whether interrupted."""
        stop = Event()
        lock = Lock()

        def report() -> None:
            if progress:
                with lock:
                    done = result.steps + sum(r.done for r in rounds)
                    wired = (r.pair.time for r in rounds if r.pair.fabric.name != IDEAL)
                    best = min([result.best.time, *wired])
                    progress(Progress("search", done, planned, best))

        def play(r: Round) -> None:
            try:
                self._chain(r, stop, deadline, report)
            except BaseException:
                stop.set()
                raise

        if len(rounds) == 1 or not self.threaded:
            try:
                for r in rounds:
                    play(r)
            except KeyboardInterrupt:
                return False, True
            return not stop.is_set(), False
        with ThreadPoolExecutor(min(len(rounds), os.cpu_count() or 1)) as pool:
            try:
                for future in [pool.submit(play, r) for r in rounds]:
                    future.result()
            except KeyboardInterrupt:
                stop.set()
                return False, True
            finally:
                stop_now = stop.is_set()
        return not stop_now, False

    def _chain(self, r: Round, stop: Event, deadline: float, report: Callable[[], None]) -> None:
        """Search strategies on one fabric, then topologies for the best strategy found."""
        pair = r.pair
        score = self.scorer(pair.fabric, search_tolerance(self.cluster.servers))
        searcher = r.searcher or self.searcher(pair)
        r.searcher = searcher
        try:
            while r.done < r.steps and not stop.is_set():
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
                exact = self.scorer(pair.fabric)
                time = exact(searcher.best, pair.time)
                score.work += exact.work
                if time < pair.time:
                    r.pair = replace(pair, strategy=searcher.best, time=time, origin="search")
            r.work += score.work
        unchanged = r.pair is pair and self.options.faithful is None
        if r.rewire and unchanged and not stop.is_set():
            self.escape(r)
        if not r.rewire or unchanged or self.options.faithful == "artifact" or stop.is_set():
            # The published code keeps its fixed rings; everything else rewires.
            return
        rewirer = self.rewirer()
        rewired = rewirer.wire(
            r.pair.strategy, r.pair.origin, limit=r.pair.time,
            weighted=self.options.faithful is None,
        )  # fmt: skip
        r.work += rewirer.work
        if rewired is not None and rewired.time < r.pair.time:
            r.pair = rewired
            r.searcher = None
        r.moves = None

    def escape(self, r: Round) -> None:
        """Do what may help a chain whose round on its fabric has found nothing."""

    def searcher(self, pair: Pair) -> Searcher:
        """Return what searches strategies from a pair on its fabric."""
        if self.options.faithful is not None:
            return PlainChain(self.space, self.options.acceptance, pair)
        space, regions, start, time = self.space, self.regions, pair.strategy, pair.time
        return Portfolio(
            [
                Annealer(space, regions, start, time, period=400),
                Annealer(
                    space, regions, start, time, period=1000,
                    acceptance=Acceptance(start=0.003, end=0.0001),
                ),
                LocalSearch(space, regions, start, time),
            ]
        )  # fmt: skip
