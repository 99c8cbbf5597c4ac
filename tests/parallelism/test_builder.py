"""The task-graph kernel against an oracle that works with explicit index sets."""

from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FEATURES, FakeCompute, FakeServer, jobs, operator

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph
from parallelism.strategy import OperatorConfig, Strategy, check_legal
from parallelism.taskgraph import Phase, TaskKind, traffic_of


def regions(config, output):
    """Elements (sample, feature) that each part writes, or needs of its input."""
    slices = config.mode.slices_output if output else config.mode.slices_input
    for i in range(config.sample):
        rows = range(i * BATCH // config.sample, (i + 1) * BATCH // config.sample)
        for j in range(config.parameter):
            columns = range(FEATURES)
            if slices and config.parameter > 1:
                width = FEATURES // config.parameter
                columns = range(j * width, (j + 1) * width)
            yield {(r, c) for r in rows for c in columns}


def oracle_edges(graph, strategy):
    """Yield (producer op, part, consumer op, part, shared bytes)."""
    for b, op in enumerate(graph.operators):
        for a in sorted(set(op.inputs)):
            for q, wanted in enumerate(regions(strategy.configs[b], output=False)):
                for r, made in enumerate(regions(strategy.configs[a], output=True)):
                    shared = len(wanted & made)
                    if shared:
                        yield a, r, b, q, shared * graph.element_bytes


@settings(max_examples=60, deadline=None)
@given(jobs(), st.booleans())
def test_tasks_equal_the_index_set_oracle(case, with_update):
    graph, strategy, servers = case
    check_legal(graph, strategy, servers, BATCH)
    server = FakeServer()
    builder = TaskGraphBuilder(graph, FakeCompute(with_update), server, servers, BATCH)
    tasks = builder.build(strategy)

    expected = Counter()
    depends = Counter()
    for o, config in enumerate(strategy.configs):
        for q in range(config.parts):
            where = config.servers[q]
            work = (1 + o % 3) / config.parts
            expected[("C", Phase.FORWARD, o, q, where, work)] += 1
            expected[("C", Phase.BACKWARD, o, q, where, 2 * work)] += 1
            if not graph.consumers[o]:
                depends[(Phase.FORWARD, o, q), (Phase.BACKWARD, o, q)] += 1
            j = q % config.parameter
            size = graph.parameter_bytes(o) / config.parameter
            inside = 0.0 if graph.operators[o].sparse else server.intra_allreduce_time(size)
            synced = size > 0 and (config.sample > 1 or inside > 0)
            if synced:
                depends[(Phase.BACKWARD, o, q), (Phase.SYNCHRONISE, o, j)] += 1
                if q < config.parameter:
                    group = tuple(sorted(config.servers[j :: config.parameter]))
                    expected[("A", o, j, group, size, inside)] += 1
            if with_update:
                expected[("C", Phase.UPDATE, o, q, where, 0.1 / config.parameter)] += 1
                last = (Phase.SYNCHRONISE, o, j) if synced else (Phase.BACKWARD, o, q)
                depends[last, (Phase.UPDATE, o, q)] += 1
    for a, r, b, q, size in oracle_edges(graph, strategy):
        source, target = strategy.configs[a].servers[r], strategy.configs[b].servers[q]
        if source == target:
            depends[(Phase.FORWARD, a, r), (Phase.FORWARD, b, q)] += 1
            depends[(Phase.BACKWARD, b, q), (Phase.BACKWARD, a, r)] += 1
            continue
        expected[("T", Phase.ACTIVATION, b, q, source, target, round(size, 6))] += 1
        expected[("T", Phase.GRADIENT, a, r, target, source, round(size, 6))] += 1
        depends[(Phase.FORWARD, a, r), (Phase.ACTIVATION, source, target, b, q)] += 1
        depends[(Phase.ACTIVATION, source, target, b, q), (Phase.FORWARD, b, q)] += 1
        depends[(Phase.BACKWARD, b, q), (Phase.GRADIENT, target, source, a, r)] += 1
        depends[(Phase.GRADIENT, target, source, a, r), (Phase.BACKWARD, a, r)] += 1

    found = Counter()
    name = []
    for t in range(tasks.tasks):
        o, q, phase = int(tasks.operator[t]), int(tasks.part[t]), Phase(tasks.phase[t])
        first, second, size = int(tasks.first[t]), int(tasks.second[t]), float(tasks.size[t])
        if tasks.kind[t] == TaskKind.COMPUTE:
            found[("C", phase, o, q, first, size)] += 1
            name.append((phase, o, q))
        elif tasks.kind[t] == TaskKind.ALLREDUCE:
            found[("A", o, q, tasks.groups[first], size, float(tasks.delay[t]))] += 1
            name.append((phase, o, q))
        else:
            found[("T", phase, o, q, first, second, round(size, 6))] += 1
            name.append((phase, first, second, o, q))
    assert found == expected
    arcs = Counter()
    for t in range(tasks.tasks):
        for s in tasks.successors[tasks.successor_offsets[t] : tasks.successor_offsets[t + 1]]:
            arcs[name[t], name[s]] += 1
    assert arcs == depends
    indegree = np.bincount(tasks.successors, minlength=tasks.tasks)
    assert np.array_equal(indegree, tasks.predecessors)


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_task_graph_is_acyclic_and_traffic_is_what_tasks_send(case):
    graph, strategy, servers = case
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    tasks = builder.build(strategy)
    dag = nx.DiGraph()
    dag.add_nodes_from(range(tasks.tasks))
    for t in range(tasks.tasks):
        for s in tasks.successors[tasks.successor_offsets[t] : tasks.successor_offsets[t + 1]]:
            dag.add_edge(t, int(s))
    assert nx.is_directed_acyclic_graph(dag)
    traffic = traffic_of(tasks)
    moved = tasks.size[tasks.kind == TaskKind.TRANSFER].sum()
    assert traffic.transfer_sent() == pytest.approx(moved)
    assert np.all(np.diag(traffic.transfers) == 0)
    assert all(len(g) > 1 for g in traffic.groups)


def test_data_parallel_sends_only_gradients():
    graph = ModelGraph("chain", (operator("a", []), operator("b", [0])), 1)
    config = OperatorConfig(4, 1, Mode.OUTPUT, (0, 1, 2, 3))
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), 4, BATCH)
    traffic = traffic_of(builder.build(Strategy((config, config))))
    assert traffic.transfer_sent() == 0
    assert traffic.groups == ((0, 1, 2, 3),)
    assert traffic.group_bytes.tolist() == [2 * 1000 * 4]
    assert traffic.allreduce_sent() == 2 * 3 * 8000


