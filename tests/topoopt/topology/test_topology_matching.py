"""Matching rounds against networkx and brute force."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.topology.matching import fill_ports, match_once, matching_rounds


@st.composite
def demands(draw: st.DrawFn, least: int = 1, most: int = 7) -> np.ndarray:
    n = draw(st.integers(least, most))
    cells = draw(
        st.lists(st.sampled_from([0, 0, 1, 1, 2, 7, 1000]), min_size=n * n, max_size=n * n)
    )
    matrix = np.array(cells, dtype=float).reshape(n, n)
    np.fill_diagonal(matrix, 0)
    return matrix


@settings(max_examples=60, deadline=None)
@given(demands(most=9))
def test_blossom_weight_is_that_of_networkx(demand: np.ndarray) -> None:
    n = len(demand)
    free = np.ones(n, dtype=np.int64)
    edges = match_once(demand, free, free, True)
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        (i, j, int(demand[i, j] + demand[j, i])) for i in range(n) for j in range(i)
    )
    best = nx.max_weight_matching(graph)
    known = sum(graph[a][b]["weight"] for a, b in best)
    assert sum(demand[i, j] + demand[j, i] for i, j in edges) == pytest.approx(known)
    ends = [v for edge in edges for v in edge]
    assert len(ends) == len(set(ends))
    assert all(i < j and demand[i, j] + demand[j, i] > 0 for i, j in edges)


@settings(max_examples=100, deadline=None)
@given(demands(most=6), st.data())
def test_assignment_weight_is_the_best_of_all(demand: np.ndarray, data: st.DataObject) -> None:
    n = len(demand)
    ports = st.lists(st.integers(0, 2), min_size=n, max_size=n)
    free_out = np.array(data.draw(ports), dtype=np.int64)
    free_in = np.array(data.draw(ports), dtype=np.int64)
    edges = match_once(demand, free_out, free_in, False)
    usable = demand * (free_out > 0)[:, None] * (free_in > 0)[None, :]
    best = max(sum(usable[i, p[i]] for i in range(n)) for p in permutations(range(n)))
    assert sum(demand[i, j] for i, j in edges) == pytest.approx(best)
    for side in zip(*edges, strict=True):
        assert len(set(side)) == len(side)
    assert all(usable[i, j] > 0 for i, j in edges)


@settings(max_examples=80, deadline=None)
@given(demands(least=2), st.integers(0, 4), st.booleans())
def test_rounds_use_one_port_a_server(demand: np.ndarray, rounds: int, bidirectional: bool) -> None:
    n = len(demand)
    before = demand.copy()
    result = matching_rounds(demand, rounds, bidirectional)
    np.testing.assert_array_equal(demand, before)
    assert len(result) == rounds
    remaining = demand.copy()
    for edges in result:
        assert all(i != j for i, j in edges)
        if bidirectional:
            ends = [v for edge in edges for v in edge]
            assert len(ends) == len(set(ends)) == n - n % 2
        else:
            assert len({i for i, _ in edges}) == len({j for _, j in edges}) == len(edges) >= n - 1
        free = np.ones(n, dtype=np.int64)
        again = match_once(remaining, free, free, bidirectional)
        assert set(again) <= set(edges)
        for i, j in edges:
            remaining[i, j] /= 2
            if bidirectional:
                remaining[j, i] /= 2
    assert result == matching_rounds(demand, rounds, bidirectional)


def test_halving_spreads_rounds_over_partners() -> None:
    # Uniform demand: four servers meet all three partners in three rounds.
    demand = np.ones((4, 4))
    met = {edge for edges in matching_rounds(demand, 3, True) for edge in edges}
    assert len(met) == 6
    # A pair with more than twice the demand of others takes a second cable.
    heavy = np.ones((4, 4))
    heavy[0, 1] = 100
    rounds = matching_rounds(heavy, 2, False)
    assert all((0, 1) in edges for edges in rounds)


def test_very_different_demands_are_not_rounded_away() -> None:
    demand = np.zeros((4, 4))
    demand[0, 1], demand[2, 3] = 1e15, 1.0
    free = np.ones(4, dtype=np.int64)
    assert match_once(demand, free, free, True) == [(0, 1), (2, 3)]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.booleans())
def test_filling_leaves_no_two_servers_with_free_ports(
    ports: list[int], bidirectional: bool
) -> None:
    free_out = np.array(ports, dtype=np.int64)
    free_in = free_out if bidirectional else np.array(ports[::-1], dtype=np.int64)
    joined = np.zeros((len(ports), len(ports)), dtype=np.int64)
    edges = fill_ports(free_out, free_in, joined, bidirectional)
    assert joined.sum() == len(edges) * (2 if bidirectional else 1)
    assert np.all(free_out >= 0)
    assert np.all(free_in >= 0)
    assert not joined.diagonal().any()
    for i in range(len(ports)):
        for j in range(len(ports)):
            assert i == j or not (free_out[i] > 0 and free_in[j] > 0)
    if bidirectional:  # as few left over as any multigraph without loops can leave
        assert free_out.sum() == max(sum(ports) % 2, 2 * max(ports) - sum(ports))


def test_bad_demand_is_named() -> None:
    with pytest.raises(InputError, match="square"):
        matching_rounds(np.ones((2, 3)), 1, True)
    with pytest.raises(InputError, match=r"0->1 is -1\.0"):
        matching_rounds(np.array([[0.0, -1.0], [0.0, 0.0]]), 1, True)
    with pytest.raises(InputError, match="-1 matching rounds"):
        matching_rounds(np.ones((2, 2)), -1, True)
