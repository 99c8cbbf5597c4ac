"""How much work a search spends on an answer, counted and never timed: three levels."""

from dataclasses import dataclass

Stages = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Effort:
    """What a level of effort trades for time.

    Parameters
    ----------
    least_gain : float
        A stage of the search ends where the last tenth of all work gained less than this share;
        0: it goes on to its end, or until the budget is spent.
    least_work : float
        No stage ends before so much work in all, in re-solved flows (about 0.13 us each): small
        jobs are cheap to search whole.
    again : float
        Rounds do not end before all work is so many times that of the starts, within limits
        (`topoopt.search.driver`).
    cuts, widenings : int
        Places at which streams on halves, and widening branches, may begin and end, on up to 32
        servers.
    slice_steps : int
        Proposals a strategy on the ideal switch, and a chain on its fabric, between two looks at
        what was gained; 0: as many as the method makes in its rounds.
    packet_stages : tuple of (int, int)
        How many pairs are improved by packet trains, with how many simulations each.
    routed : int
        Pairs whose routes are improved one server pair at a time; of layouts four in any case.
    confirmed : int
        Pairs that packet trains choose among in the end, with all copies.
    finalists : int
        The same on more servers than packet trains are sought with.
    compared : float
        Share of the search's work that the search for each fabric compared with may take more,
        after what the search has kept is scored there; ``least_work`` at least.
    layouts : int
        Layouts of a transformer that are simulated.
    """

    least_gain: float
    least_work: float
    again: float
    cuts: int
    widenings: int
    slice_steps: int
    packet_stages: Stages
    routed: int
    confirmed: int
    finalists: int
    compared: float
    layouts: int


EFFORTS = {
    "quick": Effort(
        least_gain=0.02, least_work=3e4, again=0.0, cuts=4, widenings=5, slice_steps=10,
        packet_stages=((2, 2),), routed=0, confirmed=1, finalists=1, compared=0.1, layouts=9,
    ),
    "normal": Effort(
        least_gain=0.002, least_work=3e5, again=3.0, cuts=7, widenings=13, slice_steps=25,
        packet_stages=((6, 3), (2, 6), (1, 12)), routed=1, confirmed=3,
        finalists=3, compared=0.3, layouts=28,
    ),
    "thorough": Effort(
        least_gain=0.0, least_work=0.0, again=0.0, cuts=7, widenings=13, slice_steps=0,
        packet_stages=((30, 4), (5, 6), (1, 12)), routed=4, confirmed=5,
        finalists=8, compared=0.3, layouts=84,
    ),
}  # fmt: skip