def test_memory_adds_up_by_hand():
    table = operator("table", [], 1_000_000, sparse=True)
    dense = operator("dense", [0], 1000)
    graph = ModelGraph("m", (table, dense), 1)
    whole = OperatorConfig(1, 1, Mode.OUTPUT, (1,))
    everywhere = OperatorConfig(2, 1, Mode.OUTPUT, (0, 1))
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(2), 2, BATCH, optimizer_states=1)
    received = FEATURES * 4 * BATCH / 2 / 2
    dense_bytes = 1000 * 4 * 3 + FEATURES * 4 * BATCH / 2 / 2 + received
    table_bytes = 1_000_000 * 4 / 2 * 2 + FEATURES * 4 * BATCH / 2
    needed = builder.memory(Strategy((whole, everywhere)))
    assert needed.tolist() == [dense_bytes, dense_bytes + table_bytes]
    # A replicated table needs a dense gradient buffer as well.
    replicated = builder.part_memory(0, 2, 1, Mode.OUTPUT)
    assert replicated == 1_000_000 * 4 / 2 * 3 + FEATURES * 4 * BATCH / 2 / 2


def plain_memory(builder, strategy):
    """Bytes on each GPU: the parts, and every reader's inputs that are not made in place."""
    graph, gpus = builder.graph, builder.server.gpus
    needed = [0.0] * builder.servers
    for index, config in enumerate(strategy.configs):
        own = builder.part_memory(index, config.sample, config.parameter, config.mode)
        for server in config.servers:
            needed[server] += own
    for target, op in enumerate(graph.operators):
        read = strategy.configs[target]
        for source in sorted(set(op.inputs)):
            made = strategy.configs[source]
            if made == read and (read.parameter == 1 or read.mode is Mode.CHANNEL):
                continue
            share = graph.output_bytes(source) * BATCH / read.sample / gpus
            if read.parameter > 1 and read.mode.slices_input:
                share /= read.parameter
            if made.parameter > 1 and not made.mode.slices_output:
                share *= made.parameter
            for server in read.servers:
                needed[server] += share
    return needed


