"""The cheapest assignment is scipy's, of equals as well."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linear_sum_assignment

from topoopt.topology.assignment_kernels import cheapest_assignment

SIZES = st.integers(0, 12).map(lambda n: (n, n))


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float64, SIZES, elements=st.floats(-1e6, 1e6)))
def test_any_costs(cost: np.ndarray) -> None:
    assert cheapest_assignment(cost).tolist() == linear_sum_assignment(cost)[1].tolist()


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float64, SIZES, elements=st.integers(0, 2).map(float)))
def test_of_equal_assignments_the_same(cost: np.ndarray) -> None:
    found = cheapest_assignment(cost)
    assert sorted(found) == list(range(cost.shape[0]))
    assert found.tolist() == linear_sum_assignment(cost)[1].tolist()


@pytest.mark.parametrize("n", [1, 5])
def test_of_equal_costs_the_identity(n: int) -> None:
    assert cheapest_assignment(np.ones((n, n))).tolist() == list(range(n))


def test_a_large_one() -> None:
    rng = np.random.default_rng(0)
    for cost in (rng.random((300, 300)), -rng.integers(0, 9, (300, 300)).astype(np.float64)):
        assert cheapest_assignment(cost).tolist() == linear_sum_assignment(cost)[1].tolist()
