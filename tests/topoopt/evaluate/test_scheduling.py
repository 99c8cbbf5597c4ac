"""Schedules: by hand, over every order of small graphs, against bounds, and in plans."""

from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product

import numpy as np
import pytest
from fabric_oracle import circulant, star
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import BATCH, FakeCompute, FakeServer, family_of, jobs
from small_plans import assert_valid, planned, shared_document, small_dlrm, small_mlp, solve

import topoopt as to
from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.taskgraph import Phase, TaskGraph, TaskKind, edges_of
from topoopt.bounds.bounds import scheduled_bound, strategy_bound
from topoopt.bounds.gap import plan_bounds
from topoopt.bounds.relaxation import Wirings
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.evaluate import schedule_search
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.schedule_search import TRIED_PAIRS, plainly, schedule_pairs
from topoopt.evaluate.scheduling import (
    chained_tasks,
    ordered_tasks,
    simulate_schedule,
)
from topoopt.fabric import Fabric, compute_on_critical_path, simulate
from topoopt.formats.fbuf_export import Updates
from topoopt.formats.fbuf_plan import plan_fbuf
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild
from topoopt.plan.verify import verify_plan
from topoopt.problem.budget import Budget
from topoopt.problem.cluster import Cluster
from topoopt.problem.options import SearchOptions
from topoopt.problem.schedule import COMPUTE_ORDERS, NETWORK_ORDERS, ORDERED, OVERLAPS, Schedule
from topoopt.search.confirm import confirmed_times
from topoopt.search.driver import run
from topoopt.search.methods import search_for
from topoopt.studies.workload import fbuf_workload
from topoopt.topology.fabrics import ideal_switch

C, T, A = TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE
SCHEDULES = [
    Schedule(overlap, compute, network, bucket, count)
    for overlap, compute, network, bucket, count in product(
        OVERLAPS, COMPUTE_ORDERS, NETWORK_ORDERS, (None, 5e3), (1, 2)
    )
]


def two_layers(first, second):
    """Two layers replicated on two servers, whose gradients have so many bytes."""
    tasks, edges = [], []
    for server in range(2):
        base = 4 * server
        tasks += [(C, server, -1, seconds, 0.0) for seconds in (1.0, 1.0, 2.0, 2.0)]
        edges += [(base, base + 1), (base + 1, base + 2), (base + 2, base + 3)]
        edges += [(base + 3, 8), (base + 2, 9)]
    tasks += [(A, 0, -1, first, 0.0), (A, 0, -1, second, 0.0)]
    graph = TaskGraph.from_lists(2, tasks, edges, ((0, 1),))
    F, B, S = Phase.FORWARD, Phase.BACKWARD, Phase.SYNCHRONISE
    return replace(
        graph,
        operator=np.array([0, 1, 1, 0] * 2 + [0, 1]),
        phase=np.array([F, F, B, B] * 2 + [S, S], dtype=np.int64),
        part=np.array([0] * 4 + [1] * 4 + [0, 0]),
    )


@pytest.mark.parametrize(
    ("first", "second", "barrier", "period"),
    [
        # The first layer's AllReduce lies between its backward and its next forward pass, with
        # the second layer's, which began at 4: nothing is left to overlap.
        (3.0, 2.0, 9.0, 9.0),
        # At 6 the second one still has 3 to go; the first takes its half until 8, and the next
        # forward pass begins then, the second layer's at 10 when its weights are there.
        (1.0, 5.0, 10.0, 9.0),
        (0.0, 0.0, 6.0, 6.0),
    ],
)
def test_two_layers_by_hand(first, second, barrier, period):
    tasks, fabric = two_layers(first, second), star(2)
    assert simulate_schedule(fabric, tasks, Schedule()).time == pytest.approx(barrier)
    scheduled = simulate_schedule(fabric, tasks, Schedule(overlap="next-forward"))
    assert scheduled.time == pytest.approx(period)
    assert scheduled.computing == pytest.approx(6.0)


def test_a_bucket_pays_fewer_rounds_and_waits_for_its_last_gradient():
    tasks = two_layers(1.0, 1.0)
    fabric = circulant(2, (1,), latency=0.5)
    # Alone: 2 rounds of 0.5 bytes and 0.5 s. The second layer's runs from 4 to 6.
    assert simulate_schedule(fabric, tasks, Schedule()).time == pytest.approx(8.0)
    fused = simulate_schedule(fabric, tasks, Schedule(bucket_bytes=2.0))
    # Both together: 2 rounds of 1 byte and 0.5 s, from 6 on.
    assert fused.time == pytest.approx(9.0)
    assert np.count_nonzero(fused.tasks.kind == A) == 1
    assert simulate_schedule(fabric, tasks, Schedule(bucket_bytes=1.0)).time == pytest.approx(8.0)


