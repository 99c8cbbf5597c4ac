"""Wirings for groups that exchange among themselves: ports, meshes, what lies between."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import topoopt as to
from parallelism.taskgraph import Traffic
from routing.paths import ecmp_routes, hop_distances
from topoopt.problem.ports import PortModel
from topoopt.topology.exchange_groups import exchange_groups, exchange_wirings, join_groups
from topoopt.topology.wiring import Wiring

RATE = 50e9


def blocks(count, size, *, strided=False, inside=100.0, onward=10.0, skew=None):
    """Groups of equal size, each server of which sends to its fellow of the next group, too."""
    servers = count * size
    order = np.arange(servers).reshape(count, size)
    if strided:
        order = np.arange(servers).reshape(size, count).T
    transfers = np.zeros((servers, servers))
    for number, members in enumerate(order):
        busy = inside * (1.0 if skew is None else skew[number])
        transfers[np.ix_(members, members)] = busy
        if number + 1 < count:
            transfers[members, order[number + 1]] = onward
            transfers[order[number + 1], members] = onward
    np.fill_diagonal(transfers, 0.0)
    groups = tuple(tuple(sorted(members.tolist())) for members in order)
    return Traffic(servers, transfers, groups, np.full(count, 1.0)), tuple(sorted(groups))


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(3, 8), st.booleans(), st.floats(1.0, 1.8))
def test_groups_are_found_whether_contiguous_or_strided(count, size, strided, skew) -> None:
    busy = np.linspace(1.0, skew, count)
    traffic, groups = blocks(count, size, strided=strided, skew=busy)
    before = traffic.transfers.copy()
    found = list(exchange_groups(traffic.transfers))
    assert found[0] == groups
    assert np.array_equal(before, traffic.transfers)


def test_no_groups_where_all_or_only_neighbours_exchange() -> None:
    everyone = np.ones((8, 8)) - np.eye(8)
    assert list(exchange_groups(everyone)) == []
    ring = np.roll(np.eye(12), 1, axis=1)
    assert list(exchange_groups(ring)) == []
    assert list(exchange_groups(np.zeros((8, 8)))) == []


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(3, 9),
    st.integers(3, 9),
    st.booleans(),
    st.sampled_from(PortModel),
)
def test_ports_are_kept_to_and_groups_of_few_are_meshes(
    count, size, degree, strided, ports
) -> None:
    traffic, groups = blocks(count, size, strided=strided)
    assume(degree >= 4 or size <= degree)
    for topology in exchange_wirings(traffic, to.Cluster(traffic.servers, degree, RATE, ports)):
        network = topology.network
        cables = np.zeros((traffic.servers, traffic.servers), dtype=np.int64)
        cables[network.source, network.target] = network.multiplicity
        assert cables.sum(axis=0).max() <= degree
        assert cables.sum(axis=1).max() <= degree
        if ports is PortModel.BIDIRECTIONAL:
            assert np.array_equal(cables, cables.T)
        assert nx.is_strongly_connected(nx.DiGraph(np.argwhere(cables > 0).tolist()))
        edges = np.zeros_like(cables)
        for ring in topology.rings:
            assert tuple(sorted(ring.members)) == ring.group
            np.add.at(edges, (ring.members, np.roll(ring.members, -1)), 1)
        assert np.all(edges <= cables)
        assert topology.degree_allreduce + topology.degree_transfer == degree
        if size <= degree:
            distance = hop_distances(network)
            for group in groups:
                among = distance[np.ix_(group, group)]
                assert np.all(among + np.eye(size, dtype=np.int64) == 1)


def test_the_load_of_meshes_is_that_of_the_closed_form() -> None:
    # 8 groups of 8 servers with 8 ports: 7 for each other, the 8th between groups.
    traffic, _ = blocks(8, 8, onward=0.0)
    transfers = traffic.transfers.copy()
    for a in range(8):
        transfers[8 * a, (8 * a + 8) % 64] = 1e-3  # so that the groups are joined
    alone = Traffic(64, transfers, traffic.groups, traffic.group_bytes)
    (topology,) = exchange_wirings(alone, to.Cluster(64, 8, RATE))
    network = topology.network
    routes = ecmp_routes(network)
    load = routes.link_bytes(network, traffic.transfers) / network.capacity
    assert load.max() == pytest.approx(100.0 / RATE)  # one message a link, and no forwarding


def test_small_groups_may_have_several_cables_a_pair() -> None:
    # 4 groups of 4 servers with 8 ports: 3 for each other, or twice as many.
    traffic, groups = blocks(4, 4)
    loads = []
    for topology in exchange_wirings(traffic, to.Cluster(16, 8, RATE)):
        network = topology.network
        cables = np.zeros((16, 16), dtype=np.int64)
        cables[network.source, network.target] = network.multiplicity
        between = {int(cables[a, b]) for group in groups for a in group for b in group if a != b}
        routed = ecmp_routes(network).link_bytes(network, traffic.transfers) / network.capacity
        loads.append((min(between), float(routed.max())))
    assert {least for least, _ in loads} == {1, 2}
    once, twice = (min(load for least, load in loads if least == n) for n in (1, 2))
    assert twice == pytest.approx(once / 2)


@settings(deadline=None)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_cables_between_groups_leave_none_that_could_serve(count, size, seed) -> None:
    servers = count * size
    rng = np.random.default_rng(seed)
    transfers = rng.integers(0, 4, (servers, servers)).astype(np.float64)
    np.fill_diagonal(transfers, 0.0)
    groups = tuple(tuple(range(size * k, size * k + size)) for k in range(count))
    wiring = Wiring(servers, 3, PortModel.DIRECTED)
    join_groups(wiring, transfers, groups)
    assert min(wiring.free_out.min(), wiring.free_in.min()) >= 0
    label = np.arange(servers) // size
    assert not np.any((label[:, None] == label) & (wiring.cables > 0))
    for a in range(count):
        for b in range(count):
            between = transfers[np.ix_(label == a, label == b)].sum()
            free = wiring.free_out[label == a].sum() * wiring.free_in[label == b].sum()
            assert a == b or between == 0.0 or free == 0
