"""Moves scored by packet trains, and what is screened with them."""

from dataclasses import replace

import numpy as np
import pytest
from small_plans import planned

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.strategy import check_legal
from parallelism.taskgraph import TaskKind
from topoopt.cli.common import _line
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.jitter import jittered
from topoopt.fabric.simulation import score
from topoopt.fabric.transport import Transport
from topoopt.plan.rebuild import rebuild
from topoopt.plan.verify import verify_plan
from topoopt.problem.budget import Budget
from topoopt.problem.options import SearchOptions
from topoopt.problem.routing import Routing
from topoopt.search import confirm
from topoopt.search.confirm import packet_time, screened
from topoopt.search.driver import run
from topoopt.search.finalists import FINALISTS, PACKET_FINALISTS
from topoopt.search.methods import SEARCHES, search_for
from topoopt.search.packet_climbs import Climb, Climber
from topoopt.search.packet_moves import PacketMoves, _promising_first, simulation_work
from topoopt.search.steps import Search
from topoopt.search.yielding import YIELDING

JOB = to.Job(to.models.get_model("dlrm-16"))
CLUSTER = to.Cluster(servers=8, degree=2, bandwidth="25Gbps")
PROBLEM = Problem(JOB.family(8), CLUSTER, seed=3)
PACKETS = Problem(JOB.family(8), CLUSTER, SearchOptions(confirm="packet"))


@pytest.fixture(scope="module")
def search():
    return search_for(PACKETS)


@pytest.fixture(scope="module")
def pairs(search):
    """Different strategies, wired, fastest first."""
    rewirer = Rewirer(search.problem)
    named = [search.space.intern(s) for s in named_strategies(search.space).values()]
    fitting = [s for s in dict.fromkeys(named) if PROBLEM.fits(s)]
    found = [rewirer.wire(strategy, "named") for strategy in fitting]
    return sorted(found, key=lambda pair: pair.time)


@pytest.fixture(scope="module")
def found(search, pairs):
    """What moves make of the pairs."""
    return moved(search, pairs)


@pytest.mark.parametrize("weight", [0.5, 0.2, 1.0])
def test_a_yielding_score_weighs_fluid_times_and_yielding_transfers(search, pairs, weight):
    yielded = 0
    problem = PROBLEM.scored(weight)
    for pair in pairs:
        tasks = search.builder.build(pair.strategy)
        fluid = score(pair.fabric, tasks)
        last = score(pair.fabric, replace(tasks, priority=(tasks.kind == TaskKind.TRANSFER) * 1))
        yielding = Scorer(problem, pair.fabric)
        time = yielding(pair.strategy)
        assert time == pytest.approx((1.0 - weight) * fluid + weight * last, rel=1e-12)
        assert Scorer(PROBLEM, pair.fabric)(pair.strategy) == pair.time == fluid
        wired = Rewirer(problem).wire(pair.strategy, "named")
        assert wired.time == Scorer(problem, wired.fabric)(pair.strategy)
        for limit in (0.5 * time, 0.999 * time):
            assert yielding(pair.strategy, limit) > limit
        assert yielding(pair.strategy, 1.001 * time) == time
        yielded += last > 1.001 * fluid
    assert yielded


def test_a_search_by_yielding_scores_ends_with_fluid_times(search):
    result = run(search, Budget(steps=200))
    for pair in result.others:
        assert pair.time == Scorer(PROBLEM, pair.fabric)(pair.strategy)
    assert result.best is result.others[0]
    times = [search.scorer(pair.fabric)(pair.strategy) for pair in result.others]
    assert len(times) > 1 and times[0] <= 1.01 * min(times)


@pytest.mark.parametrize("stage", [pytest.param("start", marks=pytest.mark.slow), "search"])
def test_a_plan_that_was_interrupted_before_the_trains_verifies(stage):
    """Its times are fluid ones, as of any plan."""

    def stop(progress):
        if progress.stage == stage and progress.done > 1:
            raise KeyboardInterrupt

    question = {"seed": 0, "steps": 60, "baselines": (), "confirm": "packet"}
    plan = planned(JOB, CLUSTER, progress=stop, **question)
    assert plan.search.interrupted
    assert verify_plan(plan).ok


