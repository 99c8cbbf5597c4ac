"""Merging links of proportional load leaves max-min fair rates as they were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.paths import ecmp_routes, k_shortest_routes
from routing.routes import Routes


def fair_rates(network: Network, routes: Routes, pairs: list[int]) -> np.ndarray:
    """Progressive filling: raise all rates together, freeze those on a full link."""
    matrix = np.zeros((network.links, len(pairs)))
    for column, pair in enumerate(pairs):
        links, weights = routes.row(pair // routes.hosts, pair % routes.hosts)
        matrix[links, column] = weights
    rates = np.zeros(len(pairs))
    active = np.ones(len(pairs), dtype=bool)
    while active.any():
        growth = matrix[:, active].sum(axis=1)
        room = network.capacity - matrix @ rates
        rise = min(room[growth > 1e-12] / growth[growth > 1e-12])
        rates[active] += rise
        full = network.capacity - matrix @ rates <= 1e-9 * network.capacity
        active &= ~(matrix[full] > 0).any(axis=0)
    return rates


def spine_leaf(leaves: int, spines: int, hosts_each: int, uplink: float) -> Network:
    hosts = leaves * hosts_each
    cables = [(h, hosts + h // hosts_each, 10.0) for h in range(hosts)]
    cables += [
        (hosts + leaf, hosts + leaves + spine, uplink * (1 + spine % 2))
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    source, target, capacity = zip(*(cables + [(b, a, c) for a, b, c in cables]), strict=True)
    return Network.from_links("clos", hosts, leaves + spines, source, target, capacity, 1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 20), st.data())
def test_fair_rates_on_a_clos_are_unchanged(
    leaves: int, spines: int, hosts_each: int, uplink: int, data: st.DataObject
) -> None:
    network = spine_leaf(leaves, spines, hosts_each, float(uplink))
    routes = ecmp_routes(network)
    smaller, merged, link_class = merge_equivalent_links(network, routes)
    n = network.hosts
    ends = st.integers(0, n * n - 1).filter(lambda pair: pair // n != pair % n)
    pairs = data.draw(st.lists(ends, min_size=1, max_size=12))
    np.testing.assert_allclose(
        fair_rates(smaller, merged, pairs), fair_rates(network, routes, pairs), rtol=1e-9
    )
    # Within a rack two links; otherwise up, one class of uplinks, one of downlinks, down.
    assert int(np.diff(merged.offsets).max()) <= 4
    assert link_class.min() >= 0


@pytest.mark.parametrize("uplink", [2.0, 4.0, 8.0])
def test_the_slowest_cable_of_every_route_stays(uplink: float) -> None:
    """The only server of a rack loads its three uplinks as its own link, which is the tightest."""
    network = spine_leaf(3, 3, 1, uplink)
    routes = ecmp_routes(network)
    smaller, merged, _ = merge_equivalent_links(network, routes)
    for source, target in [(0, 1), (2, 0)]:
        before, after = routes.row(source, target)[0], merged.row(source, target)[0]
        pace = network.capacity / network.multiplicity
        assert (smaller.capacity / smaller.multiplicity)[after].min() == pace[before].min()
        assert after.size <= 4


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 7), st.integers(1, 4), st.data())
def test_fair_rates_on_direct_networks_are_unchanged(n: int, k: int, data: st.DataObject) -> None:
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    cables = [(v, (v + 1) % n) for v in range(n)]
    cables += [(a, b) for a, b in data.draw(st.lists(ends, max_size=10)) if a != b]
    source, target = zip(*cables, strict=True)
    capacity = [data.draw(st.integers(1, 9)) for _ in cables]
    network = Network.from_links("drawn", n, 0, source, target, capacity, 0.0)
    routes = k_shortest_routes(network, k)
    smaller, merged, link_class = merge_equivalent_links(network, routes)
    pairs = [s * n + t for s in range(n) for t in range(n) if s != t]
    np.testing.assert_allclose(
        fair_rates(smaller, merged, pairs), fair_rates(network, routes, pairs), rtol=1e-9
    )
    unused = np.setdiff1d(np.arange(network.links), routes.links)
    assert np.flatnonzero(link_class < 0).tolist() == unused.tolist()


def test_the_tightest_link_stands_for_its_class() -> None:
    # A path 0 -> 1 -> 2 used by one pair only would merge; here pairs 0->1 and 1->2 differ.
    network = spine_leaf(2, 2, 1, 3.0)  # uplinks of 3 and 6, halves of the traffic on each
    smaller, merged, link_class = merge_equivalent_links(network, ecmp_routes(network))
    # With one host a rack, all six links of a pair carry proportional load: the thin uplink.
    assert smaller.links == 2
    assert smaller.capacity.tolist() == [3.0, 3.0]
    links, weights = merged.row(0, 1)
    assert weights.tolist() == [0.5]
    assert smaller.capacity[links].tolist() == [3.0]
    assert set(link_class.tolist()) == {0, 1}
    assert merged.hops[1] == pytest.approx(4.0)


def test_no_routes_merge_to_nothing() -> None:
    network = Network.from_links("one host", 1, 1, [0, 1], [1, 0], 1.0, 0.0)
    smaller, merged, link_class = merge_equivalent_links(network, ecmp_routes(network))
    assert smaller.links == 0
    assert merged.links.size == 0
    assert link_class.tolist() == [-1, -1]
