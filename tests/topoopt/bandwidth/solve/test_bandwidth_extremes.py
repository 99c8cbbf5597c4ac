"""Badly scaled problems: loads over eight orders of magnitude, tight deadlines, free dimensions.

Each ends in a proven optimum or in one sentence; nothing crashes, warns or is quietly wrong.
"""

import numpy as np
import pytest

from codesign_base import InputError
from topoopt.bandwidth.model.expressions import comm, compute, maximum, total
from topoopt.bandwidth.model.time_model import compile_time
from topoopt.bandwidth.solve.constraints import parse_constraints
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem
from topoopt.bandwidth.solve.solver import solve


def extreme(rng):
    n, count = int(rng.integers(1, 8)), int(rng.integers(1, 6))
    loads = 10.0 ** rng.uniform(3, 11, (count, n))
    loads[rng.random((count, n)) < 0.4] = 0.0
    parts = [comm(row.tolist(), float(10 ** rng.uniform(-2, 3))) for row in loads]
    time = total([compute(float(10 ** rng.uniform(-6, 2)) * (rng.random() < 0.7)), *parts])
    if rng.random() < 0.5:
        time = time + maximum(*[p + float(rng.uniform(0, 1)) for p in parts])
    prices = 10.0 ** rng.uniform(0, 4, n) / 1e9 * 4096
    if rng.random() < 0.1:
        prices[0] = 0.0
    budget = 10 ** rng.uniform(-1, 4)
    texts = [f"sum(b) {'==' if rng.random() < 0.6 else '<='} {budget!r}"]
    for _ in range(int(rng.integers(0, 4))):
        i, j = rng.permutation(max(n, 2))[:2]
        texts.append(
            (
                f"b{i} <= {budget * rng.uniform(0.05, 1)!r}",
                f"b{i} >= {budget * rng.uniform(0, 0.3)!r}",
                f"b{i} >= 2 b{j} - {budget * 0.1!r}",
                f"b{i} == {budget * rng.uniform(0.01, 0.4)!r}",
                f"cost <= {budget * 1e9 * float(prices.mean()) * rng.uniform(0.01, 1)!r}",
            )[rng.integers(5)]
        )
    fixed = float(10 ** rng.uniform(2, 8)) if rng.random() < 0.5 else 0.0
    return compile_time(time, n), prices, fixed, texts


@pytest.mark.slow
def test_extremes():
    solved = refused = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        time, prices, fixed, texts = extreme(rng)
        objective = list(AllocationObjective)[rng.integers(3)]
        try:
            limits = parse_constraints(texts, len(prices), prices, fixed)
            deadline = None
            if objective == AllocationObjective.COST or rng.random() < 0.3:
                fastest = solve(AllocationProblem(time, prices, fixed, limits)).time
                deadline = fastest * float(rng.uniform(1.001, 3)) or None
            problem = AllocationProblem(time, prices, fixed, limits, objective, deadline)
            found = solve(problem)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
            continue
        solved += 1
        assert found.gap <= 1e-7
        assert limits.violation(found.bandwidth) <= 1e-8
        assert np.all(found.bandwidth >= 0)
        assert deadline is None or found.time <= deadline * (1 + 1e-8)
        assert found.primal == pytest.approx(problem.value(found.bandwidth))
    assert solved > 200 and refused > 10
