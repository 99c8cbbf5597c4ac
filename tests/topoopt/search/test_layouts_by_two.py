"""Searches of layouts by two processes: the same layouts, bounds, times and plan as by one."""

import pickle
from dataclasses import replace

import pytest
from small_layouts import layout_job
from small_transformers import MIXTRAL

import topoopt as to
from topoopt.base.second import Second, second_process
from topoopt.baselines.baselines import baseline_fabrics
from topoopt.bounds import layouts as bounds_of_layouts
from topoopt.codesign import once
from topoopt.evaluate.problem import Problem
from topoopt.plan.verify import verify_plan
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import default_prices
from topoopt.search import placed_times
from topoopt.search import survey as survey_module
from topoopt.search.layouts import LayoutSearch
from topoopt.search.survey import survey

CLUSTER = to.Cluster(4, 3, "100Gbps")


def problem_of(**choices):
    return Problem(layout_job(**choices).family(4), CLUSTER, SearchOptions(simulated=6))


def found_by(second):
    problem = second.shared["problem"]
    search = LayoutSearch(problem)
    search.second = second
    result = search.run()
    names = ("ideal-switch", "fat-tree", "expander")
    bases = baseline_fabrics(names, CLUSTER, default_prices(), 0, 1e-5)
    search.compare_with(bases)
    compared = [search.best_on(base, result) for base in bases]
    placed = [(one.candidate, one.placement, one.ideal_s) for one in search.placed]
    return placed, result.best.time, result.best.strategy, search.bound(), compared


def test_two_processes_find_what_one_finds(monkeypatch):
    monkeypatch.setattr(survey_module, "_TOGETHER", 4)
    alone = found_by(Second({"problem": problem_of()}))
    with second_process({"problem": problem_of()}) as second:
        assert found_by(second) == alone


class Told(Second):
    """Looks at layouts with another best estimate than is known; what comes last comes first."""

    best = float("inf")

    def share(self, function, arguments, latest=dict):
        tasks = super().share(function, arguments, lambda: {**latest(), "best": self.best})
        for task in reversed(tasks):
            task.result()
        return tasks


@pytest.mark.parametrize("model", [None, MIXTRAL])
@pytest.mark.parametrize("best", [float("inf"), 0.0])
def test_a_survey_depends_on_no_estimate_that_was_not_before(monkeypatch, best, model):
    """Whoever looks at layouts may know fewer estimates, or one that would rule all out."""
    monkeypatch.setattr(survey_module, "_TOGETHER", 5)
    monkeypatch.setattr(survey_module, "_HOPEFUL", 1.05)  # so that many are ruled out
    monkeypatch.setattr(Told, "best", best)
    problem = problem_of(pipeline=(1, 2, 4), recompute=("none", "full"))
    if model is not None:
        problem = replace(problem, family=replace(problem.family, model=model))
    expected, found = survey(problem), survey(problem, Told({"problem": problem}))
    assert len(expected.candidates) < len(expected.bounded)
    assert found.candidates == expected.candidates
    assert found.least.result() == expected.least.result()
    assert (found.layouts, len(found.bounded)) == (expected.layouts, len(expected.bounded))


def test_the_fastest_on_a_fabric_is_the_least_of_both_halves():
    search = LayoutSearch(problem_of())
    result = search.run()
    (base,) = baseline_fabrics(("fat-tree",), CLUSTER, default_prices(), 0, 1e-5)
    search.compare_with([base])
    halved = search.best_on(base, result)
    whole = search.fastest_on(base.fabric)
    assert halved.time == whole[1] and not halved.bounded
    times = [placed_times.switched_s(search.problem, one.placement) for one in search.placed]
    assert times == [one.ideal_s for one in search.placed] == sorted(times)


def test_every_layout_is_tried_before_another_placement_of_one():
    search = LayoutSearch(problem_of())
    search.run()
    tried = search._tried()
    layouts = [placement.layout for placement, _ in tried]
    distinct = len(set(layouts))
    assert distinct < len(layouts) == len(set(tried))
    assert len(set(layouts[:distinct])) == distinct
    assert {place for place, _ in tried} == {one.placement for one in search.placed[:40]}


def test_the_ideal_switch_is_made_once_for_all_layouts(monkeypatch):
    made = []

    def switch(self, hops=1.0, switch=Problem.switch):
        made.append(hops)
        return switch(self, hops)

    monkeypatch.setattr(Problem, "switch", switch)
    search = LayoutSearch(problem_of())
    search.run()
    assert len(search.placed) > 1 and made.count(1.0) == 1


def test_a_family_is_sent_without_what_was_built():
    family = problem_of().family
    family.represented(family.placements(family.layouts()[0])[0])
    assert family._built
    sent = pickle.loads(pickle.dumps(family))
    assert not sent._built and sent.question() == family.question()
    assert sent.layouts() == family.layouts()


def test_an_interruption_of_the_last_bound_keeps_the_plan(monkeypatch):
    calls = []

    def interrupted(problem, bounded):
        calls.append(bounded)
        raise KeyboardInterrupt

    def tightened(*_):
        raise AssertionError("task graphs after an interruption")

    monkeypatch.setattr(survey_module, "lowest_bound", interrupted)
    monkeypatch.setattr(bounds_of_layouts, "tightened_bound", tightened)
    asked = {"options": SearchOptions(simulated=4), "baselines": ()}
    plan = to.co_optimize(layout_job(), CLUSTER, **asked)
    assert plan.search.interrupted and len(calls) == 1
    verify_plan(plan)
    monkeypatch.undo()
    whole = to.co_optimize(layout_job(), CLUSTER, **asked)
    assert plan.iteration_time_s == whole.iteration_time_s
    assert 0.0 < plan.lower_bound_s <= whole.lower_bound_s


@pytest.mark.parametrize(
    "reason", [None, "one core", "few GPUs", "not compiled before", "no cache"]
)
def test_a_second_process_is_started_where_it_is_worth_it(monkeypatch, reason):
    monkeypatch.setattr(once, "granted_cores", lambda: 1 if reason == "one core" else 2)
    monkeypatch.setattr(once, "_MANY_GPUS", 17 if reason == "few GPUs" else 16)
    monkeypatch.setattr(once, "kernels_are_shared", lambda: reason != "no cache")
    warm = reason != "not compiled before"
    monkeypatch.setattr(once, "compiled_cache_is_warm", lambda kernels: warm)
    assert once._worth_two(problem_of().family) == (reason is None)
    operators = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    assert once._worth_two(operators.family(4)) == (reason in (None, "few GPUs"))
    for servers in (1, 64):
        assert not once._worth_two(operators.family(servers))
