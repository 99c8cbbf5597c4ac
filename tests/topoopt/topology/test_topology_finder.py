"""The topology finder: port budgets, rings and connectivity on any traffic."""

import itertools
import math
from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from parallelism.taskgraph import Traffic
from topoopt.problem.ports import PortModel
from topoopt.topology.finder import Topology, find_topology
from topoopt.topology.network_json import network_graph
from topoopt.topology.split import (
    degree_for_allreduce,
    main_traffic,
    ports_by_server,
    ports_by_total,
)
from topoopt.topology.wiring import DegreeTooSmallError


def traffic_from(
    servers: int,
    groups: dict[tuple[int, ...], float] | None = None,
    transfers: np.ndarray | None = None,
) -> Traffic:
    chosen = groups or {}
    matrix = np.zeros((servers, servers)) if transfers is None else transfers
    return Traffic(servers, matrix, tuple(chosen), np.array(list(chosen.values()), dtype=float))


@st.composite
def traffics(draw: st.DrawFn, most: int = 24) -> Traffic:
    n = draw(st.one_of(st.integers(2, most), st.sampled_from([2, 3, 5, 7, 11, 13])))
    everyone = list(range(n))
    groups: dict[tuple[int, ...], float] = {}
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(2, n))
        members = draw(st.permutations(everyone))[:size]
        groups[tuple(sorted(members))] = draw(st.sampled_from([0.0, 1.0, 3.0, 1e9]))
    if draw(st.booleans()):
        groups[tuple(everyone)] = draw(st.sampled_from([1.0, 1e6]))
    matrix = np.zeros((n, n))
    server = st.integers(0, n - 1)
    for i, j, size in draw(
        st.lists(st.tuples(server, server, st.sampled_from([1.0, 5.0, 1e7])), max_size=3 * n)
    ):
        if i != j:
            matrix[i, j] += size
    return traffic_from(n, groups, matrix)


def check(
    topology: Topology,
    traffic: Traffic,
    degree: int,
    ports: PortModel = PortModel.DIRECTED,
    bandwidth: float = 1.0,
) -> None:
    """Every invariant of a topology."""
    network = topology.network
    n = traffic.servers
    assert network.hosts == n
    assert network.switches == 0
    out, into = network.out_degree(), network.in_degree()
    assert out.max() <= degree
    assert into.max() <= degree
    np.testing.assert_allclose(network.capacity, network.multiplicity * bandwidth)
    graph = network_graph(network)
    assert nx.is_strongly_connected(graph)
    if ports is PortModel.BIDIRECTIONAL:
        for a, b in graph.edges:
            assert graph[a][b]["cables"] == graph[b][a]["cables"]
        # No two servers could still be joined.
        assert (out < degree).sum() <= 1
    else:
        spare_out, spare_in = np.flatnonzero(out < degree), np.flatnonzero(into < degree)
        assert all(i == j for i in spare_out for j in spare_in)
    used: Counter[tuple[int, int]] = Counter()
    for ring in topology.rings:
        assert tuple(sorted(ring.members)) == ring.group
        assert len(set(ring.members)) == len(ring.members) >= 2
        for a, b in pairwise((*ring.members, ring.members[0])):
            used[a, b] += 1
            here, there = ring.group.index(a), ring.group.index(b)
            assert (there - here) % len(ring.group) == ring.generator
    for (a, b), count in used.items():
        assert count <= graph[a][b]["cables"]
    assert topology.degree_allreduce + topology.degree_transfer == degree


@settings(max_examples=60, deadline=None)
@given(
    traffics(),
    st.integers(1, 9),
    st.sampled_from(PortModel),
    st.sampled_from([None, "paper", "artifact"]),
)
def test_topologies_keep_every_invariant(
    traffic: Traffic, degree: int, ports: PortModel, faithful: str | None
) -> None:
    if ports is PortModel.BIDIRECTIONAL and degree == 1 and traffic.servers > 2:
        with pytest.raises(DegreeTooSmallError, match="give at least 2"):
            find_topology(traffic, degree, 1e9, ports=ports, faithful=faithful)
        return
    topology = find_topology(traffic, degree, 1e9, ports=ports, faithful=faithful)
    check(topology, traffic, degree, ports, 1e9)
    again = find_topology(traffic, degree, 1e9, ports=ports, faithful=faithful)
    assert again.rings == topology.rings
    np.testing.assert_array_equal(again.network.target, topology.network.target)


