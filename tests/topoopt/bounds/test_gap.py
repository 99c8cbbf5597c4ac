"""The bounds of a wiring and of routes hold, and the gap's parts add up."""

import heapq

import numpy as np
import pytest
from fabric_cases import random_fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, family_of, jobs

from parallelism.builder import TaskGraphBuilder
from parallelism.longest_path_kernels import heads_and_tails
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.bounds.bounds import strategy_bound
from topoopt.bounds.critical import Least, Span, least_end, span_of
from topoopt.bounds.critical_kernels import busiest_span
from topoopt.bounds.gap import how, plan_bounds
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.fabric.simulation import score
from topoopt.problem.cluster import Cluster


@settings(max_examples=40, deadline=None)
@given(
    jobs(sizes=(1, 2, 3, 4, 6, 8)),
    st.integers(1, 3),
    st.sampled_from([30.0, 1e2, 1e3, 1e4, 1e6]),
    st.integers(0, 2**32 - 1),
)
def test_every_level_is_below_the_simulated_time(job, degree, bandwidth, seed):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=0.02), FakeServer(), servers, BATCH)
    fabric = random_fabric(servers, degree, bandwidth, np.random.default_rng(seed))
    tasks = builder.build(strategy)
    time = score(fabric, tasks)
    for bound in (topology_bound, routes_bound, collective_bound):
        assert bound(fabric, tasks).seconds <= time
    cluster = Cluster(servers, degree, f"{bandwidth}B/s")
    found = plan_bounds(family_of(builder), cluster, strategy, fabric, tasks, time)
    names = [part.name for part in found.parts]
    assert names == ["strategy", "topology", "routing", "collective", "scheduling"]
    assert len({how(name, "strategy") for name in names}) == 5
    assert all(part.seconds >= 0.0 for part in found.parts)
    total = found.everything.seconds + sum(part.seconds for part in found.parts)
    assert total == pytest.approx(time, rel=1e-12)


def heads_by_relaxation(length, through, edges):
    """Bellman's way: repeat until nothing changes."""
    count = len(length)
    head = [0.0] * count
    for _ in range(count + 1):
        fresh = [0.0] * count
        for task in range(count):
            before = [a for a, b in edges if b == task]
            sent = [a for a in before if through[a] > 0]
            fresh[task] = max([0.0, *(head[a] + length[a] for a in before)])
            if sent:
                enter = min(head[a] for a in sent) + sum(through[a] for a in sent)
                fresh[task] = max(fresh[task], enter)
        head = fresh
    return head


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_heads_and_tails_equal_a_relaxation(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    edges = [(a, b) for b in range(count) for a in range(b) if rng.random() < 0.3]
    length = rng.integers(0, 9, count).astype(float)
    through = np.where(rng.random(count) < 0.5, length, 0.0)
    tasks = TaskGraph.from_lists(
        1, [(TaskKind.COMPUTE, 0, -1, float(s), 0.0) for s in length], edges
    )
    head, tail = heads_and_tails(
        length,
        through,
        tasks.successor_offsets,
        tasks.successors,
        tasks.predecessors,
        np.zeros(0),
    )
    assert head.tolist() == heads_by_relaxation(length, through, edges)
    assert tail.tolist() == heads_by_relaxation(length, through, [(b, a) for a, b in edges])


def preemptive(uses):
    """Jackson's preemptive schedule of one machine: always what most follows, of what is ready."""
    waiting = sorted(uses)
    ready: list[list[float]] = []
    now, end = 0.0, 0.0
    while waiting or ready:
        if not ready:
            now = max(now, waiting[0][0])
        while waiting and waiting[0][0] <= now:
            _, seconds, late = waiting.pop(0)
            heapq.heappush(ready, [-late, seconds])
        late, seconds = ready[0]
        run = min(seconds, waiting[0][0] - now) if waiting else seconds
        now += run
        ready[0][1] -= run
        if ready[0][1] <= 1e-12:
            heapq.heappop(ready)
            end = max(end, now - late)
    return end


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_busiest_span_is_between_the_load_and_the_preemptive_schedule(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    early, seconds, late = rng.integers(0, 9, (3, count)).astype(float)
    resource = rng.integers(0, 3, count)
    everywhere = least_end(np.arange(count), resource, seconds, Span(early, late, 0.0), 3)
    order = np.lexsort((-late, -early, resource))
    one_way = busiest_span(order, resource, seconds, early, late, 3, 0.0)
    for name in range(3):
        own = order[resource[order] == name]
        sets = [own[: size + 1] for size in range(own.size)]
        ends = [early[s].min() + seconds[s].sum() + late[s].min() for s in sets]
        assert one_way[name] == max(ends, default=0.0)
    best = max(
        preemptive(list(zip(early[resource == r], seconds[resource == r], late[resource == r],
                            strict=True)))
        for r in set(resource.tolist())
    )  # fmt: skip
    assert one_way.max() <= everywhere <= best + 1e-9


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_order_in_which_uses_are_given_changes_no_bound(seed):
    """Nor does rounding of their times, by which uses that begin together may seem apart."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    early, seconds, late = rng.integers(0, 4, (3, count)).astype(float) * 1e-3
    resource = rng.integers(0, 2, count)

    def bound(order, noise=0.0):
        begin, follow = (
            times * (1.0 + noise * rng.integers(-1, 2, count)) for times in (early, late)
        )
        span = Span(begin[order], follow[order], 0.0)
        return least_end(np.arange(count), resource[order], seconds[order], span, 2)

    plain = bound(np.arange(count))
    for _ in range(4):
        assert bound(rng.permutation(count)) == pytest.approx(plain, rel=1e-13)
        assert bound(rng.permutation(count), noise=2e-16) == pytest.approx(plain, rel=1e-12)


def test_what_one_task_waits_for_enters_through_its_ports():
    # Two servers send 6 bytes each to server 0, which has one port of a byte a second.
    kinds = [(TaskKind.COMPUTE, v, -1, 1.0, 0.0) for v in (1, 2, 0)]
    moves = [(TaskKind.TRANSFER, v, 0, 6.0, 0.0) for v in (1, 2)]
    edges = [(0, 3), (1, 4), (3, 2), (4, 2)]
    tasks = TaskGraph.from_lists(3, [*kinds, *moves], edges)
    assert strategy_bound(tasks, 1, 1.0).terms["chain"] == 1 + 12 + 1
    # A task on another server than the transfers' target says nothing of its ports.
    other = TaskGraph.from_lists(3, [kinds[0], kinds[1], kinds[0], *moves], edges)
    assert strategy_bound(other, 1, 1.0).terms["chain"] == 1 + 6 + 1


def test_cycles_do_not_hang():
    tasks = TaskGraph.from_lists(1, [(TaskKind.COMPUTE, 0, -1, 1.0, 0.0)] * 2, [(0, 1), (1, 0)])
    zeros = np.zeros(2)
    assert span_of(tasks, Least(tasks.size, zeros, zeros)).chain == 1.0
