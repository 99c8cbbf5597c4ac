"""Packets, rounds, the lag of a message, and the artefacts of htsim."""

from dataclasses import replace
from math import ceil, floor

import numpy as np
import pytest
from fabric_oracle import circulant, shortest_routes, star
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from topoopt.fabric import IDEAL, PACKETS, Fabric, Transport, score, simulate
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.tasks import routed_tasks
from topoopt.topology.fabrics import fat_tree, ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
HTSIM = Transport(htsim=True)
P, RATE, LATENCY = PACKETS.segment_bytes, 12.5e9, 1e-6


def wire(transport: Transport, size: float) -> float:
    return float(transport.wire_bytes(np.array([size]))[0])


def rounds(transport: Transport, size: float, members: int, rings: int) -> tuple[float, float]:
    count, message = transport.rounds(
        np.array([size]), np.array([members]), np.array([rings]), np.array([2.0])
    )
    return float(count[0]), float(message[0])


# --- packets --------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_whole_packets(size: int) -> None:
    assert wire(PACKETS, float(size)) == P * ceil(size / 8936)
    assert wire(HTSIM, float(size)) == P * max(ceil((size - 1) / 8936), 1)
    assert wire(IDEAL, float(size)) == size


@pytest.mark.parametrize(
    ("size", "packets", "htsim"),
    [(0, 0, 1), (1, 1, 1), (2, 1, 1), (8936, 1, 1), (8937, 2, 1), (8938, 2, 2), (17872, 2, 2)],
)
def test_packets_at_the_edges(size: int, packets: int, htsim: int) -> None:
    assert wire(PACKETS, float(size)) == packets * P
    assert wire(HTSIM, float(size)) == htsim * P


@settings(deadline=None)
@given(st.integers(2, 2000), st.integers(1, 8), st.integers(1, 10**6))
def test_a_division_that_rounds_up_costs_no_packet(members: int, rings: int, packets: int) -> None:
    """Chunks of whole packets stay whole packets."""
    _, message = rounds(PACKETS, float(packets * 8936 * members * rings), members, rings)
    assert wire(PACKETS, message) == packets * P
    assert wire(PACKETS, np.nextafter(message, np.inf)) == packets * P


# --- rounds ---------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(2, 2000), st.integers(1, 8), st.floats(0, 1e12))
def test_rounds_move_all_bytes(members: int, rings: int, size: float) -> None:
    count, message = rounds(PACKETS, size, members, rings)
    assert count == 2 * (members - 1)
    assert count * message * rings == pytest.approx(2 * (members - 1) / members * size)


@settings(deadline=None)
@given(st.integers(2, 200), st.integers(1, 8), st.integers(0, 10**7))
def test_rounds_of_htsim(members: int, rings: int, size: int) -> None:
    count, message = rounds(HTSIM, float(size), members, rings)
    if size < 9000 * members:  # a single short round, a group's size too little
        assert count == 1
        assert message == floor(2 * (members - 1) * size / members) / (members * rings)
    else:
        assert message == size / (members * rings)
        assert count == (1 if size <= 18000 * (members - 1) else 2 * (members - 1))


# --- the lag --------------------------------------------------------------------------------


@pytest.mark.parametrize("handshake", [False, True])
@pytest.mark.parametrize("segment", [0.0, 1500.0])
def test_the_lag_of_a_lone_message(segment: float, handshake: bool) -> None:
    transport = Transport(segment_bytes=segment, handshake=handshake)
    lag = transport.message_lag(np.array([3e-6, 1e-6]), np.array([3.0, 1.0]), np.array([1e9, 2e9]))
    ways = 2 if handshake else 1
    np.testing.assert_allclose(lag, [ways * 3e-6 + 2 * segment / 1e9, ways * 1e-6])


@pytest.mark.parametrize("hops", [1, 3])
def test_fluid_gives_a_lone_transfer_its_closed_form(hops: int) -> None:
    fabric = circulant(6, (1,), RATE, LATENCY, transport=PACKETS)
    tasks = TaskGraph.from_lists(6, [(T, 0, hops, 1e6, 0.0)], [])
    packets = ceil(1e6 / P)
    expected = 2 * hops * LATENCY + (packets + hops - 1) * P / RATE
    assert score(fabric, tasks) == pytest.approx(expected, rel=1e-12)


