"""Variants of a pair that packet trains like better, one after the other."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from parallelism.search.moves import propose_region, transpose
from parallelism.search.regions import Regions
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.problem.routing import Routing
from topoopt.search.confirm import packet_time
from topoopt.search.gains import Gains
from topoopt.search.steps import Search

# Where the last simulations gained little, a pair is tried no more whose yielding score is not
# below the best time in packet trains by this share.
PROMISE = 0.01
# Variants whose yielding score is longer by more than this are passed over.
_SLACK = 0.005
# Variants looked at for each simulation with packet trains, at most.
_PROPOSALS = 40


@dataclass
class Climb:
    """A pair on its way: its time in trains, its yielding score, the work of one simulation."""

    pair: Pair
    least: float
    score: float
    work: float
    rng: np.random.Generator
    seen: set[Strategy]


@dataclass
class Known:
    """What is known of all pairs on their way.

    Attributes
    ----------
    gains : Gains
    work : float
        So far, that of the search before included.
    least : float
        The best time in trains, seconds.
    """

    gains: Gains
    work: float
    least: float

    def note(self, work: float, least: float) -> None:
        """Take down more work, and the best time then."""
        self.work += work
        self.least = min(self.least, least)
        self.gains.note(self.work, self.least)


@dataclass
class Climber:
    """Changes the strategy of a pair on its topology, as long as that saves time in packet trains.

    Half of the variants exchange two servers of one set (`parallelism.search.moves.transpose`),
    the others are those of the search. Routes are balanced anew for each.

    Parameters
    ----------
    problem : Problem
        Its seed is that of the packet trains.
    space : StrategySpace
    regions : Regions
        Of the same model.
    yielding : float
        How much transfers yield (see `topoopt.search.yielding`).

    Attributes
    ----------
    steps : list of (float, float)
        Work of each simulation, with that of the variants looked at for it, and the best time of
        the pair after it.
    """

    problem: Problem
    space: StrategySpace
    regions: Regions
    yielding: float
    steps: list[tuple[float, float]] = field(default_factory=list, init=False)

    def climb(
        self, climb: Climb, tries: int, known: Known, report: Callable[[int], None] | None = None
    ) -> None:
        """Try variants of a pair, and go on from those that are faster.

        Parameters
        ----------
        climb : Climb
            Changed as variants are found.
        tries : int
            Simulations with packet trains at most.
        known : Known
            Before it; brought up to date with every simulation.
        report : callable, optional
            Called with the number of simulations after each.
        """
        looked_at = 0.0
        for _ in range(_PROPOSALS * tries):
            # Whether the last moves gained little, and this pair does not promise more.
            enough = known.gains.over and climb.score >= known.least * (1.0 - PROMISE)
            if len(self.steps) == tries or enough:
                return
            strategy = self._proposed(climb)
            if strategy in climb.seen:
                continue
            climb.seen.add(strategy)
            limit = climb.score * (1.0 + _SLACK)
            fabric = self._routed(climb.pair, strategy)
            score, work = self.scored(fabric, strategy, limit)
            looked_at += work
            if score > limit:
                continue
            found = replace(climb.pair, strategy=strategy, fabric=fabric, origin="search")
            least = packet_time(self.problem, found, climb.least)
            if least < climb.least:
                time = Scorer(self.problem.scored(0.0), fabric)(strategy)
                climb.pair = replace(found, time=time)
                climb.least, climb.score = least, score
            self.steps.append((looked_at + climb.work, climb.least))
            known.note(*self.steps[-1])
            looked_at = 0.0
            if report:
                report(len(self.steps))

    def scored(
        self, fabric: Fabric, strategy: Strategy, limit: float = float("inf")
    ) -> tuple[float, float]:
        """Return the yielding score of a strategy, and its work."""
        scorer = Scorer(self.problem.scored(self.yielding), fabric)
        return scorer(strategy, limit), scorer.work

    def _proposed(self, climb: Climb) -> Strategy:
        strategy, rng = climb.pair.strategy, climb.rng
        if rng.random() < 0.5:
            return strategy.replace(transpose(self.space, strategy, rng))
        return strategy.replace(propose_region(self.space, self.regions, strategy, rng))

    def _routed(self, pair: Pair, strategy: Strategy) -> Fabric:
        """Return a pair's topology with balanced routes for another strategy."""
        assert pair.topology is not None
        tasks = self.problem.family.build(strategy)
        return direct_fabric(pair.topology, Routing.BALANCED, tasks=tasks)


def climbed(
    search: Search, yielding: float, climb: Climb, tries: int, known: Known
) -> tuple[Climb, list[tuple[float, float]]]:
    """Return what `Climber.climb` makes of a pair, and its steps, also in another process."""
    own = interned(search.space, climb)
    climber = Climber(search.problem, search.space, search.regions, yielding)
    climber.climb(own, tries, deepcopy(known))
    return own, climber.steps


def interned(space: StrategySpace, climb: Climb) -> Climb:
    """Return what another process has sent, of this one's configurations."""
    pair = replace(climb.pair, strategy=space.intern(climb.pair.strategy))
    return replace(climb, pair=pair, seen=set(map(space.intern, climb.seen)))
