"""Annealed networks: measured by networkx, known optima, and rings that use every link."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.problem.ports import PortModel
from topoopt.topology.annealed import annealed
from topoopt.topology.annealed_kernels import anneal_links
from topoopt.topology.moore import moore_bound

BOTH, DIRECTED = PortModel.BIDIRECTIONAL, PortModel.DIRECTED


def mean_distance(network) -> float:
    graph = nx.DiGraph(zip(network.source.tolist(), network.target.tolist(), strict=True))
    return nx.average_shortest_path_length(graph)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("servers", "degree", "ports", "hops"),
    [
        (10, 3, BOTH, 5 / 3),  # Petersen's graph
        (16, 4, BOTH, 1.75),  # the least of Graph Golf's catalogue
        (13, 4, BOTH, 1 + 8 / 12),  # Moore bound
        (12, 3, DIRECTED, 1 + 8 / 11),  # Moore bound
        (16, 8, DIRECTED, 22 / 15),  # Moore bound
        (64, 8, BOTH, 7810 / 4032),  # kept; the least of the catalogue is 1.927
    ],
)
def test_the_shortest_paths_known_are_found(servers, degree, ports, hops):
    network, _ = annealed(servers, degree, 1e9, 1e-6, ports)
    assert mean_distance(network) == pytest.approx(hops, rel=1e-12)


@settings(max_examples=5, deadline=None)
@given(st.data())
def test_rings_are_hamiltonian_and_share_no_link(data):
    servers = data.draw(st.integers(4, 16), "servers")
    degree = data.draw(st.integers(2, min(5, servers - 2)), "degree")
    ports = data.draw(st.sampled_from([BOTH, DIRECTED]), "ports")
    if ports is BOTH and servers * degree % 2:
        degree -= 1
    network, rings = annealed(servers, degree, 1e9, 1e-6, ports, seed=3)
    links = set(zip(network.source.tolist(), network.target.tolist(), strict=True))
    assert len(links) == servers * degree
    assert (network.multiplicity == 1).all()
    assert (np.bincount(network.target, minlength=servers) == degree).all()
    assert (
        mean_distance(network) >= moore_bound(servers, degree, ports is BOTH).mean_distance - 1e-9
    )
    of_rings = [
        (a, b)
        for ring in rings
        for a, b in zip(ring.members, ring.members[1:] + ring.members[:1], strict=True)
    ]
    assert len(set(of_rings)) == len(of_rings)
    assert set(of_rings) <= links
    assert all(sorted(ring.members) == list(range(servers)) for ring in rings)
    if ports is BOTH:
        assert {(b, a) for a, b in links} == links
    if (servers, degree, ports) == (10, 3, BOTH):
        assert not rings  # Petersen's graph has no Hamiltonian cycle
        return
    most = degree if ports is DIRECTED else degree // 2 * 2
    # Of few servers the shortest paths may leave fewer directed rings.
    assert len(rings) == most or (ports is DIRECTED and servers <= 12 and rings)
    if len(rings) == degree:
        assert set(of_rings) == links


@pytest.mark.parametrize("both_ways", [False, True])
def test_the_kernel_leaves_the_best_and_what_it_costs(both_ways):
    orbits, turns, columns = 3, 5, 2
    n, degree = orbits * turns, columns * (2 if both_ways else 1)
    rng = np.random.default_rng(1)
    target = np.stack([rng.permutation(orbits) for _ in range(columns)], axis=1)
    shift = rng.integers(turns, size=(orbits, columns))
    near = np.empty((n, degree), dtype=np.int64)

    def written(target, shift):
        links = np.empty_like(near)
        for v in range(n):
            for k in range(columns):
                there = (v // orbits + shift[v % orbits, k]) % turns * orbits + target[
                    v % orbits, k
                ]
                links[v, 2 * k if both_ways else k] = there
                if both_ways:
                    links[there, 2 * k + 1] = v
        return links

    def hops(links):
        graph = nx.DiGraph((v, int(w)) for v in range(n) for w in links[v])
        total = 0
        for source in range(orbits):
            distance = nx.single_source_shortest_path_length(graph, source)
            missing = degree - len(set(links[source].tolist()) - {source})
            total += sum(distance.values()) + n * missing
        return total if nx.is_strongly_connected(graph) else None

    near[:] = written(target, shift)
    before = hops(near)
    told, draws = np.ones(1, dtype=np.int64), rng.random((3000, 6))
    anneal_links(near, target, shift, both_ways, -1, draws, 2.0, told)
    assert hops(near) == before  # told to stop, it makes no move
    best = anneal_links(near, target, shift, both_ways, -1, draws, 2.0, 0 * told)
    assert (near == written(target, shift)).all()
    assert hops(near) == best
    assert before is None or best <= before
    assert best / (orbits * (n - 1)) >= moore_bound(n, degree, both_ways).mean_distance - 1e-9


@pytest.mark.slow
def test_the_same_seed_makes_the_same_network():
    one, _ = annealed(13, 3, 1e9, 1e-6, DIRECTED, seed=5)
    from topoopt.topology import annealed as module

    module._ringed.cache_clear()
    other, _ = annealed(13, 3, 1e9, 1e-6, DIRECTED, seed=5)
    assert (one.target == other.target).all()


@pytest.mark.parametrize(
    ("servers", "degree", "ports", "remedy"),
    [
        (3, 2, DIRECTED, "4 to 4096"),
        (4, 3, DIRECTED, "2"),
        (5, 3, BOTH, "2"),
        (8, 7, DIRECTED, "2 to 6"),
        (9, 3, BOTH, "an even one of 2 to 6, as the number of servers is odd"),
        (8, 1, BOTH, "2 to 6"),
    ],
)
def test_what_cannot_be_wired_is_refused(servers, degree, ports, remedy):
    with pytest.raises(InputError, match=f"{servers} servers.*; give {remedy}$"):
        annealed(servers, degree, 1e9, 1e-6, ports)


def test_kept_rings_use_every_cable_once():
    network, rings = annealed(64, 8, 1e9, 1e-6, BOTH)
    edges = [
        pair
        for ring in rings
        for pair in zip(ring.members, ring.members[1:] + ring.members[:1], strict=True)
    ]
    links = zip(network.source.tolist(), network.target.tolist(), strict=True)
    assert sorted(edges) == sorted(links)
    assert len(rings) == 8
