"""A heap of events ordered by (time, name), of four children each, in two arrays."""

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel


@inner_kernel
def _rise(times: Floats, names: Ints, place: int, time: float, name: int) -> None:
    """Put an event at a place, or above it where it comes before those there."""
    while place > 0:
        parent = (place - 1) >> 2
        if times[parent] < time or (times[parent] == time and names[parent] < name):
            break
        times[place] = times[parent]
        names[place] = names[parent]
        place = parent
    times[place] = time
    names[place] = name


@inner_kernel
def push(times: Floats, names: Ints, size: Ints, time: float, name: int) -> None:
    """Add an event to the heap of ``size[0]`` events."""
    size[0] += 1
    _rise(times, names, size[0] - 1, time, name)


@inner_kernel
def _earlier(times: Floats, names: Ints, one: int, other: int) -> int:
    """Return the place of the earlier of two events."""
    first, second = times[one], times[other]
    return other if (second < first) | ((second == first) & (names[other] < names[one])) else one


@inner_kernel
def pop(times: Floats, names: Ints, heap: Ints) -> None:
    """Remove the first event of the heap."""
    heap[0] -= 1
    size = heap[0]
    time = times[size]
    name = names[size]
    place = 0
    child = 1
    # Down to a leaf, without looking at the last event: it mostly belongs there.
    while child + 3 < size:
        best = _earlier(
            times,
            names,
            _earlier(times, names, child, child + 1),
            _earlier(times, names, child + 2, child + 3),
        )
        times[place] = times[best]
        names[place] = names[best]
        place = best
        child = 4 * place + 1
    if child < size:
        best = child
        for other in range(child + 1, size):
            best = _earlier(times, names, best, other)
        times[place] = times[best]
        names[place] = names[best]
        place = best
    _rise(times, names, place, time, name)
