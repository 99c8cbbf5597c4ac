"""Traffic and network files: exact round trips, and one sentence for whatever is malformed."""

import io
import json
import pickle
import zipfile

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import shared_bidirectional_plan, shared_plan

import topoopt as to
from parallelism.taskgraph import Traffic, traffic_of
from routing.network import Network
from topoopt.formats.traffic import load_traffic, save_traffic
from topoopt.plan.rebuild import rebuild
from topoopt.topology.network_file import load_network, save_network


@st.composite
def traffics(draw):
    servers = draw(st.integers(1, 7))
    size = st.floats(0, 1e15, allow_nan=False)
    cells = draw(st.lists(size, min_size=servers**2, max_size=servers**2))
    transfers = np.array(cells).reshape(servers, servers)
    np.fill_diagonal(transfers, 0.0)
    group = st.sets(st.integers(0, servers - 1), min_size=2).map(lambda s: tuple(sorted(s)))
    groups = draw(st.lists(group, max_size=4)) if servers > 1 else []
    sizes = draw(st.lists(size, min_size=len(groups), max_size=len(groups)))
    return Traffic(servers, transfers, tuple(groups), np.array(sizes, dtype=np.float64))


@given(traffics())
@settings(max_examples=60, deadline=None)
def test_traffic_survives_the_round_trip_bit_for_bit(tmp_path_factory, traffic):
    path = tmp_path_factory.getbasetemp() / "traffic.npz"
    save_traffic(traffic, path)
    again = load_traffic(path)
    assert again.servers == traffic.servers and again.groups == traffic.groups
    assert (again.transfers == traffic.transfers).all()
    assert (again.group_bytes == traffic.group_bytes).all()


def test_the_same_traffic_gives_the_same_file(tmp_path):
    parts = rebuild(shared_plan())
    traffic = traffic_of(parts.tasks())
    save_traffic(traffic, tmp_path / "a.npz")
    save_traffic(traffic, tmp_path / "b.npz")
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert a.files == b.files
        assert all((a[name] == b[name]).all() for name in a.files)


GOOD = {
    "servers": np.int64(3),
    "transfer_bytes": np.array([[0, 5.0, 0], [0, 0, 7.0], [1.0, 0, 0]]),
    "group_bytes": np.array([8.0, 9.0]),
    "group_offsets": np.array([0, 2, 5]),
    "group_members": np.array([0, 2, 0, 1, 2]),
    "schema_version": np.int64(1),
}


def test_the_example_of_the_malformed_traffic_is_good(tmp_path):
    np.savez(tmp_path / "t.npz", **GOOD)
    assert load_traffic(tmp_path / "t.npz").groups == ((0, 2), (0, 1, 2))


