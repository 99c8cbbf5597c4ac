"""The last moves of a search, scored by packet trains themselves.

Packet trains queue first in, first out, where flows of the fluid model share. Of pairs that are
about as fast in the fluid model some are thirty percent slower in packet trains: it matters what
meets on a link, and so on which server of its set each part of an operator lies. A simulation
with packet trains costs tens of times more; so only variants have one whose yielding score
(`topoopt.evaluate.problem.Problem`) is about the pair's. It goes with the times in packet trains,
where fluid times alone do not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from parallelism.search.moves import propose_region, transpose
from parallelism.search.regions import Regions
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from parallelism.taskgraph import TaskGraph
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.side_by_side import in_twos
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes
from topoopt.problem.routing import Routing
from topoopt.search.confirm import packet_time
from topoopt.search.gains import Gains
from topoopt.search.yielding import YIELDING

# Where the last simulations gained little, a pair is tried no more whose yielding score is not
# below the best time in packet trains by this share.
_PROMISE = 0.01
# Variants whose yielding score is longer by more than this are passed over.
_SLACK = 0.005
# Variants looked at for each simulation with packet trains, at most.
_PROPOSALS = 40
# Share of the work before them that simulations of more pairs than begin may take.
_LOOKED_AT = 0.25
# What sending a train over a link counts for, in the units of `Scorer.work`. It takes about 1.2,
# but twice as many simulations made no plan faster.
_PACKET_WORK = 3.0


def simulation_work(fabric: Fabric, tasks: TaskGraph) -> float:
    """Return what one simulation with packet trains counts for.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        One iteration.

    Returns
    -------
    float
        In the units of `topoopt.evaluate.scoring.Scorer`, in proportion to the bytes sent.
    """
    transport = fabric.transport
    hops = float(link_bytes(fabric, tasks).sum()) / (
        transport.train_packets * transport.segment_bytes
    )
    return _PACKET_WORK * hops


@dataclass
class _Climb:
    """A pair on its way: its time in trains, its yielding score, the work of one simulation."""

    pair: Pair
    least: float
    score: float
    work: float
    rng: np.random.Generator
    seen: set[Strategy]


def _promising_first(climbs: list[_Climb]) -> list[_Climb]:
    """Return climbs in the order in which they go on: the fastest in packet trains first.

    Before all others come those that flows take for faster than any is: one that takes as long
    in packet trains as by flows waits for nothing that a move could keep off its links.
    """
    least = min((climb.least for climb in climbs), default=0.0)
    return sorted(
        climbs,
        key=lambda climb: (climb.pair.time >= least * (1.0 - _PROMISE), climb.least),
    )


@dataclass
class PacketMoves:
    """Changes strategies on their topologies, as long as that saves time in packet trains.

    Half of the variants exchange two servers of one set (`parallelism.search.moves.transpose`),
    the others are those of the search. Routes are balanced anew for each. From which pair most is
    to be gained, only trying tells; so many begin, and the best go on (`packet_stages` of
    `topoopt.problem.effort.Effort`).

    Parameters
    ----------
    problem : Problem
        Its seed is that of the variants, and of the packet trains.
    space : StrategySpace
    regions : Regions
        Of the same model.
    work : float
        Of the search before, in the units of `topoopt.evaluate.scoring.Scorer`.
    yielding : float
        How much transfers yield (see `topoopt.search.yielding`).

    Attributes
    ----------
    work : float
        With that of the moves.
    interrupted : bool
        Whether the moves were stopped from the keyboard.
    """

    problem: Problem
    space: StrategySpace
    regions: Regions
    work: float = 0.0
    yielding: float = YIELDING
    interrupted: bool = field(default=False, init=False)

    def improved(
        self, pairs: list[Pair], most: int, progress: ProgressCallback | None = None
    ) -> list[Pair]:
        """Return the variants that packet trains like best of the pairs that promise most.

        Parameters
        ----------
        pairs : list of Pair
            Wired, and routed over one path a server pair. Of pairs with one time in trains the
            first counts.
        most : int
            Simulations with packet trains for each at most.
        progress : callable, optional

        Returns
        -------
        list of Pair
            Fastest in packet trains first; also when interrupted from the keyboard.
        """
        stages = self.problem.options.spent.packet_stages
        climbs = self._begun(pairs, stages[0][0])
        total = sum(min(count, len(climbs)) * min(tries, most) for count, tries in stages)
        done = 0
        gains = Gains(self.problem.options.spent.least_gain)

        def report(count: int) -> None:
            least = min(climb.least for climb in climbs)
            gains.note(self.work, least)
            if progress:
                progress(Progress("packet moves", done + count, total, least, gains.gained))

        def enough(climb: _Climb) -> bool:
            """Whether the last moves gained little, and this pair does not promise more."""
            least = min(climb.least for climb in climbs)
            return gains.over and climb.score >= least * (1.0 - _PROMISE)

        try:
            for count, tries in stages:
                for climb in climbs[:count]:
                    self._climb(climb, min(tries, most), report, enough)
                    done += min(tries, most)
                climbs = _promising_first(climbs)
        except KeyboardInterrupt:
            self.interrupted = True
        return [climb.pair for climb in sorted(climbs, key=lambda c: c.least)] or list(pairs)

    def _begun(self, pairs: list[Pair], count: int) -> list[_Climb]:
        """Return the pairs of the best scores, the fastest in packet trains first.

        Simulated are at least so many, and more where that costs little beside the search: what a
        few pairs said of how transfers yield need not hold for all, and a search may have gone
        where packets are slow.
        """
        wired = [pair for pair in pairs if pair.topology is not None]
        times = [self._score(pair.fabric, pair.strategy) for pair in wired]
        climbs: list[_Climb] = []
        order = sorted(range(len(wired)), key=times.__getitem__)
        most = self.work + _LOOKED_AT * self.work

        def timed(place: int, _: float) -> float:
            return packet_time(self.problem, wired[place])

        for place, least in in_twos(order, timed, lambda: 0.0, self.problem.cluster.servers, 0):
            if len(climbs) >= count and self.work >= most:
                break
            pair = wired[place]
            cost = simulation_work(pair.fabric, self.problem.family.build(pair.strategy))
            self.work += cost
            if all(climb.least != least for climb in climbs):  # else one is the other's twin
                key = np.random.SeedSequence(self.problem.seed, spawn_key=(900, place))
                rng = np.random.default_rng(key)
                climbs.append(_Climb(pair, least, times[place], cost, rng, {pair.strategy}))
        kept = _promising_first(climbs)[:count]
        # Of those kept the best begins, the others follow in the order of their scores.
        return kept[:1] + [climb for climb in climbs if any(climb is one for one in kept[1:])]

    def _climb(
        self,
        climb: _Climb,
        tries: int,
        report: Callable[[int], None],
        enough: Callable[[_Climb], bool],
    ) -> None:
        """Try variants of a pair, and go on from those that are faster."""
        done = 0
        for _ in range(_PROPOSALS * tries):
            if done == tries or enough(climb):
                return
            strategy = self._proposed(climb)
            if strategy in climb.seen:
                continue
            climb.seen.add(strategy)
            limit = climb.score * (1.0 + _SLACK)
            fabric = self._routed(climb.pair, strategy)
            score = self._score(fabric, strategy, limit)
            if score > limit:
                continue
            found = replace(climb.pair, strategy=strategy, fabric=fabric, origin="search")
            least = packet_time(self.problem, found, climb.least)
            self.work += climb.work
            done += 1
            if least < climb.least:
                time = Scorer(self.problem.scored(0.0), fabric)(strategy)
                climb.pair = replace(found, time=time)
                climb.least, climb.score = least, score
            report(done)

    def _proposed(self, climb: _Climb) -> Strategy:
        strategy, rng = climb.pair.strategy, climb.rng
        if rng.random() < 0.5:
            return strategy.replace(transpose(self.space, strategy, rng))
        return strategy.replace(propose_region(self.space, self.regions, strategy, rng))

    def _routed(self, pair: Pair, strategy: Strategy) -> Fabric:
        """Return a pair's topology with balanced routes for another strategy."""
        assert pair.topology is not None
        tasks = self.problem.family.build(strategy)
        return direct_fabric(pair.topology, Routing.BALANCED, tasks=tasks)

    def _score(self, fabric: Fabric, strategy: Strategy, limit: float = float("inf")) -> float:
        scorer = Scorer(self.problem.scored(self.yielding), fabric)
        score = scorer(strategy, limit)
        self.work += scorer.work
        return score
