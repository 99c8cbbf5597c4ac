"""Simulated times against closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from fabric_oracle import circulant, shortest_routes, star

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
from routing.network import Network
from routing.routes import Routes
from topoopt.bounds.bounds import strategy_bound
from topoopt.fabric import (
    IDEAL,
    Fabric,
    compute_on_critical_path,
    critical_path,
    exposed_communication,
    score,
    simulate,
)
from topoopt.fabric.transport import PACKETS

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE


@pytest.mark.parametrize("servers", [2, 3, 8, 16])
def test_ring_allreduce(servers: int) -> None:
    fabric = circulant(servers, (1,), capacity=5.0, latency=0.01)
    tasks = TaskGraph.from_lists(servers, [(A, 0, -1, 80.0, 0.125)], [], (tuple(range(servers)),))
    share = 2 * (servers - 1) / servers
    expected = 0.125 + share * 80.0 / 5.0 + 2 * (servers - 1) * 0.01
    assert simulate(fabric, tasks).makespan == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("first", [(TaskKind.ALL_GATHER, 0, -1, 1e6, 0.0), (C, 1, -1, 0.0, 0.0)])
def test_what_gets_ready_by_tasks_of_no_time_comes_last(first) -> None:
    tasks = [first, (C, 0, -1, 2e-3, 0.0), (C, 0, -1, 1e-3, 0.0)]
    graph = TaskGraph.from_lists(2, tasks, [(0, 1)], ((0,),))
    found = simulate(circulant(2, (1,), capacity=1e9, latency=1e-6), graph)
    assert found.start.tolist() == [0.0, 1e-3, 0.0]


@pytest.mark.parametrize("servers", [2, 3, 8])
@pytest.mark.parametrize("kind", [TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER])
def test_ring_goes_round_once(servers: int, kind: TaskKind) -> None:
    fabric = circulant(servers, (1,), capacity=5.0, latency=0.01)
    tasks = TaskGraph.from_lists(
        servers, [(kind, 0, -1, 80.0, 0.125)], [], (tuple(range(servers)),)
    )
    expected = 0.125 + (servers - 1) / servers * 80.0 / 5.0 + (servers - 1) * 0.01
    timeline = simulate(fabric, tasks)
    assert timeline.makespan == pytest.approx(expected, rel=1e-12)
    ring = timeline.link_bytes[timeline.link_bytes > 0]
    np.testing.assert_allclose(ring, (servers - 1) / servers * 80.0)
    sent = traffic_of(tasks).allreduce_sent()
    assert sent == pytest.approx((servers - 1) * 80.0)
    assert strategy_bound(tasks, 1, 5.0, 0.01).seconds <= timeline.makespan


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_scattering_and_gathering_make_an_allreduce(model: str) -> None:
    group = (tuple(range(8)),)
    fabric = replace(circulant(8, (1, 3), capacity=1e9, latency=1e-6), transport=PACKETS)
    whole = TaskGraph.from_lists(8, [(A, 0, -1, 8e6, 0.0)], [], group)
    parts = [(kind, 0, -1, 8e6, 0.0) for kind in (TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER)]
    halves = TaskGraph.from_lists(8, parts, [(0, 1)], group)
    one, two = (simulate(fabric, tasks, model=model).makespan for tasks in (whole, halves))
    assert one == pytest.approx(two, rel=1e-3)


def test_two_rings_halve_the_time() -> None:
    tasks = TaskGraph.from_lists(8, [(A, 0, -1, 80.0, 0.0)], [], (tuple(range(8)),))
    assert score(circulant(8, (1, 3)), tasks) == pytest.approx(score(circulant(8, (1,)), tasks) / 2)


def test_group_of_one_takes_its_delay() -> None:
    tasks = TaskGraph.from_lists(2, [(A, 0, -1, 80.0, 0.75)], [], ((1,),))
    timeline = simulate(circulant(2, (1,), latency=1.0), tasks)
    assert timeline.makespan == 0.75
    assert not timeline.link_bytes.any()


@pytest.mark.parametrize("senders", [1, 2, 7])
def test_incast(senders: int) -> None:
    """Equal flows into one server share its link; each then takes its latency."""
    tasks = TaskGraph.from_lists(8, [(T, 1 + i, 0, 6.0, 0.0) for i in range(senders)], [])
    timeline = simulate(star(8, capacity=2.0, latency=0.5), tasks)
    np.testing.assert_allclose(timeline.finish, senders * 6.0 / 2.0 + 1.0)


def test_parking_lot() -> None:
    """Short flows end first; then the long one has the line to itself."""
    network = Network.from_links("line", 4, 0, [0, 1, 2], [1, 2, 3], 1.0, 0.0)
    tasks = TaskGraph.from_lists(
        4, [(T, 0, 3, 3.0, 0.0), (T, 0, 1, 1.0, 0.0), (T, 1, 2, 1.0, 0.0), (T, 2, 3, 1.0, 0.0)], []
    )
    timeline = simulate(
        Fabric("line", network, shortest_routes(network), {}, transport=IDEAL), tasks
    )
    np.testing.assert_allclose(timeline.finish, [4.0, 2.0, 2.0, 2.0])
    assert timeline.link_bytes.tolist() == [4.0, 4.0, 4.0]


def test_late_flow_of_a_busy_pair() -> None:
    """Flows of one pair share its rate, whenever they began."""
    tasks = TaskGraph.from_lists(
        2, [(T, 0, 1, 4.0, 0.0), (C, 0, -1, 2.0, 0.0), (T, 0, 1, 1.0, 0.0)], [(1, 2)]
    )
    timeline = simulate(circulant(2, (1,)), tasks)
    np.testing.assert_allclose(timeline.finish, [5.0, 2.0, 4.0])


def test_empty_transfer_takes_only_its_latency() -> None:
    tasks = TaskGraph.from_lists(4, [(T, 0, 2, 0.0, 0.0)], [])
    assert score(circulant(4, (1,), latency=0.5), tasks) == 1.0


def test_device_is_first_in_first_out() -> None:
    """Ready at 0: tasks 0, 3, 4 in order of id; task 2 is ready at 1 and comes last."""
    jobs = [(0, -1, 1.0), (1, -1, 1.0), (0, -1, 9.0), (0, -1, 2.0), (0, -1, 3.0)]
    tasks = TaskGraph.from_lists(
        2,
        [(C, *job, 0.0) for job in jobs],
        [(1, 2)],
    )
    timeline = simulate(circulant(2, (1,)), tasks)
    assert timeline.start.tolist() == [0.0, 0.0, 6.0, 1.0, 3.0]
    assert timeline.binding.tolist() == [-1, -1, 4, 0, 3]
    assert timeline.device_busy.tolist() == [15.0, 1.0]
    assert critical_path(tasks, timeline) == (0, 3, 4, 2)


def test_exposed_communication() -> None:
    """Compute 2 s, transfer of 3 s that nothing hides, compute 1 s."""
    tasks = TaskGraph.from_lists(
        2, [(C, 0, -1, 2.0, 0.0), (T, 0, 1, 3.0, 0.0), (C, 1, -1, 1.0, 0.0)], [(0, 1), (1, 2)]
    )
    timeline = simulate(circulant(2, (1,)), tasks)
    assert timeline.makespan == 6.0
    assert compute_on_critical_path(tasks, timeline) == 3.0
    assert exposed_communication(tasks, timeline) == 3.0


def test_bytes_times_hops_are_conserved() -> None:
    rng = np.random.default_rng(5)
    fabric = circulant(12, (1, 5), paths=3)
    pairs = [rng.choice(12, 2, replace=False).tolist() for _ in range(60)]
    tasks = TaskGraph.from_lists(12, [(T, a, b, float(rng.random()), 0.0) for a, b in pairs], [])
    hops = fabric.routes.hops[tasks.first * 12 + tasks.second]
    assert simulate(fabric, tasks).link_bytes.sum() == pytest.approx(float(hops @ tasks.size))


def test_no_tasks() -> None:
    timeline = simulate(circulant(2, (1,)), TaskGraph.from_lists(2, [], []))
    assert timeline.makespan == 0.0
    assert critical_path(TaskGraph.from_lists(2, [], []), timeline) == ()


def test_cycle_is_named() -> None:
    tasks = TaskGraph.from_lists(
        2, [(C, 0, -1, 1.0, 0.0), (C, 0, -1, 1.0, 0.0), (C, 1, -1, 1.0, 0.0)], [(0, 1), (1, 0)]
    )
    with pytest.raises(InputError, match="2 of 3 tasks never ran"):
        simulate(circulant(2, (1,)), tasks)


def test_missing_route_is_named() -> None:
    network = Network.from_links("line", 3, 0, [0, 1], [1, 2], 1.0, 0.0)
    fabric = Fabric("line", network, shortest_routes(network), {})
    with pytest.raises(InputError, match="no route 2->0"):
        simulate(fabric, TaskGraph.from_lists(3, [(T, 2, 0, 1.0, 0.0)], []))
    with pytest.raises(InputError, match="no route"):
        simulate(fabric, TaskGraph.from_lists(3, [(A, 0, -1, 1.0, 0.0)], [], ((0, 1, 2),)))


@pytest.mark.parametrize("size", [-1.0, np.nan, np.inf])
def test_bad_size(size: float) -> None:
    with pytest.raises(InputError, match="negative or not finite"):
        simulate(circulant(2, (1,)), TaskGraph.from_lists(2, [(C, 0, -1, size, 0.0)], []))


def test_too_many_servers_and_bad_tolerance() -> None:
    tasks = TaskGraph.from_lists(4, [(C, 3, -1, 1.0, 0.0)], [])
    with pytest.raises(InputError, match="4 servers"):
        simulate(circulant(2, (1,)), tasks)
    with pytest.raises(InputError, match="completion_tolerance"):
        simulate(circulant(4, (1,)), tasks, completion_tolerance=1.0)


def test_a_limit_cuts_the_simulation_short() -> None:
    tasks = TaskGraph.from_lists(2, [(C, 0, -1, 1.0, 0.0), (C, 0, -1, 2.0, 0.0)], [])
    fabric = circulant(2, (1,))
    assert score(fabric, tasks, limit=3.0) == 3.0
    assert score(fabric, tasks, limit=2.9) == np.inf
    cycle = TaskGraph.from_lists(2, [(C, 0, -1, 1.0, 0.0), (C, 0, -1, 2.0, 0.0)], [(0, 1), (1, 0)])
    with pytest.raises(InputError, match="2 of 2 tasks never ran"):
        score(fabric, cycle, limit=9.0)


@pytest.mark.parametrize("third", [1, 3])
def test_shares_that_are_rounding_errors_may_cancel(third: int) -> None:
    """A flow of weight 2^-53 beside one of weight 1 leaves less than no load behind."""
    network = Network.from_links("two ways", 4, 0, [0, 0, 2, 2], [1, 2, 1, 3], 1.0, 0.0)
    tiny = 2.0**-53
    rows = {
        (0, 1): [(0, 1.0 - tiny), (1, tiny), (2, tiny)],
        (0, 2): [(1, 1.0)],
        (0, 3): [(1, 1.0), (3, 1.0)],
        (2, 1): [(2, 1.0)],
        (2, 3): [(3, 1.0)],
    }
    entries = [rows.get(divmod(pair, 4), []) for pair in range(16)]
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in entries])))
    links = np.array([link for row in entries for link, _ in row])
    weights = np.array([weight for row in entries for _, weight in row])
    hops = np.array([sum(weight for _, weight in row) for row in entries])
    routes = Routes(4, offsets, links, weights, np.zeros(16), hops)
    fabric = Fabric("two ways", network, routes, {}, transport=IDEAL)
    # The first takes the link with the tiny share; in the second case it is held back elsewhere.
    tasks = TaskGraph.from_lists(
        4,
        [
            (T, 0, 2 if third == 1 else 3, 1.0, 0.0),
            (T, 0, 1, 2.0, 0.0),
            (C, 3, -1, 5.0, 0.0),
            (T, 0, 1, 1.0, 0.0),
            (T, 2, third, 1.0, 0.0),
        ],
        [(2, 3)],
    )
    shared = 1.0 if third == 1 else 2.0
    timeline = simulate(fabric, tasks)
    np.testing.assert_allclose(timeline.finish, [shared, 2.0, 5.0, 6.0, shared])
