"""Layouts of as many stages as the fastest wired one, which a switch does not put first."""

import pytest

import topoopt as to
from parallelism.transformers.choices import Choices
from topoopt.evaluate.problem import Problem
from topoopt.problem.options import SearchOptions
from topoopt.search import further_layouts, survey
from topoopt.search.layouts import LayoutSearch

CHOICES = Choices(tensor=(1, 2, 4), zero=(1,), schedules=("1f1b", "eager-1f1b"))


@pytest.fixture(scope="module")
def problem():
    job = to.Job(to.load_transformer("llama3-8b"), global_batch=64, choices=CHOICES)
    return Problem(job.family(8), to.Cluster(8, 2, "25Gbps"), SearchOptions(simulated=1), 0)


def test_they_are_simulated_after_the_first_wirings(problem, monkeypatch) -> None:
    found = LayoutSearch(problem).run()
    with monkeypatch.context() as without:
        without.setattr("topoopt.search.layouts.of_depth", lambda *_: [])
        other = LayoutSearch(problem).run()
    assert other.steps < found.steps
    assert found.best.time < other.best.time
    assert found.best.strategy.layout.pipeline == other.best.strategy.layout.pipeline


def test_they_differ_and_are_estimated_to_be_as_fast(problem) -> None:
    candidates = survey.survey(problem).candidates
    like = candidates[2]
    found = further_layouts.of_depth(candidates, like.layout, 10.0, [like.placement])
    assert 2 < len(found) <= further_layouts._ACROSS
    assert {each.layout.pipeline for each in found} == {like.layout.pipeline}
    assert all(each.estimate_s < 1.05 * like.estimate_s for each in found)
    assert all(each.bound.seconds < 10.0 for each in found)
    assert like not in found
    # What is simulated already is not chosen again, but the next ones are.
    known = [like.placement, *(each.placement for each in found[:2])]
    following = further_layouts.of_depth(candidates, like.layout, 10.0, known)
    assert following[: len(found) - 2] == found[2:]
    least = min(each.bound.seconds for each in found)
    assert further_layouts.of_depth(candidates, like.layout, least, [like.placement]) == []
