"""When a search stops at the latest."""

from dataclasses import dataclass

import numpy as np

# Servers up to which a score is so cheap that more of them pay; on more, wirings take most work.
_FEW = 32


@dataclass(frozen=True)
class Budget:
    """When a search stops at the latest.

    Parameters
    ----------
    steps : int
        Proposals over all chains.
    work : float
        Cost of all scores, in the units of `topoopt.evaluate.scoring.Scorer`.
    seconds : float
        Wall-clock time.
    """

    steps: int = 2**62
    work: float = float("inf")
    seconds: float = float("inf")

    @classmethod
    def default(cls, servers: int) -> "Budget":
        """Return the budget of a job that names none.

        Up to 20000 steps; fewer where scores are expensive, by counted work and not by the clock,
        so that a 16-server job takes seconds and a 128-server job about half a minute.
        """
        most = 1e8 if servers <= _FEW else 2.5e7
        return cls(steps=20000, work=float(np.clip(8e6 * servers, 2e7, most)))

    @classmethod
    def published(cls, servers: int) -> "Budget":
        """Return the budget of a job that names none, where the search is that of the paper."""
        return cls(steps=4000, work=float(np.clip(3e6 * servers, 2e7, 8e7)))
