"""TotientPerms and SelectPermutations against sympy, brute force and the published lists."""

import math

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.topology.select import artifact_generators, select_permutations
from topoopt.topology.totient import ring_order, totient_permutations


@given(st.integers(2, 500))
def test_candidates_number_eulers_totient(n: int) -> None:
    steps = totient_permutations(n)
    assert len(steps) == sympy.totient(n)
    assert list(steps) == sorted(set(steps))
    assert all(math.gcd(p, n) == 1 and 1 <= p < n for p in steps)


@given(st.integers(2, 60), st.data())
def test_ring_order_is_one_cycle(n: int, data: st.DataObject) -> None:
    p = data.draw(st.sampled_from(totient_permutations(n)))
    members = tuple(10 * i + 3 for i in range(n))
    order = ring_order(members, p)
    assert sorted(order) == list(members)
    for here, there in zip(order, order[1:] + order[:1], strict=True):
        assert (members.index(there) - members.index(here)) % n == p


def test_a_step_that_shares_a_factor_is_refused() -> None:
    with pytest.raises(InputError, match="makes 2 cycles"):
        ring_order(tuple(range(8)), 2)
    with pytest.raises(InputError, match="1 server;"):
        totient_permutations(1)


@settings(max_examples=200)
@given(st.integers(2, 200), st.integers(1, 8), st.booleans())
def test_selection_is_greedily_nearest(n: int, count: int, bidirectional: bool) -> None:
    chosen = select_permutations(n, count, bidirectional=bidirectional)
    pool = [p for p in totient_permutations(n) if not bidirectional or p <= n / 2]
    assert len(chosen) == len(set(chosen)) == min(count, len(pool))
    for i, step in enumerate(chosen):
        aim = n ** (i / count)
        left = [p for p in pool if p not in chosen[:i]]
        best = min(abs(p - aim) for p in left)
        assert abs(step - aim) == pytest.approx(best, abs=1e-9)
        assert all(p >= step for p in left if abs(p - aim) < abs(step - aim) + 1e-9)


def test_known_selections() -> None:
    # 16^(1/2) = 4 lies between 3 and 5: the lower. 128^(1/4) = 3.36, 128^(1/2) = 11.3, 38.1.
    assert select_permutations(16, 2) == (1, 3)
    assert select_permutations(128, 4) == (1, 3, 11, 39)
    assert select_permutations(16, 4) == (1, 3, 5, 7)
    assert select_permutations(6, 4) == (1, 5)
    assert select_permutations(6, 4, bidirectional=True) == (1,)
    assert select_permutations(2, 3) == (1,)
    assert select_permutations(9, 0) == ()


@pytest.mark.parametrize(
    ("n", "degree", "steps"),
    [
        (16, 4, (1, 5)),
        (16, 8, (1, 3, 5, 9)),
        (128, 4, (1, 13)),
        (128, 8, (1, 5, 13, 39)),
    ],
)
def test_the_published_generators(n: int, degree: int, steps: tuple[int, ...]) -> None:
    assert artifact_generators(n, degree) == steps


@given(st.integers(2, 100), st.integers(0, 20), st.booleans())
def test_artifact_rings_are_distinct(n: int, degree: int, bidirectional: bool) -> None:
    steps = artifact_generators(n, degree, bidirectional)
    assert all(math.gcd(p, n) == 1 for p in steps)
    both = [min(p, n - p) for p in steps] if bidirectional else list(steps)
    assert len(set(both)) == len(both) <= (degree // 2 if bidirectional else degree)


def test_bad_counts_are_named() -> None:
    with pytest.raises(InputError, match="-1 ring steps"):
        select_permutations(8, -1)