@settings(max_examples=40, deadline=None)
@given(jobs(), st.data())
def test_memory_equals_a_plain_loop_whatever_was_asked_before(case, data):
    graph, strategy, servers = case
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(2), servers, BATCH)
    place = data.draw(st.integers(0, len(graph.operators) - 1))
    other = strategy.replace([(place, OperatorConfig(1, 1, Mode.OUTPUT, (servers - 1,)))])
    for asked in (strategy, other, strategy):
        assert builder.memory(asked).tolist() == pytest.approx(plain_memory(builder, asked))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OperatorConfig(5, 1, Mode.OUTPUT, (0, 1, 2, 3, 4)), "does not divide the global batch"),
        (OperatorConfig(1, 5, Mode.OUTPUT, (0, 1, 2, 3, 4)), "cannot be split 5 ways"),
        (OperatorConfig(2, 1, Mode.OUTPUT, (0, 0)), "holds two parts"),
        (OperatorConfig(2, 1, Mode.OUTPUT, (0,)), "2 parts on 1 server"),
        (OperatorConfig(1, 1, Mode.OUTPUT, (9,)), "server 9 does not exist"),
        (OperatorConfig(0, 1, Mode.OUTPUT, ()), "give at least 1"),
    ],
)
def test_illegal_strategies_are_named(config, message):
    graph = ModelGraph("m", (operator("a", []),), 1)
    with pytest.raises(InputError, match=message):
        check_legal(graph, Strategy((config,)), 6, BATCH)


@pytest.mark.parametrize("shape", [(), (0,), (3, -1)])
def test_an_operator_needs_an_output(shape):
    with pytest.raises(InputError, match="give at least one extent, and each at least 1"):
        ModelGraph("m", (replace(operator("a", []), output_shape=shape),), 1)


def test_received_inputs_are_held_for_the_backward_pass():
    graph = ModelGraph("m", (operator("a", [], 0), operator("b", [0], 0)), 1)
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(1), 4, BATCH)
    whole = FEATURES * 4 * BATCH
    spread = OperatorConfig(4, 1, Mode.OUTPUT, (0, 1, 2, 3))
    one = OperatorConfig(1, 1, Mode.OUTPUT, (0,))
    partial = OperatorConfig(1, 4, Mode.REDUCTION, (0, 1, 2, 3))
    columns = OperatorConfig(1, 4, Mode.OUTPUT, (0, 1, 2, 3))
    quarter = whole / 4
    # In place nothing is received; a whole reader receives all samples, a reader of partial
    # sums all of them, and columns want the whole input each.
    assert builder.memory(Strategy((spread, spread))).tolist() == [2 * quarter] * 4
    assert builder.memory(Strategy((spread, one)))[0] == quarter + 2 * whole
    assert builder.memory(Strategy((partial, one)))[0] == whole + whole + 4 * whole
    assert builder.memory(Strategy((columns, columns))).tolist() == [2 * quarter + whole] * 4


@settings(max_examples=40, deadline=None)
@given(jobs(), jobs())
def test_a_task_graph_does_not_depend_on_what_was_built_before(job, other):
    graph, strategy, servers = job
    fresh = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    used = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    used.build(Strategy(tuple(reversed(strategy.configs))))
    first, second = fresh.build(strategy), used.build(strategy)
    assert first.groups == second.groups
    assert np.array_equal(first.first, second.first)
