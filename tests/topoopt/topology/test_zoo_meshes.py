"""Twisted tori, HammingMesh and rails without spines: wiring, distances, cuts and bills."""

from itertools import product as combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from routing.paths import ecmp_routes, hop_distances
from topoopt.baselines.bill import network_bill
from topoopt.problem.prices import default_prices
from topoopt.topology.zoo.hamming_mesh import hamming_mesh
from topoopt.topology.zoo.products import torus
from topoopt.topology.zoo.registry import build_fabric
from topoopt.topology.zoo.switched import rail_only, rail_optimised
from topoopt.topology.zoo.twisted import twisted_torus

B, LAG = 12.5e9, 1e-6
PRICES = default_prices()


def lattice_distances(dims):
    """Return the least sum of steps to each server, by all ways round of the twisted lattice."""
    k = min(dims)
    axes = []
    for axis, size in enumerate(dims):
        step = np.zeros(len(dims), dtype=np.int64)
        step[axis] = size
        if size == k:
            # A line of k closes k places back along each longer dimension.
            step[[other for other, length in enumerate(dims) if length == 2 * k]] = -k
        axes.append(step)
    shifts = [
        sum(t * step for t, step in zip(times, axes, strict=True))
        for times in combinations(range(-3, 4), repeat=len(dims))
    ]
    places = np.array(list(np.ndindex(*dims)))
    return np.min([np.abs(places + shift).sum(axis=1) for shift in shifts], axis=0)


@pytest.mark.parametrize(
    "dims", [(2, 4), (6, 3), (5, 10), (2, 2, 4), (2, 4, 4), (4, 4, 8), (4, 8, 8), (3, 6, 3)]
)
def test_a_twisted_torus_is_the_quotient_of_its_lattice(dims):
    network = twisted_torus(dims, B, LAG)
    np.testing.assert_array_equal(network.out_degree(), 2 * len(dims))
    hops = hop_distances(network)
    np.testing.assert_array_equal(hops[0], lattice_distances(dims))
    np.testing.assert_array_equal(
        np.sort(hops, axis=1), np.sort(hops[:1], axis=1).repeat(len(hops), 0)
    )
    np.testing.assert_array_equal(hops, hops.T)
    k = min(dims)
    # Camarero, Martinez and Beivide, "Symmetric Interconnection Networks from Cubic Crystal
    # Lattices" (2013): half again as far as k in both cubic lattices; k in the plane.
    assert hops.max() == (k if len(dims) == 2 else 3 * k // 2)
    plain = hop_distances(torus(dims, B, LAG))
    assert hops.mean() <= plain.mean() and hops.max() <= plain.max()


@pytest.mark.parametrize("dims", [(2, 4), (4, 8), (2, 2, 4), (4, 4, 8), (2, 4, 4), (4, 8, 8)])
def test_uniform_traffic_loads_all_cables_of_a_twisted_torus_equally(dims):
    def loads(network):
        routes = ecmp_routes(network)
        return np.bincount(routes.links, weights=routes.weights, minlength=network.links)

    twisted = twisted_torus(dims, B, LAG)
    found = loads(twisted)
    assert found.max() == pytest.approx(found.mean(), rel=0.12)
    # Along a ring of 2 k servers a byte goes k / 2 cables each way on the average.
    n, longest = np.prod(dims), max(dims)
    assert loads(torus(dims, B, LAG)).max() == pytest.approx(n * longest / 8)
    assert found.max() < n * longest / 8


@pytest.mark.parametrize("dims", [(4, 4), (4, 6, 8), (1, 2), (8,), (2, 4, 8), ()])
def test_other_sizes_are_no_twisted_torus(dims):
    with pytest.raises(InputError, match="give sizes of k and 2 k"):
        twisted_torus(dims, B, LAG)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 4), st.integers(2, 4))
def test_hamming_mesh(tall, wide, down, across):
    network = hamming_mesh((tall, wide, down, across), B, LAG)
    rows, columns = tall * down, wide * across
    n = rows * columns
    graph = nx.MultiGraph()
    for r, c in np.ndindex(rows, columns):
        here = n + r * columns + c
        graph.add_edge(r * columns + c, here)
        for along, (place, length, last, switch, ahead) in enumerate(
            (
                (c, wide, columns, 2 * n + r, here + 1),
                (r, tall, rows, 2 * n + rows + c, here + columns),
            )
        ):
            assert place < last, along
            if place % length == 0:
                graph.add_edge(switch, here)
            if place % length == length - 1:
                graph.add_edge(here, switch)
            else:
                graph.add_edge(here, ahead)
    wired = nx.Graph(zip(network.source.tolist(), network.target.tolist(), strict=True))
    assert set(map(frozenset, wired.edges)) == set(map(frozenset, nx.Graph(graph).edges))
    for a, b, many in zip(network.source, network.target, network.multiplicity, strict=True):
        assert many == graph.number_of_edges(int(a), int(b))
    np.testing.assert_array_equal(network.out_degree()[n : 2 * n], 5)
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    hops = hop_distances(network)
    assert all(hops[a, b] == lengths[a][b] for a in range(n) for b in range(n))