def test_the_critical_path_is_the_best_of_all_orders():
    """One device: three computations with transfers after them, in every order."""
    sent = (1.0, 6.0, 3.0)
    tasks = [(C, 0, -1, 2.0, 0.0)] * 3 + [(T, 0, 1, size, 0.0) for size in sent]
    graph = TaskGraph.from_lists(2, tasks, [(i, 3 + i) for i in range(3)])
    times = [
        simulate(star(2), replace(graph, priority=np.array([*order, 0, 0, 0]))).makespan
        for order in permutations(range(3))
    ]
    best = simulate_schedule(star(2), graph, Schedule(compute="critical-path")).time
    # The link is never idle after 2; with the shortest transfer first it is, from 3 to 4.
    assert best == pytest.approx(min(times)) == pytest.approx(12.0)
    assert max(times) == pytest.approx(13.0)


def built(job, microbatches=1):
    graph, strategy, servers = job
    builder = TaskGraphBuilder(graph, FakeCompute(), FakeServer(), servers, BATCH)
    return builder, family_of(builder).microbatched(strategy, microbatches)


def fabric_of(servers):
    steps = (1, 2) if servers > 2 else (1,)
    return circulant(servers, steps, capacity=1e3, latency=1e-3)


@given(jobs(sizes=(2, 3, 4, 6)))
@settings(max_examples=60, deadline=None)
def test_plain_is_the_simulation_as_it_was(job):
    _, tasks = built(job)
    fabric = fabric_of(job[2])
    scheduled, run = simulate_schedule(fabric, tasks, Schedule.plain()), simulate(fabric, tasks)
    assert scheduled.time == run.makespan
    assert scheduled.computing == compute_on_critical_path(tasks, run)
    assert scheduled.tasks.priority is None


@given(jobs(sizes=(2, 3, 4, 6)), st.sampled_from(SCHEDULES))
@settings(max_examples=60, deadline=None)
def test_no_schedule_beats_its_bounds(job, schedule):
    degrees = {config.sample for config in job[1].configs}
    if any(BATCH % (schedule.microbatches * degree) for degree in degrees):
        schedule = replace(schedule, microbatches=1)
    builder, tasks = built(job, schedule.microbatches)
    fabric = fabric_of(job[2])
    scheduled = simulate_schedule(fabric, tasks, schedule)
    steady = schedule.streaming
    degree = 2 if job[2] > 2 else 1
    for bound in (
        scheduled_bound(
            builder, Wirings(job[2], degree, 1e3, 1e-3), schedule.microbatches, steady=steady
        ),
        strategy_bound(scheduled.tasks, degree, 1e3, 1e-3, steady=steady),
        topology_bound(fabric, scheduled.tasks, steady=steady),
        routes_bound(fabric, scheduled.tasks, steady=steady),
        collective_bound(fabric, scheduled.tasks, steady=steady),
    ):
        assert bound.seconds <= scheduled.time


@given(jobs(sizes=(2, 3, 4, 6)), st.sampled_from(SCHEDULES), st.floats(0.5, 1.5))
@settings(max_examples=40, deadline=None)
def test_a_limit_leaves_shorter_iterations_as_they_are(job, schedule, share):
    schedule = replace(schedule, microbatches=1)
    _, tasks = built(job)
    fabric = fabric_of(job[2])
    whole = simulate_schedule(fabric, tasks, schedule)
    assert simulate_schedule(fabric, tasks, schedule, whole.time).time == whole.time
    cut = simulate_schedule(fabric, tasks, schedule, share * whole.time)
    if share >= 1.0 or schedule.streaming:  # periods are known only once they have passed
        assert cut.time in (whole.time, np.inf)
        assert share < 1.0 or cut.time == whole.time
    else:
        assert cut.time == np.inf
    assert cut.resolved <= whole.resolved


@lru_cache
def searched_dlrm():
    return searched(small_dlrm())


def searched(model, servers=4, degree=2):
    """Return the best pairs of a short search, its family and its cluster."""
    cluster, job = Cluster(servers, degree, "100Gbps"), to.Job(model)
    problem = Problem(job.family(servers), cluster, SearchOptions(method="alternating"))
    return run(search_for(problem), Budget(steps=20)).others, problem.family, cluster


