"""Chakra traces: bytes against the schema written out by hand, trips there and back, refusals."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind, edges_of
from topoopt.formats.chakra_export import chakra_files
from topoopt.formats.chakra_file import (
    GROUPS,
    Trace,
    TraceNode,
    attributes,
    load_traces,
    read_trace,
    trace_bytes,
)
from topoopt.formats.chakra_import import trace_tasks
from topoopt.formats.chakra_schema import CollectiveCommType, NodeType

COMPUTE, TRANSFER, ALLREDUCE = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number, value):
    """A field on the wire: integers as varints, else its length and its bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def delimited(message):
    return varint(len(message)) + message


def test_bytes_are_those_of_the_schema():
    node = TraceNode(
        300, "send", NodeType.COMM_SEND, (7, 299), 1000,
        attributes(comm_size=("int64", 70_000), comm_tag=("int32", 3), on=("bool", True)),
    )  # fmt: skip
    wanted = delimited(field(1, b"1.0.0")) + delimited(
        field(1, 300) + field(2, b"send") + field(3, 5) + field(5, varint(7) + varint(299))
        + field(7, 1000)
        + field(10, field(1, b"comm_size") + field(9, 70_000))
        + field(10, field(1, b"comm_tag") + field(7, 3))
        + field(10, field(1, b"on") + field(27, 1))
    )  # fmt: skip
    assert trace_bytes([node]) == wanted
    other = delimited(field(3, 4)) + delimited(field(1, 7)) + delimited(field(1, 299))
    assert read_trace(wanted + other, "trace")[0] == node
    # Control dependencies count like those on data; fields that we do not write are passed over.
    more = field(1, 1) + field(4, varint(0) + varint(2)) + field(5, varint(2)) + field(6, 9)
    more += field(8, field(1, b"[1]") + field(2, b"[2]")) + field(9, b"")
    read = read_trace(
        delimited(b"") + delimited(more) + delimited(b"") + delimited(field(1, 2)), "trace"
    )
    assert read[0] == TraceNode(1, "", NodeType.INVALID, (0, 2), 0, {}, "[1]")


def write(directory, tasks, label=str):
    for name, data in chakra_files(tasks, label).items():
        (directory / name).write_bytes(data)
    return trace_tasks(load_traces(directory))


def edges(tasks):
    return sorted(zip(*(ends.tolist() for ends in edges_of(tasks)), strict=True))


GROUPED = ((0, 1, 2), (1, 3), (2,))


@st.composite
def task_graphs(draw):
    """Tasks on four servers, each after some that end where it begins."""
    tasks, ends, found = [], [], []
    for task in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(list(TaskKind)))
        server = draw(st.integers(0, 3))
        seconds = draw(st.floats(0.0, 1.0))
        size = float(draw(st.integers(1, 10**9)))
        if kind is COMPUTE:
            tasks.append((kind, server, -1, seconds, 0.0))
            begin, end = {server}, {server}
        elif kind is TRANSFER:
            other = (server + draw(st.integers(1, 3))) % 4
            tasks.append((kind, server, other, size, 0.0))
            begin, end = {server}, {server, other}
        else:
            group = draw(st.integers(0, 2))
            begin = end = set(GROUPED[group])
            alone = len(begin) == 1
            kind = ALLREDUCE if alone else kind
            size *= len(begin)
            delay = draw(st.sampled_from((0.0, 1e-3)))
            tasks.append((kind, group, -1, 0.0 if alone else size, delay))
        can = [before for before in range(task) if ends[before] & begin]
        for before in draw(st.sets(st.sampled_from(can), max_size=3)) if can else ():
            found.append((before, task))
        ends.append(end)
    return TaskGraph.from_lists(4, tasks, found, GROUPED)


@settings(max_examples=30, deadline=None)
@given(task_graphs())
def test_a_task_graph_returns_as_it_went(tmp_path_factory, tasks):
    found = write(tmp_path_factory.mktemp("traces"), tasks, lambda task: f"task {task}")
    again = found.graph
    assert again.servers == again.devices == found.processors == 4
    assert edges(again) == edges(tasks)
    for name in ("kind", "second", "size", "delay", "predecessors"):
        assert np.array_equal(getattr(again, name), getattr(tasks, name)), name
    for task in range(tasks.tasks):
        if tasks.collective[task]:
            assert again.groups[again.first[task]] == tasks.groups[tasks.first[task]]
        else:
            assert again.first[task] == tasks.first[task]


def test_rounded_durations_of_a_device_add_up():
    seconds = np.random.default_rng(0).random(500) * 3e-6
    tasks = TaskGraph.from_lists(2, [(COMPUTE, 0, -1, float(s), 0.0) for s in seconds], [])
    nodes = read_trace(chakra_files(tasks, str)["trace.0.et"], "trace")
    whole = np.cumsum([node.micros for node in nodes])
    assert np.abs(whole - np.cumsum(seconds) * 1e6).max() <= 0.5 + 1e-6


