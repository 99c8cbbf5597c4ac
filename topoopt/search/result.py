"""What a search found, and what it tried."""

from dataclasses import dataclass, field

from topoopt.evaluate.pair import Pair


@dataclass
class SearchResult:
    """What a search found, and what it tried.

    Attributes
    ----------
    best : Pair
    named : dict
        Iteration time of each named strategy on a topology of its own, seconds; infinity
        where it does not fit in memory.
    others : list of Pair
        The best few pairs met, those of the best score first, ``best`` among them.
    steps : int
        Proposals made.
    work : float
        Cost of all scores; see `topoopt.evaluate.scoring.Scorer`.
    interrupted : bool
        Whether it was stopped from the keyboard.
    converged : bool
        Whether it stopped because no chain improved any more.
    """

    best: Pair
    named: dict[str, float] = field(default_factory=dict)
    others: list[Pair] = field(default_factory=list)
    steps: int = 0
    work: float = 0.0
    interrupted: bool = False
    converged: bool = False
