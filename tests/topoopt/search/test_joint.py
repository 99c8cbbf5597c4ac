"""The joint search, the lesser methods, and what they promise."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_plans import assert_valid, planned, small_dlrm, small_mlp, solve

import topoopt as to
from codesign_base import InputError
from parallelism.search.named import data_parallel
from parallelism.search.space import StrategySpace
from parallelism.taskgraph import TaskKind, traffic_of
from topoopt.cli import main
from topoopt.evaluate.mcf_routes import (
    check_least_congestion,
    least_congestion_routes,
    transfer_problem,
)
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.evaluate.wirings import built, trunked
from topoopt.problem.options import FAITHFUL, METHODS, SearchOptions
from topoopt.problem.routing import Routing
from topoopt.search.driver import start
from topoopt.search.methods import SEARCHES, search_for


@pytest.mark.parametrize(
    ("servers", "method"),
    [
        # Few servers are the same case for all methods.
        pytest.param(servers, method, marks=pytest.mark.slow if servers < 5 and at else ())
        for servers in (1, 2, 5)
        for at, method in enumerate(METHODS)
    ],
)
def test_every_method_gives_a_verified_plan_that_says_so(method, servers):
    plan = solve(small_mlp(), servers, method=method)
    assert plan.search.options.method == method
    if method == "topology-only":
        assert plan.origin != "search" and plan.search.steps == 0
    if method in ("joint", "alternating"):
        assert plan.iteration_time_s <= min(t for t in plan.named_strategies_s.values() if t)


def test_the_methods_are_those_that_there_are_searches_for():
    assert set(SEARCHES) == {*METHODS, *FAITHFUL}


@pytest.mark.parametrize("model", [pytest.param(small_mlp(), marks=pytest.mark.slow), small_dlrm()])
def test_joint_search_is_deterministic_and_seeds_differ(model):
    job, cluster = to.Job(model), to.Cluster(4, 2, "100Gbps")
    plans = [planned(job, cluster, seed=seed, steps=20, baselines=()) for seed in (0, 0, 1)]
    first, again = (json.loads(plan.to_json()) for plan in plans[:2])
    assert first == again
    assert plans[2].seed == 1


@pytest.mark.slow
def test_the_steps_that_a_joint_plan_reports_reproduce_it():
    job, cluster = to.Job(small_dlrm(2)), to.Cluster(4, 2, "100Gbps")
    for steps in (7, 60, 150):
        options = SearchOptions(steps=steps, confirm="none")
        plan = to.co_optimize(job, cluster, options, baselines=())
        assert plan.search.steps <= steps
        options = replace(options, steps=plan.search.steps)
        again = to.co_optimize(job, cluster, options, baselines=())
        assert again.iteration_time_s == plan.iteration_time_s
        assert again.parallelization == plan.parallelization


def test_without_parameter_splits_there_are_none():
    plan = solve(small_mlp(), 4, parameter_splits=False, steps=30)
    assert all(op.parameter == 1 for op in plan.parallelization.operators)
    assert not any(name.startswith("tensor") for name in plan.named_strategies_s)
    assert not plan.search.options.parameter_splits
    loose = solve(small_mlp(), 4, steps=0)
    named = [name for name in loose.named_strategies_s if name.startswith("tensor")]
    if named:
        assert loose.search.options.parameter_splits


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "magic"}, "method is 'magic'"),
        ({"method": "sequential", "faithful": "paper"}, "faithful is 'paper'"),
    ],
)
def test_methods_that_do_not_exist_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        solve(small_mlp(), 4, **options)


def weighted_pair(servers=8, degree=3):
    job, cluster = to.Job(small_dlrm(8)), to.Cluster(servers, degree, "100Gbps")
    builder = job.builder(servers)
    search = search_for(Problem(job.family(servers), cluster))
    pair = next(p for p in start(search)[0] if p.origin == "hybrid")
    tasks = builder.build(pair.strategy)
    assert np.any(tasks.kind == TaskKind.TRANSFER)
    fabric = direct_fabric(pair.topology, Routing.MCF, tasks=tasks)
    return job, cluster, builder, pair, tasks, fabric


def test_weighted_routes_load_the_busiest_link_least_and_are_proven():
    *_, pair, tasks, fabric = weighted_pair()
    network, demand = transfer_problem(fabric, tasks)
    loads = {
        name: float((routes.link_bytes(network, demand) / network.capacity).max())
        for name, routes in (("mcf", fabric.routes), ("ecmp", pair.fabric.routes))
    }
    assert loads["mcf"] <= loads["ecmp"] * 1.03
    check_least_congestion(fabric, tasks)
    again = least_congestion_routes(fabric, tasks)
    assert np.array_equal(again.links, fabric.routes.links)
    assert np.array_equal(again.weights, fabric.routes.weights)


def test_worse_routes_do_not_pass_for_weighted_ones():
    *_, pair, tasks, fabric = weighted_pair()
    network, demand = transfer_problem(fabric, tasks)
    ecmp = direct_fabric(pair.topology, Routing.ECMP)
    best = (fabric.routes.link_bytes(network, demand) / network.capacity).max()
    plain = (ecmp.routes.link_bytes(network, demand) / network.capacity).max()
    if plain > 1.1 * best:
        with pytest.raises(InputError, match="mcf routing would have found"):
            check_least_congestion(replace(fabric, routes=ecmp.routes), tasks)
    single = direct_fabric(pair.topology, Routing.SINGLE, 3)
    with pytest.raises(InputError):
        check_least_congestion(replace(fabric, routes=single.routes), tasks)


def test_a_plan_with_weighted_routes_is_verified(monkeypatch):
    # Weighted routes win whenever they are tried.
    def always(self, tasks, best, routing):
        if best.found is None or not np.any(tasks.kind == TaskKind.TRANSFER):
            return
        fabric = direct_fabric(best.found[0], Routing.MCF, self.problem.seed, tasks=tasks)
        best.found = (best.found[0], Routing.MCF, fabric)
        best.time = Scorer(self.problem, fabric).simulate(tasks)

    monkeypatch.setattr(Rewirer, "_reroute", always)
    job, cluster = to.Job(small_dlrm(8)), to.Cluster(8, 3, "100Gbps")
    plan = to.co_optimize(job, cluster, SearchOptions(method="topology-only"), baselines=())
    assert plan.routing == "mcf"
    assert_valid(plan)


@pytest.mark.parametrize("ports", ["directed", "bidirectional"])
def test_links_of_two_cables_keep_to_the_ports_and_shorten_small_allreduces(ports):
    # One tiny layer: its AllReduce is all rounds, and a round is a packet.
    model = to.models.candle(
        features=(8,), tower_layers=1, width=8, dense_layers=1, doses=1, batch_per_gpu=8
    )
    job, cluster = to.Job(model), to.Cluster(8, 4, "1Gbps", ports)
    builder, problem = job.builder(8), Problem(job.family(8), cluster)
    rewirer = Rewirer(problem)
    strategy = data_parallel(StrategySpace(builder.graph, 8, builder.batch))
    tasks = builder.build(strategy)
    doubled = trunked(problem.cluster, traffic_of(tasks))
    network = doubled.network
    assert set(network.multiplicity.tolist()) == {2}
    assert max(network.out_degree().max(), network.in_degree().max()) <= 4
    assert doubled.degree_allreduce + doubled.degree_transfer == 4
    plain = built(problem.cluster, traffic_of(tasks), None)
    times = [
        Scorer(problem, direct_fabric(topology)).simulate(tasks) for topology in (doubled, plain)
    ]
    assert times[0] < times[1]
    pair = rewirer.wire(strategy, "data-parallel")
    assert pair is not None and pair.time <= times[0]


def run_cli(capsys, *words):
    import sys

    from pytest import MonkeyPatch

    with MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["topoopt", *words])
        try:
            main()
        except SystemExit as stop:
            return stop.code, capsys.readouterr()
    return 0, capsys.readouterr()


def test_space_prints_its_size(capsys):
    code, out = run_cli(capsys, "space", "dlrm-16", "--servers", "16")
    assert not code
    assert "table_0 ..." in out.out and "reduction" in out.out and "tied" in out.out
    code, out = run_cli(capsys, "space", "dlrm-16", "--servers", "16", "--json")
    document = json.loads(out.out)
    assert not code
    assert document["tied_strategies_log10"] < document["untied_strategies_log10"]
    assert {len(group["operators"]) for group in document["groups"]} == {1, 7, 14, 16}
    plain = run_cli(
        capsys, "space", "dlrm-16", "--servers", "16", "--no-parameter-splits", "--json"
    )[1]
    for group in json.loads(plain.out)["groups"]:
        assert all(choice["parameter"] == 1 for choice in group["choices"])


def test_space_refuses_no_servers(capsys):
    code, out = run_cli(capsys, "space", "dlrm-16", "--servers", "0")
    assert code == 2
    assert out.err.startswith("error: servers is 0")
