"""Strategies wired by two processes: the pairs, and the work, of one after the other."""

import numpy as np
import pytest

import topoopt as to
from parallelism.search.named import named_strategies
from topoopt.base.second import Second, second_process
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.search.joint_moves import nearly_wired
from topoopt.search.methods import search_for

CLUSTER = to.Cluster(6, 3, "25Gbps")
WHOLE = float("inf")


class Ahead(Second):
    """Waits until the second process has wired both of two."""

    def share(self, function, arguments, latest=dict):
        tasks = super().share(function, arguments, latest)
        if self.there:
            for task in tasks:
                task._over.wait()
            assert all(task.answered for task in tasks)
        return tasks


@pytest.fixture(scope="module")
def search():
    return search_for(Problem(to.Job(to.models.get_model("dlrm-16")).family(6), CLUSTER))


@pytest.fixture(scope="module")
def strategies(search):
    """In an order in which some are better than all before, and some are not."""
    named = map(search.space.intern, named_strategies(search.space).values())
    return [strategy for strategy in dict.fromkeys(named) if search.problem.fits(strategy)]


def one_after_the_other(search, strategies, most_work):
    best, work, times = np.inf, 0.0, []
    for strategy in strategies:
        if work >= most_work:
            break
        rewirer = Rewirer(search.sought, most_work - work)
        pair = rewirer.wire(strategy, "search", limit=best, exact=False)
        work += rewirer.work
        times.append(np.inf if pair is None else pair.time)
        best = min(best, times[-1])
    return times, work


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("share", [WHOLE, 0.9, 0.5, 0.2])
def test_two_processes_wire_as_one_after_the_other(search, strategies, monkeypatch, two, share):
    _, all_work = one_after_the_other(search, strategies, WHOLE)
    most_work = share * all_work
    expected, work = one_after_the_other(search, strategies, most_work)
    assert share == WHOLE or len(expected) < len(strategies) or work < all_work
    assert share != WHOLE or sorted(expected) != expected
    monkeypatch.setattr("topoopt.base.second.Second", Ahead)
    with second_process({"search": search}, wanted=two) as second:
        monkeypatch.setattr(search, "_second", second)
        wirer, times = search.wirer(), []
        asked = [(strategy, None) for strategy in strategies]
        for pair in wirer.in_turn(
            nearly_wired, asked, lambda: min(times, default=WHOLE), most_work
        ):
            times.append(WHOLE if pair is None else pair.time)
            own = pair and search.space.intern(pair.strategy)
            assert pair is None or all(
                a is b for a, b in zip(own.configs, pair.strategy.configs, strict=True)
            )
    assert times == expected and wirer.work == pytest.approx(work, rel=1e-12)
