"""Schedules of a network whose hosts have other names take as long."""

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from collective_oracle import met
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import circulant_network, network_of

from routing.collectives.choice import COLLECTIVES, ROOTED, choose_schedules
from routing.collectives.numbering import MOST_NUMBERED, around, orders, renumbered
from routing.collectives.shortest import shortest_forest
from routing.collectives.waves import waves_of

GIGA = 1e9
SIZES = (1e3, 1e6, 1e9)


def both_ways(graph):
    graph = nx.convert_node_labels_to_integers(graph)
    arcs = [pair for a, b in graph.edges for pair in ((a, b), (b, a))]
    return network_of(arcs, len(graph), 0, [12.5 * GIGA] * len(arcs))


def failed_mesh():
    graph = nx.grid_graph((4, 4))
    graph.remove_edge((1, 1), (1, 2))
    return both_ways(graph)


def shrikhande():
    """All nodes and all neighbours of one are alike, and yet not all pairs of these."""
    steps = ((0, 1), (1, 0), (1, 1))
    return both_ways(
        nx.Graph(
            ((a, b), ((a + x) % 4, (b + y) % 4))
            for a in range(4) for b in range(4) for x, y in steps
        )
    )  # fmt: skip


NETWORKS = {
    "random": lambda: both_ways(nx.random_regular_graph(3, 12, seed=1)),
    "hypercube": lambda: both_ways(nx.hypercube_graph(3)),
    "torus": lambda: both_ways(nx.grid_graph((3, 4), periodic=True)),
    "mesh": failed_mesh,
    "shrikhande": shrikhande,
    "star": lambda: both_ways(nx.star_graph(8)),
    "circulant": lambda: circulant_network(13, (1, 6), 12.5 * GIGA),
}


def shuffled(network, seed):
    """Return a network whose hosts and switches have other names, and these."""
    draw = np.random.default_rng(seed)
    hosts, switches = draw.permutation(network.hosts), draw.permutation(network.switches)
    names = np.concatenate((hosts, network.hosts + switches))
    return renumbered(network, names).network, names


def seconds(choice):
    """Return times of the best schedules at all sizes but rings by numbers, and bounds."""
    some = [each for each in choice.schedules if not each.name.startswith("ring")]
    times = [min(each.time(size) for each in some) for size in SIZES]
    return [*times, *map(choice.bound, SIZES)]


@pytest.mark.parametrize("name", NETWORKS)
def test_structure_gives_all_names_of_a_network_the_same_numbers(name) -> None:
    network = NETWORKS[name]()
    found = set()
    for seed in range(5):
        other, _ = shuffled(network, seed)
        numbered = [renumbered(other, each).network for each in orders(other, range(network.hosts))]
        found.add(tuple((each.source.tobytes(), each.target.tobytes()) for each in numbered))
    assert len(found) == 1


@pytest.mark.parametrize("name", ["random", "mesh", "circulant"])
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "all-to-all"])
def test_other_names_change_no_time(name, collective) -> None:
    network = NETWORKS[name]()
    group = range(network.hosts)
    first = choose_schedules(network, group, collective)
    for seed in (1, 2):
        other = choose_schedules(shuffled(network, seed)[0], group, collective)
        assert seconds(other) == pytest.approx(seconds(first), rel=1e-9)
        if name == "circulant":
            for size in SIZES:
                assert other.best(size).time(size) == pytest.approx(
                    first.best(size).time(size), rel=1e-3
                )


@st.composite
def cases(draw):
    """Hosts and, but for all-to-alls, switches on random rings; a group, and another naming."""
    nodes = draw(st.integers(3, 9))
    collective = draw(st.sampled_from(COLLECTIVES))
    rings = draw(st.lists(st.permutations(range(nodes)), min_size=1, max_size=3))
    arcs = [pair for order in rings for pair in pairwise([*order, order[0]])]
    hosts = nodes if collective == "all-to-all" else draw(st.integers(2, nodes))
    members = draw(st.lists(st.integers(0, hosts - 1), min_size=2, max_size=hosts, unique=True))
    away = np.random.default_rng(draw(st.integers(0, 99))).choice([1e-6, 2e-6], len(arcs))
    network = network_of(arcs, hosts, nodes - hosts, [GIGA] * len(arcs), away.tolist())
    root = members[0] if collective in ROOTED else None
    return network, members, collective, root, draw(st.integers(0, 99))


@given(cases())
@settings(deadline=None, max_examples=25)
def test_other_names_change_no_time_of_a_group(case) -> None:
    network, members, collective, root, seed = case
    first = choose_schedules(network, members, collective, root)
    other, names = shuffled(network, seed)
    renamed = choose_schedules(
        other, names[members].tolist(), collective, None if root is None else int(names[root])
    )
    assert seconds(renamed) == pytest.approx(seconds(first), rel=1e-9)


def test_meetings_by_given_numbers_add_up() -> None:
    network = failed_mesh()
    found = [each.meeting for each in choose_schedules(network, range(16), "allreduce").schedules]
    found = [each for each in found if each is not None]
    assert found
    for meeting in found:
        parts = [{host: 1 << host for host in range(16)}] * meeting.parts
        assert met(network, meeting, parts) == [dict.fromkeys(range(16), (1 << 16) - 1)] * len(
            parts
        )


def test_numbers_by_coordinates_are_no_better() -> None:
    network = both_ways(nx.hypercube_graph(4))
    forest = shortest_forest(network, range(16))
    choice = choose_schedules(network, range(16), "allgather")
    assert choice.best(1e6).time(1e6) <= waves_of(network, forest).time(1e6)


def test_a_circulant_of_other_names_is_found() -> None:
    network = circulant_network(24, (1, 5), GIGA)
    other, _ = shuffled(network, 3)
    numbers = around(other)
    assert numbers is not None
    found = renumbered(other, numbers).network
    assert np.array_equal(found.source, network.source)
    assert np.array_equal(found.target, network.target)
    slower = np.where(np.arange(other.links) == 7, GIGA / 2, other.capacity)
    assert around(replace(other, capacity=slower)) is None
    assert around(failed_mesh()) is None


def test_more_members_keep_their_numbers() -> None:
    network = circulant_network(MOST_NUMBERED + 1, (1, 5), GIGA)
    (only,) = orders(network, range(network.hosts))
    assert only.tolist() == list(range(network.hosts))
