"""Compiled constructive placement: flows one after another onto the least loaded path."""

import numpy as np

from codesign_base.arrays import Floats, SmallInts
from codesign_base.jit import kernel
from routing.clos.arrays_kernels import ClosPaths


@kernel
def place_flows(
    order: SmallInts,
    look_ahead: float,
    paths: ClosPaths,
    weight: Floats,
    inverse: Floats,
    load: Floats,
    chosen: SmallInts,
) -> None:
    """Give each flow, in order, the first path whose most loaded link is loaded least.

    Parameters
    ----------
    order : int32 array
        Flows to place; those with ``chosen >= 0`` stay where they are.
    look_ahead : float
        1 to count a link's load with the flow on it, 0 without.
    inverse : float64 array, shape (links + 1,)
        1 / capacity; infinity for a failed link, 0 for no link.
    load : float64 array, shape (links + 1,)
        In and out.
    chosen : int32 array, shape (flows,)
        In and out; -1 for flows without a live path.
    """
    base, kind, shift, ways = paths.base, paths.kind, paths.shift, paths.ways
    slots = base.shape[1]
    for flow in order:
        if chosen[flow] >= 0:
            continue
        row = kind[flow]
        size = weight[flow]
        best = np.inf
        for way in range(ways[row]):
            worst = 0.0
            for slot in range(slots):
                link = base[flow, slot] + shift[row, slot, way]
                if inverse[link] == np.inf:
                    worst = np.inf
                    break
                worst = max(worst, (load[link] + look_ahead * size) * inverse[link])
            if worst < best:
                best = worst
                chosen[flow] = way
        if chosen[flow] >= 0:
            for slot in range(slots):
                load[base[flow, slot] + shift[row, slot, chosen[flow]]] += size


@kernel
def add_loads(paths: ClosPaths, weight: Floats, chosen: SmallInts, load: Floats) -> None:
    """Add the loads of the flows that have a path."""
    base, kind, shift = paths.base, paths.kind, paths.shift
    for flow in range(weight.size):
        if chosen[flow] >= 0:
            for slot in range(base.shape[1]):
                load[base[flow, slot] + shift[kind[flow], slot, chosen[flow]]] += weight[flow]
