"""Compiled lexicographic local search: raise the slowest job that can be raised, and repeat."""

import numpy as np

from codesign_base.array_kernels import copy_into
from codesign_base.arrays import Words
from codesign_base.jit import inner_kernel, kernel
from routing.clos.arrays_kernels import AssignmentSearch, Demand, State
from routing.clos.chase_kernels import (
    REFUSALS,
    SLACK,
    pursue,
    random_below,
    refused,
    room_of_groups,
)
from routing.clos.state_kernels import TIE, compare_sorted, fill_jobs, insert, is_live, rank, remove

STEP = 1e-6  # relative rise that is asked for; the filling then gives all that there is
DISPLACED = 128  # flows up to which a kick may displace flows at random


@kernel
def climb(budget: int, effort: int, demand: Demand, state: State, search: AssignmentSearch) -> None:
    """Improve the vector of speeds until no job can be raised or the budget is spent.

    A job at speed v is raised by asking for a little more than v for it and for every faster
    job, and for what they have for the others; if that fits, the sorted vector has improved.
    After a success twice as many jobs of a level are raised at once.

    Parameters
    ----------
    budget, effort : int
        Candidates to look at in all, and without progress in one attempt.
    """
    job_first, speed, spent = demand.job_first, state.speed, search.spent
    jobs = speed.size
    wanted = np.empty(jobs)
    stuck = np.zeros(jobs, dtype=np.bool_)
    raised = np.zeros(jobs, dtype=np.bool_)
    batch = 1
    progress = False
    while spent[0] < budget:
        level = 1.0 - TIE
        for number in range(jobs):
            if not stuck[number]:
                level = min(level, speed[number])
        if level >= 1.0 - TIE:
            if not progress:
                return
            stuck[:] = False  # another round, since something has changed
            progress = False
            continue
        # The smallest jobs of the level first: they are in the way of the fewest others.
        last = -1
        raised[:] = False
        for _ in range(batch):
            pick = -1
            for number in range(jobs):
                if stuck[number] or raised[number] or speed[number] > level * (1.0 + TIE):
                    continue
                size = job_first[number + 1] - job_first[number]
                if pick < 0 or size < job_first[pick + 1] - job_first[pick]:
                    pick = number
            if pick < 0:
                break
            raised[pick] = True
            last = pick
        for number in range(jobs):
            wanted[number] = speed[number]
            if raised[number] or speed[number] > level * (1.0 + TIE):
                wanted[number] = min(level * (1.0 + STEP), 1.0)
        if pursue(wanted, effort, budget - spent[0], demand, state, search):
            fill_jobs(demand, state)
            progress = True
            batch *= 2
        elif batch == 1:
            stuck[last] = True
        else:
            batch = 1


@inner_kernel
def displace(many: int, demand: Demand, state: State, search: AssignmentSearch) -> None:
    """Move so many flows, drawn at random, to live paths drawn at random."""
    for _ in range(many):
        flow = random_below(search.random, demand.weight.size)
        if state.chosen[flow] < 0:
            continue
        way = random_below(search.random, demand.paths.ways[demand.paths.kind[flow]])
        if is_live(flow, way, demand.paths):
            remove(flow, demand, state)
            insert(flow, way, demand, state)


@kernel
def exchange_places(
    budget: int, effort: int, demand: Demand, state: State, search: AssignmentSearch
) -> bool:
    """Let a slow job and a faster one, drawn at random, change places; say whether it worked.

    The slow job is asked to exceed its level, the faster one to keep to it. Which jobs are
    slow is what the climb alone cannot revise.
    """
    speed = state.speed
    slow = random_below(search.random, speed.size)
    fast = random_below(search.random, speed.size)
    if speed[slow] >= speed[fast] * (1.0 - TIE):
        slow, fast = fast, slow
    search.spent[0] += 20
    if speed[slow] >= speed[fast] * (1.0 - TIE):
        return False
    level = speed[slow]
    wanted = speed.copy()
    for number in range(speed.size):
        if speed[number] > level * (1.0 + TIE):
            wanted[number] = level * (1.0 + STEP)
    wanted[slow] = level * (1.0 + STEP)
    wanted[fast] = level
    return pursue(wanted, effort, budget - search.spent[0], demand, state, search)


@kernel
def cannot_rise(demand: Demand, state: State, search: AssignmentSearch) -> bool:
    """Say whether all jobs have one speed and counts rule out that any has more.

    No vector is better then: in a better one all jobs had this speed and one had more.
    """
    speed = state.speed
    if speed.max() > speed.min() * (1.0 + TIE):
        return False
    wanted = speed.copy()
    for number in range(speed.size):
        wanted[number] = speed[number] * (1.0 + STEP)
        if not refused(wanted, demand, state, search):
            return False
        wanted[number] = speed[number]
    return True


@kernel
def improve(
    budget: int, effort: int, kicks: int, demand: Demand, state: State, random: Words
) -> None:
    """Climb; then, while the budget lasts, displace a few flows and climb again, keeping the best.

    Parameters are those of `climb`; ``kicks`` bounds the repetitions.
    """
    chosen, speed, paths = state.chosen, state.speed, demand.paths
    flows, links = chosen.size, paths.capacity.size
    thresholds = np.zeros(REFUSALS)
    room = room_of_groups(paths, thresholds)
    spent = np.zeros(1, dtype=np.int32)
    search = AssignmentSearch(
        paths.capacity * (1.0 + SLACK),
        np.full(links, -1, dtype=np.int32),
        room,
        thresholds,
        np.empty_like(room),
        np.empty((2, flows), dtype=np.int32),
        np.empty((2, 4 * flows + 1000), dtype=np.int32),
        random,
        spent,
    )
    kept = chosen.copy()
    best_speed = speed.copy()
    best = np.full(speed.size, -1.0)
    found = np.empty(speed.size)
    for attempt in range(kicks + 1):
        if attempt > 0:
            if spent[0] >= budget or best[0] >= 1.0 - TIE:
                break
            if attempt == 1 and cannot_rise(demand, state, search):
                break
            exchanged = False
            if flows > DISPLACED or random_below(search.random, 2) == 0:
                exchanged = exchange_places(budget, effort, demand, state, search)
                if not exchanged and flows > DISPLACED:
                    continue
            if not exchanged:
                displace(1 + random_below(search.random, 1 + flows // 3), demand, state, search)
            spent[0] += flows + links // 4
            fill_jobs(demand, state)
        climb(budget, effort, demand, state, search)
        rank(speed, found)
        if compare_sorted(found, best, TIE) >= 0:  # walk along equally good assignments
            copy_into(best, found)
            copy_into(best_speed, speed)
            if kicks > 0:
                copy_into(kept, chosen)
            continue
        for flow in range(flows):
            if chosen[flow] != kept[flow]:
                remove(flow, demand, state)
                insert(flow, kept[flow], demand, state)
        copy_into(speed, best_speed)
