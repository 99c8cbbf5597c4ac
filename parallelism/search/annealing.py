"""Simulated annealing over regions, with relative acceptance, cooling and restarts."""

import numpy as np

from parallelism.search.mcmc import Acceptance, Chain, Score
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
        self.chain = Chain.start(strategy, time)
        self.made = 0

    @property
    def best(self) -> Strategy:
        """The fastest strategy seen."""
        return self.chain.best

    @property
    def best_time(self) -> float:
        """Its score, seconds."""
        return self.chain.best_time

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Remember a faster strategy; the next period starts there."""
        self.chain.best, self.chain.best_time = strategy, time

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Make one proposal, and accept or reject it.

        Parameters
        ----------
        score : callable
        rng : numpy.random.Generator

        Returns
        -------
        bool
            True: there is always another proposal.
        """
        chain = self.chain
        if self.made >= self.period:
            self.made = 0
            self.chain = chain = Chain.start(chain.best, chain.best_time)
        progress = self.made / self.period
        self.made += 1
        change = propose_region(self.space, self.regions, chain.strategy, rng)
        chain.step(change, score, rng, self.acceptance, progress)
        return True
