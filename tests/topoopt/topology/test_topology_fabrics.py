"""Baseline networks: sizes, capacities, connectivity and routes."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from routing.merging import merge_equivalent_links
from topoopt.problem.fat_tree_sizes import fat_tree_size
from topoopt.problem.ports import PortModel
from topoopt.topology.fabrics import fat_tree, ideal_switch, random_regular
from topoopt.topology.network_json import network_graph
from topoopt.topology.wiring import DegreeTooSmallError


def test_the_ideal_switch_has_two_links_a_pair() -> None:
    network, routes = ideal_switch(5, 50e9, 1e-6)
    assert network.links == 10
    assert np.all(network.capacity == 50e9)
    for s in range(5):
        for t in range(5):
            links, weights = routes.row(s, t)
            assert weights.tolist() == ([] if s == t else [1.0, 1.0])
            assert routes.latency[5 * s + t] == pytest.approx(0.0 if s == t else 2e-6)
            if s != t:
                assert {*network.source[links].tolist()} == {s, 5}
                assert {*network.target[links].tolist()} == {t, 5}


@given(st.integers(1, 600))
def test_fat_tree_sizes(hosts: int) -> None:
    size = fat_tree_size(hosts)
    assert size.k % 2 == 0
    assert size.k**3 / 4 >= hosts
    assert size.k == 2 or (size.k - 2) ** 3 / 4 < hosts
    if size.k**3 / 4 == hosts:  # a full fat-tree: 5 k^2 / 4 switches, 3 cables a host
        assert size.switches == 5 * size.k**2 / 4
        assert hosts == size.edge_cables == size.core_cables


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.sampled_from([1, 2, 3]))
def test_fat_trees_are_wired_within_their_ports(hosts: int, oversubscription: int) -> None:
    network, routes = fat_tree(hosts, 8.0, 1e-6, oversubscription)
    size = fat_tree_size(hosts)
    assert network.switches == size.switches
    assert network.links == 2 * (hosts + size.edge_cables + size.core_cables)
    assert network.out_degree()[:hosts].tolist() == [1] * hosts
    assert network.out_degree().max(initial=0) <= size.k
    below = network.source < hosts
    assert np.all(network.capacity[below] == 8.0)
    between = (network.source >= hosts) & (network.target >= hosts)
    np.testing.assert_allclose(network.capacity[between], 8.0 / oversubscription)
    # Every switch is on some route, and rows are 2, 4 or 6 hops long.
    assert set(np.unique(network.source[routes.links]).tolist()) >= (
        set(range(hosts, network.nodes)) if hosts > 1 else set()
    )
    half = size.k // 2
    for s in range(hosts):
        for t in range(hosts):
            if s == t:
                continue
            same_rack = s // half == t // half
            same_pod = s // half // half == t // half // half
            hops = 2 if same_rack else 4 if same_pod else 6
            assert routes.hops[s * hosts + t] == pytest.approx(hops)


def test_a_full_fat_tree_carries_any_permutation_at_full_rate() -> None:
    hosts = 16
    for ratio, worst in ((1, 1.0), (2, 2.0)):
        network, routes = fat_tree(hosts, 4.0, 0.0, ratio)
        shift = np.zeros((hosts, hosts))
        shift[np.arange(hosts), (np.arange(hosts) + 4) % hosts] = 4.0  # every pair changes pod
        load = routes.link_bytes(network, shift) / network.capacity
        assert load.max() == pytest.approx(worst)


def test_merged_rows_of_a_fat_tree_are_six_long() -> None:
    network, routes = fat_tree(128, 1.0, 1e-6)
    assert int(np.diff(routes.offsets).max()) == 42
    smaller, merged, _ = merge_equivalent_links(network, routes)
    assert int(np.diff(merged.offsets).max()) == 6
    # 128 up, 128 down; one class each way for 32 racks and for 8 pods.
    assert smaller.links == 2 * (128 + 32 + 8)
    rng = np.random.default_rng(0)
    for _ in range(3):
        demand = rng.random((128, 128)) * (rng.random((128, 128)) < 0.05)
        np.fill_diagonal(demand, 0.0)
        before = (routes.link_bytes(network, demand) / network.capacity).max()
        after = (merged.link_bytes(smaller, demand) / smaller.capacity).max()
        assert after == pytest.approx(before)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 24), st.integers(1, 9), st.sampled_from(PortModel), st.integers(0, 2**32))
def test_expanders_are_regular_and_connected(
    hosts: int, degree: int, ports: PortModel, seed: int
) -> None:
    if ports is PortModel.BIDIRECTIONAL and degree == 1 and hosts > 2:
        with pytest.raises(DegreeTooSmallError, match="give at least 2"):
            random_regular(hosts, degree, 1.0, 0.0, np.random.default_rng(seed), ports)
        return
    network, routes = random_regular(hosts, degree, 3.0, 1e-6, np.random.default_rng(seed), ports)
    assert nx.is_strongly_connected(network_graph(network))
    out, into = network.out_degree(), network.in_degree()
    unused = hosts * degree - out.sum()
    assert unused == (hosts * degree % 2 if ports is PortModel.BIDIRECTIONAL else 0)
    assert out.max() == into.max() == degree
    np.testing.assert_allclose(network.capacity, 3.0 * network.multiplicity)
    complete = degree // (hosts - 1)
    if hosts * degree % 2 == 0 or ports is PortModel.DIRECTED:
        assert network.multiplicity.max() <= complete + 1
    if ports is PortModel.BIDIRECTIONAL:
        pairs = set(zip(network.source.tolist(), network.target.tolist(), strict=True))
        assert {(b, a) for a, b in pairs} == pairs
    again, _ = random_regular(hosts, degree, 3.0, 1e-6, np.random.default_rng(seed), ports)
    np.testing.assert_array_equal(again.target, network.target)
    assert routes.hosts == hosts


def test_an_expander_of_128_is_shallow() -> None:
    for ports in PortModel:
        _, routes = random_regular(128, 4, 1.0, 1e-6, np.random.default_rng(1), ports)
        assert routes.hops.max() <= 8


def test_bad_input_is_named() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="0 servers"):
        ideal_switch(0, 1.0, 0.0)
    with pytest.raises(InputError, match="bandwidth is -1"):
        fat_tree(4, -1.0, 0.0)
    with pytest.raises(InputError, match="latency is nan"):
        fat_tree(4, 1.0, float("nan"))
    with pytest.raises(InputError, match=r"oversubscription is 0\.5"):
        fat_tree(4, 1.0, 0.0, 0.5)
    with pytest.raises(InputError, match="one host needs no network"):
        random_regular(1, 4, 1.0, 0.0, rng)
    with pytest.raises(DegreeTooSmallError, match="degree 0"):
        random_regular(4, 0, 1.0, 0.0, rng)
    with pytest.raises(InputError, match="0 hosts"):
        fat_tree_size(0)
