"""Joint search: a population of strategies and topologies, and what it is compared with.

Alternation keeps what suits the present topology, and so finds neither a strategy that would
need another topology nor the topology that it would need. Here strategies are first sought on
an ideal switch, where no topology stands in their way; the most promising are wired, refined on
their fabrics, and every strategy is scored on every fabric.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from parallelism.graph import Mode
from parallelism.search.forest import least
from parallelism.search.local import LARGE
from parallelism.search.named import named_strategies
from parallelism.search.partition import partitions
from parallelism.search.seeds import placed_degrees, relays, windows
from parallelism.strategy import Strategy
from topoopt.base.progress import ProgressCallback
from topoopt.base.side_by_side import in_twos
from topoopt.bounds.relaxation import Wirings
from topoopt.bounds.space_terms import trade_off
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.fabric.fabric import Fabric
from topoopt.problem.budget import Budget
from topoopt.problem.routing import Routing
from topoopt.search.alternating import IDEAL, AlternatingSearch, Round
from topoopt.search.joint_moves import JointMoves, best_wired, promising
from topoopt.search.result import SearchResult
from topoopt.search.starts import USUAL
from topoopt.topology.fabrics import ideal_switch

# Strategies that are sought on the ideal switch, a chain; and those that are wired, a chain.
_SOUGHT, _WIRED = 2, 4
# How many rounds' proposals each of them has.
_SOUGHT_ROUNDS = 3
# Starts this much slower than the best on the ideal switch are not improved there.
_HOPEFUL = 1.5
# Strategies this much slower than the best on the ideal switch are not wired.
_NEAR = 1.35
# Places at which windows of streams begin and end; fewer where scores are costly.
_CUTS, _FEW_CUTS, _FEW_FROM = 7, 4, 32
# The same of relays; how many of them are wired, and how many begin with the windows.
_LEGS, _FEW_LEGS = 13, 5
_RELAYED, _FEW_RELAYED = 64, 8
_LIKE = 2
# Relays that are slower by no more than this may be faster in trains.
_WORTH_TRAINS = 1.03
# Rounds without progress after which a pair gives way to one in reserve, else to the best.
_IDLE = 4
# Neighbours looked at for a stuck pair, a proposal of its round.
_LEAPS = 4
# Children are wired for no more than this share of the work so far.
_CROSSED = 0.25
# Progress is a gain of this share.
_PROGRESS = 1e-3
# Weights of device time against link-bytes in the additive costs.
_WEIGHTS = (1.0, 0.8, 0.6, 0.4, 0.2)


class JointSearch(AlternatingSearch):
    """Search with a population; see `AlternatingSearch` for the arguments."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._reserve: list[Pair] = []
        self._idle = [0] * problem.options.chains
        self._crossed: set[tuple[Strategy, Strategy]] = set()
        self._times = [np.inf] * problem.options.chains
        self._going: list[JointMoves] = []

    def own(self) -> object:
        """Return the pairs in reserve, and what was tried."""
        return self._reserve, self._idle, self._crossed, self._times, self._going

    def restore(self, own: Any) -> None:
        """Remember again what `own` returned."""
        self._reserve, self._idle, self._crossed, self._times, self._going = own

    @cached_property
    def ideal(self) -> Fabric:
        """A switch at which every server has the rate of all its ports."""
        cluster = self.cluster
        rate = cluster.degree * cluster.port_rate
        network, routes = ideal_switch(cluster.servers, rate, cluster.hop_latency)
        return Fabric(IDEAL, network, routes, {})

    def _ideal_scorer(self) -> Scorer:
        return self.scorer(self.ideal, search_tolerance(self.cluster.servers))

    def _part_seconds(self, index: int, parts: int) -> float:
        time = self.builder.part_time(index, parts, 1, Mode.OUTPUT)
        return time.forward + time.backward + time.update

    def relayed(self, score: Scorer) -> list[tuple[float, Strategy]]:
        """Return the best relays with their times on the ideal switch, fastest first."""
        few = self.cluster.servers > _FEW_FROM
        legs, count = (_FEW_LEGS, _FEW_RELAYED) if few else (_LEGS, _RELAYED)
        found = relays(self.space, self.regions, self._part_seconds, legs)
        # Of short branches several places to go on are one.
        distinct = dict.fromkeys(map(self.space.intern, found))
        return promising(score, distinct, np.inf, count)

    def seeds(
        self, score: Scorer, known: list[Strategy], relayed: list[tuple[float, Strategy]]
    ) -> list[tuple[float, Strategy]]:
        """Return starting strategies with their times on the ideal switch, fastest first.

        Parameters
        ----------
        score : Scorer
        known : list of Strategy
            Some that fit.
        relayed : list of (float, Strategy)
            What `relayed` returns, of which the best few count.

        Returns
        -------
        list of (float, Strategy)
            Distinct, those that do not fit left out.
        """
        space = self.space
        found = [*known, *named_strategies(space).values()]
        found += partitions(space, self.regions, self._part_seconds).values()
        found += self._traded()
        few = self.cluster.servers > _FEW_FROM
        timed: dict[Strategy, float] = {}
        for strategy in map(space.intern, found):
            if strategy not in timed:
                timed[strategy] = score(strategy)
        # Of the many windows and relays only the best few: they are much alike.
        windowed = map(space.intern, windows(space, self.regions, _FEW_CUTS if few else _CUTS))
        for time, strategy in promising(score, windowed, np.inf, _LIKE) + relayed[:_LIKE]:
            timed.setdefault(strategy, time)
        order = sorted(timed, key=lambda strategy: timed[strategy])
        return [(timed[s], s) for s in order if timed[s] < np.inf]

    def _traded(self) -> list[Strategy]:
        """Return the best degrees under additive costs of several weights, placed."""
        cluster, builder, space = self.cluster, self.builder, self.space
        wirings = Wirings(
            cluster.servers, cluster.degree, cluster.port_rate, cluster.hop_latency,
            self.problem.family.memory_limit,
        )  # fmt: skip
        choices, terms = trade_off(builder, wirings)
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

    def population(
        self,
        pairs: list[Pair],
        result: SearchResult,
        budget: Budget,
        deadline: float,
        progress: ProgressCallback | None,
    ) -> list[Pair]:
        """Seek strategies on an ideal switch, wire the best, and return the best pairs."""
        chains = self.options.chains
        if self.cluster.servers == 1 or budget.steps == 0:
            return super().population(pairs, result, budget, deadline, progress)
        fabric, score = self.ideal, self._ideal_scorer()
        try:
            relayed = self.relayed(score)
            seeds = self.seeds(score, [pair.strategy for pair in pairs], relayed)
        except KeyboardInterrupt:
            result.interrupted = True
            return []
        result.work += score.work
        first = [s for s in seeds[: _SOUGHT * chains] if s[0] <= _HOPEFUL * seeds[0][0]]
        steps = _SOUGHT_ROUNDS * self.round_steps(pairs[0], chains)
        rounds = [
            Round(
                Pair(strategy, None, Routing.ECMP, fabric, time, "search"),
                np.random.default_rng(
                    np.random.SeedSequence(self.problem.seed, spawn_key=(500 + c,))
                ),
                min(steps, budget.steps // len(first) + (c < budget.steps % len(first))),
                rewire=False,
            )
            for c, (time, strategy) in enumerate(first)
        ]
        whole, result.interrupted = self.play(rounds, result, budget.steps, deadline, progress)
        if not whole and not result.interrupted:
            return []
        result.steps += sum(r.done for r in rounds)
        result.work += sum(r.work for r in rounds)
        if result.interrupted:
            return []
        candidates = [(r.pair.time, r.pair.strategy) for r in rounds] + seeds
        try:
            return self._wired(candidates, relayed, pairs, result)
        except KeyboardInterrupt:
            result.interrupted = True
            return []

    def _wired(
        self,
        candidates: list[tuple[float, Strategy]],
        relayed: list[tuple[float, Strategy]],
        pairs: list[Pair],
        result: SearchResult,
    ) -> list[Pair]:
        """Wire candidates, fastest on the ideal switch first; return the best pairs of all."""
        chains = self.options.chains
        order = sorted(range(len(candidates)), key=lambda c: (candidates[c][0], c))
        near = _NEAR * candidates[order[0]][0]
        found, seen = list(pairs), {pair.strategy for pair in pairs}
        hopeful = [candidates[c][1] for c in order if candidates[c][0] <= near]
        chosen = [s for s in dict.fromkeys(hopeful) if s not in seen][: _WIRED * chains]
        seen |= set(chosen)

        def wire(strategy: Strategy, limit: float) -> tuple[Pair | None, float]:
            rewirer = self.rewirer()
            return rewirer.wire(strategy, "search", limit=limit), rewirer.work

        def fastest(wired: list[Pair]) -> float:
            return min(pair.time for pair in wired)

        servers = self.cluster.servers
        for _, (pair, work) in in_twos(chosen, wire, lambda: 1.1 * fastest(found), servers):
            result.work += work
            if pair is not None:
                found.append(pair)
        # Relays are much alike on the ideal switch, and differ once they are wired.
        legs: list[Pair] = []
        slack = _WORTH_TRAINS if self.moves_by_trains else 1.0
        fresh = [strategy for _, strategy in relayed if strategy not in seen]
        for _, (pair, work) in in_twos(fresh, wire, lambda: slack * fastest(found + legs), servers):
            result.work += work
            if pair is not None:
                legs.append(pair)
        legs.sort(key=lambda pair: pair.time)
        found += legs[:chains]
        self.keep(result, found + legs)
        found.sort(key=lambda pair: pair.time)
        self._reserve = found[chains:]
        return [found[c % len(found)] for c in range(chains)]

    def escape(self, r: Round) -> None:
        """Try neighbours of the strategy, each on a topology of its own."""
        if r.moves is None:
            r.moves = self._moves_of(r.pair)
        score = self._ideal_scorer()
        rewirer = self.rewirer()
        found = r.moves.step(score, rewirer, r.rng, _LEAPS * r.steps)
        r.work += score.work + rewirer.work
        if found is not None:
            r.pair, r.searcher, r.moves = found, None, None

    def _moves_of(self, pair: Pair) -> JointMoves:
        """Return the neighbours of a pair; chains at one pair share them between them."""
        if self.threaded:
            return JointMoves(self.space, self.regions, pair)
        for moves in self._going:
            if moves.pair.time == pair.time and moves.pair.strategy == pair.strategy:
                return moves
        found = JointMoves(self.space, self.regions, pair)
        self._going = [found, *self._going][: self.options.chains]
        return found

    def over(self, stale: int) -> bool:
        """Whether there is nothing left to try."""
        return not self._reserve and super().over(stale)

    def mixed(self, current: list[Pair], result: SearchResult) -> list[Pair]:
        """Score every strategy on every other fabric; what is stuck gives way to another pair."""
        scored = list(current)
        for place, host in enumerate(current):
            score = self.scorer(host.fabric)
            for guest in current:
                if guest.strategy == host.strategy or host.wired_like(guest):
                    continue  # on equal fabrics the pairs would become one
                time = score(guest.strategy, scored[place].time)
                if time < scored[place].time:
                    scored[place] = replace(
                        host, strategy=guest.strategy, time=time, origin=guest.origin
                    )
            result.work += score.work
        self.keep(result, scored)
        if self.rewires:
            self._cross(scored, result)
        for c, pair in enumerate(scored):
            slow = pair.time > self._times[c] * (1.0 - _PROGRESS)
            self._idle[c] = self._idle[c] + 1 if slow else 0
            if self._idle[c] >= _IDLE:
                # Not at once: pairs that begin slower may have further to go.
                scored[c] = self._reserve.pop(0) if self._reserve else result.best
                self._idle[c] = 0
            self._times[c] = scored[c].time
        return scored

    def _cross(self, current: list[Pair], result: SearchResult) -> None:
        """Give each pair large regions of the others' strategies; wire the most promising.

        Wiring ends where it costs a share of all that came before: many children of a large job
        would cost ten times its budget. (Not by what is left of the budget, so that the steps
        alone reproduce a search.)
        """
        score = self._ideal_scorer()
        rewirer = self.rewirer()
        most_work = _CROSSED * result.work
        for place, host in enumerate(current):
            children: dict[Strategy, None] = {}
            for guest in current:
                if (host.strategy, guest.strategy) in self._crossed:
                    continue
                self._crossed.add((host.strategy, guest.strategy))
                for region in self.regions.fixed:
                    if len(region) >= LARGE:
                        change = [(i, guest.strategy.configs[i]) for i in region]
                        children[host.strategy.replace(change)] = None
            current[place] = best_wired(host, children, score, rewirer, most_work) or host
        result.work += score.work + rewirer.work
        self.keep(result, current)


class SequentialSearch(JointSearch):
    """Strategies for an ideal switch with all the budget; then a topology for the best."""

    def population(
        self,
        pairs: list[Pair],
        result: SearchResult,
        budget: Budget,
        deadline: float,
        progress: ProgressCallback | None,
    ) -> list[Pair]:
        """Search on the ideal switch."""
        fabric = self.ideal
        score = self.scorer(fabric)
        known = [pair.strategy for pair in pairs]
        time, strategy = self.seeds(score, known, self.relayed(score))[0]
        best = Pair(strategy, None, Routing.ECMP, fabric, time, "search")
        return [best] * self.options.chains

    rewires = False

    def concluded(self, current: list[Pair], result: SearchResult) -> None:
        """Wire the strategy that is best on the ideal switch; the starts do not compete."""
        chosen = min(current, key=lambda pair: pair.time)
        rewired = self.rewirer().wire(chosen.strategy, "search", weighted=True)
        assert rewired is not None  # without a limit every pair is simulated
        result.best = rewired
        result.others = [rewired]


class StrategySearch(AlternatingSearch):
    """Strategies on the topology that was built for the usual strategy."""

    rewires = False

    def population(
        self,
        pairs: list[Pair],
        result: SearchResult,
        budget: Budget,
        deadline: float,
        progress: ProgressCallback | None,
    ) -> list[Pair]:
        """Start every chain from the usual pair."""
        result.best = usual_pair(pairs)
        result.others = [result.best]
        return [result.best] * self.options.chains


class TopologySearch(StrategySearch):
    """Topologies and routings for the usual strategy."""

    def population(
        self,
        pairs: list[Pair],
        result: SearchResult,
        budget: Budget,
        deadline: float,
        progress: ProgressCallback | None,
    ) -> list[Pair]:
        """Wire the usual strategy; there is nothing else to search."""
        usual = usual_pair(pairs)
        rewired = self.rewirer().wire(usual.strategy, usual.origin, limit=usual.time, weighted=True)
        result.best = usual if rewired is None else min(rewired, usual, key=lambda p: p.time)
        result.others = [result.best]
        return []


def usual_pair(pairs: list[Pair]) -> Pair:
    """Return the pair of the hybrid, else of data parallelism, else the fastest."""
    for name in reversed(USUAL):
        for pair in pairs:
            if pair.origin == name:
                return pair
    return pairs[0]


SEARCHES: dict[str, type[AlternatingSearch]] = {
    "joint": JointSearch,
    "alternating": AlternatingSearch,
    "sequential": SequentialSearch,
    "strategy-only": StrategySearch,
    "topology-only": TopologySearch,
}
