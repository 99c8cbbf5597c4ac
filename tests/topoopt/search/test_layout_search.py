"""Which layouts a search simulates: published ones always, others within a memory budget."""

from dataclasses import replace

import pytest
from small_layouts import layout_job
from small_plans import assert_valid, planned
from small_transformers import gpt

import topoopt as to
from codesign_base import InputError
from parallelism.transformers import family as families
from parallelism.transformers import published
from parallelism.transformers.choices import Choices
from topoopt.evaluate.least_times import least_hops
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer
from topoopt.problem.job import nvlink_server
from topoopt.problem.options import SearchOptions
from topoopt.search import layouts, placed_times
from topoopt.search.layouts import LayoutSearch
from topoopt.search.placed_times import by_hops, hopped_s
from topoopt.search.survey import survey

CLUSTER = to.Cluster(4, 3, "100Gbps")


def searched(**options):
    search = LayoutSearch(Problem(layout_job().family(4), CLUSTER, SearchOptions(**options), 0))
    return search, search.run()


def test_layouts_beyond_the_memory_are_named_and_the_least_is_kept():
    search, result = searched(simulated=4, memory_bytes=1.0)
    kept = {one.candidate.layout for one in search.placed}
    assert len(kept) == 1
    assert len(result.skipped) == 3
    takes = {
        each.layout: search.family.expected_bytes(each.placement)
        for each in survey(search.problem).candidates
    }
    assert min(takes[layout] for layout in (*kept, *search.skipped)) == takes[next(iter(kept))]


def test_a_plan_says_what_was_not_simulated():
    plan = planned(layout_job(), CLUSTER, simulated=4, memory_bytes=1.0, baselines=())
    said = [note for note in plan.notes if note.startswith("not simulated")]
    assert len(said) == 1 and said[0].count("microbatch") == 3
    assert_valid(plan)


def test_on_many_servers_all_placed_layouts_are_put_in_order_by_hops(monkeypatch):
    # One port: bytes take more hops than one, and more of them between more servers.
    problem = Problem(layout_job().family(4), to.Cluster(4, 1, "25Gbps"), SearchOptions(), 0)
    search = LayoutSearch(problem)
    search.run()
    monkeypatch.setattr(placed_times, "_HOPPED", 2)

    def hopped(placed):
        times = ((hopped_s(problem, one.placement), one.ideal_s) for one in placed)
        return [ideal if slower is None else slower for slower, ideal in times]

    few = by_hops(search.second, search.placed, 4)
    assert few[2:] == search.placed[2:]
    monkeypatch.setattr(placed_times, "_HOPPED_UP_TO", 3)
    every = by_hops(search.second, search.placed, 4)
    assert hopped(every) == sorted(hopped(search.placed))
    assert every != few


def test_with_enough_memory_nothing_is_skipped():
    _, result = searched(simulated=4)
    assert result.skipped == ()


@pytest.mark.parametrize("memory", [1.0, 3e9])
def test_published_layouts_are_simulated_whatever_they_take(monkeypatch, memory):
    family = layout_job().family(4)
    # One that no estimate would choose.
    slow = max(family.layouts(), key=lambda each: (each.pipeline, each.microbatch))
    rows = ((replace(slow, data=slow.expert), "made up"),)
    monkeypatch.setitem(published.PUBLISHED, family.model.name, rows)
    search, result = searched(simulated=1, memory_bytes=memory)
    fastest = {one.candidate.layout: one.placement for one in reversed(search.placed)}
    assert slow in fastest
    wired = Rewirer(search.problem).wire(fastest[slow], "search", formula_only=True)
    assert result.best.time <= wired.time


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", ["40Gbps", "100Gbps"])
def test_a_larger_budget_wires_what_a_smaller_wires_and_is_not_slower(monkeypatch, bandwidth):
    cluster = to.Cluster(4, 3, bandwidth)
    wired, times = [], []
    for simulated in (9, 28, 84):
        seen = set()

        def wire(self, placement, *rest, seen=seen, wire=Rewirer.wire, **limits):
            seen.add(placement)
            return wire(self, placement, *rest, **limits)

        options = SearchOptions(simulated=simulated)
        search = LayoutSearch(Problem(layout_job().family(4), cluster, options, 0))
        with monkeypatch.context() as patch:
            patch.setattr(Rewirer, "wire", wire)
            times.append(search.run().best.time)
        wired.append(seen)
    assert wired[0] <= wired[1] <= wired[2]
    assert times == sorted(times, reverse=True)


@pytest.mark.slow
def test_the_other_map_of_a_layout_is_simulated_once():
    """Of many layouts it may be placed for the fastest of the first, and chosen later."""
    job = replace(layout_job(pipeline=(2, 4), tensor=(1, 2)), model=gpt(8, 1024, 16, 200_000))
    search = LayoutSearch(Problem(job.family(4), CLUSTER, SearchOptions(simulated=84), 0))
    result = search.run()
    assert len({one.placement for one in search.placed}) == len(search.placed) == result.steps


