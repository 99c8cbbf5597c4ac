"""Gradients in buckets, and what servers send, as builders tell them: against the task graph."""

from weakref import ref

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, jobs
from small_plans import small_mlp

import topoopt as to
from parallelism.buckets import bucket_allreduces, different_buckets, packet_bucket
from parallelism.builder import TaskGraphBuilder
from parallelism.iterations import accumulate
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.taskgraph import TaskKind, traffic_of

ARRAYS = (
    "kind", "first", "second", "size", "delay", "operator", "phase", "part", "successor_offsets",
    "successors", "predecessors",
)  # fmt: skip


def fused_afterwards(tasks, packet):
    bucket = packet_bucket(tasks, packet)
    if bucket is None:
        return tasks
    return bucket_allreduces(tasks, bucket, -tasks.operator.astype(np.float64))[0]


@given(jobs(), st.floats(0.0, 1e4), st.booleans(), st.sampled_from((1, 2)))
@settings(max_examples=60, deadline=None)
def test_a_build_with_buckets_is_the_build_without_whose_gradients_are_fused(
    job, packet, with_update, microbatches
):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(with_update), FakeServer(), servers, BATCH)
    made = accumulate(builder.build(strategy, packet), microbatches)
    expected = fused_afterwards(accumulate(builder.build(strategy), microbatches), packet)
    assert made.groups == expected.groups
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(made, name), getattr(expected, name), name)


@given(jobs(), st.floats(0.0, 1e4))
@settings(max_examples=60, deadline=None)
def test_what_servers_send_is_told_without_tasks(job, packet):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    load = builder.port_load(strategy, packet)
    tasks = builder.build(strategy, packet)
    traffic = traffic_of(tasks)
    out, into = traffic.transfers.sum(axis=1), traffic.transfers.sum(axis=0)
    rings = np.zeros(servers)
    for group, amount in zip(traffic.groups, traffic.group_bytes, strict=True):
        rings[list(group)] += 2 * (len(group) - 1) / len(group) * amount
    assert load.tasks == tasks.tasks
    assert load.transfers == np.count_nonzero(tasks.kind == TaskKind.TRANSFER)
    np.testing.assert_allclose(load.sent, out + rings, rtol=1e-12)
    np.testing.assert_allclose(load.sent, into + rings, rtol=1e-12)


def test_the_graph_that_was_built_last_is_shared_while_anyone_has_it():
    family = to.Job(small_mlp()).family(2)
    space = StrategySpace(family.builder.graph, 2, family.batch)
    one, other = list(named_strategies(space).values())[:2]
    kept = family.represented(one)
    assert family.represented(one) is kept
    assert family.represented(other) is not kept
    again = family.represented(one)
    assert again is not kept
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(kept, name), name)
    last = ref(again)
    del again
    assert last() is None


@given(jobs(), st.lists(st.floats(1.0, 1e6), min_size=1, max_size=4), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_other_sizes_fill_the_same_buckets_as_one_before_or_none(job, sizes, seed):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    tasks = builder.build(strategy)
    ready = np.random.default_rng(seed).permutation(tasks.tasks).astype(np.float64)
    place = {size: bucket_allreduces(tasks, size, ready)[1].tobytes() for size in sizes}
    alone = np.arange(tasks.tasks).tobytes()
    first = {}
    for size in sizes:
        if place[size] != alone:
            first.setdefault(place[size], size)
    assert different_buckets(tasks, sizes, ready) == list(first.values())
