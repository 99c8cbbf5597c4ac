"""Compiled exchange of routes among rings that are alike: who lags gets the fast ones."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel


@kernel
def walk(after: Ints, entered: Ints, ring: Ints, flows: Ints, begin: Ints) -> int:
    """Follow flows to those that begin where they end; return the number of rings.

    Chains begin at flows that nothing enters; what is left then are closed rings.

    Parameters
    ----------
    after : int64 array, shape (flows,)
        The flow that begins where each ends; -1 for none.
    entered : int64 array, shape (flows,)
        Number of flows that end where each begins.
    ring : int64 array, shape (flows,)
        -1 on entry; ring numbers on return.
    flows : int64 array, shape (flows,)
        Written: flows ring by ring, in the order of the ring.
    begin : int64 array, shape (flows + 1,)
        Written: where each ring's flows begin in ``flows``.
    """
    count, place = 0, 0
    begin[0] = 0
    for closed in range(2):
        for first in range(after.size):
            if ring[first] >= 0 or (closed == 0 and entered[first] > 0):
                continue
            flow = first
            while flow >= 0 and ring[flow] < 0:
                ring[flow] = count
                flows[place] = flow
                place += 1
                flow = after[flow]
            count += 1
            begin[count] = place
    return count


@kernel
def turn_rings(flows: Ints, begin: Ints, code: Ints) -> None:
    """Turn each ring so that its flows' codes come first in dictionary order.

    Parameters
    ----------
    flows, begin
        As `walk` writes them; ``flows`` is turned in place.
    code : int64 array, shape (flows,)
        What tells hops apart.
    """
    for r in range(begin.size - 1):
        first, hops = begin[r], begin[r + 1] - begin[r]
        best = 0
        for turn in range(1, hops):
            for k in range(hops):
                left = code[flows[first + (turn + k) % hops]]
                right = code[flows[first + (best + k) % hops]]
                if left != right:
                    if left < right:
                        best = turn
                    break
        if best > 0:
            turned = flows[first : first + hops].copy()
            for k in range(hops):
                flows[first + k] = turned[(best + k) % hops]


@kernel
def rotate(
    classes: Ints,
    rings: Ints,
    begin: Ints,
    flows: Ints,
    work: Floats,
    speed: Floats,
    spine: Ints,
    least: float,
    floor: Floats,
    cost: float,
    movers: Ints,
) -> int:
    """Give the fastest routes of each class to its rings with the most work left.

    Pairs exchange: the ring that lags most (of equals the slower one), with the ring on the
    fastest route (of equals the one most ahead) that has at least ``least`` less to do, if the
    later of the two then ends sooner by more than moving their flows takes.

    Parameters
    ----------
    classes : int64 array, shape (classes + 1,)
        Part of ``rings`` that is each class.
    rings : int64 array, shape (listed rings,)
        Ring numbers.
    begin : int64 array, shape (listed rings + 1,)
        Part of ``flows`` that is each listed ring; of one length within a class.
    flows : int64 array
        Flows of the rings, hop by hop.
    work : float64 array, shape (flows of all,)
        Work that each flow's ring has left.
    speed : float64 array, shape (rings of all,)
        Speeds of the routes that rings have; exchanged with them.
    spine : int64 array, shape (flows of all,)
        Exchanged.
    least : float
        Positive.
    floor : float64 array, shape (flows of all,)
        Seconds that all the work of each flow's ring takes at speed 1.
    cost : float
        Seconds that a moved flow cannot send.
    movers : int64 array, shape (2 * size of ``flows``,)
        Written: flows that were exchanged, some more than once.

    Returns
    -------
    int
        How many entries of ``movers`` were written.
    """
    count = 0
    done = np.zeros(rings.size, dtype=np.bool_)
    left = np.empty(rings.size)
    for kind in range(classes.size - 1):
        first, last = classes[kind], classes[kind + 1]
        most, fewest, fastest, slowest = 0.0, np.inf, 0.0, np.inf
        for r in range(first, last):
            left[r] = work[flows[begin[r]]]
            most, fewest = max(most, left[r]), min(fewest, left[r])
            fastest = max(fastest, speed[rings[r]])
            slowest = min(slowest, speed[rings[r]])
        if fastest == slowest or most - fewest < least:
            continue
        while True:
            behind = -1
            for r in range(first, last):
                if done[r] or speed[rings[r]] == fastest:
                    continue
                if (
                    behind < 0
                    or left[r] > left[behind]
                    or (left[r] == left[behind] and speed[rings[r]] < speed[rings[behind]])
                ):
                    behind = r
            if behind < 0:
                break
            done[behind] = True
            slow = speed[rings[behind]]
            ahead = -1
            for r in range(first, last):
                fast = speed[rings[r]]
                if done[r] or fast <= slow or left[r] > left[behind] - least:
                    continue
                if (
                    ahead < 0
                    or fast > speed[rings[ahead]]
                    or (fast == speed[rings[ahead]] and left[r] < left[ahead])
                ):
                    ahead = r
            if ahead < 0:
                continue
            fast = speed[rings[ahead]]
            now = max(left[behind] / slow, left[ahead] / fast)
            then = max(left[behind] / fast, left[ahead] / slow)
            if floor[flows[begin[behind]]] * (now - then) <= cost:
                continue
            speed[rings[behind]], speed[rings[ahead]] = speed[rings[ahead]], slow
            for hop in range(begin[behind + 1] - begin[behind]):
                f, g = flows[begin[behind] + hop], flows[begin[ahead] + hop]
                if spine[f] != spine[g]:
                    spine[f], spine[g] = spine[g], spine[f]
                    movers[count] = f
                    movers[count + 1] = g
                    count += 2
    return count
