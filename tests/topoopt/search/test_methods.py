"""A method is a record of steps: their order, and what is particular to the published ones."""

from dataclasses import replace

import pytest
from small_plans import small_dlrm, small_mlp

import topoopt as to
from codesign_base import InputError
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.problem.budget import Budget
from topoopt.problem.options import SearchOptions
from topoopt.search.driver import run, start
from topoopt.search.methods import search_for
from topoopt.search.population import best_starts
from topoopt.search.steps import Search, SearchMethod, rewired


def problem(model=None, servers=4, ports="directed", **options):
    cluster = to.Cluster(servers, 2, "10Gbps", ports)
    return Problem(
        to.Job(model or small_mlp()).family(servers), cluster, SearchOptions(**options), seed=3
    )


def recorded(taken):
    """A method whose steps write down their names."""

    def population(search, state, pairs, deadline):
        taken.append("population")
        return best_starts(search, state, pairs, deadline)

    def after(search, state, r, changed):
        taken.append("after")
        if changed:
            rewired(search, state, r, changed)

    def mix(name):
        def step(search, state, current):
            taken.append(name)
            return current

        return step

    def conclude(search, state):
        taken.append("conclude")

    return SearchMethod(population, after, (mix("first"), mix("second")), conclude, round_steps=10)


def test_steps_are_taken_in_the_order_of_the_record():
    taken = []
    result = run(Search(problem(chains=2), recorded(taken)), Budget(steps=40))
    assert result.steps == 40
    assert taken == ["population", *["after", "after", "first", "second"] * 2, "conclude"]


def test_what_time_cuts_short_is_neither_rewired_nor_mixed():
    taken = []
    result = run(Search(problem(chains=2), recorded(taken)), Budget(seconds=-1.0))
    assert result.steps == 0 and taken == ["population", "conclude"]


@pytest.mark.parametrize("faithful", ["paper", "artifact"])
def test_the_published_search_starts_one_chain_from_the_hybrid(faithful):
    search = search_for(problem(small_dlrm(), ports="bidirectional", faithful=faithful))
    pairs, times, _ = start(search)
    assert set(times) == {"data-parallel", "hybrid"}
    begun = search.method.population(search, None, pairs, None)
    assert [pair.origin for pair in begun] == ["hybrid"]
    assert search.method.mix == ()


def test_only_the_paper_builds_topologies_anew(monkeypatch):
    wire, calls = Rewirer.wire, []
    monkeypatch.setattr(Rewirer, "wire", lambda *a, **k: calls.append(0) or wire(*a, **k))
    more = {}
    for faithful in ("paper", "artifact"):
        search = search_for(problem(small_dlrm(), ports="bidirectional", faithful=faithful))
        calls.clear()
        start(search)
        begun = len(calls)
        run(search, Budget(steps=120))
        more[faithful] = len(calls) - 2 * begun
    # Two rounds of one chain, whether or not they found a faster strategy.
    assert more == {"paper": 2, "artifact": 0}


def test_the_artifact_knows_sample_splits_and_bidirectional_ports_only():
    space = search_for(problem(ports="bidirectional", faithful="artifact")).space
    operators = range(len(space.graph.operators))
    assert all(parameter == 1 for i in operators for _, parameter, _ in space.degrees(i))
    with pytest.raises(InputError, match="give ports='bidirectional'"):
        search_for(problem(faithful="artifact"))


def test_a_problem_says_how_it_is_scored():
    asked = problem(schedule="compute")
    assert asked.yielding == 0.0 and asked.schedule.compute == "critical-path"
    assert asked.scored(0.5).yielding == 0.5
    plain = asked.scored(0.5).plain
    assert plain.yielding == 0.0 and plain.schedule.compute == "ready"
    assert replace(plain.options, schedule="compute") == asked.options


def test_a_problem_fits_what_its_gpus_can_hold():
    asked = problem(small_dlrm())
    strategy = start(search_for(asked))[0][0].strategy
    assert asked.fits(strategy)
    accelerator = replace(asked.family.server.accelerator, memory_bytes=1.0)
    small = replace(asked.family, server=replace(asked.family.server, accelerator=accelerator))
    assert not replace(asked, family=small).fits(strategy)
