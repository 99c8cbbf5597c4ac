"""What a search on fewer servers finds, repeated on all."""

import pytest

import topoopt as to
from codesign_base import InfeasibleError
from parallelism.search.named import named_strategies
from parallelism.search.repeated import repeated
from topoopt.evaluate.problem import Problem
from topoopt.problem.budget import Budget
from topoopt.search import driver, of_fewer, operators, population
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
    [(16, 3, None), (17, 3, None), (18, 3, 9), (24, 3, 12), (32, 4, 16), (36, 3, 12), (40, 4, 10),
     (64, 4, 16), (24, 12, None), (22, 3, 11), (26, 4, 13), (128, 4, None)],
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
    strategies, work = best_of_fewer(search)
    ((few, found),) = smaller
    assert few.cluster.servers == 12
    assert few.problem.family.batch == JOB.family(12).batch
    known = [
        search.space.intern(repeated(pair.strategy, search.space, 12)) for pair in found.others
    ]
    assert strategies and set(strategies) <= set(known)
    assert strategies[0] == known[0] and work == found.work


def test_there_is_none_where_the_model_does_not_fit_on_fewer(monkeypatch) -> None:
    def refuse(*_):
        raise InfeasibleError("model 'x' does not fit")

    monkeypatch.setattr(of_fewer, "run", refuse)
    assert best_of_fewer(search_on(36)) == ([], 0.0)


def test_an_interruption_ends_it() -> None:
    def stop(made):
        assert made.stage == "fewer servers"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        best_of_fewer(search_on(36), stop)


@pytest.mark.parametrize(("servers", "steps"), [(18, None), (18, 20), (36, None)])
def test_one_chain_begins_with_it_where_nothing_but_gains_ends_the_search(
    monkeypatch, servers, steps
) -> None:
    search = search_on(servers, effort="quick", steps=steps)
    budget = search.method.budget(servers) if steps is None else Budget(steps=steps)
    before = run(search, budget)
    chosen = next(p.strategy for p in before.others if p.strategy != before.best.strategy)
    asked, begun = [], []
    make = driver._round

    def noted(searched, state, deadline):
        begun.append([pair.strategy for pair in state.current])
        return make(searched, state, deadline)

    monkeypatch.setattr(driver, "_round", noted)
    monkeypatch.setattr(
        population, "best_of_fewer", lambda *given: asked.append(given) or ([chosen], 7.0)
    )
    run(search, budget)
    assert bool(asked) == (servers == 18 and steps is None)
    if asked:
        assert begun[0][-1] == chosen != begun[0][0]


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_on_more_servers_packet_trains_judge_it(monkeypatch, effort) -> None:
    search = OperatorSearch(search_on(36, effort=effort).problem)
    result = search.run()
    assert not search.astray(result)
    chosen = search.search.space.intern(named_strategies(search.search.space)["hybrid"])
    monkeypatch.setattr(operators, "best_of_fewer", lambda *_: ([chosen], 0.0))
    slower = search.candidates(result)  # than the best by packets, which is known
    search._judged = []
    judged = search.candidates(result)
    monkeypatch.setattr(operators, "best_of_fewer", lambda *_: ([], 0.0))
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
        monkeypatch.setattr(module, "best_of_fewer", lambda *_, **__: ([], 0.0))
    without = to.co_optimize(job, cluster, baselines=[])
    assert plan.packet_time_s < 0.99 * without.packet_time_s
