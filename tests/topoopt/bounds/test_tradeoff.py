"""The trade-off over all strategies: every term holds, and its minimum is the minimum."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fabric_cases import random_fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, concat_jobs, jobs, operator

from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph
from parallelism.strategy import Strategy
from topoopt.bounds.relaxation import Wirings, operator_degrees
from topoopt.bounds.space_terms import trade_off
from topoopt.bounds.tradeoff import best_weights, values, weighted
from topoopt.fabric.simulation import score

LAG = 2e-6


def chosen_places(builder: TaskGraphBuilder, strategy: Strategy) -> list[int]:
    """Where a strategy's degrees stand among the configurations of each operator."""
    return [
        operator_degrees(builder, builder.representatives[index], float("inf")).index(
            (c.sample, c.parameter, c.mode if c.parameter > 1 else Mode.OUTPUT)
        )
        for index, c in enumerate(strategy.configs)
    ]


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    st.one_of(jobs(sizes=(1, 2, 3, 4, 6, 8)), concat_jobs()),
    st.integers(1, 3),
    st.sampled_from([30.0, 1e2, 1e3, 1e4, 1e6]),
    st.sampled_from([0.0, 0.05]),
    st.integers(0, 2**32 - 1),
)
def test_every_term_of_a_strategy_is_below_its_time(job, degree, bandwidth, fixed, seed):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=fixed), FakeServer(), servers, BATCH)
    fabric = random_fabric(servers, degree, bandwidth, np.random.default_rng(seed))
    time = score(fabric, builder.build(strategy))
    choices, terms = trade_off(builder, Wirings(servers, degree, bandwidth, LAG))
    found = values(choices, terms, chosen_places(builder, strategy))
    for name, value in zip(terms.names, found, strict=True):
        assert value <= time * (1 + 1e-9), name


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_dynamic_programming_finds_the_least_sum(seed):
    rng = np.random.default_rng(seed)
    ops = [operator("a", [], 1000)]
    for number in range(1, 4):
        inputs = sorted(set(rng.integers(0, number, size=rng.integers(0, 3)).tolist()))
        ops.append(operator(f"op{number}", inputs, int(rng.integers(2)) * 1000))
    graph = ModelGraph("random", tuple(ops), 1)
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=0.01), FakeServer(), 3, BATCH)
    choices, terms = trade_off(builder, Wirings(3, 1, 1e3, LAG))
    weights = rng.dirichlet(np.ones(len(terms.names)))
    value, chosen = weighted(choices, terms, weights)
    assert abs(weights @ values(choices, terms, chosen) - value) <= 1e-9 * value
    every = itertools.product(*(range(table.shape[1]) for table in choices.own))
    least = min(weights @ values(choices, terms, list(places)) for places in every)
    assert abs(least - value) <= 1e-9 * value


def test_found_weights_are_nearly_the_best():
    # Samples can be split only, so that speed costs AllReduces.
    ops = (operator("a", [], 9000), operator("b", [0], 4000))
    graph = ModelGraph("two", tuple(replace(op, splits=()) for op in ops), 1)
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), 4, BATCH)
    choices, terms = trade_off(builder, Wirings(4, 1, 1e3, LAG))
    count = len(terms.names)
    best, weights = best_weights(choices, terms)
    assert weighted(choices, terms, weights)[0] == best
    # The least maximum over mixtures of all strategies is what no weights can exceed.
    from scipy.optimize import linprog

    every = itertools.product(*(range(table.shape[1]) for table in choices.own))
    rows = np.array([values(choices, terms, list(places)) for places in every])
    mixed = linprog(
        np.append(np.zeros(len(rows)), 1.0),
        A_ub=np.column_stack((rows.T, -np.ones(count))),
        b_ub=np.zeros(count),
        A_eq=np.append(np.ones(len(rows)), 0.0)[None, :],
        b_eq=[1.0],
    )
    assert mixed.fun * (1 - 2e-3) <= best <= mixed.fun * (1 + 1e-9)
    assert best > max(weighted(choices, terms, row)[0] for row in np.eye(count)) * 1.02
