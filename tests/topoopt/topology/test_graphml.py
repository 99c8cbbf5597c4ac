"""GraphML: round trips, networkx as the other reader and writer, and one error for the rest."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from routing.network import Network
from topoopt.topology.graphml import load_graphml, save_graphml
from topoopt.topology.network_file import load_network, save_network


@st.composite
def networks(draw):
    hosts, switches = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    nodes = hosts + switches
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    chosen = [pair for pair in pairs if draw(st.booleans())]
    count = len(chosen)
    name = draw(st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=8))
    return Network(
        name,
        hosts,
        switches,
        np.array([a for a, _ in chosen], dtype=np.int64),
        np.array([b for _, b in chosen], dtype=np.int64),
        # Capacities and latencies that survive the units of the file exactly.
        125e6 * np.array([draw(st.integers(1, 4000)) for _ in range(count)], dtype=np.float64),
        np.array([draw(st.integers(0, 10)) for _ in range(count)], dtype=np.float64),
        np.array([draw(st.integers(1, 4)) for _ in range(count)], dtype=np.int64),
    )


def same(one, other):
    assert (one.name, one.hosts, one.switches) == (other.name, other.hosts, other.switches)
    for field in ("source", "target", "multiplicity"):
        assert np.array_equal(getattr(one, field), getattr(other, field))
    assert np.allclose(one.capacity, other.capacity, rtol=1e-15, atol=0)
    assert np.allclose(one.latency, other.latency, rtol=1e-15, atol=0)


@settings(max_examples=30, deadline=None)
@given(networks())
def test_networks_survive_the_round_trip(tmp_path_factory, network):
    directory = tmp_path_factory.mktemp("graphml")
    for name in ("n.graphml", "n.json", "n.xml", "n"):
        save_network(network, directory / name)
        same(load_network(directory / name), network)
    save_graphml(network, directory / "odd.txt")
    same(load_network(directory / "odd.txt"), network)


def ring(hosts=3):
    at = np.arange(hosts)
    return Network.from_links("ring", hosts, 0, at, (at + 1) % hosts, 12.5e9, 1e-6)


def test_networkx_reads_it(tmp_path):
    save_graphml(ring(), tmp_path / "ring.graphml")
    graph = nx.read_graphml(tmp_path / "ring.graphml")
    assert graph.is_directed() and sorted(graph.edges) == [("0", "1"), ("1", "2"), ("2", "0")]
    assert graph.edges["0", "1"] == {"capacity_gbps": 100.0, "latency_ns": 1000.0, "cables": 1}
    assert graph.nodes["0"] == {"kind": "host"}
    assert graph.graph["hosts"] == 3


def test_an_undirected_graph_is_links_both_ways(tmp_path):
    graph = nx.Graph()
    graph.add_node("s", kind="switch")
    graph.add_node("a")
    graph.add_node("b", kind="host")
    for host in "ab":
        graph.add_edge("s", host, capacity_gbps=200, latency_ns=500, cables=2)
    nx.write_graphml_xml(graph, tmp_path / "star.graphml")
    network = load_network(tmp_path / "star.graphml")
    assert (network.hosts, network.switches, network.links) == (2, 1, 4)
    assert network.capacity.tolist() == [25e9] * 4
    assert network.latency.tolist() == [5e-7] * 4
    assert network.multiplicity.tolist() == [2] * 4
    assert network.name == "star"


def test_parallel_edges_become_one_link(tmp_path):
    graph = nx.MultiDiGraph()
    for _ in range(3):
        graph.add_edge("a", "b", capacity_gbps=100.0, latency_ns=1.0)
    nx.write_graphml_xml(graph, tmp_path / "multi.graphml")
    network = load_network(tmp_path / "multi.graphml")
    assert network.capacity.tolist() == [37.5e9] and network.multiplicity.tolist() == [3]


HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
KEYS = (
    '<key id="c" for="edge" attr.name="capacity_gbps" attr.type="double"/>'
    '<key id="l" for="edge" attr.name="latency_ns" attr.type="double"/>'
    '<key id="x" for="edge" attr.name="colour" attr.type="string"/>'
    '<key id="k" for="node" attr.name="kind" attr.type="string"/>'
)


def graphml(nodes='<node id="a"/><node id="b"/>', edge='<data key="c">1</data>', graph=None):
    inner = f'{nodes}<edge source="a" target="b"><data key="l">1</data>{edge}</edge>'
    graph = graph or f"<graph edgedefault='directed'>{inner}</graph>"
    return f"{HEAD}{KEYS}{graph}</graphml>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (graphml()[:-20], "not well-formed XML"),
        ("<html></html>", "holds 0 graphs|not readable GraphML"),
        (graphml(graph="<graph edgedefault='directed'/>" * 2), "holds 2 graphs"),
        (graphml(edge=""), "'edges.0.capacity_gbps' is missing"),
        (graphml(edge='<data key="c">0</data>'), "greater than or equal to 1e-09"),
        (graphml(edge='<data key="c">inf</data>'), "finite"),
        (graphml(edge='<data key="c">wide</data>'), "not readable GraphML"),
        (graphml(edge='<data key="zz">1</data>'), "not readable GraphML"),
        (graphml(edge='<data key="c">1</data><data key="x">red</data>'), "unknown field"),
        (graphml(nodes='<node id="a"><data key="k">router</data></node>'), "nodes.0.kind"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><graphml>&zz;</graphml>", "not well-formed XML"),
        (" ", "is empty"),
    ],
)
def test_malformed_files_are_refused(tmp_path, text, message):
    path = tmp_path / "broken.graphml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_graphml(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_the_example_of_the_malformed_files_is_good(tmp_path):
    (tmp_path / "good.graphml").write_text(graphml())
    assert load_graphml(tmp_path / "good.graphml").links == 1


def test_missing_files_and_unwritable_names(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_network(tmp_path / "none.graphml")
    with pytest.raises(InputError, match="does not exist"):
        load_network(tmp_path / "none")
    at = np.arange(2)
    odd = Network.from_links("a\0b", 2, 0, at, 1 - at, 1.0, 0.0)
    with pytest.raises(InputError, match="XML"):
        save_graphml(odd, tmp_path / "odd.graphml")
    assert not list(tmp_path.iterdir())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_cut_and_changed_files_give_a_network_or_one_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "n.graphml"
    text = bytearray(graphml().encode())
    if data.draw(st.booleans()):
        text = text[: data.draw(st.integers(1, len(text)))]
    else:
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 127))
    path.write_bytes(text)
    try:
        load_network(path)
    except InputError as error:
        assert "\n" not in str(error)
