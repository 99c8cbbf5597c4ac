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
