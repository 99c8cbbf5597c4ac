"""Simulated annealing over regions, with relative acceptance, cooling and restarts."""

import math

import numpy as np

from parallelism.search.mcmc import Acceptance, Score
from parallelism.search.moves import propose_region
from parallelism.search.regions import Regions
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy


class Annealer:
    """A chain that cools down, and then starts again from the best strategy it knows.

    Parameters
    ----------
    space : StrategySpace
    regions : Regions
    strategy : Strategy
        Where it starts.
    time : float
        Its score, seconds.
    acceptance : Acceptance
        Of one period; relative, so that it does not depend on the job's scale.
    period : int
        Proposals until it starts again.
    """

    def __init__(
        self,
        space: StrategySpace,
        regions: Regions,
        strategy: Strategy,
        time: float,
        *,
        acceptance: Acceptance | None = None,
        period: int = 400,
    ) -> None:
        self.space = space
        self.regions = regions
        self.acceptance = Acceptance(start=0.02, end=0.0002) if acceptance is None else acceptance
        self.period = period
        self.best, self.best_time = strategy, time
        self.strategy, self.time = strategy, time
        self.made = 0

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Remember a faster strategy; the next period starts there."""
        self.best, self.best_time = strategy, time

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Make one proposal, score it, and accept or reject it.

        Parameters
        ----------
        score : callable
        rng : numpy.random.Generator

        Returns
        -------
        bool
            True: there is always another proposal.
        """
        if self.made >= self.period:
            self.made = 0
            self.strategy, self.time = self.best, self.best_time
        progress = self.made / self.period
        self.made += 1
        change = propose_region(self.space, self.regions, self.strategy, rng)
        uniform = rng.random()
        if not change:
            return True
        candidate = self.strategy.replace(change)
        limit = self.acceptance.threshold(self.time, uniform, progress)
        time = score(candidate, limit)
        if time <= limit and math.isfinite(time):
            self.strategy, self.time = candidate, time
            if time < self.best_time:
                self.best, self.best_time = candidate, time
        return True
