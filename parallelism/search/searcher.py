"""What all searchers have in common: they propose, are scored from outside, and go on."""

import math
from typing import Protocol

import numpy as np

from parallelism.search.mcmc import Score
from parallelism.strategy import Strategy


class Searcher(Protocol):
    """A search over strategies that makes one scored proposal at a time.

    Attributes
    ----------
    best, best_time
        The fastest strategy it has seen, and its score in seconds.
    """

    @property
    def best(self) -> Strategy: ...  # noqa: D102
    @property
    def best_time(self) -> float: ...  # noqa: D102

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Make one proposal; return whether there is anything left to propose.

        Parameters
        ----------
        score : callable
            Strategy and limit to seconds; infinity where it does not fit.
        rng : numpy.random.Generator
        """
        ...

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Go on from a strategy that was found elsewhere, and that is faster than the best."""
        ...


def work_of(score: Score) -> float:
    """Return what a scorer has cost so far, in its own units; 0 if it does not count."""
    work = getattr(score, "work", 0.0)
    return float(work) if math.isfinite(work) else 0.0