@pytest.mark.slow
@pytest.mark.parametrize("model", [small_dlrm(), small_mlp()])
def test_a_chosen_schedule_is_at_least_as_good_as_any_single_choice(model):
    pairs, family, cluster = searched(model)
    plain = plainly(family, pairs[0])
    assert plain.simulated.time == pairs[0].time
    kept = schedule_pairs(family, pairs, "barrier")
    free = schedule_pairs(family, pairs, "auto")
    assert not kept.schedule.streaming
    assert free.simulated.time <= kept.simulated.time <= pairs[0].time
    assert kept.tried > TRIED_PAIRS
    for alone in (
        Schedule(compute="critical-path"),
        Schedule(network="transfers-first"),
        Schedule(bucket_bytes=1e6),
        Schedule(microbatches=2),
    ):
        tasks = family.microbatched(pairs[0].strategy, alone.microbatches)
        single = simulate_schedule(pairs[0].fabric, tasks, alone)
        assert kept.simulated.time <= single.time * (1 + 2e-4)
    for found in (kept, free):
        pair, schedule = found.pair, found.schedule
        tasks = family.microbatched(pair.strategy, schedule.microbatches)
        assert simulate_schedule(pair.fabric, tasks, schedule).time == found.simulated.time
        bounds = plan_bounds(
            family, cluster, pair.strategy, pair.fabric, found.simulated.tasks,
            found.simulated.time,
            schedule=schedule,
        )  # fmt: skip
        parts = sum(part.seconds for part in bounds.parts)
        assert bounds.everything.seconds + parts == pytest.approx(found.simulated.time)
        assert bounds.everything.seconds <= found.simulated.time


def test_schedules_are_tried_while_there_is_work_left(monkeypatch):
    pairs, family, _ = searched_dlrm()
    found = []
    for most in (0.0, 4e4, 1e9):
        monkeypatch.setattr(schedule_search, "MOST_WORK", most)
        found.append(schedule_pairs(family, pairs, "auto"))
    none, some, all_of_them = found
    assert none.schedule == Schedule.plain() and none.simulated.time == pairs[0].time
    assert none.tried == len(pairs[:TRIED_PAIRS])
    assert none.tried < some.tried < all_of_them.tried
    assert none.simulated.time >= some.simulated.time >= all_of_them.simulated.time


