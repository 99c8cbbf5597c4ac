"""Named strategies: legal everywhere, and placed as their names promise."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parallelism import models
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind, Split
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.layers import dense
from parallelism.rotation import rotated_classes
from parallelism.search import named
from parallelism.search.named import (
    data_parallel,
    dense_split,
    hybrid,
    named_strategies,
    sharded_tables,
    tensor_parallel,
)
from parallelism.search.space import StrategySpace
from parallelism.strategy import check_legal
from topoopt.problem.job import Job


def small_dlrm(tables=4, **numbers):
    return models.dlrm(**{
        "tables": tables, "rows": 1000, "dim": 8, "bag": 4, "bottom_width": 16,
        "bottom_layers": 2, "top_width": 24, "top_layers": 2, "batch_per_gpu": 8, **numbers,
    })  # fmt: skip


def table(name, rows, dim=4):
    splits = (Split(Mode.OUTPUT, dim), Split(Mode.REDUCTION, rows))
    return Operator(
        name, OperatorKind.EMBEDDING, (), (dim,), 1.0, 1.0, rows * dim, 1.0, 1.0, splits, True
    )


def tables_of(graph):
    return [i for i, op in enumerate(graph.operators) if op.sparse]


FAMILIES = {
    "dlrm": small_dlrm(),
    "candle": models.candle(tower_layers=2, width=12, dense_layers=2),
    "bert": models.bert(blocks=1, sequence=4, hidden=8, heads=2),
    "ncf": models.ncf(
        user_tables=2, item_tables=2, rows=100, factor_dim=4, mlp_dim=6, mlp_width=8, mlp_layers=2
    ),
    "vgg16": models.vgg16(),
    "resnet50": models.resnet50(),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("servers", [1, 2, 3, 4, 5, 7, 8, 13, 16, 128])
@pytest.mark.parametrize("sample_only", [False, True])
def test_every_named_strategy_is_legal(family, servers, sample_only):
    graph = FAMILIES[family]
    for batch in (servers * 4 * graph.batch_per_gpu, 7, 1):
        space = StrategySpace(graph, servers, batch, sample_only=sample_only)
        found = named_strategies(space)
        assert next(iter(found)) == "data-parallel"
        assert ("hybrid" in found) == bool(tables_of(graph))
        assert not sample_only or set(found) <= {"data-parallel", "hybrid"}
        for strategy in found.values():
            check_legal(graph, strategy, servers, batch)
            for index, config in enumerate(strategy.configs):
                assert space.allows(index, config) or graph.operators[index].sparse


@given(st.integers(1, 40), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_data_parallel_takes_the_widest_degree_that_batch_and_servers_allow(servers, batch):
    space = StrategySpace(small_dlrm(2), servers, batch)
    strategy = data_parallel(space)
    check_legal(space.graph, strategy, servers, batch)
    (config,) = set(strategy.configs)
    common = [d for d in range(1, servers + 1) if servers % d == 0 and batch % d == 0]
    assert (config.sample, config.parameter) == (max(common), 1)
    assert (config.parts == servers) == (batch % servers == 0)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 16, 17])
def test_hybrid_puts_table_i_on_server_i_when_there_are_as_many(count):
    space = StrategySpace(small_dlrm(count), count, 8 * count)
    strategy = hybrid(space)
    places = [strategy.configs[i].servers for i in tables_of(space.graph)]
    assert places == [(server,) for server in range(count)]
    for index, config in enumerate(strategy.configs):
        if not space.graph.operators[index].sparse:
            assert (config.sample, config.parameter) == (count, 1)


@given(st.integers(1, 30), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_hybrid_spreads_equal_tables_evenly(count, servers):
    space = StrategySpace(small_dlrm(count), servers, 8 * servers)
    strategy = hybrid(space)
    held = Counter(strategy.configs[i].servers[0] for i in tables_of(space.graph))
    assert len(held) == min(count, servers)
    assert max(held.values()) - min(held.get(v, 0) for v in range(servers)) <= 1


def test_few_tables_are_spread_over_many_servers():
    space = StrategySpace(small_dlrm(4), 16, 128)
    strategy = hybrid(space)
    assert [strategy.configs[i].servers[0] for i in tables_of(space.graph)] == [0, 4, 8, 12]


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=12), st.integers(1, 6))
@example([1, 1, 1, 1, 61, 509, 783, 838], 4)
@settings(max_examples=80, deadline=None)
def test_hybrid_balances_unequal_tables_as_longest_first_does(rows, servers):
    ops = tuple(table(f"t{i}", n) for i, n in enumerate(rows))
    graph = ModelGraph("tables", ops, 1)
    strategy = hybrid(StrategySpace(graph, servers, servers))
    # Every table is looked up alike, so that small ones weigh by their lookups.
    every = sum(graph.parameter_bytes(i) for i in range(len(ops)))
    alike = len(set(rows)) == 1
    weight = [
        1.0 if alike else max(graph.parameter_bytes(i) / every, 1.0 / len(ops))
        for i in range(len(ops))
    ]
    load = [0.0] * servers
    for config, amount in zip(strategy.configs, weight, strict=True):
        load[config.servers[0]] += amount
    total, largest = sum(weight), max(weight)
    # Graham: the longest-first schedule is within 4/3 - 1/(3 m) of the best, which is at least
    # the mean and at least the largest table.
    assert max(load) <= max(total / servers, largest) + largest
    assert max(load) - min(load) <= largest * (1.0 + 1e-12)


@pytest.mark.parametrize("rows", [[0], [0, 0, 0], [0, 100, 7]])
def test_tables_without_parameters_are_placed_by_their_lookups(rows):
    """A custom operator of a model file may be sparse and have no parameters of its own."""
    ops = tuple(table(f"t{i}", n) for i, n in enumerate(rows))
    strategy = hybrid(StrategySpace(ModelGraph("tables", ops, 1), 2, 2))
    per_server = Counter(config.servers[0] for config in strategy.configs)
    assert max(per_server.values()) <= -(-len(rows) // 2)


def test_kinds_of_tables_take_turns_where_there_are_many_shards(monkeypatch):
    """So that a rotation by one table of each kind, or two, leaves everything as it is."""
    graph = models.ncf(
        user_tables=4, item_tables=4, rows=100, factor_dim=4, mlp_dim=8, mlp_width=8, mlp_layers=2
    )
    family = Job(graph, batch_per_gpu=4).family(32)
    space = StrategySpace(graph, 32, family.batch)
    in_order = sharded_tables(space, 2)
    monkeypatch.setattr(named, "_MOST_SHARDS", 31)
    in_turns = sharded_tables(space, 2)

    def kinds(strategy):
        """Return the table of each shard's server, without its number."""
        of = {v: i for i in tables_of(graph) for v in strategy.configs[i].servers}
        assert sorted(of) == list(range(32))
        return [graph.operators[of[v]].name.rsplit("_", 1)[0] for v in range(16)]

    assert kinds(in_order) == [
        name for name in ("factor_user", "factor_item", "mlp_user", "mlp_item") for _ in range(4)
    ]
    mlp = [name for name in kinds(in_turns) if name.startswith("mlp")]
    assert Counter(kinds(in_turns)) == Counter(kinds(in_order)) and len(mlp) == 8
    for first in range(0, 16, 4):
        few = Counter(name.split("_")[0] for name in kinds(in_turns)[first : first + 4])
        assert few == {"factor": 2, "mlp": 2}
    assert rotated_classes(family.build(in_order), 1) is None
    assert rotated_classes(family.build(in_turns), 1).step == 4


