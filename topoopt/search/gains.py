"""When to stop: what the last tenth of the work has gained."""

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

    Attributes
    ----------
    met : list of (float, float)
        Work, and the best score then, seconds, in the order of work.
    """

    least: float
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
    def over(self) -> bool:
        """Whether the last tenth of the work, all of it in this stage, gained too little."""
        if self.least <= 0.0 or not self.met:
            return False
        work, best = self.met[-1]
        before = [score for at, score in self.met if at <= (1.0 - _LAST) * work]
        return bool(before) and best > before[-1] * (1.0 - self.least)
