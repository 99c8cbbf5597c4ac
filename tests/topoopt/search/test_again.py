"""The second search of more servers, where packet trains do not confirm the first."""

from dataclasses import replace

import numpy as np
import pytest
from small_plans import small_mlp

import topoopt as to
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.schedule_search import plainly
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.jitter import Jitter
from topoopt.problem.budget import Budget
from topoopt.problem.options import SearchOptions
from topoopt.problem.routing import Routing
from topoopt.search import again
from topoopt.search.again import astray, judged, one_path, search_again
from topoopt.search.confirm import confirm_pairs, confirmed_times
from topoopt.search.driver import run
from topoopt.search.operators import OperatorSearch

BUDGET = Budget(steps=6)


@pytest.fixture(scope="module")
def found():
    job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    cluster = to.Cluster(servers=34, degree=2, bandwidth="10Gbps")
    options = SearchOptions(steps=6, effort="normal").settled("operators", 34)
    operators = OperatorSearch(Problem(job.family(34), cluster, options))
    result = run(operators.search, BUDGET)
    return operators, result, judged(operators.problem, result.best)


def test_packets_say_what_the_best_pair_takes_with_all_paths_and_one(found):
    operators, result, (pair, alone) = found
    assert pair == result.best and pair.packets is not None
    assert alone.routing is Routing.BALANCED and alone.topology is pair.topology
    assert alone.time == Scorer(operators.problem, alone.fabric)(alone.strategy)
    tasks = operators.problem.family.build(pair.strategy)
    for one in (pair, alone):
        times = confirmed_times(one.fabric, tasks, operators.problem.seed)
        assert np.array_equal(one.packets.times, times.times)


def test_what_was_simulated_as_a_plan_is_not_simulated_again(found, monkeypatch):
    operators, _, (pair, alone) = found
    family = operators.problem.family
    anew = plainly(family, replace(alone, simulated=None))
    assert anew.plain_time == alone.time and pair.simulated is None
    monkeypatch.setattr("topoopt.evaluate.schedule_search.simulate_schedule", None)
    known = plainly(family, alone)
    assert (
        known.plain_time == anew.plain_time
        and known.simulated.computing == anew.simulated.computing
    )
    assert np.array_equal(known.simulated.start, anew.simulated.start)
    # Devices that work in another order make another iteration.
    ordered = operators.problem.options.settled("operators", 34)
    ordered = replace(operators.problem, options=replace(ordered, schedule="compute"))
    assert one_path(ordered, pair).simulated is None


def test_paths_of_pairs_without_transfers_do_not_matter(found):
    cluster = to.Cluster(servers=34, degree=2, bandwidth="10Gbps")
    operators = OperatorSearch(Problem(to.Job(small_mlp()).family(34), cluster, SearchOptions()))
    best = run(operators.search, Budget(steps=0)).best
    (alone,) = judged(operators.problem, best)
    assert replace(alone, packets=None) == best and alone.packets is not None


def told(pair, factor):
    """Return a pair of which packets are said to take so many times its time by flows."""
    return replace(pair, packets=Jitter(np.full(3, factor * pair.time), 1))


@pytest.mark.parametrize(("factor", "late", "searched"), [
    (1.04, 2.0, False),  # packets confirm it
    (1.5, 1.04, False),  # the other score does not explain it
    (1.5, 2.0, True),
])  # fmt: skip
def test_the_search_is_made_again_where_packets_and_the_other_score_are_above(
    found, monkeypatch, factor, late, searched
):
    operators, result, best = found
    result, best = replace(result, others=list(result.others)), [told(p, factor) for p in best]
    weights = []

    def rerun(search, budget, progress):
        weights.append(search.yielding)
        return run(search, budget, progress)

    monkeypatch.setattr(again, "run", rerun)
    monkeypatch.setattr(
        Scorer, "simulate",
        lambda self, tasks, limit=np.inf, transfers_yield=False, real=Scorer.simulate: (
            late * best[0].time if transfers_yield and not weights
            else real(self, tasks, limit, transfers_yield)
        ),
    )  # fmt: skip
    assert astray(operators.search, best) is searched
    if searched:
        search_again(operators.search, result)
    assert weights == ([0.5] if searched else [])
    assert (result.again is not None) is searched
    assert operators.search.yielding == 0.0
    if searched:
        assert result.others[0].time <= min(result.again.time, best[0].time)
        assert len(result.others) > 1 and result.work > found[1].work


def test_times_that_are_known_are_not_simulated_again(found, monkeypatch):
    operators, _, (pair, alone) = found
    monkeypatch.setattr("topoopt.search.confirm.confirmed_times", lambda *_: 1 / 0)
    confirmed = confirm_pairs(operators.problem, [told(pair, 1.2), told(alone, 1.1)])
    assert confirmed.pair == alone and confirmed.jitter.mean == pytest.approx(1.1 * alone.time)


def test_an_interruption_keeps_the_first_search(monkeypatch):
    job = to.Job(small_mlp())
    options = SearchOptions(steps=4, effort="normal").settled("operators", 34)
    cluster = to.Cluster(servers=34, degree=2, bandwidth="10Gbps")
    operators = OperatorSearch(Problem(job.family(34), cluster, options))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("topoopt.search.operators.judged", stop)
    result = operators.run()
    assert not operators.astray(result)
    assert result.interrupted and result.best.topology is not None
