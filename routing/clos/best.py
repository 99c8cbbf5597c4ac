"""The best router: several starts, then lexicographic local search."""

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Ints, SmallInts
from routing.clos.arrays_kernels import ClosPaths
from routing.clos.assignment import Assignment, live_spines
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import compare_vectors
from routing.clos.paths import clos_paths
from routing.clos.placing import color, greedy_sorted, place
from routing.clos.state import AssignmentState

# Candidates looked at (1 to 2 ns each): a floor, and so many a flow that may move. The budgets
# count work, not time, so that results do not depend on the machine.
FLOOR, PER_FLOW = 40_000, 20
_SMALL = 512  # up to so many flows every start is tried and improved, with twice the floor
KICKS = 400  # restarts from displaced flows, as far as the budget goes
ALL = 1.0 - 1e-9  # a speed that counts as uncongested


def effort_of(flows: int) -> int:
    """Return after how many candidates without progress an attempt is given up."""
    return min(300 + flows, 10_000)


def best_spines(clos: Clos, flows: ClosFlows, seed: int, previous: Assignment | None) -> Ints:
    """Return the best spines found from several starts.

    Starts are edge colouring, placement by size and the previous assignment. The best one is
    improved: the slowest job that can be raised is raised by a min-conflicts search over single
    moves, whose chains include swaps and Kempe chains, and so on. Up to 512 flows all starts are
    improved, and what is left of the budget lets a slow and a faster job change places, or
    displaces a few flows, and climbs again.

    Parameters
    ----------
    clos : Clos
        The fabric as it is now.
    flows : ClosFlows
        What is sent; known to fit the fabric, with a live path each.
    seed : int
        Of the search.
    previous : Assignment or None
        What holds now: -1 for new flows; flows on failed links are placed anew.

    Returns
    -------
    int64 array, shape (flows,)
        Spines, -1 within a ToR.
    """
    paths = clos_paths(clos, flows)
    state = AssignmentState(paths, flows, seed)
    if previous is not None:
        kept = live_spines(clos, flows, previous.spine)
    small = flows.count <= _SMALL
    budget = (2 * FLOOR if small else FLOOR) + PER_FLOW * flows.count
    effort = effort_of(flows.count)
    ways = [color(clos, flows, paths)]
    state.set(ways[0])
    if state.speed.min(initial=1.0) >= ALL and previous is None:
        return ways[0].astype(np.int64)
    vectors = [np.sort(state.speed)]
    uneven = not clos.core_failures_only or flows.weight.min(initial=1.0) < 1.0
    if small or uneven:
        ways.append(greedy_sorted(clos, flows, paths))
    if previous is not None:
        ways.append(color(clos, flows, paths, kept))
    for way in ways[1:]:
        state.set(way)
        vectors.append(np.sort(state.speed))
    leader = len(ways) - 1  # of equals the previous assignment, which moves fewest flows
    for number in range(len(ways) - 1):
        if compare_vectors(vectors[number], vectors[leader]) > 0:
            leader = number
    if vectors[leader].min(initial=1.0) >= ALL:
        return ways[leader].astype(np.int64)
    rest = [number for number in range(len(ways)) if number != leader] if small else []
    state.set(ways[leader])
    state.improve(budget, effort, KICKS if small else 0)
    found, vector = state.chosen.copy(), np.sort(state.speed)
    for number in rest:
        if vector.min(initial=1.0) >= ALL:
            break
        state.set(ways[number])
        state.improve(budget // 2, effort, KICKS)
        if compare_vectors(np.sort(state.speed), vector) > 0:
            found, vector = state.chosen.copy(), np.sort(state.speed)
    return found.astype(np.int64)


def best_paths(paths: ClosPaths, flows: ClosFlows, *, seed: int = 0) -> SmallInts:
    """Return the best paths found on any fabric: as `best_spines`, from placement by size.

    Parameters
    ----------
    paths : ClosPaths
        Candidates, at least one of them live for every flow that needs links.
    flows : ClosFlows
        What is sent.
    seed : int, default 0
        Of the search.

    Returns
    -------
    int32 array, shape (flows,)
        Paths, -1 for flows that need no link.

    Raises
    ------
    InfeasibleError
        If a flow has no live candidate.

    Examples
    --------
    >>> from routing.clos.flows import ClosFlows
    >>> from routing.clos.paths import listed_paths
    >>> paths = listed_paths([1.0, 1.0], [[[0], [1]], [[0], [1]]])  # two flows, two links for each
    >>> best_paths(paths, ClosFlows.of([0, 0], [1, 1], [0, 1])).tolist()
    [0, 1]
    """
    order = np.argsort(-flows.weight, kind="stable").astype(np.int32)
    start = place(paths, flows.weight, order)
    cut = (start < 0) & (paths.ways[paths.kind] > 0)
    if cut.any():
        raise InfeasibleError(
            f"flow {int(np.flatnonzero(cut)[0])} has no live candidate path; repair a link or "
            "take the flow out"
        )
    state = AssignmentState(paths, flows, seed)
    state.set(start)
    if state.speed.min(initial=1.0) < ALL:
        kicks = KICKS if flows.count <= _SMALL else 0
        state.improve(FLOOR + PER_FLOW * flows.count, effort_of(flows.count), kicks)
    return state.chosen.copy()
