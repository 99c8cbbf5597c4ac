"""Minimum-congestion routing against an LP of another formulation, closed forms and duality."""

from itertools import pairwise

import numpy as np
import pytest
from flow_oracle import edge_lp, random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from routing.congestion_lp import min_congestion_lp
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.path_routing import PathRouting, dual_bound
from routing.paths import forwarding_nodes


def check(routing: PathRouting) -> None:
    """Recompute everything from paths alone."""
    network, demand = routing.network, routing.demand
    may = forwarding_nodes(network)
    load = np.zeros(network.links)
    assert set(routing.pairs.tolist()) == set(np.flatnonzero(demand).tolist())
    for pair in routing.pairs.tolist():
        s, t = divmod(pair, network.hosts)
        paths = routing.paths(s, t)
        assert sum(share for _, share in paths) == pytest.approx(1.0, abs=1e-12)
        assert len({nodes for nodes, _ in paths}) == len(paths)
        for nodes, share in paths:
            assert nodes[0] == s and nodes[-1] == t and len(set(nodes)) == len(nodes)
            assert all(may[v] for v in nodes[1:-1]) and 0 < share <= 1 + 1e-12
            for a, b in pairwise(nodes):
                load[network.link(a, b)] += demand[s, t] * share
    np.testing.assert_allclose(routing.link_load, load, rtol=1e-9, atol=1e-12 * demand.max())
    congestion = (load / network.capacity).max()
    assert routing.congestion == pytest.approx(congestion, rel=1e-9)
    assert routing.lower_bound <= congestion * (1 + 1e-9)
    assert routing.gap == pytest.approx(max(congestion / routing.lower_bound - 1, 0), abs=1e-9)
    assert dual_bound(network, demand, routing.lengths) == pytest.approx(routing.lower_bound)
    assert network.capacity @ routing.lengths == pytest.approx(1.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.01]))
def test_it_is_the_lp_optimum_within_the_gap(seed: int, accuracy: float) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    demand = random_demand(rng, network.hosts)
    best = edge_lp(network, demand)
    found = min_congestion(network, demand, accuracy)
    check(found)
    assert found.gap <= accuracy
    assert found.lower_bound <= best * (1 + 1e-7)
    assert best * (1 - 1e-7) <= found.congestion <= best * (1 + accuracy + 1e-7)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_lp_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    demand = random_demand(rng, network.hosts) * 10.0 ** rng.integers(-3, 12)
    found = min_congestion_lp(network, demand)
    check(found)
    assert found.gap < 1e-6
    assert found.congestion == pytest.approx(edge_lp(network, demand), rel=1e-6)


def ring(hosts: int, both: bool = False) -> Network:
    i = np.arange(hosts)
    source, target = i, (i + 1) % hosts
    if both:
        source, target = np.concatenate((source, target)), np.concatenate((target, source))
    return Network.from_links("ring", hosts, 0, source, target, 2.0, 1e-6)


def all_to_all(hosts: int) -> np.ndarray:
    return np.ones((hosts, hosts)) - np.eye(hosts)