def test_the_slowest_cable_sets_the_store_and_forward() -> None:
    """Parallel cables carry more, but each packet takes one of them."""
    network = Network.from_links("line", 3, 0, [0, 0, 1], [1, 1, 2], [1e9, 1e9, 4e9], LATENCY)
    fabric = Fabric("line", network, shortest_routes(network))
    assert fabric.rows.lags(np.array([2]))[0] == pytest.approx(4 * LATENCY + P / 1e9)
    assert fabric.rows.lags(np.array([1]))[0] == pytest.approx(2 * LATENCY)


# --- caps of rounds -------------------------------------------------------------------------


@pytest.mark.parametrize("rings", [1, 2, 4])
def test_a_lone_ring_pays_the_lag_of_each_round(rings: int) -> None:
    steps = (1, 3, 5, 7)[:rings]
    fabric = circulant(16, steps, RATE, LATENCY, transport=PACKETS)
    graph = TaskGraph.from_lists(16, [(A, 0, -1, 30e6, 0.0)], [], (tuple(range(16)),))
    message = ceil(30e6 / (16 * rings) / P) * P
    expected = 30 * (message / RATE + 2 * LATENCY)
    assert score(fabric, graph) == pytest.approx(expected, rel=1e-12)


def test_a_ring_that_shares_its_links_hides_the_lag() -> None:
    """Two AllReduces: each at half the links' rate unless a round's lag allows less."""
    group = (tuple(range(16)),)
    fabric = circulant(16, (1,), RATE, LATENCY, transport=PACKETS)
    for size in (1e5, 30e6, 1e9):
        message = ceil(size / 16 / P) * P
        alone = message / (message / RATE + 2 * LATENCY)
        tasks = TaskGraph.from_lists(16, [(A, 0, -1, size, 0.0)] * 2, [], group)
        expected = 30 * message / min(alone, RATE / 2)
        assert score(fabric, tasks) == pytest.approx(expected, rel=1e-9)
    # What a capped ring leaves is for the others.
    tasks = TaskGraph.from_lists(16, [(A, 0, -1, 1e5, 0.0), (T, 0, 1, 1e9, 0.0)], [], group)
    message = ceil(1e5 / 16 / P) * P
    run = run_fluid(fabric, tasks)
    ring_rate = min(message / (message / RATE + 2 * LATENCY), RATE / 2)
    ring_ends = 30 * message / ring_rate
    sent = ceil(1e9 / P) * P
    other = ring_ends + (sent - (RATE - ring_rate) * ring_ends) / RATE + 2 * LATENCY
    np.testing.assert_allclose(run.finish, [ring_ends, other], rtol=1e-9)


# --- artefacts ------------------------------------------------------------------------------


def test_sizes_wrap_at_four_gibibytes() -> None:
    fabric = star(2, RATE, LATENCY, HTSIM)
    tasks = TaskGraph.from_lists(
        2, [(T, 0, 1, 2.0**32 + 5000.0, 0.0), (C, 0, -1, 5e9, 0.0), (A, 0, -1, 2.0**33, 0.0)], [],
        ((0, 1),),
    )  # fmt: skip
    assert routed_tasks(fabric, tasks).tasks.size.tolist() == [5000.0, 5e9, 0.0]
    assert routed_tasks(replace(fabric, transport=PACKETS), tasks).tasks is tasks
    assert simulate(fabric, tasks).finish[0] < 1e-5


def test_rings_without_switches_begin_at_places() -> None:
    """Members 1, 3, 5, 7 on the ring +2: from servers 0..3, still by +2."""
    group = (1, 3, 5, 7)
    direct = circulant(8, (1, 3), RATE, LATENCY, transport=HTSIM)
    direct = replace(direct, rings={**direct.rings, group: (group,)})
    pairs = [0 * 8 + 2, 1 * 8 + 3, 2 * 8 + 4, 3 * 8 + 5]
    assert direct.ring_edges(group).tolist() == [pairs]
    whole = tuple(range(8))
    assert direct.ring_edges(whole).tolist()[0] == [i * 8 + (i + 1) % 8 for i in range(8)]
    true = [1 * 8 + 3, 3 * 8 + 5, 5 * 8 + 7, 7 * 8 + 1]
    assert replace(direct, transport=PACKETS).ring_edges(group).tolist() == [true]
    switched = star(8, RATE, LATENCY, HTSIM)
    assert switched.ring_edges(group).tolist() == [true]


