"""Pictures of networks: whole SVG files that show every node and every cable once."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import networkx as nx
import pytest
from small_plans import shared_plan, small_mlp, solve

from codesign_base import InputError
from topoopt.report import write_report
from topoopt.report.picture import network_picture, plan_picture
from topoopt.report.wiring import ring_names
from topoopt.report.write import render_picture
from topoopt.topology.zoo.registry import build_fabric

SVG = "{http://www.w3.org/2000/svg}"
FABRICS = {
    "hypercube": {"servers": 16},
    "kautz": {"servers": 12, "degree": 2},
    "leaf-spine": {"servers": 16, "degree": 4, "group": 4},
    "fat-tree": {"servers": 16, "degree": 4},
    "dragonfly": {"servers": 16, "degree": 2},
}


def built(name):
    asked = FABRICS[name]
    return build_fabric(
        name, asked["servers"], asked.get("degree"), 12.5e9, group=asked.get("group")
    ).network


def shapes(text):
    return {tag: ElementTree.fromstring(text).findall(f".//{SVG}{tag}") for tag in
            ("circle", "rect", "path", "text")}  # fmt: skip


@pytest.mark.parametrize("name", FABRICS)
def test_every_node_and_cable_of_a_network_is_drawn_once(name):
    network = built(name)
    text = network_picture(network)
    found = shapes(text)
    assert (len(found["circle"]), len(found["rect"])) == (network.hosts, network.switches)
    pairs = {frozenset(pair) for pair in zip(network.source, network.target, strict=True)}
    assert len(found["path"]) == len(pairs)
    numbers = [float(each) for d in found["path"] for each in re.findall(r"[\d.]+", d.get("d"))]
    assert min(numbers) >= 0.0 and max(numbers) <= 1000.0
    assert text == network_picture(network)


@pytest.mark.parametrize("name", ["leaf-spine", "fat-tree"])
def test_switches_are_drawn_as_far_above_servers_as_they_are_hops_away(name):
    network = built(name)
    graph = nx.Graph(zip(network.source.tolist(), network.target.tolist(), strict=True))
    hops = nx.multi_source_dijkstra_path_length(graph, set(range(network.hosts)))
    found = shapes(network_picture(network))
    height = {
        network.hosts + i: float(rect.get("y")) + 0.5 * float(rect.get("height"))
        for i, rect in enumerate(found["rect"])
    }
    layers = {}
    for node, y in height.items():
        layers.setdefault(hops[node], set()).add(y)
    assert all(len(each) == 1 for each in layers.values())
    ranked = [layers[far].pop() for far in sorted(layers)]
    assert ranked == sorted(ranked, reverse=True)


def test_the_wiring_of_a_plan_is_a_file_of_its_own(tmp_path):
    plan = shared_plan()
    path = tmp_path / "wiring.svg"
    write_report(plan, path)
    assert path.read_text() == plan_picture(plan)
    found = shapes(path.read_text())
    assert len(found["circle"]) == plan.cluster.servers
    assert len(found["path"]) == len(plan.links)
    assert "url(" not in path.read_text() and "<script" not in path.read_text()
    plan.save(tmp_path / "plan.json")
    assert render_picture(tmp_path / "plan.json") == plan_picture(plan)


def test_what_has_no_picture_is_refused(tmp_path):
    with pytest.raises(InputError, match="no network to draw"):
        write_report(solve(small_mlp(), 1, 1), tmp_path / "wiring.svg")
    with pytest.raises(InputError, match="no picture shows"):
        write_report({}, tmp_path / "wiring.svg")
    assert not (tmp_path / "wiring.svg").exists()


def test_rings_are_named_by_their_step_or_else_by_their_number():
    rings = [SimpleNamespace(order=order, generator=step) for order, step in
             (((0, 1, 2), 0), ((0, 2, 1), 2), ((0, 1), 1))]  # fmt: skip
    names = ring_names(SimpleNamespace(rings=rings, cluster=SimpleNamespace(servers=3)))
    assert names[:2] == ["ring 1", "ring +2"]
    assert names[2].startswith("ring +1 over ")
