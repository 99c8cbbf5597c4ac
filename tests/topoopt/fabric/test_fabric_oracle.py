"""The compiled simulator equals a plain-Python event loop on random cases."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fabric_oracle import circulant, shortest_routes, simulate_plainly
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from topoopt.fabric import (
    IDEAL,
    Fabric,
    Transport,
    compute_on_critical_path,
    critical_path,
    exposed_communication,
    link_bytes,
    score,
    simulate,
)
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.foresight_kernels import seconds_after
from topoopt.fabric.orders import task_orders

SIZES = (0.0, 1.0, 2.0, 2.5, 7.0)


TRANSPORTS = (
    IDEAL,
    Transport(segment_bytes=0.75),
    Transport(segment_bytes=0.3, handshake=False),
)


def random_fabric(rng: np.random.Generator) -> Fabric:
    """Return a strongly connected network, sometimes with a switch, and its shortest routes."""
    hosts = int(rng.integers(2, 7))
    switches = int(rng.integers(0, 2))
    nodes = hosts + switches
    order = rng.permutation(nodes)
    cables = set(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
    for _ in range(int(rng.integers(0, 2 * nodes))):
        a, b = rng.integers(nodes, size=2).tolist()
        if a != b:
            cables.add((a, b))
    source, target = zip(*sorted(cables), strict=True)
    ties = bool(rng.integers(2))
    draw = rng.integers(1, 4, len(source)) if ties else rng.uniform(0.5, 4.0, len(source))
    latency = rng.choice([0.0, 0.25, 0.1], len(source))
    network = Network.from_links(
        "random", hosts, switches, source, target, draw.astype(float), latency
    )
    members = tuple(sorted(rng.choice(hosts, int(rng.integers(2, hosts + 1)), False).tolist()))
    orders = tuple(tuple(rng.permutation(members).tolist()) for _ in range(rng.integers(1, 3)))
    routes = shortest_routes(network, int(rng.integers(1, 4)))
    rings = {members: orders} if rng.integers(2) else {}
    return Fabric("random", network, routes, rings, transport=TRANSPORTS[int(rng.integers(3))])


def random_tasks(rng: np.random.Generator, hosts: int, count: int) -> TaskGraph:
    groups = tuple(
        tuple(sorted(rng.choice(hosts, int(rng.integers(1, hosts + 1)), False).tolist()))
        for _ in range(3)
    )
    ties = bool(rng.integers(2))
    tasks = []
    for _ in range(count):
        size = float(rng.choice(SIZES)) if ties else float(rng.uniform(0.0, 5.0))
        kind = TaskKind(int(rng.integers(3)))
        if kind == TaskKind.COMPUTE:
            tasks.append((kind, int(rng.integers(hosts)), -1, size, 0.0))
        elif kind == TaskKind.TRANSFER:
            a, b = rng.choice(hosts, 2, replace=False).tolist()
            tasks.append((kind, a, b, size, 0.0))
        else:
            tasks.append((kind, int(rng.integers(3)), -1, size, float(rng.choice([0.0, 0.5]))))
    density = rng.uniform(0.0, 0.3)
    order = rng.permutation(count)
    edges = [
        (int(order[i]), int(order[j]))
        for j in range(count)
        for i in range(j)
        if rng.random() < density
    ]
    return TaskGraph.from_lists(hosts, tasks, edges, groups)


def case(seed: int) -> tuple[Fabric, TaskGraph]:
    rng = np.random.default_rng(seed)
    fabric = random_fabric(rng)
    return fabric, random_tasks(rng, fabric.network.hosts, int(rng.integers(1, 30)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_equals_the_oracle(seed: int) -> None:
    fabric, tasks = case(seed)
    timeline = simulate(fabric, tasks)
    expected = simulate_plainly(fabric, tasks)
    np.testing.assert_allclose(timeline.start, expected.start, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(timeline.finish, expected.finish, rtol=1e-9, atol=1e-12)
    assert timeline.binding.tolist() == expected.binding
    # Bytes that crossed each link, integrated over the rates, are the bytes that had to.
    carried = timeline.link_bytes
    if fabric.transport.segment_bytes:
        carried = np.array(expected.must_carry)
    np.testing.assert_allclose(carried, expected.link_bytes, rtol=1e-9, atol=1e-9)
    assert np.all(timeline.link_bytes <= np.array(expected.link_bytes) * (1 + 1e-9) + 1e-9)
    assert expected.most_used <= 1 + 1e-9
    assert score(fabric, tasks) == timeline.makespan == timeline.finish.max()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_incremental_rates_equal_full_ones(seed: int) -> None:
    fabric, tasks = case(seed)
    quick, thorough = run_fluid(fabric, tasks), run_fluid(fabric, tasks, resolve_all=True)
    np.testing.assert_allclose(quick.finish, thorough.finish, rtol=1e-9, atol=1e-12)
    assert quick.resolved <= thorough.resolved


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.3, 1.2),
    st.sampled_from([0.0, 0.03, 0.2]),
    st.booleans(),
)
@example(seed=14443, share=1.0, tolerance=0.2, collapsed=False)  # ends sooner than links allow
@example(seed=1078, share=1.0, tolerance=0.03, collapsed=False)
def test_a_limit_is_foreseen_where_it_is_passed_and_nowhere_else(
    seed: int, share: float, tolerance: float, collapsed: bool
) -> None:
    fabric, tasks = case(seed)
    whole = run_fluid(fabric, tasks, tolerance, collapsed=collapsed)
    makespan = whole.makespan
    assert tolerance or makespan == whole.finish.max()
    for limit in (share * makespan, makespan):
        seen = run_fluid(fabric, tasks, tolerance, limit=limit, foresee=True, collapsed=collapsed)
        blind = run_fluid(fabric, tasks, tolerance, limit=limit, collapsed=collapsed)
        assert np.isinf(seen.finish.max()) == (makespan > limit * (1 + 1e-9))
        assert np.isinf(blind.finish.max()) == np.isinf(seen.finish.max())
        assert seen.instants <= blind.instants and seen.resolved <= blind.resolved
        if np.isfinite(seen.finish.max()):
            assert seen.finish.tolist() == blind.finish.tolist() == whole.finish.tolist()
            assert seen.makespan == pytest.approx(makespan, rel=1e-12)


def test_an_idle_link_betrays_that_a_limit_will_be_passed() -> None:
    tasks = TaskGraph.from_lists(
        2, [(TaskKind.COMPUTE, 0, -1, 5.0, 0.0), (TaskKind.TRANSFER, 0, 1, 6.0, 0.0)], [(0, 1)]
    )
    fabric = replace(circulant(2, (1,)), transport=IDEAL)
    assert run_fluid(fabric, tasks).finish.tolist() == [5.0, 11.0]
    assert run_fluid(fabric, tasks, limit=10.5).finish.tolist() == [5.0, np.inf]
    # Nothing moves for five seconds, and the link needs six of what is left.
    assert run_fluid(fabric, tasks, limit=10.5, foresee=True).finish.tolist() == [np.inf] * 2
    assert run_fluid(fabric, tasks, limit=11.0, foresee=True).finish.tolist() == [5.0, 11.0]


def test_an_idle_device_betrays_that_a_limit_will_be_passed() -> None:
    # Server 1 waits for 4 s and computes for 2 + 3 s; each result is on its way for 1 s.
    tasks = TaskGraph.from_lists(
        3,
        [
            (TaskKind.COMPUTE, 0, -1, 4.0, 0.0),
            (TaskKind.COMPUTE, 1, -1, 2.0, 0.0),
            (TaskKind.COMPUTE, 1, -1, 3.0, 0.0),
            (TaskKind.TRANSFER, 1, 2, 1.0, 0.0),
            (TaskKind.TRANSFER, 1, 2, 1.0, 0.0),
        ],
        [(0, 1), (0, 2), (1, 3), (2, 4)],
    )
    fabric = replace(circulant(3, (1,)), transport=IDEAL)
    ends = [4.0, 6.0, 9.0, 7.0, 10.0]
    assert run_fluid(fabric, tasks).finish.tolist() == ends
    early = run_fluid(fabric, tasks, limit=9.5, foresee=True)
    assert early.finish.tolist() == [4.0, *[np.inf] * 4]
    assert early.instants < run_fluid(fabric, tasks, limit=9.5).instants
    assert run_fluid(fabric, tasks, limit=10.0, foresee=True).finish.tolist() == ends


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_must_follow_a_task_does(seed: int) -> None:
    fabric, tasks = case(seed)
    run = run_fluid(fabric, tasks, collapsed=False)
    after = seconds_after(task_orders(fabric, tasks))
    assert (run.finish + after <= run.finish.max() * (1 + 1e-9)).all()
    # Each task's own successor, if there is one, is among what follows it.
    ends = tasks.successor_offsets
    follows = np.diff(ends) > 0
    took = run.finish - run.start
    assert (after[~follows] == 0.0).all()
    for task in np.flatnonzero(follows):
        rest = tasks.successors[ends[task] : ends[task + 1]]
        assert after[task] >= after[rest].max()
        assert after[task] <= (took[rest] + after[rest]).max() * (1 + 1e-9) + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.03, 0.2]))
def test_a_tolerance_outruns_no_link(seed: int, tolerance: float) -> None:
    fabric, tasks = case(seed)
    busy = link_bytes(fabric, tasks) / fabric.network.capacity
    assert run_fluid(fabric, tasks, tolerance).makespan >= busy.max() * (1 - 1e-8)


def test_a_link_that_flows_leave_early_is_busy_for_all_their_bytes() -> None:
    # On the way to server 1 two flows have half a byte/s each. Another ends at 10 s, and of these
    # two the first, with a second to go, leaves with it: rates change at 10.5 s, after which more
    # than a byte/s passes. The link has 12.5 bytes to carry all the same.
    tasks = TaskGraph.from_lists(
        5,
        [
            (TaskKind.TRANSFER, 0, 1, 5.5, 0.0),
            (TaskKind.TRANSFER, 0, 2, 7.0, 0.0),
            (TaskKind.TRANSFER, 3, 4, 10.0, 0.0),
        ],
        [],
    )
    fabric = replace(circulant(5, (1,)), transport=IDEAL)
    run = run_fluid(fabric, tasks, 0.2)
    assert run.finish.tolist() == [11.0, 12.25, 10.0]
    assert run.makespan == pytest.approx(12.5)
    assert simulate(fabric, tasks, completion_tolerance=0.2).makespan == run.makespan
    assert score(fabric, tasks) == 12.5
    for foresee in (False, True):
        passed = run_fluid(fabric, tasks, 0.2, limit=12.4, foresee=foresee)
        assert np.isinf(passed.makespan)
        kept = run_fluid(fabric, tasks, 0.2, limit=run.makespan, foresee=foresee)
        assert kept.finish.tolist() == run.finish.tolist()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_critical_path_has_no_holes(seed: int) -> None:
    fabric, tasks = case(seed)
    timeline = simulate(fabric, tasks)
    path = critical_path(tasks, timeline)
    assert timeline.start[path[0]] == 0.0
    assert timeline.finish[path[-1]] == timeline.makespan
    for before, after in pairwise(path):
        assert timeline.finish[before] == timeline.start[after]
    compute = compute_on_critical_path(tasks, timeline)
    assert compute <= timeline.makespan * (1 + 1e-12)
    exposed = exposed_communication(tasks, timeline)
    assert compute + exposed == pytest.approx(timeline.makespan)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_relabelled_servers_take_the_same_time(seed: int) -> None:
    """Servers renamed everywhere, rings given: the same times."""
    rng = np.random.default_rng(seed)
    fabric, tasks = case(seed)
    network = fabric.network
    name = np.concatenate((rng.permutation(network.hosts), np.arange(network.hosts, network.nodes)))
    renamed = Network.from_links(
        "renamed",
        network.hosts,
        network.switches,
        name[network.source],
        name[network.target],
        network.capacity,
        network.latency,
    )
    link_of = np.array(
        [
            renamed.link(int(name[a]), int(name[b]))
            for a, b in zip(network.source, network.target, strict=True)
        ]
    )
    routes = fabric.routes
    pairs = np.empty(network.hosts**2, dtype=np.int64)
    old = np.arange(network.hosts**2)
    pairs[name[old // network.hosts] * network.hosts + name[old % network.hosts]] = old
    counts = np.diff(routes.offsets)[pairs]
    entries = np.concatenate([np.arange(*routes.offsets[p : p + 2]) for p in pairs])
    moved = type(routes)(
        hosts=network.hosts,
        offsets=np.concatenate(([0], np.cumsum(counts))),
        links=link_of[routes.links[entries]],
        weights=routes.weights[entries],
        latency=routes.latency[pairs],
        hops=routes.hops[pairs],
    )
    groups = {g: fabric.rings_of(g) for g in tasks.groups if len(g) > 1}

    def rename(members: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(name[list(members)].tolist())

    rings = {
        tuple(sorted(rename(g))): tuple(rename(order) for order in orders)
        for g, orders in groups.items()
    }
    reduces = tasks.kind == TaskKind.ALLREDUCE
    twin = TaskGraph(
        servers=tasks.servers,
        devices=tasks.devices,
        kind=tasks.kind,
        first=np.where(reduces, tasks.first, name[np.where(reduces, 0, tasks.first)]),
        second=np.where(tasks.second < 0, -1, name[tasks.second]),
        size=tasks.size,
        delay=tasks.delay,
        operator=tasks.operator,
        phase=tasks.phase,
        part=tasks.part,
        successor_offsets=tasks.successor_offsets,
        successors=tasks.successors,
        predecessors=tasks.predecessors,
        groups=tuple(tuple(sorted(rename(g))) for g in tasks.groups),
        server_of_device=tasks.server_of_device,
    )
    before = simulate(fabric, tasks)
    renamed_fabric = Fabric("renamed", renamed, moved, rings, transport=fabric.transport)
    after = simulate(renamed_fabric, twin)
    np.testing.assert_allclose(before.finish, after.finish, rtol=1e-9, atol=1e-12)


def test_runs_are_bit_identical() -> None:
    for seed in range(20):
        fabric, tasks = case(seed)
        one, two = simulate(fabric, tasks), simulate(fabric, tasks)
        assert one.finish.tobytes() == two.finish.tobytes()
        assert one.binding.tobytes() == two.binding.tobytes()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_tolerance_stays_within_itself_on_independent_flows(seed: int) -> None:
    """Flows that all begin at once end within the tolerance of their exact ends."""
    rng = np.random.default_rng(seed)
    fabric = random_fabric(rng)
    hosts = fabric.network.hosts
    tasks = TaskGraph.from_lists(
        hosts,
        [
            (TaskKind.TRANSFER, *rng.choice(hosts, 2, replace=False).tolist(), size, 0.0)
            for size in rng.uniform(1.0, 5.0, 12).tolist()
        ],
        [],
    )
    exact = simulate(fabric, tasks)
    near = simulate(fabric, tasks, completion_tolerance=0.02)
    assert near.makespan == pytest.approx(exact.makespan, rel=0.03)
    np.testing.assert_array_equal(near.link_bytes, exact.link_bytes)


@pytest.mark.parametrize("paths", [1, 3])
def test_incremental_rates_stay_exact_over_many_changes(paths: int) -> None:
    """All-to-all with random sizes and starts: hundreds of streams, a thousand re-solves."""
    rng = np.random.default_rng(7)
    fabric = circulant(24, (1, 5, 7), latency=0.001, paths=paths)
    pairs = [(a, b) for a in range(24) for b in range(24) if a != b] * 2
    tasks = [(TaskKind.COMPUTE, v, -1, float(rng.uniform(0.0, 5.0)), 0.0) for v in range(24)]
    tasks += [(TaskKind.TRANSFER, a, b, float(rng.uniform(0.5, 1.5)), 0.0) for a, b in pairs]
    tasks += [(TaskKind.ALLREDUCE, 0, -1, 30.0, 0.0)] * 2
    edges = [(a, 24 + i) for i, (a, _) in enumerate(pairs)]
    graph = TaskGraph.from_lists(24, tasks, edges, (tuple(range(24)),))
    quick, thorough = run_fluid(fabric, graph), run_fluid(fabric, graph, resolve_all=True)
    assert quick.solves > 1000
    assert quick.resolved < thorough.resolved
    np.testing.assert_allclose(quick.finish, thorough.finish, rtol=1e-10)
    near = run_fluid(fabric, graph, 0.01)
    assert near.solves < quick.solves / 2
    assert near.finish.max() == pytest.approx(quick.finish.max(), rel=0.01)
