"""One task for all images under a rotation against the whole graph: times, bytes, bounds, work."""

from dataclasses import replace
from functools import partial
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_tasks import check_on, check_traffic
from small_networks import circulant_network

from parallelism.models import get_model
from parallelism.rotation import rotated_classes
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
from routing.paths import ecmp_routes
from routing.rotation import least_rotation, rotated_links
from routing.routes import Routes
from topoopt.evaluate.routed import direct_fabric
from topoopt.fabric import loads, rotated, used_pairs
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.represented import tasks_over, whole_size, whole_tasks
from topoopt.problem.job import Job
from topoopt.topology.fabrics import ideal_switch, merged_fat_tree, random_regular
from topoopt.topology.finder import find_topology

LAG = 1e-6


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch):
    for module in (rotated, loads, used_pairs):
        monkeypatch.setattr(module, "tabled", lambda hosts: False)
    monkeypatch.setattr(rotated, "seeks_symmetry", lambda tasks: True)


def on_demand(name, network, rings=None):

    make = partial(ecmp_routes, network)
    return Fabric(name, network, Routes.on_demand(network.hosts, make), rings or {})


@st.composite
def turning_jobs(draw):
    """A task graph that is the same after a rotation by some servers, and that step."""
    step = draw(st.sampled_from([1, 2, 3]))
    turns = draw(st.sampled_from([4, 5]))
    servers = step * turns
    tasks, edges, last = [], [], {}

    def add(kind, first, second=-1, size=0.0):
        tasks.append((kind, first, second, size, 0.0))
        return len(tasks) - 1

    def compute(kind, size):
        for turn in range(turns):
            server = turn * step + kind
            made = add(TaskKind.COMPUTE, server, size=size)
            edges.extend((before, made) for before in last.get(server, ()))
            last[server] = [made]

    groups = [tuple(range(servers)), *(tuple(range(k, servers, step)) for k in range(step))]
    seconds = st.sampled_from([1e-4, 2e-4, 5e-4])
    for kind in range(step):
        compute(kind, draw(seconds))
    for _ in range(draw(st.integers(1, 5))):
        kind, ahead = draw(st.integers(0, step - 1)), draw(st.integers(1, servers - 1))
        size = draw(st.sampled_from([1e5, 3e5, 1e6]))
        after = {}
        for turn in range(turns):
            source = turn * step + kind
            target = (source + ahead) % servers
            made = add(TaskKind.TRANSFER, source, target, size)
            edges.append((last[source][-1], made))
            after[target] = made
        for target, made in after.items():
            last[target] = [*last[target], made]
        compute((kind + ahead) % step, draw(seconds))
    group = draw(st.integers(0, step))
    made = [
        add(TaskKind.ALLREDUCE, g, size=2e6) for g in ([0] if group == 0 else range(1, 1 + step))
    ]
    for number, task in zip([0] if group == 0 else range(1, 1 + step), made, strict=True):
        for server in groups[number]:
            # Transfers are awaited by what computes.
            ready = [t for t in last[server] if tasks[t][0] == TaskKind.COMPUTE]
            edges.extend((before, task) for before in ready)
    return TaskGraph.from_lists(servers, tasks, sorted(set(edges)), tuple(groups)), step


def check_same(fabric, whole, own):
    assert own.tasks < whole.tasks
    assert whole_tasks(own) is whole
    assert whole_size(own) == whole.tasks
    assert tasks_over(fabric, own) is own
    check_traffic(whole, own)
    check_on(fabric, whole, own, collapsed=False)


@settings(max_examples=40, deadline=None)
@given(turning_jobs(), st.permutations([1, 2, 3, 4, 5, 6]))
def test_what_was_found_of_another_period_is_what_would_be_found(job, periods):
    tasks, _ = job
    for period in periods:
        if tasks.servers % period:
            continue
        known, fresh = (rotated_classes(each, period) for each in (tasks, replace(tasks)))
        assert (known is None) == (fresh is None)
        if known is not None:
            assert known.step == fresh.step and np.array_equal(known.of_task, fresh.of_task)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_one_task_takes_the_time_of_its_images(data):
    whole, step = data.draw(turning_jobs())
    servers = whole.servers
    found = rotated_classes(whole, 1)
    assert found is not None
    assert step % found.step == 0
    steps = data.draw(st.lists(st.integers(2, servers - 1), max_size=2, unique=True))
    steps = [1, *(s for s in steps if s > 1)]
    rates = data.draw(
        st.lists(st.sampled_from([1e10, 2e10]), min_size=len(steps), max_size=len(steps))
    )
    ring = tuple(range(servers))
    fabrics = [
        on_demand("circulant", circulant_network(servers, steps, rates), {ring: (ring,)}),
        on_demand("ideal", ideal_switch(servers, 5e10, LAG)[0]),
    ]
    for fabric in fabrics:
        own = tasks_over(fabric, whole)
        # Rings that are chosen for groups may load links unalike.
        if own is not whole:
            check_same(fabric, whole, own)
    assert tasks_over(fabrics[1], whole) is not whole


