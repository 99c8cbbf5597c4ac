"""Groups of arrays that kernels take as one argument.

They lie in a module of kernels, without any, so that the cache of compiled code notices an edit.
"""

from typing import NamedTuple

from codesign_base.arrays import Flags, Floats, Ints, SmallInts


class Orders(NamedTuple):
    """A task graph over a fabric in the terms of the fluid kernel.

    Parameters
    ----------
    compute : bool array, shape (tasks,)
        Compute task, or network task.
    resource : int64 array, shape (tasks,)
        Device, or row of links (below ``rows``).
    volume, delay, lag : float64 arrays, shape (tasks,)
        Seconds on the device, or bytes; seconds before and after the bytes.
    cap : float64 array, shape (tasks,)
        Bytes/s that the task does not exceed; the same for all tasks of a row.
    begin, end : int64 arrays, shape (tasks,)
        Entries of the row in ``links`` and ``weights``.
    successor_offsets, successors, predecessors : int64 arrays
        As in `parallelism.taskgraph.TaskGraph`.
    start_order : int64 array, shape (tasks,)
        In which tasks that are ready at the start are found.
    priority : int64 array, shape (tasks,)
        Compute task: those with lower numbers leave the device's queue first. Network task: its
        level, below ``levels``; the same for all tasks of a row. A level gets only what the
        levels below it leave.
    levels : int
        Number of levels of network tasks, at least 1.
    devices, rows : int
    slots, entries : int
        Upper bounds of the distinct rows, and of their entries, in use at once.
    links : int32 array
    weights, capacity : float64 arrays
        Of the entries of rows, of the links (bytes/s).
    """

    compute: Flags
    resource: Ints
    volume: Floats
    delay: Floats
    lag: Floats
    cap: Floats
    begin: Ints
    end: Ints
    successor_offsets: Ints
    successors: Ints
    predecessors: Ints
    start_order: Ints
    priority: Ints
    levels: int
    devices: int
    rows: int
    slots: int
    entries: int
    links: SmallInts
    weights: Floats
    capacity: Floats
