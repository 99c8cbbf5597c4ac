"""An iteration under way: devices, events, what becomes ready, as every fluid loop keeps them."""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.jit import inner_kernel, kernel
from routing.path_kernels import sort_prefix
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.device_kernels import enqueue
from topoopt.fabric.heap_kernels import pop, push

# Events whose times differ by less than this fraction are one instant.
INSTANT = 1e-12
# number: entries of ``fresh`` and ``starting``, tasks done, instants, devices that fell idle
FRESH, STARTS, DONE, INSTANTS, IDLES = 0, 1, 2, 3, 4


class Iteration(NamedTuple):
    """The state of an iteration.

    Parameters
    ----------
    waiting : int64 array, shape (tasks,)
        Predecessors that have not finished.
    ready, start, finish : float64 arrays, shape (tasks,)
        Seconds; ``finish`` is infinite before.
    binding : int64 array, shape (tasks,)
        See `topoopt.fabric.timeline.Timeline`.
    drained : bool array, shape (tasks,)
        Network tasks that have nothing left but a lag.
    times, names, events : arrays
        Heap of the events to come.
    running, before : int64 arrays, shape (devices,)
        The task that runs and the one that ran last; -1: none.
    front, back : int64 arrays, shape (devices,)
        Ends of the queue.
    idle : int64 array, shape (devices,)
        Devices that fell idle.
    asks : bool array, shape (devices,)
        Whether a device is among them.
    following : int64 array, shape (tasks,)
        The next task in a device's queue.
    fresh, starting : int64 arrays, shape (tasks,)
        What became ready, and what goes onto the network, at this instant.
    batch, ended_at : arrays, shape (tasks,)
        Work space.
    number : int64 array, shape (5,)
    """

    waiting: Ints
    ready: Floats
    start: Floats
    finish: Floats
    binding: Ints
    drained: Flags
    times: Floats
    names: Ints
    events: Ints
    running: Ints
    before: Ints
    front: Ints
    back: Ints
    idle: Ints
    asks: Flags
    following: Ints
    fresh: Ints
    starting: Ints
    batch: Ints
    ended_at: Floats
    number: Ints


@kernel
def begun(orders: Orders) -> Iteration:
    """Return the state before the first instant."""
    tasks = orders.compute.size
    waiting = orders.predecessors.copy()
    devices = orders.devices
    fresh = np.empty(tasks, np.int64)
    number = np.zeros(5, np.int64)
    for place in range(tasks):
        task = orders.start_order[place]
        if waiting[task] == 0:
            fresh[number[FRESH]] = task
            number[FRESH] += 1
    return Iteration(
        waiting,
        np.empty(tasks),
        np.empty(tasks),
        np.full(tasks, np.inf),
        np.full(tasks, -1, np.int64),
        np.zeros(tasks, np.bool_),
        np.empty(tasks),
        np.empty(tasks, np.int64),
        np.zeros(1, np.int64),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.full(devices, -1, np.int64),
        np.empty(devices, np.int64),
        np.zeros(devices, np.bool_),
        np.full(tasks, -1, np.int64),
        fresh,
        np.empty(tasks, np.int64),
        np.empty(tasks, np.int64),
        np.empty(tasks),
        number,
    )


@inner_kernel
def make_ready(orders: Orders, it: Iteration, now: float, arrival_order: bool) -> None:
    """Queue what became ready at this instant, delay it, or list it for the network."""
    ready, running, idle, asks = it.ready, it.running, it.idle, it.asks
    starts, idles = it.number[STARTS], it.number[IDLES]
    for i in range(it.number[FRESH]):
        task = it.fresh[i]
        ready[task] = now
        it.start[task] = now
        if orders.compute[task]:
            place = orders.resource[task]
            enqueue(
                task,
                place,
                now,
                arrival_order,
                orders.priority,
                ready,
                it.front,
                it.back,
                it.following,
            )
            if running[place] < 0 and not asks[place]:
                asks[place] = True
                idle[idles] = place
                idles += 1
        elif orders.volume[task] == 0.0:
            it.drained[task] = True
            late = now + orders.delay[task] + orders.lag[task]
            push(it.times, it.names, it.events, late, task)
        elif orders.delay[task] > 0.0:
            push(it.times, it.names, it.events, now + orders.delay[task], task)
        else:
            it.starting[starts] = task
            starts += 1
    it.number[STARTS], it.number[IDLES], it.number[FRESH] = starts, idles, 0


@inner_kernel
def begin_idle(orders: Orders, it: Iteration, now: float) -> None:
    """Let devices that fell idle, and have work, begin it."""
    for i in range(it.number[IDLES]):
        place = it.idle[i]
        it.asks[place] = False
        task = it.front[place]
        it.front[place] = it.following[task]
        it.running[place] = task
        it.start[task] = now
        if it.ready[task] < now:
            it.binding[task] = it.before[place]
        push(it.times, it.names, it.events, now + orders.volume[task], task)
    it.number[IDLES] = 0


@inner_kernel
def drain(orders: Orders, it: Iteration, count: int, now: float) -> float:
    """Let the first flows of ``batch``, which have all their bytes, end; return the last moment."""
    last = now
    for i in range(count):
        task = it.batch[i]
        it.drained[task] = True
        last = max(last, it.ended_at[i])
        push(it.times, it.names, it.events, it.ended_at[i] + orders.lag[task], task)
    return last


@inner_kernel
def finish_due(
    orders: Orders, it: Iteration, now: float, limit: float, arrival_order: bool
) -> None:
    """Take the events up to ``limit``: delays that are over, and tasks that have finished."""
    batch, waiting, fresh = it.batch, it.waiting, it.fresh
    successors = orders.successors
    size = int(np.int64(0))
    freshly = int(np.int64(0))
    starts, idles, done = it.number[STARTS], it.number[IDLES], it.number[DONE]
    while it.events[0] > 0 and it.times[0] <= limit:
        batch[size] = it.names[0]
        size += 1
        pop(it.times, it.names, it.events)
    sort_prefix(batch, size)
    for i in range(size):
        task = batch[i]
        if not orders.compute[task] and not it.drained[task]:
            it.starting[starts] = task
            starts += 1
            continue
        it.finish[task] = now
        done += 1
        if orders.compute[task]:
            place = orders.resource[task]
            it.running[place] = -1
            it.before[place] = task
            if it.front[place] >= 0:
                it.asks[place] = True
                it.idle[idles] = place
                idles += 1
        for entry in range(orders.successor_offsets[task], orders.successor_offsets[task + 1]):
            after = successors[entry]
            waiting[after] -= 1
            if waiting[after] == 0:
                it.binding[after] = task
                fresh[freshly] = after
                freshly += 1
    if not arrival_order:
        sort_prefix(fresh, freshly)
    it.number[STARTS], it.number[IDLES], it.number[DONE] = starts, idles, done
    it.number[FRESH] = freshly
