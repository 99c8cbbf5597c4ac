"""Moves of strategy and topology together: a strategy's neighbours, each wired for itself.

On the topology of a pair its strategy's neighbours look bad, because that topology was built for
another traffic. On an ideal switch no topology limits them; those that are fastest there
are wired.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from parallelism.search.local import BOUNDARIES, LARGE, LocalSearch
from parallelism.search.mcmc import Score
from parallelism.search.regions import Regions
from parallelism.search.replayed import Replayed
from parallelism.search.searcher import work_of
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.rewire import Rewirer
from topoopt.search.wirer import Wirer

# Placements of one pair of degrees.
_PLACEMENTS = 8
# Of the neighbours that are looked at in one step, so many are wired.
_WIRED = 6
# So many are looked at, whatever they cost.
_LOOKED_AT = 30


def promising(
    score: Score, strategies: Iterable[Strategy], limit: float, count: int = _WIRED,
    most_work: float = float("inf"),
) -> list[tuple[float, Strategy]]:  # fmt: skip
    """Return the few strategies that are fastest on an ideal switch, with their times there.

    Parameters
    ----------
    score : callable
        Scores on the ideal switch.
    strategies : iterable of Strategy
    limit : float
        Those that take as many seconds or more there are left out.
    count : int
        So many at most.
    most_work : float
        No more are looked at where this much has found none.

    Returns
    -------
    list of (float, Strategy)
        Fastest first, of equals the earlier.
    """
    # The slowest of those kept comes first; of equals the latest.
    kept: list[tuple[float, int, Strategy]] = []
    most_work += work_of(score)
    for place, strategy in enumerate(strategies):
        if place >= _LOOKED_AT and not kept and work_of(score) > most_work:
            break
        most = -kept[0][0] if len(kept) == count else limit
        time = score(strategy, most)
        if time < most:
            heapq.heappush(kept, (-time, -place, strategy))
            if len(kept) > count:
                heapq.heappop(kept)
    kept.sort(key=lambda entry: (-entry[0], -entry[1]))
    return [(-time, strategy) for time, _, strategy in kept]


def best_wired(
    pair: Pair,
    strategies: Iterable[Strategy],
    score: Score,
    wirer: Wirer,
    most_work: float = float("inf"),
) -> Pair | None:
    """Wire the most promising of some strategies, and return the best if it beats a pair.

    Parameters
    ----------
    pair : Pair
    strategies : iterable of Strategy
    score : callable
        Scores on the ideal switch.
    wirer : Wirer
    most_work : float
        Wire no more of them, nor any in more ways, once the wirer counts so much work.

    Returns
    -------
    Pair or None
        With its exact time. None if none of them is faster than the pair, or if the one that the
        search's scores take for the fastest is not.
    """
    best = [pair]

    def hopeful() -> Iterator[tuple[Strategy, None]]:
        # Where no work is left, which are promising need not be known.
        for _, strategy in promising(score, strategies, pair.time):
            yield strategy, None

    for found in wirer.in_turn(nearly_wired, hopeful(), lambda: best[-1].time, most_work):
        if found is not None and found.time < best[-1].time:
            best.append(found)
    if best[-1] is pair:
        return None
    exact = wirer.exactly(best[-1])
    return exact if exact.time < pair.time else None


def nearly_wired(rewirer: Rewirer, strategy: Strategy, asked: None, limit: float) -> Pair | None:
    """Return the best pair of a strategy with a near time."""
    return rewirer.wire(strategy, "search", limit=limit, exact=False)


class JointMoves(Replayed):
    """The neighbours of one pair, a part of them at a time.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
    pair : Pair
    """

    def __init__(self, space: StrategySpace, regions: Regions, pair: Pair) -> None:
        self.pair = pair
        self.exhausted = False
        self._local = LocalSearch(
            space, regions, pair.strategy, pair.time, most_placements=_PLACEMENTS
        )
        swept = self._local.sweep
        # The traffic of smaller ones hardly asks for another topology.
        large = [region for region in swept if len(region) >= LARGE] or swept
        self._regions = [BOUNDARIES, *(region for region in large if region != BOUNDARIES)]
        self._order: list[int] = []
        self._moves: Iterator[Strategy] | None = None
        self._taken = 0

    def _begin(self) -> Iterator[Strategy]:
        seen = {self.pair.strategy}
        for place in self._order:
            for change in self._local.neighbourhood(self._regions[place]):
                strategy = self.pair.strategy.replace(change)
                if strategy not in seen:
                    seen.add(strategy)
                    yield strategy

    def step(
        self, score: Score, wirer: Wirer, rng: np.random.Generator, count: int,
        most_work: float = float("inf"),
    ) -> Pair | None:  # fmt: skip
        """Look at some neighbours, wire the most promising, and return the best if it is faster.

        Parameters
        ----------
        score : callable
            Scores on an ideal switch.
        wirer : Wirer
        rng : numpy.random.Generator
            Orders the regions.
        count : int
            Neighbours to look at.
        most_work : float
            As in `best_wired`.

        Returns
        -------
        Pair or None
            None if none of them is faster than the pair.
        """
        if self._moves is None:
            rest = rng.permutation(len(self._regions) - 1).tolist()
            self._order = [0, *(1 + place for place in rest)]
            self._moves = self._begin()
        batch = list(islice(self._moves, count))
        self._taken += len(batch)
        self.exhausted = len(batch) < count
        return best_wired(self.pair, batch, score, wirer, most_work)
