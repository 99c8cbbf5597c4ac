"""The search for a fabric to compare with: no worse than what it was given, and repeatable."""

import numpy as np
import pytest
from small_plans import small_dlrm

import topoopt as to
from parallelism.search.named import named_strategies
from topoopt.codesign.once import search_of
from topoopt.evaluate.scoring import Scorer
from topoopt.fabrics.baselines import baseline_fabric
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import default_prices
from topoopt.search.compared import best_compared


@pytest.fixture(scope="module")
def searched():
    job, cluster = to.Job(small_dlrm()), to.Cluster(4, 2, "100Gbps")
    options = SearchOptions(steps=40, confirm="none").settled("operators", 4)
    search = search_of(job.family(4), cluster, options, 0)
    return search.search, search.run(), cluster


@pytest.mark.parametrize("fabric", ["ideal-switch", "fat-tree", "expander"])
def test_nothing_that_the_plans_search_kept_is_faster(searched, fabric):
    search, result, cluster = searched
    base = baseline_fabric(fabric, cluster, default_prices(), 0)
    found = best_compared(search, base, result, 1)
    score = Scorer(search.problem.plain, base.fabric)
    assert found.time == score(found.parallelization)
    kept = [pair.strategy for pair in result.others]
    for strategy in (*kept, *named_strategies(search.space).values()):
        assert found.time <= score(strategy) * (1.0 + 1e-9)
    again = best_compared(search, base, result, 1)
    assert (again.parallelization, again.time) == (found.parallelization, found.time)


def test_an_interrupted_search_is_not_gone_on_with(searched):
    search, result, cluster = searched
    base = baseline_fabric("expander", cluster, default_prices(), 0)
    result.interrupted = True
    seen = []
    try:
        found = best_compared(search, base, result, 1, seen.append)
    finally:
        result.interrupted = False
    assert not seen and np.isfinite(found.time)