def test_all_layouts_that_the_switch_leaves_faster_are_wired_while_it_takes_little(monkeypatch):
    """With slow ports the ideal switch says little of wirings: the best was the 27th once."""
    tried = []

    def wire(self, placement, *rest, wire=Rewirer.wire, **limits):
        tried.append(placement)
        return wire(self, placement, *rest, **limits)

    def searched_with(work):
        tried.clear()
        problem = Problem(layout_job().family(4), to.Cluster(4, 3, "10Gbps"), SearchOptions(), 0)
        search = LayoutSearch(problem)
        with monkeypatch.context() as patch:
            patch.setattr(Rewirer, "wire", wire)
            patch.setattr(layouts, "_WIRING_WORK", work)
            return search, search.run().best.time

    _, few = searched_with(0.0)
    assert len(tried) <= layouts._WIRED
    search, best = searched_with(layouts._WIRING_WORK)
    assert len(tried) > layouts._WIRED and best <= few
    left = [one for one in search.placed if one.placement not in tried]
    assert all(one.ideal_s >= layouts._WORTH * best for one in left)


def test_memory_must_be_positive():
    with pytest.raises(InputError, match="memory_bytes is 0"):
        SearchOptions(memory_bytes=0)


def test_on_a_ring_stages_that_answer_each_other_are_not_taken_for_neighbours():
    # With one port a server what two of them exchange goes once round all.
    asked, cluster = to.Cluster(6, 1, "25Gbps"), nvlink_server("h100", 2)
    free, *pinned = (
        planned(
            to.Job(gpt(4, 4096, 32), global_batch=48, server=cluster, choices=choices), asked,
            baselines=(),
        ).iteration_time_s
        for choices in (Choices(), Choices(pipeline=(1,)), Choices(pipeline=(2,)))
    )  # fmt: skip
    assert free <= min(pinned)


def long_problem(samples=640):
    """Return a problem whose pipelines have hundreds of microbatches."""
    choices = {"pipeline": (4,), "tensor": (1, 2), "microbatch": (1,), "zero": (1,)}
    schedules = ("1f1b", "eager-1f1b", "interleaved", "zero-bubble", "zero-bubble-v")
    job = replace(layout_job(**choices, schedules=schedules), global_batch=samples)
    return Problem(job.family(4), CLUSTER, SearchOptions(simulated=6), 0)


def test_times_of_long_pipelines_follow_from_shorter_ones(monkeypatch):
    monkeypatch.setattr(families, "_LONG_PASSES", 0)
    monkeypatch.setattr(families, "_LONG_STEPS", 20)
    problem = long_problem(10_240)
    steady, kinds = 0, set()
    for each in survey(problem).candidates:
        shorter = problem.family.shorter(each.placement)
        assert shorter is not None
        assert least_hops(shorter, 3) == pytest.approx(
            least_hops(problem.family.represented(each.placement), 3), rel=1e-12
        )
        for fabric in (problem.ideal, problem.switch(3.0)):
            scorer = Scorer(problem.plain, fabric)
            found = scorer.lengthened(shorter)
            whole = Scorer(problem.plain, fabric)
            time = whole.simulate(problem.family.represented(each.placement))
            assert found.seconds == pytest.approx(time, rel=1e-9 if found.steady else 0.04)
            assert 0 < scorer.work < whole.work
            steady += found.steady
            kinds.add((each.layout.schedule, found.steady))
    assert steady > 4
    assert len({schedule for schedule, _ in kinds}) == 5


def test_short_pipelines_have_no_shorter_iterations():
    problem = long_problem()
    assert all(problem.family.shorter(c.placement) is None for c in survey(problem).candidates)


def test_a_search_simulates_long_pipelines_whole_where_it_keeps_them(monkeypatch):
    simulate, sizes = Scorer.simulate, []

    def counted(scorer, tasks, *rest, **more):
        sizes.append(tasks.tasks)
        return simulate(scorer, tasks, *rest, **more)

    monkeypatch.setattr(Scorer, "simulate", counted)
    whole, most = LayoutSearch(long_problem(10_240)).run(), sum(sizes)
    sizes.clear()
    monkeypatch.setattr(families, "_LONG_PASSES", 0)
    monkeypatch.setattr(families, "_LONG_STEPS", 20)
    search = LayoutSearch(long_problem(10_240))
    found = search.run()
    assert sum(sizes) < 0.6 * most
    assert found.best.strategy == whole.best.strategy
    for pair in found.others:
        tasks = search.family.represented(pair.strategy)
        assert pair.time == simulate(Scorer(search.problem, pair.fabric), tasks)
    assert found.best.time == whole.best.time
