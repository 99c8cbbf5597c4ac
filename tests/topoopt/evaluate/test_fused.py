"""Gradients in buckets of a packet for each member: in searches, plans, comparisons and exports."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from small_plans import small_layout_job

import topoopt as to
from codesign_base import InputError
from parallelism.buckets import bucket_allreduces, packet_bucket
from parallelism.search.named import named_strategies
from parallelism.taskgraph import Phase, traffic_of
from routing import routes as routes_module
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scheduling import simulate_schedule
from topoopt.fabric import collapse, simulate
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.rotated import for_each, rotated_tasks
from topoopt.fabric.transport import PACKETS
from topoopt.formats.fbuf_export import Updates
from topoopt.formats.fbuf_plan import plan_fbuf
from topoopt.plan.rebuild import rebuild
from topoopt.problem.schedule import Schedule
from topoopt.studies.setting import setting
from topoopt.studies.workload import fbuf_workload

SERVERS = 6
MODEL = to.models.bert(blocks=1, hidden=64, heads=4, sequence=32, batch_per_gpu=8)
CLUSTER = to.Cluster(SERVERS, 2, "25Gbps")
FEW = to.SearchOptions(steps=0, confirm="none", parameter_splits=False)


@pytest.fixture
def many(monkeypatch):
    """Let a few servers be as many as those of which one stands for others."""
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 3)
    monkeypatch.setattr(collapse, "COLLAPSE_FROM", 0)


@lru_cache(maxsize=2)
def planned(schedule):
    return to.co_optimize(to.Job(MODEL), CLUSTER, replace(FEW, schedule=schedule))


def test_small_gradients_are_fused_and_the_plan_is_verified():
    plan, plain = planned("fused"), planned("plain")
    assert to.verify_plan(plan).ok
    whole = SERVERS * PACKETS.segment_bytes
    assert plan.schedule.bucket_bytes in (whole, whole / 2, whole / 4)
    assert plan.iteration_time_s < plan.schedule.plain_time_s == plain.iteration_time_s
    assert plain.schedule.bucket_bytes is None
    for name, base in plan.baselines.items():
        assert base.iteration_time_s < plain.baselines[name].iteration_time_s
    assert sum("fused into AllReduces" in note for note in plan.notes) == 1
    assert "schedule: buckets of" in plan.summary()


def test_no_allreduce_but_the_last_of_a_group_is_below_the_bucket():
    tasks = rebuild(planned("fused")).simulated.tasks
    reduces = np.flatnonzero(tasks.collective)
    members = np.array([len(tasks.groups[g]) for g in tasks.first[reduces]])
    least = members * PACKETS.segment_bytes
    short = tasks.size[reduces] < np.minimum(least, planned("fused").schedule.bucket_bytes)
    assert np.unique(tasks.first[reduces[short]]).size == short.sum()
    plain = rebuild(planned("fused")).tasks()
    assert traffic_of(tasks).group_bytes == pytest.approx(traffic_of(plain).group_bytes)


def test_the_same_wiring_to_compare_with_takes_as_long_as_the_plan():
    plan = planned("fused")
    expander = plan.baselines["expander"]
    wired = rebuild(plan).fabric.network
    assert (wired.out_degree() == 2).all()
    # Two rings are all expanders of so few servers and ports.
    assert expander.iteration_time_s == pytest.approx(plan.iteration_time_s, rel=1e-9)


@pytest.mark.parametrize("bucket", [None, 1e5])
def test_other_buckets_are_refused(bucket):
    plan = planned("fused")
    built = rebuild(plan)
    time = simulate_schedule(built.fabric, built.tasks(), Schedule(bucket_bytes=bucket)).time
    changed = replace(
        plan, iteration_time_s=time, schedule=replace(plan.schedule, bucket_bytes=bucket)
    )
    assert not to.verify_plan(changed).ok
    asked = replace(plan.search, options=replace(plan.search.options, schedule="plain"))
    (failure,) = to.verify_plan(replace(plan, search=asked)).failures
    assert "search.options.schedule 'plain'" in failure


def test_an_exported_plan_has_its_buckets():
    plan = planned("fused")
    file = plan_fbuf(plan, updates=Updates.OMIT)
    work = fbuf_workload(file, "file")
    own, tasks = work.own_fabric(file.net_bandwidth, CLUSTER.hop_latency), work.tasks
    fused = rebuild(plan).simulated.tasks
    reduced, expected = (np.sort(each.size[each.collective]) for each in (tasks, fused))
    np.testing.assert_allclose(reduced, expected, atol=1.0)
    # The file has no optimizer steps, of which those of the last bucket end the iteration.
    steps = 3.0 * fused.size[fused.phase == Phase.UPDATE].max()
    replayed = simulate(own, tasks).makespan
    assert plan.iteration_time_s - steps * (1 + 1e-6) <= replayed <= plan.iteration_time_s


def test_one_task_for_many_is_fused_as_all_of_them(many):
    given = setting(MODEL, SERVERS, 2, 25.0)
    for name in ("data-parallel", "tensor-2"):
        strategy = given.space.intern(named_strategies(given.space)[name])
        fabric, whole = given.wired(strategy, name).fabric, given.family.build(strategy)
        folded = rotated_tasks(fabric, whole)
        assert folded is not None and folded.tasks < whole.tasks
        run, ready = run_fluid(fabric, folded), simulate(fabric, whole)
        sent = whole.kind != 0
        found = for_each(folded, whole, run.start)
        np.testing.assert_allclose(found[sent], ready.start[sent], rtol=1e-9)
        assert not found[~sent].any()
        bucket = packet_bucket(whole, PACKETS.segment_bytes)
        assert bucket is not None
        fused, _ = bucket_allreduces(whole, bucket, found)
        schedule = Schedule(bucket_bytes=bucket)
        time = simulate_schedule(fabric, whole, schedule).time
        assert time == pytest.approx(simulate(fabric, fused).makespan, rel=1e-9)


def test_a_plan_of_one_task_for_many_is_that_of_all(many):
    plan = to.co_optimize(to.Job(MODEL), CLUSTER, replace(FEW, schedule="fused"))
    assert to.verify_plan(plan).ok
    whole = planned("fused")
    assert plan.iteration_time_s == pytest.approx(whole.iteration_time_s, rel=1e-9)
    assert plan.schedule.bucket_bytes == whole.schedule.bucket_bytes


def test_only_where_it_is_asked_gradients_are_fused():
    given = setting(MODEL, SERVERS, 2, 25.0)
    fused = Problem(given.family, CLUSTER, replace(FEW, schedule="fused")).fused
    assert fused.family.packet_bytes == PACKETS.segment_bytes
    assert fused.unfused.family.packet_bytes == 0.0
    plain = Problem(given.family, CLUSTER, FEW)
    assert plain.fused is plain.unfused is plain


@pytest.mark.parametrize(
    ("kind", "servers", "asked", "expected"),
    [
        ("operators", 128, {}, "plain"),
        ("operators", 129, {}, "fused"),
        ("operators", 129, {"schedule": "plain"}, "plain"),
        ("operators", 129, {"confirm": "packet"}, "plain"),
        ("operators", 129, {"faithful": "paper"}, "plain"),
        ("operators", 129, {"method": "alternating"}, "plain"),
        ("operators", 16, {"schedule": "fused"}, "fused"),
        ("layouts", 129, {}, "plain"),
    ],
)
def test_when_gradients_are_fused_by_default(kind, servers, asked, expected):
    settled = to.SearchOptions(**asked).settled(kind, servers)
    assert settled.schedule == expected
    assert settled.confirm != "packet" or expected == "plain"


def test_fused_is_refused_where_it_says_nothing():
    with pytest.raises(InputError, match="schedule='fused' and confirm='packet'"):
        to.SearchOptions(schedule="fused", confirm="packet")
    with pytest.raises(InputError, match="gradients in buckets anyway"):
        to.co_optimize(small_layout_job(), CLUSTER, to.SearchOptions(schedule="fused"))
