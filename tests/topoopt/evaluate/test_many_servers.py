"""What is spared on many servers is slow for certain, and the plans are as good and verified."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.strategy import Strategy
from parallelism.taskgraph import traffic_of
from routing import routes as routes_module
from topoopt.evaluate import problem as problem_module
from topoopt.evaluate.least_times import busiest, busiest_in_sum, port_seconds
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer, direct_fabric
from topoopt.evaluate.setting import setting
from topoopt.fabric.simulate import score

MODEL = to.models.dlrm(tables=3)
SERVERS = 6
GIVEN = setting(MODEL, SERVERS, 2, 25.0)
CLUSTER = to.Cluster(SERVERS, 2, "25Gbps")
FEW = to.SearchOptions(steps=60, confirm="none")


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
    topology = Rewirer(GIVEN.problem())._build(traffic_of(tasks), None)
    fabric = direct_fabric(topology)
    time = score(fabric, tasks)
    rate = np.array(2 * CLUSTER.port_rate)
    assert port_seconds(tasks, rate, rate) <= busiest_in_sum(fabric, tasks) * (1 + 1e-9)
    assert busiest_in_sum(fabric, tasks) <= busiest(fabric, tasks) * (1 + 1e-9) <= time * (1 + 2e-9)


def test_scores_below_the_limit_are_those_of_few_servers(many) -> None:
    problem = GIVEN.problem()
    assert problem.spares
    for name, strategy in GIVEN.strategies().items():
        pair = GIVEN.wired(strategy, name)
        time = score(pair.fabric, GIVEN.family.build(strategy))
        assert Scorer(problem, pair.fabric)(strategy, 2.0 * time) == pytest.approx(time, rel=1e-12)
        assert Scorer(problem, pair.fabric)(strategy, 0.5 * time) > 0.5 * time


def test_plans_of_many_servers_are_verified(many) -> None:
    plan = to.co_optimize(to.Job(MODEL), CLUSTER, FEW)
    assert plan.routing != "ecmp" or plan.routes.pairs == []
    assert to.verify_plan(plan).ok
    assert not to.verify_plan(replace(plan, iteration_time_s=plan.iteration_time_s * 1.01)).ok


def test_fabrics_that_take_too_much_work_are_bounded_from_below(many, monkeypatch) -> None:
    monkeypatch.setattr(problem_module, "BASELINE_WORK", 1.0)
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
