"""A task graph over a fabric as arrays: rows of links, bytes, latencies and caps."""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts
from parallelism.taskgraph import COMPUTE, TaskGraph
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.represented import class_rows, seconds_per_byte
from topoopt.fabric.ring_trees import rounds_of
from topoopt.fabric.route_rows import MADE_AT_ONCE
from topoopt.fabric.tasks import routed_tasks, starting_order

_Scalar = TypeVar("_Scalar", bound=np.generic)


def task_orders(fabric: Fabric, tasks: TaskGraph) -> Orders:
    """Resolve servers, groups and sizes to rows of links, bytes and latencies.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Whose tasks stand for themselves, or for what is alike on this fabric.

    Returns
    -------
    Orders
        Of one link of each kind, where tasks stand for others.

    Raises
    ------
    InputError
        As `simulate`.
    """
    hosts = fabric.network.hosts
    tasks, moves, pairs, *routed = routed_tasks(fabric, tasks)
    compute = tasks.kind == COMPUTE
    resource = tasks.first.copy()
    volume = tasks.size.copy()
    lag = np.zeros(tasks.tasks)
    cap = np.full(tasks.tasks, np.inf)
    begin = np.zeros(tasks.tasks, dtype=np.int64)
    end = np.zeros(tasks.tasks, dtype=np.int64)
    slots = entries = 0

    if moves.size:
        resource[moves] = pairs
        lag[moves] = fabric.rows.lags(pairs)
        if tasks.alike is None:
            begin[moves], end[moves] = routed
        sent = tasks.size[moves]
        volume[moves] = np.where(sent > 0, fabric.transport.wire_bytes(sent), 0.0)
        slots = int(moves.size)

    reduces = np.flatnonzero(tasks.collective)
    rows = hosts * hosts
    stream = tasks.first[reduces]
    if reduces.size:
        volume[reduces], lag[reduces], cap[reduces], begin[reduces], end[reduces] = _streams(
            fabric, tasks, reduces
        )
    links, weights, capacity = fabric.rows.links, fabric.rows.weights, fabric.capacity
    if tasks.alike is not None:
        own = class_rows(fabric, tasks)
        links, weights, capacity = own.links, own.weights, own.capacity
        of = tasks.alike.of_task
        sends = np.flatnonzero(of >= 0)
        begin[sends], end[sends] = own.begin[of[sends]], own.end[of[sends]]
        resource[moves] = of[moves]
        stream, rows = of[reduces], own.begin.size
    entries = int((end[moves] - begin[moves]).sum())
    if reduces.size:
        # Streams of one group with one cap share their rate, and so a row.
        which, row = distinct(stream, cap[reduces].view(np.int64))
        resource[reduces] = rows + row
        rows += which.size
        slots += which.size
        entries += int((end - begin)[reduces[which]].sum())
    priority, levels = np.zeros(tasks.tasks, dtype=np.int64), 1
    if tasks.priority is not None:
        priority = tasks.priority.copy()
        sends = np.flatnonzero(~compute)
        values, level = np.unique(priority[sends], return_inverse=True)
        priority[sends] = level
        levels = max(int(values.size), 1)
        if levels > 1:
            # Streams are of one level.
            _, which, row = np.unique(
                resource[sends] * levels + level, return_index=True, return_inverse=True
            )
            resource[sends] = row
            rows = slots = int(which.size)
            entries = int((end - begin)[sends[which]].sum())
    return Orders(
        compute=compute,
        resource=resource,
        volume=volume,
        delay=_plain(tasks.delay),
        lag=lag,
        cap=cap,
        begin=begin,
        end=end,
        successor_offsets=_plain(tasks.successor_offsets),
        successors=_plain(tasks.successors),
        predecessors=_plain(tasks.predecessors),
        start_order=starting_order(fabric, tasks),
        priority=priority,
        levels=levels,
        devices=tasks.devices,
        rows=rows,
        slots=slots,
        entries=entries,
        links=links,
        weights=weights,
        capacity=capacity,
    )


