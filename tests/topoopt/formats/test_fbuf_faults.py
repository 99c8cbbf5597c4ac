"""Malformed files: one clear error whatever is wrong, and never another exception."""

import copy
import struct

import numpy as np
import pytest
from fbuf_oracle import differences, oracle_write, small_document
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.formats.fbuf_network import network_of, rings_of, routes_of
from topoopt.formats.fbuf_read import parse_fbuf, read_fbuf
from topoopt.formats.fbuf_write import write_fbuf
from topoopt.formats.taskgraph_fbuf import task_graph_of

SMALL = oracle_write(small_document())
OURS = write_fbuf(parse_fbuf(SMALL))


def read_wholly(data):
    """Read and convert; return whether the file was accepted."""
    try:
        file = parse_fbuf(data, "task-graph file 'x'")
        task_graph_of(file)
        rings_of(file)
        network = network_of(file)
        routes_of(file, network)
    except InputError as error:
        message = str(error)
        assert "\n" not in message and len(message) < 400
        return False
    return True


@pytest.mark.parametrize("data", [SMALL, OURS], ids=["flatbuffers", "ours"])
def test_no_part_of_a_file_is_a_file(data):
    assert read_wholly(data)
    for length in range(len(data)):
        with pytest.raises(InputError, match="task-graph file 'x'"):
            parse_fbuf(data[:length], "task-graph file 'x'")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4))
@example([(0, 1)])
def test_flipped_bytes_give_a_graph_or_one_error(flips):
    for whole in (SMALL, OURS):
        data = bytearray(whole)
        for place, change in flips:
            data[place % len(data)] ^= change
        read_wholly(bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from((0, 1, 4, 8, 2**16, 2**31 - 1, 2**31, 2**32 - 1)))
