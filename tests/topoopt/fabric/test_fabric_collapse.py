"""Collapsing symmetric flows, links and devices changes nothing, and finds what is symmetric."""

from dataclasses import replace

import numpy as np
import pytest
from fabric_oracle import circulant, shortest_routes, star
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskGraph, TaskKind, edges_of
from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric import IDEAL, PACKETS, Fabric, Transport, fluid
from topoopt.fabric import collapse as collapse_module
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.collapse import Quotient, collapse
from topoopt.fabric.fluid import Run, run_fluid
from topoopt.fabric.orders import task_orders
from topoopt.topology.fabrics import fat_tree, ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
Task = tuple[TaskKind, int, int, float, float]


def graph_of(
    hosts: int, tasks: list[Task], edges: list[tuple[int, int]] | None = None
) -> TaskGraph:
    return TaskGraph.from_lists(hosts, tasks, edges or [], (tuple(range(hosts)),))


def all_to_all(hosts: int, size: float = 3e6) -> list[Task]:
    return [(T, a, b, size, 0.0) for a in range(hosts) for b in range(hosts) if a != b]


def check_same(fabric: Fabric, graph: TaskGraph) -> Quotient | None:
    """Simulate with and without collapsing; return the partition, which must be equitable."""
    whole = run_fluid(fabric, graph, collapsed=False)
    quick = run_fluid(fabric, graph, collapsed=True)
    np.testing.assert_allclose(quick.finish, whole.finish, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(quick.start, whole.start, rtol=1e-9, atol=1e-15)
    check_bindings(graph, quick)
    np.testing.assert_array_equal(quick.binding < 0, whole.binding < 0)
    orders = task_orders(fabric, graph)
    quotient = collapse(orders)
    if quotient is not None:
        check_equitable(fabric, graph, orders, quotient)
    return quotient


def check_bindings(graph: TaskGraph, run: Run) -> None:
    """A binding task ends when the bound one starts, and is waited for or ran on its device."""
    offsets, successors = graph.successor_offsets, graph.successors
    for task, before in enumerate(run.binding.tolist()):
        if before < 0:
            assert run.start[task] == 0.0
            continue
        assert run.finish[before] == pytest.approx(run.start[task], rel=1e-9)
        waited_for = task in successors[offsets[before] : offsets[before + 1]]
        computing = graph.kind[task] == graph.kind[before] == C
        assert waited_for or (computing and graph.first[task] == graph.first[before])


def check_equitable(fabric: Fabric, graph: TaskGraph, orders: Orders, quotient: Quotient) -> None:
    """Refine links and devices by the classes of tasks: no class of tasks may be split by it."""
    of = quotient.class_of_task.tolist()
    n = len(of)
    network = [t for t in range(n) if not orders.compute[t]]
    row = {
        t: [(int(orders.links[e]), round(float(orders.weights[e]), 9))
            for e in range(orders.begin[t], orders.end[t])]
        for t in network
    }  # fmt: skip
    load: dict[int, list[tuple[int, float]]] = {}
    for t in network:
        for link, weight in row[t]:
            load.setdefault(link, []).append((of[t], weight))
    link_seen = {
        link: (round(float(orders.capacity[link])), tuple(sorted(load.get(link, []))))
        for link in range(orders.capacity.size)
    }
    queue: dict[int, list[int]] = {}
    for t in range(n):
        if orders.compute[t]:
            queue.setdefault(int(orders.resource[t]), []).append(of[t])
    before: dict[int, list[int]] = {t: [] for t in range(n)}
    after: dict[int, list[int]] = {t: [] for t in range(n)}
    for t in range(n):
        for other in graph.successors[graph.successor_offsets[t] : graph.successor_offsets[t + 1]]:
            after[t].append(of[other])
            before[int(other)].append(of[t])
    seen: dict[int, object] = {}
    for t in range(n):
        alike = (
            bool(orders.compute[t]),
            *(f"{float(x[t]):.9g}" for x in (orders.volume, orders.delay, orders.lag, orders.cap)),
            tuple(sorted(before[t])),
            tuple(sorted(after[t])),
            tuple(sorted((link_seen[link], weight) for link, weight in row.get(t, []))),
            tuple(queue[int(orders.resource[t])]) if orders.compute[t] else (),
        )
        assert seen.setdefault(of[t], alike) == alike
    for classes in queue.values():
        assert len(set(classes)) == len(classes)


def classes(quotient: Quotient | None) -> int:
    assert quotient is not None
    return int(quotient.class_of_task.max()) + 1


# --- symmetric fabrics ----------------------------------------------------------------------


@pytest.mark.parametrize("transport", [IDEAL, PACKETS])
@pytest.mark.parametrize(("hosts", "steps"), [(8, (1, 3)), (16, (1, 3, 5, 7)), (24, (1, 5))])
def test_allreduce_on_circulants_is_a_handful_of_classes(
    hosts: int, steps: tuple[int, ...], transport: Transport
) -> None:
    fabric = circulant(hosts, steps, 12.5e9, 1e-6, transport=transport)
    tasks: list[Task] = [(C, v, -1, 1e-3, 0.0) for v in range(hosts)]
    tasks += [(A, 0, -1, 50e6, 1e-5), (A, 0, -1, 20e6, 1e-5)]
    edges = [(v, hosts + i) for v in range(hosts) for i in range(2)]
    tasks += [(C, v, -1, 1e-4, 0.0) for v in range(hosts)]
    edges += [(hosts, hosts + 2 + v) for v in range(hosts)]
    quotient = check_same(fabric, graph_of(hosts, tasks, edges))
    assert classes(quotient) == 4
    assert quotient is not None
    assert (quotient.orders.capacity.size, quotient.orders.devices) == (1, 1)


def torus(rows: int, columns: int) -> Fabric:
    ends = [
        (r * columns + c, (r + i) % rows * columns + (c + j) % columns)
        for r in range(rows) for c in range(columns)
        for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0))
    ]  # fmt: skip
    source, target = zip(*sorted(set(ends)), strict=True)
    network = Network.from_links("torus", rows * columns, 0, source, target, 1e9, 1e-6)
    return Fabric("torus", network, shortest_routes(network, 30))


