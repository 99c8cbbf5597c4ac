"""How long ports are used: those of each server, and those of all servers of a group together.

A schedule of a collective may let one member send more than others, but not all members together
less than they must (`topoopt.bounds.collectives`). So beside servers alone sets of servers count.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, starts
from parallelism.taskgraph import TRANSFER, TaskGraph
from topoopt.bounds.collectives import group_sizes, least_member_bytes


class PortUses(NamedTuple):
    """What tasks send from, or receive at, sets of servers.

    Parameters
    ----------
    task, ports : int64 arrays, shape (uses,)
        Which task uses the ports of which set.
    size : float64 array, shape (uses,)
        Bytes.
    offsets, members : int64 arrays
        Servers of each set: first of each server alone, then of groups.
    """

    task: Ints
    ports: Ints
    size: Floats
    offsets: Ints
    members: Ints

    @property
    def sets(self) -> int:
        """Number of sets."""
        return int(self.offsets.size - 1)

    def rates(self, rate: Floats) -> Floats:
        """Return the bytes/s of each set, of bytes/s of each server's ports."""
        totals: Floats = np.add.reduceat(rate[self.members], self.offsets[:-1])
        return totals


class _Elements(NamedTuple):
    """Transfers and collectives of an iteration, seen from one end.

    Parameters
    ----------
    server, group : int64 arrays, shape (elements,)
        Server of a transfer, group of a collective; -1 of the other.
    of : int64 array, shape (elements,)
        Class of each.
    of_task : int64 array, shape (sends,)
        Class that each task stands for.
    servers : int64 array
        A server of each kind.
    groups : tuple of tuple of int
    """

    server: Ints
    group: Ints
    of: Ints
    of_task: Ints
    servers: Ints
    groups: tuple[tuple[int, ...], ...]


def port_uses(tasks: TaskGraph) -> tuple[PortUses, PortUses]:
    """Return what ports of servers, and of groups of them, send, and what they receive, at least.

    Parameters
    ----------
    tasks : TaskGraph
        Where tasks stand for others, one server, and one group, of each kind counts.

    Returns
    -------
    sent, received : PortUses
    """
    sends = np.flatnonzero((tasks.kind == TRANSFER) | tasks.collective)
    sent, received = least_member_bytes(tasks, sends)
    return (
        _uses(tasks, sends, sent, _elements(tasks, sends, into=False)),
        _uses(tasks, sends, received, _elements(tasks, sends, into=True)),
    )


def _elements(tasks: TaskGraph, sends: Ints, *, into: bool) -> _Elements:
    alike = tasks.alike
    if alike is None:
        collective, each = tasks.collective[sends], np.arange(sends.size)
        ends = (tasks.second if into else tasks.first)[sends]
        return _Elements(
            np.where(collective, -1, ends), np.where(collective, tasks.first[sends], -1),
            each, each, np.arange(tasks.servers), tasks.groups,
        )  # fmt: skip
    pattern, classes = alike.pattern, alike.classes
    ports = classes.first_resource[classes.first_resource < 2 * pattern.servers]
    return _Elements(
        pattern.target if into else pattern.source, pattern.group, classes.element,
        alike.of_task[sends], ports[(ports >= pattern.servers) == into] % pattern.servers,
        pattern.groups,
    )  # fmt: skip


class _Rows(NamedTuple):
    """Lists of numbers, one after another: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints
    values: Ints

    @classmethod
    def of(cls, row: Ints, values: Ints, rows: int) -> "_Rows":
        """Sort values into their rows."""
        order = np.argsort(row, kind="stable")
        return cls(starts(np.bincount(row, minlength=rows)), values[order])

    def each(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return for rows, one after another, which one and which place in ``values``."""
        counts = np.diff(self.offsets)[rows]
        return np.repeat(np.arange(rows.size), counts), spread(self.offsets[rows], counts)


def _listed(lists: Sequence[tuple[int, ...]]) -> _Rows:
    flat = np.array([v for one in lists for v in one], dtype=np.int64)
    return _Rows(starts([len(one) for one in lists]), flat)


def _uses(tasks: TaskGraph, sends: Ints, each: Floats, elements: _Elements) -> PortUses:
    """Return what tasks put on sets of servers; a member of their collectives so much at least."""
    server, group, of, of_task, servers, groups = elements
    counts = np.array([len(g) for g in groups] or [0], dtype=np.int64)
    first = np.unique(of, return_index=True)[1]
    known = np.unique(group[first][group[first] >= 0]).tolist()
    # Each of two sends as much by any schedule, and of all servers other terms say as much.
    several = [groups[g] for g in known if 2 < counts[g] < tasks.servers]
    alone = [(v,) for v in servers.tolist()]
    members = _listed([*alone, *(tuple(sorted(g)) for g in dict.fromkeys(several))])
    sets = members.offsets.size - 1
    sets_of = np.repeat(np.arange(sets), np.diff(members.offsets))
    holding = _Rows.of(members.values, sets_of, tasks.servers)  # the sets that hold each server

    # How many members of each group are in each set, where there are any; or all of them.
    inside = _listed(groups or ((),))
    at, place = holding.each(inside.values)
    own = np.repeat(np.arange(counts.size), counts)[at]
    pairs, overlap = np.unique(own * sets + holding.values[place], return_counts=True)
    meeting = _Rows(starts(np.bincount(pairs // sets, minlength=counts.size)), pairs % sets)
    all_of = overlap == np.repeat(counts, np.diff(meeting.offsets))

    moves, reduces = np.flatnonzero(group < 0), np.flatnonzero(group >= 0)
    reduces = reduces[counts[group[reduces]] > 1]
    mover, moved = holding.each(server[moves])
    reducer, reduced = meeting.each(group[reduces])
    # Of each class and set: how many transfers, members, and whole groups.
    kinds = int(of.max(initial=-1)) + 1
    class_of = np.concatenate((of[moves][mover], of[reduces][reducer]))
    set_of = np.concatenate((holding.values[moved], meeting.values[reduced]))
    whole = all_of[reduced]
    what = np.concatenate((np.zeros(mover.size, dtype=np.int64), 1 + whole))
    many = np.concatenate((np.ones(mover.size), np.where(whole, 1, overlap[reduced])))
    keys = class_of * sets + set_of
    order = np.argsort(keys, kind="stable")  # quick, as these are often in two sorted runs
    keys, what, many = keys[order], what[order], many[order]
    begin = np.diff(keys, prepend=-1) != 0
    same, keys = np.cumsum(begin) - 1, keys[begin]
    passed, within, summed = np.bincount(
        what * keys.size + same, weights=many, minlength=3 * keys.size
    ).reshape(3, keys.size)

    collective, size = tasks.collective[sends], tasks.size[sends]
    others = group_sizes(tasks)[np.where(collective, tasks.first[sends], 0)] - 1.0
    task, use = _Rows(starts(np.bincount(keys // sets, minlength=kinds)), keys).each(of_task)
    used = (
        np.where(collective, 0.0, size)[task] * passed[use]
        + each[task] * within[use]
        + np.where(collective, tasks.passes[sends] * others * size, 0.0)[task] * summed[use]
    )
    kept = used > 0.0
    return PortUses(
        sends[task[kept]], keys[use[kept]] % sets, used[kept], members.offsets, members.values
    )
