"""Bounds on congestion are sound, and tight where a closed form is known."""

from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest
from flow_oracle import edge_lp, random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from codesign_base import InputError
from routing import throughput_bounds
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.throughput_bounds import any_wiring_bound, least_link_bytes, network_bound


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_bounds_of_a_network_are_sound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    demand = random_demand(rng, network.hosts)
    routing = min_congestion(network, demand)
    bound = network_bound(network, demand, routing.lengths)
    best = edge_lp(network, demand)
    assert all(value <= best * (1 + 1e-7) for value in bound.terms.values())
    assert bound.terms["dual"] == pytest.approx(routing.lower_bound)
    assert bound.excess(routing.congestion) <= routing.gap + 1e-9
    assert bound.throughput == pytest.approx(1 / bound.seconds)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 7), st.integers(1, 3))
def test_bounds_of_any_wiring_are_sound(seed: int, n: int, degree: int) -> None:
    """Random unions of permutations never beat them."""
    rng = np.random.default_rng(seed)
    cables = [(v, (v + 1) % n) for v in range(n)]
    for _ in range(degree - 1):
        shift = int(rng.integers(1, n))
        cables += [(v, (v + shift) % n) for v in range(n)]
    source, target = zip(*cables, strict=True)
    network = Network.from_links("drawn", n, 0, source, target, 2.0, 0.0)
    demand = random_demand(rng, n)
    bound = any_wiring_bound(demand, degree, 2.0)
    assert bound.seconds <= edge_lp(network, demand) * (1 + 1e-7)


def test_closed_forms() -> None:
    demand = np.ones((9, 9)) - np.eye(9)
    ring = any_wiring_bound(demand, 1, 2.0)
    assert ring.seconds == pytest.approx(9 * 8 / 2 / 2.0) and ring.binding == "distance"
    mesh = any_wiring_bound(demand, 8, 1.0)
    assert mesh.seconds == pytest.approx(1.0)


def test_a_thin_bridge_is_found_by_a_cut() -> None:
    """Two full meshes joined by one link each way; no other bound sees the bridge."""
    half = [(a, b) for a, b in combinations(range(5), 2)]
    cables = half + [(a + 5, b + 5) for a, b in half] + [(0, 5)]
    cables += [(b, a) for a, b in cables]
    name = np.random.default_rng(0).permutation(10)
    source, target = name[np.array(cables)].T
    network = Network.from_links("bridge", 10, 0, source, target, 1.0, 0.0)
    bound = network_bound(network, np.ones((10, 10)) - np.eye(10))
    assert bound.binding == "cut" and bound.seconds == pytest.approx(25.0)


def test_cuts_of_a_large_network_are_those_of_the_dense_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    network = random_network(rng, hosts=60, switches=0)
    demand = np.ones((60, 60)) - np.eye(60)
    dense = network_bound(network, demand).terms["cut"]
    monkeypatch.setattr(throughput_bounds, "_DENSE_NODES", 10)
    assert network_bound(network, demand).terms["cut"] == pytest.approx(dense)


def test_no_demand_and_refusals() -> None:
    network = random_network(np.random.default_rng(0), hosts=4, switches=0)
    assert network_bound(network, np.zeros((4, 4))).throughput == float("inf")
    idle = any_wiring_bound(np.zeros((4, 4)), 2, 1.0)
    assert idle.seconds == 0.0 and idle.excess(1.0) == float("inf") and idle.excess(0.0) == 0.0
    with pytest.raises(InputError, match="square matrix"):
        any_wiring_bound(np.zeros((2, 3)), 2, 1.0)
    with pytest.raises(InputError, match="degree 0"):
        any_wiring_bound(np.zeros((2, 2)), 0, 1.0)


def _distances(joined: np.ndarray) -> np.ndarray:
    """Hops in each of many networks by Floyd's algorithm, infinite where no way leads."""
    n = joined.shape[1]
    hops = np.where(joined, 1.0, np.inf)
    hops[:, range(n), range(n)] = 0.0
    for k in range(n):
        hops = np.minimum(hops, hops[:, :, [k]] + hops[:, [k], :])
    return hops


@cache
def _all_wirings(n: int, degree: int, bidirectional: bool) -> np.ndarray:
    """Hops in every network of n hosts with at most so many ports in use each."""
    found = [np.zeros((n, n), dtype=bool)]
    pairs = combinations(range(n), 2) if bidirectional else permutations(range(n), 2)
    for a, b in pairs:
        for one in list(found):
            if one[a].sum() < degree and one[:, b].sum() < degree:
                if bidirectional and one[b].sum() == degree:
                    continue
                more = one.copy()
                more[a, b] = True
                more[b, a] |= bidirectional
                found.append(more)
    return _distances(np.array(found))


