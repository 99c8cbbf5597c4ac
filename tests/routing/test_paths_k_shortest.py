"""k-shortest paths against networkx's Yen, including where loops defeat the distance bound."""

from itertools import islice, pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network

from codesign_base import InfeasibleError, InputError
from routing import paths
from routing.network import Network
from routing.paths import k_shortest_routes
from topoopt.topology.network_json import network_graph


def oracle(network: Network, s: int, t: int, k: int, slack: int | None) -> list[tuple[int, ...]]:
    """All simple paths by length, then node sequence (exhaustive)."""
    simple = [tuple(p) for p in nx.all_simple_paths(network_graph(network), s, t)]
    simple.sort(key=lambda p: (len(p), p))
    if slack is not None:
        simple = [p for p in simple if len(p) <= len(simple[0]) + slack]
    return simple[:k]


@st.composite
def direct_networks(draw: st.DrawFn) -> Network:
    n = draw(st.integers(2, 7))
    cables = [(v, (v + 1) % n) for v in range(n)]
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    cables += [(a, b) for a, b in draw(st.lists(ends, max_size=14)) if a != b]
    source, target = zip(*cables, strict=True)
    latency = [draw(st.integers(1, 5)) * 1e-6 for _ in cables]
    return Network.from_links("drawn", n, 0, source, target, 1.0, latency)


@pytest.mark.parametrize("budget", [paths._SEARCH_BUDGET, 0])
@settings(max_examples=30, deadline=None)
@given(direct_networks(), st.integers(1, 9), st.none() | st.integers(0, 3))
def test_paths_are_the_first_of_all_simple_paths(
    budget: int, network: Network, k: int, slack: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_SEARCH_BUDGET", budget)  # 0: exact pruning from the start
        routes = k_shortest_routes(network, k, slack=slack)
        for s in range(network.hosts):
            for t in range(network.hosts):
                if s == t:
                    assert routes.row(s, t)[0].size == 0
                    continue
                expected = oracle(network, s, t, k, slack)
                share: dict[int, float] = {}
                for path in expected:
                    for a, b in pairwise(path):
                        link = network.link(a, b)
                        share[link] = share.get(link, 0.0) + 1 / len(expected)
                links, weights = routes.row(s, t)
                assert links.tolist() == sorted(share)
                assert dict(zip(links.tolist(), weights, strict=True)) == pytest.approx(share)
                pair = s * network.hosts + t
                mean = sum(len(p) - 1 for p in expected) / len(expected)
                assert routes.hops[pair] == pytest.approx(mean)
                slowest = max(
                    sum(network.latency[network.link(a, b)] for a, b in pairwise(p))
                    for p in expected
                )
                assert routes.latency[pair] == pytest.approx(slowest)


@pytest.mark.parametrize("steps", [(1, 5), (1, 3, 5, 9), (1, 15)])
def test_lengths_are_those_of_yen(steps: tuple[int, ...]) -> None:
    network = circulant_network(16, steps)
    graph = network_graph(network)
    routes = [k_shortest_routes(network, k) for k in range(1, 9)]
    for t in range(1, 16):
        yen = [len(p) - 1 for p in islice(nx.shortest_simple_paths(graph, 0, t), 8)]
        # The mean of the first k for every k gives each length.
        found = [routes[k - 1].hops[t] * k for k in range(1, len(yen) + 1)]
        np.testing.assert_allclose(found, np.cumsum(yen))


def test_a_dense_dead_end_does_not_blow_up() -> None:
    # 0 reaches 1 only directly, but also enters a complete graph of 20 that leads only back.
    n = 22
    inner = range(2, n)
    cables = [(0, 1), (1, 0), (0, 2), (2, 0)] + [(a, b) for a in inner for b in inner if a != b]
    source, target = zip(*cables, strict=True)
    network = Network.from_links("dead end", n, 0, source, target, 1.0, 0.0)
    links, weights = k_shortest_routes(network, 8).row(0, 1)
    assert (links.tolist(), weights.tolist()) == ([network.link(0, 1)], [1.0])


def test_all_pairs_at_128_servers() -> None:
    network = circulant_network(128, (1, 5, 13, 39))
    routes = k_shortest_routes(network, 8)
    graph = network_graph(network)
    for t in (1, 2, 64, 100, 127):
        yen = [len(p) - 1 for p in islice(nx.shortest_simple_paths(graph, 0, t), 8)]
        assert routes.hops[t] == pytest.approx(np.mean(yen))
    assert routes.offsets.size == 128 * 128 + 1


def test_bad_arguments_are_named() -> None:
    network = circulant_network(4, (1,))
    with pytest.raises(InputError, match="k = 0"):
        k_shortest_routes(network, 0)
    with pytest.raises(InputError, match="slack = -1"):
        k_shortest_routes(network, 1, slack=-1)
    lonely = Network.from_links("islands", 3, 0, [0, 1], [1, 0], 1.0, 0.0)
    with pytest.raises(InfeasibleError, match="host 2"):
        k_shortest_routes(lonely, 2)
