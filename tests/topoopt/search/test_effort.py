"""How much work a search spends: levels of effort, and when the last of it gained too little."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plans import small_dlrm, with_less_work

import topoopt as to
from codesign_base import InputError
from topoopt.cli.common import _line
from topoopt.problem.effort import EFFORTS
from topoopt.problem.options import SearchOptions
from topoopt.search.gains import Gains

JOB = to.Job(small_dlrm(2, bottom_layers=1, top_layers=1))
CLUSTER = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")


@pytest.fixture(autouse=True, scope="module")
def part_of_the_work():
    """Of which all levels of effort make something else."""
    less = replace(EFFORTS["normal"], least_work=0.1 * EFFORTS["normal"].least_work)
    with pytest.MonkeyPatch.context() as patch:
        with_less_work(patch, 0.01)
        patch.setitem(EFFORTS, "normal", less)
        yield


def solve(progress=None, **options):
    return to.co_optimize(
        JOB, CLUSTER, SearchOptions(**options), baselines=("ideal-switch",), progress=progress
    )


@pytest.fixture(scope="module")
def solved():
    """What makes a plan of an effort once, with the lines that it printed."""

    @cache
    def made(effort):
        lines = []
        return solve(lambda made: lines.append(_line(made)), effort=effort), lines

    return made


@given(
    met=st.lists(
        st.tuples(st.integers(1, 50), st.floats(0.5, 1.0, exclude_min=True)),
        min_size=1,
        max_size=30,
    ),
    least=st.sampled_from((0.002, 0.02)),
)
def test_a_stage_is_over_where_the_last_tenth_gained_too_little(met, least):
    gains, work, best, seen = Gains(least), 0.0, 1.0, []
    for more, factor in met:
        work, best = work + more, best * factor
        seen.append((work, best))
        gains.note(work, best)
    # What was known when nine tenths of the work were done.
    before = [score for at, score in seen if at <= 0.9 * work]
    assert gains.over == (bool(before) and 1.0 - best / before[-1] < least)
    assert not Gains(0.0, gains.met).over


def test_a_stage_that_is_younger_than_a_tenth_of_all_work_goes_on():
    gains = Gains(0.002)
    assert not gains.over
    gains.note(100.0, 1.0)
    gains.note(110.0, 1.0)
    assert gains.gained is None and not gains.over
    gains.note(112.0, 1.0)
    assert gains.gained == 0.0 and gains.over


@pytest.mark.slow
@pytest.mark.parametrize("effort", EFFORTS)
def test_each_effort_gives_the_same_plan_for_the_same_seed(effort, solved):
    plan, _ = solved(effort)
    assert plan.search.options.effort == effort
    assert solve(effort=effort) == plan


@pytest.mark.parametrize("effort", ["quick", pytest.param("normal", marks=pytest.mark.slow)])
def test_the_options_of_a_plan_reproduce_it(effort, solved):
    """They have the steps that were made for a budget."""
    plan, _ = solved(effort)
    again = to.co_optimize(JOB, CLUSTER, plan.search.options, baselines=("ideal-switch",))
    assert (again.packet_time_s, again.parallelization, again.links, again.search.steps) == (
        plan.packet_time_s, plan.parallelization, plan.links, plan.search.steps,
    )  # fmt: skip


@pytest.mark.slow
def test_more_effort_makes_more_steps(solved):
    quick, normal, thorough = (solved(effort)[0].search.steps for effort in EFFORTS)
    assert quick <= normal < thorough


def test_effort_is_normal_unless_numbers_are_given():
    assert SearchOptions().settled("operators", 16).effort == "normal"
    assert SearchOptions(steps=5).settled("operators", 16).effort == "thorough"
    assert SearchOptions(seconds=5.0).settled("operators", 16).effort == "thorough"
    assert SearchOptions(method="alternating").settled("operators", 16).effort == "thorough"
    both = SearchOptions(steps=5, effort="quick").settled("operators", 16)
    assert (both.steps, both.effort) == (5, "quick")
    assert solve(steps=5, effort="normal").search.steps <= 5


def test_effort_says_how_many_layouts_are_simulated():
    assert [SearchOptions(effort=e).settled("layouts", 4).simulated for e in EFFORTS] == [9, 28, 84]
    for count in (24, 30):
        given = SearchOptions(effort="quick", simulated=count)
        assert given.settled("layouts", 4).simulated == count
    assert SearchOptions().settled("operators", 4).simulated is None


def test_an_unknown_effort_is_refused():
    with pytest.raises(InputError, match="effort is 'much'; choose quick, normal, thorough"):
        SearchOptions(effort="much")


@pytest.mark.slow
def test_the_rate_of_gain_is_shown(solved):
    assert any(line.endswith("% in the last tenth of the work") for line in solved("thorough")[1])


@pytest.mark.slow
def test_a_search_ends_where_its_bound_leaves_nothing_to_gain():
    """And more work gains less than what ended it."""
    job, cluster = to.Job(to.models.get_model("vgg16")), to.Cluster(4, 3, "400Gbps")
    plans = {
        effort: to.co_optimize(
            job, cluster, SearchOptions(effort=effort, confirm="none"), baselines=("fat-tree",)
        )
        for effort in ("normal", "thorough")
    }
    normal, least = plans["normal"], EFFORTS["normal"].least_gain
    assert normal.search.steps == 0 < plans["thorough"].search.steps
    assert normal.iteration_time_s <= (1 + least) * normal.lower_bound_s
    assert normal.iteration_time_s <= (1 + least) * plans["thorough"].iteration_time_s
    ours, theirs = (plan.baselines["fat-tree"].iteration_time_s for plan in plans.values())
    assert ours <= (1 + 3 * least) * theirs
