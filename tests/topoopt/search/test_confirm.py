"""Packet trains choose among the best pairs of a search."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import small_mlp

import topoopt as to
from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.evaluate.least_times import busiest
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.fabric import Fabric, Transport, score
from topoopt.fabric.jitter import Jitter
from topoopt.fabric.packets import expected_events, run_packets
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild
from topoopt.plan.verify import verify_plan
from topoopt.problem.budget import Budget
from topoopt.problem.options import PACKET_SERVERS, SearchOptions
from topoopt.problem.routing import Routing
from topoopt.search import confirm, operators
from topoopt.search.confirm import confirm_pairs, confirmed_times
from topoopt.search.driver import run
from topoopt.search.finalists import FINALISTS, finalists
from topoopt.search.methods import search_for
from topoopt.search.operators import OperatorSearch

FEW = SearchOptions(steps=20, effort="normal", confirm="packet")


@pytest.fixture(scope="module")
def question():
    job = to.Job(to.models.get_model("dlrm-16"))
    return job, to.Cluster(servers=8, degree=2, bandwidth="100Gbps")


@pytest.fixture(scope="module")
def plan(question):
    return to.co_optimize(*question, seed=1, baselines=(), options=FEW)


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
    listed = [(pair.origin, pair.time) for pair in result.others]
    assert [candidate[:2] for candidate in confirmed.candidates] == listed
    # Only what is slower than the best is given up.
    for (_, _, mean), whole in zip(confirmed.candidates, means, strict=True):
        assert mean == whole or (mean == np.inf and whole > confirmed.jitter.mean)


@settings(deadline=None, max_examples=10)
@given(place=st.integers(0, 7), share=st.floats(0.9, 1.1))
def test_copies_are_given_up_only_where_the_mean_is_above_the_limit(found, place, share):
    problem, result = found
    pair = result.others[place % len(result.others)]
    tasks = problem.family.build(pair.strategy)
    whole = confirmed_times(pair.fabric, tasks, 1)
    limited = confirmed_times(pair.fabric, tasks, 1, share * whole.mean)
    if limited.mean < np.inf:
        assert np.array_equal(limited.times, whole.times)
    else:
        hopeless = whole.times[0] > confirm._HOPELESS * share * whole.mean
        assert hopeless or whole.mean > share * whole.mean


def test_no_copy_is_held_to_what_a_link_carries_of_several_paths():
    """Of two messages into a corner of a square the one from opposite takes the other way in."""
    source, target = np.array([0, 1, 2, 3, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 0, 1, 2, 3])
    network = Network.from_links("square", 4, 0, source, target, 1e9, 1e-6)
    fabric = Fabric("square", network, ecmp_routes(network))
    moves = [(TaskKind.TRANSFER, server, 2, 2e6, 0.0) for server in (0, 1)]
    tasks = TaskGraph.from_lists(4, moves, [], ())
    whole = confirmed_times(fabric, tasks, 1)
    assert whole.times.max() < busiest(fabric, tasks)  # half of what crosses the square, too
    cut = confirmed_times(fabric, tasks, 1, whole.mean * 1.0001)
    assert cut.times.tolist() == whole.times.tolist()


def test_a_plan_records_what_the_trains_say(plan):
    assert plan.packet_model == "packet-4"
    assert plan.search.counts["candidates"] > 1
    rebuilt = rebuild(plan)
    tasks = rebuilt.tasks()
    once = score(rebuilt.fabric, tasks, model="packet", seed=1)
    assert plan.packet_time_s == pytest.approx(once, rel=0.02)
    assert plan.iteration_time_s == score(rebuilt.fabric, tasks)
    assert "\npacket time " in plan.summary(details=True)
    assert verify_plan(plan).ok


def test_schedules_that_packets_do_not_know_have_no_packet_time():
    options = SearchOptions(steps=0, schedule="barrier")
    job, cluster = to.Job(small_mlp()), to.Cluster(4, 2, "100Gbps")
    plan = to.co_optimize(job, cluster, options, baselines=())
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


def test_the_plan_is_one_of_the_candidates(plan):
    document = json.loads(plan.to_json())
    document["search"]["counts"]["candidates"] = 0
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert verdict.failures == (
        "search: search.counts.candidates is 0, but the plan is one of them",
    )


def test_an_unknown_model_is_refused_before_the_search(question):
    with pytest.raises(InputError, match="confirm is 'packets'"):
        to.co_optimize(*question, options=SearchOptions(confirm="packets"))


def test_one_server_needs_no_confirmation():
    job = to.Job(to.models.get_model("bert-16"))
    cluster = to.Cluster(servers=1, degree=1, bandwidth="100Gbps")
    plan = to.co_optimize(job, cluster, SearchOptions(steps=0, confirm="packet"))
    assert plan.packet_time_s is None and verify_plan(plan).ok


@pytest.fixture(scope="module")
def many():
    """Return a job on more servers than searches go by packets on."""
    model = to.models.dlrm(tables=4, batch_per_gpu=32)
    return to.Job(model), to.Cluster(PACKET_SERVERS + 1, 2, "10Gbps")


@pytest.fixture(scope="module")
def chosen(many):
    return to.co_optimize(*many, SearchOptions(steps=0), baselines=("ideal-switch",))


def test_on_many_servers_packets_choose_among_what_fluid_times_found(many, chosen):
    assert chosen.search.options.confirm == "packet" and chosen.search.counts["candidates"] > 1
    assert chosen.baselines["ideal-switch"].packet_time_s > 0
    assert verify_plan(chosen).ok
    found = search_for(problem_of(many)).options.routings(PACKET_SERVERS + 1)
    assert len(found) > 1
    # Three copies in long trains: none takes as long as it would alone in trains of one packet.
    built = rebuild(chosen)
    again = score(built.fabric, built.tasks(), model="packet")
    assert chosen.packet_time_s == pytest.approx(again, rel=0.02)


def problem_of(many):
    job, cluster = many
    return Problem(job.family(cluster.servers), cluster, SearchOptions(confirm="packet"))


def test_a_single_run_counts_where_copies_take_long(many, chosen, monkeypatch):
    built = rebuild(chosen)
    monkeypatch.setattr(confirm, "_FEW_EVENTS", 1)
    once = confirmed_times(built.fabric, built.tasks(), 0)
    assert once.times.size == 1 and once.mean == pytest.approx(chosen.packet_time_s, rel=0.02)
    monkeypatch.setattr(confirm, "_CHOOSING_EVENTS", 1)
    pair = Pair(built.strategy, None, Routing(chosen.routing), built.fabric, 1.0, "search")
    assert len(confirm_pairs(problem_of(many), [pair, pair]).candidates) == 1


def test_what_takes_too_many_events_has_no_packet_time_and_says_so(many, monkeypatch):
    """Nothing is left out in silence: neither in the file nor in the table."""
    monkeypatch.setattr(confirm, "MOST_EVENTS", 30_000)
    plan = to.co_optimize(*many, SearchOptions(steps=0), baselines=("ideal-switch", "expander"))
    assert plan.packet_time_s is None and confirm.NO_PACKET_TIME in plan.notes
    assert confirm.NO_PACKET_TIME in plan.baselines["expander"].note
    assert verify_plan(plan).ok
    monkeypatch.undo()
    assert verify_plan(plan).failures[0].startswith("packets: ")


def test_a_fabric_without_packet_time_is_named_in_the_table(chosen):
    base = chosen.baselines["ideal-switch"]
    long = replace(base, packet_time_s=None, note=f"{base.note}; {confirm.NO_PACKET_TIME}")
    text = replace(chosen, baselines={"ideal-switch": long}).summary()
    assert "ideal-switch  too long" in text and "\ntoo long: no packet time" in text


def test_simulations_end_after_so_many_events(chosen):
    built = rebuild(chosen)
    whole = run_packets(built.fabric, built.tasks())
    assert run_packets(built.fabric, built.tasks(), most_events=whole.events).makespan < np.inf
    cut = run_packets(built.fabric, built.tasks(), most_events=whole.events - 1)
    assert cut.makespan == np.inf and cut.events == whole.events - 1
    # Windows are small where flows contend, and trains as short as a packet at worst.
    single = replace(built.fabric, transport=Transport(train_packets=1))
    least, most = (expected_events(fabric, built.tasks()) for fabric in (built.fabric, single))
    assert least < whole.events < most


def test_what_has_no_packet_time_does_not_lose_to_what_is_slower(many, chosen, monkeypatch):
    built = rebuild(chosen)
    quick, slow = (
        Pair(built.strategy, None, Routing(chosen.routing), built.fabric, time, "search")
        for time in (chosen.iteration_time_s, 2.0 * chosen.packet_time_s)
    )
    times = iter((None, Jitter(np.array([2.0 * chosen.packet_time_s]))))
    monkeypatch.setattr(confirm, "confirmed_times", lambda *_: next(times))
    confirmed = confirm_pairs(problem_of(many), [quick, slow])
    assert confirmed.pair is quick and confirmed.jitter is None
    assert len(confirmed.candidates) == 1


def test_what_has_no_packet_time_is_expected_to_be_slowed_down_as_the_others_are(chosen):
    """CANDLE, 128 servers, 40 Gbps: flows say 7.23 and 5.52 s, packets 9.20 (too long), 7.84."""
    built = rebuild(chosen)
    unknown, known, other = (
        Pair(built.strategy, None, Routing(chosen.routing), built.fabric, time, "search")
        for time in (7.23, 5.52, 5.6)
    )
    simulated = (known, Jitter(np.array([7.84])))
    slower = (other, Jitter(np.array([np.inf])))
    assert confirm.fastest_in_packets([(unknown, None), slower, simulated])[0] is known
    # Nothing is known of packets: flows decide.
    assert confirm.fastest_in_packets([(unknown, None), (known, None)])[0] is known


def test_what_flows_say_is_clearly_slower_is_not_simulated(many, chosen, monkeypatch):
    built = rebuild(chosen)
    best = chosen.packet_time_s
    pairs = [
        Pair(built.strategy, None, Routing(chosen.routing), built.fabric, time, "search")
        for time in (best, 1.04 * best, 1.06 * best)
    ]
    simulated = []

    def once(*_):
        simulated.append(best)
        return Jitter(np.array([best]))

    monkeypatch.setattr(confirm, "confirmed_times", once)
    confirmed = confirm_pairs(problem_of(many), pairs)
    assert len(simulated) == 2
    assert [mean for _, _, mean in confirmed.candidates] == [best, best, np.inf]


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_on_many_servers_the_best_start_is_among_those_that_packets_choose_from(
    many, effort, monkeypatch
):
    # What a search on fewer servers found comes besides.
    monkeypatch.setattr(operators, "best_of_fewer", lambda *_: ([], 0.0))
    job, cluster = many
    options = SearchOptions(confirm="packet", effort=effort)
    search = OperatorSearch(Problem(job.family(cluster.servers), cluster, options))
    result = run(search.search, Budget(steps=20))
    asked = search.candidates(result)
    own = [result.others[0], result.first][: search.search.effort.finalists]
    assert all(any(one.strategy == pair.strategy for pair in asked) for one in own)
    one_path = [pair for pair in asked if pair.routing is Routing.BALANCED]
    assert {pair.strategy for pair in one_path} == {pair.strategy for pair in own}
    assert len(asked) - len(one_path) <= search.search.effort.finalists
    problem = search.problem.scored(0.5)
    scores = [
        Scorer(problem, pair.fabric, search_tolerance(cluster.servers))(pair.strategy)
        for pair in asked
        if pair.routing is not Routing.BALANCED
        and all(pair.strategy != one.strategy for one in own)
    ]
    assert scores == sorted(scores)
