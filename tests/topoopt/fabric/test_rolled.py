"""Collectives written out as rounds of messages are recognised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric.rolled import rolled
from topoopt.fabric.unrolled import unrolled

KINDS = (TaskKind.ALLREDUCE, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER)


@st.composite
def iterations(draw):
    """Chains of compute, transfers and collectives over some servers, with the groups' rings."""
    servers = draw(st.integers(2, 6))
    groups = tuple(
        draw(
            st.lists(
                st.sets(st.integers(0, servers - 1), min_size=1).map(lambda g: tuple(sorted(g))),
                min_size=1, max_size=3, unique=True,
            )
        )
    )  # fmt: skip
    rings = {}
    for group in groups:
        orders = [(group[0], *draw(st.permutations(group[1:])))]
        orders += [(o[0], *reversed(o[1:])) for o in orders if draw(st.booleans())]
        rings[group] = tuple(orders)
    rows, edges = [], []
    for _ in range(draw(st.integers(1, 4))):
        begin = len(rows)
        rows.append((TaskKind.COMPUTE, draw(st.integers(0, servers - 1)), -1, 1e-3, 0.0))
        number = draw(st.integers(0, len(groups) - 1))
        group = groups[number]
        # A message of whole bytes, as in files.
        size = draw(st.integers(1, 9)) * 1000.0 * len(group) * len(rings[group])
        delay = draw(st.sampled_from((0.0, 1e-4)))
        rows.append((draw(st.sampled_from(KINDS)), number, -1, size, delay))
        edges.append((begin, begin + 1))
        if draw(st.booleans()):
            source = draw(st.integers(0, servers - 1))
            rows.append((TaskKind.TRANSFER, source, (source + 1) % servers, 5e3, 0.0))
            edges.append((begin, begin + 2))
        if draw(st.booleans()):
            rows.append((TaskKind.COMPUTE, group[0], -1, 2e-3, 0.0))
            edges += [(e, len(rows) - 1) for e in range(begin, len(rows) - 1)]
    return TaskGraph.from_lists(servers, rows, edges, groups), rings


@settings(max_examples=60, deadline=None)
@given(iterations())
def test_what_was_written_out_is_found_again(case):
    tasks, rings = case
    found = rolled(unrolled(tasks, rings))
    assert found.tasks.tasks == tasks.tasks
    assert found.place.tolist() == list(range(tasks.tasks))
    assert found.tasks.size == pytest.approx(tasks.size)
    assert found.tasks.delay == pytest.approx(tasks.delay)
    for name in ("successor_offsets", "successors", "predecessors"):
        assert np.array_equal(getattr(found.tasks, name), getattr(tasks, name))
    for task in range(tasks.tasks):
        if not tasks.collective[task]:
            assert found.tasks.kind[task] == tasks.kind[task]
            continue
        group = tasks.groups[tasks.first[task]]
        assert found.tasks.groups[found.tasks.first[task]] == group
        if len(group) > 1:
            assert found.tasks.passes[task] == tasks.passes[task]
            given_orders = sorted(rings[group])
            assert sorted(found.rings[group]) == given_orders


def spoiled(change):
    """Return an AllReduce over three servers in rounds, with one thing changed."""
    group = (0, 1, 2)
    tasks = TaskGraph.from_lists(3, [(TaskKind.ALLREDUCE, 0, -1, 9e5, 0.0)], [], (group,))
    written = unrolled(tasks, {group: (group,)})
    assert rolled(written).tasks.tasks == 1
    moves = np.flatnonzero(written.kind == TaskKind.TRANSFER)
    return change(written, moves)


def larger(tasks, moves):
    size = tasks.size.copy()
    size[moves[-1]] *= 2
    return replace(tasks, size=size)


def elsewhere(tasks, moves):
    second = tasks.second.copy()
    second[moves[-1]] = (tasks.first[moves[-1]] + 2) % 3
    return replace(tasks, second=second)


def late(tasks, moves):
    """The end of a round takes time."""
    ends = np.flatnonzero(tasks.collective)[1:]
    delay = tasks.delay.copy()
    delay[ends] = 1e-3
    return replace(tasks, delay=delay)


@pytest.mark.parametrize("change", [larger, elsewhere, late])
def test_other_messages_stay_messages(change):
    tasks = spoiled(change)
    assert rolled(tasks).tasks is tasks
