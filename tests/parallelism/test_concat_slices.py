"""Slices of concatenations: what they need of their inputs, against sets of elements."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from small_cases import BATCH, FakeCompute, FakeServer, concat_jobs, operator

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph, OperatorKind, Split
from parallelism.models.dlrm import dlrm
from parallelism.models.ncf import ncf
from parallelism.strategy import OperatorConfig, Strategy, check_legal
from parallelism.taskgraph import Phase, TaskKind


def elements(config, features, sliced):
    """Elements (sample, feature) of each part, features in units that all splits divide."""
    for i in range(config.sample):
        rows = range(i * BATCH // config.sample, (i + 1) * BATCH // config.sample)
        for j in range(config.parameter):
            low, high = 0, features
            if sliced and config.parameter > 1:
                low, high = (k * features // config.parameter for k in (j, j + 1))
            yield rows, range(low, high)


def needed(graph, strategy):
    """Yield (producer, part, reader, part, elements in common, elements that the reader needs)."""
    for b, op in enumerate(graph.operators):
        first = 0
        for a in op.inputs:
            made, read = strategy.configs[a], strategy.configs[b]
            width = graph.operators[a].features
            beside = op.kind is OperatorKind.CONCAT
            fine = 60  # every degree divides it
            space = (op.features if beside else width) * fine
            offset = first * fine if beside else 0
            wants = list(elements(read, space, read.mode.slices_input))
            makes = list(elements(made, width * fine, made.mode.slices_output))
            for q, (rows, columns) in enumerate(wants):
                own = range(columns.start - offset, columns.stop - offset)
                for r, (lines, features) in enumerate(makes):
                    tall = len(range(max(rows.start, lines.start), min(rows.stop, lines.stop)))
                    wide = len(range(max(own.start, features.start), min(own.stop, features.stop)))
                    if tall * wide:
                        yield a, r, b, q, tall * wide / fine
            first += width


@settings(max_examples=40, deadline=None)
@given(concat_jobs())
def test_parts_receive_what_lies_in_their_slices(case):
    graph, strategy, servers = case
    check_legal(graph, strategy, servers, BATCH)
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    tasks = builder.build(strategy)
    expected = Counter()
    for a, r, b, q, size in needed(graph, strategy):
        source, target = strategy.configs[a].servers[r], strategy.configs[b].servers[q]
        if source != target:
            size = round(size * graph.element_bytes, 6)
            expected[Phase.ACTIVATION, b, q, source, target, size] += 1
            expected[Phase.GRADIENT, a, r, target, source, size] += 1
    found = Counter(
        (
            Phase(tasks.phase[t]), int(tasks.operator[t]), int(tasks.part[t]),
            int(tasks.first[t]), int(tasks.second[t]), round(float(tasks.size[t]), 6),
        )
        for t in range(tasks.tasks)
        if tasks.kind[t] == TaskKind.TRANSFER
    )  # fmt: skip
    assert found == expected


@settings(max_examples=40, deadline=None)
@given(concat_jobs())
def test_memory_counts_the_inputs_of_a_slice(case):
    graph, strategy, servers = case
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(2), servers, BATCH)
    expected = [0.0] * servers
    for index, config in enumerate(strategy.configs):
        own = builder.part_memory(index, config.sample, config.parameter, config.mode)
        for server in config.servers:
            expected[server] += own
    apart = {
        (a, b)
        for b, op in enumerate(graph.operators)
        for a in op.inputs
        if strategy.configs[a] != strategy.configs[b]
        or (
            strategy.configs[b].parameter > 1
            and (op.kind is OperatorKind.CONCAT or strategy.configs[b].mode is not Mode.CHANNEL)
        )
    }
    for a, _, b, q, size in needed(graph, strategy):
        if (a, b) in apart:
            server = strategy.configs[b].servers[q]
            expected[server] += size * graph.element_bytes / builder.server.gpus
    assert builder.memory(strategy).tolist() == pytest.approx(expected)


def test_a_row_split_layer_after_a_sliced_concatenation_gathers_nothing():
    graph = dlrm(tables=3, rows=100, dim=8, bottom_width=8, bottom_layers=1, top_width=16,
                 top_layers=0)  # fmt: skip
    at = {op.name: index for index, op in enumerate(graph.operators)}
    concat, top = at["concat"], at["top_0"]
    whole = OperatorConfig(1, 1, Mode.OUTPUT, (0,))
    configs = [whole] * len(graph.operators)
    configs[concat] = OperatorConfig(1, 2, Mode.CHANNEL, (0, 1))
    configs[top] = OperatorConfig(1, 2, Mode.REDUCTION, (0, 1))
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), 2, BATCH)
    tasks = builder.build(Strategy(tuple(configs)))
    moves = (tasks.kind == TaskKind.TRANSFER) & (tasks.phase == Phase.ACTIVATION)
    assert not (moves & (tasks.operator == top)).any()
    # The second half of the concatenation: two of the three tables.
    into = tasks.size[moves & (tasks.operator == concat)]
    assert into.tolist() == [BATCH * 8 * 4] * 2


def test_concatenations_are_split_only_where_slices_come_together():
    def splits(graph):
        return {op.name: op.splits for op in graph.operators if op.kind is OperatorKind.CONCAT}

    assert splits(dlrm(tables=2, dim=4, bottom_width=8)) == {
        "concat": (Split(Mode.CHANNEL, 16),)
    }  # fmt: skip
    small = ncf(user_tables=2, item_tables=2, factor_dim=4, mlp_dim=8, mlp_width=16)
    # The last concatenation leads to the last layer alone, whose partial sums nobody adds up.
    assert splits(small) == {
        "factor_users": (Split(Mode.CHANNEL, 8),), "factor_items": (Split(Mode.CHANNEL, 8),),
        "mlp_concat": (Split(Mode.CHANNEL, 32),), "concat": (),
    }  # fmt: skip


def test_slices_that_never_come_together_are_refused():
    join = replace(
        operator("join", [0, 1]), kind=OperatorKind.CONCAT, output_shape=(24,),
        splits=(Split(Mode.CHANNEL, 24),),
    )  # fmt: skip
    last = replace(operator("last", [2]), splits=(Split(Mode.REDUCTION, 24),))
    inputs = (operator("a", []), operator("b", []))
    with pytest.raises(InputError, match="concatenation 'join' may be split by channels, but no"):
        ModelGraph("m", (*inputs, join, last), 1)
