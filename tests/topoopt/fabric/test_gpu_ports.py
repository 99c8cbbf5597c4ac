"""Ports that belong to GPUs: which ports tasks take, and their times by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import gpt

import topoopt as to
from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskGraph, TaskKind
from parallelism.transformers.choices import Choices
from parallelism.transformers.placement import Placement, axis_orders
from parallelism.transformers.reduced import reduced_tasks
from parallelism.transformers.schedules import schedule_of
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.evaluate.least_times import busiest
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric import Fabric
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.fabric.reconfigurable import run_iteration
from topoopt.topology.fabrics import ideal_switch
from topoopt.topology.zoo.switched import leaf_spine, rail_only, rail_optimised

B = 1e9
C, T, R, G = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE, TaskKind.ALL_GATHER


def rails(servers, ports, pod=None, build=rail_only):
    network = build(servers, ports, B, 0.0, per_pod=pod)
    return GpuPorts("rails", network, Fabric("pooled", network, ecmp_routes(network)))


def tasks_of(servers, per_server, tasks, edges, groups=()):
    """Return tasks of so many devices a server: device d is on server d // per_server."""
    made = TaskGraph.from_lists(
        servers * per_server, [(k, f, s, size, 0.0) for k, f, s, size in tasks], edges, groups
    )
    home = np.arange(servers * per_server) // per_server
    return TaskGraph(**{
        **{name: getattr(made, name) for name in TaskGraph.__dataclass_fields__},
        "servers": servers, "devices": home.size, "server_of_device": home,
    })  # fmt: skip


def taken(fabric, tasks, task):
    """Return the ports that a network task loads on its way out of its first server."""
    network, divided = fabric.divided(tasks)
    if divided.kind[task] == T:
        pair = divided.first[task] * network.network.hosts + divided.second[task]
    else:
        one, other = divided.groups[divided.first[task]][:2]
        pair = one * network.network.hosts + other
    links, weights = network.routes.of(np.array([pair])).row(
        *divmod(int(pair), network.network.hosts)
    )
    at = network.network.source[links] == pair // network.network.hosts
    port = network.network.target[links[at]] - network.network.hosts
    return dict(zip((port % fabric.ports).tolist(), weights[at].tolist(), strict=True))


def test_a_transfer_takes_the_ports_of_its_reader():
    fabric = rails(2, 4)
    # Two devices a server with two ports each; the second device of server 1 reads.
    tasks = tasks_of(2, 2, [(C, 0, -1, 0.0), (T, 0, 1, 8e9), (C, 3, -1, 0.0)], [(0, 1), (1, 2)])
    assert taken(fabric, tasks, 1) == {2: 0.5, 3: 0.5}
    assert run_iteration(fabric, tasks).makespan == pytest.approx(8e9 / (2 * B), rel=1e-3)
    assert run_iteration(fabric.pooled, tasks).makespan == pytest.approx(8e9 / (4 * B), rel=1e-3)


def test_a_transfer_that_nobody_reads_takes_the_ports_of_its_sender():
    fabric = rails(2, 4)
    tasks = tasks_of(2, 4, [(C, 1, -1, 0.0), (T, 0, 1, 8e9)], [(0, 1)])
    assert taken(fabric, tasks, 1) == {1: 1.0}
    alone = tasks_of(2, 4, [(T, 0, 1, 8e9)], [])
    assert taken(fabric, alone, 0) == dict.fromkeys(range(4), 0.25)


def test_transfers_of_other_gpus_do_not_share_ports():
    fabric = rails(2, 4)
    rows = [(C, d, -1, 0.0) for d in range(4)] + [(T, 0, 1, 1e9)] * 4
    edges = [(d, 4 + d) for d in range(4)]
    apart = tasks_of(2, 4, rows, edges)
    assert run_iteration(fabric, apart).makespan == pytest.approx(1.0, rel=1e-3)
    same = tasks_of(2, 4, rows, [(0, 4 + d) for d in range(4)])
    assert run_iteration(fabric, same).makespan == pytest.approx(4.0, rel=1e-3)
    assert run_iteration(fabric.pooled, same).makespan == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("kind", [R, G])
def test_a_collective_takes_the_ports_of_its_members(kind):
    fabric = rails(4, 4)
    members = [1, 5, 9, 13]
    rows = [(C, d, -1, 0.0) for d in members] + [(kind, 0, -1, 6e9)]
    before = [(i, 4) for i in range(4)]
    tasks = tasks_of(
        4, 4, rows, before if kind is R else [(4, i) for i in range(4)], ((0, 1, 2, 3),)
    )
    assert taken(fabric, tasks, 4) == {1: 1.0}
    rounds = 2 if kind is R else 1
    assert run_iteration(fabric, tasks).makespan == pytest.approx(rounds * 0.75 * 6e9 / B, rel=1e-2)


def test_devices_divide_ports_that_they_do_not_match():
    # Eight devices on four ports share them two by two; two devices on three ports meet in one.
    shared = tasks_of(2, 8, [(C, 5, -1, 0.0), (T, 0, 1, 1e9)], [(0, 1)])
    assert taken(rails(2, 4), shared, 1) == {2: 1.0}
    for device, ports in ((0, {0: 0.5, 1: 0.5}), (1, {1: 0.5, 2: 0.5})):
        odd = tasks_of(2, 2, [(C, device, -1, 0.0), (T, 0, 1, 1e9)], [(0, 1)])
        assert taken(rails(2, 3), odd, 1) == ports


