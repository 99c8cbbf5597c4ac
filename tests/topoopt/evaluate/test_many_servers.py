"""What is spared on many servers is slow for certain, and the plans are as good and verified."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from parallelism.rotation import rotated_classes
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from parallelism.taskgraph import traffic_of
from routing import routes as routes_module
from topoopt.baselines.baselines import baseline_fabric
from topoopt.bounds import wired
from topoopt.codesign import once
from topoopt.evaluate import problem as problem_module
from topoopt.evaluate import scheduling, scoring
from topoopt.evaluate.least_times import busiest, busiest_in_sum, link_seconds, sent_seconds
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.evaluate.wirings import built
from topoopt.fabric import collapse
from topoopt.fabric import orders as orders_module
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.orders import alone_seconds, task_orders
from topoopt.fabric.simulation import score
from topoopt.plan.rebuild import rebuild
from topoopt.problem.prices import default_prices
from topoopt.search.methods import search_for
from topoopt.search.on_switch import seeds
from topoopt.studies.setting import setting
from topoopt.topology.fabrics import ideal_switch

MODEL = to.models.dlrm(tables=3)
SERVERS = 6
GIVEN = setting(MODEL, SERVERS, 2, 25.0)
CLUSTER = to.Cluster(SERVERS, 2, "25Gbps")
FEW = to.SearchOptions(steps=20, confirm="none")


@pytest.fixture
def many(monkeypatch):
    """Let a few servers be as many as those whose routes fill memory."""
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bounds_before_tasks_and_routes_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = named_strategies(GIVEN.space)
    configs = list(GIVEN.space.intern(names[list(names)[int(rng.integers(len(names)))]]).configs)
    for index in rng.integers(len(configs), size=4).tolist():
        configs[index] = GIVEN.space.random_config(index, rng)
    strategy = Strategy(tuple(configs))
    family = GIVEN.family
    tasks = family.build(strategy)
    compute = tasks.kind == 0
    busy = np.bincount(tasks.first[compute], tasks.size[compute], SERVERS)
    assert np.allclose(family.builder.device_seconds(strategy), busy, rtol=1e-12)
    assert family.least_seconds(strategy) == pytest.approx(busy.max(), rel=1e-12)
    topology = built(GIVEN.problem().cluster, traffic_of(tasks), None)
    fabric = direct_fabric(topology)
    time = score(fabric, tasks)
    rate = np.array(2 * CLUSTER.port_rate)
    # Only ports know rings that are still to be chosen, only links the ways of transfers.
    for bound in (
        sent_seconds(tasks.port_bytes(), rate, rate), link_seconds(tasks, 2, CLUSTER.port_rate),
        busiest_in_sum(fabric, tasks),
    ):  # fmt: skip
        assert bound <= busiest(fabric, tasks) * (1 + 1e-9) <= time * (1 + 2e-9)


def test_scores_below_the_limit_are_those_of_few_servers(many) -> None:
    problem = GIVEN.problem()
    assert problem.spares
    for name, strategy in GIVEN.strategies().items():
        pair = GIVEN.wired(strategy, name)
        time = score(pair.fabric, GIVEN.family.build(strategy))
        assert Scorer(problem, pair.fabric)(strategy, 2.0 * time) == pytest.approx(time, rel=1e-12)
        assert Scorer(problem, pair.fabric)(strategy, 0.5 * time) > 0.5 * time


@pytest.mark.parametrize("name", ["rail", "rail-only", "leaf-spine:group=1:oversubscription=3"])
def test_bounds_on_fabrics_with_merged_links_are_of_all_their_links(many, name) -> None:
    """One rail stands for all of them there, and a spine's link for that of a server alone."""
    base = baseline_fabric(name, CLUSTER, default_prices(), 0)
    problem = GIVEN.problem()
    for strategy in GIVEN.strategies().values():
        tasks = GIVEN.family.build(strategy)
        time = score(base.fabric, tasks)
        assert Scorer(problem, base.fabric)(strategy, 1.01 * time) == pytest.approx(time, rel=1e-12)
        assert wired.topology_bound(base.fabric, tasks).seconds <= time


def test_plans_of_many_servers_are_verified(many, monkeypatch) -> None:
    monkeypatch.setattr(scoring, "_EXACT_SERVERS", 3)  # their scores are near
    plan = to.co_optimize(to.Job(MODEL), CLUSTER, FEW, baselines=("ideal-switch",))
    assert plan.routing != "ecmp" or plan.routes.pairs == []
    assert to.verify_plan(plan).ok
    assert not to.verify_plan(replace(plan, iteration_time_s=plan.iteration_time_s * 1.01)).ok


