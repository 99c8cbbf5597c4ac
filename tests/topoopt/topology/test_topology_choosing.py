"""Wirings with exact, traffic-aware and seated rings: every invariant, and never worse."""

from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import Traffic
from routing.coin_change import coin_change_routes
from routing.network import Network
from topoopt.evaluate.routed import direct_fabric
from topoopt.problem.ports import PortModel
from topoopt.problem.routing import Routing
from topoopt.topology.choosing import RingChooser, Selection
from topoopt.topology.circulants import circulant_distances
from topoopt.topology.finder import Topology, find_topology
from topoopt.topology.network_json import network_graph
from topoopt.topology.totient import ring_places
from topoopt.topology.wiring import DegreeTooSmallError


def random_traffic(seed: int, n: int) -> Traffic:
    """Several group sizes at once, overlapping, not dividing n; sparse transfers."""
    rng = np.random.default_rng(seed)
    groups: dict[tuple[int, ...], float] = {}
    for _ in range(int(rng.integers(0, 5))):
        size = int(rng.integers(2, n + 1))
        members = rng.choice(n, size, replace=False)
        groups[tuple(sorted(members.tolist()))] = float(rng.integers(0, 10))
    demand = rng.random((n, n)) * (rng.random((n, n)) < rng.random() * 0.5)
    np.fill_diagonal(demand, 0.0)
    return Traffic(n, demand, tuple(groups), np.array(list(groups.values()), dtype=float))


def check(topology: Topology, degree: int) -> None:
    network = topology.network
    assert max(network.out_degree().max(), network.in_degree().max()) <= degree
    graph = network_graph(network)
    assert nx.is_strongly_connected(graph)
    used: Counter[tuple[int, int]] = Counter()
    seats: dict[tuple[int, ...], tuple[int, ...]] = {}
    for ring in topology.rings:
        assert tuple(sorted(set(ring.members))) == ring.group
        assert len(ring.members) == len(ring.group) >= 2
        for a, b in pairwise((*ring.members, ring.members[0])):
            used[a, b] += 1
        if ring.generator == 0:
            continue  # a cycle of a Cayley graph
        # All rings of a group count their steps in the same places.
        assert ring_places(ring.members, ring.generator) == seats.setdefault(
            ring.group, ring_places(ring.members, ring.generator)
        )
    for (a, b), count in used.items():
        assert count <= graph[a][b]["cables"]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(2, 30), st.integers(2, 30), st.integers(31, 200)),
    st.integers(1, 9),
    st.sampled_from(PortModel),
    st.sampled_from(Selection),
    st.booleans(),
    st.sampled_from(["matching", "rings"]),
)
def test_topologies_keep_every_invariant(
    seed: int,
    n: int,
    degree: int,
    ports: PortModel,
    selection: Selection,
    placement: bool,
    surplus: str,
) -> None:
    traffic = random_traffic(seed, n)

    def build() -> Topology:
        return find_topology(
            traffic, degree, 1e9, ports=ports, selection=selection, placement=placement,
            surplus=surplus,
        )  # fmt: skip

    if ports is PortModel.BIDIRECTIONAL and degree == 1 and n > 2:
        with pytest.raises(DegreeTooSmallError):
            build()
        return
    topology = build()
    check(topology, degree)
    again = build()
    assert again.rings == topology.rings
    np.testing.assert_array_equal(again.network.target, topology.network.target)
    for routing in (Routing.ECMP, Routing.K_SHORTEST):
        if n <= 20:
            fabric = direct_fabric(topology, routing)
            for group in traffic.groups:
                fabric.group_streams(group)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 24), st.integers(1, 3), st.booleans())
def test_awareness_never_costs_hops(seed: int, n: int, count: int, both_ways: bool) -> None:
    traffic = random_traffic(seed, n)
    group = tuple(range(n))

    def hops(selection: Selection, placed: bool) -> float:
        chooser = RingChooser(selection, placed, traffic.transfers, both_ways)
        order = chooser.arrange(group, count)
        steps = chooser.steps(order, count)
        distance = circulant_distances(n, steps, both_ways)
        at = np.argsort(order)
        between = distance[(at[None, :] - at[:, None]) % n]
        return float((traffic.transfers * between).sum())

    plain = hops(Selection.GEOMETRIC, placed=False)
    aware = hops(Selection.TRAFFIC, placed=False)
    assert hops(Selection.GEOMETRIC, placed=True) <= plain * (1 + 1e-9)
    assert aware <= plain * (1 + 1e-5)  # mean distance breaks near ties
    assert hops(Selection.TRAFFIC, placed=True) <= aware * (1 + 1e-5)


def test_heavy_pairs_become_neighbours() -> None:
    n = 16
    demand = np.zeros((n, n))
    partner = np.random.default_rng(1).permutation(n)
    for a, b in zip(partner[::2], partner[1::2], strict=True):
        demand[a, b] = demand[b, a] = 1e9
    traffic = Traffic(n, demand, (tuple(range(n)),), np.array([1e12]))
    topology = find_topology(
        traffic, 4, 1e9, ports=PortModel.BIDIRECTIONAL, selection="traffic", placement=True
    )
    assert all(topology.network.has_link(int(a), int(b)) for a, b in np.argwhere(demand))


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 20), st.data())
def test_coin_change_routes_over_other_places(n: int, data: st.DataObject) -> None:
    seats = np.array(data.draw(st.permutations(range(n))))
    steps = (1, *data.draw(st.sets(st.integers(2, n - 1), max_size=2)))
    at = np.arange(n)
    links = [(seats[i], seats[(i + p) % n]) for p in steps for i in at]
    network = Network.from_links("rings", n, 0, *zip(*links, strict=True), 1.0, 1e-6)
    plain_links = [(i, (i + p) % n) for p in steps for i in at]
    plain = Network.from_links("rings", n, 0, *zip(*plain_links, strict=True), 1.0, 1e-6)
    routes = coin_change_routes(network, steps, seats.tolist())
    expected = coin_change_routes(plain, steps)
    for i in range(n):
        for j in range(n):
            row, _ = routes.row(int(seats[i]), int(seats[j]))
            ends = {(int(network.source[x]), int(network.target[x])) for x in row}
            row, _ = expected.row(i, j)
            assert ends == {(seats[plain.source[x]], seats[plain.target[x]]) for x in row}
    with pytest.raises(InputError, match="name each"):
        coin_change_routes(network, steps, [0] * n)


def test_wrong_input_is_refused() -> None:
    traffic = random_traffic(0, 5)
    with pytest.raises(InputError, match="choose geometric, exact, traffic"):
        find_topology(traffic, 2, 1e9, selection="best")
    with pytest.raises(InputError, match="leave them"):
        find_topology(traffic, 2, 1e9, placement=True, faithful="paper")
