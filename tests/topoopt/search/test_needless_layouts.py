"""Layouts that compute again what they have room to keep are neither bounded nor simulated."""

from dataclasses import replace

import pytest
from small_layouts import layout_job
from small_transformers import MIXTRAL

import topoopt as to
from parallelism.transformers.schedules import schedule_of
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.layouts import fitting_bounds, layout_bound, least_bound, needless
from topoopt.evaluate.problem import Problem
from topoopt.problem.options import SearchOptions
from topoopt.search.placed_times import switched_s
from topoopt.search.survey import survey

CLUSTER = to.Cluster(4, 3, "100Gbps")


def problem_of(model):
    family = layout_job(pipeline=(1, 2, 4), recompute=("none", "full")).family(4)
    if model is not None:
        family = replace(family, model=model)
    return Problem(family, CLUSTER, SearchOptions())


@pytest.mark.parametrize("model", [None, MIXTRAL])
def test_needless_layouts_have_no_lower_bound_and_are_no_faster(model) -> None:
    problem = problem_of(model)
    family, wirings = problem.family, wirings_of(problem.family, CLUSTER)
    fitting = {each.layout for each in fitting_bounds(family)}
    again = [each for each in fitting if needless(each, fitting)]
    assert len(again) > 10
    some = sorted(again, key=repr)
    for layout in some[:: len(some) // 10]:
        twin = replace(layout, recompute="none")
        assert twin in fitting
        assert not needless(twin, fitting)
        bounds = [layout_bound(family, wirings, each).seconds for each in (twin, layout)]
        assert bounds[0] <= bounds[1]
        for one in family.placements(layout):
            times = [switched_s(problem, replace(one, layout=each)) for each in (twin, layout)]
            assert times[0] <= times[1] * (1.0 + 1e-12)
            estimates = [
                family.estimate(replace(one, layout=each), 5e10) for each in (twin, layout)
            ]
            assert estimates[0] <= estimates[1] * (1.0 + 1e-12)


@pytest.mark.parametrize("model", [None, MIXTRAL])
def test_a_survey_has_no_needless_layouts_and_the_same_bound(monkeypatch, model) -> None:
    problem = problem_of(model)
    found = survey(problem)
    bounded = fitting_bounds(problem.family)
    fitting = {each.layout for each in bounded}
    assert len(found.bounded) == len(bounded)
    assert not any(needless(each.layout, fitting) for each in found.candidates)
    wirings = wirings_of(problem.family, CLUSTER)
    assert found.least.result() == least_bound(problem.family, wirings, bounded)
    monkeypatch.setattr("topoopt.bounds.layouts.needless", lambda *_: False)
    assert found.least.result().seconds == least_bound(problem.family, wirings, bounded).seconds


def test_what_does_not_fit_otherwise_is_computed_again() -> None:
    problem = problem_of(None)
    layouts = [each for each in problem.family.layouts() if each.pipeline == 4]
    kept, again = (
        max(
            max(use.total for use in problem.family.uses(each, schedule_of(each, 16)))
            for each in layouts
            if each.recompute == how
        )
        for how in ("none", "full")
    )
    usable = problem.family.server.accelerator.usable_bytes
    tight = replace(problem.family, memory_reserve=1.0 - 0.5 * (kept + again) / usable)
    found = survey(replace(problem, family=tight))
    assert {"none", "full"} == {each.layout.recompute for each in found.candidates}
