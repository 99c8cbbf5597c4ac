"""What a search on fewer servers finds, repeated on all."""

import numpy as np
import pytest

import topoopt as to
from codesign_base import InfeasibleError
from parallelism.search.named import named_strategies
from parallelism.search.repeated import repeated
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.problem.budget import Budget
from topoopt.search import of_fewer, operators, population
from topoopt.search.driver import run
from topoopt.search.methods import search_for
from topoopt.search.of_fewer import TimeUp, fewer_servers, starts_of_fewer
from topoopt.search.operators import OperatorSearch
from topoopt.search.steps import Deadline

JOB = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))


def search_on(servers, degree=3, **options):
    cluster = to.Cluster(servers, degree, "25Gbps")
    settled = to.SearchOptions(**options).settled("operators", servers)
    return search_for(Problem(JOB.family(servers), cluster, settled))


@pytest.mark.parametrize(
    ("servers", "degree", "fewer"),
    [(16, 3, None), (17, 3, None), (18, 3, 9), (24, 3, 12), (32, 4, 16), (40, 4, 10), (64, 4, 16),
     (24, 12, None), (22, 3, 11), (26, 4, 13), (128, 4, None)],
)  # fmt: skip
def test_the_most_servers_that_divide_all_and_have_the_same_ports(servers, degree, fewer) -> None:
    assert fewer_servers(search_on(servers, degree)) == fewer


def test_methods_to_be_compared_with_have_no_such_starts() -> None:
    assert fewer_servers(search_on(24, method="alternating")) is None


def test_what_is_found_on_fewer_servers_is_wired_on_all(monkeypatch) -> None:
    smaller = []

    def remembered(search, *asked):
        found = run(search, *asked)
        smaller.append((search, found))
        return found

    wired = []

    def noted(rewirer, strategy, *asked, **named):
        wired.append(strategy)
        return wire(rewirer, strategy, *asked, **named)

    wire = Rewirer.wire
    monkeypatch.setattr(Rewirer, "wire", noted)
    monkeypatch.setattr(of_fewer, "run", remembered)
    monkeypatch.setattr(population, "_NEAR", 100.0)  # such small jobs are far from the switch
    search = search_on(18, steps=20)
    run(search, Budget(steps=20))
    ((few, found),) = smaller
    assert few.cluster.servers == 9
    assert few.problem.family.batch == JOB.family(9).batch
    strategies = [repeated(pair.strategy, search.space, 9) for pair in found.others]
    assert set(wired) & set(strategies)


def test_no_start_where_the_model_does_not_fit_on_fewer(monkeypatch) -> None:
    def refuse(*_):
        raise InfeasibleError("model 'x' does not fit")

    monkeypatch.setattr(of_fewer, "run", refuse)
    assert starts_of_fewer(search_on(18), Deadline.begun(Budget(steps=5), None)) == ([], 0.0)


def test_time_and_interruptions_end_it() -> None:
    search = search_on(18)
    with pytest.raises(TimeUp):
        starts_of_fewer(search, Deadline(Budget(seconds=0.0), -np.inf, None))

    def stop(made):
        assert made.stage == "fewer servers"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starts_of_fewer(search, Deadline.begun(Budget(steps=5), stop))


def test_what_time_cut_short_is_as_if_it_had_not_begun(monkeypatch) -> None:
    def late(*_):
        raise TimeUp

    monkeypatch.setattr(population, "starts_of_fewer", late)
    cut = run(search_on(18), Budget(steps=50))
    assert cut.steps == 0 and cut.best.time == min(cut.named.values())


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_on_more_servers_packet_trains_judge_it(monkeypatch, effort) -> None:
    search = OperatorSearch(search_on(36, effort=effort).problem)
    result = search.run()
    chosen = search.search.space.intern(named_strategies(search.search.space)["hybrid"])
    monkeypatch.setattr(operators, "starts_of_fewer", lambda *_: ([chosen], 0.0))
    slower = search.candidates(result)  # than the best by packets, which is known
    search._judged = []
    judged = search.candidates(result)
    monkeypatch.setattr(operators, "starts_of_fewer", lambda *_: ([], 0.0))
    without = search.candidates(result)
    more = 2 if effort == "normal" else 0  # over one path a pair, too
    assert len(judged) == len(without) + more
    assert len(slower) == len(without)
    assert sum(p.strategy == chosen for p in judged) >= more


@pytest.mark.slow
@pytest.mark.parametrize("servers", [24, 40])
def test_a_model_that_branches_gains_by_it(monkeypatch, servers) -> None:
    job = to.Job(to.models.get_model("candle-16"))
    cluster = to.Cluster(servers, 4, "100Gbps")
    plan = to.co_optimize(job, cluster, baselines=[])
    assert to.verify_plan(plan).ok
    for module in (population, operators):
        monkeypatch.setattr(module, "starts_of_fewer", lambda *_: ([], 0.0))
    without = to.co_optimize(job, cluster, baselines=[])
    assert plan.packet_time_s < 0.99 * without.packet_time_s
