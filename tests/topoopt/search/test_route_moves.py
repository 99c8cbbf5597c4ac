"""Routes of one path a pair for a wired strategy: balanced, improved by simulation, verified."""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import topoopt as to
from codesign_base import InputError
from parallelism.search.named import named_strategies
from parallelism.taskgraph import TaskKind
from routing.paths import hops_toward_hosts
from topoopt.evaluate.mcf_routes import check_least_congestion
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.loads import demand_of, link_bytes
from topoopt.plan.plan import parse_plan
from topoopt.plan.verify import verify_plan
from topoopt.problem.options import SearchOptions
from topoopt.problem.routing import Routing
from topoopt.search.driver import _settle
from topoopt.search.methods import search_for
from topoopt.search.result import SearchResult
from topoopt.search.route_moves import improved_paths, other_routes, shortest_paths

JOB = to.Job(to.models.get_model("dlrm-16"))
CLUSTER = to.Cluster(servers=12, degree=3, bandwidth="25Gbps")
FAMILY = JOB.family(CLUSTER.servers)
PROBLEM = Problem(FAMILY, CLUSTER)


@pytest.fixture(scope="module")
def wired():
    """The hybrid on a topology of its own, with balanced routes."""
    problem = Problem(FAMILY, CLUSTER, SearchOptions(confirm="packet"))
    search = search_for(problem)
    strategy = search.space.intern(named_strategies(search.space)["hybrid"])
    pair = Rewirer(problem).wire(strategy, "hybrid")
    assert pair is not None and pair.routing is Routing.BALANCED
    return FAMILY, pair


def test_the_demand_is_what_links_carry(wired):
    family, pair = wired
    tasks = family.build(pair.strategy)
    demand = demand_of(pair.fabric, tasks)
    carried = pair.fabric.routes.link_bytes(pair.fabric.network, demand)
    np.testing.assert_allclose(carried, link_bytes(pair.fabric, tasks), rtol=1e-12)


def test_groups_without_rings_count_as_if_all_pairs_sent(wired):
    family, pair = wired
    tasks = family.build(pair.strategy)
    bare = replace(pair.fabric, rings={})
    moves = tasks.kind == TaskKind.TRANSFER
    reduced = replace(tasks, size=np.where(moves, 0.0, tasks.size))
    demand = demand_of(bare, reduced)
    np.testing.assert_allclose(
        demand.sum(axis=1), demand_of(pair.fabric, reduced).sum(axis=1), rtol=1e-12
    )
    off = demand[~np.eye(12, dtype=bool)]
    np.testing.assert_allclose(off, off[0])


def test_enumerated_paths_are_those_of_networkx(wired):
    network = wired[1].fabric.network
    graph = nx.DiGraph(zip(network.source.tolist(), network.target.tolist(), strict=True))
    toward = hops_toward_hosts(network)
    for s in range(12):
        for t in range(12):
            mine = [
                [s, *(int(network.target[link]) for link in path)]
                for path in shortest_paths(network, toward, s, t)
            ]
            assert sorted(mine) == sorted(nx.all_shortest_paths(graph, s, t))


def test_improved_paths_save_time_and_stay_shortest(wired):
    family, pair = wired
    # All traffic over the paths of lowest numbers leaves something to improve.
    from routing.paths import shortest_routes

    poor = replace(pair.fabric, routes=shortest_routes(pair.fabric.network))
    time = Scorer(PROBLEM, poor)(pair.strategy)
    better = improved_paths(PROBLEM, replace(pair, fabric=poor, time=time))
    assert better.time < time
    simulated = run_fluid(better.fabric, family.build(pair.strategy), 0.0)
    assert better.time == simulated.finish.max()
    assert np.all(better.fabric.routes.weights == 1.0)
    np.testing.assert_array_equal(better.fabric.routes.hops, poor.routes.hops)
    # What cannot be improved comes back as it is.
    again = improved_paths(PROBLEM, better)
    assert again.time <= better.time


def test_other_routes_keep_all_pairs_and_add_ecmp(wired):
    pair = wired[1]
    found = other_routes(PROBLEM, [pair], 4)
    assert pair in found
    assert {each.routing for each in found} == {Routing.BALANCED, Routing.ECMP}
    assert [each.time for each in found] == sorted(each.time for each in found)
    for each in found:
        assert each.time == Scorer(PROBLEM, each.fabric)(pair.strategy)
    plain = replace(pair, routing=Routing.ECMP)
    assert other_routes(PROBLEM, [plain], 4) == [plain]


@pytest.fixture(scope="module")
def plan():
    return to.co_optimize(
        JOB,
        CLUSTER,
        SearchOptions(steps=60, effort="normal", confirm="packet"),
        seed=0,
        baselines=(),
    )


@pytest.mark.slow
def test_confirmed_plans_are_verified_and_their_routes_are_checked(plan):
    assert verify_plan(plan).ok
    assert plan.routing in ("balanced", "ecmp")
    content = json.loads(plan.to_json())
    content["routing"] = "balanced" if plan.routing == "ecmp" else "ecmp"
    assert not verify_plan(parse_plan(json.dumps(content), "other routing")).ok


def test_a_detour_is_not_balanced_routing(wired):
    from topoopt.plan.route_checks import _check_single_shortest

    class Rebuilt:
        fabric = wired[1].fabric

    _check_single_shortest(Rebuilt)
    routes = Rebuilt.fabric.routes
    slow = routes.latency.copy()
    slow[5] *= 2.0
    Rebuilt.fabric = replace(Rebuilt.fabric, routes=replace(routes, latency=slow))
    with pytest.raises(InputError, match="the route 0->5 is not one shortest path"):
        _check_single_shortest(Rebuilt)


def test_balanced_routes_need_a_strategy(wired):
    with pytest.raises(InputError, match="routing is 'balanced'"):
        direct_fabric(wired[1].topology, Routing.BALANCED)


def test_routes_of_another_strategy_are_made_anew(wired):
    # A chain may keep mcf routes while its strategy changes; a plan must not.
    family, pair = wired
    search = search_for(PROBLEM)
    rewirer = Rewirer(PROBLEM)
    tasks = family.build(pair.strategy)
    own = direct_fabric(pair.topology, Routing.MCF, tasks=tasks)
    right = replace(pair, routing=Routing.MCF, fabric=own)
    assert rewirer.settled(right) is right
    assert rewirer.settled(pair) is pair
    ecmp = direct_fabric(pair.topology, Routing.ECMP)
    rng = np.random.default_rng(0)
    shuffled = pair.strategy
    while True:
        # Tables elsewhere: other transfers than the routes were made for.
        index = int(rng.integers(len(shuffled.configs)))
        shuffled = shuffled.replace([(index, search.space.random_config(index, rng))])
        try:
            check_least_congestion(own, family.build(shuffled))
        except InputError:
            break
    wrong = replace(right, strategy=shuffled)
    rerouted = rewirer.settled(wrong)
    check_least_congestion(rerouted.fabric, family.build(shuffled))
    assert rerouted.time == Scorer(PROBLEM, rerouted.fabric)(shuffled)
    others = [replace(wrong, time=1e-9), replace(pair, routing=Routing.ECMP, fabric=ecmp)]
    result = SearchResult(others[0], {}, others)
    _settle(search, result)
    assert result.best.time == min(each.time for each in result.others) > 1e-9
