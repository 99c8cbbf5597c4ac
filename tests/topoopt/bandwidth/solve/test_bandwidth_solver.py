"""The solver against other solvers, closed forms and properties that an optimum has."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from codesign_base import InfeasibleError, InputError
from topoopt.bandwidth.model.expressions import comm, compute, maximum, total
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.solver import solve

G = 1e9
MODEST = settings(max_examples=25, deadline=None)


def random_problem(seed, objective, overlap=False, dimensions=None):
    rng = np.random.default_rng(seed)
    n = dimensions or int(rng.integers(2, 6))
    loads = rng.uniform(0.0, 1.0, (int(rng.integers(1, 4)), n)) * 10.0 ** rng.uniform(7, 9)
    loads[rng.random(loads.shape) < 0.3] = 0.0
    loads[0] += 1e6  # so that every dimension carries something
    parts = [comm(row.tolist(), float(rng.integers(1, 9))) for row in loads]
    time = total([compute(float(rng.uniform(0, 0.1))), *parts])
    if overlap:
        hidden = [maximum(p, compute(0.02) + q) for p, q in zip(parts, parts[::-1], strict=True)]
        time = total([time, *hidden])
    prices = rng.uniform(1, 60, n) * 4e3 / G
    texts = ["sum(b) == 500"]
    if seed % 3 == 1:
        texts += [f"b0 >= {rng.uniform(0.1, 2):.3f} b1", f"b{n - 1} <= 200"]
    if seed % 3 == 2:
        texts = ["sum(b) <= 500", f"b0 - b1 <= {rng.uniform(10, 200):.1f}"]
    fixed = 1e6 if seed % 3 == 2 else 0.0
    limits = parse_constraints(texts, n, prices, fixed)
    return AllocationProblem(
        compile_time(time, n), prices, fixed, limits, AllocationObjective(objective)
    ), time


def by_scipy(problem, time):
    """The best of several descents in scaled variables; an upper bound on the optimum."""
    n, limits = problem.dimensions, problem.constraints
    unit = 500 * G / n

    def value(x):
        b = np.maximum(x, 1e-9) * unit
        seconds = time.evaluate(b.tolist())
        cost = problem.cost_of(b)
        return seconds * (cost / 1e6 if problem.objective == AllocationObjective.TIME_COST else 1.0)

    rows = [
        {
            "type": "eq" if equal else "ineq",
            "fun": lambda x, row=row, bound=bound: (bound - row @ x * unit) / (500 * G),
        }
        for row, bound, equal in zip(limits.matrix, limits.bound, limits.equality, strict=True)
    ]
    best = np.inf
    rng = np.random.default_rng(5)
    for _ in range(4):
        start = rng.dirichlet(np.ones(n)) * n * 0.9
        with np.errstate(all="ignore"):
            found = minimize(
                value, start, constraints=rows, bounds=[(1e-7, None)] * n, method="SLSQP",
                options={"maxiter": 500, "ftol": 1e-14},
            )  # fmt: skip
        b = found.x * unit
        if limits.violation(np.maximum(b, 0)) < 1e-7:
            best = min(best, value(found.x))
    return best * (1e6 if problem.objective == AllocationObjective.TIME_COST else 1.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("objective", ["time", "time*cost"])
@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.slow)])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_equals_a_general_solver(objective, overlap, seed):
    problem, time = random_problem(seed, objective, overlap)
    found = solve(problem)
    other = by_scipy(problem, time)
    assert found.gap <= 1e-7
    assert problem.constraints.violation(found.bandwidth) <= 1e-8
    # scipy may stop early at a kink, but it can never be better.
    assert found.primal <= other * (1 + 1e-6)
    assert time.evaluate(found.bandwidth.tolist()) == pytest.approx(found.time)


@pytest.mark.parametrize("objective", ["time", "time*cost"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_equals_a_fine_grid(objective, seed):
    problem, _ = random_problem(3 * seed, objective, dimensions=2)
    share = np.linspace(1e-4, 1 - 1e-4, 20001)
    loads, weights = problem.time.loads, problem.time.weights
    b = np.array([share, 1 - share]) * 500 * G
    seconds = problem.time.constant + weights @ np.max(loads[:, :, None] / b, axis=1)
    values = seconds * (problem.cost @ b if objective == "time*cost" else 1.0)
    found = solve(problem)
    assert found.primal <= values.min() * (1 + 1e-7)
    assert found.primal == pytest.approx(values.min(), rel=1e-4)


@MODEST
@given(
    seed=st.integers(0, 10**6),
    overlap=st.booleans(),
    objective=st.sampled_from(AllocationObjective),
)
def test_never_worse_than_equal_bandwidth(seed, overlap, objective):
    problem, _ = random_problem(3 * seed, "time", overlap)
    equal = np.full(problem.dimensions, 500 * G / problem.dimensions)
    deadline = problem.time.time(equal) * 1.001 if objective == AllocationObjective.COST else None
    problem = replace(problem, objective=objective, deadline=deadline)
    found = solve(problem)
    assert found.primal <= problem.value(equal) * (1 + 1e-9)
    assert found.gap <= 1e-7


@MODEST
@given(seed=st.integers(0, 10**6), factor=st.floats(0.01, 100))
def test_communication_scales_with_the_inverse_of_the_budget(seed, factor):
    problem, _ = random_problem(3 * seed, "time")
    wider = replace(
        problem, constraints=parse_constraints([f"sum(b) == {500 * factor!r}"], problem.dimensions)
    )
    before, after = solve(problem), solve(wider)
    constant = problem.time.constant
    assert (after.time - constant) * factor == pytest.approx(before.time - constant, rel=1e-6)


@MODEST
@given(seed=st.integers(0, 10**6), objective=st.sampled_from(["time", "time*cost"]))
def test_permuting_the_dimensions_permutes_the_answer(seed, objective):
    problem, _ = random_problem(3 * seed, objective)
    order = np.random.default_rng(seed).permutation(problem.dimensions)
    turned = replace(
        problem,
        time=replace(problem.time, loads=problem.time.loads[:, order]),
        cost=problem.cost[order],
    )
    found, other = solve(problem), solve(turned)
    assert other.primal == pytest.approx(found.primal, rel=1e-7)
    assert other.time == pytest.approx(found.time, rel=1e-3)
    assert problem.value(_back(other.bandwidth, order)) == pytest.approx(found.primal, rel=1e-7)
    assert other.bandwidth == pytest.approx(found.bandwidth[order], rel=2e-2, abs=0.05 * G)


def _back(values, order):
    restored = np.empty_like(values)
    restored[order] = values
    return restored


@MODEST
@given(seed=st.integers(0, 10**6), objective=st.sampled_from(AllocationObjective))
def test_multipliers_are_derivatives(seed, objective):
    problem, _ = random_problem(3 * seed, "time")
    deadline = solve(problem).time * 1.3 if objective == AllocationObjective.COST else None
    problem = replace(problem, objective=objective, deadline=deadline)
    found = solve(problem)
    step = 0.5 * G
    values = [
        solve(replace(problem, constraints=replace(
            problem.constraints, bound=problem.constraints.bound + change))).primal
        for change in (-step, step)
    ]  # fmt: skip
    slopes = (values[0] - found.primal) / step, (found.primal - values[1]) / step
    slack = 1e-3 * abs(found.duals[0]) + 3e-7 * found.primal / step
    assert min(slopes) - slack <= found.duals[0] <= max(slopes) + slack


def test_closed_form_of_one_collective():
    # One pattern: bandwidths proportional to the loads, all dimensions busy all the time.
    time = compile_time(comm((4e9, 2e9, 1e9)) + 0.25, 3)
    limits = parse_constraints(["sum(b) == 700"], 3)
    found = solve(AllocationProblem(time, np.ones(3), 0.0, limits))
    assert found.bandwidth / G == pytest.approx([400, 200, 100])
    assert found.time == pytest.approx(0.26)
    assert found.duals[0] * G == pytest.approx(0.01 / 700)


def test_closed_form_of_collectives_after_each_other():
    # One dimension each: sum of m / b under a sum of b is least at b ~ sqrt(m).
    time = compile_time(comm((9e9, 0.0)) + comm((0.0, 1e9)), 2)
    limits = parse_constraints(["sum(b) == 400"], 2)
    found = solve(AllocationProblem(time, np.ones(2), 0.0, limits))
    assert found.bandwidth / G == pytest.approx([300, 100], rel=1e-4)
    assert found.time == pytest.approx(0.04)


def test_closed_form_of_time_times_cost():
    # (k + m / b) (c0 + c b) is least at b = sqrt(m c0 / (k c)).
    time = compile_time(comm((8e9,)) + 0.5, 1)
    limits = parse_constraints(["sum(b) <= 1e6"], 1)
    problem = AllocationProblem(time, np.array([2e-9]), 50.0, limits, AllocationObjective.TIME_COST)
    found = solve(problem)
    assert found.bandwidth[0] == pytest.approx(np.sqrt(8e9 * 50.0 / (0.5 * 2e-9)), rel=1e-4)


def test_cost_under_a_deadline():
    # m / b <= 0.1 s needs b = m / 0.1.
    time = compile_time(comm((8e9, 4e9)) + 0.5, 2)
    problem = AllocationProblem(
        time, np.array([1e-9, 3e-9]), 7.0, parse_constraints([], 2), AllocationObjective.COST, 0.6
    )
    found = solve(problem)
    assert found.bandwidth / G == pytest.approx([80, 40], rel=1e-6)
    assert found.cost == pytest.approx(7.0 + 80 + 120)
    assert found.deadline_dual == pytest.approx(200 / 0.1, rel=1e-4)


@pytest.mark.parametrize("factor", [1.01, 1.1, 1.3, 3.0, 10.0])
def test_cost_under_a_deadline_where_nothing_else_limits_bandwidths(factor):
    # The fastest bandwidths are unlimited, and those that the solver misses the deadline with are
    # mixed with them.
    needed = 2.1e9  # bytes of one AllReduce each iteration, beside 3 us of compute
    deadline = factor * needed / (200 * G)
    for prices, loads in ((2e-9, (needed,)), (1e-9, (needed, needed / 3))):
        time = compile_time(comm(loads) + 3e-6, len(loads))
        limits = parse_constraints([], len(loads))
        each = np.full(len(loads), prices)
        problem = AllocationProblem(time, each, 0.0, limits, AllocationObjective.COST, deadline)
        found = solve(problem)
        assert found.bandwidth == pytest.approx(np.array(loads) / (deadline - 3e-6), rel=2e-7)
        assert found.time <= deadline * (1 + 1e-8)


@pytest.mark.parametrize("objective", list(AllocationObjective))
def test_limits_that_do_not_bind_are_worth_exactly_nothing(objective):
    time = compile_time(comm((8e9, 0.0)) + comm((0.0, 4e9)) + 0.5, 2)
    prices = np.array([1e-9, 3e-9])
    texts = ["sum(b) <= 300", "sum(b) <= 500", "400 >= b0 >= 1", "b1 >= 0.01 b0", "cost <= 1e5"]
    limits = parse_constraints(texts, 2, prices, 7.0)
    problem = AllocationProblem(time, prices, 7000.0, limits, objective, 5.0)
    if objective == AllocationObjective.COST:
        problem = replace(problem, deadline=0.7)
    found = solve(problem)
    assert not np.any(found.duals[1:])
    assert (found.duals[0] > 0) == (objective != AllocationObjective.COST)
    assert (found.deadline_dual > 0) == (objective == AllocationObjective.COST)


def test_a_budget_that_no_time_depends_on_is_worth_exactly_nothing():
    # Only the last dimension is waited for, and it has a limit of its own.
    found = solve(random_problem(61, "time")[0])
    assert found.duals[0] == found.duals[1] == 0 < found.duals[2]


def test_without_communication_the_budget_is_worth_exactly_nothing():
    limits = parse_constraints(["sum(b) == 300"], 2)
    found = solve(
        AllocationProblem(compile_time(comm((0.0, 0.0)) + 0.5, 2), np.ones(2), 0.0, limits)
    )
    assert not np.any(found.duals)


@MODEST
@given(seed=st.integers(0, 10**6), overlap=st.booleans())
def test_deadlines_of_time_times_cost(seed, overlap):
    problem, _ = random_problem(3 * seed, "time*cost", overlap)
    fastest = solve(replace(problem, objective=AllocationObjective.TIME)).time
    free = solve(problem)
    deadline = 0.5 * (fastest + free.time)
    found = solve(replace(problem, deadline=deadline))
    assert found.time <= deadline * (1 + 1e-7)
    assert found.gap <= 1e-7
    assert found.primal >= free.primal * (1 - 1e-7)
    # The least cost at that time, times that time, is no less.
    cheapest = solve(replace(problem, objective=AllocationObjective.COST, deadline=deadline))
    assert found.primal <= cheapest.cost * cheapest.time * (1 + 1e-6)


def test_a_hidden_collective_may_slow_down_to_save_money():
    # The first dimension sets the time; the second is hidden until it takes as long.
    time = compile_time(maximum(comm((5e9, 0.0)), comm((0.0, 1e9)) + 0.01), 2)
    prices = np.array([1e-9, 2e-9])
    limits = parse_constraints(["b0 == 100", "b1 <= 300"], 2)
    found = solve(AllocationProblem(time, prices, 0.0, limits))
    assert found.time == pytest.approx(0.05)
    assert found.bandwidth[1] / G == pytest.approx(25, rel=1e-6)
    assert found.ties_broken


def test_threads_do_not_disturb_each_other():
    problems = [random_problem(seed, "time*cost", overlap=True)[0] for seed in range(12)]
    alone = [solve(problem) for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(solve, problems * 4))
    for index, found in enumerate(together):
        assert np.array_equal(found.bandwidth, alone[index % 12].bandwidth)


def test_a_start_elsewhere_gives_the_same_optimum():
    for seed in range(10):
        problem, _ = random_problem(seed, "time*cost")
        found = solve(problem)
        start = np.random.default_rng(seed).uniform(1, 300, problem.dimensions) * G
        assert solve(problem, start).primal == pytest.approx(found.primal, rel=2e-7)
    nowhere = np.zeros(problem.dimensions)
    assert solve(problem, nowhere).primal == pytest.approx(found.primal, rel=2e-7)
    with pytest.raises(InputError, match="start has shape"):
        solve(problem, np.ones(problem.dimensions + 1))


def test_longer_deadlines_cost_less():
    problem, _ = random_problem(2, "time")
    fastest = solve(problem).time
    found = [
        solve(replace(problem, objective=AllocationObjective.COST, deadline=fastest * factor))
        for factor in (1.0, 1.1, 1.3, 1.6)
    ]
    costs = [point.cost for point in found]
    assert costs == sorted(set(costs), reverse=True)
    for point, factor in zip(found, (1.0, 1.1, 1.3, 1.6), strict=True):
        assert point.time <= fastest * factor * (1 + 1e-7)
        assert point.gap <= 1e-7


def question(texts, objective="time", deadline=None, fixed=0.0):
    time = compile_time(comm((4e9, 2e9, 1e9, 0.0)) + comm((0.0, 1e9, 3e9, 0.0)) + 0.25, 4)
    prices = np.array([1.0, 2.0, 3.0, 4.0]) / G
    limits = parse_constraints(texts, 4, prices, fixed)
    return AllocationProblem(time, prices, fixed, limits, AllocationObjective(objective), deadline)


@pytest.mark.parametrize(
    ("texts", "names", "others"),
    [
        (["sum(b) <= 100", "b0 >= 60", "b1 >= 50", "b2 <= 10"], ["sum(b)", "b0", "b1"], ["b2 <="]),
        (["sum(b) == 100", "b0 == 5", "b0 >= 7"], ["b0 == 5", "b0 >= 7"], ["sum(b)"]),
        (["sum(b) == 100", "b1 == 0"], ["b1 == 0", "dimension 1"], ["sum(b)"]),
        (["b0 >= b1", "b1 >= b0 + 1"], ["b0 >= b1", "b1 >= b0 + 1"], []),
        (["sum(b) == 100", "b0 <= -3"], ["b0 <= -3"], ["sum(b)"]),
        # What is left for b1 and b2 is rounding, which meets the constraints to 1e-8.
        (["sum(b) == 100", "b0 == 100"], ["sum(b)", "b0 == 100", "dimension 1"], []),
        (["b0 + b1 <= 60", "sum(b) <= 100", "b0 == 60"], ["b0 + b1", "b0 == 60"], ["sum(b)"]),
    ],
)
def test_conflicts_are_named_and_irreducible(texts, names, others):
    with pytest.raises(InfeasibleError) as caught:
        solve(question(texts))
    message = str(caught.value)
    assert all(name in message for name in names), message
    assert not any(name in message for name in others), message


@pytest.mark.parametrize("objective", ["time", "time*cost"])
def test_little_bandwidth_is_an_answer_where_the_constraints_leave_it(objective):
    found = solve(question(["sum(b) == 100", "b0 >= 99.999"], objective))
    assert found.gap <= 1e-7
    assert 0 < found.bandwidth[1] + found.bandwidth[2] <= 0.001 * G * (1 + 1e-6)
    with pytest.raises(InfeasibleError, match="no bandwidth for dimension 1"):
        solve(question(["sum(b) == 100", "b0 == 100"], objective))


def test_deadlines_that_cannot_be_met_are_explained():
    with pytest.raises(InfeasibleError, match=r"'sum\(b\) == 100'.*fastest iteration takes"):
        solve(question(["sum(b) == 100", "b0 <= 900"], "cost", 0.26))
    with pytest.raises(InfeasibleError, match="without communication, 250 ms; give"):
        solve(question(["sum(b) == 100"], "time", 0.2))
    with pytest.raises(InputError, match="deadline is nan"):
        solve(question(["sum(b) == 100"], "time", float("nan")))


def test_unlimited_and_vanishing_bandwidths_are_errors():
    with pytest.raises(InputError, match="no constraint limits b1"):
        solve(question(["b0 <= 100"]))
    with pytest.raises(InputError, match="no constraint limits b0"):
        solve(question([]))
    # b1 and b2 are limited through b0.
    assert solve(question(["b0 == 100", "b1 <= 2 b0", "b2 <= b1 + 3"])).time > 0.25
    with pytest.raises(InputError, match="zero bandwidth would be optimal"):
        solve(question(["sum(b) <= 100"], "time*cost"))
    with pytest.raises(InputError, match="zero bandwidth would be optimal"):
        solve(question(["b0 >= 2 b1"], "time*cost"))
    with pytest.raises(InputError, match="no deadline"):
        solve(question(["sum(b) == 100"], "cost"))
    assert solve(question(["sum(b) <= 100"], "time*cost", fixed=10.0)).cost > 10.0
    assert solve(question(["sum(b) <= 100"], "time*cost", 0.9)).time <= 0.9 * (1 + 1e-7)


def test_an_idle_dimension_gets_nothing():
    assert solve(question(["sum(b) == 100"])).bandwidth[3] == 0.0
