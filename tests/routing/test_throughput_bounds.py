"""Bounds on congestion are sound, and tight where a closed form is known."""

from itertools import combinations

import numpy as np
import pytest
from flow_oracle import edge_lp, random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.throughput_bounds import any_wiring_bound, network_bound


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


def test_no_demand_and_refusals() -> None:
    network = random_network(np.random.default_rng(0), hosts=4, switches=0)
    assert network_bound(network, np.zeros((4, 4))).throughput == float("inf")
    idle = any_wiring_bound(np.zeros((4, 4)), 2, 1.0)
    assert idle.seconds == 0.0 and idle.excess(1.0) == float("inf") and idle.excess(0.0) == 0.0
    with pytest.raises(InputError, match="square matrix"):
        any_wiring_bound(np.zeros((2, 3)), 2, 1.0)
    with pytest.raises(InputError, match="degree 0"):
        any_wiring_bound(np.zeros((2, 2)), 0, 1.0)