def one_copy(search, pair):
    return packet_time(PROBLEM, pair)


def moved(search, pairs, most=6):
    moves = PacketMoves(Climber(PROBLEM, search.space, search.regions, YIELDING))
    return moves.improved(pairs, most)


def test_screening_keeps_what_is_fastest_in_trains(search, pairs):
    times = {pair.strategy: one_copy(search, pair) for pair in pairs}
    assert len(set(times.values())) > 3
    for count in (1, 3, len(pairs) - 1):
        kept = screened(PROBLEM, pairs, count)
        assert [times[pair.strategy] for pair in kept] == sorted(times.values())[:count]
    assert screened(PROBLEM, pairs, len(pairs)) == pairs


def test_screening_keeps_one_of_twins(search, pairs):
    """Where a pair has one path only, ECMP is the same route by another name."""
    times = sorted({one_copy(search, pair) for pair in pairs})
    twins = [twin for pair in pairs for twin in (pair, replace(pair, routing=Routing.ECMP))]
    kept = screened(PROBLEM, twins, 3)
    assert [pair.in_trains for pair in kept] == times[:3]
    assert all(pair.routing is not Routing.ECMP for pair in kept)


def test_what_ranked_in_long_trains_is_not_simulated_so_again(pairs, monkeypatch):
    monkeypatch.setattr(confirm, "_MUCH_EVENTS", 0)  # so that they are confirmed in long trains
    kept = screened(PROBLEM, pairs, 3)
    lengths = []

    def noted(fabric, *rest, **named):
        lengths.append(fabric.transport.train_packets)
        return jittered(fabric, *rest, **named)

    monkeypatch.setattr(confirm, "jittered", noted)
    expected = confirm.confirm_pairs(PROBLEM, [replace(pair, in_trains=None) for pair in kept])
    assert 128 in lengths
    # Some run side by side, in any order.
    shorter = sorted(length for length in lengths if length != 128)
    lengths.clear()
    saved = confirm.confirm_pairs(PROBLEM, kept)
    assert sorted(lengths) == shorter
    assert saved.pair == expected.pair and saved.candidates == expected.candidates
    assert saved.jitter.times.tolist() == expected.jitter.times.tolist()


def test_pairs_go_on_first_that_flows_take_for_faster_than_any_is(pairs):
    """CANDLE's best was at 227.6 ms by packets and 174.0 by flows, and ended below 193 ms."""
    times = [(212.5, 212.5), (227.6, 174.0), (214.7, 213.7), (226.4, 172.9), (213.0, 211.5)]
    climbs = [
        Climb(replace(pairs[0], time=flows), packets, packets, 1.0, np.random.default_rng(0), set())
        for packets, flows in times
    ]
    order = [climb.least for climb in _promising_first(climbs)]
    assert order == [226.4, 227.6, 212.5, 213.0, 214.7]
    # Where packets take about as long as flows, they alone decide.
    close = [climb.least for climb in _promising_first(climbs[::2])]
    assert close == [212.5, 213.0, 214.7]
    assert _promising_first([]) == []


def test_moves_save_time_in_trains_and_stay_on_the_topology(search, pairs, found):
    before = [one_copy(search, pair) for pair in pairs]
    after = [one_copy(search, pair) for pair in found]
    assert after == sorted(after) and after[0] < min(before)
    topologies = [pair.topology for pair in pairs]
    for pair in found:
        check_legal(search.builder.graph, pair.strategy, 8, search.builder.batch)
        assert pair.topology in topologies
        assert Scorer(PROBLEM, pair.fabric)(pair.strategy) == pair.time
        own = direct_fabric(
            pair.topology, Routing.BALANCED, tasks=search.builder.build(pair.strategy)
        )
        assert np.array_equal(own.routes.links, pair.fabric.routes.links)


