"""The space of configurations against brute force over the legality check."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import operator

from codesign_base import InputError
from codesign_base.whole_numbers import divisors
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind, Split
from parallelism.search.space import MOST_PARAMETER, StrategySpace, legal_degrees
from parallelism.strategy import OperatorConfig, Strategy, check_legal

# Primes, odd numbers, powers of two, and the smallest clusters.
SERVERS = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16])
BATCHES = st.sampled_from([1, 2, 3, 5, 8, 12, 24, 30, 49, 60, 97])


@st.composite
def operators(draw):
    modes = draw(st.lists(st.sampled_from(list(Mode)), unique=True, max_size=4))
    splits = tuple(Split(mode, draw(st.integers(1, 24))) for mode in modes)
    return Operator(
        "op", OperatorKind.DENSE, (), (8,), 1.0, 2.0, 10, 1.0, 1.0, splits, draw(st.booleans())
    )  # fmt: skip


def is_legal(op, sample, parameter, mode, servers, batch):
    config = OperatorConfig(sample, parameter, mode, tuple(range(sample * parameter)))
    try:
        check_legal(ModelGraph("m", (op,), 1), Strategy((config,)), servers, batch)
    except InputError:
        return False
    return True


def brute_force_degrees(op, servers, batch):
    found = set()
    for sample in range(1, servers + 1):
        for parameter in range(1, servers + 1):
            for mode in Mode:
                if is_legal(op, sample, parameter, mode, servers, batch):
                    found.add((sample, parameter, mode if parameter > 1 else Mode.OUTPUT))
    return tuple(sorted(found))


@given(operators(), SERVERS, BATCHES)
@settings(max_examples=60, deadline=None)
def test_legal_degrees_are_those_that_the_legality_check_accepts(op, servers, batch):
    assert legal_degrees(op, servers, batch) == brute_force_degrees(op, servers, batch)


@given(st.integers(1, 400), st.integers(1, 60))
def test_divisors(number, limit):
    assert divisors(number, limit) == tuple(d for d in range(1, limit + 1) if number % d == 0)


def test_few_divisors_of_a_number_too_large_to_go_through():
    assert divisors(10**40, 16) == (1, 2, 4, 5, 8, 10, 16)


@given(operators(), SERVERS | st.sampled_from([24, 40]), BATCHES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_proposed_degrees_are_the_legal_ones_that_the_space_describes(
    op, servers, batch, sample_only
):
    graph = ModelGraph("m", (op,), 1)
    space = StrategySpace(graph, servers, batch, sample_only=sample_only)
    expected = [
        (s, p, m)
        for s, p, m in brute_force_degrees(op, servers, batch)
        if servers % (s * p) == 0 and p <= MOST_PARAMETER
    ]
    if sample_only:
        expected = [(s, p, m) for s, p, m in expected if p == 1 and not (op.sparse and s > 1)]
    assert list(space.degrees(0)) == expected
    assert (1, 1, Mode.OUTPUT) in space.degrees(0)


@given(operators(), SERVERS, BATCHES, st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_every_random_configuration_is_legal_and_allowed(op, servers, batch, sample_only, seed):
    graph = ModelGraph("m", (op,), 1)
    space = StrategySpace(graph, servers, batch, sample_only=sample_only)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        config = space.random_config(0, rng)
        check_legal(graph, Strategy((config,)), servers, batch)
        assert space.allows(0, config)
        if sample_only:
            stride = servers // config.sample
            steps = {b - a for a, b in zip(config.servers, config.servers[1:], strict=False)}
            assert steps <= {stride}


@given(operators(), SERVERS, BATCHES, st.integers(0, 1000), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_placement_is_legal(op, servers, batch, offset, contiguous, adjacent):
    graph = ModelGraph("m", (op,), 1)
    space = StrategySpace(graph, servers, batch)
    for sample, parameter, mode in space.degrees(0):
        config = space.placed(
            sample, parameter, mode, offset=offset, contiguous=contiguous, adjacent=adjacent
        )
        assert (config.sample, config.parameter, config.mode) == (sample, parameter, mode)
        check_legal(graph, Strategy((config,)), servers, batch)


def test_single_parts_reach_every_server():
    space = StrategySpace(ModelGraph("m", (operator("a", ()),), 1), 6, 24)
    for contiguous in (False, True):
        reached = {
            space.placed(1, 1, Mode.OUTPUT, offset=o, contiguous=contiguous).servers[0]
            for o in range(6)
        }
        assert reached == set(range(6))


def test_placements_differ_in_stride_and_adjacency():
    space = StrategySpace(ModelGraph("m", (operator("a", ()),), 1), 12, 24)

    def servers(**kind):
        return space.placed(2, 3, Mode.OUTPUT, **kind).servers

    assert servers() == (0, 2, 4, 6, 8, 10)
    assert servers(offset=1) == (1, 3, 5, 7, 9, 11)
    assert servers(offset=2) == servers()
    assert servers(contiguous=True) == (0, 1, 2, 3, 4, 5)
    assert servers(contiguous=True, offset=1) == (6, 7, 8, 9, 10, 11)
    # Parameter shards of one sample far apart: part (i, j) is at i * parameter + j.
    assert servers(contiguous=True, adjacent=False) == (0, 2, 4, 1, 3, 5)


def test_equal_configurations_are_one_object():
    space = StrategySpace(ModelGraph("m", (operator("a", ()),), 1), 4, 24)
    one = space.config(2, 2, Mode.REDUCTION, [0, 1, 2, 3])
    assert space.config(2, 2, Mode.REDUCTION, (0, 1, 2, 3)) is one
    assert space.config(2, 2, Mode.OUTPUT, (0, 1, 2, 3)) is not one
    assert space.config(2, 2, Mode.REDUCTION, (0, 1, 3, 2)) is not one
    # The mode says nothing where the parameter dimension is whole.
    whole = space.config(4, 1, Mode.HEADS, range(4))
    assert whole is space.config(4, 1, Mode.OUTPUT, range(4))
    assert whole.mode is Mode.OUTPUT


@given(st.integers(0, 2**32 - 1), SERVERS)
@settings(max_examples=50, deadline=None)
def test_interning_keeps_the_strategy_and_makes_equal_ones_identical(seed, servers):
    ops = tuple(operator(f"op{i}", ()) for i in range(3))
    graph = ModelGraph("m", ops, 1)
    space, other = StrategySpace(graph, servers, 24), StrategySpace(graph, servers, 24)
    rng = np.random.default_rng(seed)
    foreign = Strategy(tuple(other.random_config(i, rng) for i in range(3)))
    own, again = space.intern(foreign), space.intern(foreign)
    assert own == foreign
    assert all(a is b for a, b in zip(own.configs, again.configs, strict=True))


def test_neighbours_and_alike_follow_the_graph():
    ops = (
        operator("a", ()),
        operator("b", (0,)),
        operator("c", (0, 1)),
        operator("table", (), parameters=5000, sparse=True),
    )  # fmt: skip
    # `profile_key` is the name in these operators, so only renamed copies are alike.
    twin = Operator(**{f: getattr(ops[1], f) for f in ops[1].__dataclass_fields__} | {"name": "d"})
    space = StrategySpace(ModelGraph("m", (*ops, twin), 1), 4, 24)
    assert space.neighbours == ((1, 2, 4), (0, 2), (0, 1), (), (0,))
    assert space.alike == ((0,), (1, 4), (2,), (3,), (1, 4))


@pytest.mark.parametrize("servers", [1, 2, 3, 5, 7, 8])
def test_alike_operators_may_take_each_others_configurations(servers):
    from parallelism import models

    graph = models.dlrm(tables=3, rows=1000, dim=8, bottom_layers=2, top_layers=2,
                        bottom_width=16, top_width=24, batch_per_gpu=6)  # fmt: skip
    space = StrategySpace(graph, servers, 24 * servers)
    for index in range(len(graph.operators)):
        for other in space.alike[index]:
            assert space.degrees(index) == space.degrees(other)