@pytest.mark.parametrize("transport", [IDEAL, PACKETS])
@pytest.mark.parametrize(
    ("name", "most_tasks", "most_links"),
    [
        ("switch", 1, 1),
        ("mesh", 1, 1),
        ("torus", 6, 1),
        ("fat-tree", 3, 6),
        ("merged", 3, 6),
        ("circulant", 4, 3),
    ],
)
def test_all_to_all(name: str, most_tasks: int, most_links: int, transport: Transport) -> None:
    if name == "switch":
        fabric = star(12, 1e9, 1e-6)
    elif name == "mesh":
        fabric = circulant(8, tuple(range(1, 8)), 1e9, 1e-6)
    elif name == "torus":
        fabric = torus(4, 4)
    elif name == "circulant":
        fabric = circulant(9, (1, 3, 6, 8), 1e9, 1e-6, paths=9)
    else:
        network, routes = fat_tree(16, 1e9, 1e-6)
        if name == "merged":
            network, routes, _ = merge_equivalent_links(network, routes)
        fabric = Fabric(name, network, routes)
    fabric = replace(fabric, transport=transport)
    hosts = fabric.network.hosts
    graph = graph_of(hosts, all_to_all(hosts))
    quotient = check_same(fabric, graph)
    assert quotient is not None
    assert classes(quotient) <= most_tasks
    assert quotient.orders.capacity.size <= most_links


# --- random graphs --------------------------------------------------------------------------


def random_one(rng: np.random.Generator) -> tuple[Fabric, list[Task], list[tuple[int, int]]]:
    """Return a small fabric and job, with ties as often as not."""
    hosts = int(rng.integers(2, 6))
    order = rng.permutation(hosts).tolist()
    cables = set(zip(order, order[1:] + order[:1], strict=True))
    for _ in range(int(rng.integers(0, 2 * hosts))):
        a, b = rng.choice(hosts, 2, replace=False).tolist()
        cables.add((a, b))
    source, target = zip(*sorted(cables), strict=True)
    ties = bool(rng.integers(2))
    rate = rng.integers(1, 3, len(source)) if ties else rng.uniform(0.5, 4.0, len(source))
    latency = float(rng.choice([0.0, 0.25]))
    network = Network.from_links("one", hosts, 0, source, target, rate.astype(float), latency)
    routes = shortest_routes(network, int(rng.integers(1, 3)))
    transport = (IDEAL, Transport(segment_bytes=0.75))[int(rng.integers(2))]
    tasks: list[Task] = []
    for _ in range(int(rng.integers(2, 14))):
        size = float(rng.choice([0.0, 1.0, 2.0])) if ties else float(rng.uniform(0.0, 5.0))
        if rng.integers(2):
            tasks.append((C, int(rng.integers(hosts)), -1, size, 0.0))
        else:
            a, b = rng.choice(hosts, 2, replace=False).tolist()
            tasks.append((T, a, b, size, 0.0))
    rank = rng.permutation(len(tasks)).tolist()
    edges = [
        (rank[i], rank[j])
        for j in range(len(tasks)) for i in range(j) if rng.random() < 0.2
    ]  # fmt: skip
    return Fabric("one", network, routes, transport=transport), tasks, edges


