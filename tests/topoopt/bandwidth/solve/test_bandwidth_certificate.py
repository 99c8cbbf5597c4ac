"""The lower bound holds whatever multipliers it is given: weak duality, by trial."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from topoopt.bandwidth.model.expressions import comm, compute, maximum
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.certificate import prove
from topoopt.bandwidth.solve.conic import solve_conic
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.form import from_form, make_form, to_form
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.solver import solve


def problem_of(seed, objective, limited):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    parts = [comm((rng.uniform(0.1, 1, n) * 1e9).tolist(), float(k)) for k in (1, 3)]
    time = parts[0] + maximum(parts[1], 2 * parts[0] + 0.01) + compute(0.05)
    prices = rng.uniform(1, 50, n) * 1e-6
    texts = ["sum(b) == 400", "b0 >= 0.5 b1"] if seed % 2 else ["sum(b) <= 400", "b0 <= 150"]
    limits = parse_constraints(texts, n, prices, 2e4)
    made = AllocationProblem(compile_time(time, n), prices, 2e4, limits, objective)
    if limited or objective == AllocationObjective.COST:
        fastest = solve(replace(made, objective=AllocationObjective.TIME)).time
        made = replace(made, deadline=1.1 * fastest)
    return made


@settings(max_examples=30, deadline=None)
@example(seed=113, objective=AllocationObjective.TIME_COST, limited=True, noise=1e-9)
@given(
    seed=st.integers(0, 10**6),
    objective=st.sampled_from(AllocationObjective),
    limited=st.booleans(),
    noise=st.sampled_from([1e-9, 1e-3, 0.1, 1.0, 10.0]),
)
def test_no_multipliers_prove_too_much(seed, objective, limited, noise):
    problem = problem_of(seed, objective, limited)
    best = solve(problem)
    form = make_form(problem)
    found = solve_conic(form, to_form(form, problem, best.bandwidth))
    rng = np.random.default_rng(seed)

    def shaken(values):
        array = np.asarray(values, dtype=np.float64)
        size = np.abs(array).max(initial=0.0)
        return array * np.exp(noise * rng.normal(size=array.shape)) + (
            noise * size * rng.normal(size=array.shape) * (noise > 1e-6 and rng.random() < 0.5)
        )

    other = replace(
        found,
        x=np.abs(shaken(found.x)) + 1e-30,
        load_duals=shaken(found.load_duals),
        part_duals=shaken(found.part_duals),
        duals=shaken(found.duals),
        limit_dual=float(shaken([found.limit_dual])[0]),
        limit_load_duals=shaken(found.limit_load_duals),
        limit_part_duals=shaken(found.limit_part_duals),
    )
    assert prove(form, other).bound <= best.primal * (1 + 1e-9)
    # The solver's own multipliers prove the optimum; others as near may prove less, even nothing.
    assert prove(form, found).bound >= best.primal * (1 - 1e-5)


@pytest.mark.parametrize("objective", list(AllocationObjective))
def test_the_form_is_the_problem(objective):
    for seed in range(6):
        problem = problem_of(seed, objective, False)
        form = make_form(problem)
        b = np.random.default_rng(seed).uniform(20, 90, problem.dimensions) * 1e9
        x = to_form(form, problem, b)
        assert from_form(form, x) == pytest.approx(b)
        excess = form.matrix @ x - form.bound
        rows = len(problem.constraints.names)
        own = problem.constraints.matrix @ b - problem.constraints.bound
        assert np.sign(np.round(excess[:rows], 12)) == pytest.approx(np.sign(own))
        if form.perspective:
            assert excess[rows] == pytest.approx(0.0, abs=1e-12)
