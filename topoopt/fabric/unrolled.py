"""Collectives written out: the rounds of their rings, as point-to-point transfers."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import Group, TaskGraph, TaskKind, dependency_lists, edges_of
from topoopt.fabric.rings import Rings

# What stands for the start and end of a collective, and for the end of a round: nothing is sent.
_JOIN = (int(TaskKind.ALLREDUCE), -1, 0.0)


def unrolled(
    tasks: TaskGraph,
    rings: Mapping[Group, Rings],
    cut: Mapping[int, tuple[float, float]] = MappingProxyType({}),
) -> TaskGraph:
    """Return a task graph whose collectives over several servers are written out as transfers.

    Every member sends S / (g R) bytes to the next one on each of its R rings, round by round: a
    round starts when all g messages of the ring's last one have arrived. There are 2 (g - 1)
    rounds of an AllReduce and g - 1 of a ReduceScatter or AllGather, as the packet simulator of
    TopoOpt simulates them.

    Parameters
    ----------
    tasks : TaskGraph
    rings : mapping of tuple of int to tuple of tuple of int
        Ring orders by sorted group, of every group of two or more servers in use.
    cut : mapping of int to (float, float)
        Rounds and bytes on each ring edge in one of them, of the collectives (by number) that are
        cut otherwise (`topoopt.fabric.orders.collective_rounds`).

    Returns
    -------
    TaskGraph
        The tasks of ``tasks`` come first and keep their places. A collective becomes its local
        reduction, an AllReduce over one server, and so does any that sends nothing, without the
        latency of its rounds. Ends of rounds are such AllReduces as well, of no time; so is the end
        of a collective, if tasks wait for it. Without ``ids``.

    Raises
    ------
    InputError
        If a group has no rings.
    """
    sizes = np.array([len(group) for group in tasks.groups], dtype=np.int64)
    collective = np.flatnonzero(tasks.collective)
    several, sends = sizes[tasks.first[collective]] > 1, tasks.crossing[collective]
    alone: dict[int, int] = {}
    grown = _Grown(tasks)
    grown.kind[0][collective[~sends]] = TaskKind.ALLREDUCE
    for task in collective[several & ~sends].tolist():
        head = tasks.groups[int(tasks.first[task])][0]
        grown.first[0][task] = alone.setdefault(head, len(tasks.groups) + len(alone))
    for task in collective[sends].tolist():
        group = tasks.groups[int(tasks.first[task])]
        orders = rings.get(group)
        if not orders:
            raise InputError(f"group {group} of a collective has no rings; give its ring orders")
        place = alone.setdefault(group[0], len(tasks.groups) + len(alone))
        rounds, amount = cut.get(task) or (
            float(tasks.passes[task]) * (len(group) - 1),
            float(tasks.size[task]) / (len(group) * len(orders)),
        )
        grown.write_out(task, place, orders, round(rounds), amount)
    return grown.graph(tuple((server,) for server in alone))


class _Grown:
    """The task graph as it grows: columns of new tasks, and dependencies."""

    def __init__(self, tasks: TaskGraph) -> None:
        self.old = tasks
        self.kind, self.first, self.second = (
            [tasks.kind.copy()], [tasks.first.copy()], [tasks.second]
        )  # fmt: skip
        self.size = [tasks.size.copy()]
        self.origin = [np.arange(tasks.tasks, dtype=np.int64)]
        self.count = tasks.tasks
        before, after = edges_of(tasks)
        self.before, self.after = [before], [after]

    def _add(self, origin: int, kind: int, first: Ints, second: Ints, size: float) -> int:
        """Append tasks; return where they begin."""
        begin, count = self.count, first.size
        self.kind.append(np.full(count, kind, dtype=np.int64))
        self.first.append(first)
        self.second.append(second)
        self.size.append(np.full(count, size))
        self.origin.append(np.full(count, origin, dtype=np.int64))
        self.count += count
        return begin

    def write_out(self, task: int, place: int, orders: Rings, rounds: int, amount: float) -> None:
        """Write one collective out, whose ends of rounds are over group ``place``."""
        kind, none, nothing = _JOIN
        old = self.old
        at = np.array([place], dtype=np.int64)
        nowhere = np.array([none], dtype=np.int64)
        followed = old.successor_offsets[task + 1] > old.successor_offsets[task]
        end = self._add(task, kind, at, nowhere, nothing) if followed else -1
        self.kind[0][task], self.first[0][task], self.size[0][task] = kind, place, nothing
        if followed:
            # Its followers wait for the end instead.
            rows = slice(int(old.successor_offsets[task]), int(old.successor_offsets[task + 1]))
            self.before[0][rows] = end
        for order in orders:
            source = np.array(order, dtype=np.int64)
            target = np.roll(source, -1)
            begins = task
            for each in range(rounds):
                flows = self._add(task, int(TaskKind.TRANSFER), source, target, amount)
                messages = np.arange(flows, flows + source.size, dtype=np.int64)
                self.before.append(np.full(source.size, begins, dtype=np.int64))
                self.after.append(messages)
                last = each + 1 == rounds
                if last and not followed:
                    break
                begins = end if last else self._add(task, kind, at, nowhere, nothing)
                self.before.append(messages)
                self.after.append(np.full(source.size, begins, dtype=np.int64))

    def graph(self, groups: tuple[Group, ...]) -> TaskGraph:
        """Return the task graph, with the groups that were added."""
        old = self.old
        offsets, successors, predecessors = dependency_lists(
            np.concatenate(self.before), np.concatenate(self.after), self.count
        )
        origin = np.concatenate(self.origin)
        return TaskGraph(
            servers=old.servers,
            devices=old.devices,
            kind=np.concatenate(self.kind),
            first=np.concatenate(self.first),
            second=np.concatenate(self.second),
            size=np.concatenate(self.size),
            delay=_padded(old.delay, self.count),
            operator=old.operator[origin],
            phase=old.phase[origin],
            part=old.part[origin],
            successor_offsets=offsets,
            successors=successors,
            predecessors=predecessors,
            groups=old.groups + groups,
            server_of_device=old.server_of_device,
            priority=None if old.priority is None else old.priority[origin],
        )


def _padded(values: Floats, count: int) -> Floats:
    padded = np.zeros(count)
    padded[: values.size] = values
    return padded