def test_what_no_message_tells_another_rank_is_refused():
    tasks = TaskGraph.from_lists(
        2, [(COMPUTE, 0, -1, 1.0, 0.0), (COMPUTE, 1, -1, 1.0, 0.0)], [(0, 1)]
    )
    with pytest.raises(
        InputError, match=r"task 1 .* waits for task 0 .* without a message"
    ) as refused:
        chakra_files(tasks, str)
    assert "--tensor-across-servers" in str(refused.value)


def comp(number, *after, micros=5, **values):
    return TraceNode(number, "c", NodeType.COMP, after, micros, attributes(**values))


def send(number, target, *after, tag=0, size=8):
    values = attributes(
        comm_dst=("int32", target), comm_tag=("int32", tag), comm_size=("int64", size)
    )
    return TraceNode(number, "s", NodeType.COMM_SEND, after, 0, values)


def receive(number, source, *after, tag=0, size=8):
    values = attributes(
        comm_src=("int32", source), comm_tag=("int32", tag), comm_size=("int64", size)
    )
    return TraceNode(number, "r", NodeType.COMM_RECV, after, 0, values)


def together(number, kind, *after, size=30, group=""):
    values = attributes(
        comm_type=("int64", int(kind)), comm_size=("int64", size), pg_name=("string", group)
    )
    return TraceNode(number, "a", NodeType.COMM_COLL, after, 0, values)


def odd_collective(kind, size):
    values = attributes(comm_type=("double", kind), comm_size=("double", size))
    return TraceNode(0, "a", NodeType.COMM_COLL, (), 0, values)


def read(*ranks, groups=None):
    return trace_tasks(Trace(tuple(list(nodes) for nodes in ranks), groups or {}))


def test_who_waits_for_a_receive_waits_for_what_it_waits_for():
    found = read(
        [comp(0), send(1, 1, 0)],
        [comp(0), receive(1, 0, 0), TraceNode(2, "", NodeType.METADATA, (1,)), comp(3, 2)],
    ).graph
    # Compute of both ranks, the transfer, and the last compute, after transfer and compute.
    assert found.kind.tolist() == [COMPUTE, COMPUTE, TRANSFER, COMPUTE]
    assert edges(found) == [(0, 2), (1, 3), (2, 3)]


def test_messages_of_one_tag_go_in_order():
    found = read(
        [send(0, 1, size=1), send(1, 1, size=2), send(2, 1, tag=1, size=3)],
        [receive(5, 0, tag=1, size=3), receive(6, 0, size=1), receive(7, 0, size=2), comp(8, 5)],
    ).graph
    assert found.size.tolist() == pytest.approx([1.0, 2.0, 3.0, 5e-6])
    assert edges(found) == [(2, 3)]


def test_collectives_of_all_kinds():
    every = [
        CollectiveCommType.REDUCE_SCATTER,
        CollectiveCommType.ALL_GATHER,
        CollectiveCommType.BARRIER,
    ]
    nodes = [together(number, kind) for number, kind in enumerate(every)]
    graph = read(nodes, nodes, nodes).graph
    assert graph.kind.tolist() == [TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER, ALLREDUCE]
    assert graph.size.tolist() == [30.0, 90.0, 0.0]
    assert graph.groups == ((0, 1, 2),)


def test_an_all_to_all_is_transfers_of_shares():
    exchange = together(1, CollectiveCommType.ALL_TO_ALL, 0)
    graph = read(*[[comp(0), exchange, comp(2, 1)]] * 3).graph
    moves = np.flatnonzero(graph.kind == TRANSFER)
    assert np.array_equal(graph.pair_bytes(), 10.0 * (1 - np.eye(3)))
    for task in moves.tolist():
        source, target = int(graph.first[task]), int(graph.second[task])
        after = {b for a, b in edges(graph) if a == task}
        before = {a for a, b in edges(graph) if b == task}
        assert {int(graph.first[a]) for a in before} == {source}
        assert {int(graph.first[b]) for b in after} == {source, target}


def test_processors_cpus_and_memory_are_devices_of_their_own():
    found = read(
        [comp(0), comp(1, is_cpu_op=("bool", True)), TraceNode(2, "", NodeType.MEM_LOAD, (), 4)],
        [comp(0, micros=0)],
    )
    assert found.processors == 2
    assert found.graph.server_of_device.tolist() == [0, 1, 0, 0]
    assert sorted(found.graph.first.tolist()) == [0, 1, 2, 3]


def test_groups_of_pytorch_are_read_from_metadata():
    listed = json.dumps([{"pg_name": "9", "ranks": [2, 0, 2]}, {"pg_name": "1", "ranks": []}])
    metadata = TraceNode(5, "", NodeType.METADATA, inputs=f"['{listed}']")
    of_two = together(0, CollectiveCommType.ALL_REDUCE, group="9")
    of_all = together(1, CollectiveCommType.ALL_REDUCE, group="1")
    graph = read([metadata, of_two, of_all], [of_all], [of_two, of_all]).graph
    assert [graph.groups[group] for group in graph.first] == [(0, 2), (0, 1, 2)]


