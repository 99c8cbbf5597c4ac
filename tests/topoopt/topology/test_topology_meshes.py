"""Full meshes and near ones: links, rings, and how they compare."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.topology.circulants import select_circulant
from topoopt.topology.meshes import full_mesh_graph, near_mesh


def cables_of(graph, bidirectional):
    cables = graph.cables.copy()
    n = cables.shape[0]
    for ring in graph.rings:
        assert sorted(ring) == list(range(n))
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            cables[a, b] += 1
            if bidirectional and n > 2:
                cables[b, a] += 1
    return cables


@settings(deadline=None)
@given(st.integers(2, 40), st.booleans())
def test_a_mesh_is_one_cable_between_every_two_and_mostly_rings(n, bidirectional) -> None:
    graph = full_mesh_graph(n, bidirectional=bidirectional)
    assert np.array_equal(cables_of(graph, bidirectional), 1 - np.eye(n, dtype=np.int64))
    each = 2 if bidirectional and n > 2 else 1
    assert each * len(graph.rings) == (1 if n == 2 else n - 1 if n % 2 else n - 2)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(4, 24), st.booleans())
def test_a_near_mesh_keeps_to_its_ports_and_is_no_longer_than_circulants(
    data, n, bidirectional
) -> None:
    ports = data.draw(st.integers(2, min(n - 2, 8)))
    if bidirectional:
        ports -= ports % 2
    graph = near_mesh(n, ports, bidirectional=bidirectional)
    cables = cables_of(graph, bidirectional)
    assert cables.sum(axis=0).max() <= ports
    assert cables.sum(axis=1).max() <= ports
    assert not cables.diagonal().any()
    if bidirectional:
        assert np.array_equal(cables, cables.T)
    network = nx.DiGraph(np.argwhere(cables > 0).tolist())
    count = ports // 2 if bidirectional else ports
    other = select_circulant(n, count, bidirectional=bidirectional, most=2_000)
    assert nx.average_shortest_path_length(network) <= other.mean_distance + 1e-9


def test_kautz_sizes_reach_their_known_distance() -> None:
    # K(2, 2) has 6 vertices, 2 ports and diameter 2: 2 members at 1 hop, 3 at 2.
    cables = cables_of(near_mesh(6, 2), False)
    network = nx.DiGraph(np.argwhere(cables > 0).tolist())
    assert nx.average_shortest_path_length(network) == pytest.approx(8 / 5)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="mesh of 1"):
        full_mesh_graph(1)
    with pytest.raises(InputError, match="full mesh"):
        near_mesh(5, 4)
    with pytest.raises(InputError, match="give 2 to"):
        near_mesh(5, 1)