@pytest.mark.slow
def test_plans_of_one_task_for_many_are_those_of_whole_graphs(many, monkeypatch) -> None:
    job = to.Job(to.models.dlrm(tables=SERVERS))
    whole = to.co_optimize(job, CLUSTER, FEW, baselines=("ideal-switch",))
    monkeypatch.setattr(collapse, "COLLAPSE_FROM", 0)
    family = job.family(SERVERS)
    space = StrategySpace(family.builder.graph, SERVERS, family.batch)
    tasks = family.build(named_strategies(space)["hybrid"])
    assert rotated_classes(tasks, 1) is not None
    plan = to.co_optimize(job, CLUSTER, FEW, baselines=("ideal-switch",))
    assert to.verify_plan(plan).ok
    for name, seconds in whole.named_strategies_s.items():
        if seconds is not None and name in plan.named_strategies_s:
            assert plan.named_strategies_s[name] == pytest.approx(seconds, rel=1e-9)
    assert to.verify_plan(whole).ok


def test_a_plan_says_that_its_time_is_near(many, monkeypatch) -> None:
    monkeypatch.setattr(scheduling, "MOST_CROSSINGS", 0)
    plan = to.co_optimize(to.Job(MODEL), CLUSTER, FEW, baselines=())
    assert len([note for note in plan.notes if "off by about 0.1 %" in note]) == 1
    assert to.verify_plan(plan).ok
    rebuilt = rebuild(plan)
    exact = score(rebuilt.fabric, GIVEN.family.build(rebuilt.strategy))
    assert plan.iteration_time_s == pytest.approx(exact, rel=5e-3)


def test_what_cannot_be_wired_is_not_sought(many, monkeypatch) -> None:
    problem, strategy = GIVEN.problem(), GIVEN.strategies()["hybrid"]
    switch = Fabric("ideal", *ideal_switch(SERVERS, 1e10, 1e-6), {})
    seek = Scorer(problem, switch, wired_later=True)
    time = Scorer(problem, switch)(strategy, 1e9)
    assert seek(strategy, 1e9) == time < 1e9
    monkeypatch.setattr(scoring, "MOST_MOVES", 0)
    assert seek(strategy, 1e9) == float("inf")
    assert Scorer(problem, switch)(strategy, 1e9) == time
    assert seek(strategy) == time  # what is known is not left out


def test_tables_of_the_best_start_are_tried_with_all_else_of_the_others(many) -> None:
    problem, space = GIVEN.problem(), GIVEN.space
    search = search_for(problem)
    named = {name: search.space.intern(each) for name, each in named_strategies(space).items()}
    best = named["sharded-tables-2"]
    score = search.quick_scorer(search.ideal)
    found = {strategy for _, strategy in seeds(search, score, [best])}
    tables = [i for i, op in enumerate(MODEL.operators) if op.sparse]
    others = [name for name in named if name.startswith("tensor")]
    assert others
    for name in others:
        mixed = named[name].replace([(i, best.configs[i]) for i in tables])
        assert mixed not in named.values() and search.space.intern(mixed) in found


def test_uses_of_links_in_parts_are_those_at_once(monkeypatch) -> None:
    tasks = GIVEN.family.build(GIVEN.strategies()["hybrid"])
    fabric = direct_fabric(built(GIVEN.problem().cluster, traffic_of(tasks), None))
    orders = task_orders(fabric, tasks)
    whole = alone_seconds(orders)
    monkeypatch.setattr(orders_module, "MADE_AT_ONCE", 5)
    assert np.array_equal(alone_seconds(orders), whole)
    monkeypatch.setattr(wired, "MOST_USES", 0)
    load = (link_bytes(fabric, tasks) / fabric.network.capacity).max()
    assert wired.collective_bound(fabric, tasks).terms["link"] == pytest.approx(load, rel=0.05)
    # Counted beside the payload are headers.
    assert wired.collective_bound(fabric, tasks).terms["link"] >= load * (1 - 1e-9)
    moves = np.flatnonzero(tasks.kind == 1)
    begin, end = orders.begin[moves], orders.end[moves]
    assert scheduling.crossings(fabric, tasks) == (end - begin).sum() > 0


@pytest.mark.slow
def test_fabrics_that_take_too_much_work_are_bounded_from_below(many, monkeypatch) -> None:
    monkeypatch.setattr(problem_module, "BASELINE_WORK", 1.0)
    monkeypatch.setattr(once, "granted_cores", lambda: 1)  # another process has its own
    plan = to.co_optimize(to.Job(MODEL), CLUSTER, FEW)
    bounded = {name: base for name, base in plan.baselines.items() if base.bounded}
    assert bounded
    assert to.verify_plan(plan).ok
    for name, base in bounded.items():
        assert f"{name} takes at least" in " ".join(plan.notes)
        told = replace(plan, baselines=plan.baselines | {name: replace(base, bounded=False)})
        assert not to.verify_plan(told).ok


def test_layouts_are_spared_nothing() -> None:
    assert not Problem(GIVEN.family, CLUSTER).spares
    assert Problem(GIVEN.family, CLUSTER).baseline_work == float("inf")
