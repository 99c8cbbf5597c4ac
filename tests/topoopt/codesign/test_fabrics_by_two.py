"""Plans that a second process helps to make are those of one process."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

import topoopt as to
from topoopt.base.second import Second
from topoopt.baselines.baselines import baseline_fabrics
from topoopt.codesign import baseline_search, once
from topoopt.evaluate.problem import Problem
from topoopt.problem.prices import default_prices
from topoopt.search import on_baseline
from topoopt.search.operators import OperatorSearch, best_for_fabric

JOB, CLUSTER = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32)), to.Cluster(4, 2, "25Gbps")
OPTIONS = to.SearchOptions(steps=10)


class AnsweredByTheOther(Second):
    """Waits until the second process has made every call that is shared with it."""

    answered: dict[str, list[int]]

    def share(self, function, arguments, latest=dict):
        tasks = super().share(function, arguments, latest)
        for task in tasks:
            task._over.wait()
        answered = sum(task.answered for task in tasks)
        assert answered == len(tasks)
        self.answered.setdefault(function.__name__, []).append(answered)
        return tasks


@pytest.mark.parametrize("schedule", ["plain", "barrier"])
def test_two_processes_make_the_plan_that_one_makes(monkeypatch, schedule) -> None:
    options = replace(OPTIONS, schedule=schedule)
    monkeypatch.setattr(once, "_worth_two", lambda *_: False)
    alone = to.co_optimize(JOB, CLUSTER, options)
    monkeypatch.setattr(once, "_worth_two", lambda *_: True)
    monkeypatch.setattr("topoopt.base.second.Second", AnsweredByTheOther)
    AnsweredByTheOther.answered = {}
    by_two = to.co_optimize(JOB, CLUSTER, options)
    answered = AnsweredByTheOther.answered
    assert answered["best_for_fabric"] == [len(alone.baselines)]
    searched = {"_wired", "narrow", "streams_apart", "widening_apart", "search_bound"}
    assert searched <= set(answered)
    assert ("climbed" in answered) is (schedule == "plain")
    assert by_two.to_json() == alone.to_json()


@pytest.mark.parametrize("quick", [True, False])
def test_searches_begun_from_another_plan_are_made_again(monkeypatch, quick) -> None:
    def chosen(search, result, progress):
        """Choose another parallelization than the search's best."""
        others = (p for p in result.others if p.strategy != result.best.strategy)
        result.best = next(others)

    monkeypatch.setattr(once, "_confirm", chosen)
    monkeypatch.setattr(baseline_search, "takes_long", lambda *_: not quick)
    monkeypatch.setattr(once, "_worth_two", lambda *_: False)
    alone = to.co_optimize(JOB, CLUSTER, OPTIONS)
    monkeypatch.setattr(once, "_worth_two", lambda *_: True)
    monkeypatch.setattr("topoopt.base.second.Second", AnsweredByTheOther)
    AnsweredByTheOther.answered = {}
    by_two = to.co_optimize(JOB, CLUSTER, OPTIONS)
    # Where packet trains take long, they are only begun from what these have chosen.
    answered = AnsweredByTheOther.answered["best_for_fabric"]
    assert answered == (1 + quick) * [len(alone.baselines)]
    assert by_two.to_json() == alone.to_json()


def test_this_process_searches_what_the_second_has_not_begun(monkeypatch) -> None:
    class Idle(Second):
        """Its process begins nothing."""

        def following(self):
            with self._more:
                while self.there:
                    self._more.wait()

    alone = to.co_optimize(JOB, CLUSTER, OPTIONS)
    monkeypatch.setattr(once, "_worth_two", lambda *_: True)
    monkeypatch.setattr("topoopt.base.second.Second", Idle)
    assert to.co_optimize(JOB, CLUSTER, OPTIONS).to_json() == alone.to_json()


def test_an_interruption_does_not_wait_for_the_second_process(monkeypatch) -> None:
    class Begun(Second):
        """Its process has begun to search fabrics, and answers nothing."""

        def share(self, function, arguments, latest=dict):
            tasks = super().share(function, arguments, latest)
            for task in tasks:
                if function is best_for_fabric:
                    task.begin()
            return tasks

    def stop(made):
        if made.stage == "packet trains":
            raise KeyboardInterrupt

    monkeypatch.setattr(once, "_worth_two", lambda *_: True)
    monkeypatch.setattr("topoopt.base.second.Second", Begun)
    plan = to.co_optimize(JOB, CLUSTER, OPTIONS, progress=stop)
    assert plan.search.interrupted and len(plan.baselines) == 3
    assert to.verify_plan(plan).ok


def test_what_is_sent_builds_the_same_task_graphs() -> None:
    problem = Problem(JOB.family(4), CLUSTER, OPTIONS, 0)
    strategy = OperatorSearch(problem).run().best.strategy
    sent = pickle.loads(pickle.dumps((problem, strategy)))
    mine, theirs = problem.family.build(strategy), sent[0].family.build(sent[1])
    for field in fields(mine):
        assert np.array_equal(getattr(mine, field.name), getattr(theirs, field.name)), field.name


def test_what_is_sent_is_searched_as_what_was_found(monkeypatch) -> None:
    """Moves leave out what is the same object: one of 32 servers differed by who searched it."""
    search = OperatorSearch(Problem(JOB.family(4), CLUSTER, OPTIONS, 0)).search
    result = OperatorSearch(search.problem).run()
    (base,) = baseline_fabrics(("ideal-switch",), CLUSTER, default_prices(), 0, 1e-5)
    begun = []

    def noted(search, pairs, *rest):
        begun.extend(pairs)

    monkeypatch.setattr(on_baseline, "_improve", noted)
    best_for_fabric(search, base, pickle.loads(pickle.dumps(result)))
    assert begun
    for pair in begun:
        own = search.space.intern(pair.strategy)
        assert all(a is b for a, b in zip(own.configs, pair.strategy.configs, strict=True))


@pytest.mark.slow
def test_two_processes_find_what_one_finds_on_fewer_servers(monkeypatch) -> None:
    asked = (JOB, to.Cluster(18, 2, "25Gbps"), to.SearchOptions(effort="quick"))
    monkeypatch.setattr(once, "_worth_two", lambda *_: False)
    alone = to.co_optimize(*asked)
    monkeypatch.setattr(once, "_worth_two", lambda *_: True)
    monkeypatch.setattr("topoopt.base.second.Second", AnsweredByTheOther)
    AnsweredByTheOther.answered = {}
    assert to.co_optimize(*asked).to_json() == alone.to_json()
    assert "best_of_fewer" in AnsweredByTheOther.answered
