"""Trees over ring edges: right on numbers, no more on an edge than is said, a round a hop."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes
from topoopt.bounds.bounds import strategy_bound
from topoopt.bounds.wired import collective_bound, topology_bound
from topoopt.fabric import Fabric, Transport, simulate
from topoopt.fabric.ring_trees import (
    NO_TREES,
    ROUNDS_UP_TO,
    RingTrees,
    grown_trees,
    ring_trees,
)
from topoopt.fabric.transport import PACKETS
from topoopt.topology.fabrics import ideal_switch

REDUCE, SCATTER, GATHER = (
    TaskKind.ALLREDUCE, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER,
)  # fmt: skip


def random_orders(seed: int, least: int = 2, most: int = 24) -> np.ndarray:
    rng = np.random.default_rng(seed)
    members = int(rng.integers(least, most))
    return np.array([rng.permutation(members) for _ in range(int(rng.integers(1, 5)))])


def neighbours(order: np.ndarray) -> tuple[dict[int, int], dict[int, int]]:
    pairs = list(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
    return dict(pairs), {b: a for a, b in pairs}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_trees_add_up_numbers_over_ring_edges(seed: int) -> None:
    """Every part is added on the way to its root, and every member then hears the sum."""
    orders = random_orders(seed)
    rings, members = orders.shape
    trees = ring_trees_of_any_size(orders)
    rng = np.random.default_rng(seed)
    held = rng.integers(0, 1000, (members, members))  # of each member (row) the parts of all
    summed = held.copy()
    used = np.zeros((2, rings, members), dtype=int)
    # A reduction follows ring edges to the root: a broadcast over the rings turned round.
    hops, ring, _ = grown_trees(orders[:, ::-1])
    for root in range(members):
        for member in np.argsort(-hops[root], kind="stable").tolist():
            if member != root:
                on = int(ring[root, member])
                after, _ = neighbours(orders[on])
                summed[after[member], root] += summed[member, root]
                used[0, on, member] += 1
    assert (np.diag(summed) == held.sum(axis=0)).all()
    got = np.full((members, members), -1)
    np.fill_diagonal(got, np.diag(summed))
    hops, ring, load = grown_trees(orders)
    for root in range(members):
        for member in np.argsort(hops[root], kind="stable").tolist():
            if member != root:
                on = int(ring[root, member])
                _, before = neighbours(orders[on])
                assert got[before[member], root] >= 0, "is sent before it is there"
                got[member, root] = got[before[member], root]
                used[1, on, member] += 1
    assert (got == held.sum(axis=0)).all()
    assert (used[1] == load).all()
    by_rings = (members - 1) / rings
    assert used.max() <= trees.crowding * by_rings + 1e-9
    assert trees.hops >= hops.max()


def ring_trees_of_any_size(orders: np.ndarray) -> RingTrees:
    from topoopt.fabric.ring_trees import _of_places

    return _of_places(np.ascontiguousarray(orders).tobytes(), orders.shape[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_hops_are_shortest_paths(seed: int) -> None:
    import networkx as nx

    orders = random_orders(seed)
    graph = nx.DiGraph()
    for order in orders:
        nx.add_cycle(graph, order.tolist())
    hops, _, _ = grown_trees(orders)
    for root, row in nx.all_pairs_shortest_path_length(graph):
        assert [row[member] for member in range(orders.shape[1])] == hops[root].tolist()


def test_few_members_go_round_by_round() -> None:
    orders = np.arange(ROUNDS_UP_TO)[None]
    assert ring_trees(orders) is NO_TREES
    assert ring_trees(np.arange(ROUNDS_UP_TO + 1)[None]).hops == ROUNDS_UP_TO


def test_a_circulant_is_used_evenly() -> None:
    places = np.arange(200)
    trees = ring_trees(np.array([places * step % 200 for step in (1, 3, 9, 27)]))
    assert trees.hops == 12
    assert 1.0 <= trees.crowding < 1.01


def wired(members: int, steps: tuple[int, ...], transport: Transport = PACKETS) -> Fabric:
    """Return a circulant network of 12.5 GB/s and 1 us a link, with a ring of each step."""
    places = np.arange(members)
    target = np.concatenate([(places + step) % members for step in steps])
    source = np.tile(places, len(steps))
    network = Network.from_links("circulant", members, 0, source, target, 1.25e10, 1e-6)
    rings = tuple(tuple((places * step % members).tolist()) for step in steps)
    routes = Routes.on_demand(members, partial(ecmp_routes, network))
    return Fabric("circulant", network, routes, {tuple(range(members)): rings}, None, transport)


def alone(members: int, kind: TaskKind, size: float) -> TaskGraph:
    return TaskGraph.from_lists(members, [(kind, 0, -1, size, 0.0)], [], (tuple(range(members)),))


@pytest.mark.parametrize(("kind", "passes"), [(REDUCE, 2), (SCATTER, 1), (GATHER, 1)])
@pytest.mark.parametrize("size", [0.0, 1e3, 1e6])
def test_a_small_buffer_takes_a_round_a_hop(kind: TaskKind, passes: int, size: float) -> None:
    fabric = wired(200, (1, 199, 9, 191), Transport(segment_bytes=0.0, handshake=False))
    row = fabric.group_row(tuple(range(200)))
    assert row.hops < 30
    expected = passes * (row.hops * 1e-6 + row.crowding * 199 / 200 * size / 4 / 1.25e10)
    assert simulate(fabric, alone(200, kind, size)).makespan == pytest.approx(expected, rel=1e-9)


def test_rings_stay_where_they_are_faster() -> None:
    """One ring has no shorter way round."""
    fabric = wired(150, (1,))
    row = fabric.group_row(tuple(range(150)))
    assert row.hops == 149
    message = float(fabric.transport.wire_bytes(np.array([1e6 / 150]))[0])
    expected = 298 * (message / 1.25e10 + row.round_latency)
    assert simulate(fabric, alone(150, REDUCE, 1e6)).makespan == pytest.approx(expected, rel=1e-9)


def test_htsim_knows_rings_only() -> None:
    fabric = wired(150, (1, 7), Transport(htsim=True))
    assert fabric.group_streams(tuple(range(150))).trees == NO_TREES


def test_behind_a_switch_distance_doubles() -> None:
    fabric = Fabric("switch", *ideal_switch(300, 1e10, 1e-6))
    assert fabric.group_row(tuple(range(300))).hops == math.ceil(math.log2(300))


@pytest.mark.parametrize("size", [2e4, 2e6])
def test_both_models_agree(size: float) -> None:
    fabric = wired(132, (1, 7, 31))
    tasks = alone(132, REDUCE, size)
    fluid = simulate(fabric, tasks).makespan
    assert simulate(fabric, tasks, model="packet").makespan == pytest.approx(fluid, rel=0.05)
    assert fluid < 2 * 131 * fabric.group_row(tuple(range(132))).round_latency


@pytest.mark.parametrize("size", [0.0, 2e4, 2e6, 2e9])
@pytest.mark.parametrize("steps", [(1,), (1, 7, 31)])
def test_bounds_are_not_above(size: float, steps: tuple[int, ...]) -> None:
    fabric = wired(132, steps)
    tasks = alone(132, REDUCE, size)
    time = simulate(fabric, tasks).makespan
    bounds = (
        strategy_bound(tasks, len(steps), 1.25e10, 2e-6),
        topology_bound(fabric, tasks),
        collective_bound(fabric, tasks),
    )
    for one, other in itertools.pairwise(bound.seconds for bound in bounds):
        assert one <= other * (1.0 + 1e-9)
    assert bounds[-1].seconds <= time
    assert bounds[0].seconds > 0.0
