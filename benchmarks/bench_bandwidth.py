"""Milliseconds of one bandwidth problem: building it, solving it, and both in a sweep.

Run by hand: ``python -m pytest benchmarks/bench_bandwidth.py --benchmark-columns=min,mean,ops``.
Targets: PerfOpt or PerfPerCost at most 5 ms with 4 dimensions and 20 ms with 10; a sweep of
5,000 problems over shapes and parallelizations, none of them ruled out by a bound, in 20 s on two
cores.
"""

from dataclasses import replace

import numpy as np
import pytest

from topoopt.bandwidth.explore.divisions import builtin_divisions
from topoopt.bandwidth.explore.shapes import network_shapes
from topoopt.bandwidth.explore.sweep import search_designs
from topoopt.bandwidth.model.builtin import builtin_workload
from topoopt.bandwidth.model.communicator import Communicator, NpuGroup, hybrid_communicator
from topoopt.bandwidth.model.cost import cost_coefficients, default_cost
from topoopt.bandwidth.model.loops import Loop, add_up, layer_times
from topoopt.bandwidth.model.network import MultiDimNetwork, parse_network
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.discrete import solve_discrete
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.question import Question
from topoopt.bandwidth.solve.rates import parse_rates
from topoopt.bandwidth.solve.solver import solve

NETWORKS = {
    4: parse_network("RI(4)_FC(8)_RI(4)_SW(32)"),
    10: MultiDimNetwork(
        parse_network("_".join(["RI(2)"] * 5 + ["FC(4)"] * 3 + ["SW(2)"] * 2)).blocks,
        (2,) * 5 + (4,) * 3 + (2,) * 2,
        ("InterChiplet",) * 5 + ("InterPackage",) * 3 + ("InterPod",) * 2,
    ),
}
JOB = builtin_workload("gpt-3")


def build(network, objective, loop):
    cost = cost_coefficients(network, default_cost())
    time = add_up(layer_times(network, JOB, hybrid_communicator(network, 16)), loop)
    limits = parse_constraints(["sum(b) == 500"], network.dimensions, cost)
    return AllocationProblem(
        compile_time(time, network.dimensions), cost, 0.0, limits, AllocationObjective(objective)
    )


@pytest.mark.parametrize("loop", list(Loop))
@pytest.mark.parametrize("objective", ["time", "time*cost"])
@pytest.mark.parametrize("dimensions", NETWORKS)
def test_solve(benchmark, dimensions, objective, loop):
    benchmark.group = f"solve, {dimensions} dimensions"
    problem = build(NETWORKS[dimensions], objective, loop)
    assert benchmark(solve, problem).gap <= 1e-7


@pytest.mark.parametrize("loop", list(Loop))
@pytest.mark.parametrize("dimensions", NETWORKS)
def test_build(benchmark, dimensions, loop):
    benchmark.group = "build from 194 layers"
    assert benchmark(build, NETWORKS[dimensions], "time", loop).dimensions == dimensions


@pytest.mark.parametrize("objective", ["time", "time*cost"])
def test_sweep_of_groups(benchmark, objective):
    benchmark.group = "100 problems: groups of all kinds, built and solved"
    network = NETWORKS[4]
    rng = np.random.default_rng(0)

    def group():
        sizes = [int(rng.choice([1, n // 2, n])) for n in network.sizes]
        return NpuGroup(tuple(sizes), (1, 1, 1, 1))

    whole = NpuGroup(network.sizes, (1, 1, 1, 1))
    communicators = [Communicator((group(), group(), whole)) for _ in range(100)]
    cost = cost_coefficients(network, default_cost())
    limits = parse_constraints(["sum(b) == 500"], 4, cost)

    def sweep():
        start, worst = None, 0.0
        for communicator in communicators:
            time = compile_time(add_up(layer_times(network, JOB, communicator), Loop.NONE), 4)
            found = solve(
                AllocationProblem(time, cost, 0.0, limits, AllocationObjective(objective)), start
            )
            worst = max(worst, found.gap)
        return worst

    assert benchmark(sweep) <= 1e-7


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("prune", [False, True], ids=["all-solved", "pruned"])
@pytest.mark.parametrize("objective", ["time", "time*cost"])
def test_sweep_of_shapes_and_parallelism(benchmark, objective, prune, jobs):
    benchmark.group = "5,000 designs: shapes x parallelism"
    divisions = builtin_divisions("gpt-3", 1024)
    orders = sum(len(each.orders) for each in divisions)
    every = network_shapes(1024, 3)
    count = -(-5000 // orders)
    shapes = every[:: len(every) // count][:count]

    def sweep():
        return search_designs(
            shapes,
            divisions,
            Question(budget="500GB/s", objective=AllocationObjective(objective)),
            prune=prune,
            jobs=jobs,
        )

    found = benchmark.pedantic(sweep, rounds=2, warmup_rounds=0)
    assert found.candidates >= 5000
    assert max(design.solution.gap for design in found.designs) <= 1e-7


@pytest.mark.parametrize("objective", ["time", "time*cost"])
def test_discrete_rates(benchmark, objective):
    benchmark.group = "rates from lists, 4 dimensions"
    problem = build(NETWORKS[4], objective, Loop.NONE)
    limits = parse_constraints(["sum(b) <= 500"], 4, problem.cost)
    problem = replace(problem, constraints=limits)
    rates = parse_rates(["1..64 x 6.25GB/s"], 4)
    assert benchmark(solve_discrete, problem, rates).solution.gap <= 1e-7
