"""Fully simulated strategy scores per second, and where the time of one goes.

Run by hand: ``python -m pytest benchmarks/bench_scores.py --benchmark-columns=min,mean,ops``.
A score is what the search pays for a proposal that no bound rules out: memory check, task
graph, simulation (exact). The bound is timed beside it; it is counted apart.
"""

import pytest

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import SEARCH_TOLERANCE, Scorer, busiest

CASES = {
    "dlrm-16": (16, "hybrid"),
    "candle-16": (16, "data-parallel"),
    "bert-16": (16, "data-parallel"),
    "vgg16-16": (16, "data-parallel"),
    "dlrm": (128, "hybrid"),
    "candle": (128, "tensor-4"),
    "bert": (128, "data-parallel"),
    "ncf": (128, "hybrid"),
    "resnet50": (128, "data-parallel"),
    "vgg16": (128, "data-parallel"),
    "dlrm@1024": (1024, "hybrid"),
    "bert@1024": (1024, "data-parallel"),
    "resnet50@1024": (1024, "data-parallel"),
}


def prepared(model):
    servers, name = CASES[model]
    family = to.Job(to.models.get_model(model.split("@")[0])).family(servers)
    problem = Problem(family, to.Cluster(servers, 4, "100Gbps"))
    space = StrategySpace(family.builder.graph, servers, family.batch)
    strategy = space.intern(named_strategies(space)[name])
    pair = Rewirer(problem).wire(strategy, name, formula_only=True)
    return problem, strategy, pair.fabric


@pytest.mark.parametrize("model", CASES)
def test_score(benchmark, model):
    problem, strategy, fabric = prepared(model)
    benchmark.group = "exact score"
    assert benchmark(Scorer(problem, fabric), strategy) > 0


@pytest.mark.parametrize("model", CASES)
def test_search_score(benchmark, model):
    problem, strategy, fabric = prepared(model)
    benchmark.group = "score with batched completions (searches beyond 32 servers)"
    assert benchmark(Scorer(problem, fabric, SEARCH_TOLERANCE), strategy) > 0


@pytest.mark.parametrize("model", CASES)
def test_build(benchmark, model):
    problem, strategy, _ = prepared(model)
    benchmark.group = "task graph alone"
    assert benchmark(problem.family.build, strategy).tasks > 0


@pytest.mark.parametrize("model", CASES)
def test_bound(benchmark, model):
    problem, strategy, fabric = prepared(model)
    benchmark.group = "bound alone"
    assert benchmark(busiest, fabric, problem.family.build(strategy)) > 0