# Arrays that differ from GOOD (None: left out), and what the error says of them.
TOLD_FAULTS = {
    "two missing, one unknown": (
        {"servers": None, "group_bytes": None, "colour": np.zeros(1)},
        "missing arrays: servers, group_bytes; unknown arrays: colour; write exactly ",
    ),
    "no servers": ({"servers": np.int64(0)}, "servers is 0; give at least 1"),
    "objects": (
        {"servers": np.array({"a": 1}, dtype=object)},
        "array servers holds Python objects; write it again with numbers",
    ),
    "flat": (
        {"transfer_bytes": np.zeros(9)},
        r"transfer_bytes has type float64 and shape \(9,\); give numbers in 2 dimensions",
    ),
    "another size": (
        {"transfer_bytes": np.zeros((8, 8))},
        r"transfer_bytes has shape \(8, 8\), but servers is 3; give one row and one column",
    ),
    "negative": (
        {"transfer_bytes": np.array([[0, 0, 0], [0, 0, -1.0], [0, 0, 0]])},
        r"transfer_bytes\[1, 2\] is -1; give 0 to 1e\+24 bytes",
    ),
    "to itself": (
        {"transfer_bytes": np.diag([0, 5.0, 0])},
        r"transfer_bytes\[1, 1\] is 5; give zero on the diagonal",
    ),
    "of a group": (
        {"group_bytes": np.array([1.0, 1e25])},
        r"group_bytes\[1\] is 1e\+25; give 0 to 1e\+24 bytes",
    ),
    "few offsets": (
        {"group_offsets": np.array([0, 5])},
        "group_offsets has 2 entries, but group_bytes has 2; give 3",
    ),
    "first offset": (
        {"group_offsets": np.array([1, 2, 5])}, r"group_offsets\[0\] is 1; begin with 0"
    ),
    "offsets fall": (
        {"group_offsets": np.array([0, 6, 5])},
        r"group_offsets\[2\] is 5, less than the entry before it, 6; give them in ascending",
    ),
    "last offset": (
        {"group_offsets": np.array([0, 2, 4])},
        r"group_offsets\[2\] is 4, but group_members has 5 entries; end with 5",
    ),
    "unsorted": (
        {"group_members": np.array([2, 0, 0, 1, 2])},
        r"group 0 has servers \[2, 0\]; list two or more, each once, in ascending order",
    ),
    "outside": (
        {"group_members": np.array([0, 2, 0, 1, 3])},
        "group 1 has server 3, but servers is 3; give servers from 0 to 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", TOLD_FAULTS)
def test_errors_of_traffic_files_name_entry_value_and_remedy(tmp_path, fault):
    change, told = TOLD_FAULTS[fault]
    path = tmp_path / "traffic.npz"
    arrays = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    np.savez(path, **arrays)
    with pytest.raises(to.InputError, match=told):
        load_traffic(path)


def test_what_numpy_takes_for_pickled_data_is_told_in_our_words(tmp_path):
    whole = io.BytesIO()
    np.savez(whole, **GOOD)
    for content in (b"abc" + whole.getvalue(), b"PKxx" + whole.getvalue(), pickle.dumps([1])):
        (tmp_path / "t.npz").write_bytes(content)
        with pytest.raises(to.InputError, match=r"no zip file\); write it again") as caught:
            load_traffic(tmp_path / "t.npz")
        assert "pickle" not in str(caught.value)


TRAFFIC_FAULTS = {
    "no servers": {"servers": None},
    "zero servers": {"servers": np.int64(0), "transfer_bytes": np.zeros((0, 0))},
    "servers not whole": {"servers": np.float64(2.5)},
    "servers is a list": {"servers": np.array([3, 3])},
    "servers is text": {"servers": np.array("three")},
    "unknown field": {"colour": np.zeros(1)},
    "another version": {"schema_version": np.int64(2)},
    "version is a list": {"schema_version": np.array([1, 1])},
    "matrix of another size": {"transfer_bytes": np.zeros((2, 2))},
    "matrix is flat": {"transfer_bytes": np.zeros(9)},
    "negative bytes": {"transfer_bytes": np.array([[0, -1.0, 0], [0, 0, 0], [0, 0, 0]])},
    "nan bytes": {"transfer_bytes": np.array([[0, np.nan, 0], [0, 0, 0], [0, 0, 0]])},
    "infinite bytes": {"transfer_bytes": np.array([[0, np.inf, 0], [0, 0, 0], [0, 0, 0]])},
    "bytes to itself": {"transfer_bytes": np.eye(3)},
    "complex bytes": {"transfer_bytes": np.zeros((3, 3), dtype=complex)},
    "text for bytes": {"transfer_bytes": np.full((3, 3), "many")},
    "negative group bytes": {"group_bytes": np.array([-8.0, 9.0])},
    "nan group bytes": {"group_bytes": np.array([np.nan, 9.0])},
    "group bytes a matrix": {"group_bytes": np.array([[8.0], [9.0]])},
    "too few offsets": {"group_offsets": np.array([0, 5])},
    "offsets fall": {"group_offsets": np.array([0, 6, 5])},
    "offsets not from 0": {"group_offsets": np.array([1, 2, 5])},
    "offsets not whole": {"group_offsets": np.array([0, 2.5, 5])},
    "members missing": {"group_members": np.array([0, 2, 0, 1])},
    "members not whole": {"group_members": np.array([0, 1.5, 0, 1, 2])},
    "member twice": {"group_members": np.array([0, 0, 0, 1, 2])},
    "members unsorted": {"group_members": np.array([2, 0, 0, 1, 2])},
    "member too large": {"group_members": np.array([0, 3, 0, 1, 2])},
    "member negative": {"group_members": np.array([-1, 2, 0, 1, 2])},
    "group of one": {"group_offsets": np.array([0, 1, 5])},
}


@pytest.mark.parametrize("fault", TRAFFIC_FAULTS)
def test_malformed_traffic_is_refused(tmp_path, fault):
    arrays = {**GOOD, **TRAFFIC_FAULTS[fault]}
    path = tmp_path / "traffic.npz"
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(to.InputError) as caught:
        load_traffic(path)
    message = str(caught.value)
    assert message.startswith(f"traffic file {str(path)!r}") and "\n" not in message


def test_traffic_files_that_are_none(tmp_path):
    whole = io.BytesIO()
    np.savez(whole, **GOOD)
    data = whole.getvalue()
    for content in (b"", b"PK", b"no archive", data[: len(data) // 2], data[:-1], data[:30]):
        (tmp_path / "t.npz").write_bytes(content)
        with pytest.raises(to.InputError, match="not a whole"):
            load_traffic(tmp_path / "t.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npz").write_bytes((tmp_path / "array.npy").read_bytes())
    with pytest.raises(to.InputError, match="not a whole"):
        load_traffic(tmp_path / "array.npz")
    pickled = {**GOOD, "servers": np.array({"a": 1}, dtype=object)}
    np.savez(tmp_path / "pickle.npz", **pickled)
    with pytest.raises(to.InputError):
        load_traffic(tmp_path / "pickle.npz")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("servers", "3")
    with pytest.raises(to.InputError):
        load_traffic(tmp_path / "text.npz")
    with pytest.raises(to.InputError, match="does not exist"):
        load_traffic(tmp_path / "none.npz")
    with pytest.raises(to.InputError):
        load_traffic(tmp_path)


@st.composite
def networks(draw):
    hosts, switches = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    nodes = hosts + switches
    node = st.integers(0, nodes - 1)
    ends = draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] != e[1]), max_size=15))
    if nodes == 1:
        ends = []
    # Parallel cables of one pair have one latency.
    latency = {pair: draw(st.floats(0, 1e-3)) for pair in sorted(set(ends))}
    rates = [draw(st.floats(1e3, 1e12)) for _ in ends]
    return Network.from_links(
        "drawn", hosts, switches, [e[0] for e in ends], [e[1] for e in ends], rates,
        [latency[e] for e in ends],
    )  # fmt: skip


