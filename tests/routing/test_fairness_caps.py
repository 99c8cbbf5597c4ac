"""Max-min fair rates with caps against progressive filling, linear programs and the definition."""

from itertools import pairwise

import numpy as np
import pytest
from fabric_oracle import fill
from hypothesis import given, settings
from hypothesis import strategies as st
from max_min import lexicographic_rates, max_min_rates, random_rows, weighted_rows

Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def random_case(seed: int) -> Case:
    """Return flows of up to four links each; caps on some, ties in half of the cases."""
    rng = np.random.default_rng(seed)
    links, flows = int(rng.integers(1, 10)), int(rng.integers(1, 16))
    offsets, entries = random_rows(rng, links, flows)
    if rng.integers(2):
        weights, capacity = np.ones(entries.size), rng.integers(1, 4, links).astype(float)
        caps = rng.choice([0.25, 0.5, 1.0, 1.0, 3.0, np.inf], flows)
    else:
        weights, capacity = rng.uniform(0.1, 2.0, entries.size), rng.uniform(0.5, 5.0, links)
        caps = rng.uniform(0.05, 2.0, flows)
        caps[rng.random(flows) < rng.random()] = np.inf
    if rng.random() < 0.1:
        capacity[rng.integers(links)] = 0.0
    return offsets, entries, weights, capacity, caps


def rates_of(case: Case) -> np.ndarray:
    return max_min_rates(*case[:4], caps=case[4])


def check_definition(case: Case, rates: np.ndarray) -> None:
    """Within capacities and caps; none can rise unless one as slow or slower falls."""
    offsets, links, weights, capacity, caps = case
    flows = offsets.size - 1
    assert np.all(rates <= caps * (1 + 1e-12))
    flow = np.repeat(np.arange(flows), np.diff(offsets))
    finite = np.where(np.isfinite(rates), rates, 0.0)
    load = np.bincount(links, weights * finite[flow], capacity.size)
    assert np.all(load <= capacity * (1 + 1e-9) + 1e-12)
    full = load >= capacity * (1 - 1e-9) - 1e-12
    largest = np.zeros(capacity.size)
    np.maximum.at(largest, links, finite[flow])
    tight = full[links] & (largest[links] <= finite[flow] * (1 + 1e-9) + 1e-12)
    held = np.bincount(flow, tight, flows) > 0
    assert np.all(held | (rates >= caps * (1 - 1e-12)))


@pytest.mark.slow
def test_thousands_of_networks_equal_progressive_filling() -> None:
    for seed in range(4000):
        case = random_case(seed)
        offsets, links, weights, capacity, caps = case
        rows = weighted_rows(offsets, links, weights)
        expected = fill(rows, capacity.tolist(), caps.tolist())
        rates = rates_of(case)
        np.testing.assert_allclose(rates, expected, rtol=1e-9, atol=1e-12, err_msg=f"{seed}")
        check_definition(case, rates)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_cap_is_a_link_of_its_own(seed: int) -> None:
    case = random_case(seed)
    offsets, links, weights, capacity, caps = case
    capped = np.flatnonzero(np.isfinite(caps))
    own = {int(flow): capacity.size + i for i, flow in enumerate(capped)}
    rows = [
        [*zip(links[a:b].tolist(), weights[a:b].tolist(), strict=True)]
        + ([(own[flow], 1.0)] if flow in own else [])
        for flow, (a, b) in enumerate(pairwise(offsets.tolist()))
    ]
    plain = max_min_rates(
        np.cumsum([0] + [len(row) for row in rows]),
        [link for row in rows for link, _ in row],
        [weight for row in rows for _, weight in row],
        np.concatenate((capacity, caps[capped])),
    )
    np.testing.assert_allclose(rates_of(case), plain, rtol=1e-9, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_caps_that_nobody_reaches_change_no_bit(seed: int) -> None:
    case = random_case(seed)
    free = max_min_rates(*case[:4])
    assert (
        max_min_rates(*case[:4], caps=free * 2 + 1).tobytes()
        == np.where(np.isfinite(free), free, np.inf).tobytes()
    )


@pytest.mark.parametrize("seed", range(40))
def test_equals_linear_programs_level_by_level(seed: int) -> None:
    case = random_case(100_000 + seed)
    np.testing.assert_allclose(rates_of(case), lexicographic_rates(*case), rtol=1e-5, atol=1e-8)


def test_large_cases_match_the_definition() -> None:
    """Enough capped flows that sorting them by cap matters, many of them equal."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        flows, links = 3000, 200
        entries = np.concatenate([rng.choice(links, 4, replace=False) for _ in range(flows)])
        capacity = rng.uniform(1e9, 1e10, links)
        caps = rng.choice([1e7, 2e7, 5e7, 1e8, np.inf], flows)
        caps[::3] = rng.uniform(1e6, 2e8, caps[::3].size)
        case = (np.arange(flows + 1) * 4, entries, np.ones(flows * 4), capacity, caps)
        rates = rates_of(case)
        check_definition(case, rates)
        reached = rates == caps
        assert 0.05 < reached.mean() < 0.95


def test_small_examples() -> None:
    """What a capped flow leaves is for the others, and a flow without links gets its cap."""
    ones = np.ones(3)
    assert max_min_rates([0, 1, 2, 3], [0, 0, 0], ones, [9.0], [1.0, np.inf, np.inf]).tolist() == [
        1.0, 4.0, 4.0,
    ]  # fmt: skip
    assert (
        max_min_rates([0, 1, 2, 3], [0, 0, 0], ones, [9.0], [3.0, 3.0, 3.0]).tolist() == [3.0] * 3
    )
    assert max_min_rates([0, 1, 2, 3], [0, 0, 0], ones, [9.0], [1.0, 2.0, 9.0]).tolist() == [
        1.0, 2.0, 6.0,
    ]  # fmt: skip
    assert max_min_rates([0, 0, 0], [], [], [1.0], [2.5, np.inf]).tolist() == [2.5, np.inf]
    assert max_min_rates([0], [], [], [], []).size == 0
