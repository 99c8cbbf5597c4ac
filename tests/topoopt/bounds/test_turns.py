"""Turns of operators: against every path of the task graph, and in the bounds of overlap."""

from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, jobs, operator

from parallelism.buckets import bucket_allreduces
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph
from parallelism.iterations import carried_edges
from parallelism.strategy import OperatorConfig, Strategy
from parallelism.taskgraph import TaskKind, edges_of
from topoopt.bounds.bounds import scheduled_bound, strategy_bound
from topoopt.bounds.critical import Least, span_of
from topoopt.bounds.relaxation import Wirings
from topoopt.bounds.turns import MOST_TURNS, longest_turn, turns


def longest_paths(tasks, length, source):
    """Seconds of the longest path from a task to each that follows it, both ends included."""
    dag = nx.DiGraph()
    dag.add_nodes_from(range(tasks.tasks))
    before, after = edges_of(tasks)
    dag.add_edges_from(zip(before.tolist(), after.tolist(), strict=True))
    found = {source: length[source]}
    for task in nx.topological_sort(dag):
        for follower in dag.successors(task) if task in found else ():
            reached = found[task] + length[follower]
            found[follower] = max(found.get(follower, 0.0), reached)
    return found


@settings(max_examples=60, deadline=None)
@given(jobs(sizes=(1, 2, 3, 4)), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_longest_turn_is_the_longest_path_to_what_the_next_forward_waits_for(
    case, with_update, seed
):
    graph, strategy, servers = case
    builder = TaskGraphBuilder(graph, FakeCompute(with_update), FakeServer(), servers, BATCH)
    tasks = builder.build(strategy)
    opening, closing = turns(tasks)
    # All that carries over to the next iteration, and no more.
    carried = carried_edges(tasks)
    assert set(zip(closing.tolist(), opening.tolist(), strict=True)) == set(
        zip(*(side.tolist() for side in carried), strict=True)
    )
    length = np.random.default_rng(seed).random(tasks.tasks)
    nothing = np.zeros(tasks.tasks)
    least = Least(length, nothing, nothing)
    expected = max(
        longest_paths(tasks, length, begin).get(end, 0.0)
        for begin, end in zip(opening.tolist(), closing.tolist(), strict=True)
    )
    found = longest_turn(tasks, least, span_of(tasks, least))
    assert found <= expected * (1 + 1e-12)
    if opening.size <= MOST_TURNS:
        assert found == pytest.approx(expected)


def chain_of_two(update=True):
    ops = (operator("a", [], 3000), operator("b", [0], 6000))
    graph = ModelGraph("two", tuple(replace(op, splits=()) for op in ops), 1)
    builder = TaskGraphBuilder(graph, FakeCompute(update), FakeServer(1), 2, BATCH)
    config = OperatorConfig(2, 1, Mode.OUTPUT, (0, 1))
    return builder, builder.build(Strategy((config, config)))


def test_layers_come_round_as_by_hand():
    _, tasks = chain_of_two()
    # Halves of 1 and 2 s forward, of twice that backward; 12,000 and 24,000 bytes between two, the
    # last of them 1 ms later; the update. At 1 kB/s the second layer's own bytes matter most, at
    # 10 kB/s that the first waits for both.
    bound = strategy_bound(tasks, 1, 1e3, 1e-3, steady=True)
    assert bound.terms["chain"] == pytest.approx(1.0 + 2.0 + 24.0 + 0.001 + 0.1)
    bound = strategy_bound(tasks, 1, 1e4, 1e-3, steady=True)
    assert bound.terms["chain"] == pytest.approx(0.5 + 1.0 + 2.0 + 1.0 + 1.2 + 0.001 + 0.1)


def test_fused_gradients_are_waited_for_together():
    _, tasks = chain_of_two(update=False)
    fused, _ = bucket_allreduces(tasks, 1e9, np.arange(tasks.tasks, dtype=float))
    opening, closing = turns(fused)
    assert len(opening) == 4
    assert set(fused.kind[closing].tolist()) == {int(TaskKind.ALLREDUCE)}
    bound = strategy_bound(fused, 1, 1e3, 0.0, steady=True)
    assert bound.terms["chain"] == pytest.approx(0.5 + 1.0 + 2.0 + 1.0 + 36.0)


def test_the_bound_over_all_strategies_is_below_every_turn():
    builder, _ = chain_of_two()
    legal = [OperatorConfig(1, 1, Mode.OUTPUT, (0,)), OperatorConfig(1, 1, Mode.OUTPUT, (1,)),
             OperatorConfig(2, 1, Mode.OUTPUT, (0, 1))]  # fmt: skip
    wirings = Wirings(2, 1, 1e4, 1e-3)
    every = [
        strategy_bound(builder.build(Strategy(configs)), 1, 1e4, 1e-3, steady=True).terms["chain"]
        for configs in product(legal, repeat=2)
    ]
    chain = scheduled_bound(builder, wirings, steady=True).terms["chain"]
    assert 0.99 * min(every) <= chain <= min(every) * (1 + 1e-12)
    # Two halves of a batch take as long as the whole here, and one follows the other.
    assert scheduled_bound(builder, wirings, 2, steady=True).terms["chain"] > 1.02 * chain
