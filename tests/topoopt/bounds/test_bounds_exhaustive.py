"""No bound exceeds the optimum of small jobs, found by trying everything."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from small_cases import BATCH, FakeCompute, FakeServer, family_of, operator

from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph, Split
from parallelism.search.space import legal_degrees
from parallelism.strategy import OperatorConfig, Strategy
from routing.network import Network
from routing.paths import ecmp_routes, k_shortest_routes
from topoopt.bounds.bounds import space_bound, strategy_bound
from topoopt.bounds.gap import plan_bounds
from topoopt.bounds.relaxation import Wirings
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import score
from topoopt.problem.cluster import Cluster

LATENCY = 1e-6


def circulants(servers, degree, bandwidth):
    """Every connected circulant of a degree, by shortest paths and by near-shortest ones."""
    fabrics = []
    for steps in itertools.combinations_with_replacement(range(1, servers), degree):
        if np.gcd.reduce([*steps, servers]) > 1:
            continue
        source = [v for v in range(servers) for _ in steps]
        target = [(v + p) % servers for v in range(servers) for p in steps]
        network = Network.from_links("c", servers, 0, source, target, bandwidth, LATENCY)
        for routes in (ecmp_routes(network), k_shortest_routes(network, 3, slack=1)):
            fabrics.append(Fabric("c", network, routes, {}))
    return fabrics


def strategies(graph, servers):
    """Every strategy; the first operator's parts up to symmetry."""
    every = []
    for index, op in enumerate(graph.operators):
        configs = []
        for sample, parameter, mode in legal_degrees(op, servers, BATCH):
            for chosen in itertools.permutations(range(servers), sample * parameter):
                # Servers may be rotated, and the samples of all operators renumbered together.
                firsts = list(chosen[::parameter])
                if index or (chosen[0] == 0 and firsts == sorted(firsts)):
                    configs.append(OperatorConfig(sample, parameter, mode, chosen))
        every.append(configs)
    return [Strategy(configs) for configs in itertools.product(*every)]


# Least share of the optimum that the bound reaches here: it may mix strategies where two or three
# operators cannot.
TIGHT = 0.5

SPLITS = (Split(Mode.OUTPUT, 12), Split(Mode.REDUCTION, 12))


def job(splits, parameters):
    ops = [operator("op0", [], parameters[0])]
    ops += [operator(f"op{i}", [i - 1], size) for i, size in enumerate(parameters[1:], start=1)]
    return ModelGraph("small", tuple(replace(op, splits=splits) for op in ops), 1)


CASES = [
    pytest.param((3, 1, SPLITS, (1000, 500), 3e3), marks=pytest.mark.slow),
    (3, 2, SPLITS, (4000, 100), 1e3),
    pytest.param((4, 1, (), (1000, 500), 1e3), marks=pytest.mark.slow),
    pytest.param((4, 2, (), (3000, 3000), 5e3), marks=pytest.mark.slow),
    pytest.param((3, 2, (), (500, 2000, 500), 1e3), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("case", CASES)
def test_the_bound_over_everything_is_below_the_optimum(case):
    servers, degree, splits, parameters, bandwidth = case
    graph = job(splits, parameters)
    builder = TaskGraphBuilder(graph, FakeCompute(fixed=0.02), FakeServer(), servers, BATCH)
    fabrics = circulants(servers, degree, bandwidth)
    everything = space_bound(builder, Wirings(servers, degree, bandwidth, 2 * LATENCY))
    best = np.inf
    for strategy in strategies(graph, servers):
        tasks = builder.build(strategy)
        own = strategy_bound(tasks, degree, bandwidth, 2 * LATENCY).seconds
        for fabric in fabrics:
            time = score(fabric, tasks)
            assert own <= time
            if time < best:
                best, winner = time, (fabric, tasks)
    assert everything.seconds <= best
    assert everything.seconds >= TIGHT * best
    fabric, tasks = winner
    cluster = Cluster(servers, degree, f"{bandwidth}B/s", latency=LATENCY)
    found = plan_bounds(family_of(builder), cluster, None, fabric, tasks, best)
    assert found.everything == everything
    assert found.collective.seconds >= 0.9 * best