def test_kinds_of_whole_tables_take_turns_on_many_servers(monkeypatch):
    graph = models.ncf(
        user_tables=4, item_tables=4, rows=100, factor_dim=4, mlp_dim=8, mlp_width=8, mlp_layers=2
    )
    family = Job(graph, batch_per_gpu=4).family(32)
    space = StrategySpace(graph, 32, family.batch)
    alone = hybrid(space)
    assert rotated_classes(family.build(alone), 1) is None
    monkeypatch.setattr(named, "_MOST_ALONE", 31)
    for strategy in (hybrid(space), sharded_tables(space, 2)):
        servers = [v for i in tables_of(graph) for v in strategy.configs[i].servers]
        assert len(set(servers)) == len(servers)
        found = rotated_classes(family.build(strategy), 1)
        assert found is not None and found.step <= 16
    monkeypatch.setattr(named, "_MOST_ALONE", 15)
    # More tables than servers are packed.
    few = StrategySpace(graph, 16, 4 * 16)
    many = StrategySpace(small_dlrm(17), 16, 4 * 16)
    assert len({v for i in tables_of(graph) for v in hybrid(few).configs[i].servers}) == 16
    assert len({v for i in tables_of(many.graph) for v in hybrid(many).configs[i].servers}) == 16


def test_tensor_parallel_splits_dense_operators_and_places_tables():
    space = StrategySpace(small_dlrm(4), 4, 32)
    strategy = tensor_parallel(space, 2)
    assert strategy is not None
    for op, config in zip(space.graph.operators, strategy.configs, strict=True):
        if op.sparse:
            assert config.parts == 1
        elif op.parameters and op.name != "top_3":
            assert (config.sample, config.parameter) == (2, 2)
        else:
            # A single output column cannot be split by columns; rows can.
            assert config.parts == 4