@pytest.mark.parametrize("board", [1, 2, 4])
def test_the_bisection_of_a_hamming_mesh_is_a_share_of_its_board(board):
    """Hoefler et al. (SC 2022), section 3: 1 / (2 a) of the injection bandwidth."""
    network = hamming_mesh((board, board, 2, 2), B, LAG)
    n, side = network.hosts, 2 * board
    graph = nx.DiGraph()
    for a, b, c in zip(network.source, network.target, network.capacity, strict=True):
        graph.add_edge(int(a), int(b), capacity=float(c) / B)
    for server in range(n):
        left = server % side < board
        graph.add_edge("left" if left else server, server if left else "right")
    cut = nx.maximum_flow_value(graph, "left", "right")
    assert cut == pytest.approx(4 * (n / 2) / (2 * board))


def test_the_bill_of_a_hamming_mesh_by_hand():
    """Sixteen 2 x 2 boards: four cables on each, eight off it in rows and in columns together."""
    built = build_fabric("hamming-mesh", 64, 4, B, dims="2x2x4x4")
    assert (built.degree, built.forwarders) == (4, 64)
    bill = network_bill(built.network, PRICES, forwarders=64, layer="none")
    on, off = 16 * 4, 16 * 8
    assert (bill.nic_ports, bill.transceivers) == (64 * 4, 2 * on + 2 * off)
    assert (bill.switch_ports, bill.layer_ports, bill.cables) == (off, 0, on + off)
    assert bill.cost == pytest.approx(256 * 659 + 384 * 99 + 128 * 187)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 90), st.integers(1, 4), st.integers(1, 20), st.sampled_from([1.0, 2.0, 3.0]))
def test_rails_without_spines_meet_nowhere(servers, rails, group, ratio):
    network = rail_only(servers, rails, B, LAG, per_pod=group, oversubscription=ratio)
    between = nx.Graph([
        (a, b) for a, b in zip(network.source.tolist(), network.target.tolist(), strict=True)
        if min(a, b) >= servers
    ])  # fmt: skip
    between.add_nodes_from(range(servers, network.nodes))
    parts = list(nx.connected_components(between))
    assert len(parts) == rails
    for part in parts:
        rail = nx.Graph([
            (a, b) for a, b in zip(network.source.tolist(), network.target.tolist(), strict=True)
            if b in part and a < servers
        ])  # fmt: skip
        assert sorted(node for node in rail if node < servers) == list(range(servers))
    np.testing.assert_array_equal(network.out_degree()[:servers], rails)
    routes = ecmp_routes(network)
    assert routes.hops.max() == pytest.approx(2 if servers <= group else 4)
    # Rail-optimised networks of the same pods have as many cables and the same rates.
    joined = rail_optimised(servers, rails, B, LAG, per_pod=group, oversubscription=ratio)
    assert network_bill(network, PRICES).cost == pytest.approx(network_bill(joined, PRICES).cost)


def test_the_bills_of_rails_by_hand():
    one = network_bill(rail_only(16, 8, B, LAG), PRICES)
    assert (one.nic_ports, one.transceivers, one.switch_ports, one.cables) == (128, 256, 128, 128)
    assert one.cost == pytest.approx(128 * (659 + 2 * 99 + 187))
    # Four pods of four: as many uplinks as cables to servers, each with two more of both.
    four = network_bill(rail_optimised(16, 8, B, LAG), PRICES)
    assert four.cost == pytest.approx(128 * (659 + 4 * 99 + 3 * 187))
    # Beyond 64 servers a rail has spines of its own.
    assert rail_only(64, 2, B, LAG).switches == 2
    assert rail_only(65, 2, B, LAG).switches == 2 * 2 + 2 * 64


@pytest.mark.parametrize(
    ("name", "dims", "message"),
    [
        ("hamming-mesh", "2x2x4", "rows and columns of a board"),
        ("hamming-mesh", "2x2x1x4", "give 2 to 32 boards"),
        ("hamming-mesh", "1x1x2x33", "switch of 64 ports"),
        ("hamming-mesh", None, "such as 2x2x4x4"),
        ("twisted-torus", None, "such as 4x4x8"),
        ("twisted-torus", "4xtwo", "joined by x"),
        ("twisted-torus", "2x2x4", "has 16 servers, not 9"),
    ],
)
def test_wrong_sizes_are_refused(name, dims, message):
    servers = 9 if "9" in message else None
    with pytest.raises(InputError, match=message):
        build_fabric(name, servers, None, B, dims=dims)
