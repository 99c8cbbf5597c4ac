"""What must still follow, by which a simulation foresees that it passes its limit."""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats
from codesign_base.jit import inner_kernel, kernel
from parallelism.longest_path_kernels import heads_and_tails
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.iteration_kernels import IDLES, Iteration

# What must follow counts lower by this share, so that rounding never rules anything out.
_ROUNDING = 1e-9


class Foresight(NamedTuple):
    """What devices have before them.

    Parameters
    ----------
    left : float64 array, shape (devices,)
        Seconds of the tasks that have not begun.
    after : float64 array, shape (devices,)
        Seconds that pass at least from the end of any task of a device to the last end of all.
    """

    left: Floats
    after: Floats


@kernel
def foresight(orders: Orders) -> Foresight:
    """Return what devices have before them at the start.

    Parameters
    ----------
    orders : Orders

    Returns
    -------
    Foresight
    """
    after_task = seconds_after(orders)
    left, after = np.zeros(orders.devices), np.full(orders.devices, np.inf)
    for task in range(orders.compute.size):
        if orders.compute[task]:
            device = orders.resource[task]
            left[device] += orders.volume[task]
            after[device] = min(after[device], after_task[task])
    return Foresight(left, after)


@kernel
def seconds_after(orders: Orders) -> Floats:
    """Return the seconds that pass at least from the end of each task to the last end.

    Parameters
    ----------
    orders : Orders

    Returns
    -------
    float64 array, shape (tasks,)
        Along the longest chain of what waits for a task, each flow alone on its links; zero for
        tasks behind a cycle.
    """
    length = orders.volume.copy()
    for task in range(length.size):
        if not orders.compute[task]:
            rate = orders.cap[task]
            for entry in range(orders.begin[task], orders.end[task]):
                rate = min(rate, orders.capacity[orders.links[entry]] / orders.weights[entry])
            length[task] = orders.delay[task] + orders.volume[task] / rate + orders.lag[task]
    _, after = heads_and_tails(
        length,
        np.zeros(length.size),
        orders.successor_offsets,
        orders.successors,
        orders.predecessors,
        np.empty(0),
    )
    return after


@inner_kernel
def devices_late(
    orders: Orders, it: Iteration, ahead: Foresight, now: float, horizon: float
) -> bool:
    """Say whether a device that is about to begin a task cannot end all that it has in time.

    What it has takes ``left`` seconds more, one task after another, and what waits for the last of
    them ``after`` at least.
    """
    late = False
    for i in range(it.number[IDLES]):
        device = it.idle[i]
        least = ahead.left[device] + ahead.after[device]
        late |= now + (1.0 - _ROUNDING) * least > horizon
        ahead.left[device] -= orders.volume[it.front[device]]
    return late
