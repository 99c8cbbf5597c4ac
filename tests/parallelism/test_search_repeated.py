"""Strategies of few servers, repeated on many."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import operator

import topoopt as to
from parallelism.graph import ModelGraph
from parallelism.search.mcmc import propose
from parallelism.search.named import named_strategies
from parallelism.search.repeated import repeated
from parallelism.search.space import StrategySpace
from parallelism.strategy import check_legal


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fewer=st.integers(2, 6), copies=st.integers(1, 4))
def test_every_copy_computes_as_much_as_the_few_servers(seed, fewer, copies) -> None:
    few = to.Job(to.models.dlrm(tables=5, batch_per_gpu=12)).family(fewer)
    many = few.on(fewer * copies, few.batch * copies)
    graph, rng = few.builder.graph, np.random.default_rng(seed)
    dense = [i for i, op in enumerate(graph.operators) if not op.sparse]
    small, large = (
        StrategySpace(graph, family.servers, family.batch, any_parts=True) for family in (few, many)
    )
    strategy = list(named_strategies(small).values())[-1]
    for _ in range(12):
        strategy = strategy.replace(propose(small, strategy, rng))
    found = repeated(strategy, large, fewer)
    check_legal(graph, found, many.servers, many.batch)
    for index in dense:
        mine, theirs = strategy.configs[index], found.configs[index]
        assert (theirs.sample, theirs.parameter) == (copies * mine.sample, mine.parameter)
        parts = mine.sample, mine.parameter
        per_part = few.builder.part_time(index, *parts, mine.mode)
        on_many = many.builder.part_time(index, theirs.sample, theirs.parameter, theirs.mode)
        assert np.isclose(on_many.forward, per_part.forward, rtol=1e-12)
        hosts = np.bincount(np.array(theirs.servers) % fewer, minlength=fewer)
        assert np.array_equal(hosts, copies * np.bincount(mine.servers, minlength=fewer))
    tables = [i for i, op in enumerate(graph.operators) if op.sparse]
    for index in tables:
        assert found.configs[index].parts == strategy.configs[index].parts


def test_tables_of_one_server_are_dealt_out() -> None:
    ops = tuple(operator(f"table{i}", (), sparse=True) for i in range(4))
    space = StrategySpace(ModelGraph("tables", ops, 1), 6, 24)
    few = StrategySpace(space.graph, 2, 8)
    strategy = next(iter(named_strategies(few).values()))
    one = few.config(1, 1, strategy.configs[0].mode, (1,))
    strategy = strategy.replace((i, one) for i in range(4))
    found = repeated(strategy, space, 2)
    assert [config.servers for config in found.configs] == [(1,), (3,), (5,), (1,)]
