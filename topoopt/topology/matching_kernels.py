"""Compiled exchange of partners in a matching."""

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel


@kernel
def exchange_partners(weight: Floats, partner: Ints, least: float) -> int:
    """Exchange the partners of two pairs while that gains more than ``least``; return how often.

    ``weight`` is symmetric and ``partner`` a perfect matching, changed in place.
    """
    n = partner.size
    exchanges = 0
    better = True
    while better:
        better = False
        for a in range(n):
            for c in range(a + 1, n):
                b, d = partner[a], partner[c]
                if b == c:
                    continue
                held = weight[a, b] + weight[c, d]
                crossed = weight[a, c] + weight[b, d]
                turned = weight[a, d] + weight[b, c]
                if max(crossed, turned) <= held + least:
                    continue
                if crossed >= turned:
                    partner[a], partner[c], partner[b], partner[d] = c, a, d, b
                else:
                    partner[a], partner[d], partner[b], partner[c] = d, a, c, b
                exchanges += 1
                better = True
    return exchanges
