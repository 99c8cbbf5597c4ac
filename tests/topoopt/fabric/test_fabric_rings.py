"""Coupled ring streams, chosen rings, and the checks of a fabric."""

import numpy as np
import pytest
from default_rings_oracle import rings_of
from fabric_oracle import circulant, shortest_routes, star, stream_row
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from topoopt.fabric import Fabric, default_rings, simulate


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_stream_counts_ring_edges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fabric = circulant(10, (1, 3), latency=0.5, paths=int(rng.integers(1, 4)))
    group = tuple(sorted(rng.choice(10, int(rng.integers(2, 11)), replace=False).tolist()))
    streams = fabric.group_streams(group)
    row, latency, rings = stream_row(fabric, group)
    assert dict(zip(streams.links.tolist(), streams.weights.tolist(), strict=True)) == (
        pytest.approx(row)
    )
    assert (streams.round_latency, streams.rings) == (latency, rings)
    hops = sum(row.values())
    assert hops >= len(group) * rings - 1e-9


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_default_rings_are_permutations_and_beat_sorted_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(2, 20))
    steps = tuple(dict.fromkeys([1, *rng.integers(1, hosts, 2).tolist()]))
    fabric = circulant(hosts, steps)
    group = tuple(sorted(rng.choice(hosts, int(rng.integers(2, hosts + 1)), False).tolist()))
    rings = default_rings(fabric.network, fabric.routes, group)
    assert all(tuple(sorted(order)) == group for order in rings)
    assert 1 <= len(rings) <= 8
    assert rings == default_rings(fabric.network, fabric.routes, group)

    def slowest(orders: tuple[tuple[int, ...], ...]) -> float:
        chosen = Fabric("chosen", fabric.network, fabric.routes, {group: orders})
        streams = chosen.group_streams(group)
        load = streams.weights / fabric.network.capacity[streams.links]
        return float(load.max()) / streams.rings

    assert slowest(rings) <= slowest((group,)) * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_default_rings_are_those_of_the_plain_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(3, 24))
    steps = tuple(dict.fromkeys([1, *rng.integers(1, hosts, int(rng.integers(0, 4))).tolist()]))
    fabric = circulant(hosts, steps, paths=int(rng.integers(1, 4)))
    group = tuple(sorted(rng.choice(hosts, int(rng.integers(3, hosts + 1)), False).tolist()))
    assert default_rings(fabric.network, fabric.routes, group) == (
        rings_of(fabric.network, fabric.routes, group)
    )


def test_default_rings_find_the_rings_of_a_circulant() -> None:
    """Each of the three steps is a ring of links; together they use every link once."""
    fabric = circulant(16, (1, 3, 7))
    rings = default_rings(fabric.network, fabric.routes, tuple(range(16)))
    assert {(order[1] - order[0]) % 16 for order in rings} == {1, 3, 7}


def test_switched_fabric_takes_one_sorted_ring() -> None:
    fabric = star(6)
    assert fabric.rings_of((0, 2, 5)) == ((0, 2, 5),)
    assert fabric.group_streams((0, 2, 5)).weights.tolist() == [1.0] * 6


def test_pairs_and_triples() -> None:
    fabric = circulant(4, (1,))
    assert fabric.rings_of((1, 3)) == ((1, 3),)
    assert fabric.rings_of((0, 1, 2)) == ((0, 1, 2),)


def test_many_new_groups_grow_the_table() -> None:
    """Rows met earlier stay where they are while later ones are added."""
    fabric = circulant(9, (1, 2), capacity=2.0)
    groups = tuple((a, b) for a in range(9) for b in range(a + 1, 9))
    alone = {g: fabric.group_streams(g) for g in groups}
    for group in groups:
        again = fabric.group_streams(group)
        np.testing.assert_array_equal(alone[group].links, again.links)
        tasks = TaskGraph.from_lists(9, [(TaskKind.ALLREDUCE, 0, -1, 3.0, 0.0)], [], (group,))
        load = (again.weights / 2.0).max()
        assert simulate(fabric, tasks).makespan == pytest.approx(3.0 * load / again.rings)


@pytest.mark.parametrize("group", [(0,), (1, 0), (0, 0), (0, 9), (-1, 0)])
def test_bad_group(group: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"AllReduce group is \(.*\); give (two or more|hosts)"):
        circulant(4, (1,)).group_streams(group)


@pytest.mark.parametrize(
    ("rings", "says"),
    [
        ({(0, 1): ((0, 2),)}, "does not visit"),
        ({(1, 0): ((1, 0),)}, "sorted"),
        ({(0, 7): ((0, 7),)}, r"is \(0, 7\); give hosts of the network, 0\.\.3"),
    ],
)
def test_bad_rings(rings: dict[tuple[int, ...], tuple[tuple[int, ...], ...]], says: str) -> None:
    whole = circulant(4, (1,))
    with pytest.raises(InputError, match=says):
        Fabric("bad", whole.network, whole.routes, rings)


def test_routes_of_another_network() -> None:
    small, large = circulant(4, (1,)), circulant(5, (1,))
    with pytest.raises(InputError, match="route this network"):
        Fabric("bad", small.network, large.routes, {})
    line = Network.from_links("line", 4, 0, [0], [1], 1.0, 0.0)
    with pytest.raises(InputError, match="route this network"):
        Fabric("bad", line, small.routes, {})
    assert shortest_routes(line).links.tolist() == [0]