@given(st.one_of(st.just(None), networks()))
@settings(max_examples=60, deadline=None)
def test_networks_survive_the_round_trip(tmp_path_factory, network):
    if network is None:
        network = rebuild(shared_bidirectional_plan()).fabric.network
    path = tmp_path_factory.getbasetemp() / "network.json"
    save_network(network, path)
    again = load_network(path)
    assert (again.name, again.hosts, again.switches) == (
        network.name, network.hosts, network.switches,
    )  # fmt: skip
    for field in ("source", "target", "multiplicity"):
        assert (getattr(again, field) == getattr(network, field)).all()
    np.testing.assert_allclose(again.capacity, network.capacity, rtol=1e-12)
    np.testing.assert_allclose(again.latency, network.latency, rtol=1e-12, atol=1e-24)


def test_networkx_reads_the_network_file(tmp_path):
    network = rebuild(shared_plan()).fabric.network
    save_network(network, tmp_path / "network.json")
    document = json.loads((tmp_path / "network.json").read_text())
    graph = nx.node_link_graph(document, edges="edges")
    assert graph.is_directed() and graph.number_of_edges() == network.links
    assert nx.is_strongly_connected(graph)
    assert all(data["capacity_gbps"] == 100 * data["cables"] for *_, data in graph.edges(data=True))


def good_network():
    return {
        "directed": True,
        "multigraph": False,
        "graph": {"name": "ring", "hosts": 2, "switches": 1},
        "nodes": [{"id": 0, "kind": "host"}, {"id": 1, "kind": "host"},
                  {"id": 2, "kind": "switch"}],
        "edges": [
            {"source": 0, "target": 2, "capacity_gbps": 100.0, "latency_ns": 1000.0, "cables": 2},
            {"source": 2, "target": 1, "capacity_gbps": 50.0, "latency_ns": 500.0, "cables": 1},
        ],
    }  # fmt: skip


def test_a_network_written_by_hand_is_read(tmp_path):
    path = tmp_path / "network.json"
    path.write_text(json.dumps(good_network()))
    network = load_network(path)
    assert (network.hosts, network.switches, network.links) == (2, 1, 2)
    assert network.capacity.tolist() == [12.5e9, 6.25e9]
    assert network.multiplicity.tolist() == [2, 1]
    # Other spellings that networkx has written over the years, and names for nodes.
    document = good_network()
    document["links"] = document.pop("edges")
    names = {0: "a", 1: "b", 2: "tor"}
    for node in document["nodes"]:
        node["id"] = names[node["id"]]
    for edge in document["links"]:
        edge["source"], edge["target"] = names[edge["source"]], names[edge["target"]]
        edge.pop("cables")
    path.write_text(json.dumps(document))
    assert load_network(path).multiplicity.tolist() == [1, 1]


def edge_fault(**change):
    def apply(document):
        document["edges"][0].update(change)

    return apply


def without(*steps):
    def apply(document):
        for step in steps[:-1]:
            document = document[step]
        del document[steps[-1]]

    return apply