def renamed(network: Network, name: np.ndarray) -> Network:
    return Network.from_links(
        "renamed", network.hosts, 0, name[network.source], name[network.target],
        network.capacity, 1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("hosts", [2, 3, 8, 9])
def test_rings(hosts: int, in_order: bool) -> None:
    """Every link carries hosts (hosts - 1) / 2 pairs one way; both ways, distances share it.

    Only where hosts are in order is one source solved for all.
    """
    name = np.arange(hosts) if in_order else np.random.default_rng(hosts).permutation(hosts)
    one_way = min_congestion(renamed(ring(hosts), name), all_to_all(hosts), 1e-3)
    assert (one_way.method == "one source, by symmetry") == (in_order or hosts < 4)
    assert one_way.congestion == pytest.approx(hosts * (hosts - 1) / 2 / 2.0)
    if hosts > 2:
        both = min_congestion(renamed(ring(hosts, True), name), all_to_all(hosts), 1e-4)
        near = sum(min(k, hosts - k) for k in range(1, hosts)) / 2 / 2.0
        assert both.congestion == pytest.approx(near, rel=1e-4)


def test_full_mesh_sends_one_excess_pair_over_all_hosts() -> None:
    """Only one pair has demand: it uses its own link and the n - 2 detours, all equally."""
    n = 6
    source, target = np.nonzero(all_to_all(n))
    network = Network.from_links("mesh", n, 0, source, target, 1.0, 1e-6)
    demand = np.zeros((n, n))
    demand[0, 3] = 1.0
    found = min_congestion(network, demand, 1e-5)
    assert found.congestion == pytest.approx(1 / (n - 1), rel=1e-5)
    assert min_congestion(network, all_to_all(n), 1e-5).congestion == pytest.approx(1.0, rel=1e-5)


def test_star_is_bound_by_its_busiest_host() -> None:
    hosts = np.arange(5)
    cables = np.concatenate((hosts, np.full(5, 5))), np.concatenate((np.full(5, 5), hosts))
    network = Network.from_links("star", 5, 1, *cables, 4.0, 1e-6)
    demand = random_demand(np.random.default_rng(3), 5)
    found = min_congestion(network, demand)
    busiest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max()) / 4.0
    assert found.congestion == pytest.approx(busiest)
    assert found.gap < 1e-9 and found.worst_hops == 2


def test_names_of_hosts_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    network = random_network(rng, hosts=8, switches=0)
    demand = random_demand(rng, 8)
    name = rng.permutation(8)
    moved = np.zeros_like(demand)
    moved[np.ix_(name, name)] = demand
    a = min_congestion(network, demand, 1e-4)
    b = min_congestion(renamed(network, name), moved, 1e-4)
    assert a.congestion == pytest.approx(b.congestion, rel=2e-4)


def test_units_do_not_matter_and_runs_repeat() -> None:
    rng = np.random.default_rng(6)
    network = random_network(rng, hosts=7, switches=0)
    demand = random_demand(rng, 7)
    a = min_congestion(network, demand)
    again = min_congestion(network, demand)
    np.testing.assert_array_equal(a.links, again.links)
    np.testing.assert_array_equal(a.shares, again.shares)
    large = min_congestion(network, demand * 2.0**40)
    assert large.congestion == pytest.approx(a.congestion * 2.0**40, rel=1e-9)


@pytest.mark.parametrize("make", [min_congestion, min_congestion_lp])
def test_no_demand(make) -> None:  # type: ignore[no-untyped-def]
    found = make(ring(4), np.zeros((4, 4)))
    assert found.congestion == found.lower_bound == found.gap == found.bandwidth_tax == 0.0
    assert found.throughput == float("inf") and found.paths(0, 1) == []
    assert found.routes().hops.sum() == 4 * (1 + 2 + 3)


def test_one_host() -> None:
    network = Network.from_links("one", 1, 0, [], [], 1.0, 0.0)
    assert min_congestion(network, np.zeros((1, 1))).congestion == 0.0


def test_extreme_spread_of_capacities_and_demands() -> None:
    """A link a million times slower beside the others must not upset the steps."""
    rng = np.random.default_rng(8)
    network = random_network(rng, hosts=8, switches=0)
    capacity = network.capacity * 10.0 ** rng.integers(-6, 7, network.links)
    network = Network.from_links("steep", 8, 0, network.source, network.target, capacity, 1e-6)
    demand = random_demand(rng, 8) * 10.0 ** rng.integers(-6, 7, (8, 8))
    found = min_congestion(network, demand, 0.01)
    check(found)
    assert found.gap <= 0.01


def test_routes_are_the_paths() -> None:
    rng = np.random.default_rng(9)
    network = random_network(rng, hosts=6, switches=0)
    demand = random_demand(rng, 6)
    demand[2, 3] = 0.0
    found = min_congestion(network, demand)
    routes = found.routes()
    np.testing.assert_allclose(routes.link_bytes(network, demand), found.link_load)
    for s in range(6):
        for t in range(6):
            links, weights = routes.row(s, t)
            balance = np.zeros(6)
            np.add.at(balance, network.source[links], weights)
            np.add.at(balance, network.target[links], -weights)
            expected = np.eye(6)[s] - np.eye(6)[t]
            np.testing.assert_allclose(balance, expected, atol=1e-12)
            assert np.all(np.diff(links) > 0)
            assert routes.hops[s * 6 + t] == pytest.approx(weights.sum())


