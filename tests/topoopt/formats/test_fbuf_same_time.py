"""A task-graph file of a plan, simulated, takes what the plan takes, or it is refused."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from small_plans import small_dlrm, small_mlp
from small_transformers import gpt

from codesign_base import InputError
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes
from topoopt.evaluate.routed import direct_fabric
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.formats.chakra_export import chakra_files
from topoopt.formats.chakra_file import load_traces
from topoopt.formats.chakra_import import trace_tasks
from topoopt.formats.fbuf_export import Updates
from topoopt.formats.fbuf_plan import AllReduces, iteration_fbuf
from topoopt.formats.fbuf_read import parse_fbuf
from topoopt.formats.fbuf_write import write_fbuf
from topoopt.problem.job import Job, nvlink_server
from topoopt.problem.ports import PortModel
from topoopt.problem.routing import Routing
from topoopt.studies.workload import fbuf_workload, streams_of
from topoopt.topology.finder import find_topology

RATE, HOP = 1.25e9, 1e-6
ONE_TABLE = (Routing.ECMP, Routing.BALANCED)  # rings take the routes of their pairs


def cases(models, servers, degrees):
    """Yield iterations of starting strategies on every port split, under every routing."""
    for model, count, degree, ports in itertools.product(models, servers, degrees, PortModel):
        family = Job(model).family(count)
        space = StrategySpace(family.builder.graph, count, family.batch)
        for name, strategy in named_strategies(space).items():
            if name not in ("data-parallel", "hybrid"):
                continue
            tasks = family.build(strategy)
            unit = 1 if ports is PortModel.DIRECTED else 2
            for share in range(unit, degree + 1, unit):
                topology = find_topology(
                    traffic_of(tasks), degree, RATE, latency=HOP, ports=ports,
                    degree_allreduce=share,
                )  # fmt: skip
                for routing in Routing:
                    yield routing, tasks, direct_fabric(topology, routing, tasks=tasks)


def read(file):
    """Return tasks and fabric that `topoopt simulate` simulates of a file in the fluid model."""
    workload = streams_of(fbuf_workload(parse_fbuf(write_fbuf(file)), "file"))
    return workload.tasks, workload.own_fabric(RATE, HOP)


def holds_for(given):
    """Check all cases in both forms; return how many of each form and routing were written."""
    written = {}
    for routing, tasks, fabric in given:
        for form in (AllReduces.RINGS, AllReduces.ROUNDS):
            try:
                file = iteration_fbuf(
                    tasks, fabric, net_bandwidth=RATE, latency=HOP, gpus_per_node=4,
                    intergpu_bandwidth=25e9, allreduces=form,
                    updates=Updates.OMIT if form is AllReduces.RINGS else Updates.REFUSE,
                )  # fmt: skip
            except InputError as error:
                assert form is AllReduces.RINGS or (
                    "cable" in str(error) or routing not in ONE_TABLE
                ), error
                continue
            found, own = read(file)
            # Of rings the format cannot say what follows them.
            whole = found if form is AllReduces.RINGS else tasks
            assert score(own, found) == pytest.approx(score(fabric, whole), rel=1e-3)
            written[form, routing] = written.get((form, routing), 0) + 1
    return written


def test_an_export_takes_what_the_plan_takes_or_is_refused():
    written = holds_for(cases([small_dlrm(2)], [4], [4]))
    assert all(written[AllReduces.ROUNDS, routing] > 1 for routing in ONE_TABLE)
    assert sum(count for (form, _), count in written.items() if form is AllReduces.RINGS) > 10


@pytest.mark.parametrize("zero", [0, 1])
def test_what_ranks_of_one_server_exchange_takes_as_long_in_files(tmp_path, zero):
    """Collectives of no bytes beside those across servers, and sums after the last pass."""
    job = Job(
        gpt(4, 1024, 16, 1000), global_batch=16, server=nvlink_server("h100", 2), sequence=256,
        implementation=get_stack("nemo"),
    )  # fmt: skip
    family = job.family(4)
    layout = Layout(data=8, zero=zero, sequence_parallel=False)
    tasks = family.build(Placement(layout, 2))
    quiet = tasks.collective & (tasks.size == 0.0)
    assert tasks.delay[quiet].min() > 0.0
    # So slow inside that it is what counts.
    tasks = replace(tasks, delay=1000.0 * tasks.delay)
    topology = find_topology(
        traffic_of(tasks), 3, RATE, latency=HOP, ports=PortModel.BIDIRECTIONAL, degree_allreduce=3
    )
    fabric = direct_fabric(topology, Routing.ECMP, tasks=tasks)
    time = score(fabric, tasks)
    assert time > 1.1 * score(fabric, replace(tasks, delay=0.0 * tasks.delay))
    file = iteration_fbuf(
        tasks, fabric, net_bandwidth=RATE, latency=HOP, gpus_per_node=2,
        intergpu_bandwidth=25e9, allreduces=AllReduces.ROUNDS, updates=Updates.REFUSE,
    )  # fmt: skip
    found, own = read(file)
    assert score(own, found) == pytest.approx(time, rel=1e-3)
    for name, data in chakra_files(tasks, str).items():
        (tmp_path / name).write_bytes(data)
    # Files leave out the latency of rounds in which nothing is sent.
    again = trace_tasks(load_traces(tmp_path)).graph
    assert score(fabric, again) == pytest.approx(time, rel=2e-4)


@pytest.mark.slow
def test_more_exports_take_what_their_plans_take_or_are_refused():
    models = [small_dlrm(3), small_mlp()]
    written = holds_for(cases(models, [4, 5, 6], [2, 3, 4]))
    assert all(written[AllReduces.ROUNDS, routing] > 1 for routing in Routing)


def test_rings_whose_messages_would_leave_them_are_not_written_in_rounds():
    """Routes that split a pair's transfers, and rings that keep to their links."""
    refused = set()
    for routing, tasks, fabric in cases([small_dlrm(4)], [6], [4]):
        if routing is not Routing.K_SHORTEST:
            continue
        try:
            iteration_fbuf(
                tasks, fabric, net_bandwidth=RATE, latency=HOP, gpus_per_node=4,
                intergpu_bandwidth=25e9, allreduces=AllReduces.ROUNDS, updates=Updates.OMIT,
            )  # fmt: skip
        except InputError as error:
            refused.add(str(error))
    assert any("over other links along a ring" in text for text in refused)


