"""Loads of pairs between switches equal those of routes host by host."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError
from routing.network import Network
from routing.pair_loads import ecmp_pair_bytes
from routing.paths import ecmp_link_bytes, ecmp_routes


def switched(rng: np.random.Generator, alone: bool) -> Network:
    """Return hosts on a connected graph of switches; one has a second cable unless ``alone``."""
    hosts, switches = int(rng.integers(2, 9)), int(rng.integers(1, 7))
    ring = rng.permutation(switches).tolist()
    cables = {(a, b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True) if a != b}
    cables |= {(b, a) for a, b in cables}
    for _ in range(int(rng.integers(0, 2 * switches))):
        a, b = rng.integers(switches, size=2).tolist()
        if a != b:
            cables.add((a, b))
    links = [(hosts + a, hosts + b) for a, b in cables]
    for host in range(hosts):
        # Up and down need not be the same switch.
        links += [(host, hosts + int(rng.integers(switches)))]
        links += [(hosts + int(rng.integers(switches)), host)]
    if not alone:
        spare = [s for s in range(hosts, hosts + switches) if (0, s) not in links]
        links += [(0, spare[0])] if spare else [(0, 1)]
    source, target = zip(*links, strict=True)
    return Network.from_links("random", hosts, switches, source, target, 1.0, 0.0)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_loads_are_those_of_routes(seed: int, alone: bool) -> None:
    rng = np.random.default_rng(seed)
    network = switched(rng, alone)
    hosts = network.hosts
    pairs = np.flatnonzero(rng.random(hosts * hosts) < 0.5)
    amounts = rng.integers(1, 10, pairs.size).astype(float)
    found = ecmp_pair_bytes(network, pairs, amounts)
    routes, expected = ecmp_routes(network), np.zeros(network.links)
    for pair, amount in zip(pairs.tolist(), amounts.tolist(), strict=True):
        at = slice(routes.offsets[pair], routes.offsets[pair + 1])
        expected[routes.links[at]] += amount * routes.weights[at]
    assert found == pytest.approx(expected, rel=1e-12)
    demand = np.zeros(hosts * hosts)
    demand[pairs] = amounts
    np.fill_diagonal(demand.reshape(hosts, hosts), 0.0)
    assert found == pytest.approx(ecmp_link_bytes(network, demand.reshape(hosts, hosts)), rel=1e-12)


def test_switches_that_cannot_reach_each_other_are_named_by_hosts() -> None:
    apart = Network.from_links("apart", 2, 2, [0, 2, 1, 3], [2, 0, 3, 1], 1.0, 0.0)
    with pytest.raises(InfeasibleError, match="host 1 cannot be reached from host 0"):
        ecmp_pair_bytes(apart, np.array([1]), np.array([1.0]))
