"""Coin-change tables and routes against breadth-first search."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network

from codesign_base import InfeasibleError, InputError
from routing.coin_change import coin_change, coin_change_routes
from routing.network import Network
from routing.paths import hop_distances


@st.composite
def rings(draw: st.DrawFn) -> tuple[int, tuple[int, ...]]:
    n = draw(st.integers(2, 40))
    return n, tuple(draw(st.lists(st.integers(1, n - 1), min_size=1, max_size=5, unique=True)))


@settings(max_examples=100, deadline=None)
@given(rings())
def test_counts_are_hop_distances(case: tuple[int, tuple[int, ...]]) -> None:
    n, steps = case
    table = coin_change(n, steps)
    np.testing.assert_array_equal(table.count, hop_distances(circulant_network(n, steps))[0])
    for distance in range(n):
        if table.count[distance] >= 0:
            assert table.coins[distance] @ table.generators % n == distance
            assert table.coins[distance].sum() == table.count[distance]


@settings(max_examples=25, deadline=None)
@given(rings())
def test_routes_are_shortest_paths(case: tuple[int, tuple[int, ...]]) -> None:
    n, steps = case
    network = circulant_network(n, steps)
    if math.gcd(n, *steps) > 1:
        with pytest.raises(InfeasibleError, match="coprime"):
            coin_change_routes(network, steps)
        return
    routes = coin_change_routes(network, steps)
    distance = hop_distances(network)
    for s in range(n):
        for t in range(n):
            links, weights = routes.row(s, t)
            assert links.size == distance[s, t] == routes.hops[s * n + t]
            assert np.all(np.diff(links) > 0)
            assert np.all(weights == 1)
            assert routes.latency[s * n + t] == pytest.approx(links.size * 1e-6)
            # Follow the links from s: they form one path to t.
            following = dict(
                zip(network.source[links].tolist(), network.target[links].tolist(), strict=True)
            )
            at = s
            for _ in range(links.size):
                at = following[at]
            assert at == t


def test_uniform_traffic_loads_each_ring_evenly() -> None:
    network = circulant_network(12, (1, 5))
    load = coin_change_routes(network, (1, 5)).link_bytes(network, np.ones((12, 12)))
    step = (network.target - network.source) % 12
    for p in (1, 5):
        np.testing.assert_allclose(load[step == p], load[step == p][0])


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="1 server;"):
        coin_change(1, (1,))
    with pytest.raises(InputError, match="step 8"):
        coin_change(8, (8,))
    with pytest.raises(InputError, match="repeat"):
        coin_change(8, (1, 1))
    with pytest.raises(InputError, match="no link 0->3"):
        coin_change_routes(circulant_network(8, (1,)), (1, 3))
    switched = Network.from_links("switch", 2, 1, [0, 2], [2, 0], 1.0, 0.0)
    with pytest.raises(InputError, match="1 switch;"):
        coin_change_routes(switched, (1,))
