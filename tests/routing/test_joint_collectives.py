"""Trees of several groups at once: cheapest trees, cuts of all sets, known optima."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network

from codesign_base import InfeasibleError, InputError
from routing.collectives.arborescence import cheapest_tree
from routing.collectives.choice import choose_at_once
from routing.collectives.joint import joint_forests, rate_at_once
from routing.collectives.rate import gather_rate
from routing.network import Network


@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_the_cheapest_tree_costs_what_another_library_says(n, seed) -> None:
    draw = np.random.default_rng(seed)
    cost = draw.integers(1, 9, (n, n)).astype(float)
    root = int(draw.integers(n))
    parent = cheapest_tree(cost, root)
    tree = nx.DiGraph((int(parent[v]), v) for v in range(n) if v != root)
    assert nx.is_arborescence(tree)
    assert tree.in_degree(root) == 0
    graph = nx.DiGraph()
    for a in range(n):
        graph.add_weighted_edges_from((a, b, cost[a, b]) for b in range(n) if b not in (a, root))
    best = nx.minimum_spanning_arborescence(graph).size(weight="weight")
    assert sum(cost[int(parent[v]), v] for v in range(n) if v != root) == pytest.approx(best)


def least_cut(network, groups):
    """Capacity out of a set over the parts that must leave it, by every set."""
    ends = list(zip(network.source.tolist(), network.target.tolist(), strict=True))
    best = np.inf
    for size in range(1, network.hosts):
        for side in map(set, combinations(range(network.hosts), size)):
            parts = sum(
                len(side & set(group)) / len(group) for group in groups if not set(group) <= side
            )
            out = sum(c for (a, b), c in zip(ends, network.capacity.tolist(), strict=True)
                      if a in side and b not in side)  # fmt: skip
            best = min(best, out / parts) if parts else best
    return best


@given(st.integers(4, 7), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=12)
def test_groups_share_links_within_their_bound(n, seed) -> None:
    draw = np.random.default_rng(seed)
    arcs = {(i, (i + 1) % n) for i in range(n)}
    arcs |= {(int(a), int(b)) for a, b in draw.integers(n, size=(4, 2)) if a != b}
    capacity = 1e9 * draw.integers(1, 4, len(arcs))
    network = Network.from_links(
        "test", n, 0, *zip(*sorted(arcs), strict=True), capacity.tolist(), 1e-6
    )
    groups = [sorted(draw.permutation(n)[: draw.integers(2, n + 1)].tolist()) for _ in range(2)]
    found = joint_forests(network, groups)
    rate = rate_at_once(network, found.forests)
    assert 0.93 * found.rate_bound <= rate <= found.rate_bound * (1 + 1e-9)
    # Trees pass every cut, so no rate is above that of the smallest one.
    assert rate <= least_cut(network, groups) * (1 + 1e-9)
    for group, forest in zip(groups, found.forests, strict=True):
        assert forest.whole_bytes_per_s == pytest.approx(rate)
        alone = gather_rate(network, group)
        assert rate <= alone.bytes_per_s * len(group) * (1 + 1e-9)
        copies = dict.fromkeys(group, 0)
        for tree in forest.trees:
            has = {tree.root}
            for path in tree.paths:
                assert path[0] in has
                assert path[-1] not in has
                has.add(path[-1])
            assert has == set(group)
            copies[tree.root] += tree.copies
        assert set(copies.values()) == {forest.units}


def test_one_group_of_all_reaches_its_bottleneck_cut() -> None:
    network = circulant_network(6, (1, 2), 1e9)
    found = joint_forests(network, [range(6)])
    cut = gather_rate(network, range(6)).bytes_per_s * 6
    assert found.rate_bound >= cut * (1 - 1e-9)
    assert rate_at_once(network, found.forests) >= 0.95 * cut


def test_schedules_of_two_groups_on_a_ring() -> None:
    # Opposite servers: each link carries half of what a group sends to one member, and back.
    choice = choose_at_once(circulant_network(4, (1,), 1e9), [[0, 2], [1, 3]], "allreduce")
    assert choice.rate_bound == pytest.approx(0.5e9)
    assert [s.bytes_per_s for s in choice.schedules] == pytest.approx([0.5e9] * 3)
    assert choice.best(1e9).time(1e9) >= choice.bound(1e9)
    with pytest.raises(InputError, match="choose allreduce"):
        choose_at_once(circulant_network(4, (1,), 1e9), [[0, 2], [1, 3]], "broadcast")
    with pytest.raises(InputError, match="at least one"):
        joint_forests(circulant_network(4, (1,), 1e9), [])
    with pytest.raises(InfeasibleError, match="cannot be reached"):
        joint_forests(Network.from_links("test", 2, 0, [0], [1], 1e9, 0.0), [[0, 1]])