def copies_of(
    fabric: Fabric, tasks: list[Task], edges: list[tuple[int, int]], copies: int
) -> tuple[Fabric, TaskGraph]:
    """Return disjoint copies side by side, tasks of all copies in turn."""
    network, routes, hosts = fabric.network, fabric.routes, fabric.network.hosts
    many = copies * hosts
    shift = np.repeat(np.arange(copies) * hosts, network.links)
    wide = Network.from_links(
        "copies", many, 0,
        np.tile(network.source, copies) + shift, np.tile(network.target, copies) + shift,
        np.tile(network.capacity, copies), np.tile(network.latency, copies),
    )  # fmt: skip
    offsets, links, weights = [0], [], []
    latency, hops = np.zeros(many * many), np.zeros(many * many)
    for pair in range(many * many):
        (i, a), (j, b) = divmod(pair // many, hosts), divmod(pair % many, hosts)
        if i == j:
            row, part = routes.row(a, b)
            links += (row + i * network.links).tolist()
            weights += part.tolist()
            latency[pair], hops[pair] = routes.latency[a * hosts + b], routes.hops[a * hosts + b]
        offsets.append(len(links))
    rows = Routes(
        many, np.array(offsets), np.array(links, dtype=np.int64), np.array(weights), latency, hops
    )
    moved = [
        (kind, first + k * hosts, second + k * hosts if kind == T else -1, size, delay)
        for kind, first, second, size, delay in tasks
        for k in range(copies)
    ]
    joined = [(a * copies + k, b * copies + k) for a, b in edges for k in range(copies)]
    copied = Fabric("copies", wide, rows, transport=fabric.transport)
    return copied, TaskGraph.from_lists(many, moved, joined)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_disjoint_copies_collapse_to_one(seed: int, copies: int) -> None:
    fabric, tasks, edges = random_one(np.random.default_rng(seed))
    wide, graph = copies_of(fabric, tasks, edges, copies)
    quotient = check_same(wide, graph)
    assert quotient is not None
    assert classes(quotient) <= len(tasks)
    assert quotient.orders.capacity.size <= fabric.network.links
    assert quotient.orders.devices <= fabric.network.hosts
    alone = run_fluid(fabric, TaskGraph.from_lists(fabric.network.hosts, tasks, edges))
    copied = run_fluid(wide, graph, collapsed=True)
    np.testing.assert_allclose(copied.finish, np.repeat(alone.finish, copies), rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_copies_that_number_their_tasks_differently(seed: int) -> None:
    """Ties on devices may then go another way in each copy."""
    rng = np.random.default_rng(seed)
    fabric, tasks, edges = random_one(rng)
    wide, graph = copies_of(fabric, tasks, edges, 3)
    name = rng.permutation(graph.tasks)
    old = np.argsort(name)
    ends, _ = edges_of(graph)
    columns = (graph.kind, graph.first, graph.second, graph.size, graph.delay)
    renamed = TaskGraph.from_lists(
        graph.servers,
        [(TaskKind(row[0]), *row[1:]) for row in zip(*(c[old].tolist() for c in columns),
                                                     strict=True)],
        list(zip(name[ends].tolist(), name[graph.successors].tolist(), strict=True)),
    )  # fmt: skip
    check_same(wide, renamed)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_asymmetric_cases_stay_as_they_are(seed: int) -> None:
    fabric, tasks, edges = random_one(np.random.default_rng(seed))
    check_same(fabric, TaskGraph.from_lists(fabric.network.hosts, tasks, edges))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_one_difference_among_copies_is_seen(seed: int) -> None:
    """One link's capacity, one task's size or one dependency fewer: times as without collapsing."""
    rng = np.random.default_rng(seed)
    fabric, tasks, edges = random_one(rng)
    wide, graph = copies_of(fabric, tasks, edges, 5)
    what = rng.integers(3)
    if what == 0:
        capacity = wide.network.capacity.copy()
        capacity[rng.integers(capacity.size)] *= 0.75
        wide = replace(wide, network=replace(wide.network, capacity=capacity))
    elif what == 1:
        size = graph.size.copy()
        size[rng.integers(size.size)] += 0.5
        graph = replace(graph, size=size)
    elif graph.successors.size:
        kept = np.delete(np.arange(graph.successors.size), rng.integers(graph.successors.size))
        before, after = (ends[kept] for ends in edges_of(graph))
        graph = replace(
            graph,
            successors=after,
            successor_offsets=np.searchsorted(before, np.arange(graph.tasks + 1)),
            predecessors=np.bincount(after, minlength=graph.tasks),
        )
    check_same(wide, graph)


def test_a_slower_link_among_equal_ones() -> None:
    fabric = star(12, 1e9, 1e-6)
    graph = graph_of(12, all_to_all(12))
    assert classes(check_same(fabric, graph)) == 1
    capacity = fabric.network.capacity.copy()
    capacity[3] *= 0.5
    slower = replace(fabric, network=replace(fabric.network, capacity=capacity))
    assert classes(check_same(slower, graph)) == 3  # from it, to it, and between the others
    size = graph.size.copy()
    size[7] *= 2
    larger = check_same(fabric, replace(graph, size=size))
    assert classes(larger) > 1


def test_differences_beyond_the_twelfth_digit_do_not_count() -> None:
    """Sizes that only rounding tells apart are one class; a millionth tells them apart."""
    graph = graph_of(8, all_to_all(8, 1 / 3))
    size = graph.size.copy()
    size[::2] = np.nextafter(size[::2], 1.0)
    fabric = star(8, 1e9, 1e-6)
    assert classes(check_same(fabric, replace(graph, size=size))) == 1
    size[::2] *= 1.000001
    quotient = collapse(task_orders(fabric, replace(graph, size=size)))
    assert quotient is None or classes(quotient) > 1


def test_ties_on_devices_go_by_number() -> None:
    """Equal tasks of a device end one after the other, though they look alike."""
    hosts, each = 6, 4
    tasks: list[Task] = [(C, v, -1, 1.0, 0.0) for v in range(hosts) for _ in range(each)]
    tasks += [(T, v, (v + 1) % hosts, 1e6, 0.0) for v in range(hosts)]
    edges = [(v * each + 1, hosts * each + v) for v in range(hosts)]
    graph = graph_of(hosts, tasks, edges)
    fabric = circulant(hosts, (1,), 1e9, 1e-6)
    quotient = check_same(fabric, graph)
    assert classes(quotient) == each + 1
    run = run_fluid(fabric, graph, collapsed=True)
    assert run.finish[: hosts * each].tolist() == [1.0, 2.0, 3.0, 4.0] * hosts
    assert run.binding[:each].tolist() == [-1, 0, 1, 2]


def test_devices_that_order_their_tasks_differently_are_told_apart() -> None:
    tasks: list[Task] = []
    for v in range(8):
        first, second = (1.0, 2.0) if v % 2 else (2.0, 1.0)
        tasks += [(C, v, -1, first, 0.0), (C, v, -1, second, 0.0)]
    graph = graph_of(8, tasks)
    fabric = circulant(8, (1,), 1e9, 1e-6)
    assert classes(check_same(fabric, graph)) == 4


def test_what_cannot_be_collapsed_gives_none() -> None:
    cycle = graph_of(4, [(C, v, -1, 1.0, 0.0) for v in range(4)], [(v, (v + 1) % 4)
                                                                  for v in range(4)])  # fmt: skip
    assert collapse(task_orders(star(4), cycle)) is None
    rng = np.random.default_rng(0)
    network = star(6).network
    uneven = replace(network, capacity=rng.uniform(1.0, 2.0, network.links))
    fabric = Fabric("uneven", uneven, shortest_routes(uneven), transport=IDEAL)
    graph = graph_of(6, all_to_all(6))
    assert collapse(task_orders(fabric, graph)) is None
    check_same(fabric, graph)


def test_a_limit_and_a_cycle_are_seen_through_the_quotient() -> None:
    from codesign_base import InputError

    fabric, graph = star(6, 1e9), graph_of(6, all_to_all(6))
    whole = float(run_fluid(fabric, graph, collapsed=True).finish.max())
    cut = run_fluid(fabric, graph, collapsed=True, limit=0.9 * whole)
    assert np.isinf(cut.finish).all()
    assert run_fluid(fabric, graph, collapsed=True, limit=whole).finish.max() == whole
    tasks = all_to_all(4) + [(C, 0, -1, 1.0, 0.0)] * 2
    cycle = graph_of(4, tasks, [(12, 13), (13, 12)])
    with pytest.raises(InputError, match="2 of 14 tasks never ran"):
        run_fluid(star(4, 1e9), cycle, collapsed=True)


# --- full size ------------------------------------------------------------------------------


def synthetic(servers: int, size: float = 262144.0, reduced: float = 1e8) -> TaskGraph:
    """Build an all-to-all and four AllReduces over all servers, as arrays."""
    ends = np.arange(servers)
    source, target = (x.ravel() for x in np.meshgrid(ends, ends, indexing="ij"))
    off = source != target
    moves = int(off.sum())
    count = moves + 4
    zeros = np.zeros(count, dtype=np.int64)
    return TaskGraph(
        servers=servers,
        devices=servers,
        kind=np.concatenate((np.full(moves, T), np.full(4, A))).astype(np.int64),
        first=np.concatenate((source[off], np.zeros(4, dtype=np.int64))),
        second=np.concatenate((target[off], np.full(4, -1))),
        size=np.concatenate((np.full(moves, size), np.full(4, reduced))),
        delay=np.zeros(count),
        operator=zeros,
        phase=zeros,
        part=zeros,
        successor_offsets=np.zeros(count + 1, dtype=np.int64),
        successors=np.zeros(0, dtype=np.int64),
        predecessors=zeros.copy(),
        groups=(tuple(range(servers)),),
        server_of_device=ends,
    )


@pytest.mark.parametrize("servers", [16, 64, 128])
def test_all_to_all_under_four_allreduces(servers: int) -> None:
    """All share a server's link: transfers end when each has its bytes, then rings go on."""
    rate, latency = 12.5e9, 1e-6
    fabric = Fabric("switch", *ideal_switch(servers, rate, latency))
    graph = synthetic(servers)
    assert classes(collapse(task_orders(fabric, graph))) == 2
    run = run_fluid(fabric, graph, collapsed=True)
    packet = PACKETS.segment_bytes
    shard = np.ceil(262144 / packet) * packet
    part = np.ceil(1e8 / servers / packet) * packet
    volume, flows = 2 * (servers - 1) * part, servers - 1 + 4
    lag = 4 * latency + packet / rate
    cap = part / (part / rate + lag)
    # Rates are rate / flows unless the rings' rounds are slower, which they are not here.
    assert rate / flows < cap
    first = shard * flows / rate
    left = volume - shard
    assert left > 0
    np.testing.assert_allclose(run.finish[:-4], first + lag, rtol=1e-9)
    np.testing.assert_allclose(run.finish[-4:], first + left / min(rate / 4, cap), rtol=1e-9)


@pytest.mark.parametrize("few", [True, False])
def test_few_classes_are_simulated_exactly_whatever_may_be_batched(few, monkeypatch):
    hosts = 16
    fabric = Fabric("ideal", *ideal_switch(hosts, 1e9, 1e-6), {})
    moves = all_to_all(hosts)
    tasks = [(k, a, b, size * (1.0 + 0.01 * ((b - a) % hosts)), d) for k, a, b, size, d in moves]
    graph = graph_of(hosts, tasks)
    monkeypatch.setattr(fluid, "_FEW_CLASSES", 0.5 if few else 1e-9)
    exact = run_fluid(fabric, graph, collapsed=True)
    near = run_fluid(fabric, graph, 0.05, collapsed=True)
    asked = run_fluid(fabric, graph, 0.05, collapsed=True, exact_classes=True)
    assert (exact.near, near.near, asked.near) == (False, True, not few)
    assert near.makespan != exact.makespan
    assert asked.makespan == (exact if few else near).makespan


def test_a_large_graph_may_have_more_classes(monkeypatch):
    fabric = Fabric("ideal", *ideal_switch(8, 1e9, 1e-6), {})
    orders = task_orders(fabric, graph_of(8, all_to_all(8)))
    monkeypatch.setattr(collapse_module, "_CELLS", 0)
    assert collapse(orders) is not None
    monkeypatch.setattr(collapse_module, "_CELLS_EACH", 0)
    assert collapse(orders) is None
