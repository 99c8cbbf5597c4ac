"""Moves scored by packet trains, and what is screened with them."""

from dataclasses import replace

import numpy as np
import pytest

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.strategy import check_legal
from topoopt.confirm import screened, train_times
from topoopt.joint import JointSearch
from topoopt.scoring import Routing, Scorer, direct_fabric
from topoopt.search_types import Settings
from topoopt.train_moves import STARTS, TrainMoves

JOB = to.Job(to.models.get_model("dlrm-16"))
CLUSTER = to.Cluster(servers=8, degree=2, bandwidth="25Gbps")
MEMORY = JOB.server.accelerator.memory_bytes


@pytest.fixture(scope="module")
def search():
    return JointSearch(JOB.builder(8), CLUSTER, MEMORY, Settings(one_path=True), 0)


@pytest.fixture(scope="module")
def pairs(search):
    """Different strategies, wired, fastest first."""
    rewirer = search.rewirer()
    named = [search.space.intern(s) for s in named_strategies(search.space).values()]
    fitting = [s for s in dict.fromkeys(named) if search.builder.memory(s).max() <= MEMORY]
    found = [rewirer.wire(strategy, "named") for strategy in fitting]
    return sorted(found, key=lambda pair: pair.time)


def one_copy(search, pair):
    return train_times(search.builder, pair, 3, copies=1).mean


def moved(search, pairs, most=6):
    moves = TrainMoves(search.builder, search.space, search.regions, MEMORY, 3)
    return moves.improved(pairs, most)


def test_screening_keeps_what_is_fastest_in_trains(search, pairs):
    times = {pair.strategy: one_copy(search, pair) for pair in pairs}
    assert len(set(times.values())) > 3
    for count in (1, 3, len(pairs) - 1):
        kept = screened(search.builder, pairs, 3, count)
        assert [times[pair.strategy] for pair in kept] == sorted(times.values())[:count]
    assert screened(search.builder, pairs, 3, len(pairs)) == pairs


def test_moves_save_time_in_trains_and_stay_on_the_topology(search, pairs):
    before = [one_copy(search, pair) for pair in pairs[:STARTS]]
    found = moved(search, pairs)
    after = [one_copy(search, pair) for pair in found]
    assert after == sorted(after) and after[0] < min(before)
    topologies = [pair.topology for pair in pairs]
    for pair in found:
        check_legal(search.builder.graph, pair.strategy, 8, search.builder.batch)
        assert pair.topology in topologies
        assert Scorer(search.builder, pair.fabric, MEMORY)(pair.strategy) == pair.time
        own = direct_fabric(
            pair.topology, Routing.BALANCED, tasks=search.builder.build(pair.strategy)
        )
        assert np.array_equal(own.routes.links, pair.fabric.routes.links)


def test_the_same_seed_makes_the_same_moves(search, pairs):
    first, again = (moved(search, pairs) for _ in range(2))
    assert [pair.strategy for pair in first] == [pair.strategy for pair in again]


def test_without_simulations_or_wires_nothing_moves(search, pairs):
    none = moved(search, pairs, 0)
    assert {pair.strategy for pair in none} <= {pair.strategy for pair in pairs}
    bare = [replace(pair, topology=None) for pair in pairs]
    assert moved(search, bare) == bare


def test_of_twins_one_is_moved(search, pairs):
    assert len(moved(search, [pairs[0], pairs[0]], 1)) == 1
