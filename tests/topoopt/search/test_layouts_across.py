"""Layouts with only data parallelism across servers, which suit wires better than a switch."""

import pytest

import topoopt as to
from parallelism.transformers.choices import Choices
from topoopt.evaluate.problem import Problem
from topoopt.problem.options import SearchOptions
from topoopt.search import further_layouts, survey
from topoopt.search.layouts import LayoutSearch

CHOICES = Choices(
    tensor=(1,), context=(1,), pipeline=(1, 2, 4), zero=(1,), schedules=("1f1b", "interleaved")
)


@pytest.fixture(scope="module")
def problem():
    job = to.Job(to.load_transformer("llama3-8b"), global_batch=128, choices=CHOICES)
    return Problem(job.family(8), to.Cluster(8, 2, "25Gbps"), SearchOptions(simulated=1), 0)


def test_they_are_simulated_after_what_a_switch_likes(problem, monkeypatch) -> None:
    search = LayoutSearch(problem)
    found = search.run()
    assert found.best.strategy.data_across
    assert len(found.best.topology.rings) == 2
    with monkeypatch.context() as without:
        without.setattr(further_layouts, "_ACROSS", 0)
        assert LayoutSearch(problem).run().best.time > 1.05 * found.best.time
    # The other map of layers of each is, too.
    across = [one.placement.layout for one in search.placed if one.placement.data_across]
    maps = [layout for layout in across if layout.schedule == "interleaved"]
    assert len({layout.stage_layers for layout in maps}) > 1


def test_they_differ_and_may_all_be_faster(problem) -> None:
    candidates = survey.survey(problem).candidates
    below = 12.0
    first = further_layouts.data_across(problem, candidates, below, [])
    assert len(first) == further_layouts._ACROSS
    assert all(each.placement.data_across and each.bound.seconds < below for each in first)
    estimates = [each.estimate_s for each in first]
    assert estimates == sorted(estimates) and estimates[-1] < 1.05 * below
    # What is simulated already is not chosen again, but the next ones are.
    known = [each.placement for each in first[:3]]
    following = further_layouts.data_across(problem, candidates, below, known)
    assert following[:5] == first[3:]
    assert further_layouts.data_across(problem, candidates, 1e-3, []) == []
