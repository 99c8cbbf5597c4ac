"""A calendar of events ordered by (time, name): the near ones in buckets, the others in a heap.

After R. Brown, "Calendar queues" (CACM 31(10), 1988), with a heap for what would make buckets slow:
events far away, which there wait for another round of the buckets, and those of a time that so many
have that a list of them is long. Which events are where changes no order.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.array_kernels import grown
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.jit import inner_kernel, kernel
from topoopt.fabric.heap_kernels import pop as pop_heap
from topoopt.fabric.heap_kernels import push as push_heap

BUCKETS = 4096  # a power of two
# Entries of the counts: events in the heap and in buckets; the first bucket that may hold one, and
# that of the last event, counted from time 0; the event last put into the middle of a list, and its
# bucket, -1 if there is none; and since the width was last looked at the steps into lists and over
# empty buckets, the events that were too far away, and all.
FAR, NEAR, AT, BASE, HINT, PLACE, WALKED, SKIPPED, BEYOND, POPPED, COUNTS = range(11)
LONGEST_WALK = 12  # steps into a list, for more of which an event goes to the heap
PERIOD = 8192  # events from one look at the width of buckets to the next
FARTHEST = 2.0**62  # buckets from time 0


class Calendar(NamedTuple):
    """Events to come, at most one of each name.

    Parameters
    ----------
    when : float64 array, shape (names,)
        Seconds, of events in buckets.
    after : int32 array, shape (names,)
        The next of the same bucket; of the last one, the first.
    last : int32 array, shape (BUCKETS,)
        The last event of each bucket, -1 if there is none. After the last bucket comes the first.
    times, names : arrays, shape (names,)
        Heap of the events that are too far away for the buckets, or in too full a one.
    counts : int64 array, shape (COUNTS,)
    scale : float64 array, shape (1,)
        Buckets a second.
    """

    when: Floats
    after: SmallInts
    last: SmallInts
    times: Floats
    names: Ints
    counts: Ints
    scale: Floats


@kernel
def no_events(names: int, scale: float) -> Calendar:
    """Return a calendar for events of so many names, with so many buckets a second at first."""
    counts = np.zeros(COUNTS, np.int64)
    counts[PLACE] = -1
    return Calendar(
        np.empty(names),
        np.empty(names, np.int32),
        np.full(BUCKETS, -1, np.int32),
        np.empty(names),
        np.empty(names, np.int64),
        counts,
        np.array([scale]),
    )


@kernel
def with_room(calendar: Calendar, names: int) -> Calendar:
    """Return the calendar with room for so many names."""
    return Calendar(
        grown(calendar.when, names),
        grown(calendar.after, names),
        calendar.last,
        grown(calendar.times, names),
        grown(calendar.names, names),
        calendar.counts,
        calendar.scale,
    )


@inner_kernel
def _precedes(when: Floats, time: float, name: int, other: int) -> bool:
    """Say whether an event comes before one that is in a bucket."""
    return bool((time < when[other]) | ((time == when[other]) & (name < other)))


@inner_kernel
def push_far(calendar: Calendar, time: float, name: int) -> None:
    """Add an event to the heap: less to compile than `push`, for events that are few."""
    push_heap(calendar.times, calendar.names, calendar.counts, time, name)


@inner_kernel
def push(calendar: Calendar, time: float, name: int) -> None:
    """Add an event, not before the last one."""
    when, after, last, times, names, counts, scale = calendar
    x = time * scale[0]
    if x < counts[BASE] + BUCKETS:
        place = int(x)
        if place < counts[BASE]:
            place = counts[BASE]
        bucket = place & (BUCKETS - 1)
        end = last[bucket]
        before, following = end, name
        steps = 0
        if end < 0:
            before = name
            last[bucket] = name
            if counts[PLACE] == place:
                counts[PLACE] = -1  # the event last put into its middle has gone
        elif _precedes(when, time, name, end):
            # Where many have one time, the next one mostly belongs behind that of the last walk.
            following = after[end]
            hint = counts[HINT]
            if (
                counts[PLACE] == place
                and not _precedes(when, time, name, hint)
                and not _precedes(when, when[hint], hint, following)
            ):
                before = hint
                following = after[hint]
            steps = 1
            while steps <= LONGEST_WALK and not _precedes(when, time, name, following):
                before = following
                following = after[following]
                steps += 1
            counts[WALKED] += steps
            counts[HINT] = name
            counts[PLACE] = place
        else:
            following = after[end]
            last[bucket] = name
        if steps <= LONGEST_WALK:
            after[before] = name
            after[name] = following
            when[name] = time
            counts[NEAR] += 1
            if place < counts[AT]:
                counts[AT] = place
            return
        counts[PLACE] = -1
    else:
        counts[BEYOND] += 1
    push_heap(times, names, counts, time, name)


@inner_kernel
def first(calendar: Calendar) -> tuple[float, int]:
    """Return time and name of the first event; infinity and -1 if there is none."""
    when, after, last, times, names, counts, _ = calendar
    time = np.inf
    name = -1
    if counts[NEAR] > 0:
        at = counts[AT]
        while last[at & (BUCKETS - 1)] < 0:
            at += 1
        counts[SKIPPED] += at - counts[AT]
        counts[AT] = at
        name = after[last[at & (BUCKETS - 1)]]
        time = when[name]
    if counts[FAR] > 0 and (times[0] < time or (times[0] == time and names[0] < name)):
        time = times[0]
        name = names[0]
    return time, name


@inner_kernel
def pop(calendar: Calendar, name: int) -> None:
    """Remove the first event, of which `first` has just told the name."""
    _, after, last, times, names, counts, scale = calendar
    at = counts[AT]
    end = last[at & (BUCKETS - 1)]
    if counts[NEAR] > 0 and after[end] == name:
        last[at & (BUCKETS - 1)] = -1 if end == name else end
        after[end] = after[name]
        counts[NEAR] -= 1
        counts[BASE] = at
    else:
        base = int(min(times[0] * scale[0], FARTHEST))
        if base > counts[BASE]:
            counts[BASE] = base
            if base > counts[AT]:
                counts[AT] = base
        pop_heap(times, names, counts)
    counts[POPPED] += 1
    if counts[POPPED] == PERIOD:
        _fit(calendar)


@inner_kernel
def _fit(calendar: Calendar) -> None:
    """Choose buckets of another width where lists are long, or many buckets are empty or missing.

    What is in buckets goes to the heap: all of it is near.
    """
    when, after, last, times, names, counts, scale = calendar
    walked, skipped = counts[WALKED], counts[SKIPPED]
    factor = 1.0
    if 8 * counts[BEYOND] > PERIOD and walked < 3 * PERIOD:
        factor = 0.5
    elif walked > 2 * PERIOD and walked > skipped:
        factor = 2.0
    elif skipped > 4 * PERIOD and skipped > walked:
        factor = 0.5
    counts[WALKED] = 0
    counts[SKIPPED] = 0
    counts[BEYOND] = 0
    counts[POPPED] = 0
    if factor == 1.0:
        return
    for bucket in range(BUCKETS):
        end = last[bucket]
        if end >= 0:
            name = after[end]
            while name != end:
                push_heap(times, names, counts, when[name], name)
                name = after[name]
            push_heap(times, names, counts, when[end], end)
            last[bucket] = -1
    counts[NEAR] = 0
    scale[0] *= factor
    counts[BASE] = int(counts[BASE] * factor)
    counts[AT] = counts[BASE]
    counts[PLACE] = -1
