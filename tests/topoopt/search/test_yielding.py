"""How much transfers yield in a job, from packet trains of a few of its pairs."""

import numpy as np
import pytest

import topoopt as to
from parallelism.search.named import named_strategies
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer
from topoopt.problem.budget import Budget
from topoopt.search import yielding
from topoopt.search.confirm import packet_time
from topoopt.search.driver import run
from topoopt.search.operators import OperatorSearch
from topoopt.search.search_state import StateFile
from topoopt.search.yielding import YIELDING, measured_yielding


def search_of(model: str, servers: int, degree: int, samples: int | None = None):
    job = to.Job(to.models.get_model(model), batch_per_gpu=samples)
    cluster = to.Cluster(servers=servers, degree=degree, bandwidth="100Gbps")
    options = to.SearchOptions().settled("operators", servers)
    return OperatorSearch(Problem(job.family(servers), cluster, options)).search


def pairs_of(search):
    """Return the usual strategies that fit, wired."""
    named = [search.space.intern(s) for s in named_strategies(search.space).values()]
    fitting = [s for s in dict.fromkeys(named) if search.problem.fits(s)]
    return [Rewirer(search.problem).wire(strategy, "named") for strategy in fitting]


def times_of(search, pair):
    """Return both fluid times of a pair, and its time in packet trains."""
    fluid = Scorer(search.problem, pair.fabric)(pair.strategy)
    late = Scorer(search.problem.scored(1.0), pair.fabric)(pair.strategy)
    return fluid, late, packet_time(search.problem, pair)


def test_the_weight_explains_the_packet_times_of_pairs():
    search = search_of("candle-16", 8, 2, 64)
    pairs, told = pairs_of(search), 0
    for pair in pairs:
        fluid, late, took = times_of(search, pair)
        weight = measured_yielding(search.problem, [pair])
        if late <= 1.01 * fluid:
            assert weight == YIELDING
            continue
        told += 1
        explained = fluid + weight * (late - fluid)
        clipped = min(max(took, fluid), late)
        assert abs(explained - clipped) <= (0.1 + 1e-9) * (late - fluid)
        if 0.1 <= (took - fluid) / (late - fluid) <= 0.9:
            assert explained == pytest.approx(took, rel=1e-9)
    assert told


def test_it_is_the_mean_of_the_first_two(monkeypatch):
    search = search_of("candle-16", 8, 2, 64)
    differ = []
    for pair in pairs_of(search):
        fluid, late, _ = times_of(search, pair)
        if late > 1.01 * fluid:
            differ.append((pair, fluid, late))
    assert differ
    pair, fluid, late = differ[0]
    for shares, weight in (
        ((0.3, 0.6, 0.9), 0.45), ((0.3, 0.6), 0.45), ((-2.0,), 0.0), ((0.04,), 0.0),
        ((7.0,), 1.0), ((0.95,), 1.0), ((7.0, 0.2), 0.6),
    ):  # fmt: skip
        left = list(shares)
        monkeypatch.setattr(
            yielding, "packet_time", lambda *_, left=left: fluid + left.pop(0) * (late - fluid)
        )
        found = measured_yielding(search.problem, [pair] * len(shares))
        assert found == pytest.approx(weight)
        assert len(left) == max(0, len(shares) - 2)
    assert measured_yielding(search.problem, []) == YIELDING


def test_others_tell_where_the_fluid_times_of_the_first_do_not_differ(monkeypatch):
    search = search_of("candle-16", 8, 2, 64)
    times = [(pair, *times_of(search, pair)[:2]) for pair in pairs_of(search)]
    alike = [pair for pair, fluid, late in times if late <= 1.01 * fluid]
    pair, fluid, late = next(each for each in times if each[2] > 1.01 * each[1])
    assert alike
    monkeypatch.setattr(yielding, "packet_time", lambda *_: fluid + 0.3 * (late - fluid))
    assert measured_yielding(search.problem, alike[:1]) == YIELDING
    assert measured_yielding(search.problem, alike[:1], alike) == YIELDING
    assert measured_yielding(search.problem, alike[:1], [pair]) == pytest.approx(0.3)
    # Where they do, the others are not even made.
    assert measured_yielding(search.problem, [pair], iter(int, 1)) == pytest.approx(0.3)


def test_a_search_that_goes_on_from_a_file_keeps_the_weight(tmp_path):
    """Packet trains are not asked again: the state says it."""
    search = search_of("dlrm-16", 4, 2)
    state = StateFile(tmp_path / "state", "question")
    once = run(search, Budget(steps=60), keeper=state)
    again = search_of("dlrm-16", 4, 2)
    again.yielding = np.nan
    loaded = run(again, Budget(steps=60), keeper=state)
    assert again.yielding == search.yielding
    assert loaded.best.time == once.best.time


def test_where_packets_share_links_the_search_goes_by_shares():
    """Of 5 servers with 2 ports, going by the mean of both times took 67.6 ms."""
    job = to.Job(to.models.get_model("candle-16"), batch_per_gpu=64)
    cluster = to.Cluster(servers=5, degree=2, bandwidth="100Gbps")
    plan = to.co_optimize(job, cluster, baselines=())
    assert plan.packet_time_s < 0.0605


def dlrm(tables, samples, servers):
    job = to.Job(to.models.dlrm(tables=tables, batch_per_gpu=samples))
    cluster = to.Cluster(servers=servers, degree=4, bandwidth="25Gbps")
    return to.co_optimize(job, cluster, to.SearchOptions(effort="quick"), baselines=())


def test_the_last_layers_alone_are_data_parallel_where_gradients_take_long():
    """All dense layers on one server take 75.1 ms, and no single move from there is faster."""
    assert dlrm(6, 64, 8).packet_time_s < 0.068


def test_the_last_layers_may_be_on_few_servers_again():
    """Where the last ones are data-parallel on all servers, this takes 118 ms."""
    assert dlrm(6, 128, 6).packet_time_s < 0.105


def test_the_pair_that_is_fastest_if_transfers_yield_is_confirmed_too():
    """One copy in long packet trains likes another best, and may do so by chance."""
    job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=64))
    cluster = to.Cluster(servers=8, degree=3, bandwidth="40Gbps")
    options = to.SearchOptions(effort="quick").settled("operators", 8)
    search = OperatorSearch(Problem(job.family(8), cluster, options))
    result = search.run()

    def late(pair):
        return Scorer(search.problem.scored(1.0), pair.fabric)(pair.strategy)

    least = min(map(late, result.others))
    found = search.candidates(result)
    assert len(found) == 1 + search.search.effort.confirmed
    assert any(late(pair) == least for pair in found)
