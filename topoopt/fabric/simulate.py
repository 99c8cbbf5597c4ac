"""Play a task graph over a fabric as max-min fair flows."""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from parallelism.taskgraph import FloatArray, IntArray, TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.timeline import Timeline

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
    begin: IntArray
    end: IntArray
    rows: int
    slots: int
    entries: int


def simulate(fabric: Fabric, tasks: TaskGraph, *, completion_tolerance: float = 0.0) -> Timeline:
    """Simulate one iteration and return its timeline.

    COMPUTE tasks are ready when all predecessors have finished, and run one at a time on their
    device, first in first out by ready time (ties by task id). A TRANSFER becomes a flow over
    the routes of its pair when ready, and finishes the pair's latency after its last byte; with
    no bytes, only the latency. An ALLREDUCE of S bytes over g > 1 servers waits for its delay,
    then runs as one coupled stream of 2 (g - 1) / g * S / R bytes over every edge of its R
    rings, and finishes 2 (g - 1) round latencies after its last byte; over one server it takes
    its delay. At every instant rates are max-min fair over all active flows.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    completion_tolerance : float, optional
        0 (default) is exact. Otherwise flows whose time left is at most this fraction of the
        time they have been active, when another one ends, keep their rate for that remainder,
        and all other rates are brought up to date once, half way through. Every flow still
        moves all its bytes; a link may be over or under its capacity for as long. Fewer
        re-solves where very many flows end one after another.

    Returns
    -------
    Timeline

    Raises
    ------
    InputError
        If the task graph does not fit the fabric, a size is out of range, a transfer has no
        route, or tasks wait for each other in a cycle.

    Notes
    -----
    Events whose times differ by less than 1e-12 of the time form one instant, in which ties go
    by task id: the same input gives bit-identical results. When flows come or go, progressive
    filling is repeated only from the lowest level that can change, which is exact.
    """
    played = run(fabric, tasks, completion_tolerance)
    compute = tasks.kind == TaskKind.COMPUTE
    busy = np.bincount(
        tasks.first[compute], weights=tasks.size[compute], minlength=tasks.devices
    ).astype(np.float64)
    return Timeline(
        start=played.start,
        finish=played.finish,
        makespan=float(played.finish.max(initial=0.0)),
        binding=played.binding,
        link_bytes=link_bytes(fabric, tasks),
        device_busy=busy,
    )


def score(
    fabric: Fabric,
    tasks: TaskGraph,
    *,
    completion_tolerance: float = 0.0,
    limit: float = float("inf"),
) -> float:
    """Return only the makespan.

    Parameters
    ----------
    fabric, tasks, completion_tolerance
        As in `simulate`, with its errors.
    limit : float
        Give up when the makespan is known to exceed this many seconds.

    Returns
    -------
    float
        Seconds; infinity if the simulation gave up.
    """
    played = run(fabric, tasks, completion_tolerance, limit=limit)
    return float(played.finish.max(initial=0.0))


def link_bytes(fabric: Fabric, tasks: TaskGraph) -> FloatArray:
    """Return the bytes that each link carries in one iteration, shape (links,)."""
    hosts = fabric.network.hosts
    moves = tasks.kind == TaskKind.TRANSFER
    pairs = tasks.first[moves] * hosts + tasks.second[moves]
    demand = np.bincount(pairs, weights=tasks.size[moves], minlength=hosts * hosts)
    total = fabric.routes.link_bytes(fabric.network, demand.astype(np.float64))
    reduces = tasks.kind == TaskKind.ALLREDUCE
    reduced = np.bincount(
        tasks.first[reduces], weights=tasks.size[reduces], minlength=len(tasks.groups)
    )
    for group, amount in zip(tasks.groups, reduced.tolist(), strict=True):
        if len(group) > 1 and amount > 0:
            links, weights, _, rings = fabric.group_streams(group)
            total[links] += weights * _ring_edge_bytes(len(group), amount, rings)
    return total


def _ring_edge_bytes(size: int, amount: float, rings: int) -> float:
    return 2.0 * (size - 1) / size * amount / rings


def run(
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
    if tasks.servers > hosts:
        raise InputError(
            f"the task graph uses {tasks.servers} servers, fabric {fabric.name!r} has {hosts}; "
            "give a fabric with as many servers"
        )
    if not (_in_range(tasks.size) and _in_range(tasks.delay)):
        raise InputError("task graph: a size or delay is negative or not finite; mend that task")
    compute = tasks.kind == TaskKind.COMPUTE
    resource = tasks.first.copy()
    volume = tasks.size.copy()
    lag = np.zeros(tasks.tasks)
    begin = np.zeros(tasks.tasks, dtype=np.int64)
    end = np.zeros(tasks.tasks, dtype=np.int64)
    slots = entries = 0

    moves = np.flatnonzero(tasks.kind == TaskKind.TRANSFER)
    if moves.size:
        pairs = tasks.first[moves] * hosts + tasks.second[moves]
        unrouted = np.flatnonzero(~fabric._routed[pairs])
        if unrouted.size:
            source, target = divmod(int(pairs[unrouted[0]]), hosts)
            raise InputError(
                f"fabric {fabric.name!r} has no route {source}->{target}, which task "
                f"{moves[unrouted[0]]} needs; route that pair"
            )
        resource[moves] = pairs
        lag[moves] = fabric.routes.latency[pairs]
        begin[moves] = fabric.routes.offsets[pairs]
        end[moves] = fabric.routes.offsets[pairs + 1]
        slots = int(moves.size)
        entries = int((end[moves] - begin[moves]).sum())

    reduces = np.flatnonzero(tasks.kind == TaskKind.ALLREDUCE)
    if reduces.size:
        index = tasks.first[reduces]
        facts = np.zeros((len(tasks.groups), 4))
        for group in np.unique(index).tolist():
            members = tasks.groups[group]
            if len(members) > 1:
                first, last, latency, rings = fabric.group_row(members)
                facts[group] = (
                    first,
                    last,
                    2.0 * (len(members) - 1) * latency,
                    _ring_edge_bytes(len(members), 1.0, rings),
                )
                slots += 1
                entries += last - first
        resource[reduces] = hosts * hosts + index
        begin[reduces] = facts[index, 0]
        end[reduces] = facts[index, 1]
        lag[reduces] = facts[index, 2]
        volume[reduces] *= facts[index, 3]
    rows = hosts * hosts + len(tasks.groups)
    return _Orders(compute, resource, volume, lag, begin, end, rows, slots, entries)


def _plain(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return the array, or a copy if the kernel would have to be compiled anew for it."""
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()


def _in_range(values: FloatArray) -> bool:
    return values.size == 0 or bool(values.min() >= 0.0 and np.isfinite(values.max()))