@pytest.mark.parametrize(
    ("model", "name"),
    [("dlrm-16", "hybrid"), ("bert-16", "data-parallel"), ("dlrm-16", "tensor-2")],
)
def test_plans_of_presets_take_the_same(model, name):
    family = Job(get_model(model)).family(16)
    space = StrategySpace(family.builder.graph, 16, family.batch)
    whole = family.build(space.intern(named_strategies(space)[name]))
    topology = find_topology(traffic_of(whole), 4, 1.25e10, latency=LAG, surplus="rings")
    fabric = direct_fabric(topology, on_demand=True)
    check_same(fabric, whole, tasks_over(fabric, whole))


@pytest.mark.parametrize("steps", [[1, 3], [1, 5, 7]])
def test_one_pair_of_hosts_is_routed_for_all_its_images(steps):
    fabric = on_demand("circulant", circulant_network(16, steps, [1e10] * len(steps)))
    # Alike after a rotation by four servers, on a network that allows any.
    sends = [(v, (v + 2 + v % 4) % 16, 1e6 * (1 + v % 4)) for v in range(16)]
    passes = [(TaskKind.COMPUTE, v, -1, 1e-3, 0.0) for v in range(16)]
    moves = [(TaskKind.TRANSFER, a, b, size, 0.0) for a, b, size in sends]
    into = [(16 + v, b) for v, (_, b, _) in enumerate(sends)]
    whole = TaskGraph.from_lists(16, [*passes, *moves], into)
    own = tasks_over(fabric, whole)
    assert np.count_nonzero(own.kind == TaskKind.TRANSFER) == 4
    run_fluid(fabric, own)
    ahead = {(b - a) % 16 for a, b, _ in sends}
    begin, end = fabric.rows.entries(np.array([(0 - d) % 16 * 16 for d in sorted(ahead)]))
    assert fabric.rows.used == (end - begin).sum()


def test_a_graph_is_freed_with_what_stands_for_it():
    passes = [(TaskKind.COMPUTE, v, -1, 1e-3, 0.0) for v in range(16)]
    moves = [(TaskKind.TRANSFER, v, (v + 3) % 16, 1e6, 0.0) for v in range(16)]
    whole = TaskGraph.from_lists(16, [*passes, *moves], [(v, 16 + v) for v in range(16)])
    own = tasks_over(on_demand("ideal", ideal_switch(16, 5e10, LAG)[0]), whole)
    assert own.tasks == 2 and own.alike.pattern.elements == 16
    known = ref(whole)
    del own, whole
    # At once: thousands of servers fill memory long before cycles are looked for.
    assert known() is None


def test_what_no_rotation_serves_stays_whole():
    whole = TaskGraph.from_lists(
        4,
        [(TaskKind.COMPUTE, v, -1, 1e-3 * (1 + v), 0.0) for v in range(4)],
        [],
    )
    fabric = on_demand("ideal", ideal_switch(4, 5e10, LAG)[0])
    assert tasks_over(fabric, whole) is whole
    alike = TaskGraph.from_lists(4, [(TaskKind.COMPUTE, v, -1, 1e-3, 0.0) for v in range(4)], [])
    assert tasks_over(fabric, alike).tasks == 1
    random, _ = random_regular(8, 3, 5e10, LAG, np.random.default_rng(3))
    assert least_rotation(random) is None
    # Routes of all pairs are at hand, and need not follow a rotation.
    listed = Fabric("ideal", *ideal_switch(4, 5e10, LAG), {})
    assert tasks_over(listed, alike) is alike


def test_dependencies_tell_images_apart():
    # Server 0 sends to 1 before its second pass, server 1 to 0 after it.
    edges = [(0, 4), (4, 3), (1, 2), (3, 5), (5, 2)]
    passes = [(TaskKind.COMPUTE, v % 2, -1, 1e-3, 0.0) for v in (0, 1, 0, 1)]
    moves = [(TaskKind.TRANSFER, 0, 1, 1e6, 0.0), (TaskKind.TRANSFER, 1, 0, 1e6, 0.0)]
    whole = TaskGraph.from_lists(2, [*passes, *moves], sorted(edges))
    assert rotated_classes(whole, 1) is None


@pytest.mark.parametrize(
    ("network", "period"),
    [
        (circulant_network(12, [1, 5], [1e9, 2e9]), 1),
        (ideal_switch(6, 1e9, LAG)[0], 1),
        (merged_fat_tree(16, 1e9, LAG)[0], 4),
        (merged_fat_tree(54, 1e9, LAG)[0], 9),
    ],
)
def test_least_rotations(network, period):
    rotation = least_rotation(network)
    assert rotation.hosts == period
    for step in range(1, network.hosts):
        links = rotated_links(network, step)
        assert (links is not None) == (step % period == 0)
        if links is not None:
            again = rotation.times(step // period)
            assert again.hosts == step and np.array_equal(again.links, links)
            moved = (network.source + step) % network.hosts
            hosts = network.source < network.hosts
            np.testing.assert_array_equal(network.source[links][hosts], moved[hosts])
            assert np.array_equal(np.sort(links), np.arange(network.links))