def test_words_replaced_give_a_graph_or_one_error(place, word):
    for whole in (SMALL, OURS):
        data = bytearray(whole)
        at = place % (len(data) - 4) // 4 * 4
        data[at : at + 4] = struct.pack("<I", word)
        read_wholly(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_file(data):
    assert not read_wholly(data)


def change(where, row, column, value):
    """Return a fault that replaces one number of the document."""

    def apply(document):
        old = list(document[where][row])
        old[column] = value
        document[where][row] = tuple(old)

    return apply


def header(column, value):
    def apply(document):
        old = list(document["header"])
        old[column] = value
        document["header"] = tuple(old)

    return apply


def append(where, row):
    return lambda document: document[where].append(row)


def through_a_switch(task):
    """Return a fault in which a task runs on a device from switch 2 to node 1."""

    def apply(document):
        header(2, 1)(document)
        change("devices", 2, 3, 2 * 3 + 1)(document)
        change("tasks", task, 2, 103)(document)

    return apply


FAULTS = {
    "transfer from a switch": (through_a_switch(1), "task 2 sends from or to switch 2"),
    "barrier on a switch": (through_a_switch(4), "task [25] sends from or to switch 2"),
    "cycle": (change("tasks", 3, 5, [1]), "4 tasks wait in a cycle"),
    "own follower": (change("tasks", 0, 5, [1]), "cycle"),
    "unknown follower": (change("tasks", 0, 5, [2, 99]), "followed by task 99, which does not"),
    "task id twice": (change("tasks", 1, 1, 1), "task id 1 occurs twice"),
    "device id twice": (change("devices", 1, 1, 101), "device id 101 occurs twice"),
    "no such device": (change("tasks", 0, 2, 55), "device 55, which does not exist"),
    "no device": (change("tasks", 0, 2, 0), "device 0, which does not exist"),
    "transfer without device": (change("tasks", 1, 2, 0), "device 0, which does not exist"),
    "AllReduce on no such device": (change("tasks", 5, 2, 55), "device 55, which does not exist"),
    "property": (change("devices", 2, 3, 4), "deviceproperty 4; source \\* 2 \\+ destination"),
    "huge property": (change("devices", 2, 3, 2**64 - 1), "deviceproperty"),
    "unknown device type": (change("devices", 1, 0, 15), "unknown type 15"),
    "device on no node": (change("devices", 0, 2, 2), "of node 2; nodes are 0..1"),
    "compute on the network": (change("tasks", 0, 2, 103), "computes on device 103 of type 14"),
    "negative runtime": (change("tasks", 0, 3, -0.5), "runtime of -0.5 ms"),
    "NaN runtime": (change("tasks", 0, 3, float("nan")), "runtime of nan ms"),
    "endless runtime": (change("tasks", 0, 3, float("inf")), "runtime of inf ms"),
    "unknown task type": (change("tasks", 0, 0, 7), "task 1 has unknown type 7"),
    "negative task type": (change("tasks", 0, 0, -1), "task 1 has unknown type -1"),
    "group twice": (change("tasks", 5, 5, [1, 1]), "AllReduce 6 names node 1 twice"),
    "group outside": (change("tasks", 5, 5, [0, 2]), "AllReduce 6 names node 2; nodes are 0..1"),
    "group of none": (change("tasks", 5, 5, []), "AllReduce 6 has an empty group"),
    "no nodes": (header(1, 0), "nnode is 0"),
    "too many nodes": (header(1, 2**32 - 1), "nnode is 4294967295"),
    "too many switches": (header(2, 2**32 - 1), "nswitch 4294967295"),
    "NaN bandwidth": (header(5, float("nan")), "net_bandwidth is nan"),
    "negative bandwidth": (header(3, -1.0), "intergpu_bandwidth is -1000.0"),
    "self connection": (change("conn", 0, 1, 1), "joins 1 and 1"),
    "connection outside": (change("conn", 0, 0, 2), "joins 2 and 0"),
    "no cables": (change("conn", 0, 2, 0), "nconn is 0"),
    "route outside": (change("routes", 1, 1, 7), "from 0 to 7"),
    "path elsewhere": (change("routes", 1, 2, [([0, 1, 0], 1.0)]), "leads from 0 to 0"),
    "path outside": (change("routes", 1, 2, [([0, 9, 1], 1.0)]), "visits node 9"),
    "path of nothing": (change("routes", 1, 2, [([], 1.0)]), "has no nodes"),
    "chance": (change("routes", 1, 2, [([0, 1], -0.5)]), "chance -0.5"),
    "NaN chance": (change("routes", 1, 2, [([0, 1], float("nan"))]), "chance nan"),
    "ring size": (change("rings", 0, 0, 3), "groups of 3 nodes"),
    "huge ring size": (change("rings", 0, 0, 2**64 - 1), "groups of 18446744073709551615"),
    "ring sets twice": (append("rings", (2, [[1]])), "two ring sets are for groups of 2"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_impossible_is_named(tmp_path, fault):
    apply, message = FAULTS[fault]
    document = copy.deepcopy(small_document())
    apply(document)
    path = tmp_path / "broken.fbuf"
    path.write_bytes(oracle_write(document))
    with pytest.raises(InputError, match=message) as caught:
        read_fbuf(path)
    assert str(caught.value).startswith(f"task-graph file {str(path)!r}: ")
    assert "\n" not in str(caught.value)


LATER = {
    "no set for the size": (
        lambda d: d["rings"].clear() or d["rings"].append((2, [])),
        rings_of,
        "no rings",
    ),
    "ring that stays": (change("rings", 0, 1, [[2]]), rings_of, "does not visit each node"),
    "two numbers of cables": (append("conn", (0, 1, 3)), network_of, "by 1 cable and by 3;"),
    "no connections": (lambda d: d["conn"].clear(), network_of, "no connections"),
    "no rate": (header(5, 0.0), network_of, "no network bandwidth"),
    "a pair without route": (
        lambda d: d["routes"].pop(2),
        lambda f: routes_of(f, network_of(f)),
        "1 of the 2 ordered pairs",
    ),
    "two routes": (
        append("routes", (0, 1, [([0, 1], 1.0)])),
        lambda f: routes_of(f, network_of(f)),
        "0->1 has two routes",
    ),
    "no such link": (
        change("routes", 1, 2, [([0, 0, 1], 1.0)]),
        lambda f: routes_of(f, network_of(f)),
        "from 0 to 0, which no connection joins",
    ),
    "no share": (
        change("routes", 1, 2, [([0, 1], 0.0)]),
        lambda f: routes_of(f, network_of(f)),
        "have no chance",
    ),
}


@pytest.mark.parametrize("fault", LATER)
def test_what_only_some_uses_need_is_named_there(fault):
    apply, use, message = LATER[fault]
    document = copy.deepcopy(small_document())
    apply(document)
    with pytest.raises(InputError, match=message):
        use(parse_fbuf(oracle_write(document)))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_fbuf(tmp_path / "none.fbuf")
    with pytest.raises(InputError, match="cannot be read"):
        read_fbuf(tmp_path)
    (tmp_path / "empty.fbuf").touch()
    with pytest.raises(InputError, match="0 bytes are no task graph"):
        read_fbuf(tmp_path / "empty.fbuf")


def test_a_field_that_the_format_does_not_know_is_refused():
    data = bytearray(OURS)
    root = struct.unpack_from("<I", data, 0)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    length, size = struct.unpack_from("<HH", data, vtable)
    grown = struct.pack("<HH", length + 2, size) + data[vtable + 4 : vtable + length]
    begin = len(data) + -len(data) % 2
    data += bytes(begin - len(data)) + grown + struct.pack("<H", 4)
    struct.pack_into("<i", data, root, root - begin)
    with pytest.raises(InputError, match="a field that the format does not know"):
        parse_fbuf(bytes(data))
    data[-2:] = b"\0\0"  # absent: as in files of a schema that never uses it
    assert differences(parse_fbuf(bytes(data)), parse_fbuf(OURS)) == []


def test_lists_that_overlap_cannot_fill_the_memory():
    """Tasks that all share one long list hold the square of what the file does, if believed."""
    tasks = [(6, i + 1, 0, 0.0, 0, [0]) for i in range(3000)]
    nodes = [(6, 10**6, 0, 0.0, 0, list(range(3000)))]
    document = small_document() | {"header": (1, 3000, 0, 1.0, 1.0, 1.0), "conn": [], "routes": []}
    document |= {"tasks": tasks + nodes, "rings": [], "devices": []}
    data = bytearray(write_fbuf(parse_fbuf(oracle_write(document))))
    root = struct.unpack_from("<I", data, 0)[0]
    vector = root + 36 + struct.unpack_from("<I", data, root + 36)[0]
    table = vector + 4 + 4 * np.arange(3001)
    table = table + np.frombuffer(data, "<u4", 3001, vector + 4)
    last = int(table[-1]) + 4
    shared = last + struct.unpack_from("<I", data, last)[0]
    for at in table.tolist():
        struct.pack_into("<I", data, at + 4, shared - (at + 4))
    with pytest.raises(InputError, match="more than the file holds"):
        parse_fbuf(bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        {"task_runtime": 1e40},
        {"net_bandwidth": 1e50},
        {"gpus_per_node": 2**32},
        {"conn_cables": 2**32},
        {"jumps": 2**31},
    ],
)
def test_numbers_that_the_file_cannot_hold_are_not_cut(change):
    from dataclasses import replace

    file = parse_fbuf(SMALL)
    ((name, value),) = change.items()
    old = getattr(file, name)
    new = np.full_like(old, value) if isinstance(old, np.ndarray) else value
    with pytest.raises(InputError, match="holds at most"):
        write_fbuf(replace(file, **{name: new}))
