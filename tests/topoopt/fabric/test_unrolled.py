"""Collectives written out as messages: nothing is lost, and packet trains take as long for them."""

from dataclasses import replace

import numpy as np
import pytest
from fabric_oracle import circulant, shortest_routes
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind, edges_of, traffic_of
from routing.network import Network
from topoopt.fabric import Fabric, Transport
from topoopt.fabric.packets import run_packets
from topoopt.fabric.unrolled import unrolled

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
COLLECTIVES = (A, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER)
ROUNDS = Transport(reconnect=True)


def random_job(seed: int) -> tuple[Fabric, TaskGraph]:
    """Return one path a pair over links of different rates, and tasks with collectives."""
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(2, 7))
    cables = {(i, (i + 1) % hosts) for i in range(hosts)}
    cables |= {tuple(rng.choice(hosts, 2, replace=False).tolist()) for _ in range(hosts)}
    source, target = zip(*sorted(cables), strict=True)
    rate = rng.uniform(5e9, 2e10, len(source))
    network = Network.from_links("n", hosts, 0, source, target, rate, 1e-6)
    groups = tuple(
        dict.fromkeys(
            tuple(sorted(rng.choice(hosts, int(rng.integers(1, hosts + 1)), False).tolist()))
            for _ in range(3)
        )
    )
    rings = {
        g: tuple(tuple(rng.permutation(g).tolist()) for _ in range(int(rng.integers(1, 4))))
        for g in groups
        if len(g) > 1
    }
    tasks = []
    for _ in range(int(rng.integers(2, 14))):
        size = float(rng.uniform(0.0, 1e7))
        kind = rng.choice(3)
        if kind == 0:
            tasks.append((C, int(rng.integers(hosts)), -1, size * 1e-10, 0.0))
        elif kind == 1:
            a, b = rng.choice(hosts, 2, replace=False).tolist()
            tasks.append((T, a, b, size, 0.0))
        else:
            group = int(rng.integers(len(groups)))
            delay = float(rng.choice([0.0, 1e-4]))
            tasks.append((COLLECTIVES[rng.integers(3)], group, -1, size, delay))
    edges = [(i, j) for j in range(len(tasks)) for i in range(j) if rng.random() < 0.2]
    graph = TaskGraph.from_lists(hosts, tasks, edges, groups)
    return Fabric("n", network, shortest_routes(network), rings, None, ROUNDS), graph


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_an_iteration_takes_as_long_as_before(seed: int) -> None:
    """In packet trains whose rounds reconnect: whole graphs, with what waits for collectives."""
    fabric, graph = random_job(seed)
    whole = unrolled(graph, fabric.rings)
    before, after = run_packets(fabric, graph), run_packets(fabric, whole)
    # Messages that begin at one time may queue in another order.
    assert after.finish.max() == pytest.approx(before.finish.max(), rel=0.05, abs=2e-5)
    assert np.isfinite(after.finish).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bytes_and_dependencies_are_kept(seed: int) -> None:
    fabric, graph = random_job(seed)
    whole = unrolled(graph, fabric.rings)
    sent = traffic_of(graph)
    assert traffic_of(whole).transfer_sent() == pytest.approx(
        sent.allreduce_sent() + sent.transfer_sent(), rel=1e-9
    )
    assert not traffic_of(whole).groups
    old = slice(0, graph.tasks)
    computes = graph.kind == C
    assert np.array_equal(whole.kind[old][computes], graph.kind[computes])
    assert np.array_equal(whole.delay[old], graph.delay)
    # Who waited for a task, at any remove, still does.
    reach = reachable(whole)[old, old]
    assert np.array_equal(reach & ~np.eye(graph.tasks, dtype=bool), reachable(graph))


def reachable(graph: TaskGraph) -> np.ndarray:
    """Return which task comes before which, as a matrix."""
    found = np.zeros((graph.tasks, graph.tasks), dtype=bool)
    found[edges_of(graph)] = True
    while True:
        further = found | (found.astype(np.float32) @ found.astype(np.float32) > 0)
        if np.array_equal(further, found):
            return found
        found = further


@pytest.mark.parametrize(("kind", "rounds"), [(A, 14), (COLLECTIVES[1], 7), (COLLECTIVES[2], 7)])
def test_a_collective_alone_on_a_ring(kind: TaskKind, rounds: int) -> None:
    """Rounds of g messages of S / g, one after the other, and a follower after them."""
    fabric = circulant(8, (1,), 12.5e9, 1e-6, transport=ROUNDS)
    tasks = [(kind, 0, -1, 8e6, 3e-6), (C, 2, -1, 1e-3, 0.0)]
    graph = TaskGraph.from_lists(8, tasks, [(0, 1)], (tuple(range(8)),))
    whole = unrolled(graph, {graph.groups[0]: (graph.groups[0],)})
    moves = whole.kind == T
    assert moves.sum() == 8 * rounds and set(whole.size[moves].tolist()) == {1e6}
    assert run_packets(fabric, whole).finish.max() == pytest.approx(
        run_packets(fabric, graph).finish.max(), rel=1e-9
    )


def test_priorities_are_inherited_and_missing_rings_named() -> None:
    graph = TaskGraph.from_lists(3, [(A, 0, -1, 3e6, 0.0)], [], ((0, 1, 2),))
    ranked = replace(graph, priority=np.array([7]))
    assert set(unrolled(ranked, {(0, 1, 2): ((0, 2, 1),)}).priority.tolist()) == {7}
    with pytest.raises(InputError, match=r"group \(0, 1, 2\) of a collective has no rings"):
        unrolled(graph, {})
