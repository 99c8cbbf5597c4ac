"""Local search: every configuration of every region in turn, the first improvement is taken."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from parallelism.graph import Mode
from parallelism.search.mcmc import Score
from parallelism.search.moves import assign, moved
from parallelism.search.regions import Region, Regions
from parallelism.search.replayed import Replayed
from parallelism.search.slices import all_sliced
from parallelism.search.space import Change, StrategySpace
from parallelism.strategy import OperatorConfig, Strategy

# Placements of one pair of degrees that a sweep tries; of more, a spread.
MOST_PLACEMENTS = 24
# Regions of so many operators come first in a sweep: there is most to gain.
LARGE = 3
# Stands for all boundaries between differently placed neighbours, and for concatenations; by how
# much boundaries move.
BOUNDARIES: Region = ()
_SHIFTS = (1, 2, 4)
# An improvement below this share is rounding, not progress.
_LEAST_GAIN = 1e-9


class LocalSearch(Replayed):
    """A descent to a strategy that no move of its neighbourhood makes faster.

    A move gives one region one configuration: all degrees that one of its operators may have,
    each on a spread of regular placements and on the server sets that neighbours have; or it
    exchanges the servers of two single parts. Regions are the single operators and those of
    `Regions.fixed`. Each sweep goes through the regions in a random order, and the descent ends
    when a whole sweep has found nothing.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
    strategy : Strategy
    time : float
        Its score, seconds.
    most_placements : int
        Placements of one pair of degrees that are tried.
    """

    def __init__(
        self,
        space: StrategySpace,
        regions: Regions,
        strategy: Strategy,
        time: float,
        *,
        most_placements: int = MOST_PLACEMENTS,
    ) -> None:
        self.space = space
        self.most_placements = most_placements
        singles: list[Region] = [(i,) for i in range(len(strategy.configs))]
        self.sweep = [BOUNDARIES, *regions.fixed, *singles]
        self.best, self.best_time = strategy, time
        self._inputs = [sorted(set(op.inputs)) for op in space.graph.operators]
        self._moves: Iterator[Change] | None = None
        self._taken = 0
        self._since = 0
        self._place = 0
        self._order: list[int] = []

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Go on from a faster strategy."""
        self.best, self.best_time = strategy, time
        self._moves, self._since = None, 0

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Try one move; return False when the strategy is locally optimal.

        Parameters
        ----------
        score : callable
        rng : numpy.random.Generator
            Orders the regions of a sweep.
        """
        while True:
            if self._moves is None:
                if self._since >= len(self.sweep):
                    return False
                if self._place == 0:
                    self._since = 0
                    order = rng.permutation(len(self.sweep)).tolist()
                    self._order = sorted(order, key=lambda r: 0 < len(self.sweep[r]) < LARGE)
                self._moves, self._taken = self._begin(), 0
            change = next(self._moves, None)
            change = None if change is None else self.space.following(change)
            self._taken += 1
            if change is None:
                self._moves = None
                self._since += 1
                self._place = (self._place + 1) % len(self.sweep)
                continue
            if not change:
                continue
            candidate = self.best.replace(change)
            time = score(candidate, self.best_time)
            if time < self.best_time * (1.0 - _LEAST_GAIN) and math.isfinite(time):
                self.best, self.best_time = candidate, time
                self._since = 0
                # What was tried of this region counts for the new strategy's other regions only.
                self._moves, self._taken = self._begin(), 0
            return True

    def _begin(self) -> Iterator[Change]:
        """Return the moves of the region whose turn it is."""
        return self.neighbourhood(self.sweep[self._order[self._place]])

    def neighbourhood(self, region: Region) -> Iterator[Change]:
        """Yield the changes of one region, each against the strategy of the moment.

        Parameters
        ----------
        region : tuple of int

        Returns
        -------
        iterator of list of (int, OperatorConfig)
            Some may be empty: no change.
        """
        if region == BOUNDARIES:
            yield from self._boundaries()
            yield from all_sliced(self.space, self.best)
            return
        seen: set[tuple[OperatorConfig, bool]] = set()
        leaders = _different(self.space, region)
        for leader in leaders:
            for sample, parameter, mode in self.space.degrees(leader):
                for config in self._placed(region, sample, parameter, mode):
                    for alternate in (False, True) if _alternates(region, config) else (False,):
                        if (config, alternate) not in seen:
                            seen.add((config, alternate))
                            yield assign(self.space, self.best, region, config, alternate=alternate)
        if len(region) == 1 and self.best.configs[region[0]].parts == 1:
            yield from self._exchanges(region[0])

    def _placed(
        self, region: Region, sample: int, parameter: int, mode: Mode
    ) -> Iterator[OperatorConfig]:
        regular = self.space.placements(sample, parameter, mode)
        step = -(-len(regular) // self.most_placements)
        yield from regular[::step]
        # Where neighbours are, or as many of their servers as there are parts.
        inside = set(region)
        parts = sample * parameter
        for index in region:
            for other in self.space.neighbours[index]:
                servers = self.best.configs[other].servers
                if other not in inside and len(servers) >= parts:
                    every = len(servers) // parts
                    yield self.space.config(sample, parameter, mode, servers[:parts])
                    yield self.space.config(sample, parameter, mode, servers[::every][:parts])

    def _boundaries(self) -> Iterator[Change]:
        """Move each boundary between differently placed neighbours by a few operators."""
        configs, graph = self.best.configs, self.space.graph
        for target, op in enumerate(graph.operators):
            for source in sorted(set(op.inputs)):
                if configs[source] == configs[target]:
                    continue
                for length in _SHIFTS:
                    for chain, config in (
                        (self._stretch(target, length, graph.consumers), configs[source]),
                        (self._stretch(source, length, self._inputs), configs[target]),
                    ):
                        if len(chain) == length:
                            yield assign(self.space, self.best, chain, config)

    def _stretch(self, first: int, length: int, after: Sequence[Sequence[int]]) -> Region:
        """Return up to so many operators in a row that are where the first is."""
        chain = [first]
        while len(chain) < length:
            alike = [
                i for i in after[chain[-1]] if self.best.configs[i] == self.best.configs[first]
            ]
            if not alike:
                break
            chain.append(alike[0])
        return tuple(chain)

    def _exchanges(self, index: int) -> Iterator[Change]:
        for other in range(index + 1, len(self.best.configs)):
            mine, theirs = self.best.configs[index], self.best.configs[other]
            if mine.parts == theirs.parts == 1 and mine.servers != theirs.servers:
                a, b = mine.servers[0], theirs.servers[0]
                yield moved(self.space, self.best, (index, other), {a: b, b: a})


def _different(space: StrategySpace, region: Region) -> list[int]:
    """Return the first operator of each kind of choices in a region."""
    first: dict[object, int] = {}
    for index in region:
        first.setdefault(space.degrees(index), index)
    return list(first.values())


def _alternates(region: Region, config: OperatorConfig) -> bool:
    return len(region) > 1 and config.parameter > 1 and config.mode is Mode.OUTPUT
