"""The packet-train model: equal to a plain-Python simulation, and to closed forms."""

from itertools import pairwise

import numpy as np
import pytest
from fabric_oracle import circulant, routes_along, shortest_routes, star
from hypothesis import given, settings
from hypothesis import strategies as st
from train_oracle import TrainsPlayed, drawn_path, hashed, play_trains

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.merging import merge_equivalent_links
from routing.network import Network
from topoopt.fabric import PACKETS, Fabric, Transport, score, simulate
from topoopt.fabric.trains import run_trains
from topoopt.topology.fabrics import fat_tree, ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
GBPS = 1e9 / 8
P = PACKETS.segment_bytes


def played(fabric: Fabric, tasks: list, edges: list = (), groups: tuple = (), seed: int = 0):
    """Play tasks by the kernel and by the oracle, which must agree, and return the oracle's."""
    graph = TaskGraph.from_lists(fabric.network.hosts, tasks, list(edges), groups)
    return compared(fabric, graph, seed)


def compared(fabric: Fabric, graph: TaskGraph, seed: int = 0) -> TrainsPlayed:
    found, expected = run_trains(fabric, graph, seed=seed), play_trains(fabric, graph, seed)
    np.testing.assert_allclose(found.start, expected.start, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.finish, expected.finish, rtol=1e-9, atol=1e-15)
    assert found.binding.tolist() == expected.binding
    check_links(fabric, expected)
    return expected


def check_links(fabric: Fabric, found: TrainsPlayed) -> None:
    """No link serves two trains at once, and each serves the bytes of all that crosses it."""
    must = np.zeros(fabric.network.links)
    for message in found.messages:
        for link in message.path:
            must[link] += message.packets * fabric.transport.segment_bytes * message.rounds
    for link, services in enumerate(found.served):
        for (_, end, _), (start, _, _) in pairwise(services):
            assert start >= end
        served = sum(size for _, _, size in services)
        busy = sum(end - start for start, end, _ in services)
        np.testing.assert_allclose(busy * fabric.network.capacity[link], served, rtol=1e-9)
        if not fabric.transport.htsim:  # which draws a new path each round
            np.testing.assert_allclose(served, must[link], rtol=1e-9)


# --- a lone message -------------------------------------------------------------------------


@pytest.mark.parametrize("train", [1, 4, 32])
@pytest.mark.parametrize("hops", [1, 2, 6])
@pytest.mark.parametrize(("gbps", "latency"), [(100, 1e-6), (400, 1e-6), (100, 2e-5)])
def test_a_lone_transfer(gbps: int, latency: float, hops: int, train: int) -> None:
    """2 h d + W / b + (h - 1) P / b, also where acknowledgements are slow to come back."""
    rate = gbps * GBPS
    fabric = circulant(8, (1,), rate, latency, transport=Transport(train=train))
    for packets in (1, 2, 3, 33, 64, 65, 97, 99, 100):
        tasks = TaskGraph.from_lists(8, [(T, 0, hops, packets * P - 7.0, 0.0)], [])
        expected = 2 * hops * latency + (packets + hops - 1) * P / rate
        assert score(fabric, tasks, model="train") == pytest.approx(expected, rel=1e-9)


# --- the plain-Python simulation ------------------------------------------------------------


def random_case(seed: int) -> tuple[Fabric, TaskGraph]:
    """Return a small network and job: equal links in a third of the cases, and any transport."""
    rng = np.random.default_rng(seed)
    hosts, switches = int(rng.integers(2, 7)), int(rng.integers(0, 3))
    nodes = hosts + switches
    order = rng.permutation(nodes).tolist()
    cables = set(zip(order, order[1:] + order[:1], strict=True))
    for _ in range(int(rng.integers(0, 2 * nodes))):
        a, b = rng.choice(nodes, 2, replace=False).tolist()
        cables.add((a, b))
    source, target = zip(*sorted(cables), strict=True)
    equal = rng.random() < 1 / 3
    rate = np.full(len(source), 12.5) if equal else rng.uniform(5.0, 50.0, len(source))
    latency = np.full(len(source), 1.0) if equal else rng.uniform(0.0, 5.0, len(source))
    network = Network.from_links("random", hosts, switches, source, target, rate, latency)
    routes = shortest_routes(network, int(rng.integers(1, 4)))
    transport = Transport(
        segment_bytes=9.0,
        handshake=bool(rng.integers(4)),
        initial_window=int(rng.choice([1, 2, 10, 100])),
        marking_backlog=int(rng.choice([1, 5, 50])),
        train=int(rng.choice([1, 2, 5, 32])),
        htsim=rng.random() < 0.25,
    )
    groups = tuple(
        tuple(sorted(rng.choice(hosts, int(rng.integers(1, hosts + 1)), False).tolist()))
        for _ in range(3)
    )
    rings = {
        g: tuple(tuple(rng.permutation(g).tolist()) for _ in range(int(rng.integers(1, 3))))
        for g in groups
        if len(g) > 1 and rng.integers(2)
    }
    ring_routes = shortest_routes(network) if rng.random() < 0.3 else None
    fabric = Fabric("random", network, routes, rings, ring_routes, transport)
    large = 20000.0 if transport.htsim and rng.integers(2) else 1000.0
    tasks = []
    for _ in range(int(rng.integers(1, 25))):
        kind = TaskKind(int(rng.integers(3)))
        size = 0.0 if rng.random() < 0.1 else float(rng.uniform(0.0, large))
        if kind == C:
            seconds = float(rng.choice([0.0, 1.0, 2.0])) if equal else size / 10
            tasks.append((C, int(rng.integers(hosts)), -1, seconds, 0.0))
        elif kind == T:
            a, b = rng.choice(hosts, 2, replace=False).tolist()
            tasks.append((T, a, b, size, 0.0))
        else:
            delay = float(rng.choice([0.0, 3.0]))
            tasks.append((A, int(rng.integers(3)), -1, size, delay))
    count, density = len(tasks), rng.uniform(0.0, 0.3)
    rank = rng.permutation(count).tolist()
    edges = [
        (rank[i], rank[j]) for j in range(count) for i in range(j) if rng.random() < density
    ]
    return fabric, TaskGraph.from_lists(hosts, tasks, edges, groups)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_equals_the_plain_simulation(case: int, seed: int) -> None:
    fabric, graph = random_case(case)
    found = compared(fabric, graph, seed)
    longest = max(found.finish)
    assert score(fabric, graph, model="train", seed=seed) == pytest.approx(longest, rel=1e-9)