@pytest.mark.parametrize(("features", "servers"), [(1, 4), (3, 2)])
def test_a_last_layer_that_cannot_be_split_is_where_it_sends_least(features, servers):
    """On all servers its gradients need a ring; with the shards inputs are sent to it."""
    build = GraphBuilder("m", batch_per_gpu=4)
    x = dense(build, "first", build.input(8), 16)
    dense(build, "last", dense(build, "second", x, 15), features)
    strategy = tensor_parallel(StrategySpace(build.build(), 4, 16), 2)
    assert strategy is not None
    last = strategy.configs[-1]
    assert (last.sample, last.parameter) == (servers, 1)


def test_alternating_tensor_parallel_pairs_columns_with_rows():
    graph = models.candle(tower_layers=3, width=12, dense_layers=3)
    space = StrategySpace(graph, 4, 32)
    strategy = tensor_parallel(space, 2, alternate=True)
    assert strategy is not None
    for index, op in enumerate(graph.operators):
        config = strategy.configs[index]
        if config.parameter == 1 or config.mode != Mode.REDUCTION:
            continue
        readable = {c[2] for c in space.degrees(index) if c[1] == 2}
        columns = [i for i in op.inputs if strategy.configs[i].mode == Mode.OUTPUT]
        assert columns or Mode.OUTPUT not in readable
    modes = {c.mode for c in strategy.configs if c.parameter > 1}
    assert modes == {Mode.OUTPUT, Mode.REDUCTION}


def test_no_tensor_parallelism_where_nothing_divides():
    space = StrategySpace(small_dlrm(2, bottom_width=7, top_width=7, dim=7), 4, 8)
    assert tensor_parallel(space, 2) is None
    # Seven columns cannot be split, so the tables' shards are rows.
    names = {"data-parallel", "hybrid", "sharded-tables-2", "sharded-tables-4"}
    assert set(named_strategies(space)) == names
    shards = named_strategies(space)["sharded-tables-4"].configs
    assert all(
        config.mode == Mode.REDUCTION and config.parameter == 4
        for op, config in zip(space.graph.operators, shards, strict=True)
        if op.sparse
    )


def test_dense_layers_of_a_convolutional_network_are_split_by_their_inputs():
    space = StrategySpace(FAMILIES["vgg16"], 16, 16 * FAMILIES["vgg16"].batch_per_gpu)
    split = dense_split(space, 4)
    assert split is not None
    for op, config, whole in zip(
        space.graph.operators, split.configs, data_parallel(space).configs, strict=True
    ):
        if op.kind is OperatorKind.DENSE:
            assert (config.sample, config.parameter, config.mode) == (4, 4, Mode.REDUCTION)
        else:
            assert config == whole
    assert "dense-4" in named_strategies(space)
    # Elsewhere dense layers are nearly all that has parameters, which other names split.
    candle = FAMILIES["candle"]
    assert dense_split(StrategySpace(candle, 4, 4 * candle.batch_per_gpu), 4) is None
