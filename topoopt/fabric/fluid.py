"""The fluid model: max-min fair flows, with AllReduces as coupled streams."""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from parallelism.taskgraph import FloatArray, IntArray, TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.tasks import checked_tasks

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Run(NamedTuple):
    """What the kernel returns: times and bindings, and how much work they took.

    ``instants`` are the moments at which something happened, ``solves`` those at which rates
    were worked out, ``resolved`` the streams re-solved in all of them.
    """

    start: FloatArray
    finish: FloatArray
    binding: IntArray
    instants: int
    solves: int
    resolved: int


class _Orders(NamedTuple):
    """The task graph in the terms of the kernel; see `simulate_kernels.play`."""

    compute: npt.NDArray[np.bool_]
    resource: IntArray
    volume: FloatArray
    lag: FloatArray
    cap: FloatArray
    begin: IntArray
    end: IntArray
    rows: int
    slots: int
    entries: int


def run_fluid(
    fabric: Fabric,
    tasks: TaskGraph,
    completion_tolerance: float = 0.0,
    *,
    limit: float = float("inf"),
    resolve_all: bool = False,
) -> Run:
    """Run the kernel and return what it found, with counts of its work.

    Parameters and errors are those of `simulate` and `score`; tasks that the limit cut off
    finish at infinity. With ``resolve_all`` every rate is worked out anew at each change: slower,
    for tests and benchmarks of the incremental rates.
    """
    tolerance = completion_tolerance
    if not 0.0 <= tolerance < 1.0:
        raise InputError(f"completion_tolerance is {tolerance}; give a fraction in [0, 1)")
    orders = _orders(fabric, tasks)

    from topoopt.fabric.simulate_kernels import play

    start, finish, binding, done, work = play(
        orders.compute,
        orders.resource,
        orders.volume,
        _plain(tasks.delay),
        orders.lag,
        orders.cap,
        orders.begin,
        orders.end,
        _plain(tasks.successor_offsets),
        _plain(tasks.successors),
        _plain(tasks.predecessors),
        tasks.devices,
        orders.rows,
        orders.slots,
        orders.entries,
        fabric._table.links,
        fabric._table.weights,
        fabric._table.capacity,
        tolerance,
        # A little beyond the limit, so that rounding never rules out what is exactly as fast.
        limit * (1.0 + 1e-9),
        resolve_all,
        fabric.transport.htsim,
    )
    instants, solves, resolved, gave_up = work.tolist()
    if done < tasks.tasks and not gave_up:
        raise InputError(
            f"task graph: {tasks.tasks - done} of {tasks.tasks} tasks never ran, because tasks "
            "wait for each other in a cycle; remove a dependency"
        )
    return Run(start, finish, binding, instants, solves, resolved)


def _orders(fabric: Fabric, tasks: TaskGraph) -> _Orders:
    """Resolve servers, groups and sizes to rows of links, bytes and latencies."""
    hosts = fabric.network.hosts
    tasks = checked_tasks(fabric, tasks)
    compute = tasks.kind == TaskKind.COMPUTE
    resource = tasks.first.copy()
    volume = tasks.size.copy()
    lag = np.zeros(tasks.tasks)
    cap = np.full(tasks.tasks, np.inf)
    begin = np.zeros(tasks.tasks, dtype=np.int64)
    end = np.zeros(tasks.tasks, dtype=np.int64)
    slots = entries = 0

    moves = np.flatnonzero(tasks.kind == TaskKind.TRANSFER)
    if moves.size:
        pairs = tasks.first[moves] * hosts + tasks.second[moves]
        resource[moves] = pairs
        lag[moves] = fabric.message_lags[pairs]
        begin[moves] = fabric.routes.offsets[pairs]
        end[moves] = fabric.routes.offsets[pairs + 1]
        sent = tasks.size[moves]
        volume[moves] = np.where(sent > 0, fabric.transport.wire_bytes(sent), 0.0)
        slots = int(moves.size)
        entries = int((end[moves] - begin[moves]).sum())

    reduces = np.flatnonzero(tasks.kind == TaskKind.ALLREDUCE)
    rows = hosts * hosts
    if reduces.size:
        streams = _streams(fabric, tasks, reduces)
        # Streams of one group with one cap share their rate, and so a row.
        _, which, row = np.unique(
            np.stack((tasks.first[reduces], streams.cap.view(np.int64))),
            axis=1,
            return_index=True,
            return_inverse=True,
        )
        resource[reduces] = rows + row
        rows += which.size
        begin[reduces] = streams.begin
        end[reduces] = streams.end
        lag[reduces] = streams.lag
        cap[reduces] = streams.cap
        volume[reduces] = streams.volume
        slots += which.size
        entries += int((streams.end - streams.begin)[which].sum())
    return _Orders(compute, resource, volume, lag, cap, begin, end, rows, slots, entries)


class _Streams(NamedTuple):
    """AllReduces in the terms of the kernel."""

    volume: FloatArray
    lag: FloatArray
    cap: FloatArray
    begin: IntArray
    end: IntArray


def _streams(fabric: Fabric, tasks: TaskGraph, reduces: IntArray) -> _Streams:
    """Turn ring AllReduces into coupled streams.

    The rate of a stream is capped so that each round takes its bytes at the rate that an empty
    network gives, and the round's lag. One member needs no network.
    """
    index = tasks.first[reduces]
    table = np.zeros((len(tasks.groups), 6))
    for group in np.unique(index).tolist():
        members = tasks.groups[group]
        if len(members) > 1:
            table[group] = (len(members), *fabric.group_row(members))
    members, begin, end, lag, rings, rate = table[index].T
    alone = members == 0.0
    counts = np.where(alone, 2, members).astype(np.int64)
    parts = np.where(alone, 1, rings).astype(np.int64)
    size = tasks.size[reduces]
    rounds, message = fabric.transport.rounds(size, counts, parts)
    wire = fabric.transport.wire_bytes(message)
    idle = alone | (size == 0.0)
    busy = np.where(idle, 1.0, wire)
    least = busy / np.where(alone, 1.0, rate) + np.where(idle, 0.0, lag)
    return _Streams(
        volume=np.where(idle, 0.0, rounds * wire),
        lag=np.where(idle, np.where(alone, 0.0, rounds * lag), 0.0),
        # Without a lag the cap is what the links allow anyway.
        cap=np.where(idle | (lag == 0.0), np.inf, busy / least),
        begin=begin.astype(np.int64),
        end=end.astype(np.int64),
    )


def _plain(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return the array, or a copy if the kernel would have to be compiled anew for it."""
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()