def distinct(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Return the first place of each distinct pair, ascending, and which pair each place holds.

    As `numpy.unique` of columns, which takes many times longer.
    """
    order = np.lexsort((other, one))
    a, b = one[order], other[order]
    fresh = np.ones(order.size, dtype=np.bool_)
    fresh[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    row = np.empty(order.size, dtype=np.int64)
    row[order] = np.cumsum(fresh) - 1
    return order[fresh], row


def senders(orders: Orders) -> Ints:
    """Return the tasks that send something over links."""
    return np.flatnonzero(~orders.compute & (orders.end > orders.begin) & (orders.volume > 0.0))


def link_uses(orders: Orders, sends: Ints | None = None) -> tuple[Ints, Ints, Ints, Floats]:
    """Return for how long tasks that send something occupy links.

    Parameters
    ----------
    orders : Orders
    sends : int64 array, optional
        Some of `senders`; by default all.

    Returns
    -------
    sends, counts : int64 arrays
        The tasks, and how many links each uses.
    links : int64 array, shape (uses,)
    seconds : float64 array, shape (uses,)
        Bytes over the capacity of the link.
    """
    sends = senders(orders) if sends is None else sends
    counts = orders.end[sends] - orders.begin[sends]
    at = spread(orders.begin[sends], counts)
    links = orders.links[at].astype(np.int64)
    slowness = orders.weights[at] / orders.capacity[links]
    return sends, counts, links, np.repeat(orders.volume[sends], counts) * slowness


def in_parts(sends: Ints) -> list[Ints]:
    """Return tasks in parts whose uses of links do not fill memory."""
    return np.split(sends, np.arange(MADE_AT_ONCE, sends.size, MADE_AT_ONCE))


def alone_seconds(
    orders: Orders, fabric: Fabric | None = None, tasks: TaskGraph | None = None
) -> Floats:
    """Return what each task takes from ready to finished with its device and links to itself.

    Parameters
    ----------
    orders : Orders
    fabric : Fabric, optional
    tasks : TaskGraph, optional
        What they were made of, where tasks stand for others.

    Returns
    -------
    float64 array, shape (tasks,)
    """
    sends = senders(orders)
    alone = np.zeros(orders.compute.size)
    if sends.size:
        for part in in_parts(sends):
            _, counts, _, seconds = link_uses(orders, part)
            alone[part] = np.maximum.reduceat(seconds, starts(counts)[:-1])
        if tasks is not None and fabric is not None and tasks.alike is not None:
            alone[sends] = (
                orders.volume[sends] * seconds_per_byte(fabric, tasks)[tasks.alike.of_task[sends]]
            )
        alone[sends] = np.maximum(alone[sends], orders.volume[sends] / orders.cap[sends])
    total: Floats = np.where(orders.compute, orders.volume, orders.delay + alone + orders.lag)
    return total


def collective_rounds(fabric: Fabric, tasks: TaskGraph, reduces: Ints) -> tuple[Floats, Floats]:
    """Return how collectives are cut into rounds.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    reduces : int64 array
        Some of its collectives.

    Returns
    -------
    rounds, message : float64 arrays, shape (collectives,)
        Rounds, and bytes on each ring edge in one of them; see
        `topoopt.fabric.ring_trees.rounds_of`. Groups of one server send nothing, whatever stands
        there.
    """
    return _cut(fabric, tasks, reduces)[:2]


class _Cut(NamedTuple):
    """Collectives in rounds, and the rows of their groups; 0 members: one, which sends nothing."""

    rounds: Floats
    message: Floats
    members: Floats
    begin: Floats
    end: Floats
    lag: Floats
    pace: Floats


def _cut(fabric: Fabric, tasks: TaskGraph, reduces: Ints) -> _Cut:
    index = tasks.first[reduces]
    table = np.zeros((len(tasks.groups), 8))
    fabric.prepare(tasks.groups[group] for group in np.unique(index).tolist())
    for group in np.unique(index).tolist():
        members = tasks.groups[group]
        if len(members) > 1:
            table[group] = (len(members), *fabric.group_row(members))
    members, begin, end, lag, rings, rate, hops, crowding = table[index].T
    alone = members == 0.0
    counts = np.where(alone, 2, members).astype(np.int64)
    parts = np.where(alone, 1, rings).astype(np.int64)
    pace = np.where(alone, 1.0, rate)
    rounds, message = rounds_of(
        fabric.transport, tasks.size[reduces], counts, parts, tasks.passes[reduces], pace, lag,
        hops, crowding,
    )  # fmt: skip
    return _Cut(rounds, message, members, begin, end, lag, pace)


def _streams(
    fabric: Fabric, tasks: TaskGraph, reduces: Ints
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return volume, lag, cap, and begin and end of the row of each collective as a stream.

    The rate of a stream is capped so that each round takes its bytes at the rate that an empty
    network gives, and the round's lag. One member needs no network.
    """
    rounds, message, members, begin, end, lag, pace = _cut(fabric, tasks, reduces)
    alone = members == 0.0
    wire = fabric.transport.wire_bytes(message)
    idle = alone | (tasks.size[reduces] == 0.0)
    busy = np.where(idle, 1.0, wire)
    least = busy / pace + np.where(idle, 0.0, lag)
    volume = np.where(idle, 0.0, rounds * wire)
    pause = np.where(idle, np.where(alone, 0.0, rounds * lag), 0.0)
    # Without a lag the cap is what the links allow anyway.
    return volume, pause, np.where(idle | (lag == 0.0), np.inf, busy / least), begin, end


def _plain(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return the array, or a copy if the kernel would have to be compiled anew for it."""
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()
