"""The last moves of a search, scored by packet trains themselves.

Packet trains queue first in, first out, where flows of the fluid model share. Of pairs that are
about as fast in the fluid model some are thirty percent slower in packet trains: it matters what
meets on a link, and so on which server of its set each part of an operator lies. A simulation
with packet trains costs tens of times more; so only variants have one whose yielding score
(`topoopt.evaluate.problem.Problem`) is about the pair's. It goes with the times in packet trains,
where fluid times alone do not.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np

from parallelism.taskgraph import TaskGraph
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.second import Second
from topoopt.base.side_by_side import in_twos
from topoopt.evaluate.pair import Pair
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes
from topoopt.search.confirm import packet_time
from topoopt.search.gains import Gains
from topoopt.search.packet_climbs import PROMISE, Climb, Climber, Known, climbed, interned

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


def _promising_first(climbs: list[Climb]) -> list[Climb]:
    """Return climbs in the order in which they go on: the fastest in packet trains first.

    Before all others come those that flows take for faster than any is: one that takes as long
    in packet trains as by flows waits for nothing that a move could keep off its links.
    """
    least = min((climb.least for climb in climbs), default=0.0)
    return sorted(
        climbs,
        key=lambda climb: (climb.pair.time >= least * (1.0 - PROMISE), climb.least),
    )


@dataclass
class PacketMoves:
    """Changes strategies on their topologies, as long as that saves time in packet trains.

    From which pair most is to be gained, only trying tells; so many begin, and the best go on
    (`packet_stages` of `topoopt.problem.effort.Effort`). Two go on side by side: neither knows what
    the other gains.

    Parameters
    ----------
    climber : Climber
        The seed of its problem is that of the variants, too.
    work : float
        Of the search before, in the units of `topoopt.evaluate.scoring.Scorer`.
    second : Second, optional
        A second process, if there is one, that shares the search.

    Attributes
    ----------
    interrupted : bool
        Whether the moves were stopped from the keyboard.
    """

    climber: Climber
    work: float = 0.0
    second: Second = field(default_factory=lambda: Second({}))
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
        effort = self.climber.problem.options.spent
        climbs = self._begun(pairs, effort.packet_stages[0][0])
        tries = [(count, min(each, most)) for count, each in effort.packet_stages]
        total = sum(min(count, len(climbs)) * each for count, each in tries)
        least = min((climb.least for climb in climbs), default=float("inf"))
        known, before = Known(Gains(effort.least_gain), self.work, least), 0

        def report(now: Known, done: int) -> None:
            if progress:
                made = Progress("packet moves", before + done, total, now.least, now.gains.gained)
                progress(made)

        try:
            for count, each in tries:
                for place in range(0, min(count, len(climbs)), 2):
                    places = range(place, min(place + 2, count, len(climbs)))
                    self._side_by_side(climbs, places, each, known, report)
                    before += each * len(places)
                climbs = _promising_first(climbs)
        except KeyboardInterrupt:
            self.interrupted = True
        return [climb.pair for climb in sorted(climbs, key=lambda c: c.least)] or list(pairs)

    def _side_by_side(
        self,
        climbs: list[Climb],
        places: range,
        tries: int,
        known: Known,
        report: Callable[[Known, int], None],
    ) -> None:
        """Let one or two climbs go on; what is known is brought up to date afterwards."""
        same = {"yielding": self.climber.yielding, "tries": tries, "known": known}
        tasks = self.second.share(climbed, [same | {"climb": climbs[place]} for place in places])
        steps: list[list[tuple[float, float]]] = []
        try:
            for place, task in zip(places, tasks, strict=True):
                if task.begin():
                    climber, mine = replace(self.climber), deepcopy(known)
                    steps.append(climber.steps)
                    climber.climb(climbs[place], tries, mine, partial(report, mine))
                else:
                    sent, own = task.result(hear=True)
                    climbs[place] = interned(self.climber.space, sent)
                    steps.append(own)
        finally:
            for task in tasks:
                task.begin()  # so that nobody does
            for work, least in chain.from_iterable(steps):
                known.note(work, least)

    def _begun(self, pairs: list[Pair], count: int) -> list[Climb]:
        """Return the pairs of the best scores, the fastest in packet trains first.

        Simulated are at least so many, and more where that costs little beside the search: what a
        few pairs said of how transfers yield need not hold for all, and a search may have gone
        where packets are slow.
        """
        problem = self.climber.problem
        wired = [pair for pair in pairs if pair.topology is not None]
        scored = [self.climber.scored(pair.fabric, pair.strategy) for pair in wired]
        self.work += sum(work for _, work in scored)
        climbs: list[Climb] = []
        order = sorted(range(len(wired)), key=lambda place: scored[place][0])
        most = self.work + _LOOKED_AT * self.work

        def timed(place: int, _: float) -> float:
            return packet_time(problem, wired[place])

        for place, least in in_twos(order, timed, lambda: 0.0, problem.cluster.servers, 0):
            if len(climbs) >= count and self.work >= most:
                break
            pair = wired[place]
            cost = simulation_work(pair.fabric, problem.family.build(pair.strategy))
            self.work += cost
            if all(climb.least != least for climb in climbs):  # else one is the other's twin
                key = np.random.SeedSequence(problem.seed, spawn_key=(900, place))
                rng = np.random.default_rng(key)
                score = scored[place][0]
                climbs.append(Climb(pair, least, score, cost, rng, {pair.strategy}))
        kept = _promising_first(climbs)[:count]
        # Of those kept the best begins, the others follow in the order of their scores.
        return kept[:1] + [climb for climb in climbs if any(climb is one for one in kept[1:])]
