"""Fabrics to compare with, searched by a second process: the same plans as by one."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

import topoopt as to
from topoopt.base.second import Second
from topoopt.codesign import baseline_search, once
from topoopt.evaluate.problem import Problem
from topoopt.search.operators import OperatorSearch

JOB, CLUSTER = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32)), to.Cluster(4, 2, "25Gbps")
OPTIONS = to.SearchOptions(steps=10)


class AnsweredByTheOther(Second):
    """Waits until the second process has searched all fabrics, before this one chooses the plan."""

    answered: list[int]

    def share(self, function, arguments, latest=dict):
        tasks = super().share(function, arguments, latest)
        for task in tasks:
            task._over.wait()
        self.answered.append(sum(task.answered for task in tasks))
        return tasks


@pytest.mark.parametrize("schedule", ["plain", "barrier"])
def test_two_processes_make_the_plan_that_one_makes(monkeypatch, schedule) -> None:
    options = replace(OPTIONS, schedule=schedule)
    monkeypatch.setattr(once, "_worth_two", lambda *_: False)
    alone = to.co_optimize(JOB, CLUSTER, options)
    monkeypatch.setattr(once, "_worth_two", lambda *_: True)
    monkeypatch.setattr("topoopt.base.second.Second", AnsweredByTheOther)
    AnsweredByTheOther.answered = []
    by_two = to.co_optimize(JOB, CLUSTER, options)
    assert AnsweredByTheOther.answered == [len(alone.baselines)]
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
    AnsweredByTheOther.answered = []
    by_two = to.co_optimize(JOB, CLUSTER, OPTIONS)
    # Where packet trains take long, they are only begun from what these have chosen.
    assert AnsweredByTheOther.answered == (1 + quick) * [len(alone.baselines)]
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
        """Its process has begun everything, and answers nothing."""

        def share(self, function, arguments, latest=dict):
            tasks = super().share(function, arguments, latest)
            for task in tasks:
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
