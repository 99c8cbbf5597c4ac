"""Compiled branch and bound for the lexicographic optimum of small instances."""

import numpy as np

from codesign_base.array_kernels import copy_into
from codesign_base.arrays import Floats, SmallInts
from codesign_base.jit import kernel
from routing.clos.arrays_kernels import Demand, State
from routing.clos.state_kernels import TIE, compare_sorted, fill_jobs, insert, is_live, rank, remove


@kernel
def branch_and_bound(
    order: SmallInts, most_nodes: int, demand: Demand, state: State, found: SmallInts, best: Floats
) -> bool:
    """Search all assignments; return whether the search was finished within the node limit.

    Placing one more flow never improves the sorted vector of speeds, so a partial assignment
    that is not better than the best complete one is abandoned.

    Parameters
    ----------
    order : int32 array
        Flows to place, in this order; none of them is in the state.
    found : int32 array, shape (flows,)
        In: paths of a known assignment. Out: the best one's.
    best : float64 array, shape (jobs,)
        In and out: its sorted speeds.
    """
    depth = 0
    ranked = np.empty(state.speed.size)
    nodes = 0
    way = np.full(order.size + 1, -1, dtype=np.int32)
    if order.size == 0:
        return True
    while depth >= 0:
        flow = order[depth]
        if way[depth] >= 0 and state.chosen[flow] >= 0:
            remove(flow, demand, state)
        way[depth] += 1
        if way[depth] >= demand.paths.ways[demand.paths.kind[flow]]:
            way[depth] = -1
            depth -= 1
            continue
        if not is_live(flow, way[depth], demand.paths):
            continue
        nodes += 1
        if nodes > most_nodes:
            return False
        insert(flow, way[depth], demand, state)
        fill_jobs(demand, state)
        rank(state.speed, ranked)
        if compare_sorted(ranked, best, TIE) <= 0:
            continue
        if depth + 1 < order.size:
            depth += 1
            continue
        copy_into(best, ranked)
        copy_into(found, state.chosen)
    return True
