"""What is not wired, or not wired further, is not faster than what is kept."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.strategy import Strategy
from parallelism.taskgraph import traffic_of
from topoopt.bounds.bounds import strategy_bound
from topoopt.evaluate import rewire
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.evaluate.wirings import built
from topoopt.problem.options import SearchOptions
from topoopt.problem.routing import Routing
from topoopt.studies.setting import setting

SERVERS, DEGREE = 6, 2
GIVEN = setting(to.models.dlrm(tables=3), SERVERS, DEGREE, 25.0)
FLUID = SearchOptions(confirm="none", effort="thorough")


def drawn(seed: int) -> Strategy:
    rng = np.random.default_rng(seed)
    names = named_strategies(GIVEN.space)
    configs = list(GIVEN.space.intern(names[list(names)[int(rng.integers(len(names)))]]).configs)
    for index in rng.integers(len(configs), size=3).tolist():
        configs[index] = GIVEN.space.random_config(index, rng)
    return Strategy(tuple(configs))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.3, 1.5))
def test_a_limit_loses_nothing_that_is_faster(seed, share):
    strategy, problem = drawn(seed), GIVEN.problem(FLUID)
    whole = Rewirer(problem).wire(strategy, "drawn")
    assert whole is not None
    limited = Rewirer(problem).wire(strategy, "drawn", limit=share * whole.time)
    if share > 1.0:
        assert limited is not None and limited.time == whole.time
    elif share < 1.0 - 1e-6:
        assert limited is None


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_wiring_that_ends_by_its_bound_is_as_good_as_the_gain_that_ends_it(seed):
    strategy = drawn(seed)
    thorough = Rewirer(GIVEN.problem(FLUID)).wire(strategy, "drawn", weighted=True)
    normal = GIVEN.problem(SearchOptions(confirm="none", effort="normal"))
    quick = Rewirer(normal).wire(strategy, "drawn", weighted=True)
    gain = normal.options.spent.least_gain
    assert thorough is not None and quick is not None
    assert thorough.time <= quick.time * (1 + 1e-12)
    assert quick.time <= (1.0 + gain) * thorough.time * (1 + 1e-12)
    tasks = GIVEN.family.build(strategy)
    cluster = normal.cluster
    bound = strategy_bound(tasks, DEGREE, cluster.port_rate, cluster.hop_latency).seconds
    assert quick.time == thorough.time or quick.time <= (1.0 + gain) * bound


@pytest.mark.parametrize("routing", [Routing.ECMP, Routing.K_SHORTEST])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_routes_made_on_demand_give_the_times_of_whole_tables(routing, seed):
    strategy = drawn(seed)
    tasks = GIVEN.family.build(strategy)
    problem = GIVEN.problem(FLUID)
    topology = built(problem.cluster, traffic_of(tasks), None)
    lazy = direct_fabric(topology, routing, on_demand=True)
    assert lazy.routes.listed.size == 0
    whole = direct_fabric(topology, routing)
    assert whole.routes.pairs is None
    assert Scorer(problem, lazy)(strategy) == Scorer(problem, whole)(strategy)


def test_no_more_is_wired_for_a_strategy_that_cannot_be_faster(monkeypatch):
    problem = GIVEN.problem(FLUID)
    strategy = GIVEN.strategy("data-parallel")
    monkeypatch.setattr(Rewirer, "_try", None)  # nothing is even built
    assert Rewirer(problem).wire(strategy, "data-parallel", limit=1e-9) is None


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_wiring_is_the_same_whether_few_pairs_are_routed_meanwhile_or_all(seed):
    strategy, found = drawn(seed), []
    for share in (0.0, 2.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rewire, "_FEW_PAIRS", share)
            pair = Rewirer(GIVEN.problem(FLUID)).wire(strategy, "drawn", weighted=True)
        assert pair is not None
        found.append(pair)
    all_pairs, few = found
    assert few.time == all_pairs.time and few.wired_like(all_pairs)
    assert few.fabric.routes.pairs is None and few.fabric.edge_routes.pairs is None
    assert few.fabric.routes.like(all_pairs.fabric.routes)
    assert few.fabric.edge_routes.like(all_pairs.fabric.edge_routes)