@pytest.mark.parametrize("model", ["fluid", "packet"])
def test_an_allreduce_over_one_server_takes_no_time_in_htsim(model: str) -> None:
    tasks = TaskGraph.from_lists(
        3, [(A, 0, -1, 1e6, 0.25), (A, 1, -1, 1e6, 0.125)], [], ((1,), (0, 1, 2))
    )
    whole = simulate(star(3, RATE, LATENCY, PACKETS), tasks, model=model).finish
    htsim = simulate(star(3, RATE, LATENCY, HTSIM), tasks, model=model).finish
    assert whole[0] == 0.25
    assert htsim[0] == 0.0
    assert min(whole[1], htsim[1]) > 0.125


@pytest.mark.parametrize("model", ["fluid", "packet"])
@pytest.mark.parametrize("size", [5e4, 2e5, 1e6])
def test_a_lone_allreduce_with_artefacts(size: float, model: str) -> None:
    """Short, stopped after a round, and whole; a new connection each round."""
    members = 16
    fabric = Fabric("switch", *ideal_switch(members, RATE, LATENCY), transport=HTSIM)
    tasks = TaskGraph.from_lists(members, [(A, 0, -1, size, 0.0)], [], (tuple(range(members)),))
    count, message = rounds(HTSIM, size, members, 1)
    assert count == {5e4: 1, 2e5: 1, 1e6: 30}[size]
    expected = count * ((wire(HTSIM, message) + P) / RATE + 4 * LATENCY)
    assert score(fabric, tasks, model=model) == pytest.approx(expected, rel=1e-9)


def test_htsim_runs_tasks_in_the_order_in_which_it_finds_them_ready() -> None:
    """Tasks 1 and 2 wait for task 3, which comes before task 0 in time."""
    jobs = [(C, 1, -1, 1.0, 0.0), (C, 0, -1, 1.0, 0.0), (C, 0, -1, 2.0, 0.0),
            (C, 2, -1, 1.0, 0.0), (C, 3, -1, 1.0, 0.0)]  # fmt: skip
    # At one instant tasks 0, 3 and 4 end, in this order, and make 2 and then 1 ready.
    graph = TaskGraph.from_lists(4, jobs, [(0, 2), (3, 1)])
    default = run_fluid(star(4, transport=PACKETS), graph)
    htsim = run_fluid(star(4, transport=HTSIM), graph)
    assert (default.start[1], default.start[2]) == (1.0, 2.0)
    assert (htsim.start[1], htsim.start[2]) == (3.0, 1.0)


# --- fat-trees ------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [16, 24])
def test_fat_tree_traffic_spreads_evenly(hosts: int) -> None:
    """All uplinks of a switch carry the same bytes, and every byte goes all the way."""
    network, routes = fat_tree(hosts, RATE, LATENCY)
    rng = np.random.default_rng(0)
    tasks = [
        (T, *rng.choice(hosts, 2, replace=False).tolist(), float(rng.uniform(1e5, 1e6)), 0.0)
        for _ in range(40)
    ]
    tasks.append((A, 0, -1, 1e7, 0.0))
    graph = TaskGraph.from_lists(hosts, tasks, [], (tuple(range(hosts)),))
    carried = simulate(Fabric("fat-tree", network, routes), graph).link_bytes
    for switch in range(hosts, network.nodes):
        up = carried[(network.source == switch) & (network.target > switch)]
        if up.size and network.source[network.target == switch].min() < hosts:  # top of rack
            np.testing.assert_allclose(up, up.mean(), rtol=1e-9)
    sent = graph.size[:-1].sum() + 2 * (hosts - 1) * 1e7
    assert carried[network.source < hosts].sum() == pytest.approx(sent)
    assert carried[network.target < hosts].sum() == pytest.approx(sent)


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [-1.0, np.inf, np.nan])
def test_bad_packets(segment: float) -> None:
    with pytest.raises(InputError, match="segment_bytes is"):
        Transport(segment_bytes=segment)


@pytest.mark.parametrize("name", ["initial_window", "marking_backlog", "train_packets"])
def test_bad_windows(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0; give at least 1 packet"):
        Transport(**{name: 0})


def test_htsim_waits_at_barriers_but_not_for_allreduces_of_one_server():
    """Exported rounds begin with barriers, for the reduction inside each server."""
    fabric = circulant(2, (1,), RATE, LATENCY, transport=Transport(htsim=True))
    for size, seconds in ((0.0, 1e-3), (1e6, 0.0)):
        tasks = TaskGraph.from_lists(2, [(TaskKind.ALLREDUCE, 0, -1, size, 1e-3)], [], ((0,),))
        assert score(fabric, tasks, model="packet") == pytest.approx(seconds)