def test_refusals() -> None:
    network = ring(4)
    with pytest.raises(InputError, match=r"demand has shape \(3, 3\)"):
        min_congestion(network, np.zeros((3, 3)))
    with pytest.raises(InputError, match=r"demand 0->1 is -1\.0"):
        min_congestion(network, -np.eye(4, k=1))
    with pytest.raises(InputError, match="demand 0->0 is not zero"):
        min_congestion(network, np.eye(4))
    with pytest.raises(InputError, match=r"accuracy is 0\.0"):
        min_congestion(network, all_to_all(4), 0.0)
    with pytest.raises(InputError, match="rounds is 0"):
        min_congestion(network, all_to_all(4), rounds=0)
    broken = Network.from_links("line", 3, 0, [0, 1], [1, 2], 1.0, 0.0)
    for make in (min_congestion, min_congestion_lp):
        with pytest.raises(InfeasibleError, match="host 0 cannot be reached from host 1"):
            make(broken, all_to_all(3))
        assert make(broken, np.eye(3, k=1)).congestion == pytest.approx(1.0)
    apart = Network.from_links("apart", 4, 0, [0, 1, 2, 3], [2, 3, 0, 1], 1.0, 0.0)
    with pytest.raises(InfeasibleError, match=r"steps \[2\] never sum to 1"):
        min_congestion(apart, all_to_all(4))


def test_demands_too_far_apart_for_the_lp_are_left_to_the_other_method() -> None:
    demand = 10.0 ** np.random.default_rng(0).uniform(0, 9, (6, 6))
    np.fill_diagonal(demand, 0.0)
    with pytest.raises(InfeasibleError, match=r"; choose the method mcf \(--method mcf\)$"):
        min_congestion_lp(ring(6), demand)
    assert min_congestion(ring(6), demand).gap < 0.01


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.02, 0.001]))
def test_a_warm_start_keeps_the_certificate(seed: int, accuracy: float) -> None:
    """Links come and go, and so does demand; the LP's optimum stays within the gap."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(3, 8))

    def draw() -> tuple[Network, np.ndarray]:
        ring = [(i, (i + 1) % hosts) for i in range(hosts)]
        more = [tuple(rng.choice(hosts, 2, replace=False).tolist()) for _ in range(hosts)]
        ends = list(dict.fromkeys(ring + more))
        source, target = zip(*ends, strict=True)
        rate = rng.integers(1, 4, len(ends)).astype(float)
        demand = rng.random((hosts, hosts)) * (rng.random((hosts, hosts)) < 0.6)
        np.fill_diagonal(demand, 0.0)
        return Network.from_links("n", hosts, 0, source, target, rate, 1e-6), demand

    before, after = draw(), draw()
    start = min_congestion(*before, accuracy)
    found = min_congestion(*after, accuracy, start=start)
    best = min_congestion_lp(*after).congestion
    assert found.gap <= accuracy
    assert found.lower_bound <= best * (1 + 1e-6) + 1e-12
    assert best <= found.congestion * (1 + 1e-6) + 1e-12
    if after[1].any():
        sums = np.add.reduceat(found.shares, found.path_offsets[:-1])
        np.testing.assert_allclose(sums, 1.0)
        for pair in found.pairs.tolist():
            for nodes, _ in found.paths(*divmod(pair, hosts)):
                assert nodes[-1] == pair % hosts
                assert len(set(nodes)) == len(nodes)
    # From its own result the work is done at once.
    again = min_congestion(*after, accuracy, start=found)
    assert again.rounds <= 1 or again.rounds <= found.rounds


def test_a_start_of_another_size_is_refused() -> None:
    small = Network.from_links("s", 2, 0, [0, 1], [1, 0], 1.0, 1e-6)
    large = Network.from_links("l", 3, 0, [0, 1, 2], [1, 2, 0], 1.0, 1e-6)
    start = min_congestion(small, np.array([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(InputError, match="start"):
        min_congestion(large, np.ones((3, 3)) - np.eye(3), start=start)
