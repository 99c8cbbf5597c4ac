"""Fabrics by name: ports, connectivity, closed forms, cost."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from routing.network import Network
from routing.paths import ecmp_routes, hop_distances
from topoopt.baselines.bill import equal_cost_bandwidth, network_bill
from topoopt.problem.prices import (
    default_prices,
    direct_connect_cost,
    equal_cost_fat_tree_bandwidth,
    fat_tree_cost,
)
from topoopt.topology.fat_tree import fat_tree_network
from topoopt.topology.wiring import DegreeTooSmallError
from topoopt.topology.zoo.dragonfly import dragonfly, dragonfly_size
from topoopt.topology.zoo.products import BuildingBlock, full_mesh, hypercube, product, torus
from topoopt.topology.zoo.registry import FABRICS, build_fabric
from topoopt.topology.zoo.shift_graphs import de_bruijn, kautz
from topoopt.topology.zoo.switched import leaf_spine, rail_optimised
from topoopt.topology.zoo.xpander import xpander

B, LAG = 12.5e9, 1e-6


def diameter(network: Network) -> int:
    return int(hop_distances(network)[: network.hosts, : network.hosts].max())


def assert_both_ways(network: Network) -> None:
    for a, b, c in zip(network.source, network.target, network.capacity, strict=True):
        assert network.capacity[network.link(int(b), int(a))] == c


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3).filter(lambda d: 1 < np.prod(d) < 130))
def test_torus(dims: list[int]) -> None:
    network = torus(dims, B, LAG)
    graph = nx.grid_graph(list(reversed(dims)), periodic=True)
    expected = {frozenset((a, b)) for a, b in graph.edges if a != b}
    names = list(np.ndindex(*dims))
    wired = {
        frozenset((names[a], names[b]) if len(dims) > 1 else (names[a][0], names[b][0]))
        for a, b in zip(network.source, network.target, strict=True)
    }
    assert wired == expected
    assert diameter(network) == sum(d // 2 for d in dims)
    assert network.out_degree().max() == sum(min(d - 1, 2) for d in dims)
    assert network.multiplicity.max() == 1
    assert_both_ways(network)


def test_hypercube_and_full_mesh() -> None:
    for bits in range(1, 8):
        network = hypercube(1 << bits, B, LAG)
        assert network.links == bits << bits
        assert diameter(network) == bits
        apart = network.source ^ network.target
        assert np.all(apart & (apart - 1) == 0)
    mesh = full_mesh(9, B, LAG)
    assert mesh.links == 72
    assert diameter(mesh) == 1
    with pytest.raises(InputError, match="power of two, such as 8"):
        hypercube(12, B, LAG)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 200), st.integers(2, 8), st.sampled_from([de_bruijn, kautz]))
def test_shift_graphs_of_any_size(servers: int, degree: int, build: object) -> None:
    network = build(servers, degree, B, LAG)  # type: ignore[operator]
    assert max(network.out_degree().max(), network.in_degree().max()) <= degree
    longest = 1
    while degree**longest < servers:
        longest += 1
    assert diameter(network) <= longest


@pytest.mark.parametrize(("degree", "k"), [(2, 2), (2, 3), (3, 2), (3, 3), (4, 2)])
def test_shift_graphs_of_the_classic_sizes(degree: int, k: int) -> None:
    best = kautz(degree**k + degree ** (k - 1), degree, B, LAG)
    assert diameter(best) == k
    assert np.all(best.out_degree() == degree)
    graph = nx.DiGraph(zip(best.source.tolist(), best.target.tolist(), strict=True))
    lines = nx.complete_graph(degree + 1, create_using=nx.DiGraph)
    for _ in range(k - 1):
        lines = nx.line_graph(lines)
    assert nx.is_isomorphic(graph, lines)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_xpander(degree: int, size: int, seed: int) -> None:
    servers = (degree + 1) * size
    try:
        network = xpander(servers, degree, B, LAG, np.random.default_rng(seed))
    except DegreeTooSmallError:
        assert degree == 2  # long cycles are rare draws
        return
    assert np.all(network.out_degree() == degree)
    assert np.all(network.source // size != network.target // size)
    assert_both_ways(network)
    again = xpander(servers, degree, B, LAG, np.random.default_rng(seed))
    np.testing.assert_array_equal(again.target, network.target)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 300), st.integers(1, 3))
def test_dragonfly(servers: int, cables: int) -> None:
    network = dragonfly(servers, B, LAG, cables)
    h, groups = dragonfly_size(servers)
    ports = network.out_degree()
    assert ports[:servers].max() == cables
    assert ports[servers:].max() <= (4 * h - 1) * cables
    assert diameter(network) <= 5
    assert network.switches == groups * 2 * h
    assert_both_ways(network)
    ecmp_routes(network)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 150), st.integers(1, 4), st.integers(1, 20), st.sampled_from([1.0, 1.5, 4.0]))
def test_two_tiers(servers: int, cables: int, group: int, ratio: float) -> None:
    racks = leaf_spine(servers, B, LAG, cables=cables, per_leaf=group, oversubscription=ratio)
    rails = rail_optimised(servers, cables, B, LAG, per_pod=group, oversubscription=ratio)
    size = min(group, servers)
    for network, leaves, below in (
        (racks, -(-servers // size), size * cables),
        (rails, -(-servers // size) * cables, size),
    ):
        np.testing.assert_array_equal(network.out_degree()[:servers], cables)
        assert_both_ways(network)
        assert diameter(network) == (2 if servers <= size else 4)
        up = (network.source == servers) & (network.target >= servers + leaves)
        if servers > size:
            assert network.capacity[up].sum() == pytest.approx(below * B / ratio)
        ecmp_routes(network)


def test_products() -> None:
    mixed = product(
        [(BuildingBlock.SWITCH, 3), (BuildingBlock.FULLY_CONNECTED, 4), (BuildingBlock.RING, 5)],
        B,
        LAG,
    )
    assert (mixed.hosts, mixed.switches) == (60, 60 + 20)
    ports = mixed.out_degree()
    np.testing.assert_array_equal(ports[:60], 1)
    np.testing.assert_array_equal(ports[60:120], 1 + 1 + 3 + 2)
    np.testing.assert_array_equal(ports[120:], 3)
    assert diameter(mixed) == 2 + 2 + 1 + 2
    direct = product([(BuildingBlock.FULLY_CONNECTED, 4), (BuildingBlock.RING, 4)], B, LAG)
    graph = nx.cartesian_product(nx.complete_graph(4), nx.cycle_graph(4))
    wired = nx.Graph(zip(direct.source.tolist(), direct.target.tolist(), strict=True))
    assert nx.is_isomorphic(wired, graph)


def test_where_a_fat_tree_tapers() -> None:
    full = fat_tree_network(54, B, LAG)
    at_tor = fat_tree_network(54, B, LAG, 3.0)
    above = fat_tree_network(54, B, LAG, 3.0, "aggregation")
    cores = full.source >= 54 + 18 + 18
    cores |= full.target >= 54 + 18 + 18
    hosts = (full.source < 54) | (full.target < 54)
    np.testing.assert_allclose(above.capacity, np.where(cores, B / 3, B))
    np.testing.assert_allclose(at_tor.capacity, np.where(hosts, B, B / 3))
    with pytest.raises(InputError, match="tor or aggregation"):
        fat_tree_network(54, B, LAG, 3.0, "core")
    with pytest.raises(InputError, match="give 1"):
        fat_tree_network(54, B, LAG, 0.5)


ARGUMENTS: dict[str, dict[str, object]] = {
    "torus": {"dims": "2x3x4"},
    "twisted-torus": {"dims": "2x4x4"},
    "hamming-mesh": {"dims": "2x1x2x3"},
    "product": {"dims": "RI(3)_FC(2)_SW(4)"},
    "hypercube": {"servers": 16},
    "full-mesh": {"servers": 7},
    "xpander": {"servers": 20, "degree": 4},
}


@pytest.mark.parametrize("name", FABRICS)
def test_every_name(name: str) -> None:
    given_ = {"servers": None, "degree": None, **ARGUMENTS.get(name, {"servers": 23, "degree": 4})}
    built = build_fabric(name, given_["servers"], given_["degree"], B, **{
        key: value for key, value in given_.items() if key == "dims"})  # fmt: skip
    if name == "totient":  # found as wirings of plans are, which are called topoopt
        assert built.network.name == name
    routes = ecmp_routes(built.network)
    assert routes.hosts == built.network.hosts
    bill = network_bill(built.network, default_prices(), forwarders=built.forwarders)
    assert bill.cost > 0
    assert bill.transceivers >= bill.cables > 0
    fixed = network_bill(built.network, default_prices(), forwarders=built.forwarders, layer="none")
    assert fixed.cost <= bill.cost
    fibre = network_bill(
        built.network, default_prices(), forwarders=built.forwarders, fibre_usd=7.0
    )
    assert fibre.cost == pytest.approx(bill.cost + 7.0 * bill.cables)


def test_bills_agree_with_the_formulas() -> None:
    prices = default_prices()
    for ports in ("directed", "bidirectional"):
        wired = build_fabric("expander", 16, 4, B, ports=ports).network
        bill = network_bill(wired, prices)
        assert bill.cost == pytest.approx(direct_connect_cost(16, 4, B, prices))
        assert bill.nic_ports == bill.transceivers == bill.layer_ports == bill.cables == 64
    for hosts in (5, 16, 54, 100):
        tree = network_bill(fat_tree_network(hosts, B, LAG), prices)
        assert tree.cost == pytest.approx(fat_tree_cost(hosts, B, prices))
    # Ports of a server are bought one by one: two slow ones are not one fast one.
    for name in ("fat-tree", "ideal-switch", "leaf-spine", "rail-only"):
        bill = network_bill(build_fabric(name, 16, 3, B).network, prices)
        assert bill.nic_ports == 48
    wide = build_fabric("fat-tree", 16, 3, B, oversubscription=2.0).network
    one = network_bill(build_fabric("fat-tree", 16, 1, B, oversubscription=2.0).network, prices)
    assert network_bill(wide, prices).cost == pytest.approx(3 * one.cost)
    assert wide.capacity.max() == 3 * B
    mixed = product([(BuildingBlock.SWITCH, 2), (BuildingBlock.RING, 3)], B, LAG)
    bill = network_bill(mixed, prices, forwarders=6)
    assert (bill.nic_ports, bill.switch_ports, bill.transceivers) == (18, 6, 24)
    with pytest.raises(InputError, match="patch-panel, ocs, none"):
        network_bill(mixed, prices, layer="air")
    for wrong in (-1.0, 1e308, float("nan")):
        with pytest.raises(InputError, match="fibre_usd"):
            network_bill(mixed, prices, fibre_usd=wrong)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("ring", 8, 2), {}, "choose totient"),
        (("torus", 8, None), {}, "give --dims"),
        (("torus", None, None), {"dims": "4by4"}, "joined by x"),
        (("torus", None, None), {"dims": "4x²"}, "joined by x"),
        (("torus", 9, None), {"dims": "4x4"}, "has 16 servers, not 9"),
        (("torus", None, 3), {"dims": "4x4"}, "needs 4 ports"),
        (("product", None, None), {"dims": "XX(3)"}, "no dimension"),
        (("expander", 8, None), {}, "give --degree"),
        (("expander", None, 3), {}, "give --servers"),
        (("xpander", 8, 4), {}, "multiple of 5, such as 5"),
        (("kautz", 8, 1), {}, "larger degree|give at least"),
        (("de-bruijn", 8, 0), {}, "at least 1 port"),
        (("fat-tree", 8, 1), {"group": 4}, "does not apply"),
        (("rail", 8, 2), {"group": 0}, "at least 1"),
        (("rail", 8, 2), {"oversubscription": 0.5}, "give 1"),
        (("leaf-spine", 1, 1), {}, "at least 2"),
        (("leaf-spine", 8, 0), {}, "at least 1 port"),
        (("dragonfly", 8, 1), {"oversubscription": 2.0}, "does not apply"),
        (("dragonfly", 8, 1), {"tier": "aggregation"}, "does not apply"),
        (("dragonfly", 8, 1), {"dims": "4"}, "does not apply"),
        (("totient", 1, 1), {}, "at least 2"),
        (("totient", 10**8, 4), {}, "servers is 100000000; tables .* in memory, so give at most 3"),
        (("totient", 64, 10**8), {}, "degree is 100000000; give at most 32768 ports a server"),
        (("torus", None, None), {"dims": "10000x10000x9"}, "of 900000000 servers; .* most 32768"),
        (("product", None, None), {"dims": "SW(32769)"}, "'SW.32769.', of 32769 servers; tables"),
    ],
)
def test_wrong_input_is_refused(
    arguments: tuple[str, int | None, int | None], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build_fabric(*arguments, B, **options)  # type: ignore[arg-type]


def test_the_degree_of_shift_graphs_counts_the_ports_in_use() -> None:
    # Every server of de Bruijn's network of 4 and degree 3 would have one port joined to itself.
    for name, degree, used in (("de-bruijn", 3, 2), ("kautz", 2, 2)):
        built = build_fabric(name, 4, degree, B)
        assert built.degree == used == built.network.out_degree().max()


def test_wrong_rates_are_refused() -> None:
    with pytest.raises(InputError, match="bandwidth"):
        torus([4], 0.0, LAG)
    with pytest.raises(InputError, match="latency"):
        torus([4], B, -1.0)
    with pytest.raises(InputError, match="sizes of at least 1"):
        torus([4, 0], B, LAG)


@pytest.mark.parametrize("name", ["leaf-spine", "rail", "dragonfly", "kautz", "fat-tree"])
def test_bandwidth_of_equal_cost(name: str) -> None:
    prices = default_prices()
    target = direct_connect_cost(24, 4, B, prices)
    built = build_fabric(name, 24, 2, B)
    found = equal_cost_bandwidth(built.network, B, target, prices)
    sized = build_fabric(name, 24, 2, found)
    assert network_bill(sized.network, prices).cost == pytest.approx(target, rel=1e-9)
    if name == "fat-tree":
        one = equal_cost_fat_tree_bandwidth(target / 2, 24, prices)
        assert found == pytest.approx(one, rel=1e-9)
    with pytest.raises(InputError, match="positive"):
        equal_cost_bandwidth(built.network, B, 0.0, prices)
    with pytest.raises(InputError, match="give another sum"):
        equal_cost_bandwidth(built.network, B, 1e-3, prices)