NETWORK_FAULTS = {
    "no edges": without("edges"),
    "no nodes": without("nodes"),
    "no source": without("edges", 0, "source"),
    "no capacity": without("edges", 0, "capacity_gbps"),
    "no latency": without("edges", 0, "latency_ns"),
    "no node id": without("nodes", 0, "id"),
    "unknown node": edge_fault(target=9),
    "self-loop": edge_fault(target=0),
    "negative capacity": edge_fault(capacity_gbps=-1.0),
    "zero capacity": edge_fault(capacity_gbps=0),
    "capacity is text": edge_fault(capacity_gbps="fast"),
    "capacity with unit": edge_fault(capacity_gbps="100Gbps"),
    "capacity is nothing": edge_fault(capacity_gbps=None),
    "negative latency": edge_fault(latency_ns=-5),
    "nan latency": edge_fault(latency_ns=float("nan")),
    "capacity beyond all": edge_fault(capacity_gbps=1e300),
    "capacity of next to nothing": edge_fault(capacity_gbps=1e-300),
    "latency beyond all": edge_fault(latency_ns=1e300),
    "no name": lambda d: d["graph"].update(name=""),
    "infinite capacity": edge_fault(capacity_gbps=float("inf")),
    "no cables": edge_fault(cables=0),
    "half a cable": edge_fault(cables=1.5),
    "cables is text": edge_fault(cables="2"),
    "endless cables": edge_fault(cables=10**12),
    "unknown edge field": edge_fault(colour="red"),
    "unknown node field": lambda d: d["nodes"][0].update(colour="red"),
    "unknown graph field": lambda d: d["graph"].update(colour="red"),
    "unknown field": lambda d: d.update(colour="red"),
    "unknown kind": lambda d: d["nodes"][0].update(kind="router"),
    "node twice": lambda d: d["nodes"].append({"id": 0, "kind": "host"}),
    "no hosts": lambda d: [node.update(kind="switch") for node in d["nodes"]],
    "undirected": lambda d: d.update(directed=False),
    "nodes is text": lambda d: d.update(nodes="abc"),
    "edges is a number": lambda d: d.update(edges=5),
    "edge is a list": lambda d: d["edges"].append([0, 1]),
    "node is a number": lambda d: d["nodes"].append(5),
    "node id is a list": lambda d: d["nodes"].append({"id": [1], "kind": "host"}),
    "hosts do not add up": lambda d: d["graph"].update(hosts=3),
    "edges and links": lambda d: d.update(links=[]),
}


@pytest.mark.parametrize("fault", NETWORK_FAULTS)
def test_malformed_networks_are_refused(tmp_path, fault):
    document = good_network()
    NETWORK_FAULTS[fault](document)
    path = tmp_path / "network.json"
    path.write_text(json.dumps(document))
    with pytest.raises(to.InputError) as caught:
        load_network(path)
    message = str(caught.value)
    assert "network" in message and "\n" not in message and len(message) < 300


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (edge_fault(capacity_gbps=1e16), "less than or equal to 1e+15"),
        (edge_fault(capacity_gbps=1e-10), "greater than or equal to 1e-09"),
        (edge_fault(latency_ns=3.7e12), "less than or equal to 3.6e+12"),
        (edge_fault(source=None), "field 'edges.0.source' is null: input should be a whole number"
         " or text"),
        (lambda d: d.update(graph=[]), "field 'graph' is []: input should be fields with values"),
        (lambda d: d.update(directed=False), "field 'directed' is false: input should be true"),
        (lambda d: d.update(nodes={}), "field 'nodes' is {}: input should be a list"),
    ],
)  # fmt: skip
def test_errors_of_network_files_have_words_of_json(tmp_path, change, told):
    document = good_network()
    change(document)
    path = tmp_path / "network.json"
    path.write_text(json.dumps(document))
    with pytest.raises(to.InputError) as caught:
        load_network(path)
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "{}", '"text"', "[" * 100_000])
def test_files_that_are_no_network(tmp_path, text):
    path = tmp_path / "network.json"
    path.write_text(text)
    with pytest.raises(to.InputError) as caught:
        load_network(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_or_missing_network(tmp_path):
    text = json.dumps(good_network())
    path = tmp_path / "network.json"
    for cut in range(0, len(text), 17):
        path.write_text(text[:cut])
        with pytest.raises(to.InputError):
            load_network(path)
    with pytest.raises(to.InputError, match="does not exist"):
        load_network(tmp_path / "none.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(to.InputError, match="not UTF-8"):
        load_network(path)


def test_an_encrypted_archive_is_named(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, **GOOD)
    data = bytearray(path.read_bytes())
    # Set the encryption bit of every local and central header.
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(mark, at + 4)
    path.write_bytes(bytes(data))
    with pytest.raises(to.InputError, match=r"not a whole \.npz archive"):
        load_traffic(path)
