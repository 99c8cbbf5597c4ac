"""Rates from lists: against enumeration, and the proof against the truth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.model.expressions import comm, compute, maximum, total
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.boxes import times_at
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.discrete import solve_discrete
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.rates import parse_rates
from topoopt.bandwidth.solve.solver import solve

G = 1e9


def random_case(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    loads = rng.uniform(0.0, 1.0, (int(rng.integers(1, 5)), n)) * 10.0 ** rng.uniform(7, 9)
    loads[rng.random(loads.shape) < 0.3] = 0.0
    loads[0, 0] += 1e6
    parts = [comm(row.tolist(), float(rng.integers(1, 9))) for row in loads]
    time = total([compute(float(rng.uniform(0, 0.1))), *parts])
    if rng.random() < 0.4:
        hidden = [maximum(p, compute(0.02) + q) for p, q in zip(parts, parts[::-1], strict=True)]
        time = total([time, *hidden])
    prices = rng.uniform(1, 60, n) * 4e3 / G
    if rng.random() < 0.5:
        rates = tuple(np.array([25.0, 50, 100, 200, 400]) * G for _ in range(n))
    else:
        rates = tuple(
            np.unique(rng.integers(1, 40, int(rng.integers(1, 9)))) * 12.5 * G for _ in range(n)
        )
    texts = [f"sum(b) <= {float(rng.integers(50, 300) * n):.1f}"]
    kind = seed % 4
    if kind == 1 and n > 1:
        texts.append(f"b0 >= {rng.uniform(0.3, 2):.3f} b1")
    if kind == 2:
        texts = [f"sum(b) == {float(rng.integers(2, 20)) * 25 * n}"]
    if kind == 3:
        texts.append(f"cost <= {float(rng.uniform(2, 40)) * 1e6}")
    objective = AllocationObjective(["time", "time*cost", "cost"][int(rng.integers(3))])
    fixed = float(rng.choice([0.0, 1e6]))
    limits = parse_constraints(texts, n, prices, fixed)
    problem = AllocationProblem(compile_time(time, n), prices, fixed, limits, objective)
    if objective == AllocationObjective.COST or rng.random() < 0.2:
        top = np.array([r[-1] for r in rates])
        problem = replace(problem, deadline=problem.time.time(top) * float(rng.uniform(1, 3)))
    return problem, rates


def enumerate_all(problem, rates):
    best = None
    for point in itertools.product(*rates):
        b = np.array(point)
        if problem.constraints.violation(b) > 1e-9:
            continue
        time = problem.time.time(b)
        if problem.deadline is not None and time > problem.deadline * (1 + 1e-9):
            continue
        found = (problem.value(b), problem.cost_of(b))
        if best is None or found < best:
            best = found
    return best


@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))]
)
def test_random_cases_equal_enumeration(block):
    for seed in range(60 * block, 60 * (block + 1)):
        problem, rates = random_case(seed)
        truth = enumerate_all(problem, rates)
        leaf = 1 if seed % 2 else 256
        if truth is None:
            with pytest.raises(InfeasibleError):
                solve_discrete(problem, rates, leaf=leaf)
            continue
        found = solve_discrete(problem, rates, leaf=leaf)
        solution = found.solution
        assert found.complete
        assert solution.primal == pytest.approx(truth[0], rel=1e-7)
        assert solution.dual <= truth[0] * (1 + 1e-12)
        assert solution.gap <= 1e-7
        assert problem.constraints.violation(solution.bandwidth) <= 1e-9
        assert all(b in r for b, r in zip(solution.bandwidth, rates, strict=True))
        if problem.objective == AllocationObjective.TIME:
            assert solution.cost <= truth[1] * (1 + 1e-9)


def test_a_stopped_search_states_a_bound_that_holds():
    stopped = 0
    for seed in range(40):
        problem, rates = random_case(seed)
        truth = enumerate_all(problem, rates)
        for nodes in (1, 3, 8):
            try:
                found = solve_discrete(problem, rates, nodes=nodes, leaf=1)
            except InfeasibleError:
                continue
            assert found.solution.dual <= truth[0] * (1 + 1e-12)
            assert found.solution.primal >= truth[0] * (1 - 1e-12)
            stopped += not found.complete
    assert stopped > 10


def test_lanes_close_in_on_the_convex_optimum():
    time = total([comm((3e9, 1e9, 2e8)), comm((1e8, 2e8, 5e8), 4.0)])
    prices = np.array([1.0, 4.0, 9.0]) / G
    limits = parse_constraints(["sum(b) <= 500"], 3, prices)
    problem = AllocationProblem(compile_time(time, 3), prices, 0.0, limits)
    convex = solve(problem)
    found = solve_discrete(problem, parse_rates(["1..480 x 1GB/s"], 3))
    assert found.complete
    assert convex.dual <= found.solution.primal <= convex.primal * 1.01
    assert found.relaxed == pytest.approx(convex.primal, rel=1e-6)


def test_the_answer_is_the_same_every_time():
    problem, rates = random_case(5)
    one, two = (solve_discrete(problem, rates, leaf=1) for _ in range(2))
    assert np.array_equal(one.solution.bandwidth, two.solution.bandwidth)
    assert (one.nodes, one.solution.dual) == (two.nodes, two.solution.dual)


def test_times_of_many_points_are_those_of_each():
    for seed in range(20):
        problem, rates = random_case(seed)
        points = np.array(list(itertools.product(*(r[:3] for r in rates))))
        each = [problem.time.time(point) for point in points]
        assert times_at(problem.time, points) == pytest.approx(each, rel=1e-12)


def test_a_dimension_without_traffic_may_be_left_out():
    prices = np.array([1.0, 1.0]) / G
    limits = parse_constraints(["sum(b) <= 500"], 2, prices)
    problem = AllocationProblem(compile_time(comm((1e9, 0.0)), 2), prices, 0.0, limits)
    found = solve_discrete(problem, parse_rates(["0,100,400GB/s"], 2))
    assert found.solution.bandwidth.tolist() == [400 * G, 0.0]


def test_rates_are_read():
    made = parse_rates(["b1: 1..3 x 25GB/s", "50, 25,0.1TB/s"], 3)
    assert [(r / G).tolist() for r in made] == [[100, 25e3, 50e3], [25, 50, 75], [100, 25e3, 50e3]]
    made = parse_rates(["25,50,100,200,400 GB/s"], 1)
    assert (made[0] / G).tolist() == [25, 50, 100, 200, 400]


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        (["25,50"], "unit"),
        (["25,,50GB/s"], "empty"),
        (["b3: 25GB/s", "25GB/s"], "b3"),
        (["b0: 25GB/s", "b0: 50GB/s", "1GB/s"], "again"),
        (["b0: 25GB/s"], "b1 has no rates"),
        (["25GB/s", "50GB/s"], "second"),
        (["5..2 x 1GB/s"], "lanes"),
        (["1..2 x fast"], "rates"),
    ],
)
def test_unreadable_rates_are_refused(texts, part):
    with pytest.raises(InputError, match=part) as refused:
        parse_rates(texts, 2)
    assert "\n" not in str(refused.value)


def test_impossible_rates_are_explained():
    limits = parse_constraints(["sum(b) == 110"], 2)
    problem = AllocationProblem(compile_time(comm((1e9, 1e9)), 2), np.ones(2) / G, 0.0, limits)
    with pytest.raises(InfeasibleError, match=r"sum\(b\) == 110.*or a budget as a limit"):
        solve_discrete(problem, parse_rates(["25,50GB/s"], 2))
    small = replace(problem, constraints=parse_constraints(["sum(b) <= 40"], 2))
    with pytest.raises(InfeasibleError, match=r"sum\(b\) <= 40'; .*, or looser constraints$"):
        solve_discrete(small, parse_rates(["25,50GB/s"], 2))
    with pytest.raises(InfeasibleError, match="only rate is zero"):
        solve_discrete(problem, (np.zeros(1), np.ones(1)))
    with pytest.raises(InputError, match="rates for 1"):
        solve_discrete(problem, parse_rates(["25GB/s"], 1))
