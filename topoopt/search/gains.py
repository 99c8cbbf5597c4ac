"""When to stop: what the last tenth of the work has gained."""

from bisect import bisect_right
from dataclasses import dataclass, field

# Of all work so far, the part whose gain decides whether a stage goes on.
_LAST = 0.1


@dataclass
class Gains:
    """The best score of one stage of a search, over all work so far with that of earlier stages.

    Parameters
    ----------
    least : float
        Share below which what the last tenth of the work gained ends the stage; 0 never does.
    after : float
        Work before which the stage does not end.

    Attributes
    ----------
    met : list of (float, float)
        Work, and the best score then, seconds, in the order of work.
    """

    least: float
    after: float = 0.0
    met: list[tuple[float, float]] = field(default_factory=list)

    def note(self, work: float, best: float) -> None:
        """Take down the best score after so much work.

        Parameters
        ----------
        work : float
            Of all stages, in the units of `topoopt.evaluate.scoring.Scorer`.
        best : float
            Seconds.
        """
        self.met.append((work, best))

    @property
    def gained(self) -> float | None:
        """The share that the last tenth of the work gained; None while the stage is younger."""
        if not self.met:
            return None
        work, best = self.met[-1]
        place = bisect_right(self.met, (1.0 - _LAST) * work, key=lambda entry: entry[0])
        before = self.met[place - 1][1] if place else float("inf")
        return 1.0 - best / before if before < float("inf") else None

    @property
    def over(self) -> bool:
        """Whether the last tenth of the work, all of it in this stage, gained too little."""
        gained = self.gained
        return gained is not None and gained < self.least and self.met[-1][0] >= self.after
