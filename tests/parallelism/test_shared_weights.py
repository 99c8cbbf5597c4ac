"""Operators of the same weights: one gradient, so one way to divide them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topoopt as to
from codesign_base import InputError
from parallelism.graph import Mode, ModelGraph
from parallelism.models import get_model
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import softmax
from parallelism.operators.layers import dense
from parallelism.search.mcmc import propose
from parallelism.search.moves import propose_region
from parallelism.search.named import named_strategies
from parallelism.search.regions import Regions
from parallelism.search.space import StrategySpace
from parallelism.strategy import check_legal, parted


def applied(times: int, width: int = 256) -> ModelGraph:
    """One layer that is applied several times, between a first and a last one."""
    build = GraphBuilder("again", batch_per_gpu=8)
    x = dense(build, "first", build.input(16), width)
    for number in range(times):
        build.reused = number > 0
        x = dense(build, f"layer_{number}", x, width)
        build.share("layer", x.operator)
    build.reused = False
    softmax(build, "last", dense(build, "out", x, 10))
    return build.build()


GRAPH = applied(4)
SPACE = StrategySpace(GRAPH, 4, 64)


def test_groups_that_meet_are_one() -> None:
    build = GraphBuilder("groups", batch_per_gpu=1)
    x = build.input(4)
    for number in range(6):
        x = dense(build, f"layer_{number}", x, 4)
    build.share("a", 0, 1)
    build.share("b", 2, None, 3)
    build.share("c", 3, 1)
    build.share("alone", 5)
    assert build.build().shared == ((0, 1, 2, 3),)


@pytest.mark.parametrize("shared", [((0,),), ((0, 9),), ((0, 1), (1, 2)), ((0, 0),)])
def test_groups_are_of_several_operators_of_the_model(shared) -> None:
    with pytest.raises(InputError, match="operators that share weights are"):
        ModelGraph("m", GRAPH.operators[:3], 1, 4, shared)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_no_move_divides_the_same_weights_differently(seed, regions) -> None:
    rng = np.random.default_rng(seed)
    strategy = named_strategies(SPACE)["data-parallel"]
    known = Regions(GRAPH, SPACE.alike)
    for _ in range(20):
        change = (
            propose_region(SPACE, known, strategy, rng)
            if regions
            else propose(SPACE, strategy, rng)
        )
        strategy = strategy.replace(change)
        assert parted(GRAPH, strategy) is None


def test_moves_do_reach_the_layers_that_share() -> None:
    rng = np.random.default_rng(0)
    strategy = named_strategies(SPACE)["data-parallel"]
    met = set()
    for _ in range(400):
        strategy = strategy.replace(propose(SPACE, strategy, rng))
        config = strategy.configs[1]
        met.add((config.sample, config.parameter))
    assert {(4, 1), (2, 2), (1, 4), (1, 1)} <= met


def test_what_is_divided_differently_is_neither_legal_nor_fits() -> None:
    family = to.Job(GRAPH).family(4)
    start = named_strategies(SPACE)["data-parallel"]
    for first, second in pairwise(GRAPH.shared[0]):
        config = SPACE.placed(1, 1, Mode.OUTPUT, offset=second % 4)
        apart = start.replace([(second, config)])
        assert parted(GRAPH, apart) is not None
        assert np.isinf(family.memory(apart)).all()
        with pytest.raises(InputError, match="uses the weights of 'layer_0'; give both the same"):
            check_legal(GRAPH, apart, 4, family.batch)
        assert SPACE.together(apart).configs[first] == SPACE.together(apart).configs[second]
    assert np.isfinite(family.memory(start)).all()


@pytest.mark.parametrize("name", ["gpt2", "bert-base"])
def test_a_tied_embedding_is_divided_like_the_projection(name) -> None:
    graph = get_model(name)
    names = [graph.operators[index].name for group in graph.shared for index in group]
    assert names == (["token_lookup", "vocabulary_projection"] if name == "gpt2" else [])
    space = StrategySpace(graph, 8, 64)
    strategies = named_strategies(space)
    assert len(strategies) > 4
    assert all(parted(graph, strategy) is None for strategy in strategies.values())


def test_a_plan_keeps_shared_weights_together_and_says_which() -> None:
    # Six times the same 268 MB: without sharing, later uses went where they cost nothing.
    job, cluster = to.Job(applied(6, 4096)), to.Cluster(4, 2, "100Gbps")
    plan = to.co_optimize(job, cluster, to.SearchOptions(steps=60, confirm="none"))
    assert plan.job.model.shared == [[1, 2, 3, 4, 5, 6]]
    placed = {(op.sample, op.parameter, *op.servers) for op in plan.parallelization.operators[1:7]}
    assert len(placed) == 1
    assert to.verify_plan(plan).ok
