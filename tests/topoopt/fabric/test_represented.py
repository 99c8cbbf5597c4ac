"""One task of each kind against the whole task graph: times, bytes and bounds are the same."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parallelism.taskgraph import TaskKind, traffic_of
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.reduced import reduced_tasks
from parallelism.transformers.schedules import schedule_of
from routing.merging import merge_equivalent_links
from topoopt.bounds.bounds import strategy_bound
from topoopt.bounds.gap import routes_bound, topology_bound
from topoopt.evaluate.scoring import direct_fabric
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.represented import tasks_over, whole_tasks
from topoopt.fabric.simulate import timeline_of
from topoopt.fabric.tasks import demand_of, link_bytes
from topoopt.fabric.timeline import compute_on_critical_path
from topoopt.problem.job import Job, nvlink_server
from topoopt.topology.fabrics import fat_tree, ideal_switch, random_regular
from topoopt.topology.finder import find_topology

LAG = 1e-6
JOBS = [("llama3-8b", 4, 48, 8), ("mixtral-8x7b", 6, 96, 4), ("mixtral-8x7b", 8, 64, 8)]
MOST = 4000


def family(job):
    name, servers, batch, gpus = job
    server = nvlink_server("h100", gpus)
    return Job(get_transformer(name), server=server, global_batch=batch).family(servers)


@pytest.fixture(scope="module")
def families():
    return [family(job) for job in JOBS]


def fabrics(servers, traffic):
    return [
        Fabric("ideal", *ideal_switch(servers, 4e11, LAG), {}),
        Fabric("tree", *merge_equivalent_links(*fat_tree(servers, 1e11, LAG))[:2], {}),
        Fabric(
            "random", *random_regular(servers, 3, 5e10, LAG, np.random.default_rng(servers)), {}
        ),
        direct_fabric(find_topology(traffic, 4, 5e10, latency=LAG)),
    ]


def same_terms(one, other):
    assert one.terms == pytest.approx(other.terms, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_one_of_each_kind_takes_the_time_of_all(data, families):
    own = data.draw(st.sampled_from(families))
    layout = data.draw(st.sampled_from(own.layouts()))
    placement = data.draw(st.sampled_from(own.placements(layout)))
    schedule = schedule_of(layout, own.batch)
    assume(schedule.passes.shape[1] * placement.rank.size <= MOST)
    loads = own.loads(placement)
    whole = iteration_tasks(placement, schedule, loads)
    reduced = reduced_tasks(placement, schedule, loads, gain=1)
    assert reduced is not None
    assert reduced.tasks <= whole.tasks
    np.testing.assert_array_equal(whole_tasks(reduced).size, whole.size)
    before, after = traffic_of(whole), traffic_of(reduced)
    assert before.groups == after.groups  # in the order of use, which wirings go by
    np.testing.assert_allclose(before.transfers, after.transfers, rtol=1e-9)
    np.testing.assert_allclose(before.group_bytes, after.group_bytes, rtol=1e-9)
    bounds = [strategy_bound(each, 4, 5e10, LAG) for each in (whole, reduced)]
    same_terms(*bounds)
    for fabric in fabrics(own.servers, before):
        over = tasks_over(fabric, reduced)
        assert tasks_over(fabric, over) is over or over.alike is None
        np.testing.assert_allclose(link_bytes(fabric, whole), link_bytes(fabric, over), rtol=1e-9)
        np.testing.assert_allclose(demand_of(fabric, whole), demand_of(fabric, over), rtol=1e-9)
        runs = [run_fluid(fabric, each) for each in (whole, over)]
        assert runs[1].makespan == pytest.approx(runs[0].makespan, rel=1e-9)
        kinds = [np.unique(np.round(run.finish / runs[0].makespan, 7)) for run in runs]
        assert set(kinds[1].tolist()) <= {
            value + step for value in kinds[0].tolist() for step in (-1e-7, 0.0, 1e-7)
        } or np.allclose(np.interp(kinds[1], kinds[0], kinds[0]), kinds[1], atol=3e-7)
        computing = [
            compute_on_critical_path(tasks, timeline_of(fabric, tasks, run))
            for tasks, run in zip((whole, over), runs, strict=True)
        ]
        assert max(computing) <= runs[0].makespan * (1 + 1e-9)
        same_terms(topology_bound(fabric, whole), topology_bound(fabric, over))
        same_terms(routes_bound(fabric, whole), routes_bound(fabric, over))


def test_one_rank_of_each_stage_stands_for_all_replicas(families):
    own = families[2]
    layout = next(
        each for each in own.layouts()
        if each.data == 16 and each.pipeline == 4 and each.tensor == 1 and each.expert == 8
    )  # fmt: skip
    for placement in own.placements(layout):
        schedule = schedule_of(layout, own.batch)
        reduced = reduced_tasks(placement, schedule, own.loads(placement))
        assert reduced is not None
        assert reduced.devices == layout.pipeline
        compute = reduced.kind == TaskKind.COMPUTE
        assert np.bincount(reduced.first[compute]).min() > 0


def test_unlike_servers_stand_for_themselves(families):
    own = families[2]
    layout = next(each for each in own.layouts() if each.data == 8 and each.pipeline == 2)
    placement = own.placements(layout)[0]
    schedule = schedule_of(layout, own.batch)
    reduced = reduced_tasks(placement, schedule, own.loads(placement))
    network, routes = random_regular(8, 3, 5e10, LAG, np.random.default_rng(1))
    over = tasks_over(Fabric("random", network, routes, {}), reduced)
    assert over.alike is None
    assert over.devices == placement.rank.size
