"""Wirings that take too much work to simulate: bounded, never taken, and counted in the plan."""

from dataclasses import replace

import pytest
from small_layouts import FEW, layout_job
from small_plans import assert_valid, planned

import topoopt as to
from codesign_base import InfeasibleError
from parallelism.transformers import family as family_module
from topoopt.bounds.wired import topology_bound
from topoopt.evaluate import problem as problem_module
from topoopt.evaluate import wirings
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer
from topoopt.search.crossed import crossed
from topoopt.search.layouts import LayoutSearch

CLUSTER = to.Cluster(4, 3, "100Gbps")


@pytest.fixture
def large(monkeypatch):
    """Treat small layouts as large ones: one task of each kind, and little work a simulation."""

    def limit(work):
        monkeypatch.setattr(family_module, "REDUCED_FROM", 0)
        monkeypatch.setattr(Problem, "candidate_work", work)

    return limit


def searched():
    return LayoutSearch(
        Problem(layout_job(**FEW).family(4), CLUSTER, to.SearchOptions(simulated=4))
    )


@pytest.mark.slow
def test_a_plan_counts_what_was_not_simulated_and_verifies(large):
    large(2e3)
    found = searched().run()
    assert found.unsimulated > 1
    plan = planned(layout_job(**FEW), CLUSTER, simulated=4, baselines=())
    said = [note for note in plan.notes if "not simulated" in note]
    assert len(said) == 1
    assert said[0].startswith(f"{found.unsimulated} wirings with routes were not simulated")
    assert_valid(plan)


def test_enough_work_says_nothing():
    found = searched().run()
    assert found.unsimulated == 0
    plan = planned(layout_job(**FEW), CLUSTER, simulated=4, baselines=())
    assert not [note for note in plan.notes if "not simulated" in note]


def test_what_is_taken_was_simulated(large):
    large(2e3)
    search = searched()
    result = search.run()
    for pair in result.others:
        tasks = search.family.build(pair.strategy)
        assert pair.time == pytest.approx(Scorer(search.problem, pair.fabric).timed(tasks))
        assert pair.time >= topology_bound(pair.fabric, tasks).seconds


def test_without_any_simulation_it_is_refused(large):
    large(1.0)
    with pytest.raises(InfeasibleError, match=r"wirings of 4 servers .* give fewer servers"):
        searched().run()


def test_a_schedule_of_compute_has_the_same_budget(large):
    options = to.SearchOptions(simulated=4, schedule="compute")
    search = LayoutSearch(Problem(layout_job(**FEW).family(4), CLUSTER, options))
    found = search.run()
    assert found.unsimulated == 0
    scorer = Scorer(search.problem, found.best.fabric)
    tasks = search.family.build(found.best.strategy)
    time = scorer.simulate(tasks)
    scorer.budget = 1.0
    assert scorer.simulate(tasks) <= time * (1 + 1e-9)
    assert scorer.bounded
    large(1.0)
    with pytest.raises(InfeasibleError, match=r"schedule is 'compute'.* 4 servers; give"):
        search.run()


def test_the_next_layouts_are_tried_where_the_hopeful_cannot_be_simulated(large, monkeypatch):
    large(2e3)
    search, wire, tried = searched(), Rewirer.wire, []

    def late(self, strategy, *args, **named):
        tried.append(strategy)
        return wire(self, strategy, *args, **named) if len(tried) > 3 else None

    monkeypatch.setattr("topoopt.search.layouts._WIRED", 2)
    monkeypatch.setattr(Rewirer, "wire", late)
    monkeypatch.setattr("topoopt.search.layouts.crossed", lambda *_: [])
    # Only those that a switch likes, which are known before any is wired.
    for more in ("data_across", "of_depth"):
        monkeypatch.setattr(f"topoopt.search.layouts.{more}", lambda *_: [])
    result = search.run()
    assert tried == [one.placement for one in search.placed][: len(tried)]
    assert len(tried) >= 4
    assert result.best.strategy == tried[-1]


def test_crossed_pairs_are_simulated_too(large):
    problem = searched().problem
    placements = [problem.family.placements(each)[0] for each in problem.family.layouts()]
    slow, *others = sorted(placements, key=lambda each: -problem.family.estimate(each, 4e10))
    pair = Rewirer(problem).wire(slow, "test")
    worth = [(other, 0.0) for other in others]
    assert crossed(problem, [pair], worth)
    large(1.0)
    assert crossed(problem, [pair], worth) == []


def test_work_is_limited_beyond_tables_of_all_pairs(monkeypatch):
    layouts = Problem(layout_job(**FEW).family(4), CLUSTER)
    operators = Problem(to.Job(to.models.dlrm(tables=4)).family(4), CLUSTER)
    assert layouts.candidate_work == operators.candidate_work == float("inf")
    monkeypatch.setattr(problem_module, "tabled", lambda _: False)
    assert layouts.candidate_work == problem_module.BASELINE_WORK
    assert operators.candidate_work == float("inf")


def test_wirings_without_rings_of_large_groups_are_not_crossed(monkeypatch):
    problem = searched().problem
    slow, *others = sorted(
        (problem.family.placements(each)[0] for each in problem.family.layouts()),
        key=lambda each: -problem.family.estimate(each, 4e10),
    )
    pair = Rewirer(problem).wire(slow, "test")
    monkeypatch.setattr(wirings, "tabled", lambda _: False)
    monkeypatch.setattr(wirings, "CHOSEN_UP_TO", 1)
    found = crossed(problem, [pair], [(other, 0.0) for other in others])
    wired = {ring.group for ring in pair.topology.rings}
    assert found
    assert all(set(problem.family.build(each.strategy).groups) <= wired for each in found)
    bare = replace(pair, topology=replace(pair.topology, rings=()))
    reduced = [o for o in others if any(len(g) > 1 for g in problem.family.build(o).groups)]
    assert reduced
    assert crossed(problem, [bare], [(other, 0.0) for other in reduced]) == []
