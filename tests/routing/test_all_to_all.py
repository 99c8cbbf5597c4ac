"""All-to-all of a group: against a linear program over links, and closed forms."""

from itertools import pairwise

import numpy as np
import pytest
from flow_oracle import edge_lp, random_network

from codesign_base import InfeasibleError, InputError
from routing.collectives.choice import choose_schedules
from routing.network import Network


@pytest.mark.parametrize("seed", range(12))
def test_rates_are_those_of_the_linear_program(seed) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    size = int(rng.integers(2, network.hosts + 1))
    members = sorted(rng.choice(network.hosts, size, replace=False).tolist())
    demand = np.zeros((network.hosts, network.hosts))
    for a in members:
        for b in members:
            demand[a, b] = (a != b) / size
    best = 1.0 / edge_lp(network, demand)
    choice = choose_schedules(network, members, "all-to-all")
    short, spread = choice.schedules
    assert best * (1 - 1e-6) <= choice.rate_bound <= best * 1.0101
    assert best / 1.0101 <= spread.bytes_per_s <= best * (1 + 1e-6)
    assert short.bytes_per_s <= best * (1 + 1e-6)
    assert min(short.latency_s, spread.latency_s) >= choice.latency_bound * (1 - 1e-12)
    # Every pair's shares are its whole part, and links carry no more than they can.
    shares, load = np.zeros_like(demand), np.zeros(network.links)
    for nodes, share in spread.exchange.paths:
        shares[nodes[0], nodes[-1]] += share
        for a, b in pairwise(nodes):
            load[network.link(a, b)] += share * spread.bytes_per_s / size
    assert shares == pytest.approx(np.where(demand > 0.0, 1.0, 0.0))
    assert (load <= network.capacity * (1 + 1e-9)).all()


def test_closed_forms_and_refusals() -> None:
    i = np.arange(6)
    ring = Network.from_links("ring", 6, 0, i, (i + 1) % 6, 6e9, 1e-6)
    # A link carries parts of 1 + 2 + .. + 5 pairs, a sixth of a buffer each.
    choice = choose_schedules(ring, range(6), "all-to-all")
    for schedule in choice.schedules:
        assert schedule.time(15e9) == pytest.approx(15 / 6 * 15 / 6 + 5e-6)
    assert choice.rate_bound == pytest.approx(6e9 * 6 / 15)
    with pytest.raises(InputError, match="root is 0"):
        choose_schedules(ring, range(6), "all-to-all", 0)
    path = Network.from_links("path", 3, 0, [0, 1], [1, 2], 1e9, 1e-6)
    with pytest.raises(InfeasibleError):
        choose_schedules(path, range(3), "all-to-all")
