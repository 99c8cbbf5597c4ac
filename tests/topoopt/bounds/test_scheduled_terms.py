"""Bounds over all strategies of iterations that a schedule cuts or overlaps."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from fabric_cases import random_fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, concat_jobs, family_of, jobs, operator

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph
from parallelism.search.space import legal_degrees
from parallelism.strategy import OperatorConfig, Strategy
from topoopt.bounds.bounds import scheduled_bound
from topoopt.bounds.relaxation import Wirings, operator_degrees
from topoopt.bounds.scheduled_terms import microbatch_terms, steady_terms
from topoopt.bounds.space_terms import all_choices
from topoopt.bounds.tradeoff import values
from topoopt.evaluate.scheduling import simulate_schedule
from topoopt.problem.schedule import Schedule

LAG = 2e-6
SCHEDULES = [
    Schedule(overlap, compute, network, bucket, count)
    for overlap, compute, network, bucket, count in product(
        ("barrier", "next-forward"), ("ready", "critical-path"), ("fair", "transfers-first"),
        (None, 5e3), (1, 2, 4),
    )
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.one_of(jobs(sizes=(1, 2, 3, 4, 6, 8)), concat_jobs()),
    st.sampled_from(SCHEDULES),
    st.integers(1, 3),
    st.sampled_from([1e2, 1e3, 1e4, 1e6]),
    st.sampled_from([0.0, 0.05]),
    st.integers(0, 2**32 - 1),
)
def test_every_term_is_below_every_schedule_of_a_strategy(
    job, schedule, degree, bandwidth, fixed, seed
):
    graph, strategy, servers = job
    count = schedule.microbatches
    if any(BATCH % (count * config.sample) for config in strategy.configs):
        schedule, count = replace(schedule, microbatches=1), 1
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=fixed), FakeServer(), servers, BATCH)
    tasks = family_of(builder).microbatched(strategy, count)
    fabric = random_fabric(servers, degree, bandwidth, np.random.default_rng(seed))
    time = simulate_schedule(fabric, tasks, schedule).time
    small = builder.of_microbatch(count)
    wirings = Wirings(servers, degree, bandwidth, LAG)
    choices, path = all_choices(small, wirings)
    places = [
        operator_degrees(small, small.representatives[index], float("inf")).index(
            (c.sample, c.parameter, c.mode if c.parameter > 1 else Mode.OUTPUT)
        )
        for index, c in enumerate(strategy.configs)
    ]
    terms = steady_terms(graph, path, count)
    if not schedule.streaming:
        terms = microbatch_terms(graph, choices, path, count)
    for name, value in zip(terms.names, values(choices, terms, places), strict=True):
        assert value <= time * (1 + 1e-9), name


def two_layers(servers=2):
    """Two layers of one and two seconds forward, whose samples alone can be split."""
    ops = (operator("a", [], 3000), operator("b", [0], 6000))
    graph = ModelGraph("two", tuple(replace(op, splits=()) for op in ops), 1)
    return TaskGraphBuilder(graph, FakeCompute(False), FakeServer(1), servers, BATCH)


@pytest.mark.parametrize("schedule", [Schedule(microbatches=2), Schedule("next-forward")])
def test_the_bound_is_below_every_strategy_and_near_the_best(schedule):
    builder = two_layers()
    family, steady = family_of(builder), schedule.streaming
    places = [(0,), (1,), (0, 1)]
    times = []
    for a, b in product(places, repeat=2):
        strategy = Strategy(tuple(OperatorConfig(len(at), 1, Mode.OUTPUT, at) for at in (a, b)))
        tasks = family.microbatched(strategy, schedule.microbatches)
        fabric = random_fabric(2, 1, 1e4, np.random.default_rng(0))
        times.append(simulate_schedule(fabric, tasks, schedule).time)
    bound = scheduled_bound(builder, Wirings(2, 1, 1e4, LAG), schedule.microbatches, steady=steady)
    assert 0.6 * min(times) <= bound.seconds <= min(times)
    # What resources do alone says less.
    assert bound.terms["trade-off"] > 1.01 * bound.terms["compute"]


def test_given_weights_are_evaluated_and_wrong_ones_refused():
    builder, wirings = two_layers(), Wirings(2, 1, 1e4, LAG)
    found = scheduled_bound(builder, wirings, 2)
    again = scheduled_bound(builder, wirings, 2, weights=found.weights)
    assert again.seconds == pytest.approx(found.seconds, rel=1e-12)
    assert scheduled_bound(builder, wirings, 2, weights={"compute": 1.0}).seconds <= found.seconds
    with pytest.raises(InputError, match="turn of a"):
        scheduled_bound(builder, wirings, 2, weights={"turn of a": 1.0})


def test_rings_follow_the_work_of_all_samples():
    # One layer after another, split by columns: of a column's AllReduce all of the layer that
    # follows is waited for, and of its own layer one shard.
    ops = tuple(operator(name, inputs, 1000) for name, inputs in (("a", []), ("b", [0])))
    graph = ModelGraph("columns", ops, 1)
    builder = TaskGraphBuilder(graph, FakeCompute(False), FakeServer(1), 4, BATCH)
    assert (2, 2, Mode.OUTPUT) in legal_degrees(ops[0], 4, BATCH)
    wirings = Wirings(4, 1, 1e3)
    choices, path = all_choices(builder, wirings)
    at = [operator_degrees(builder, i, float("inf")).index((2, 2, Mode.OUTPUT)) for i in (0, 1)]
    terms = microbatch_terms(graph, choices, path, 1)
    value = dict(zip(terms.names, values(choices, terms, at), strict=True))
    # Both take 4 s of device time forward for 1 and 2 units of work over 4 devices, and twice
    # that back; the ring of the first layer sends 2 x 4,000 bytes at 4 kB/s.
    ring = 2.0 * 4000.0 / 4e3
    assert value["rings after work of a"] == pytest.approx(0.5 * (0.25 + 0.5) + 0.5 + 1.0 + ring)