def test_spines_are_shared_evenly():
    fabric = rails(4, 2, 2, rail_optimised)
    tasks = tasks_of(4, 2, [(C, 0, -1, 0.0), (T, 0, 3, 4e9)], [(0, 1)])
    assert taken(fabric, tasks, 1) == {0: 1.0}
    assert run_iteration(fabric, tasks).makespan == pytest.approx(4.0, rel=1e-2)


def test_servers_must_have_a_cable_to_each_rail():
    network = leaf_spine(8, B, 0.0, cables=2)
    with pytest.raises(InputError, match="give each one cable"):
        GpuPorts("racks", network, Fabric("pooled", network, ecmp_routes(network)))
    uneven = Network.from_links("uneven", 2, 2, [0, 2, 0, 3, 1, 2], [2, 0, 3, 0, 2, 1], B, 0.0)
    with pytest.raises(InputError, match="servers have 1 to 2 ports"):
        GpuPorts("uneven", uneven, Fabric("pooled", uneven, ecmp_routes(uneven)))


SERVER = Server(get_accelerator("h100"), 4, 150e9)
JOB = to.Job(
    gpt(8, 1024, 16, 5000), global_batch=16, server=SERVER,
    choices=Choices(context=(1, 2), microbatch=(1, 2), zero=(0, 1, 3), recompute=("none",)),
)  # fmt: skip
FAMILY = JOB.family(4)


def by_hand(tasks, task, ports):
    """Return the ports of a task by going through its neighbours one by one."""
    servers = tasks.server_of_device.tolist()
    edges = [
        (before, after)
        for before in range(tasks.tasks)
        for after in tasks.successors[
            tasks.successor_offsets[before] : tasks.successor_offsets[before + 1]
        ].tolist()
    ]
    move = tasks.kind[task] == T
    head = None if move else tasks.groups[tasks.first[task]][0]
    reads = (tasks.second[task] if move else head, [b for a, b in edges if a == task])
    waits = (tasks.first[task] if move else head, [a for a, b in edges if b == task])
    for server, others in (reads, waits) if move else (waits, reads):
        here = [d for d in range(tasks.devices) if servers[d] == server]
        places = {
            here.index(int(tasks.first[other]))
            for other in others
            if tasks.kind[other] == C and int(tasks.first[other]) in here
        }
        if places:
            share = ports // len(here)
            return {share * place + k for place in places for k in range(share)}
    return set(range(ports))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 5), st.sampled_from([rail_only, rail_optimised]))
def test_layouts_take_the_ports_of_their_ranks_and_no_bound_is_beaten(number, turn, build):
    layouts = FAMILY.layouts()
    layout = layouts[number % len(layouts)]
    orders = axis_orders(layout)
    tasks = FAMILY.build(Placement(layout, 4, orders[turn % len(orders)]))
    fabric = rails(4, 4, 2, build)
    found = np.flatnonzero(tasks.kind != C)
    for task in found[:: max(1, found.size // 5)].tolist():
        if tasks.kind[task] == T or len(tasks.groups[tasks.first[task]]) > 1:
            assert set(taken(fabric, tasks, task)) == by_hand(tasks, task, 4)
    time = run_iteration(fabric, tasks).makespan
    ideal, routes = ideal_switch(4, 4 * B, 0.0)
    assert time >= busiest(Fabric("ideal", ideal, routes), tasks)
    assert time >= busiest(fabric, tasks)


def test_a_server_that_is_one_device_has_its_ports_pooled():
    """Of models planned by operators all ports are everyone's."""
    tasks = tasks_of(3, 1, [(C, 0, -1, 0.0), (T, 0, 1, 9e9), (T, 0, 2, 3e9), (C, 1, -1, 1.0)],
                     [(0, 1), (0, 2), (1, 3)])  # fmt: skip
    fabric = rails(3, 3)
    assert run_iteration(fabric, tasks).makespan == pytest.approx(
        run_iteration(fabric.pooled, tasks).makespan, rel=1e-3
    )


def test_what_takes_too_much_work_is_bounded_from_below():
    problem = Problem(FAMILY, to.Cluster(4, 4, 8e9), to.SearchOptions(), 0)
    placement = Placement(next(one for one in FAMILY.layouts() if one.data == 16), 4)
    schedule = schedule_of(placement.layout, FAMILY.batch)
    tasks = FAMILY.build(placement)
    few = reduced_tasks(placement, schedule, FAMILY.loads(placement))
    assert few is not None and few.tasks < tasks.tasks
    fabric = rails(4, 4)
    exact = Scorer(problem, fabric)
    time = exact.simulate(tasks)
    assert not exact.bounded and time == pytest.approx(run_iteration(fabric, tasks).makespan)
    assert exact.simulate(few) == pytest.approx(time) and not exact.bounded
    # Of the first too many would be made, of the second too many simulated.
    for some in (few, tasks):
        scorer = Scorer(problem, fabric, budget=1.0)
        least = scorer.simulate(some)
        assert scorer.bounded
        assert busiest(fabric, tasks) <= least * (1 + 1e-9) <= time * (1 + 1e-6)
    assert exact(placement, 0.5 * busiest(fabric, tasks)) > 0.5 * busiest(fabric, tasks)
