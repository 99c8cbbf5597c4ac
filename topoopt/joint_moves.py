"""Moves of strategy and topology together: a strategy's neighbours, each wired for itself.

On the topology of a pair its strategy's neighbours look bad, because that topology was built for
another traffic. On an ideal switch no topology stands in their way; those that are fastest there
are wired.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from parallelism.search.local import BOUNDARIES, LocalSearch
from parallelism.search.mcmc import Score
from parallelism.search.regions import Regions
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.rewire import Rewirer
from topoopt.search_types import Pair

# Placements of one pair of degrees.
_PLACEMENTS = 8
# Of the neighbours that are looked at in one step, so many are wired.
_WIRED = 6
# Regions of fewer operators are moved only where there are none of more: their traffic hardly
# asks for another topology.
_LARGE = 3


class JointMoves:
    """The neighbours of one pair, a part of them at a time.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
    pair : Pair
    """

    def __init__(self, space: StrategySpace, regions: Regions, pair: Pair) -> None:
        self.pair = pair
        self.over = False
        self._local = LocalSearch(
            space, regions, pair.strategy, pair.time, most_placements=_PLACEMENTS
        )
        self._moves: Iterator[Strategy] | None = None

    def _neighbours(self, rng: np.random.Generator) -> Iterator[Strategy]:
        regions = self._local.sweep
        large = [region for region in regions if len(region) >= _LARGE] or regions
        large = [BOUNDARIES, *(region for region in large if region != BOUNDARIES)]
        seen = {self.pair.strategy}
        for place in (0, *(1 + rng.permutation(len(large) - 1)).tolist()):
            for change in self._local.neighbourhood(large[place]):
                strategy = self.pair.strategy.replace(change)
                if strategy not in seen:
                    seen.add(strategy)
                    yield strategy

    def step(
        self, score: Score, rewirer: Rewirer, rng: np.random.Generator, count: int
    ) -> Pair | None:
        """Look at some neighbours, wire the most promising, and return the best if it is faster.

        Parameters
        ----------
        score : callable
            Scores on an ideal switch.
        rewirer : Rewirer
        rng : numpy.random.Generator
            Orders the regions.
        count : int
            Neighbours to look at.

        Returns
        -------
        Pair or None
            None if none of them is faster than the pair.
        """
        if self._moves is None:
            self._moves = self._neighbours(rng)
        # The slowest of those kept comes first; of equals the latest.
        kept: list[tuple[float, int, Strategy]] = []
        for place in range(count):
            strategy = next(self._moves, None)
            if strategy is None:
                self.over = True
                break
            limit = -kept[0][0] if len(kept) == _WIRED else self.pair.time
            time = score(strategy, limit)
            if time < limit:
                heapq.heappush(kept, (-time, -place, strategy))
                if len(kept) > _WIRED:
                    heapq.heappop(kept)
        best: Pair | None = None
        for _, _, strategy in sorted(kept, key=lambda entry: (-entry[0], -entry[1])):
            limit = self.pair.time if best is None else best.time
            found = rewirer.wire(strategy, "search", limit=limit)
            if found is not None and found.time < limit:
                best = found
        return best
