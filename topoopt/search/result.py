"""What a search found, and what it tried."""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from parallelism.family import P
from topoopt.evaluate.pair import Pair
from topoopt.fabric.jitter import Jitter


class BestOnBaseline(NamedTuple, Generic[P]):
    """The best parallelization found for a fabric to compare with.

    ``time`` is in seconds. Of what is ``bounded`` the simulation took too much work, and the time
    is one that it is not below. Of what is ``near`` it is off by about 0.1 %, because flows that
    end soon are batched.
    ``packets`` has its times in packet trains, where they were looked at.
    """

    parallelization: P
    time: float
    bounded: bool = False
    near: bool = False
    packets: Jitter | None = None


@dataclass
class SearchResult(Generic[P]):
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
    counts : dict of str to int
        How many of what else it looked at.
    skipped : tuple of str
        What was not simulated, because it would have taken too much memory.
    unsimulated : int
        Wirings with routes of which only a bound is known, and that may be faster.
    first : Pair or None
        The best of the starts.
    again : Pair or None
        The best of a second search, by another score.
    """

    best: Pair[P]
    named: dict[str, float] = field(default_factory=dict)
    others: list[Pair[P]] = field(default_factory=list)
    steps: int = 0
    work: float = 0.0
    interrupted: bool = False
    converged: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    unsimulated: int = 0
    first: Pair[P] | None = None
    again: Pair[P] | None = None
