"""Compiled constructive placement: flows one after another onto the least loaded path."""

import numpy as np

from codesign_base.jit import kernel
from routing.clos.arrays_kernels import Floats, Ints, Paths, SmallInts


@kernel
def group_order(source: Ints, target: Ints, tors: int, order: SmallInts) -> None:
    """Order flows by groups "leaving ToR t" and "entering ToR t", largest group first.

    Groups of one size keep their order: leaving before entering, then by ToR; flows of a group
    keep theirs. Flows within a ToR are left out of the count and come last.
    """
    flows = source.size
    size = np.zeros(2 * tors, dtype=np.int64)
    for flow in range(flows):
        if source[flow] != target[flow]:
            size[source[flow]] += 1
            size[tors + target[flow]] += 1
    first = np.zeros(2 * tors + 1, dtype=np.int64)
    for group in range(2 * tors):
        first[group + 1] = first[group] + size[group]
    member = np.empty(first[2 * tors], dtype=np.int32)
    place = first[:-1].copy()
    for flow in range(flows):
        if source[flow] != target[flow]:
            for group in (source[flow], tors + target[flow]):
                member[place[group]] = flow
                place[group] += 1
    taken = np.zeros(flows, dtype=np.bool_)
    count = 0
    for group in np.argsort(-size, kind="mergesort"):
        for i in range(first[group], first[group + 1]):
            if not taken[member[i]]:
                taken[member[i]] = True
                order[count] = member[i]
                count += 1
    for flow in range(flows):
        if not taken[flow]:
            order[count] = flow
            count += 1


@kernel
def place_flows(
    order: SmallInts,
    look_ahead: float,
    paths: Paths,
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
def add_loads(paths: Paths, weight: Floats, chosen: SmallInts, load: Floats) -> None:
    """Add the loads of the flows that have a path."""
    base, kind, shift = paths.base, paths.kind, paths.shift
    for flow in range(weight.size):
        if chosen[flow] >= 0:
            for slot in range(base.shape[1]):
                load[base[flow, slot] + shift[kind[flow], slot, chosen[flow]]] += weight[flow]
