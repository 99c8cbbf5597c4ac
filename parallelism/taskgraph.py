"""The task graph: compute tasks, point-to-point transfers and AllReduces of one iteration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import summed
from parallelism.alike import Alike

Group = tuple[int, ...]
"""Servers of a collective, ascending."""


class TaskKind(IntEnum):
    """What a task occupies: a device, or the network."""

    COMPUTE = 0
    TRANSFER = 1
    ALLREDUCE = 2
    REDUCE_SCATTER = 3
    ALL_GATHER = 4


# As plain numbers, which NumPy compares with arrays in a fifth of the time that members take.
COMPUTE, TRANSFER, ALLREDUCE = (
    int(kind) for kind in (TaskKind.COMPUTE, TaskKind.TRANSFER, TaskKind.ALLREDUCE)
)


class Phase(IntEnum):
    """Which part of the iteration a task belongs to."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2
    ACTIVATION = 3
    GRADIENT = 4
    SYNCHRONISE = 5


@dataclass
class Rotations:
    """What a rotation of the servers maps on each other in one task graph.

    Parameters
    ----------
    known : dict of int to Rotated or None
        What was found, by period.
    find : callable, optional
        Finds it from what the graph was made of, given graph and period, in a fraction of the
        time.
    folded : dict of int to Any
        What one task of each kind is on any fabric, by step.
    """

    known: dict[int, Any] = field(default_factory=dict)
    find: Callable[["TaskGraph", int], Any] | None = None
    folded: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """One training iteration as arrays, one entry a task.

    Parameters
    ----------
    servers : int
        Number of servers.
    devices : int
        Number of compute devices; ``server_of_device`` maps them to servers.
    kind : int64 array, shape (tasks,)
        `TaskKind` values.
    first : int64 array, shape (tasks,)
        COMPUTE: device. TRANSFER: source server. Collectives (ALLREDUCE, REDUCE_SCATTER,
        ALL_GATHER): index into ``groups``.
    second : int64 array, shape (tasks,)
        TRANSFER: destination server (never the source). Otherwise -1.
    size : float64 array, shape (tasks,)
        COMPUTE: duration in seconds. TRANSFER: bytes. Collectives: bytes of the whole buffer
        that is reduced or gathered.
    delay : float64 array, shape (tasks,)
        Collectives: seconds between readiness and the start of network traffic (reduction
        inside each server). One of no bytes takes these and the latency of its rounds. Zero
        otherwise.
    operator, phase, part : int64 array, shape (tasks,)
        Operator index, `Phase`, and part of the operator (AllReduce: parameter shard).
        For transfers, ``part`` is the consumer's (ACTIVATION) or producer's (GRADIENT) part.
    successor_offsets : int64 array, shape (tasks + 1,)
    successors : int64 array
        CSR lists of the tasks that wait for each task.
    predecessors : int64 array, shape (tasks,)
        Number of tasks that each task waits for.
    groups : tuple of tuple of int
        Sorted distinct servers of each group of a collective (one server: no network traffic).
    server_of_device : int64 array, shape (devices,)
    ids : int64 array, shape (tasks,), optional
        What the tasks are called in the file that they come from.
    priority : int64 array, shape (tasks,), optional
        Lower numbers go first: compute tasks in the queue of their device, network tasks on the
        links that they share. Without it all are equal.
    alike : Alike, optional
        What each task stands for, where there is one task of each kind only: its server or group
        is then the first of many, and devices are one of each kind. What sums over servers or
        groups takes `pair_bytes` and `group_bytes`.
    """

    servers: int
    devices: int
    kind: Ints
    first: Ints
    second: Ints
    size: Floats
    delay: Floats
    operator: Ints
    phase: Ints
    part: Ints
    successor_offsets: Ints
    successors: Ints
    predecessors: Ints
    groups: tuple[tuple[int, ...], ...]
    server_of_device: Ints
    ids: Ints | None = None
    priority: Ints | None = None
    alike: Alike | None = None

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return int(self.kind.size)

    @cached_property
    def rotations(self) -> "Rotations":
        """What is known of it by `parallelism.rotation.rotated_classes`."""
        return Rotations()

    @property
    def collective(self) -> npt.NDArray[np.bool_]:
        """Which tasks are collectives over a group, shape (tasks,)."""
        return self.kind >= ALLREDUCE

    @cached_property
    def crossing(self) -> npt.NDArray[np.bool_]:
        """Which collectives send anything from server to server, shape (tasks,)."""
        several = np.array([len(group) > 1 for group in self.groups] + [False])
        number = np.where(self.collective, self.first, len(self.groups))
        return several[number] & (self.size > 0.0)

    @property
    def passes(self) -> Floats:
        """How often the buffer of a collective goes round its ring, shape (tasks,).

        Twice for an AllReduce, once for a ReduceScatter or AllGather: each member sends so many
        times (n - 1) / n of the buffer. Zero for other tasks.
        """
        return np.where(self.kind == ALLREDUCE, 2.0, 1.0) * self.collective

    @property
    def copies(self) -> Floats:
        """How many transfers or collectives each task stands for, shape (tasks,)."""
        if self.alike is None:
            return np.ones(self.tasks)
        counts = np.bincount(self.alike.classes.element).astype(np.float64)
        return np.where(self.alike.of_task >= 0, counts[self.alike.of_task], 1.0)

    def pair_bytes(self, chosen: Ints | None = None) -> Floats:
        """Return the bytes of transfers from server to server, shape (servers, servers).

        Parameters
        ----------
        chosen : int64 array, optional
            Transfers that count; by default all.
        """
        source, target, size = self.moved(chosen)
        sums = summed(source * self.servers + target, size, self.servers**2)
        return sums.reshape(self.servers, self.servers)

    def server_bytes(self) -> Floats:
        """Return the bytes of transfers that leave and enter each server, shape (2, servers).

        Of thousands of servers the matrix of all pairs takes longer to add up.
        """
        *ends, size = self.moved()
        return np.stack([summed(end, size, self.servers) for end in ends])

    def port_bytes(self) -> Floats:
        """Return the bytes that leave and enter each server in all, shape (2, servers).

        Transfers, and what each member of a group sends on its ring and gets.
        """
        load = self.server_bytes()
        for group, amount in zip(self.groups, self.member_bytes().tolist(), strict=True):
            if amount > 0.0:
                load[:, list(group)] += amount
        return load

    def device_seconds(self) -> Floats:
        """Return the seconds that each device computes, shape (devices,)."""
        compute = self.kind == COMPUTE
        return summed(self.first[compute], self.size[compute], self.devices)

    def moved(self, chosen: Ints | None = None) -> tuple[Ints, Ints, Floats]:
        """Return sources, targets and bytes of transfers, one by one where a task stands for many.

        Parameters
        ----------
        chosen : int64 array, optional
            As in `pair_bytes`.
        """
        moves = np.flatnonzero(self.kind == TRANSFER) if chosen is None else chosen
        source, target, size = self.first[moves], self.second[moves], self.size[moves]
        if self.alike is not None:
            pattern = self.alike.pattern
            own = np.flatnonzero(pattern.group < 0)
            size = self.alike.spread(size, moves)[own]
            source, target = pattern.source[own], pattern.target[own]
        return source, target, size

    def group_bytes(self) -> Floats:
        """Return the bytes that all collectives of each group pass on, shape (groups,)."""
        reduces = np.flatnonzero(self.collective)
        of, size = self.first[reduces], self.size[reduces] * self.passes[reduces]
        if self.alike is not None:
            own = np.flatnonzero(self.alike.pattern.group >= 0)
            size = self.alike.spread(size, reduces)[own]
            of = self.alike.pattern.group[own]
        return summed(of, size, len(self.groups))

    def member_bytes(self) -> Floats:
        """Return the bytes that each member of each group sends on its ring, shape (groups,)."""
        return member_bytes(self.groups, self.group_bytes())

    @classmethod
    def from_lists(
        cls,
        servers: int,
        tasks: "list[tuple[TaskKind, int, int, float, float]]",
        edges: list[tuple[int, int]],
        groups: tuple[tuple[int, ...], ...] = (),
    ) -> "TaskGraph":
        """Build a task graph by hand, one device a server (for tests and small studies).

        Parameters
        ----------
        servers : int
        tasks : list of (kind, first, second, size, delay)
            As in the class.
        edges : list of (before, after)
            Dependencies between task indices.
        groups : tuple of tuple of int, optional

        Returns
        -------
        TaskGraph

        Raises
        ------
        InputError
            If a task names a server or group that does not exist.
        """
        count = len(tasks)
        kind = np.array([t[0] for t in tasks], dtype=np.int64)
        first = np.array([t[1] for t in tasks], dtype=np.int64)
        second = np.array([t[2] for t in tasks], dtype=np.int64)
        for task in range(count):
            limit = len(groups) if kind[task] >= ALLREDUCE else servers
            if not 0 <= first[task] < limit or second[task] >= servers:
                raise InputError(f"task {task}: {tasks[task]} names no existing server or group")
        before, after = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        offsets, successors, predecessors = dependency_lists(before, after, count)
        zeros = np.zeros(count, dtype=np.int64)
        return cls(
            servers=servers,
            devices=servers,
            kind=kind,
            first=first,
            second=second,
            size=np.array([t[3] for t in tasks], dtype=np.float64),
            delay=np.array([t[4] for t in tasks], dtype=np.float64),
            operator=zeros,
            phase=zeros,
            part=zeros,
            successor_offsets=offsets,
            successors=successors,
            predecessors=predecessors,
            groups=groups,
            server_of_device=np.arange(servers, dtype=np.int64),
        )


