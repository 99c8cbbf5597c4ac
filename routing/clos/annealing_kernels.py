"""Compiled simulated annealing over the paths of units of flows."""

import numpy as np

from codesign_base.array_kernels import copy_into
from codesign_base.arrays import Floats, SmallInts, Words
from codesign_base.jit import inner_kernel, kernel
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.chase_kernels import random_below


@inner_kernel
def _move(
    flow: int,
    old: int,
    new: int,
    change: float,
    paths: ClosPaths,
    weight: Floats,
    inverse: Floats,
    load: Floats,
) -> float:
    """Move a flow's load to another path; return the change so far with what that adds."""
    for leaving in range(2):
        for slot in range(paths.base.shape[1]):
            to = old if leaving == 0 else new
            link = paths.base[flow, slot] + paths.shift[paths.kind[flow], slot, to]
            if inverse[link] == np.inf:
                change = np.inf
                continue
            size = weight[flow] if leaving == 1 else -weight[flow]
            before = (load[link] * inverse[link]) ** 4
            load[link] += size
            change += (load[link] * inverse[link]) ** 4 - before
    return change


@kernel
def anneal_assignment(
    steps: int,
    hot: float,
    cold: float,
    first: SmallInts,
    member: SmallInts,
    paths: ClosPaths,
    weight: Floats,
    inverse: Floats,
    load: Floats,
    chosen: SmallInts,
    random: Words,
) -> None:
    """Lower the sum over links of (load / capacity)^4; the best state seen is what remains.

    Parameters
    ----------
    steps : int
        Proposals: one unit and one path, drawn at random.
    hot, cold : float
        Temperature at the start and at the end; it falls geometrically.
    first, member : int32 arrays
        Unit g is the flows ``member[first[g] : first[g + 1]]``; they move together.
    inverse : float64 array, shape (links + 1,)
        1 / capacity; infinity for a failed link, 0 for no link.
    load, chosen
        In and out.
    """
    kind, ways = paths.kind, paths.ways
    units = first.size - 1
    best = chosen.copy()
    score = 0.0
    lowest = 0.0
    cooling = (cold / hot) ** (1.0 / max(steps, 1))
    heat = hot
    old = np.empty(member.size, dtype=np.int32)
    for _ in range(steps):
        heat *= cooling
        unit = random_below(random, units)
        lead = member[first[unit]]
        way = random_below(random, ways[kind[lead]])
        change = 0.0
        for i in range(first[unit], first[unit + 1]):
            flow = member[i]
            old[i] = chosen[flow]
            change = _move(flow, chosen[flow], way, change, paths, weight, inverse, load)
            chosen[flow] = way
        uniform = random_below(random, 1 << 30) / (1 << 30)
        if change <= 0.0 or (change < np.inf and uniform < np.exp(-change / heat)):
            score += change
            if score < lowest - 1e-9:
                lowest = score
                copy_into(best, chosen)
            continue
        for i in range(first[unit], first[unit + 1]):
            flow = member[i]
            _move(flow, way, old[i], 0.0, paths, weight, inverse, load)
            chosen[flow] = old[i]
    copy_into(chosen, best)
