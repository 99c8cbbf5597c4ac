"""Compiled lexicographic local search: raise the slowest job that can be raised, and repeat."""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import kernel
from routing.clos.chase_kernels import draw, pursue, refused
from routing.clos.state_kernels import compare_sorted, fill_jobs, insert, rank, remove

Floats = npt.NDArray[np.float64]
SmallInts = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

STEP = 1e-6  # relative rise that is asked for; the filling then gives all that there is
TIE = 1e-9
DISPLACED = 128  # flows up to which a kick may displace flows at random


@kernel
def climb(
    budget: int,
    effort: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    ways: SmallInts,
    weight: Floats,
    job: SmallInts,
    job_first: SmallInts,
    job_flow: SmallInts,
    capacity: Floats,
    group: SmallInts,
    room: Floats,
    thresholds: Floats,
    asked: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
    speed: Floats,
    real: Floats,
    whole: SmallInts,
    limit: Floats,
    tabu: SmallInts,
    log: SmallInts,
    random: Words,
    spent: SmallInts,
) -> None:
    """Improve the vector of speeds until no job can be raised or the budget is spent.

    A job at speed v is raised by asking for a little more than v for it and for every faster
    job, and for what they have for the others; if that fits, the sorted vector has improved.
    After a success twice as many jobs of a level are raised at once.

    Parameters
    ----------
    budget, effort : int
        Candidates to look at in all, and without progress in one attempt.
    speed : float64 array, shape (jobs,)
        In and out: the speeds under the state.
    real, whole : work space, shape (2, links + 1) and (3, links + 1)
        Row 0 of ``whole`` is 0, row 2 is -1, on entry and return.
    """
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
        if pursue(
            wanted, effort, budget - spent[0], bits, base, kind, shift, ways, weight, job,
            capacity, group, room, thresholds, asked, chosen, at, head, after, before, load,
            real[0], limit, whole[1], whole[2], tabu, log, random, spent,
        ):  # fmt: skip
            fill_jobs(
                bits, weight, job, job_first, job_flow, at, head, after, load, capacity, speed,
                real, whole,
            )  # fmt: skip
            progress = True
            batch *= 2
        elif batch == 1:
            stuck[last] = True
        else:
            batch = 1


@kernel
def displace(
    many: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    ways: SmallInts,
    weight: Floats,
    capacity: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
    random: Words,
) -> None:
    """Move so many flows, drawn at random, to live paths drawn at random."""
    for _ in range(many):
        flow = draw(random, weight.size)
        if chosen[flow] < 0:
            continue
        way = draw(random, ways[kind[flow]])
        sound = True
        for slot in range(base.shape[1]):
            sound = sound and capacity[base[flow, slot] + shift[kind[flow], slot, way]] > 0.0
        if sound:
            remove(flow, bits, weight, chosen, at, head, after, before, load)
            insert(
                flow, way, bits, base, kind, shift, weight, chosen, at, head, after, before, load
            )


@kernel
def exchange(
    budget: int,
    effort: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    ways: SmallInts,
    weight: Floats,
    job: SmallInts,
    capacity: Floats,
    group: SmallInts,
    room: Floats,
    thresholds: Floats,
    asked: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
    speed: Floats,
    real: Floats,
    whole: SmallInts,
    limit: Floats,
    tabu: SmallInts,
    log: SmallInts,
    random: Words,
    spent: SmallInts,
) -> bool:
    """Let a slow job and a faster one, drawn at random, change places; say whether it worked.

    The slow job is asked to exceed its level, the faster one to keep to it. Which jobs are
    slow is what the climb alone cannot revise.
    """
    slow = draw(random, speed.size)
    fast = draw(random, speed.size)
    if speed[slow] >= speed[fast] * (1.0 - TIE):
        slow, fast = fast, slow
    spent[0] += 20
    if speed[slow] >= speed[fast] * (1.0 - TIE):
        return False
    level = speed[slow]
    wanted = speed.copy()
    for number in range(speed.size):
        if speed[number] > level * (1.0 + TIE):
            wanted[number] = level * (1.0 + STEP)
    wanted[slow] = level * (1.0 + STEP)
    wanted[fast] = level
    return pursue(
        wanted, effort, budget - spent[0], bits, base, kind, shift, ways, weight, job, capacity,
        group, room, thresholds, asked, chosen, at, head, after, before, load, real[0], limit,
        whole[1], whole[2], tabu, log, random, spent,
    )  # fmt: skip


