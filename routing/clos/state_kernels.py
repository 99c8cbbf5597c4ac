"""Compiled state of an assignment: loads, the flows on each link, and the filling of jobs."""

from codesign_base.arrays import Floats, SmallInts
from codesign_base.jit import inner_kernel, kernel
from routing.clos.arrays_kernels import ClosPaths, Demand, State

TIE = 1e-9
"""Share by which speeds may differ and count as equal."""

LEVEL = 1e-12  # relative width of a level of the filling: what rounding can tell apart


@inner_kernel
def insert(flow: int, way: int, demand: Demand, state: State) -> None:
    """Put a flow that is nowhere on a path (-1: on none)."""
    base, shift, weight = demand.paths.base, demand.paths.shift, demand.weight
    at, head, after, before = state.at, state.head, state.after, state.before
    state.chosen[flow] = way
    row = demand.paths.kind[flow]
    for slot in range(base.shape[1]):
        link = head.size - 1
        if way >= 0:
            link = base[flow, slot] + shift[row, slot, way]
        node = (flow << demand.bits) + slot
        at[node] = link
        if link == head.size - 1:
            continue
        state.load[link] += weight[flow]
        follower = head[link]
        after[node] = follower
        before[node] = -1
        if follower >= 0:
            before[follower] = node
        head[link] = node


@inner_kernel
def is_live(flow: int, way: int, paths: ClosPaths) -> bool:
    """Say whether all links of a path have capacity."""
    for slot in range(paths.base.shape[1]):
        if paths.capacity[paths.base[flow, slot] + paths.shift[paths.kind[flow], slot, way]] <= 0.0:
            return False
    return True


@inner_kernel
def remove(flow: int, demand: Demand, state: State) -> None:
    """Take a flow off its path."""
    at, head, after, before = state.at, state.head, state.after, state.before
    load = state.load
    state.chosen[flow] = -1
    for node in range(flow << demand.bits, (flow + 1) << demand.bits):
        link = at[node]
        at[node] = head.size - 1
        if link == head.size - 1:
            continue
        load[link] -= demand.weight[flow]
        follower, leader = after[node], before[node]
        if follower >= 0:
            before[follower] = leader
        if leader >= 0:
            after[leader] = follower
        else:
            head[link] = follower
            if follower < 0:
                load[link] = 0.0  # no rounding is left behind on an empty link


@inner_kernel
def fill_jobs(demand: Demand, state: State) -> None:
    """Raise all jobs together up to 1; freeze a job when a link that it uses saturates.

    Links whose load is within their capacity never saturate below 1 and are left out.
    """
    bits, capacity, weight, job = demand.bits, demand.paths.capacity, demand.weight, demand.job
    job_first, job_flow = demand.job_first, demand.job_flow
    at, head, after, load, speed = state.at, state.head, state.after, state.load, state.speed
    used, rising, open_, hot = state.use, state.rising, state.open, state.listed
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


@inner_kernel
def rank(values: Floats, ranked: Floats) -> None:
    """Write the values in ascending order (insertion: vectors of jobs are short)."""
    for i in range(values.size):
        value = values[i]
        place = i
        while place > 0 and ranked[place - 1] > value:
            ranked[place] = ranked[place - 1]
            place -= 1
        ranked[place] = value


@inner_kernel
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
def build_state(ways_chosen: SmallInts, demand: Demand, state: State) -> None:
    """Set the state to the given paths, and fill the jobs."""
    state.head[:] = -1
    state.load[:] = 0.0
    for flow in range(ways_chosen.size):
        insert(flow, ways_chosen[flow], demand, state)
    fill_jobs(demand, state)
