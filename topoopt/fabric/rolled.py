"""Rounds of messages recognised as the collectives that they are: the inverse of `unrolled`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Flags, Ints
from parallelism.taskgraph import Group, TaskGraph, TaskKind, dependency_lists, edges_of
from topoopt.fabric.rings import Rings

# Messages are whole bytes in files, so that those of one round may differ by so many.
_ROUNDED = 1.0


@dataclass(frozen=True, eq=False)
class Rolled:
    """A task graph in which rounds of messages along rings are collectives again.

    Parameters
    ----------
    tasks : TaskGraph
    rings : mapping of tuple of int to tuple of tuple of int
        Of these collectives, by group.
    place : int64 array, shape (tasks,)
        Where each task was before.
    """

    tasks: TaskGraph
    rings: Mapping[Group, Rings]
    place: Ints


def rolled(tasks: TaskGraph) -> Rolled:
    """Return a task graph in which rounds of messages along rings are collectives again.

    In the fluid model a collective is one coupled stream, whose messages keep step; written out
    as `topoopt.fabric.unrolled.unrolled` does it, they have rates of their own in each round.

    Parameters
    ----------
    tasks : TaskGraph

    Returns
    -------
    Rolled
        A reduction inside one server that is followed by nothing but rounds of equal messages,
        each along cycles through one group of servers, is an AllReduce (2 (g - 1) rounds) or
        ReduceScatter (g - 1) with its delay; the tasks of its rounds are gone. All else is as it
        was. Collectives of one group along other rings than its first one's stay written out.
    """
    reader = _Reader(tasks)
    found: dict[int, _Collective] = {}
    rings: dict[Group, Rings] = {}
    for task in reader.beginnings.tolist():
        collective = reader.collective(task)
        if collective is None:
            continue
        group = tuple(sorted(collective.rings[0]))
        if rings.setdefault(group, collective.rings) == collective.rings:
            found[task] = collective
    if not found:
        return Rolled(tasks, {}, np.arange(tasks.tasks))
    kept = np.ones(tasks.tasks, dtype=np.bool_)
    for collective in found.values():
        kept[collective.gone] = False
    return Rolled(_without_rounds(tasks, found, kept), rings, np.flatnonzero(kept))


class _Collective(NamedTuple):
    """What a reduction and its rounds are: rings, rounds, bytes, their tasks, and the last one."""

    rings: Rings
    rounds: int
    size: float
    gone: list[int]
    end: int


class _Reader:
    """Follows rounds from the task that begins them."""

    def __init__(self, tasks: TaskGraph) -> None:
        self.tasks = tasks
        sizes = np.array([len(group) for group in tasks.groups] or [0], dtype=np.int64)
        self.join = tasks.collective.copy()
        self.join[self.join] = sizes[tasks.first[self.join]] == 1
        self.move = tasks.kind == TaskKind.TRANSFER
        counts = np.diff(tasks.successor_offsets)
        # What is followed by messages only, each of which waits for nothing else.
        ready = (self.move & (tasks.predecessors == 1))[tasks.successors].astype(np.int64)
        total = np.concatenate(([0], np.cumsum(ready)))
        begun = total[tasks.successor_offsets[1:]] - total[tasks.successor_offsets[:-1]]
        self.opens = self.join & (counts > 1) & (begun == counts)
        waits = np.zeros(tasks.tasks, dtype=np.bool_)
        row = np.repeat(np.arange(tasks.tasks), counts)
        waits[tasks.successors[self.move[row]]] = True
        # Ends of rounds take no time and wait for messages.
        self.ends = self.join & waits & (tasks.delay == 0.0)
        self.beginnings = np.flatnonzero(self.opens & ~self.ends)

    def after(self, task: int) -> Ints:
        """Return the tasks that wait for one."""
        offsets = self.tasks.successor_offsets
        return self.tasks.successors[offsets[task] : offsets[task + 1]]

    def collective(self, task: int) -> _Collective | None:
        """Return the collective that a task begins, if it is one."""
        messages = self.after(task)
        follow = [self.after(message) for message in messages.tolist()]
        if any(after.size > 1 for after in follow):
            return None
        next_of = np.array([int(after[0]) if after.size else -1 for after in follow])
        closing = np.unique(next_of)
        alone = closing.size == 1 and not (
            closing[0] >= 0 and self.tasks.predecessors[closing[0]] == messages.size
            and self.opens[closing[0]]
        )  # fmt: skip
        if alone:
            # One round, of all rings at once.
            parts = _cycles(self.tasks, messages)
        else:
            parts = [messages[next_of == each] for each in closing.tolist()]
        rings, gone, ends, rounds = [], [], set[int](), set[int]()
        for part in parts or []:
            ring = _ring(self.tasks, part)
            if ring is None:
                return None
            count, own, end = self._rounds(part, ring)
            rings.append(ring)
            gone += own
            ends.add(end)
            rounds.add(count)
        if not rings or len(ends) > 1 or len(rounds) > 1:
            return None
        group, count, end = sorted(rings[0]), rounds.pop(), ends.pop()
        size = self.tasks.size[messages]
        if np.ptp(size) > _ROUNDED or any(sorted(ring) != group for ring in rings):
            return None
        if count not in (len(group) - 1, 2 * (len(group) - 1)):
            return None
        if end >= 0:
            if self.tasks.predecessors[end] != len(group) * len(rings) or not self.ends[end]:
                return None
            gone.append(end)
        whole = float(size.mean()) * len(group) * len(rings)
        return _Collective(tuple(rings), count, whole, gone, end)

    def _rounds(self, messages: Ints, ring: Group) -> tuple[int, list[int], int]:
        """Follow one ring; return its rounds, their tasks, and what ends it (-1: nothing)."""
        gone: list[int] = []
        count = 0
        while True:
            gone += messages.tolist()
            count += 1
            nexts = {int(t) for m in messages.tolist() for t in self.after(m)}
            if not nexts:
                return count, gone, -1
            end = nexts.pop()
            onward = self.after(end)
            alike = (
                not nexts
                and self.ends[end]
                and self.opens[end]
                and self.tasks.predecessors[end] == messages.size
                and onward.size == messages.size
                and _ring(self.tasks, onward) == ring
                and np.ptp(self.tasks.size[np.concatenate((messages, onward))]) <= _ROUNDED
            )
            if not alike:
                return count, gone, end
            gone.append(end)
            messages = onward


def _cycles(tasks: TaskGraph, messages: Ints) -> list[Ints]:
    """Return the messages of one round by the cycles that they make, in the order given."""
    left = messages.tolist()
    parts: list[Ints] = []
    while left:
        part = [left.pop(0)]
        start, at = int(tasks.first[part[0]]), int(tasks.second[part[0]])
        while at != start:
            step = next((m for m in left if tasks.first[m] == at), None)
            if step is None:
                return []
            left.remove(step)
            part.append(step)
            at = int(tasks.second[step])
        parts.append(np.array(part, dtype=np.int64))
    return parts


def _ring(tasks: TaskGraph, messages: Ints) -> Group | None:
    """Return the order in which messages make one cycle, from the lowest server on."""
    follow = dict(zip(tasks.first[messages].tolist(), tasks.second[messages].tolist(), strict=True))
    order = [min(follow)]
    while len(order) < messages.size and follow.get(order[-1]) in follow:
        order.append(follow[order[-1]])
    whole = len(set(order)) == messages.size == len(follow) and follow[order[-1]] == order[0]
    return tuple(order) if whole else None


def _without_rounds(tasks: TaskGraph, found: Mapping[int, _Collective], kept: Flags) -> TaskGraph:
    """Return the task graph with collectives in place of their rounds."""
    heir = np.arange(tasks.tasks)  # what a task's followers wait for
    groups = list(tasks.groups)
    place = {group: number for number, group in enumerate(groups)}
    kind, first, size = tasks.kind.copy(), tasks.first.copy(), tasks.size.copy()
    for task, collective in found.items():
        if collective.end >= 0:
            heir[collective.end] = task
        group = tuple(sorted(collective.rings[0]))
        if group not in place:
            place[group] = len(groups)
            groups.append(group)
        both = collective.rounds == 2 * (len(group) - 1)
        kind[task] = TaskKind.ALLREDUCE if both else TaskKind.REDUCE_SCATTER
        first[task], size[task] = place[group], collective.size
    before, after = edges_of(tasks)
    before = heir[before]
    between = kept[before] & kept[after]
    number = np.cumsum(kept) - 1
    before, after = number[before[between]], number[after[between]]
    offsets, successors, predecessors = dependency_lists(before, after, int(kept.sum()))
    return replace(
        tasks,
        kind=kind[kept], first=first[kept], second=tasks.second[kept], size=size[kept],
        delay=tasks.delay[kept], operator=tasks.operator[kept], phase=tasks.phase[kept],
        part=tasks.part[kept],
        successor_offsets=offsets, successors=successors, predecessors=predecessors,
        groups=tuple(groups),
        priority=None if tasks.priority is None else tasks.priority[kept],
        ids=None if tasks.ids is None else tasks.ids[kept],
    )  # fmt: skip