def edges_of(tasks: TaskGraph) -> tuple[Ints, Ints]:
    """Return the dependencies of a task graph as pairs of tasks.

    Parameters
    ----------
    tasks : TaskGraph

    Returns
    -------
    before, after : int64 arrays, shape (dependencies,)
    """
    counts = np.diff(tasks.successor_offsets)
    return np.repeat(np.arange(tasks.tasks, dtype=np.int64), counts), tasks.successors


def dependency_lists(
    before: Ints, after: Ints, tasks: int, *, once: bool = False
) -> tuple[Ints, Ints, Ints]:
    """Return dependencies as a task graph holds them.

    Parameters
    ----------
    before, after : int64 arrays, shape (dependencies,)
        Tasks that are waited for, and those that wait, in any order.
    tasks : int
    once : bool
        Count what is listed several times once.

    Returns
    -------
    successor_offsets, successors, predecessors : int64 arrays
        As in `TaskGraph`; the successors of a task are ascending.
    """
    keys = before * tasks + after
    keys = np.sort(keys)
    if once:  # `np.unique` hashes integers, which takes ten times as long
        keys = keys[np.diff(keys, prepend=-1) > 0]
    before, after = keys // max(tasks, 1), keys % max(tasks, 1)
    offsets = np.searchsorted(before, np.arange(tasks + 1)).astype(np.int64)
    return offsets, after, np.bincount(after, minlength=tasks).astype(np.int64)


