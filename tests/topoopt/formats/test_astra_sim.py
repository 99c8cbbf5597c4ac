"""ASTRA-sim files: run by an independent interpreter, over the plan's cables only."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from small_layouts import shared_layout_plan, shared_spanning_plan
from small_networks import circulant_network
from small_plans import shared_plan
from trace_interpreter import run_traces

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.paths import ecmp_routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.represented import whole_tasks
from topoopt.fabric.simulation import simulate
from topoopt.formats.astra_sim import GIBI, astra_sim_files
from topoopt.formats.chakra_file import read_trace
from topoopt.plan.rebuild import rebuild
from topoopt.topology.fabrics import ideal_switch

COMPUTE, TRANSFER, ALLREDUCE = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
RATE = 12.5e9


def circulant(hosts, steps, cables=1):
    network = circulant_network(hosts, steps, RATE)
    if cables == 1:
        return network
    wide = np.where((network.target - network.source) % hosts == steps[0], cables, 1)
    return replace(network, capacity=network.capacity * wide, multiplicity=wide)


def run(tasks, fabric):
    """Return our time, the interpreter's, and the bytes that it saw on each link."""
    tasks = whole_tasks(tasks)
    ours = simulate(fabric, tasks)
    files = astra_sim_files(tasks, fabric, ours, str)
    network = yaml.safe_load(files["network.yml"])
    rate, latency = network["bandwidth"][0] * GIBI, network["latency"][0] * 1e-9
    assert network["npus_count"] == [tasks.servers]
    ranks = [
        read_trace(files[f"iteration/iteration.{rank}.et"], "trace")
        for rank in range(tasks.servers)
    ]
    assert all(ranks), "ASTRA-sim takes a trace without nodes for a deadlock"
    seconds, carried = run_traces(ranks, rate, latency)
    return ours.makespan, seconds, carried, files


def check_links(fabric, tasks, carried):
    """The bytes on each link are the plan's, but for whole packets, and there are no others."""
    network = fabric.network
    tasks = whole_tasks(tasks)
    wanted = link_bytes(fabric, tasks)
    base = network.capacity.min()
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    assert carried.keys() <= set(ends)
    messages = tasks.tasks * 2 * tasks.servers
    for link in range(network.links):
        pair = int(network.source[link]), int(network.target[link])
        sent = carried.get(pair, 0.0) * network.capacity[link] / base
        # Each piece is rounded to whole bytes.
        assert wanted[link] * (1 - 5e-5) - messages <= sent <= wanted[link] + 8936.0 * messages


KINDS = (ALLREDUCE, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER)
STEPS = ((1,), (1, 3), (1, 2, 4))


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        pytest.param(steps, kind, marks=pytest.mark.slow if i != j else ())
        for i, steps in enumerate(STEPS)
        for j, kind in enumerate(KINDS)
    ],
)
def test_a_collective_alone_takes_our_time(steps, kind):
    group = tuple(range(9))
    network = circulant(9, steps)
    rings = tuple(tuple(i * p % 9 for i in group) for p in steps if np.gcd(p, 9) == 1)
    fabric = Fabric("circulant", network, ecmp_routes(network), {group: rings})
    tasks = TaskGraph.from_lists(9, [(kind, 0, -1, 9 * 8936.0 * 165, 0.0)], [], (group,))
    ours, seconds, carried, _ = run(tasks, fabric)
    assert seconds == pytest.approx(ours, rel=1e-3)
    check_links(fabric, tasks, carried)


def test_a_forwarded_transfer_is_under_way_on_all_links_at_once():
    network = circulant(6, (1,))
    fabric = Fabric("ring", network, ecmp_routes(network))
    tasks = TaskGraph.from_lists(6, [(TRANSFER, 0, 3, 1e8, 0.0)], [])
    ours, seconds, carried, _ = run(tasks, fabric)
    # Store and forward of whole messages would take three times as long.
    assert ours <= seconds <= 1.05 * ours
    check_links(fabric, tasks, carried)


def test_a_forwarded_message_gets_as_much_of_a_link_as_another():
    network = circulant(4, (1,))
    fabric = Fabric("ring", network, ecmp_routes(network))
    tasks = TaskGraph.from_lists(
        4,
        [(TRANSFER, 0, 2, 1e6, 0.0), (TRANSFER, 1, 2, 4e6, 0.0), (COMPUTE, 2, -1, 1e-3, 0.0)],
        [(0, 2)],
    )
    ours, seconds, carried, _ = run(tasks, fabric)
    # Half of the link from 1 to 2 each, and then the compute task.
    assert ours == pytest.approx(2e6 / RATE + 1e-3, rel=0.02)
    assert seconds == pytest.approx(ours, rel=0.02)
    check_links(fabric, tasks, carried)


def test_links_of_two_cables_are_twice_as_fast():
    network = circulant(5, (1, 2), cables=2)
    fabric = Fabric("trunks", network, ecmp_routes(network))
    tasks = TaskGraph.from_lists(5, [(TRANSFER, 0, 1, 1e8, 0.0), (TRANSFER, 0, 2, 1e8, 0.0)], [])
    ours, seconds, carried, _ = run(tasks, fabric)
    assert seconds == pytest.approx(ours, rel=0.02)
    check_links(fabric, tasks, carried)


def test_compute_waits_and_goes_in_our_order():
    tasks = TaskGraph.from_lists(
        2,
        [
            (COMPUTE, 0, -1, 3e-3, 0.0), (TRANSFER, 0, 1, 12.5e6, 0.0),
            (COMPUTE, 1, -1, 2e-3, 0.0), (COMPUTE, 1, -1, 1.5e-3, 0.0),
            (ALLREDUCE, 0, -1, 0.0, 4e-3), (COMPUTE, 1, -1, 0.0, 0.0),
        ],
        [(0, 1), (1, 2), (2, 4), (4, 5)],
        ((1,),),
    )  # fmt: skip
    network = circulant(2, (1,))
    ours, seconds, _, _ = run(tasks, Fabric("pair", network, ecmp_routes(network)))
    assert seconds == pytest.approx(3e-3 + 1e-3 + 2e-3 + 4e-3, rel=2e-3)
    assert seconds == pytest.approx(ours, rel=2e-3)


@pytest.mark.parametrize(
    ("plan", "within"),
    [(shared_plan, 0.03), pytest.param(shared_layout_plan, 0.01, marks=pytest.mark.slow)],
)
def test_iterations_of_plans_take_about_our_time(plan, within):
    built = rebuild(plan())
    ours, seconds, carried, files = run(built.tasks(), built.fabric)
    assert seconds == pytest.approx(ours, rel=within)
    check_links(built.fabric, built.tasks(), carried)
    # Every rank starts the iteration by one collective that the system file describes.
    system = json.loads(files["system.json"])
    assert system["all-reduce-implementation-custom"] == ["iteration/iteration"]
    for rank in range(built.cluster.servers):
        (whole,) = read_trace(files[f"workload/workload.{rank}.et"], "trace")
        assert whole.type.name == "COMM_COLL" and whole.number("comm_type") == 0


def test_what_astra_sim_cannot_say_is_refused():
    tasks = TaskGraph.from_lists(2, [(TRANSFER, 0, 1, 1e6, 0.0)], [])
    switched = Fabric("switch", *ideal_switch(2, RATE, 1e-6))
    with pytest.raises(InputError, match="1 switch;"):
        run(tasks, switched)
    built = rebuild(shared_spanning_plan())
    with pytest.raises(InputError, match="of other servers without a message") as refused:
        run(built.tasks(), built.fabric)
    assert "write the format fbuf instead, or plan without tensor groups" in str(refused.value)
