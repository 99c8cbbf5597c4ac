"""The matching of many servers: valid, and within its gap of the exact one."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoopt.topology import matching
from topoopt.topology.matching_kernels import exchange_partners
from topoopt.topology.near_matching import near_matching


def symmetric(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weight = np.triu(rng.random((n, n)) * (rng.random((n, n)) < rng.random()), 1)
    return weight + weight.T


def exact(weight: np.ndarray) -> float:
    graph = nx.Graph()
    for i, j in np.argwhere(np.triu(weight)):
        graph.add_edge(int(i), int(j), weight=float(weight[i, j]))
    return sum(weight[a, b] for a, b in nx.max_weight_matching(graph))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25))
def test_within_its_gap_of_the_best(seed: int, n: int) -> None:
    weight = symmetric(seed, n)
    edges, gap = near_matching(weight)
    used = [v for edge in edges for v in edge]
    assert len(set(used)) == len(used)
    assert all(a < b and weight[a, b] > 0 for a, b in edges)
    total = sum(weight[a, b] for a, b in edges)
    assert exact(weight) <= total * (1 + gap) + 1e-9
    assert total >= exact(weight) / 2


def test_large_ones_are_near_the_bound() -> None:
    edges, gap = near_matching(symmetric(1, 201) + 1.0 - np.eye(201))
    assert len(edges) == 100
    assert gap < 0.02


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_exchange_equals_plain_python(seed: int, half: int) -> None:
    n = 2 * half
    weight = symmetric(seed, n)
    partner = np.roll(np.arange(n).reshape(-1, 2), 1, axis=1).ravel()
    plain = partner.tolist()

    def once() -> bool:
        changed = False
        for a in range(n):
            for c in range(a + 1, n):
                b, d = plain[a], plain[c]
                if b == c:
                    continue
                ways = [(weight[a, b] + weight[c, d], 2), (weight[a, c] + weight[b, d], 1),
                        (weight[a, d] + weight[b, c], 0)]  # fmt: skip
                gain, way = max(ways)
                if gain <= ways[0][0] + 1e-12:
                    continue
                if way == 1:
                    plain[a], plain[c], plain[b], plain[d] = c, a, d, b
                else:
                    plain[a], plain[d], plain[b], plain[c] = d, a, c, b
                changed = True
        return changed

    exchange_partners(weight, partner, 1e-12)
    while once():
        pass
    assert partner.tolist() == plain


def test_used_where_very_many_pairs_have_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = symmetric(3, 30)
    free = np.ones(30, dtype=np.int64)
    best, none = matching.best_matching(demand, free, free, True)
    monkeypatch.setattr(matching, "_MOST_EDGES", 10)
    near, gap = matching.best_matching(demand, free, free, True)
    weight = sum(demand[a, b] for a, b in best)
    assert none == 0.0
    assert weight <= sum(demand[a, b] for a, b in near) * (1 + gap) * (1 + 1e-6)
