"""A binary heap of events ordered by (time, name), in two arrays."""

from codesign_base.jit import kernel
from routing.fairness_kernels import Floats, Ints


@kernel
def push(times: Floats, names: Ints, size: Ints, time: float, name: int) -> None:
    """Add an event to the heap of ``size[0]`` events."""
    place = size[0]
    size[0] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if times[parent] < time or (times[parent] == time and names[parent] < name):
            break
        times[place] = times[parent]
        names[place] = names[parent]
        place = parent
    times[place] = time
    names[place] = name


@kernel
def pop(times: Floats, names: Ints, heap: Ints) -> None:
    """Remove the first event of the heap."""
    heap[0] -= 1
    size = heap[0]
    time = times[size]
    name = names[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            times[right] < times[child]
            or (times[right] == times[child] and names[right] < names[child])
        ):
            child = right
        if times[child] > time or (times[child] == time and names[child] > name):
            break
        times[place] = times[child]
        names[place] = names[child]
        place = child
    times[place] = time
    names[place] = name
