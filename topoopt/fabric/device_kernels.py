"""The queue of a device, which both fabric models keep in the same way."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import inner_kernel


@inner_kernel
def enqueue(
    task: int,
    device: int,
    now: float,
    arrival_order: bool,
    priority: Ints,
    ready: Floats,
    front: Ints,
    back: Ints,
    following: Ints,
) -> None:
    """Put a task that is ready now into its device's queue, first in first out.

    Tasks of a lower priority number go before all others. Of tasks of one priority that became
    ready at one time the one with the lowest number goes first, unless they go in the order in
    which that was found out.
    """
    if front[device] < 0:
        front[device] = task
        back[device] = task
        return
    tail = back[device]
    own = priority[task]
    if priority[tail] < own or (
        priority[tail] == own and (arrival_order or ready[tail] < now or tail < task)
    ):
        following[tail] = task
        back[device] = task
        return
    after = front[device]
    ahead = int(np.int64(-1))
    while priority[after] < own or (
        priority[after] == own and (arrival_order or ready[after] < now or after < task)
    ):
        ahead = after
        after = following[after]
    following[task] = after
    if ahead < 0:
        front[device] = task
    else:
        following[ahead] = task
