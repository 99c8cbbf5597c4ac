"""One path a pair: against brute force, and never worse than its best start."""

from itertools import pairwise, product

import numpy as np
import pytest
from flow_oracle import random_demand, random_network
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.multicommodity import min_congestion
from routing.unsplittable import round_to_single_paths


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_rounding_keeps_one_path_and_is_near_the_best_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, hosts=5, switches=0)
    demand = random_demand(rng, 5)
    split = min_congestion(network, demand)
    single = round_to_single_paths(split, seed=1)
    again = round_to_single_paths(split, seed=1)
    np.testing.assert_array_equal(single.links, again.links)
    assert np.all(np.diff(single.path_offsets) == 1) and np.all(single.shares == 1.0)
    assert single.lower_bound == split.lower_bound
    choices = []
    for pair in split.pairs.tolist():
        s, t = divmod(pair, 5)
        ways = [nodes for nodes, _ in split.paths(s, t)]
        assert single.paths(s, t)[0][0] in ways
        choices.append([(demand[s, t], nodes) for nodes in ways])
    if np.prod([len(ways) for ways in choices]) > 2000:
        return
    best = np.inf
    for picked in product(*choices):
        load = np.zeros(network.links)
        for amount, nodes in picked:
            for a, b in pairwise(nodes):
                load[network.link(a, b)] += amount
        best = min(best, (load / network.capacity).max())
    assert best <= single.congestion * (1 + 1e-12) <= best * 1.3


def test_no_demand() -> None:
    network = random_network(np.random.default_rng(0), hosts=4, switches=0)
    idle = min_congestion(network, np.zeros((4, 4)))
    assert round_to_single_paths(idle).congestion == pytest.approx(0.0)
