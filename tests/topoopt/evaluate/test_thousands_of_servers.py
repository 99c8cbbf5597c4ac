"""What thousands of servers cannot afford is left out, and the rest is as on few servers."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.strategy import Strategy
from parallelism.taskgraph import traffic_of
from routing import routes as routes_module
from topoopt.evaluate import least_times, rewire, scheduling
from topoopt.evaluate.least_times import routed_links
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.wirings import built
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.simulation import score
from topoopt.studies.setting import setting

MODEL = to.models.dlrm(tables=3)
SERVERS = 6
GIVEN = setting(MODEL, SERVERS, 3, 25.0)
CLUSTER = to.Cluster(SERVERS, 3, "25Gbps")
FEW = to.SearchOptions(steps=40, confirm="none")
HYBRID = GIVEN.strategies()["hybrid"]


@pytest.fixture
def many(monkeypatch):
    """Let a few servers be as many as those whose routes fill memory."""
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bytes_of_servers_and_links_need_no_matrix_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    configs = list(GIVEN.space.intern(named_strategies(GIVEN.space)["hybrid"]).configs)
    for index in rng.integers(len(configs), size=5).tolist():
        configs[index] = GIVEN.space.random_config(index, rng)
    tasks = GIVEN.family.build(Strategy(tuple(configs)))
    between = tasks.pair_bytes()
    expected = np.stack((between.sum(axis=1), between.sum(axis=0)))
    assert np.allclose(tasks.server_bytes(), expected, rtol=1e-12)
    topology = built(GIVEN.problem().cluster, traffic_of(tasks), None)
    by_matrix = link_bytes(direct_fabric(topology), tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes_module, "EVERY_PAIR_UP_TO", 3)
        # Added up target by target.
        assert np.allclose(link_bytes(direct_fabric(topology), tasks), by_matrix, rtol=1e-12)


def test_links_of_routes_are_known_before_they_are_made(monkeypatch) -> None:
    tasks = GIVEN.family.build(HYBRID)
    fabric = direct_fabric(built(GIVEN.problem().cluster, traffic_of(tasks), None))
    moves = tasks.kind == 1
    pairs = np.unique(tasks.first[moves] * SERVERS + tasks.second[moves])
    counts = np.diff(fabric.routes.offsets)[pairs]
    assert routed_links(fabric, tasks) == (counts.sum(), counts.mean())
    assert counts.min() > 0
    monkeypatch.setattr(least_times, "_SAMPLED", 4)
    links, mean = routed_links(fabric, tasks)
    assert counts.min() <= mean <= counts.max()
    assert links == counts.size * mean
    alone = GIVEN.family.build(GIVEN.strategies()["data-parallel"])
    assert routed_links(fabric, alone) == (0.0, 0.0)


def test_wirings_of_too_many_routes_give_way_to_others(many, monkeypatch) -> None:
    problem, tasks = GIVEN.problem(), GIVEN.family.build(HYBRID)
    rewirer = Rewirer(problem)
    plain = rewirer.wire(HYBRID, "hybrid", formula_only=True)
    assert plain is not None and plain.topology is not None
    network = plain.topology.network

    def size(fabric, tasks) -> tuple[float, float]:
        same = fabric.network.links == network.links and bool(
            (fabric.network.source == network.source).all()
            and (fabric.network.target == network.target).all()
        )
        return (1.0 if same else 0.0), 1.0

    monkeypatch.setattr(rewire, "routed_links", size)
    monkeypatch.setattr(rewire, "_MOST_ROUTED", 0.5)
    other = Rewirer(problem).wire(HYBRID, "hybrid", formula_only=True)
    assert other is not None and not other.wired_like(plain)
    assert other.time == pytest.approx(score(other.fabric, tasks), rel=1e-12)
    # What is slower than something known is not worth the trouble.
    assert Rewirer(problem).wire(HYBRID, "hybrid", formula_only=True, limit=other.time) is None


def test_few_simulations_of_what_has_a_wiring_go_on_whatever_it_takes(many, monkeypatch) -> None:
    problem = GIVEN.problem()
    first = Rewirer(problem).wire(HYBRID, "hybrid", formula_only=True)
    assert first is not None
    simulated: list[float] = []
    timed = rewire.Scorer.timed

    def counted(self, tasks, limit=float("inf"), bound=0.0):
        simulated.append(self.budget)
        return timed(self, tasks, limit, bound)

    monkeypatch.setattr(rewire.Scorer, "timed", counted)
    monkeypatch.setattr(rewire, "_TRIED_WORK", 1.0)
    monkeypatch.setattr(rewire, "_MOST_WHOLE", 0)
    rewirer = Rewirer(problem)
    # No wiring is simulated to its end, and so none is known to be faster.
    assert rewirer.wire(HYBRID, "hybrid", limit=2.0 * first.time, weighted=True) is None
    assert simulated == [1.0] * rewire._MOST_CUT
    # Of routes of many links flows take longer, so that fewer are re-solved; what is known is not
    # simulated again.
    simulated.clear()
    monkeypatch.setattr(rewire, "_USUAL_LINKS", 0.5)
    rewirer = Rewirer(problem)
    known = rewirer.wire(HYBRID, "hybrid", limit=2.0 * first.time, weighted=True, known=first)
    assert known is not None and known.wired_like(first) and known.time == first.time
    # The last is of other routes on the wiring that is known.
    *tried, _ = simulated
    assert len(tried) == rewire._MOST_CUT and max(tried) <= 0.5
    assert rewirer.unsimulated > 0
    monkeypatch.setattr(rewire, "_MOST_WHOLE", 2)
    simulated.clear()
    found = Rewirer(problem).wire(HYBRID, "hybrid", limit=2.0 * first.time, weighted=True)
    assert found is not None and found.time <= first.time
    assert simulated[0] == float("inf") and simulated.count(float("inf")) <= 2


@pytest.mark.slow
def test_many_transfers_are_simulated_nearly(many, monkeypatch) -> None:
    monkeypatch.setattr(scheduling, "MOST_TRANSFERS", 0)
    plan = to.co_optimize(to.Job(MODEL), CLUSTER, FEW)
    assert len([note for note in plan.notes if "off by about 0.1 %" in note]) == 1
    assert to.verify_plan(plan).ok
    assert not to.verify_plan(replace(plan, iteration_time_s=plan.iteration_time_s * 1.01)).ok


def test_equal_configurations_are_found_again(many) -> None:
    config = HYBRID.configs[0]
    equal = replace(config)
    assert equal is not config and equal == config and hash(equal) == hash(config)
    assert hash(pickle.loads(pickle.dumps(config))) == hash(config)
    assert (
        GIVEN.space.intern(Strategy((equal,) * len(HYBRID.configs))).configs[0]
        is (GIVEN.space.intern(Strategy((config,) * len(HYBRID.configs))).configs[0])
    )