@pytest.mark.slow
@given(st.sampled_from(SCHEDULES), st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_the_bound_over_everything_holds_for_what_a_search_finds(schedule, number):
    pairs, family, cluster = searched_dlrm()
    pair = pairs[number % len(pairs)]
    tasks = family.microbatched(pair.strategy, schedule.microbatches)
    scheduled = simulate_schedule(pair.fabric, tasks, schedule)
    bounds = plan_bounds(
        family,
        cluster,
        pair.strategy,
        pair.fabric,
        scheduled.tasks,
        scheduled.time,
        schedule=schedule,
    )
    assert bounds.everything.seconds <= scheduled.time


@pytest.mark.parametrize("scheduling", ["barrier", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_plan_with_a_schedule_is_verified(scheduling):
    # Only plain plans take over what is found for other fabrics.
    plain = solve(small_dlrm(), 4, confirm="none", baselines=())
    plan = solve(small_dlrm(), 4, schedule=scheduling)
    assert_valid(plan)
    assert plan.iteration_time_s <= plain.iteration_time_s
    assert plan.iteration_time_s <= plan.schedule.plain_time_s
    assert rebuild(plan).simulated.time == plan.iteration_time_s
    assert plain.schedule.plain_time_s == plain.iteration_time_s
    assert rebuild(plain).schedule == Schedule.plain()
    if rebuild(plan).schedule != Schedule.plain():
        assert any("published results do not use" in note for note in plan.notes)
        assert f"schedule: {rebuild(plan).schedule.describe()}" in plan.summary(details=True)


@pytest.mark.slow
def test_the_order_of_compute_is_searched_confirmed_and_exported(tmp_path):
    job = to.Job(to.models.bert(blocks=1, hidden=256, heads=4, sequence=64, batch_per_gpu=4))
    cluster = Cluster(4, 2, "25Gbps")
    asked = {"seed": 0, "steps": 200, "baselines": ()}
    plan = planned(job, cluster, schedule="compute", confirm="packet", **asked)
    assert_valid(plan)
    built = rebuild(plan)
    assert built.schedule == ORDERED
    assert plan.search.options.compute_order == "critical-path"
    assert built.simulated.time == plan.iteration_time_s
    tasks, _ = ordered_tasks(built.fabric, built.tasks(), ORDERED)
    assert tasks.priority is not None
    trains = confirmed_times(built.fabric, tasks, plan.seed)
    assert plan.packet_time_s == trains.mean
    # Whoever serves devices first in first out keeps the order that the file holds.
    file = plan_fbuf(plan, updates=Updates.OMIT)
    assert file.tasks <= tasks.tasks
    work = fbuf_workload(file, "file")
    own = work.own_fabric(file.net_bandwidth, cluster.hop_latency)
    replayed = simulate(own, work.tasks).makespan
    # The file has no optimizer steps, which end the iteration.
    steps = tasks.size[tasks.phase == Phase.UPDATE].sum()
    assert plan.iteration_time_s - steps <= replayed * (1 + 1e-6)
    assert replayed <= plan.iteration_time_s * (1 + 1e-6)
    other = planned(job, cluster, **asked)
    assert other.search.options.compute_order == "ready"
    assert rebuild(other).schedule == Schedule.plain()


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_chained_tasks_keep_the_order_without_priorities(seed, updates):
    rng = np.random.default_rng(seed)
    count = 24
    kinds = [(TaskKind.COMPUTE, int(rng.integers(3)), -1, float(rng.integers(0, 4)), 0.0)
             for _ in range(count)]  # fmt: skip
    edges = sorted({(a, b) for a, b in rng.integers(0, count, (30, 2)).tolist() if a < b})
    tasks = TaskGraph.from_lists(3, kinds, edges)
    step = np.zeros(count, dtype=np.bool_)
    if updates:  # nothing waits for optimizer steps, which are shorter than what is before them
        step = np.diff(tasks.successor_offsets) == 0
        sizes = np.where(step, 0.25, tasks.size + 1.0)
        tasks = replace(tasks, size=sizes, phase=np.where(step, Phase.UPDATE, tasks.phase))
    fabric = Fabric("switch", *ideal_switch(3, 1e9, 0.0))
    own, _ = ordered_tasks(fabric, tasks, ORDERED)
    chained = chained_tasks(fabric, tasks, ORDERED)
    assert chained.priority is None
    expected, found = simulate(fabric, own), simulate(fabric, chained)
    np.testing.assert_allclose(found.start[~step], expected.start[~step])
    np.testing.assert_allclose(found.finish[~step], expected.finish[~step])
    assert found.makespan == pytest.approx(expected.makespan)
    before, after = edges_of(chained)
    assert set(zip(before.tolist(), after.tolist(), strict=True)) >= set(edges)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("overlap", "next-forward", "iteration_time_s"),
        ("microbatches", 2, "iteration_time_s"),
        ("microbatches", 7, "cannot be"),
        ("bucket_bytes", 0.0, "bucket size"),
        ("bucket_bytes", 100e6, "iteration_time_s"),
        ("bucket_bytes", 1.0, "schedule.bucket_bytes is 1; a search tries 1e+06"),
        ("plain_time_s", 1.0, "plain_time_s"),
        ("network", "sometimes", "schedule.network"),
        ("tried", 3, "schedule.tried"),
    ],
)
def test_a_changed_schedule_is_refused(field, value, says):
    import json

    document = shared_document()
    document["schedule"][field] = value
    document["search"]["options"]["schedule"] = "auto"  # under which it could have been chosen
    try:
        verdict = verify_plan(parse_plan(json.dumps(document)))
    except InputError as error:
        assert says in str(error)
        return
    assert not verdict.ok
    assert any(says in failure for failure in verdict.failures)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"schedule": "best"}, "schedule is 'best'; choose plain, fused, compute, barrier, auto"),
        ({"schedule": "auto", "confirm": "packet"}, "give one of them"),
    ],
)
def test_wrong_schedules_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        planned(to.Job(small_dlrm()), Cluster(4, 2, "100Gbps"), **arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"overlap": "none"}, "overlap is 'none'; choose barrier, next-forward"),
        ({"compute": "lifo"}, "compute order is 'lifo'"),
        ({"network": "first"}, "network priority is 'first'"),
        ({"bucket_bytes": -1.0}, "bucket size is -1.0 bytes"),
        ({"microbatches": 0}, "microbatches is 0"),
    ],
)
def test_wrong_fields_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        Schedule(**arguments)


def test_schedules_are_described():
    assert Schedule.plain().describe() == "plain"
    full = Schedule("next-forward", "critical-path", "transfers-first", 25e6, 4)
    assert full.describe() == (
        "overlap with the next forward pass, 4 microbatches, compute by critical path, "
        "network transfers-first, buckets of 25 MB"
    )
