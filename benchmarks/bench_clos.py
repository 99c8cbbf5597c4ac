"""How fast flows are routed on Clos fabrics; run by hand: ``pytest benchmarks/bench_clos.py``.

Traffic: a random matching of NICs, split into jobs of about equal size (one flow a NIC), which
loads ToRs unevenly; the large case has three flows a NIC. Every method is timed the same way,
compiled, in one process, from flows and fabric to spines.
"""

import numpy as np
import pytest
from clos_oracle import permutation_traffic

from routing.clos.bounds import bound_of_paths, gap
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.metric import evaluate
from routing.clos.paths import clos_paths
from routing.clos.routers import route

METHODS = ("ecmp", "greedy", "greedy-sorted", "edge-coloring", "annealing", "best")


def paper_fabric(failed: int) -> Clos:
    return Clos.uniform(64, 32).with_failed_spines(range(failed))


def large_traffic() -> ClosFlows:
    rng = np.random.default_rng(0)
    source, target = (rng.permutation(np.arange(100_096) // 391) for _ in range(2))
    keep = source != target
    return ClosFlows.of(source[keep], target[keep], np.sort(rng.integers(50, size=keep.size))[keep])


@pytest.mark.parametrize("failed", [0, 1, 8])
@pytest.mark.parametrize("method", METHODS)
def test_route(benchmark, method: str, failed: int) -> None:  # type: ignore[no-untyped-def]
    """1,728 flows on 64 x 32."""
    clos, flows = paper_fabric(failed), permutation_traffic(64, 32, 1760, 5, 0)
    flows = flows.subset(np.arange(min(1728, flows.count)))
    route(clos, flows, method)
    found = benchmark(route, clos, flows, method)
    efficiency = evaluate(clos, flows, found)
    bound = bound_of_paths(clos_paths(clos, flows), flows)
    benchmark.extra_info.update(
        flows=flows.count,
        mean_slowdown=efficiency.mean_slowdown,
        leading_gap=gap(efficiency.vector, bound),
    )


@pytest.mark.parametrize("method", ["edge-coloring", "best"])
def test_route_large(benchmark, method: str) -> None:  # type: ignore[no-untyped-def]
    """100,000 flows on 256 x 128."""
    clos, flows = Clos.uniform(256, 128), large_traffic()
    route(clos, flows, method)
    found = benchmark.pedantic(route, (clos, flows, method), rounds=5)
    efficiency = evaluate(clos, flows, found)
    benchmark.extra_info.update(flows=flows.count, mean_slowdown=efficiency.mean_slowdown)


@pytest.mark.parametrize("failed", [0, 8])
def test_metric(benchmark, failed: int) -> None:  # type: ignore[no-untyped-def]
    clos, flows = paper_fabric(failed), permutation_traffic(64, 32, 1760, 5, 0)
    assignment = route(clos, flows, "edge-coloring")
    benchmark(evaluate, clos, flows, assignment)