@settings(deadline=None)
@given(
    st.sampled_from([(4, 1), (4, 2), (5, 1), (4, 3)]), st.booleans(), st.integers(0, 10**6),
    st.floats(0.2, 1.0),
)  # fmt: skip
def test_no_wiring_at_all_takes_fewer_link_bytes(
    size: tuple[int, int], both: bool, seed: int, share: float
) -> None:
    _hold_against_all(*size, both, seed, share)


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_no_wiring_of_five_hosts_with_two_ports_takes_fewer_link_bytes(both: bool) -> None:
    for seed in range(30):
        _hold_against_all(5, 2, both, seed, 0.2 + 0.8 * seed / 30)


def _hold_against_all(n: int, degree: int, both: bool, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    demand = rng.integers(1, 20, (n, n)) * (rng.random((n, n)) < share) * (1.0 - np.eye(n))
    hops = _all_wirings(n, degree, both)
    sent = demand > 0
    best = (hops[:, sent] @ demand[sent]).min()
    directed = least_link_bytes(demand, degree)
    bound = least_link_bytes(demand, degree, both)
    assert demand.sum() <= directed <= bound <= best
    if degree == n - 1:
        assert bound == best == demand.sum()


def test_link_bytes_of_known_demands() -> None:
    incast = np.zeros((12, 12))
    incast[1:, 0] = 1.0
    assert least_link_bytes(incast, 2) == 2 * 1 + 4 * 2 + 5 * 3
    assert least_link_bytes(incast, 2, bidirectional=True) == 2 * (1 + 2 + 3 + 4 + 5) + 6
    # Only sources see how far bytes of the first host go, only targets those to the second.
    mixed = np.zeros((12, 12))
    mixed[0, 2:5] = mixed[5:8, 1] = 1.0
    assert least_link_bytes(mixed, 2) == 6 + 1
    # The next two on a ring: two ports both ways lead to them, or to the two before.
    near = np.roll(np.eye(9), 1, axis=1) + np.roll(np.eye(9), 2, axis=1)
    assert least_link_bytes(near, 2) == 18
    assert least_link_bytes(near, 2, bidirectional=True) == 18 + 9
    assert least_link_bytes(np.ones((3, 3)) - np.eye(3), 8) == 6


def test_answers_on_a_ring_go_round_it() -> None:
    # A chain of stages: two neighbours could be one and two hops away, but not to and fro.
    chain = np.zeros((8, 8))
    for a in range(7):
        chain[a, a + 1] = chain[a + 1, a] = 3.0
    assert least_link_bytes(chain, 1) == 7 * 8 * 3.0
    chain[0, 1] += 2.0
    assert least_link_bytes(chain, 1) == 7 * 8 * 3.0 + 2.0
    # Two chains may be on rings of their own, and pairs on shorter ones.
    chain[3, 4] = chain[4, 3] = 0.0
    assert least_link_bytes(chain, 1) == 6 * 4 * 3.0 + 2.0
    pairs = np.kron(np.eye(4), np.array([[0.0, 5.0], [5.0, 0.0]]))
    assert least_link_bytes(pairs, 1) == pairs.sum()
    # A pair that sends nothing joins no rings, be it listed.
    listed = csr_array(([5.0] * 8 + [0.0], ([*range(8), 1], [1, 0, 3, 2, 5, 4, 7, 6, 2])))
    assert listed.nnz == 9
    assert least_link_bytes(listed, 1) == pairs.sum()


@pytest.mark.parametrize("share", [0.02, 0.1, 0.6])
def test_link_bytes_of_few_pairs_and_of_many_are_one_number(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    demand = rng.random((30, 30)) * (rng.random((30, 30)) < share)
    np.fill_diagonal(demand, 0.0)
    monkeypatch.setattr(throughput_bounds, "_SMALL", 0)
    for both in (False, True):
        found = []
        for dense in (-1.0, 2.0):
            monkeypatch.setattr(throughput_bounds, "_DENSE", dense)
            found.append(least_link_bytes(demand, 3, both))
        found.append(least_link_bytes(csr_array(demand), 3, both))
        assert found == pytest.approx([found[0]] * 3, rel=1e-12)
    assert least_link_bytes(csr_array(demand), 1) == least_link_bytes(demand, 1)