ENDLESS = '[{"pg_name": "9", "ranks": [1e999]}]'
REFUSED = {
    "has 1 send and 0 receives of tag 0": ([send(0, 1)], []),
    "sends 8 bytes, but node 0 of rank 1 receives 9": ([send(0, 1)], [receive(0, 0, size=9)]),
    "sends to itself": ([send(0, 0), receive(1, 0)],),
    "goes from rank 0 to 4": ([send(0, 4)], []),
    "different numbers of collectives": ([together(0, CollectiveCommType.ALL_REDUCE)], []),
    "different types or sizes": (
        [together(0, CollectiveCommType.ALL_REDUCE)], [together(0, CollectiveCommType.ALL_GATHER)],
    ),
    "is a BROADCAST, which is no task": ([together(0, CollectiveCommType.BROADCAST)],) * 2,
    "unknown type 77": ([together(0, 77)],) * 2,
    "unknown type 0.5": ([odd_collective(0.5, 1.0)],),
    "node 0 has comm_type nan; give a finite number": ([odd_collective(math.nan, 1.0)],),
    "node 0 has comm_size inf; give a finite number": ([odd_collective(0.0, math.inf)],),
    "of group '4', of which no ranks are given": ([together(0, 0, group="4")],),
    "of group '9', of which no ranks are given": (
        [
            TraceNode(1, "", NodeType.METADATA, inputs="['" + ENDLESS + "']"),
            together(0, 0, group="9"),
        ],
    ),
    "has no number 'comm_size'": ([TraceNode(0, "", NodeType.COMM_SEND, (), 0, attributes(
        comm_dst=("int32", 1)))], [receive(0, 0)]),
    "has work but no duration": ([comp(0, micros=0, num_ops=("int64", 5))],),
    "rank 0: node 1 waits in a cycle": ([comp(0), comp(1, 2), comp(2, 1)],),
    "in a cycle over several ranks": (
        [send(0, 1, 1), receive(1, 1)], [receive(0, 0), send(1, 0, 0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_makes_no_task_graph_is_refused_in_a_sentence(why):
    with pytest.raises(InputError) as refused:
        read(*REFUSED[why])
    said = str(refused.value)
    assert "\n" not in said
    assert why.replace("has 1", "have 1") in said


def test_a_trace_that_is_cut_off_is_refused_wherever_it_is_cut():
    whole = trace_bytes([comp(0), comp(1, 0), comp(2, 1)])
    ends = {0}
    for nodes in ([], [comp(0)], [comp(0), comp(1, 0)], [comp(0), comp(1, 0), comp(2, 1)]):
        ends.add(len(trace_bytes(nodes)))
    for cut in range(len(whole)):
        if cut in ends - {0}:
            read_trace(whole[:cut], "trace")
            continue
        with pytest.raises(InputError, match=r"cut off|empty"):
            read_trace(whole[:cut], "trace")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x05hello" * 3, "no Chakra execution trace"),
        (b"\xff" * 30, "cut off"),
        (trace_bytes([comp(0), comp(0)]), "node 0 is there twice"),
        (trace_bytes([comp(0, 4)]), "waits for node 4, which is not there"),
        (delimited(b"") + delimited(field(3, 12)), "unknown type 12"),
    ],
)
def test_what_is_no_trace_is_refused(data, why):
    with pytest.raises(InputError, match=why):
        read_trace(data, "trace x.0.et")


def test_directories_that_hold_no_whole_set_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds no traces"):
        load_traces(tmp_path)
    for name in ("a.0.et", "a.2.et"):
        (tmp_path / name).write_bytes(trace_bytes([comp(0)]))
    with pytest.raises(InputError, match="no trace of rank 1"):
        load_traces(tmp_path)
    (tmp_path / "a.2.et").rename(tmp_path / "b.1.et")
    with pytest.raises(InputError, match="several prefixes"):
        load_traces(tmp_path)
    (tmp_path / "b.1.et").rename(tmp_path / "a.1.et")
    for text, why in (
        ("{", "not valid JSON"),
        ('{"1": [0], "1": [1]}', "key '1' occurs twice"),
        ("[]", "no object"),
        ('{"1": [0, 5]}', "list ranks"),
        ('{"1": null}', "is null; list ranks"),
    ):
        (tmp_path / GROUPS).write_text(text)
        with pytest.raises(InputError, match=why):
            load_traces(tmp_path)
    with pytest.raises(InputError, match="not a directory"):
        load_traces(tmp_path / "a.0.et")
    (tmp_path / "a.01.et").write_bytes(trace_bytes([comp(0)]))
    with pytest.raises(InputError, match=r"two traces of rank 1 \(a.01.et, a.1.et\); keep one"):
        load_traces(tmp_path)
