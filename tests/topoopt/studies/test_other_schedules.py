"""Other schedules than rings: rates by cuts, and the iteration with them."""

import numpy as np
import pytest

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.studies.other_schedules import (
    at_once,
    group_rates,
    separate_network_seconds,
    trees_seconds,
)

A, R, G, T = (
    TaskKind.ALLREDUCE, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER, TaskKind.TRANSFER,
)  # fmt: skip
RATE, SIZE = 1e9, 1e9


def fabric_of(steps, servers=8, rings=()):
    """A circulant whose servers have a link for each step, with given rings."""
    source = [v for v in range(servers) for _ in steps]
    target = [(v + s) % servers for v in range(servers) for s in steps]
    network = Network.from_links("c", servers, 0, source, target, RATE, 0.0)
    given = {tuple(sorted(rings[0])): tuple(rings)} if rings else {}
    return Fabric("c", network, ecmp_routes(network), given)


def reduces(*groups, kind=A, more=()):
    rows = [(kind, at, -1, SIZE, 0.0) for at in range(len(groups))]
    return TaskGraph.from_lists(8, [*rows, *more], [], groups)


def test_rings_on_all_ports_lose_nothing():
    orders = [tuple(s * v % 8 for v in range(8)) for s in (1, 3)]
    fabric = fabric_of((1, 3), rings=orders)
    tasks = reduces(tuple(range(8)))
    (rate,) = group_rates(fabric, tasks)
    assert rate.best == pytest.approx(rate.rings)
    assert rate.rings == pytest.approx(2 * RATE)
    assert trees_seconds(fabric, tasks, [rate], 0.01) == float("inf")
    time = score(fabric, tasks)
    assert time == pytest.approx(2 * 7 / 8 * SIZE / (2 * RATE), rel=0.05)  # and headers
    assert separate_network_seconds(fabric, tasks, [rate], 0.01) == pytest.approx(time, rel=1e-3)


def test_one_ring_of_two_possible_leaves_half_to_trees():
    fabric = fabric_of((1, 3), rings=[tuple(range(8))])
    tasks = reduces(tuple(range(8)))
    (rate,) = group_rates(fabric, tasks)
    assert rate.best == pytest.approx(2 * rate.rings)
    time = score(fabric, tasks)
    trees = trees_seconds(fabric, tasks, [rate], 0.01)
    assert trees == pytest.approx(0.5 * time, rel=0.02)
    assert separate_network_seconds(fabric, tasks, [rate], 0.01) == pytest.approx(trees, rel=0.02)


@pytest.mark.parametrize("kind", [R, G])
def test_a_gather_is_half_of_an_allreduce(kind):
    fabric = fabric_of((1, 3), rings=[tuple(range(8))])
    whole, half = reduces(tuple(range(8))), reduces(tuple(range(8)), kind=kind)
    rates = group_rates(fabric, half)
    assert rates[0].best == pytest.approx(group_rates(fabric, whole)[0].best)
    assert trees_seconds(fabric, half, rates, 0.01) == pytest.approx(
        0.5 * trees_seconds(fabric, whole, rates, 0.01)
    )


def test_what_others_send_is_in_the_way_of_trees_but_not_of_a_group_alone():
    fabric = fabric_of((1, 3), rings=[(0, 1, 2, 3, 4, 5, 6, 7)])
    moves = [(T, v, (v + 3) % 8, 3 * SIZE, 0.0) for v in range(8)]
    tasks = reduces(tuple(range(8)), more=moves)
    rates = group_rates(fabric, tasks)
    busy = score(fabric, tasks)
    assert busy == pytest.approx(3 * SIZE / RATE, rel=0.05)
    assert trees_seconds(fabric, tasks, rates, 0.01) > 1.1 * busy
    assert separate_network_seconds(fabric, tasks, rates, 0.01) == pytest.approx(busy, rel=1e-6)


def test_links_to_partners_of_another_group_gain_nothing_where_both_are_at_work():
    # Even and odd servers have a ring each, and every server a link to its partner and back.
    even, odd = tuple(range(0, 8, 2)), tuple(range(1, 8, 2))
    source = [v for v in range(8) for _ in range(2)]
    target = [w for v in range(8) for w in ((v + 2) % 8, v ^ 1)]
    network = Network.from_links("p", 8, 0, source, target, RATE, 0.0)
    fabric = Fabric("p", network, ecmp_routes(network), {even: (even,), odd: (odd,)})
    rates = group_rates(fabric, reduces(even, odd))
    assert all(rate.best == pytest.approx(2 * rate.rings) for rate in rates)
    assert at_once(fabric, rates[:1], 0.01) == pytest.approx(2.0, rel=0.05)
    # A way through the others takes their own links.
    assert 1.0 <= at_once(fabric, rates, 0.01) < 1.05
    assert at_once(fabric, rates, 1.5) == 1.0


def test_the_fabric_itself_stays_as_it_is():
    fabric = fabric_of((1, 3), rings=[tuple(range(8))])
    group = tuple(range(8))
    before = score(fabric, reduces(group))
    streams = fabric.group_streams(group)
    slower = fabric.with_streams({group: streams._replace(weights=4 * streams.weights)})
    assert score(slower, reduces(group)) > 3 * before
    assert score(fabric, reduces(group)) == before
    assert np.array_equal(fabric.group_streams(group).weights, streams.weights)