@kernel
def cannot_rise(
    weight: Floats,
    job: SmallInts,
    group: SmallInts,
    chosen: SmallInts,
    room: Floats,
    thresholds: Floats,
    asked: Floats,
    speed: Floats,
) -> bool:
    """Say whether all jobs have one speed and counts rule out that any has more.

    No vector is better then: in a better one all jobs had this speed and one had more.
    """
    if speed.max() > speed.min() * (1.0 + TIE):
        return False
    wanted = speed.copy()
    for number in range(speed.size):
        wanted[number] = speed[number] * (1.0 + STEP)
        if not refused(wanted, weight, job, group, chosen, room, thresholds, asked):
            return False
        wanted[number] = speed[number]
    return True


@kernel
def improve(
    budget: int,
    effort: int,
    kicks: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    ways: SmallInts,
    weight: Floats,
    job: SmallInts,
    job_first: SmallInts,
    job_flow: SmallInts,
    capacity: Floats,
    group: SmallInts,
    room: Floats,
    thresholds: Floats,
    asked: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
    speed: Floats,
    real: Floats,
    whole: SmallInts,
    limit: Floats,
    tabu: SmallInts,
    log: SmallInts,
    random: Words,
    spent: SmallInts,
) -> None:
    """Climb; then, while the budget lasts, displace a few flows and climb again, keeping the best.

    Parameters are those of `climb`; ``kicks`` bounds the repetitions.
    """
    flows = weight.size
    kept = chosen.copy()
    best_speed = speed.copy()
    best = np.full(speed.size, -1.0)
    found = np.empty(speed.size)
    for attempt in range(kicks + 1):
        if attempt > 0:
            if spent[0] >= budget or best[0] >= 1.0 - TIE:
                break
            if attempt == 1 and cannot_rise(
                weight, job, group, chosen, room, thresholds, asked, speed
            ):
                break
            exchanged = False
            if flows > DISPLACED or draw(random, 2) == 0:
                exchanged = exchange(
                    budget, effort, bits, base, kind, shift, ways, weight, job, capacity, group,
                    room, thresholds, asked, chosen, at, head, after, before, load, speed, real,
                    whole, limit, tabu, log, random, spent,
                )  # fmt: skip
                if not exchanged and flows > DISPLACED:
                    continue
            if not exchanged:
                displace(
                    1 + draw(random, 1 + flows // 3), bits, base, kind, shift, ways, weight,
                    capacity, chosen, at, head, after, before, load, random,
                )  # fmt: skip
            spent[0] += flows + capacity.size // 4
            fill_jobs(
                bits, weight, job, job_first, job_flow, at, head, after, load, capacity, speed,
                real, whole,
            )  # fmt: skip
        climb(
            budget, effort, bits, base, kind, shift, ways, weight, job, job_first, job_flow,
            capacity, group, room, thresholds, asked, chosen, at, head, after, before, load, speed,
            real, whole, limit, tabu, log, random, spent,
        )  # fmt: skip
        rank(speed, found)
        if compare_sorted(found, best, TIE) >= 0:  # walk along equally good assignments
            best[:] = found
            best_speed[:] = speed
            if kicks > 0:
                kept[:] = chosen
            continue
        for flow in range(flows):
            if chosen[flow] != kept[flow]:
                remove(flow, bits, weight, chosen, at, head, after, before, load)
                insert(
                    flow, kept[flow], bits, base, kind, shift, weight, chosen, at, head, after,
                    before, load,
                )  # fmt: skip
        speed[:] = best_speed
