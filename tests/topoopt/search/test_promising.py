"""The few strategies that are worth a wiring: the fastest; none where looking costs too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoopt.search.joint_moves import promising


class Counted:
    """Times of numbered strategies, each of which costs one unit of work."""

    def __init__(self, times):
        self.times, self.work = times, 0.0

    def __call__(self, strategy, limit=float("inf")):
        self.work += 1.0
        return self.times[strategy]


@given(st.lists(st.integers(1, 9), max_size=60), st.integers(1, 9), st.integers(1, 5))
def test_the_fastest_below_the_limit_are_kept_the_earlier_of_equals(times, limit, count):
    found = promising(Counted(times), range(len(times)), float(limit), count)
    below = sorted((time, place) for place, time in enumerate(times) if time < limit)
    assert found == below[:count]


@pytest.mark.parametrize(
    ("first_near", "most_work", "looked_at"),
    [
        (None, 10.0, 30),  # so many are looked at, whatever they cost
        (None, 50.0, 51),
        (None, float("inf"), 100),
        (20, 10.0, 100),  # where one is near, all are looked at
        (40, 50.0, 100),
        (60, 50.0, 51),
    ],
)
def test_no_more_are_looked_at_where_enough_work_has_found_none(first_near, most_work, looked_at):
    times = [1.0 if place == first_near else 9.0 for place in range(100)]
    score = Counted(times)
    score.work = 7.0  # of what came before
    found = promising(score, range(100), 5.0, most_work=most_work)
    assert score.work - 7.0 == looked_at
    near = first_near is not None and first_near < looked_at
    assert found == ([(1.0, first_near)] if near else [])