def member_bytes(groups: Sequence[Group], passed: Floats) -> Floats:
    """Return the bytes that each member of each group sends on its ring, shape (groups,).

    Parameters
    ----------
    groups : sequence of tuple of int
        Servers.
    passed : float64 array, shape (groups,)
        Bytes of the buffers that go round each ring: of an AllReduce twice its buffer.

    Returns
    -------
    float64 array, shape (groups,)
        (n - 1) / n of them for n members: so much passes over each of the n ring edges.
    """
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    return np.asarray((sizes - 1.0) / sizes * passed, dtype=np.float64)


def reduces_gradients(tasks: TaskGraph) -> npt.NDArray[np.bool_]:
    """Return which tasks are AllReduces of gradients, shape (tasks,)."""
    found: npt.NDArray[np.bool_] = (tasks.kind == ALLREDUCE) & (
        tasks.phase == int(Phase.SYNCHRONISE)
    )
    return found


@dataclass(frozen=True, eq=False)
class Traffic:
    """What one iteration sends: AllReduces by group, and a transfer matrix.

    Parameters
    ----------
    servers : int
    transfers : float64 array, shape (servers, servers)
        Bytes from row server to column server, zero diagonal.
    groups : tuple of tuple of int
        Sorted servers of each AllReduce group with at least two members.
    group_bytes : float64 array, shape (groups,)
        Bytes of gradient reduced over each group in one iteration (S, before the ring's
        factor 2 (n-1) / n); half for what is only scattered or gathered.
    """

    servers: int
    transfers: Floats
    groups: tuple[tuple[int, ...], ...]
    group_bytes: Floats

    def member_bytes(self) -> Floats:
        """Return what each member of each group sends on its ring: 2 (n - 1) / n S, (groups,)."""
        return member_bytes(self.groups, 2.0 * self.group_bytes)

    def allreduce_sent(self) -> float:
        """Bytes that all members of all rings send together: sum of 2 (n - 1) S."""
        sizes = np.array([len(group) for group in self.groups], dtype=np.float64)
        return float(np.sum(2.0 * (sizes - 1.0) * self.group_bytes))

    def transfer_sent(self) -> float:
        """Bytes of all point-to-point transfers."""
        return float(self.transfers.sum())


def traffic_of(tasks: TaskGraph) -> Traffic:
    """Sum the network traffic of a task graph.

    Parameters
    ----------
    tasks : TaskGraph

    Returns
    -------
    Traffic
        Groups in order of first use.

    Examples
    --------
    >>> from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
    >>> each = [(TaskKind.COMPUTE, 0, -1, 1e-3, 0.0), (TaskKind.TRANSFER, 0, 1, 5e6, 0.0)]
    >>> tasks = TaskGraph.from_lists(2, each, [(0, 1)], ())
    >>> traffic_of(tasks).transfers.tolist()
    [[0.0, 5000000.0], [0.0, 0.0]]
    """
    check_kind("tasks", tasks, TaskGraph, "a TaskGraph, such as topoopt.plan.rebuild makes")
    totals = tasks.group_bytes() / 2.0
    used = [g for g, members in enumerate(tasks.groups) if len(members) > 1 and totals[g] > 0]
    return Traffic(
        servers=tasks.servers,
        transfers=tasks.pair_bytes(),
        groups=tuple(tasks.groups[g] for g in used),
        group_bytes=totals[used].astype(np.float64),
    )
