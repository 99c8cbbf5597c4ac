"""Kernels of flows against plain Python: shortest trees, circulants, cycles, single moves."""

import networkx as nx
import numpy as np
import pytest
from flow_oracle import random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network

from routing.circulant_flow import is_circulant, min_congestion_circulant
from routing.congestion_lp import min_congestion_lp
from routing.flow_kernels import cancel_cycles, demand_distance, tree_entries
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.paths import forwarding_nodes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_shortest_trees_are_those_of_networkx(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    length = rng.random(network.links) * (rng.random(network.links) < 0.8)
    may = forwarding_nodes(network)
    demand = random_demand(rng, network.hosts)
    total = 0.0
    for s in range(network.hosts):
        graph = nx.DiGraph()
        graph.add_nodes_from(range(network.nodes))
        for link in range(network.links):
            a, b = int(network.source[link]), int(network.target[link])
            if a == s or may[a]:
                graph.add_edge(a, b, weight=float(length[link]))
        known = nx.single_source_dijkstra_path_length(graph, s)
        distance, entry = tree_entries(network.out_offsets, network.target, may, length, s)
        for v in range(network.nodes):
            assert distance[v] == pytest.approx(known.get(v, np.inf))
            if v != s and v in known:
                assert network.target[entry[v]] == v
                before = network.source[entry[v]]
                assert distance[v] == pytest.approx(distance[before] + length[entry[v]])
        total += sum(demand[s, t] * known[t] for t in range(network.hosts) if demand[s, t] > 0)
    found = demand_distance(network.out_offsets, network.target, may, length, demand)
    assert found == pytest.approx(total)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_cycles_go_and_balances_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, hosts=7, switches=0)
    flow = rng.integers(0, 5, network.links).astype(float)

    def balance(of: np.ndarray) -> np.ndarray:
        out = np.bincount(network.source, weights=of, minlength=7)
        return out - np.bincount(network.target, weights=of, minlength=7)

    left = flow.copy()
    cancel_cycles(network.out_offsets, network.target, left, 1e-12)
    np.testing.assert_allclose(balance(left), balance(flow), atol=1e-9)
    assert np.all(left <= flow) and np.all(left >= 0)
    graph = nx.DiGraph()
    graph.add_edges_from(
        (int(network.source[e]), int(network.target[e])) for e in np.flatnonzero(left)
    )
    assert nx.is_directed_acyclic_graph(graph)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 12))
def test_one_source_of_a_circulant_gives_the_lp_optimum(seed: int, hosts: int) -> None:
    rng = np.random.default_rng(seed)
    others = rng.choice(np.arange(2, hosts), min(2, hosts - 2), replace=False).tolist()
    steps = [1, *others]
    network = circulant_network(hosts, steps, rng.choice([1.0, 2.0, 3.0], len(steps)).tolist())
    row = rng.random(hosts) * (rng.random(hosts) < 0.7)
    row[0], row[1] = 0.0, 1.0
    i = np.arange(hosts)
    demand = row[(i[None, :] - i[:, None]) % hosts]
    assert is_circulant(network, demand)
    exact = min_congestion_circulant(network, demand)
    assert exact.gap < 1e-8
    assert exact.congestion == pytest.approx(min_congestion_lp(network, demand).congestion)
    used = (exact.link_load / network.capacity).reshape(hosts, len(steps))
    assert used.max() == pytest.approx(exact.congestion)
    for s, t in ((0, 1), (hosts - 2, hosts - 1)):
        paths = exact.paths(s, t)
        assert sum(share for _, share in paths) == pytest.approx(1.0)
        assert all(nodes[0] == s and nodes[-1] == t for nodes, _ in paths)
    assert min_congestion(network, demand).method == exact.method


def test_what_is_not_circulant_is_seen() -> None:
    network = circulant_network(5, [1, 2], [1.0, 2.0])
    demand = np.ones((5, 5)) - np.eye(5)
    assert is_circulant(network, demand)
    bumped = demand.copy()
    bumped[1, 2] = np.nextafter(1.0, 2.0)
    assert not is_circulant(network, bumped)
    capacity = network.capacity.copy()
    capacity[3] *= 2
    uneven = Network.from_links("uneven", 5, 0, network.source, network.target, capacity, 0.0)
    assert not is_circulant(uneven, demand)
    fewer = Network.from_links(
        "fewer", 5, 0, network.source[1:], network.target[1:], network.capacity[1:], 0.0
    )
    assert not is_circulant(fewer, demand)
