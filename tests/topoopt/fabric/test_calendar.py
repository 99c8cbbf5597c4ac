"""The calendar of events gives them back in the order of (time, name), as a heap does."""

import heapq

import numpy as np
import pytest
from numba import njit

from topoopt.fabric.calendar_kernels import BEYOND, NEAR, first, no_events, pop, push, with_room


@njit
def popped_in_turn(calendar, time, name, count, follow):
    """Add ``count`` events, and after each that is popped ``follow`` more, so much later."""
    order = np.empty(time.size, np.int64)
    when = np.empty(time.size)
    near, beyond = 0, 0
    for i in range(count):
        push(calendar, time[i], name[i])
    added = count
    for i in range(time.size):
        now, code = first(calendar)
        near = max(near, calendar.counts[NEAR])
        beyond = max(beyond, calendar.counts[BEYOND])
        order[i], when[i] = code, now
        pop(calendar, code)
        for _ in range(follow[i]):
            if added < time.size:
                push(calendar, now + time[added], name[added])
                added += 1
    return order, when, first(calendar)[1], near, beyond


@njit
def push_event(calendar, time, name):
    """Add an event."""
    push(calendar, time, name)


def popped_from_a_heap(time, name, count, follow):
    heap = sorted(zip(time[:count].tolist(), name[:count].tolist(), strict=True))
    added, order, when = count, [], []
    for more in follow.tolist():
        now, code = heapq.heappop(heap)
        order.append(code)
        when.append(now)
        for i in range(added, min(added + more, len(time))):
            heapq.heappush(heap, (now + float(time[i]), int(name[i])))
        added += more
    return order, when


def delays(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return delays of events: scattered, of few values, of very different sizes, or in bursts."""
    if kind == "ties":
        return rng.choice([0.0, 1.0, 2.0], count)
    if kind == "wide":
        return 10.0 ** rng.uniform(-9.0, 3.0, count)
    if kind == "bursts":
        return np.where(rng.random(count) < 0.001, 1e6, rng.choice([0.0, 1e-3, 1e-3], count))
    return rng.uniform(0.0, 1.0, count)


KINDS, SCALES = ("scattered", "ties", "wide", "bursts"), (1e9, 1e-6, 1.0, 1e3)


@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        pytest.param(kind, scale, marks=pytest.mark.slow if i != j else ())
        for i, kind in enumerate(KINDS)
        for j, scale in enumerate(SCALES)
    ],
)
def test_events_come_in_the_order_of_a_heap(kind: str, scale: float) -> None:
    rng = np.random.default_rng(7)
    count, events = 300, 60_000  # of which the width of buckets is looked at seven times
    time = delays(kind, events, rng)
    name = rng.permutation(events)
    # Every event is followed by one other on average, so that there are always some hundred.
    follow = rng.choice([0, 1, 2], events)
    follow[:100] = 1
    follow[np.cumsum(follow - 1) < 100 - count] = 2
    calendar = with_room(no_events(16, scale), events)
    order, when, left, near, beyond = popped_in_turn(calendar, time, name, count, follow)
    expected, moments = popped_from_a_heap(time, name, count, follow)
    assert order.tolist() == expected
    assert when.tolist() == moments
    assert left == -1
    assert near > 0
    assert scale < 1e9 or kind != "scattered" or beyond > 0


@njit
def popped(calendar, count):
    """Pop so many events."""
    order = np.empty(count, np.int64)
    for i in range(count):
        order[i] = first(calendar)[1]
        pop(calendar, order[i])
    return order


def test_a_bucket_that_was_empty_forgets_where_an_event_was_put() -> None:
    # Of one time, as without latency: names that come before one that has been popped.
    calendar = no_events(16, 1.0)
    for name in (1, 9, 5):
        push_event(calendar, 0.0, name)
    assert popped(calendar, 3).tolist() == [1, 5, 9]
    for name in (3, 7, 6):
        push_event(calendar, 0.0, name)
    push_event(calendar, 2.0, 2)
    assert popped(calendar, 3).tolist() == [3, 6, 7]


@pytest.mark.parametrize("seed", range(40))
def test_few_events_of_few_times_come_in_the_order_of_a_heap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, events = 6, 400
    time = rng.choice([0.0, 0.3, 1.1], events)
    name = rng.permutation(events)
    follow = rng.choice([0, 1, 2], events)
    for i in range(events):  # so that it never runs dry before the end
        follow[i] += max(0, 1 - (count + int((follow[: i + 1] - 1).sum())))
    calendar = with_room(no_events(16, 1.0), events)
    order, when, left, _, _ = popped_in_turn(calendar, time, name, count, follow)
    expected, moments = popped_from_a_heap(time, name, count, follow)
    assert order.tolist() == expected
    assert when.tolist() == moments
    assert left == -1
