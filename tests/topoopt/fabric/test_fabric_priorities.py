"""Priorities on devices and links: against the plain-Python event loop, and by hand."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from fabric_oracle import simulate_plainly, star
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fabric_oracle import case

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric import PACKETS, score, simulate
from topoopt.fabric.fluid import run_fluid

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def prioritised(seed, levels=3):
    fabric, tasks = case(seed)
    rng = np.random.default_rng(seed + 1)
    return fabric, replace(tasks, priority=rng.integers(0, levels, tasks.tasks))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_equals_the_oracle(seed):
    fabric, tasks = prioritised(seed)
    timeline, expected = simulate(fabric, tasks), simulate_plainly(fabric, tasks)
    np.testing.assert_allclose(timeline.start, expected.start, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(timeline.finish, expected.finish, rtol=1e-8, atol=1e-9)
    assert expected.most_used <= 1 + 1e-9
    full = run_fluid(fabric, tasks, collapsed=True)
    np.testing.assert_allclose(full.finish, timeline.finish, rtol=1e-8, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["fluid", "packet"]))
def test_equal_priorities_are_none(seed, model):
    fabric, tasks = case(seed)
    if model == "packet":
        fabric = replace(fabric, transport=PACKETS)
    equal = replace(tasks, priority=np.full(tasks.tasks, 7))
    plain, other = simulate(fabric, tasks, model=model), simulate(fabric, equal, model=model)
    assert plain.finish.tolist() == other.finish.tolist()
    assert plain.binding.tolist() == other.binding.tolist()


def two_flows():
    """Two transfers out of server 0, of 2 and 4 bytes, over its link of 1 byte/s."""
    return TaskGraph.from_lists(3, [(T, 0, 1, 2.0, 0.0), (T, 0, 2, 4.0, 0.0)], [])


@pytest.mark.parametrize(
    ("priority", "finish"), [(None, [4.0, 6.0]), ([1, 0], [6.0, 4.0]), ([0, 1], [2.0, 6.0])]
)
def test_a_level_waits_for_the_one_before(priority, finish):
    tasks = replace(two_flows(), priority=None if priority is None else np.array(priority))
    assert simulate(star(3), tasks).finish.tolist() == pytest.approx(finish)


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_every_order_of_a_device_and_its_best(model):
    """Three computations, each followed by a transfer of its own: longest transfer first."""
    sent = [1e4, 9e5, 4e5]
    tasks = [(C, 0, -1, 1e-3, 0.0)] * 3 + [(T, 0, 1 + i, sent[i], 0.0) for i in range(3)]
    graph = TaskGraph.from_lists(4, tasks, [(i, 3 + i) for i in range(3)])
    fabric = star(4, capacity=1e9, transport=PACKETS)
    times = {}
    for order in permutations(range(3)):
        given_ = replace(graph, priority=np.array([*order, 0, 0, 0]))
        run = simulate(fabric, given_, model=model)
        assert np.argsort(run.start[:3]).tolist() == np.argsort(order).tolist()
        times[order] = run.makespan
    # The link is free when each ends but the last, so the shortest transfer comes last.
    assert min(times, key=lambda order: times[order])[0] == 2
    assert times[2, 0, 1] == min(times.values()) < times[0, 1, 2]


def test_trains_refuse_priorities_among_messages():
    tasks = replace(two_flows(), priority=np.array([0, 1]))
    with pytest.raises(InputError, match="2 priorities"):
        score(star(3, transport=PACKETS), tasks, model="packet")