@settings(max_examples=60, deadline=None)
@given(traffics(), st.integers(2, 6), st.sampled_from(PortModel), st.data())
def test_any_split_can_be_asked_for(
    traffic: Traffic, degree: int, ports: PortModel, data: st.DataObject
) -> None:
    share = data.draw(st.integers(0, degree))
    surplus = data.draw(st.sampled_from(["matching", "rings", "parallel"]))
    topology = find_topology(
        traffic, degree, 1.0, ports=ports, degree_allreduce=share, surplus=surplus
    )
    check(topology, traffic, degree, ports)
    reserved = {r.generator for r in topology.rings if len(r.group) == traffic.servers}
    assert topology.degree_allreduce == share or (1 in reserved and share < 2)


@settings(max_examples=60, deadline=None)
@given(traffics(), st.integers(2, 6), st.sampled_from(PortModel), st.data())
def test_rings_asked_for_come_first_as_far_as_there_are_ports(
    traffic: Traffic, degree: int, ports: PortModel, data: st.DataObject
) -> None:
    n = traffic.servers
    orders = [
        tuple(data.draw(st.permutations(range(n)))[: data.draw(st.integers(2, n))])
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    topology = find_topology(traffic, degree, 1.0, ports=ports, joined=orders)
    network = topology.network
    graph = network_graph(network)
    assert nx.is_strongly_connected(graph)
    assert network.out_degree().max() <= degree
    assert network.in_degree().max() <= degree
    used = Counter(
        hop for ring in topology.rings for hop in pairwise((*ring.members, ring.members[0]))
    )
    assert all(count <= graph[a][b]["cables"] for (a, b), count in used.items())
    # The first has its ports even where a ring of all servers must be wired, too.
    if degree >= 4:
        wired = {ring.members for ring in topology.rings}
        first = orders[0]
        assert {first[i:] + first[:i] for i in range(len(first))} & wired


@pytest.mark.parametrize("n", [2, 3, 97, 101, 128, 150, 199, 200])
@pytest.mark.parametrize("ports", list(PortModel))
@pytest.mark.parametrize("degree", [2, 3, 4, 8])
def test_large_and_prime_sizes(n: int, ports: PortModel, degree: int) -> None:
    rng = np.random.default_rng(n)
    transfers = rng.random((n, n)) * (rng.random((n, n)) < 0.1)
    np.fill_diagonal(transfers, 0.0)
    half = tuple(range(0, n, 2))
    groups = {tuple(range(n)): float(n)} | ({half: 1.0} if 2 <= len(half) < n else {})
    traffic = traffic_from(n, groups, transfers)
    check(find_topology(traffic, degree, 1.0, ports=ports), traffic, degree, ports)


def test_pure_data_parallelism_gets_a_ring_a_port() -> None:
    everyone = tuple(range(16))
    traffic = traffic_from(16, {everyone: 1e9})
    directed = find_topology(traffic, 4, 1.0)
    assert [(r.group, r.generator) for r in directed.rings] == [(everyone, p) for p in (1, 3, 5, 7)]
    assert directed.degree_allreduce == 4
    both = find_topology(traffic, 4, 1.0, ports=PortModel.BIDIRECTIONAL)
    assert [(r.group, r.generator) for r in both.rings] == [(everyone, p) for p in (1, 15, 3, 13)]


def test_the_artifact_wires_its_published_rings() -> None:
    transfers = np.ones((16, 16)) - np.eye(16)
    traffic = traffic_from(16, {tuple(range(16)): 1.0}, transfers)
    topology = find_topology(traffic, 8, 1.0, ports=PortModel.BIDIRECTIONAL, faithful="artifact")
    assert topology.degree_transfer == 0
    assert topology.network.links == 16 * 8
    assert {ring.generator for ring in topology.rings} == {1, 15, 3, 13, 5, 11, 9, 7}


def test_the_papers_degree_split() -> None:
    everyone = tuple(range(4))
    transfers = np.zeros((4, 4))
    transfers[0, 1] = 12.0
    # AllReduce sends 2 * 3 * 2 = 12 bytes, transfers 12: half of the ports each.
    traffic = traffic_from(4, {everyone: 2.0}, transfers)
    assert degree_for_allreduce(traffic, 8) == 4
    assert degree_for_allreduce(traffic, 5) == 3
    assert degree_for_allreduce(traffic_from(4, {everyone: 2.0}), 5) == 5
    assert degree_for_allreduce(traffic_from(4, {}, transfers), 5) == 1
    assert degree_for_allreduce(traffic_from(4), 5) == 5


def test_disjoint_groups_do_not_compete_except_in_the_paper() -> None:
    left, right = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
    traffic = traffic_from(10, {left: 3.0, right: 1.0})
    assert ports_by_server(traffic, 4, [1, 1]) == [4, 4]
    assert ports_by_total(traffic, 4) == [3, 1]
    overlapping = traffic_from(10, {left: 3.0, (4, 5, 6, 7, 8): 1.0})
    assert ports_by_server(overlapping, 4, [1, 1]) == [3, 1]


def test_groups_that_reduce_next_to_nothing_are_left_out() -> None:
    everyone, left, right = tuple(range(8)), (0, 1, 2, 3), (4, 5, 6, 7)
    # Members of a half send 1.5e6 bytes for it; of all 1.75 a byte.
    for amount, kept in ((8e3, (left, right)), (9e3, (everyone, left, right))):
        traffic = traffic_from(8, {everyone: amount, left: 1e6, right: 1e6})
        assert set(main_traffic(traffic).groups) == set(kept)
    # Many that reduce little are much together.
    pairs = {(a, b): 1e5 for a in range(8) for b in range(a + 1, 8)}
    traffic = traffic_from(8, {everyone: 1e7, **pairs})
    assert 25 <= len(main_traffic(traffic).groups) < 29  # one pair of a server at most
    # It is much beside what one member sends, though not beside what the others do.
    traffic = traffic_from(8, {everyone: 1e3, left: 1e6})
    assert main_traffic(traffic) is traffic
    # All that there is to reduce is little beside the transfers: the rings are as they were.
    transfers = 1e9 * (1.0 - np.eye(8))
    assert main_traffic(alone := traffic_from(8, {everyone: 1e3}, transfers)) is alone


@given(traffics())
def test_what_is_left_out_is_little_for_every_member(traffic: Traffic) -> None:
    main = main_traffic(traffic)
    assert main.transfers is traffic.transfers
    load = dict(zip(traffic.groups, traffic.member_bytes().tolist(), strict=True))
    sent = traffic.transfers.sum(axis=1)
    for group, amount in load.items():
        sent[list(group)] += amount
    kept = dict(zip(main.groups, main.member_bytes().tolist(), strict=True))
    assert kept.items() <= load.items()
    assert bool(kept) == bool(load)
    left_out = np.zeros(traffic.servers)
    for group in load.keys() - kept.keys():
        left_out[list(group)] += load[group]
    assert np.all((left_out < 0.01 * sent) | (left_out == 0.0))


def test_a_grid_of_groups_gets_even_shares() -> None:
    """Rows of 8 and columns of 16 send 1.75 and 1.875 bytes a server: two ports each, not 3 + 1."""
    rows = {tuple(range(8 * r, 8 * r + 8)): 1.0 for r in range(16)}
    columns = {tuple(range(c, 128, 8)): 1.0 for c in range(8)}
    traffic = traffic_from(128, rows | columns)
    assert set(ports_by_server(traffic, 4, [1] * 24)) == {2}
    topology = find_topology(traffic, 4, 1.0)
    assert set(Counter(ring.group for ring in topology.rings).values()) == {2}


@given(st.integers(0, 2**32 - 1))
def test_no_other_shares_load_a_ring_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, ports = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    groups = {}
    for g in range(count):  # all meet at server 0, and nowhere else
        size = int(rng.integers(1, 4))
        groups[(0, *range(1 + 4 * g, 1 + 4 * g + size))] = float(rng.integers(1, 9))
    traffic = traffic_from(1 + 4 * count, groups)
    each = [int(rng.integers(1, 3))] * count
    shares = ports_by_server(traffic, ports, each)
    rings = [share // ring for share, ring in zip(shares, each, strict=True)]
    assert sum(shares) <= ports and [r * n for r, n in zip(rings, each, strict=True)] == shares
    load = traffic.member_bytes()

    def worst(counts: tuple[int, ...]) -> float:
        return max(one / n if n else math.inf for one, n in zip(load, counts, strict=True))

    ways = itertools.product(*(range(ports // ring + 1) for ring in each))
    least = min(
        worst(counts)
        for counts in ways
        if sum(n * ring for n, ring in zip(counts, each, strict=True)) <= ports
    )
    assert worst(tuple(rings)) == pytest.approx(least)


def test_parallel_rings_when_generators_run_out() -> None:
    # A group of two has one ordering; its four ports carry four parallel rings.
    topology = find_topology(traffic_from(2, {(0, 1): 1.0}), 4, 5.0)
    assert topology.network.multiplicity.tolist() == [4, 4]
    assert topology.network.capacity.tolist() == [20.0, 20.0]
    assert [ring.generator for ring in topology.rings] == [1, 1, 1, 1]


@pytest.mark.parametrize("share", [1, 2, 3])
def test_groups_of_few_rings_get_their_share_in_parallel(share: int) -> None:
    # Four pairs sum less than stages send, but their members have a single ring.
    stages = np.zeros((8, 8))
    for source in range(8):
        stages[source, (source + 2) % 8] = stages[source, (source - 2) % 8] = 1e9
    traffic = traffic_from(8, {(i, i + 1): 1e8 for i in range(0, 8, 2)}, stages)
    topology = find_topology(traffic, 4, 1.0, degree_allreduce=share, surplus="parallel")
    check(topology, traffic, 4)
    counts = Counter(ring.group for ring in topology.rings)
    assert counts == dict.fromkeys(traffic.groups, share)
    rings = find_topology(traffic, 4, 1.0, degree_allreduce=share, surplus="rings")
    assert len(rings.rings) == 4


def test_surplus_ports_go_where_more_bytes_wait() -> None:
    # Six servers have two directed ring orderings; two of four ports are surplus.
    everyone = tuple(range(6))
    little = np.zeros((6, 6))
    little[0, 3] = 1.0
    rings = find_topology(traffic_from(6, {everyone: 1e9}, little), 4, 1.0, surplus="rings")
    assert Counter(ring.generator for ring in rings.rings) == {1: 2, 5: 2}
    literal = find_topology(traffic_from(6, {everyone: 1e9}, little), 4, 1.0, faithful="paper")
    assert literal.network.has_link(0, 3)


def test_heavy_transfers_get_direct_links() -> None:
    transfers = np.zeros((12, 12))
    pairs = [(0, 7), (7, 2), (2, 11), (5, 1)]
    for i, j in pairs:
        transfers[i, j] = 1e9
    transfers[7, 2] = 1.5e9  # so that a second matching prefers it to both its neighbours
    traffic = traffic_from(12, {tuple(range(12)): 1.0}, transfers)
    for ports in PortModel:
        topology = find_topology(traffic, 4, 1.0, ports=ports)
        assert all(topology.network.has_link(i, j) for i, j in pairs)


def test_servers_without_traffic_are_connected_by_a_reserved_ring() -> None:
    transfers = np.zeros((9, 9))
    transfers[0, 1] = transfers[1, 0] = 1.0
    topology = find_topology(traffic_from(9, {(2, 3): 5.0}, transfers), 1, 1.0)
    assert [(r.group, r.generator) for r in topology.rings] == [(tuple(range(9)), 1)]


def test_a_degree_that_cannot_connect_is_named() -> None:
    for degree in (0, -1):
        with pytest.raises(DegreeTooSmallError, match="give at least 1 port"):
            find_topology(traffic_from(4), degree, 1.0)
    with pytest.raises(InfeasibleError, match="degree 1 cannot join 3 servers"):
        find_topology(traffic_from(3), 1, 1.0, ports=PortModel.BIDIRECTIONAL)
    pair = find_topology(traffic_from(2), 1, 1.0, ports=PortModel.BIDIRECTIONAL)
    assert pair.network.links == 2


def test_bad_input_is_named() -> None:
    traffic = traffic_from(4, {(0, 1): 1.0})
    with pytest.raises(InputError, match="one server needs no network"):
        find_topology(traffic_from(1), 4, 1.0)
    with pytest.raises(InputError, match="bandwidth is 0"):
        find_topology(traffic, 2, 0.0)
    with pytest.raises(InputError, match="latency is -1"):
        find_topology(traffic, 2, 1.0, latency=-1.0)
    with pytest.raises(InputError, match="degree_allreduce is 3"):
        find_topology(traffic, 2, 1.0, degree_allreduce=3)
    with pytest.raises(InputError, match="choose directed or bidirectional"):
        find_topology(traffic, 2, 1.0, ports="optical")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give one row and column for each of 4"):
        find_topology(traffic_from(4, {}, np.zeros((3, 3))), 2, 1.0)
    with pytest.raises(InputError, match="choose paper, artifact"):
        find_topology(traffic, 2, 1.0, faithful="thesis")
    with pytest.raises(InputError, match="names server 9 of 4"):
        find_topology(traffic_from(4, {(0, 9): 1.0}), 2, 1.0)
    with pytest.raises(InputError, match="two or more different servers"):
        find_topology(traffic, 2, 1.0, joined=[(0, 1, 0)])
    with pytest.raises(InputError, match="not of 0 to 3"):
        find_topology(traffic, 2, 1.0, joined=[(0, 4)])
    with pytest.raises(InputError, match="sorted"):
        find_topology(traffic_from(4, {(1, 0): 1.0}), 2, 1.0)
