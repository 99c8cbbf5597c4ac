"""The hops that a byte takes at least on any direct network of a degree."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.evaluate.least_times import least_hops


def sends(amounts):
    """Return a task graph of one transfer a pair, of as many bytes as a matrix says."""
    servers = len(amounts)
    tasks = [
        (TaskKind.TRANSFER, a, b, float(amounts[a][b]), 0.0)
        for a in range(servers)
        for b in range(servers)
        if a != b and amounts[a][b] > 0
    ]
    return TaskGraph.from_lists(servers, tasks, [])


def taken(network, amounts):
    hops = dict(nx.all_pairs_shortest_path_length(network))
    pairs = [(a, b) for a in network for b in network if a != b]
    moved = sum(amounts[a][b] for a, b in pairs)
    return sum(amounts[a][b] * hops[a][b] for a, b in pairs) / moved


@settings(deadline=None, max_examples=100)
@given(st.integers(3, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_no_network_takes_fewer_hops(servers, degree, seed):
    draw = np.random.default_rng(seed)
    # A ring, so that all are joined, and other links out of each server.
    network = nx.DiGraph((a, (a + 1) % servers) for a in range(servers))
    for a in range(servers):
        for b in draw.permutation(servers)[: degree - 1].tolist():
            if a != b:
                network.add_edge(a, b)
    amounts = draw.integers(0, 4, (servers, servers)).astype(float)
    amounts[0][1] = 1.0
    assert 1.0 <= least_hops(sends(amounts), degree) <= taken(network, amounts) * (1 + 1e-12)


@pytest.mark.parametrize("servers", [3, 8])
def test_of_a_ring_and_of_a_complete_graph_it_is_what_bytes_take(servers):
    every = sends(np.ones((servers, servers)))
    ring = nx.cycle_graph(servers, create_using=nx.DiGraph)
    assert least_hops(every, 1) == pytest.approx(taken(ring, np.ones((servers, servers))))
    assert least_hops(every, servers - 1) == 1.0


def test_rings_take_one_hop_and_what_sends_nothing_takes_one():
    reduced = [(TaskKind.ALLREDUCE, 0, 0, 24.0, 0.0)]
    assert least_hops(TaskGraph.from_lists(6, reduced, [], ((0, 1, 2, 3),)), 1) == 1.0
    assert least_hops(TaskGraph.from_lists(6, [(TaskKind.COMPUTE, 0, 0, 1.0, 0.0)], []), 2) == 1.0
    # 1 byte over two hops beside 2 * 3 * 24 bytes over one.
    both = [*reduced, (TaskKind.TRANSFER, 4, 0, 2.0, 0.0), (TaskKind.TRANSFER, 4, 1, 1.0, 0.0)]
    hops = least_hops(TaskGraph.from_lists(6, both, [], ((0, 1, 2, 3),)), 1)
    assert hops == pytest.approx(1.0 + 1.0 / (2 * 3 * 24 + 3))
