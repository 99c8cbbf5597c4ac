"""Compiled state of an assignment: loads, the flows on each link, and the filling of jobs.

Node ``(flow << bits) + slot`` stands for a flow on the link of one slot of its path; the nodes
of a link form a doubly linked list, so that moving a flow costs the same however many there are.
"""

import numpy as np
import numpy.typing as npt

from codesign_base.jit import kernel

Floats = npt.NDArray[np.float64]
SmallInts = npt.NDArray[np.int32]

LEVEL = 1e-12  # relative width of a level of the filling: what rounding can tell apart


@kernel
def insert(
    flow: int,
    way: int,
    bits: int,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    weight: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
) -> None:
    """Put a flow that is nowhere on a path (-1: on none)."""
    chosen[flow] = way
    row = kind[flow]
    for slot in range(base.shape[1]):
        link = head.size - 1
        if way >= 0:
            link = base[flow, slot] + shift[row, slot, way]
        node = (flow << bits) + slot
        at[node] = link
        if link == head.size - 1:
            continue
        load[link] += weight[flow]
        follower = head[link]
        after[node] = follower
        before[node] = -1
        if follower >= 0:
            before[follower] = node
        head[link] = node


@kernel
def remove(
    flow: int,
    bits: int,
    weight: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
) -> None:
    """Take a flow off its path."""
    chosen[flow] = -1
    for slot in range(1 << bits):
        node = (flow << bits) + slot
        link = at[node]
        at[node] = head.size - 1
        if link == head.size - 1:
            continue
        load[link] -= weight[flow]
        follower, leader = after[node], before[node]
        if follower >= 0:
            before[follower] = leader
        if leader >= 0:
            after[leader] = follower
        else:
            head[link] = follower
            if follower < 0:
                load[link] = 0.0  # no rounding is left behind on an empty link


@kernel
def fill_jobs(
    bits: int,
    weight: Floats,
    job: SmallInts,
    job_first: SmallInts,
    job_flow: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    load: Floats,
    capacity: Floats,
    speed: Floats,
    real: Floats,
    whole: SmallInts,
) -> None:
    """Raise all jobs together up to 1; freeze a job when a link that it uses saturates.

    Links whose load is within their capacity never saturate below 1 and are left out.

    Parameters
    ----------
    bits : int
        Logarithm of the number of slots.
    weight, job : arrays, shape (flows,)
    job_first : int32 array, shape (jobs + 1,)
        Flows ``job_flow[job_first[j] : job_first[j + 1]]`` are those of job j.
    at, head, after, load
        The state.
    capacity : float64 array, shape (links + 1,)
    speed : float64 array, shape (jobs,)
        Out: the jobs' speeds; a negative one marks a job that rises.
    real : float64 array, shape (2, links + 1)
    whole : int32 array, shape (2, links + 1)
        Row 0 is zero on entry and on return.
    """
    used, rising = real[0], real[1]
    open_, hot = whole[0], whole[1]
    speed[:] = -1.0
    count = 0
    for link in range(capacity.size - 1):
        if load[link] > capacity[link] * (1.0 + LEVEL):
            hot[count] = link
            count += 1
            used[link] = 0.0
            rising[link] = load[link]
            node = head[link]
            while node >= 0:
                open_[link] += 1
                node = after[node]
    while count > 0:
        level = 1.0
        kept = 0
        for i in range(count):
            link = hot[i]
            if open_[link] == 0:
                continue
            hot[kept] = link
            kept += 1
            level = min(level, (capacity[link] - used[link]) / rising[link])
        count = kept
        level = max(level, 0.0)
        if level >= 1.0 or count == 0:
            break
        for i in range(count):
            link = hot[i]
            share = 1.0
            if open_[link] > 0:
                share = (capacity[link] - used[link]) / rising[link]
            if share > level * (1.0 + LEVEL):
                continue
            node = head[link]
            while node >= 0:
                number = job[node >> bits]
                node = after[node]
                if speed[number] >= 0.0:
                    continue
                speed[number] = level
                for place in range(job_first[number], job_first[number + 1]):
                    flow = job_flow[place]
                    for other in range(flow << bits, (flow + 1) << bits):
                        to = at[other]
                        if open_[to] > 0:
                            open_[to] -= 1
                            used[to] += weight[flow] * level
                            rising[to] -= weight[flow]
    for i in range(count):
        open_[hot[i]] = 0
    for number in range(speed.size):
        if speed[number] < 0.0:
            speed[number] = 1.0


@kernel
def rank(values: Floats, ranked: Floats) -> None:
    """Write the values in ascending order (insertion: vectors of jobs are short)."""
    for i in range(values.size):
        value = values[i]
        place = i
        while place > 0 and ranked[place - 1] > value:
            ranked[place] = ranked[place - 1]
            place -= 1
        ranked[place] = value


@kernel
def compare_sorted(left: Floats, right: Floats, tolerance: float) -> int:
    """Return 1, 0 or -1 as the left ascending vector is better, equal or worse."""
    for i in range(left.size):
        width = tolerance * max(abs(left[i]), abs(right[i]))
        if left[i] > right[i] + width:
            return 1
        if left[i] < right[i] - width:
            return -1
    return 0


@kernel
def build_state(
    bits: int,
    ways_chosen: SmallInts,
    base: SmallInts,
    kind: SmallInts,
    shift: SmallInts,
    weight: Floats,
    chosen: SmallInts,
    at: SmallInts,
    head: SmallInts,
    after: SmallInts,
    before: SmallInts,
    load: Floats,
) -> None:
    """Set the state to the given paths."""
    head[:] = -1
    load[:] = 0.0
    none = head.size - 1
    # As `insert`, written out: a call for every flow takes twice the time.
    for flow in range(ways_chosen.size):
        way = ways_chosen[flow]
        chosen[flow] = way
        row = kind[flow]
        for slot in range(base.shape[1]):
            node = (flow << bits) + slot
            if way < 0:
                at[node] = none
                continue
            link = base[flow, slot] + shift[row, slot, way]
            at[node] = link
            if link == none:
                continue
            load[link] += weight[flow]
            follower = head[link]
            after[node] = follower
            before[node] = -1
            if follower >= 0:
                before[follower] = node
            head[link] = node


@kernel
def group_jobs(job: SmallInts, first: SmallInts, member: SmallInts) -> None:
    """Sort flows by job: ``member[first[j] : first[j + 1]]`` are those of job j, in order."""
    first[:] = 0
    for flow in range(job.size):
        first[job[flow] + 1] += 1
    for number in range(first.size - 1):
        first[number + 1] += first[number]
    for flow in range(job.size):
        member[first[job[flow]]] = flow
        first[job[flow]] += 1
    for number in range(first.size - 1, 0, -1):
        first[number] = first[number - 1]
    first[0] = 0
