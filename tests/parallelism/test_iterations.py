"""Buckets, microbatches and iterations in a row against plain loops over tasks."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, jobs

from codesign_base import InputError
from parallelism.buckets import bucket_allreduces, packet_bucket
from parallelism.builder import TaskGraphBuilder
from parallelism.iterations import accumulate, carried_edges, unroll
from parallelism.taskgraph import Phase, TaskGraph, TaskKind, edges_of, traffic_of

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def pairs(tasks):
    return set(zip(*(side.tolist() for side in edges_of(tasks)), strict=True))


def built(job, with_update=True):
    graph, strategy, servers = job
    compute = FakeCompute(with_update)
    return TaskGraphBuilder(graph, compute, FakeServer(), servers, BATCH).build(strategy)


def syncs_of(tasks):
    return [t for t in range(tasks.tasks) if tasks.kind[t] == A]


def hand_made():
    """Four gradients of one group and one of another, each after its backward pass."""
    tasks = [(C, 0, -1, 1.0, 0.0)] * 5
    tasks += [(A, 0, -1, size, 0.25) for size in (4.0, 3.0, 2.0, 9.0)] + [(A, 1, -1, 1.0, 0.0)]
    tasks += [(C, 0, -1, 0.5, 0.0)] * 5
    edges = [(i, 5 + i) for i in range(5)] + [(5 + i, 10 + i) for i in range(5)]
    graph = TaskGraph.from_lists(3, tasks, edges, ((0, 1), (1, 2)))
    phase = [Phase.BACKWARD] * 5 + [Phase.SYNCHRONISE] * 5 + [Phase.UPDATE] * 5
    return replace(graph, phase=np.array(phase, dtype=np.int64), operator=np.arange(15) % 5)


def test_buckets_by_hand():
    tasks = hand_made()
    # Ready in the order 7, 5, 6, 8: 2 + 4 bytes fill a bucket of 5, then 3 + 9 another.
    ready = np.zeros(tasks.tasks)
    ready[[7, 5, 6, 8, 9]] = [1.0, 2.0, 3.0, 4.0, 0.0]
    fused, place = bucket_allreduces(tasks, 5.0, ready)
    found = {
        (int(fused.first[t]), float(fused.size[t]), float(fused.delay[t])) for t in syncs_of(fused)
    }
    assert found == {(0, 6.0, 0.5), (0, 12.0, 0.5), (1, 1.0, 0.0)}
    assert place[5] == place[7] != place[6] == place[8]
    assert fused.tasks == tasks.tasks - 2
    assert pairs(fused) == {(place[a], place[b]) for a, b in pairs(tasks)}
    assert fused.predecessors[place[5]] == 2


def test_ends_of_rounds_are_no_gradients():
    """They have no bytes, and messages wait for them: in one bucket they would wait in a circle."""
    tasks = [(A, 0, -1, 0.0, 0.0), (T, 0, 1, 4.0, 0.0)] * 3
    chain = TaskGraph.from_lists(2, tasks, [(t, t + 1) for t in range(5)], ((0,),))
    chain = replace(chain, phase=np.full(6, int(Phase.SYNCHRONISE)))
    fused, place = bucket_allreduces(chain, 1.0, np.arange(6.0))
    assert place.tolist() == list(range(6)) and pairs(fused) == pairs(chain)


@given(jobs(), st.floats(0.0, 1e5))
@settings(max_examples=40, deadline=None)
def test_a_bucket_is_a_packet_for_each_member_of_the_largest_group_that_is_short(job, packet):
    tasks = built(job)
    groups = [tasks.groups[tasks.first[t]] for t in syncs_of(tasks)]
    sizes = [float(tasks.size[t]) for t in syncs_of(tasks)]
    short = [
        len(group) * packet
        for group, size in zip(groups, sizes, strict=True)
        if len(group) > 1 and 0 < size / len(group) < packet
    ]
    bucket = packet_bucket(tasks, packet)
    assert bucket == (pytest.approx(max(short)) if short else None)


@given(jobs(), st.floats(1.0, 1e5), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_buckets_move_the_same_bytes_after_the_same_tasks(job, size, seed):
    tasks = built(job)
    ready = np.random.default_rng(seed).uniform(size=tasks.tasks)
    fused, place = bucket_allreduces(tasks, size, ready)
    before, after = traffic_of(tasks), traffic_of(fused)
    assert dict(zip(before.groups, before.group_bytes, strict=True)) == pytest.approx(
        dict(zip(after.groups, after.group_bytes, strict=True))
    )
    np.testing.assert_array_equal(before.transfers, after.transfers)
    assert pairs(fused) == {(place[a], place[b]) for a, b in pairs(tasks)}
    short = [int(fused.first[t]) for t in syncs_of(fused) if fused.size[t] < size]
    assert len(short) == len(set(short))  # at most the last of each group
    order = np.argsort([ready[t] for t in syncs_of(tasks)], kind="stable")
    for group in range(len(tasks.groups)):
        # Each bucket is a run of its group's gradients in order of readiness.
        own = [place[syncs_of(tasks)[i]] for i in order if tasks.first[syncs_of(tasks)[i]] == group]
        runs = [t for t, before in zip(own, [-1, *own], strict=False) if t != before]
        assert len(runs) == len(set(runs))


@given(jobs(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_microbatches_repeat_all_but_reductions_and_updates(job, count):
    tasks = built(job)
    many = accumulate(tasks, count)
    once = (tasks.kind == A) | ((tasks.kind == C) & (tasks.phase == Phase.UPDATE))

    def name(graph, t):
        fields = (graph.kind, graph.phase, graph.operator, graph.part, graph.first, graph.second)
        return tuple(int(field[t]) for field in fields)

    # Several gradient transfers may go to one part: its copies are blocks of as many.
    alike = Counter(name(tasks, t) for t in range(tasks.tasks))
    seen = Counter()
    names = []
    for t in range(many.tasks):
        own = name(many, t)
        names.append((own, seen[own] // alike[own]))
        seen[own] += 1
    expected = Counter(
        ((name(tasks, a), 0 if once[a] else i), (name(tasks, b), 0 if once[b] else i))
        for a, b in pairs(tasks)
        for i in range(1 if once[a] and once[b] else count)
    )
    assert Counter((names[a], names[b]) for a, b in pairs(many)) == expected
    assert many.tasks == count * int((~once).sum()) + int(once.sum())


@given(jobs(), st.booleans(), st.integers(1, 3), st.integers(1, 2))
@settings(max_examples=30, deadline=None)
def test_iterations_in_a_row_wait_for_their_weights(job, with_update, count, microbatches):
    tasks = accumulate(built(job, with_update), microbatches)
    carried = set()
    kinds = range(tasks.tasks)
    for f in kinds:
        if tasks.kind[f] != C or tasks.phase[f] != Phase.FORWARD:
            continue
        same = [t for t in kinds if tasks.operator[t] == tasks.operator[f]]
        part = [t for t in same if tasks.part[t] == tasks.part[f] and tasks.kind[t] == C]
        reduces = [t for t in same if tasks.kind[t] == A]
        shards = 1 + max((int(tasks.part[t]) for t in reduces), default=0)
        waits = (
            [t for t in part if tasks.phase[t] == Phase.UPDATE]
            or [t for t in reduces if tasks.part[t] == tasks.part[f] % shards]
            or [t for t in part if tasks.phase[t] == Phase.BACKWARD]
        )
        carried |= {(t, f) for t in waits}
    closing, opening = carried_edges(tasks)
    assert set(zip(closing.tolist(), opening.tolist(), strict=True)) == carried
    many = unroll(tasks, count)
    n = tasks.tasks
    assert pairs(many) == {
        (a + i * n, b + i * n) for a, b in pairs(tasks) for i in range(count)
    } | {(a + i * n, b + (i + 1) * n) for a, b in carried for i in range(count - 1)}


def test_what_cannot_be_is_refused():
    tasks = hand_made()
    for size in (0.0, -1.0):
        with pytest.raises(InputError, match="positive size"):
            bucket_allreduces(tasks, size, np.zeros(tasks.tasks))
    with pytest.raises(InputError, match="microbatches is 0"):
        accumulate(tasks, 0)
    with pytest.raises(InputError, match="iterations is 0"):
        unroll(tasks, 0)
    lone = TaskGraph.from_lists(1, [(C, 0, -1, 1.0, 0.0)], [])
    with pytest.raises(InputError, match="no backward pass"):
        carried_edges(lone)
