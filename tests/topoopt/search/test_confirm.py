"""Packet trains choose among the best pairs of a search."""

import json

import pytest

import topoopt as to
from codesign_base import InputError
from topoopt.evaluate.problem import Problem
from topoopt.fabric import score
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild
from topoopt.plan.verify import verify_plan
from topoopt.problem.budget import Budget
from topoopt.problem.options import SearchOptions
from topoopt.search.confirm import COPIES, confirm_pairs, confirmed_times
from topoopt.search.driver import run
from topoopt.search.finalists import FINALISTS, finalists
from topoopt.search.methods import search_for


@pytest.fixture(scope="module")
def question():
    job = to.Job(to.models.get_model("dlrm-16"))
    return job, to.Cluster(servers=8, degree=2, bandwidth="100Gbps")


@pytest.fixture(scope="module")
def plan(question):
    return to.co_optimize(
        *question, seed=1, baselines=(), options=SearchOptions(steps=60, confirm="packet")
    )


@pytest.fixture(scope="module")
def found(question):
    job, cluster = question
    options = SearchOptions(method="alternating")
    problem = Problem(job.family(cluster.servers), cluster, options, seed=1)
    return problem, run(search_for(problem), Budget(steps=60))


def test_a_search_keeps_its_best_few_pairs(found):
    _, result = found
    times = [pair.time for pair in result.others]
    assert 1 < len(times) <= FINALISTS and times == sorted(times)
    assert result.best.time == times[0]
    assert finalists([*result.others, *result.others]) == result.others


def test_the_plan_is_the_candidate_with_the_lowest_mean(found):
    problem, result = found
    confirmed = confirm_pairs(problem, result.others)
    graphs = [problem.family.build(pair.strategy) for pair in result.others]
    means = [
        confirmed_times(pair.fabric, tasks, 1).mean
        for pair, tasks in zip(result.others, graphs, strict=True)
    ]
    assert confirmed.jitter.mean == min(means)
    assert confirmed.pair is result.others[means.index(min(means))]
    listed = [
        (pair.origin, pair.time, mean) for pair, mean in zip(result.others, means, strict=True)
    ]
    assert list(confirmed.candidates) == listed


def test_a_plan_records_what_the_trains_say(plan, question):
    record = plan.confirmation
    assert record.copies == COPIES and record.model == "packet-2"
    assert record.candidates > 1
    rebuilt = rebuild(plan)
    tasks = rebuilt.tasks()
    once = score(rebuilt.fabric, tasks, model="packet", seed=1)
    assert record.iteration_time_s == pytest.approx(once, rel=0.02)
    assert plan.iteration_time_s == score(rebuilt.fabric, tasks)
    assert "packet trains: " in plan.summary()
    assert verify_plan(plan).ok
    again = to.co_optimize(
        *question, seed=1, baselines=(), options=SearchOptions(steps=60, confirm="packet")
    )
    assert again == plan


def test_without_confirmation_nothing_is_recorded(question):
    plan = to.co_optimize(*question, seed=1, baselines=(), options=SearchOptions(steps=0))
    assert plan.confirmation is None and "packet trains" not in plan.summary()


def slower(record):
    record["iteration_time_s"] *= 1.001


def wider(record):
    record["iteration_time_spread_s"] += 1e-6


def another_copy(record):
    record["copies"] += 1


def another_model(record):
    record["model"] = "train-0"


@pytest.mark.parametrize(
    "tamper",
    [slower, wider, another_copy, another_model],
)
def test_tampering_is_found(plan, tamper):
    document = json.loads(plan.to_json())
    tamper(document["confirmation"])
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert any(failure.startswith("confirmation") for failure in verdict.failures)


def test_an_unknown_model_is_refused_before_the_search(question):
    with pytest.raises(InputError, match="confirm is 'packets'"):
        to.co_optimize(*question, options=SearchOptions(confirm="packets"))


def test_one_server_needs_no_confirmation():
    job = to.Job(to.models.get_model("bert-16"))
    cluster = to.Cluster(servers=1, degree=1, bandwidth="100Gbps")
    assert (
        to.co_optimize(job, cluster, SearchOptions(steps=0, confirm="packet")).confirmation is None
    )