@pytest.mark.slow
def test_the_same_seed_makes_the_same_moves(search, pairs, found):
    again = moved(search, pairs)
    assert [pair.strategy for pair in found] == [pair.strategy for pair in again]


def test_without_simulations_or_wires_nothing_moves(search, pairs):
    none = moved(search, pairs, 0)
    assert {pair.strategy for pair in none} <= {pair.strategy for pair in pairs}
    bare = [replace(pair, topology=None) for pair in pairs]
    assert moved(search, bare) == bare


def test_of_twins_one_is_moved(search, pairs):
    assert len(moved(search, [pairs[0], pairs[0]], 1)) == 1


@pytest.mark.slow
def test_an_interruption_keeps_what_trains_liked(search, pairs):
    """The first gain is kept, and the search says that it was stopped."""
    lasts = []

    def stop(progress):
        lasts.append(progress.best)
        if progress.best < lasts[0]:
            raise KeyboardInterrupt

    moves = PacketMoves(Climber(PROBLEM, search.space, search.regions, YIELDING))
    found = moves.improved(pairs, 6, stop)
    assert moves.interrupted and one_copy(search, found[0]) == lasts[-1] < lasts[0]


@pytest.mark.slow
def test_an_interrupted_plan_is_the_best_by_trains():
    trains = []

    def stop(progress):
        if progress.stage == "packet moves":
            trains.append(progress.best)
            if len(trains) == 3:
                raise KeyboardInterrupt

    question = {"seed": 0, "steps": 100, "baselines": (), "confirm": "packet"}
    plan = planned(JOB, CLUSTER, progress=stop, **question)
    assert plan.search.interrupted and plan.packet_time_s is None
    rebuilt = rebuild(plan)
    tasks = rebuilt.tasks()
    fabric = replace(rebuilt.fabric, transport=Transport(reconnect=True, train_packets=64))
    assert jittered(fabric, tasks, 1, seed=0).mean == trains[-1]
    assert verify_plan(plan).ok
    whole = planned(JOB, CLUSTER, effort="quick", **question)
    assert whole.packet_time_s is not None


@pytest.mark.parametrize(("faithful", "servers", "moves"), [
    (None, 32, True), (None, 33, False), ("paper", 8, False),
])  # fmt: skip
def test_trains_go_on_where_they_are_quick_and_routes_are_balanced(faithful, servers, moves):
    settings = SearchOptions(faithful=faithful, chains=1 if faithful else 3, confirm="packet")
    cluster = to.Cluster(servers, 2, "25Gbps")
    problem = Problem(JOB.family(servers), cluster, settings)
    search = search_for(problem)
    assert search.moves_by_packets is moves
    assert search.kept == (PACKET_FINALISTS if moves else FINALISTS)
    for lesser in ("strategy-only", "topology-only", "sequential"):
        assert not Search(problem, SEARCHES[lesser]).moves_by_packets


def test_what_trains_will_cost_is_counted_in_bytes_sent(search, pairs):
    tasks = search.builder.build(pairs[0].strategy)
    cost = simulation_work(pairs[0].fabric, tasks)
    sent = tasks.kind != TaskKind.COMPUTE
    twice = replace(tasks, size=np.where(sent, 2.0 * tasks.size, tasks.size))
    assert simulation_work(pairs[0].fabric, twice) == pytest.approx(2.0 * cost, rel=1e-3)
    assert cost > 0.0


def test_the_stages_of_a_search_are_said_in_words():
    """Whatever a search reports, no stage is mistaken for a fabric to compare with."""
    lines = []
    to.co_optimize(
        JOB,
        CLUSTER,
        SearchOptions(steps=60, effort="quick", confirm="packet"),
        seed=0,
        baselines=(),
        progress=lambda made: lines.append(_line(made)),
    )
    assert {line.split(":")[0] for line in lines} == {
        "starting strategies", "search", "moves scored by packet trains",
        "ranking by packet trains", "confirming with packet trains",
    }  # fmt: skip
    assert any(line.startswith("ranking by packet trains: step 1 of at most") for line in lines)
