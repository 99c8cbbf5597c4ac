"""What a search on fewer servers finds, repeated on all."""

import pytest

import topoopt as to
from codesign_base import InfeasibleError
from parallelism.search.named import named_strategies
from parallelism.search.repeated import repeated
from topoopt.evaluate.problem import Problem
from topoopt.search import of_fewer, operators
from topoopt.search.driver import run
from topoopt.search.methods import search_for
from topoopt.search.of_fewer import best_of_fewer, fewer_servers
from topoopt.search.operators import OperatorSearch

JOB = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))


def search_on(servers, degree=3, **options):
    cluster = to.Cluster(servers, degree, "25Gbps")
    settled = to.SearchOptions(**options).settled("operators", servers)
    return search_for(Problem(JOB.family(servers), cluster, settled))


@pytest.mark.parametrize(
    ("servers", "degree", "fewer"),
    [(32, 4, None), (36, 3, 12), (37, 3, None), (40, 4, 10), (64, 4, 16), (40, 12, None),
     (46, 3, None), (128, 4, None)],
)  # fmt: skip
def test_the_most_servers_that_divide_all_and_have_the_same_ports(servers, degree, fewer) -> None:
    assert fewer_servers(search_on(servers, degree)) == fewer


def test_methods_to_be_compared_with_have_none() -> None:
    assert fewer_servers(search_on(40, method="alternating")) is None


def test_what_is_found_on_fewer_servers_is_repeated_on_all(monkeypatch) -> None:
    smaller = []

    def remembered(search, *asked):
        found = run(search, *asked)
        smaller.append((search, found))
        return found

    monkeypatch.setattr(of_fewer, "run", remembered)
    search = search_on(36)
    strategies = best_of_fewer(search)
    ((few, found),) = smaller
    assert few.cluster.servers == 12
    assert few.problem.family.batch == JOB.family(12).batch
    known = [
        search.space.intern(repeated(pair.strategy, search.space, 12)) for pair in found.others
    ]
    assert strategies and set(strategies) <= set(known)
    assert strategies[0] == known[0]


def test_there_is_none_where_the_model_does_not_fit_on_fewer(monkeypatch) -> None:
    def refuse(*_):
        raise InfeasibleError("model 'x' does not fit")

    monkeypatch.setattr(of_fewer, "run", refuse)
    assert best_of_fewer(search_on(36)) == []


def test_an_interruption_ends_it() -> None:
    def stop(made):
        assert made.stage == "fewer servers"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        best_of_fewer(search_on(36), stop)


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_on_more_servers_packet_trains_judge_it(monkeypatch, effort) -> None:
    search = OperatorSearch(search_on(36, effort=effort).problem)
    result = search.run()
    chosen = search.search.space.intern(named_strategies(search.search.space)["hybrid"])
    monkeypatch.setattr(operators, "best_of_fewer", lambda *_: [chosen])
    slower = search.candidates(result)  # than the best by packets, which is known
    search._judged = []
    judged = search.candidates(result)
    monkeypatch.setattr(operators, "best_of_fewer", lambda *_: [])
    without = search.candidates(result)
    more = 2 if effort == "normal" else 0  # over one path a pair, too
    assert len(judged) == len(without) + more
    assert len(slower) == len(without)
    assert sum(p.strategy == chosen for p in judged) >= more


@pytest.mark.slow
def test_a_model_that_branches_gains_by_it(monkeypatch) -> None:
    job = to.Job(to.models.get_model("candle-16"))
    cluster = to.Cluster(40, 4, "100Gbps")
    plan = to.co_optimize(job, cluster, baselines=[])
    assert to.verify_plan(plan).ok
    monkeypatch.setattr(operators, "best_of_fewer", lambda *_: [])
    without = to.co_optimize(job, cluster, baselines=[])
    assert plan.packet_time_s < 0.99 * without.packet_time_s
