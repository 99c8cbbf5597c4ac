"""The best few pairs of a search, among which a truer model may choose."""

from collections.abc import Iterable

from parallelism.family import P
from topoopt.evaluate.pair import Pair

FINALISTS = 8
"""Best pairs that a search keeps for confirmation."""
PACKET_FINALISTS = 120
"""The same where simulations with packet trains go on from them."""


def finalists(
    pairs: Iterable[Pair[P]], spacing: float = 0.0, count: int = FINALISTS
) -> list[Pair[P]]:
    """Return the fastest distinct pairs.

    Parameters
    ----------
    pairs : iterable of Pair
        Pairs of equal strategy and equal time are taken for one.
    spacing : float
        Pairs that differ in time by this share go first, so that not all are variants of one.
    count : int
        So many at most.

    Returns
    -------
    list of Pair
        Fastest first.
    """
    distinct: list[Pair[P]] = []
    apart: list[Pair[P]] = []
    for pair in sorted(pairs, key=lambda p: p.time):
        if any(p.time == pair.time and p.strategy == pair.strategy for p in distinct):
            continue
        distinct.append(pair)
        if not apart or pair.time > apart[-1].time * (1.0 + spacing):
            apart.append(pair)
    kept = (apart if spacing else distinct)[:count]
    chosen = {id(pair) for pair in kept}
    kept += [pair for pair in distinct if id(pair) not in chosen][: count - len(kept)]
    return sorted(kept, key=lambda p: p.time)
