"""Valiant routes: unit flows without loops, closed forms and refusals."""

import numpy as np
import pytest
from flow_oracle import random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError
from routing.network import Network
from routing.paths import ecmp_routes, forwarding_nodes
from routing.valiant import valiant_routes


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6))
def test_routes_are_unit_flows_without_loops(seed: int) -> None:
    network = random_network(np.random.default_rng(seed))
    routes = valiant_routes(network)
    may = forwarding_nodes(network)
    for s in range(network.hosts):
        for t in range(network.hosts):
            links, weights = routes.row(s, t)
            balance = np.eye(network.nodes)[t] - np.eye(network.nodes)[s]
            np.add.at(balance, network.source[links], weights)
            np.add.at(balance, network.target[links], -weights)
            np.testing.assert_allclose(balance, 0.0, atol=1e-9)
            assert np.all(network.target[links] != s) and np.all(network.source[links] != t)
            inner = np.setdiff1d(network.source[links], [s])
            assert np.all(may[inner] != 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_no_link_is_loaded_more_than_by_its_two_legs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, switches=0)
    n = network.hosts
    demand = random_demand(rng, n)
    leg = ecmp_routes(network)
    out = np.tile(demand.sum(axis=1, keepdims=True) / n, (1, n))
    back = np.tile(demand.sum(axis=0, keepdims=True) / n, (n, 1))
    expected = leg.link_bytes(network, out) + leg.link_bytes(network, back)
    assert np.all(valiant_routes(network).link_bytes(network, demand) <= expected + 1e-9)


def mesh(n: int) -> Network:
    source, target = np.nonzero(1 - np.eye(n))
    return Network.from_links("mesh", n, 0, source, target, 1.0, 1e-6)


def test_full_mesh() -> None:
    """1/n by way of each other host, and 2/n straight (the ends as intermediates)."""
    network = mesh(5)
    links, weights = valiant_routes(network).row(0, 1)
    straight = links == network.link(0, 1)
    np.testing.assert_allclose(weights[straight], 2 / 5)
    np.testing.assert_allclose(weights[~straight], 1 / 5)


def test_refusals() -> None:
    with pytest.raises(InfeasibleError, match="no path between host"):
        valiant_routes(Network.from_links("line", 2, 0, [0], [1], 1.0, 0.0))
