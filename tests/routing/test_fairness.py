"""Max-min fair rates against plain progressive filling, linear programs and the definition."""

import numpy as np
import pytest
from fabric_oracle import fill
from hypothesis import given, settings
from hypothesis import strategies as st
from max_min import lexicographic_rates, max_min_rates, random_rows, use_matrix, weighted_rows

Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def random_case(seed: int) -> Case:
    """Return flows with up to four links each, some with none; ties in half of the cases."""
    rng = np.random.default_rng(seed)
    links, flows = int(rng.integers(1, 12)), int(rng.integers(1, 16))
    offsets, entries = random_rows(rng, links, flows)
    if rng.integers(2):
        return offsets, entries, np.ones(entries.size), rng.integers(1, 4, links).astype(float)
    return offsets, entries, rng.uniform(0.1, 2.0, entries.size), rng.uniform(0.5, 5.0, links)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_equals_plain_progressive_filling(seed: int) -> None:
    case = random_case(seed)
    offsets, links, weights, capacity = case
    rows = weighted_rows(offsets, links, weights)
    expected = [
        r if row else np.inf for r, row in zip(fill(rows, capacity.tolist()), rows, strict=True)
    ]
    np.testing.assert_allclose(max_min_rates(*case), expected, rtol=1e-9)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_flow_has_a_bottleneck(seed: int) -> None:
    """Within capacity; each flow crosses a full link on which no rate is larger."""
    case = random_case(seed)
    use, capacity = use_matrix(*case[:4]), case[3]
    rates = max_min_rates(*case)
    finite = np.where(np.isfinite(rates), rates, 0.0)
    load = use @ finite
    assert np.all(load <= capacity * (1 + 1e-9))
    full = load >= capacity * (1 - 1e-9)
    largest = np.array([finite[row > 0].max(initial=0.0) for row in use])
    for flow, rate in enumerate(rates):
        crossed = use[:, flow] > 0
        if not crossed.any():
            assert rate == np.inf
        else:
            assert np.any(crossed & full & (largest <= rate * (1 + 1e-9)))


@pytest.mark.parametrize("seed", range(25))
def test_equals_repeated_linear_programs(seed: int) -> None:
    case = random_case(seed)
    expected = lexicographic_rates(*case, np.full(case[0].size - 1, np.inf))
    np.testing.assert_allclose(max_min_rates(*case), expected, rtol=1e-5)


def test_parking_lot() -> None:
    """One long flow and one local flow a link share every link in halves."""
    rates = max_min_rates([0, 3, 4, 5, 6], [0, 1, 2, 0, 1, 2], np.ones(6), [1.0, 1.0, 1.0])
    assert rates.tolist() == [0.5, 0.5, 0.5, 0.5]


def test_a_link_may_stand_twice_in_a_row() -> None:
    assert max_min_rates([0, 2], [0, 0], [1.0, 1.0], [1.0]).tolist() == [0.5]


def test_no_flows_and_no_links() -> None:
    assert max_min_rates([0], [], [], []).size == 0
    assert max_min_rates([0, 0], [], [], []).tolist() == [np.inf]


def test_large_case_matches_its_definition() -> None:
    rng = np.random.default_rng(0)
    flows, links = 5000, 300
    entries = rng.integers(0, links, flows * 4)
    capacity = rng.uniform(1e9, 1e10, links)
    rates = max_min_rates(np.arange(flows + 1) * 4, entries, np.ones(flows * 4), capacity)
    per_entry = np.repeat(rates, 4)
    load = np.bincount(entries, per_entry, links)
    assert np.all(load <= capacity * (1 + 1e-9))
    largest = np.zeros(links)
    np.maximum.at(largest, entries, per_entry)
    tight = (load >= capacity * (1 - 1e-9))[entries] & (largest[entries] <= per_entry * (1 + 1e-9))
    assert tight.reshape(flows, 4).any(axis=1).all()
