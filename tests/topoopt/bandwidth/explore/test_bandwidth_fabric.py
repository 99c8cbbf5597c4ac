"""A multi-dimensional network as a fabric: links, routes, and times in the flow simulator."""

import networkx as nx
import numpy as np
import pytest

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.bandwidth.model.collectives import Collective, PartialGroups, pattern
from topoopt.bandwidth.model.communicator import NpuGroup
from topoopt.bandwidth.model.links import PairLoads, build_network, dimension_routes, strides
from topoopt.bandwidth.model.network import parse_network
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.fabric.transport import IDEAL
from topoopt.topology.network_json import network_graph
from topoopt.topology.zoo.blocks import BuildingBlock

G = 1e9
NETWORKS = ["RI(4)", "FC(5)", "SW(6)", "RI(2)_FC(4)_SW(3)", "SW(4)_RI(5)", "FC(2)_RI(6)_FC(3)"]


def rates(network):
    return np.array([100.0, 40.0, 12.5, 5.0][: network.dimensions]) * G


def on_fabric(network, bandwidth, rings=None):
    links = build_network(network, bandwidth)
    routes = dimension_routes(network, links)
    return Fabric(network.notation, links, routes, rings or {}, None, IDEAL)


@pytest.mark.parametrize("notation", NETWORKS)
def test_every_npu_has_its_bandwidth_on_every_dimension(notation):
    network = parse_network(notation)
    made = build_network(network, rates(network))
    leaving = np.bincount(made.source, weights=made.capacity, minlength=made.nodes)
    arriving = np.bincount(made.target, weights=made.capacity, minlength=made.nodes)
    assert leaving[: network.npus] == pytest.approx(np.full(network.npus, rates(network).sum()))
    assert arriving == pytest.approx(leaving)


@pytest.mark.parametrize("notation", NETWORKS)
def test_routes_are_shortest_unit_flows_in_dimension_order(notation):
    network = parse_network(notation)
    made = build_network(network, rates(network))
    routes = dimension_routes(network, made)
    far = dict(nx.all_pairs_shortest_path_length(network_graph(made)))
    for source in range(network.npus):
        for target in range(network.npus):
            links, weights = routes.row(source, target)
            balance = np.zeros(made.nodes)
            np.add.at(balance, made.source[links], weights)
            np.add.at(balance, made.target[links], -weights)
            wanted = np.zeros(made.nodes)
            if source != target:
                wanted[source], wanted[target] = 1.0, -1.0
            assert balance == pytest.approx(wanted, abs=1e-12)
            assert weights.sum() == pytest.approx(far[source][target])


@pytest.mark.parametrize("notation", ["RI(4)", "SW(6)", "SW(4)_RI(5)", "RI(2)_FC(2)_SW(3)"])
def test_an_allreduce_over_a_dimension_takes_the_time_of_the_model(notation):
    network = parse_network(notation)
    bandwidth = rates(network)
    size = 3e8
    for d, block in enumerate(network.blocks):
        along = np.moveaxis(np.arange(network.npus).reshape(network.sizes[::-1]), -1 - d, -1)
        groups = tuple(tuple(line) for line in along.reshape(-1, network.sizes[d]).tolist())
        both = block == BuildingBlock.RING and network.sizes[d] > 2
        fabric = on_fabric(network, bandwidth, {g: (g, g[::-1]) if both else (g,) for g in groups})
        tasks = TaskGraph.from_lists(
            network.npus,
            [(TaskKind.ALLREDUCE, g, -1, size, 0.0) for g in range(len(groups))], [], groups,
        )  # fmt: skip
        sizes = tuple(n if k == d else 1 for k, n in enumerate(network.sizes))
        load, multiple, _ = pattern(
            network, NpuGroup(sizes, (1,) * len(sizes)), Collective.ALL_REDUCE, PartialGroups.USABLE
        )
        n = network.sizes[d]
        expected = multiple * size * load[d] / bandwidth[d]
        assert expected == pytest.approx(2 * (n - 1) / n * size / bandwidth[d])
        assert simulate(fabric, tasks).makespan == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("notation", ["FC(5)", "RI(6)", "RI(2)_FC(4)_SW(3)", "SW(4)_RI(5)"])
def test_loads_of_transfers_bound_the_simulated_time_and_meet_it_for_one(notation):
    network = parse_network(notation)
    bandwidth = rates(network)
    fabric = on_fabric(network, bandwidth)
    loads = PairLoads(network)
    rng = np.random.default_rng(3)
    for count in (1, 1, 1, 5, 20):
        sent = np.zeros((network.npus, network.npus))
        tasks = []
        for _ in range(count):
            a, b = rng.choice(network.npus, 2, replace=False)
            size = float(rng.uniform(1, 9)) * 1e7
            sent[a, b] += size
            tasks.append((TaskKind.TRANSFER, int(a), int(b), size, 0.0))
        load, latency = loads.of(sent)
        assert latency == 0.0
        bound = float((np.array(load) / bandwidth).max())
        time = simulate(fabric, TaskGraph.from_lists(network.npus, tasks, [])).makespan
        assert time >= bound * (1 - 1e-9)
        if count == 1:
            assert time == pytest.approx(bound, rel=1e-9)


def test_all_to_all_on_a_full_mesh_is_the_closed_form():
    network = parse_network("FC(8)")
    sent = (1.0 - np.eye(8)) * 1e6 / 8
    assert PairLoads(network).of(sent)[0] == pytest.approx([1e6 * 7 / 8])


def test_latency_of_routes_counts_steps():
    from dataclasses import replace

    network = replace(parse_network("RI(4)_SW(3)"), latencies=(1e-6, 1e-5))
    routes = dimension_routes(network, build_network(network, rates(network)))
    assert routes.latency[0 * 12 + 2] == pytest.approx(2e-6)
    assert routes.latency[0 * 12 + 7] == pytest.approx(1e-6 + 1e-5)
    assert strides(network) == (1, 4)


def test_networks_that_cannot_be_built_are_refused():
    network = parse_network("RI(4)_SW(3)")
    with pytest.raises(InputError, match=r"b1 of .* has 0 bytes/s"):
        build_network(network, np.array([1.0, 0.0]))
    with pytest.raises(InputError, match="at most 65536"):
        build_network(parse_network("SW(100000)"), np.array([1.0]))
    with pytest.raises(InputError, match="shape"):
        build_network(network, np.ones(3))
    with pytest.raises(InputError, match="at most 2048"):
        on_fabric(parse_network("SW(4096)"), np.array([1.0]))
