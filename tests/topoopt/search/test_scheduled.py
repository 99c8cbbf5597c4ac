"""Strategies that are sought in the microbatches of a schedule."""

from dataclasses import replace

import numpy as np
import pytest
from small_plans import small_dlrm

import topoopt as to
from codesign_base import InputError
from parallelism.search.local import LocalSearch
from parallelism.taskgraph import Phase, TaskKind
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.schedule_search import schedule_pairs
from topoopt.evaluate.scheduling import simulate_schedule
from topoopt.evaluate.scoring import Scorer
from topoopt.problem.budget import Budget
from topoopt.problem.cluster import Cluster
from topoopt.problem.options import SearchOptions
from topoopt.problem.schedule import Schedule
from topoopt.search import scheduled
from topoopt.search.driver import run
from topoopt.search.methods import search_for
from topoopt.search.scheduled import in_microbatches, scheduled_search


def searched(scheduling, steps=20):
    """A short search of a small job, and its result."""
    cluster, job = Cluster(4, 2, "10Gbps"), to.Job(small_dlrm(2))
    options = SearchOptions(method="alternating", schedule=scheduling)
    search = search_for(Problem(job.family(4), cluster, options))
    return search, run(search, Budget(steps=steps))


@pytest.mark.slow
@pytest.mark.parametrize("scheduling", ["barrier", "auto"])
def test_strategies_sought_with_a_schedule_are_no_slower_and_the_same_again(scheduling):
    search, result = searched(scheduling)
    family = search.problem.family
    kept = schedule_pairs(family, result.others, scheduling)
    found = scheduled_search(search, result)
    assert found.simulated.time <= kept.simulated.time
    assert found.tried > kept.tried
    again = scheduled_search(search, result)
    assert again.pair.strategy == found.pair.strategy and again.schedule == found.schedule
    assert simulated_again(family, found) == found.simulated.time


def simulated_again(family, found):
    tasks = family.microbatched(found.pair.strategy, found.schedule.microbatches)
    return simulate_schedule(found.pair.fabric, tasks, found.schedule).time


@pytest.mark.parametrize(
    ("steps", "moves"), [(0, False), pytest.param(20, True, marks=pytest.mark.slow)]
)
def test_a_search_of_no_steps_makes_no_moves_for_its_schedule(monkeypatch, steps, moves):
    search, result = searched("barrier", steps)
    made = []
    step = LocalSearch.step
    monkeypatch.setattr(LocalSearch, "step", lambda *given: made.append(1) or step(*given))
    found = scheduled_search(search, result)
    family = search.problem.family
    kept = schedule_pairs(family, result.others, "barrier")
    assert found.simulated.time <= kept.simulated.time and found.tried > kept.tried
    assert simulated_again(family, found) == found.simulated.time
    assert bool(made) is moves
    assert moves or found.pair.origin != "search"


@pytest.mark.parametrize(("work", "least", "most"), [("_AS_WIRED", 0, 0), ("_WIRED", 1, 1)])
def test_where_simulations_take_long_few_strategies_are_wired_anew(monkeypatch, work, least, most):
    search, result = searched("barrier", 0)
    wired = []
    wire = Rewirer.wire
    monkeypatch.setattr(
        Rewirer, "wire", lambda *given, **asked: wired.append(given[1]) or wire(*given, **asked)
    )
    scheduled_search(search, result)
    assert len(wired) > 2 * most + 1
    wired.clear()
    monkeypatch.setattr(scheduled, work, 1.0)
    scheduled_search(search, result)
    numbers = len(scheduled._TRIED)
    assert least <= len(wired) <= most * numbers


def test_what_is_best_in_microbatches_as_it_is_wired_is_wired_anew_first(monkeypatch):
    search, result = searched("barrier", 0)
    wired = []
    wire = Rewirer.wire
    monkeypatch.setattr(
        Rewirer, "wire", lambda *given, **asked: wired.append(given[1]) or wire(*given, **asked)
    )
    made = scheduled_search(search, result)
    problem = in_microbatches(search.problem, max(made.schedule.microbatches, scheduled._TRIED[0]))
    times = {p.strategy: Scorer(problem, p.fabric)(p.strategy) for p in result.others}
    assert wired[0] == min(times, key=times.get) != result.others[0].strategy


def test_what_is_scored_in_microbatches_is_simulated_in_them():
    search, result = searched("barrier")
    pair = result.others[0]
    problem = in_microbatches(search.problem, 2)
    tasks = problem.family.represented(pair.strategy)
    whole = search.problem.family.represented(pair.strategy)
    forward = [
        np.count_nonzero(t.phase[t.kind == TaskKind.COMPUTE] == Phase.FORWARD)
        for t in (whole, tasks)
    ]
    assert forward[1] == 2 * forward[0]
    schedule = Schedule(microbatches=2, compute="critical-path")
    expected = simulate_schedule(pair.fabric, tasks, schedule).time
    assert Scorer(problem, pair.fabric)(pair.strategy) == pytest.approx(expected, rel=1e-12)


def test_strategies_that_do_not_divide_the_microbatches_do_not_fit():
    search, result = searched("barrier")
    pair = result.others[0]
    family = replace(search.problem.family, microbatches=3)
    assert not replace(search.problem, family=family).fits(pair.strategy)
    with pytest.raises(InputError, match="microbatches is 3"):
        family.build(pair.strategy)
