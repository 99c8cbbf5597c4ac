"""Distances, single shortest paths and ECMP against networkx and a recursive oracle."""

import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError
from routing.network import Network
from routing.paths import (
    ecmp_link_bytes,
    ecmp_routes,
    forwarding_nodes,
    hop_distances,
    shortest_routes,
)
from routing.routes import Routes
from topoopt.topology.network_json import network_graph


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Strongly connected networks of hosts (a ring and chords), or of hosts around switches."""
    hosts = draw(st.integers(2, 7))
    switches = draw(st.sampled_from([0, 0, 1, 3]))
    nodes = hosts + switches
    cables = []
    if switches:
        cables += [(h, hosts + h % switches) for h in range(hosts)]
        cables += [(hosts + s, hosts + (s + 1) % switches) for s in range(switches - 1)]
        cables += [(b, a) for a, b in cables]
    else:
        cables += [(v, (v + 1) % nodes) for v in range(nodes)]
    extra = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    cables += [(a, b) for a, b in draw(st.lists(extra, max_size=12)) if a != b]
    latency = [draw(st.integers(1, 5)) * 1e-6 for _ in cables]
    source, target = zip(*cables, strict=True)
    return Network.from_links("drawn", hosts, switches, source, target, 1e9, latency)


def allowed(network: Network, source: int, target: int) -> nx.DiGraph:
    """Return the graph without the hosts that may not forward for this pair."""
    graph = network_graph(network)
    if network.switches:
        keep = set(range(network.hosts, network.nodes)) | {source, target}
        graph.remove_nodes_from([v for v in range(network.nodes) if v not in keep])
    return graph


def shortest_sequences(network: Network, source: int, target: int) -> list[list[int]]:
    return sorted(nx.all_shortest_paths(allowed(network, source, target), source, target))


def check_conservation(network: Network, routes: Routes) -> None:
    """A unit leaves the source, reaches the target, and nothing is lost between."""
    for s in range(network.hosts):
        for t in range(network.hosts):
            links, weights = routes.row(s, t)
            assert np.all(np.diff(links) > 0)
            assert np.all((weights > 0) & (weights <= 1))
            balance = np.zeros(network.nodes)
            np.add.at(balance, network.source[links], weights)
            np.add.at(balance, network.target[links], -weights)
            expected = np.zeros(network.nodes)
            expected[s] += 1.0
            expected[t] -= 1.0
            np.testing.assert_allclose(balance, expected, atol=1e-12)
            assert routes.hops[s * network.hosts + t] == pytest.approx(weights.sum())


@settings(max_examples=60, deadline=None)
@given(networks())
def test_distances_are_those_of_networkx(network: Network) -> None:
    distance = hop_distances(network)
    for s in range(network.nodes):
        for t in range(network.nodes):
            graph = network_graph(network)
            mute = np.flatnonzero(forwarding_nodes(network) == 0)
            graph.remove_nodes_from([v for v in mute.tolist() if v not in (s, t)])
            known = nx.single_source_shortest_path_length(graph, s).get(t, -1)
            assert distance[s, t] == known


@settings(max_examples=60, deadline=None)
@given(networks())
def test_the_lowest_shortest_path_is_taken(network: Network) -> None:
    routes = shortest_routes(network)
    check_conservation(network, routes)
    for s in range(network.hosts):
        for t in range(network.hosts):
            if s == t:
                continue
            lowest = shortest_sequences(network, s, t)[0]
            expected = sorted(network.link(a, b) for a, b in itertools.pairwise(lowest))
            assert routes.row(s, t)[0].tolist() == expected
            seconds = network.latency[expected].sum()
            assert routes.latency[s * network.hosts + t] == pytest.approx(seconds)


@settings(max_examples=30, deadline=None)
@given(networks(), st.integers(0, 2**32))
def test_random_paths_are_shortest_and_repeat_with_the_seed(network: Network, seed: int) -> None:
    routes = shortest_routes(network, seed=seed)
    check_conservation(network, routes)
    np.testing.assert_array_equal(routes.hops, shortest_routes(network).hops)
    again = shortest_routes(network, seed=np.random.default_rng(seed))
    np.testing.assert_array_equal(routes.links, again.links)


def test_random_paths_are_uniform_over_shortest_paths() -> None:
    # From 0 to 5: 0-1-3-5, 0-1-4-5 and 0-2-4-5; splitting at nodes would favour the last.
    cables = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5), (5, 0)]
    source, target = zip(*cables, strict=True)
    network = Network.from_links("three ways", 6, 0, source, target, 1.0, 0.0)
    rng = np.random.default_rng(5)
    seen = Counter(
        tuple(shortest_routes(network, seed=rng).row(0, 5)[0].tolist()) for _ in range(1500)
    )
    assert len(seen) == 3
    assert min(seen.values()) > 420


def ecmp_oracle(network: Network, source: int, target: int) -> dict[tuple[int, int], float]:
    """Split at every node by recursion over the shortest paths."""
    paths = shortest_sequences(network, source, target)
    following: dict[int, set[int]] = {}
    for path in paths:
        for a, b in itertools.pairwise(path):
            following.setdefault(a, set()).add(b)
    weights: dict[tuple[int, int], float] = {}

    def send(node: int, amount: float) -> None:
        for hop in sorted(following.get(node, ())):
            part = amount / len(following[node])
            weights[node, hop] = weights.get((node, hop), 0.0) + part
            send(hop, part)

    send(source, 1.0)
    return weights


@settings(max_examples=60, deadline=None)
@given(networks())
def test_ecmp_equals_the_recursive_split(network: Network) -> None:
    routes = ecmp_routes(network)
    check_conservation(network, routes)
    for s in range(network.hosts):
        for t in range(network.hosts):
            if s == t:
                continue
            links, weights = routes.row(s, t)
            ends = zip(network.source[links].tolist(), network.target[links].tolist(), strict=True)
            got = dict(zip(ends, weights.tolist(), strict=True))
            assert got == pytest.approx(ecmp_oracle(network, s, t))
            slowest = max(
                sum(network.latency[network.link(a, b)] for a, b in itertools.pairwise(p))
                for p in shortest_sequences(network, s, t)
            )
            assert routes.latency[s * network.hosts + t] == pytest.approx(slowest)


def test_an_unreachable_pair_is_named() -> None:
    network = Network.from_links("two islands", 3, 0, [0, 1], [1, 0], 1.0, 0.0)
    for route in (shortest_routes, ecmp_routes):
        with pytest.raises(InfeasibleError, match="host 2 cannot be reached from host 0"):
            route(network)


def test_hosts_do_not_forward_beside_switches() -> None:
    # Host 1 has links to both switches; traffic 0 -> 2 must not cross it.
    source, target = [0, 3, 1, 1, 4, 2, 3, 4], [3, 0, 3, 4, 2, 4, 1, 1]
    network = Network.from_links("dual-homed", 3, 2, source, target, 1.0, 0.0)
    only = "host 2 is reached from host 0 only through other hosts, which do not forward here"
    with pytest.raises(InfeasibleError, match=only):
        shortest_routes(network)
    assert ecmp_routes(network, hosts_forward=True).hops[2] == 4.0
    cut = Network.from_links("cut", 3, 2, source[:6], target[:6], 1.0, 0.0)
    with pytest.raises(InfeasibleError, match="host 1 cannot be reached from host 0"):
        shortest_routes(cut)


def test_one_host_has_no_routes() -> None:
    network = Network.from_links("one", 1, 0, [], [], 1.0, 0.0)
    assert ecmp_routes(network).links.size == 0
    assert shortest_routes(network, seed=0).links.size == 0


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(0, 2**32 - 1))
def test_bytes_on_links_need_no_routes(network: Network, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (network.hosts, network.hosts)
    demand = rng.random(shape) * (rng.random(shape) < 0.5)
    kept = demand.copy()
    np.fill_diagonal(kept, 0.0)
    expected = ecmp_routes(network).link_bytes(network, kept)
    assert np.allclose(ecmp_link_bytes(network, demand), expected, rtol=1e-12, atol=1e-15)


def test_bytes_on_links_need_the_pairs_that_send_alone() -> None:
    network = Network.from_links("two islands", 3, 0, [0, 1], [1, 0], 1.0, 0.0)
    demand = np.zeros((3, 3))
    assert ecmp_link_bytes(network, demand).tolist() == [0.0, 0.0]
    demand[0, 1] = 5.0
    assert ecmp_link_bytes(network, demand).tolist() == [5.0, 0.0]
    demand[0, 2] = 1.0
    with pytest.raises(InfeasibleError, match="host 2 cannot be reached from host 0"):
        ecmp_link_bytes(network, demand)