@pytest.mark.slow
def test_trees_are_written_as_messages_that_take_as_long():
    everyone = tuple(range(130))
    ring = np.array(everyone)
    steps = (1, 129, 11, 119)  # each way: a connection of the format is a cable both ways
    network = Network.from_links(
        "circulant", 130, 0, np.tile(ring, 4), np.concatenate([(ring + p) % 130 for p in steps]),
        RATE, HOP,
    )  # fmt: skip
    rings = {everyone: tuple(tuple((ring * p % 130).tolist()) for p in steps)}
    routes = Routes.on_demand(130, partial(ecmp_routes, network))
    fabric = Fabric("circulant", network, routes, rings)
    reduce = (TaskKind.ALLREDUCE, 0, -1, 1e5, 1e-3)
    tasks = TaskGraph.from_lists(130, [reduce, reduce], [(0, 1)], (everyone,))
    how = {"net_bandwidth": RATE, "latency": HOP, "gpus_per_node": 4, "intergpu_bandwidth": 25e9}
    file = iteration_fbuf(tasks, fabric, **how)
    assert file.tasks < 2 * 4 * 2 * 129 * 130 / 10  # rounds of rings are ten times as many
    found, own = read(file)
    assert score(own, found) == pytest.approx(score(fabric, tasks), rel=1e-3)
    with pytest.raises(InputError, match="trees"):
        iteration_fbuf(tasks, fabric, allreduces=AllReduces.RINGS, **how)
