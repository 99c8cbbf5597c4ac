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
from topoopt.search.confirm import confirm_pairs, confirmed_times
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
    assert plan.packet_model == "packet-2"
    assert plan.search.counts["candidates"] > 1
    rebuilt = rebuild(plan)
    tasks = rebuilt.tasks()
    once = score(rebuilt.fabric, tasks, model="packet", seed=1)
    assert plan.packet_time_s == pytest.approx(once, rel=0.02)
    assert plan.iteration_time_s == score(rebuilt.fabric, tasks)
    assert "\npacket time " in plan.summary(details=True)
    assert verify_plan(plan).ok
    again = to.co_optimize(
        *question, seed=1, baselines=(), options=SearchOptions(steps=60, confirm="packet")
    )
    assert again == plan


def test_schedules_that_packets_do_not_know_have_no_packet_time(question):
    options = SearchOptions(steps=0, schedule="barrier")
    plan = to.co_optimize(*question, seed=1, baselines=(), options=options)
    assert plan.packet_time_s is None and "packet time" not in plan.summary(details=True)
    assert verify_plan(plan).ok


def slower(document):
    document["packet_time_s"] *= 1.001


def wider(document):
    document["packet_spread_s"] += 1e-6


def none(document):
    document["packet_time_s"] = document["packet_spread_s"] = document["packet_model"] = None


def another_model(document):
    document["packet_model"] = "train-0"


@pytest.mark.parametrize("tamper", [slower, wider, another_model])
def test_tampering_is_found(plan, tamper):
    document = json.loads(plan.to_json())
    tamper(document)
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert any(failure.startswith("packets") for failure in verdict.failures)


def test_a_plan_without_its_packet_time_is_refused(plan):
    document = json.loads(plan.to_json())
    none(document)
    del document["search"]["counts"]["candidates"]
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert verdict.failures == ("packets: packet_time_s is null, but such plans state it",)


def test_an_unknown_model_is_refused_before_the_search(question):
    with pytest.raises(InputError, match="confirm is 'packets'"):
        to.co_optimize(*question, options=SearchOptions(confirm="packets"))


def test_one_server_needs_no_confirmation():
    job = to.Job(to.models.get_model("bert-16"))
    cluster = to.Cluster(servers=1, degree=1, bandwidth="100Gbps")
    plan = to.co_optimize(job, cluster, SearchOptions(steps=0, confirm="packet"))
    assert plan.packet_time_s is None and verify_plan(plan).ok
