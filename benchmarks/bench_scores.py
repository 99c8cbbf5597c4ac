"""Fully simulated strategy scores per second, and where the time of one goes.

Run by hand: ``python -m pytest benchmarks/bench_scores.py --benchmark-columns=min,mean,ops``.
A score is what the search pays for a proposal that no bound rules out: memory check, task
graph, simulation (exact). The bound is timed beside it; it is counted apart.
"""

import pytest

import topoopt as to
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import SEARCH_TOLERANCE, Scorer, busiest
from topoopt.problem.options import SearchOptions

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
}


def prepared(model):
    servers, name = CASES[model]
    job = to.Job(to.models.get_model(model))
    cluster = to.Cluster(servers, 4, "100Gbps")
    builder = job.builder(servers)
    space = StrategySpace(builder.graph, servers, builder.batch)
    strategy = space.intern(named_strategies(space)[name])
    limit = job.server.accelerator.memory_bytes
    pair = Rewirer(builder, cluster, limit, SearchOptions(), 0).wire(
        strategy, name, formula_only=True
    )
    return builder, strategy, pair.fabric, limit


@pytest.mark.parametrize("model", CASES)
def test_score(benchmark, model):
    builder, strategy, fabric, limit = prepared(model)
    benchmark.group = "exact score"
    assert benchmark(Scorer(builder, fabric, limit), strategy) > 0


@pytest.mark.parametrize("model", CASES)
def test_search_score(benchmark, model):
    builder, strategy, fabric, limit = prepared(model)
    benchmark.group = "score with batched completions (searches beyond 32 servers)"
    assert benchmark(Scorer(builder, fabric, limit, SEARCH_TOLERANCE), strategy) > 0


@pytest.mark.parametrize("model", CASES)
def test_build(benchmark, model):
    builder, strategy, _, _ = prepared(model)
    benchmark.group = "task graph alone"
    assert benchmark(builder.build, strategy).tasks > 0


@pytest.mark.parametrize("model", CASES)
def test_bound(benchmark, model):
    builder, strategy, fabric, _ = prepared(model)
    benchmark.group = "bound alone"
    assert benchmark(busiest, fabric, builder.build(strategy)) > 0
