"""What long work reports while it goes on."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What a search reports while it works.

    Parameters
    ----------
    stage : str
        What is being searched ("start", "search", or a baseline's name).
    done, total : int
        Steps made and planned in this stage (total 0: bounded by time).
    best : float
        Best score so far, seconds: an iteration time, or a mean of two where transfers are taken
        to yield in part (``yielding`` of `topoopt.evaluate.problem.Problem`).
    gained : float, optional
        Share by which the last tenth of the work improved it, where that decides when to stop.
    """

    stage: str
    done: int
    total: int
    best: float
    gained: float | None = None


ProgressCallback = Callable[[Progress], None]
