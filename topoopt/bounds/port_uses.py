"""How long ports are used: those of each server, and those of all servers of a group together.

A schedule of a collective may let one member send more than others, but not all members together
less than they must (`topoopt.bounds.collectives`). So beside servers alone sets of servers count.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from parallelism.taskgraph import TRANSFER, FloatArray, IntArray, TaskGraph
from topoopt.bounds.collectives import member_bytes, members_of


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

    task: IntArray
    ports: IntArray
    size: FloatArray
    offsets: IntArray
    members: IntArray

    @property
    def sets(self) -> int:
        """Number of sets."""
        return int(self.offsets.size - 1)

    def rates(self, rate: FloatArray) -> FloatArray:
        """Return the bytes/s of each set, of bytes/s of each server's ports."""
        totals: FloatArray = np.add.reduceat(rate[self.members], self.offsets[:-1])
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

    server: IntArray
    group: IntArray
    of: IntArray
    of_task: IntArray
    servers: IntArray
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
    sent, received = member_bytes(tasks, sends)
    return (
        _uses(tasks, sends, sent, _elements(tasks, sends, into=False)),
        _uses(tasks, sends, received, _elements(tasks, sends, into=True)),
    )


def _elements(tasks: TaskGraph, sends: IntArray, *, into: bool) -> _Elements:
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


def _uses(tasks: TaskGraph, sends: IntArray, each: FloatArray, elements: _Elements) -> PortUses:
    """Return what tasks put on sets of servers; a member of their collectives so much at least."""
    from scipy.sparse import coo_array

    server, group, of, of_task, servers, groups = elements
    counts = np.array([len(g) for g in groups] or [0], dtype=np.int64)
    first = np.unique(of, return_index=True)[1]
    known = np.unique(group[first][group[first] >= 0]).tolist()
    # Each of two sends as much by any schedule, and of all servers other terms say as much.
    several = [groups[g] for g in known if 2 < counts[g] < tasks.servers]
    sets = [*((v,) for v in servers.tolist()), *dict.fromkeys(several)]

    def table(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Any:
        return coo_array((np.ones(rows.size), (rows, columns)), shape=shape).tocsr()

    def listed(lists: Sequence[tuple[int, ...]]) -> Any:
        sizes = np.array([len(one) for one in lists], dtype=np.int64)
        flat = np.array([v for one in lists for v in one], dtype=np.int64)
        return table(np.repeat(np.arange(sizes.size), sizes), flat, (sizes.size, tasks.servers))

    members = listed(sets)
    within = (listed(groups or ((),)) @ members.T).tocsr()
    whole = within.copy()
    all_of = within.data == np.repeat(counts, np.diff(within.indptr))
    within.data[all_of], whole.data[:] = 0.0, all_of
    kinds = int(of.max(initial=-1)) + 1
    moves, reduces = np.flatnonzero(group < 0), np.flatnonzero(group >= 0)
    reduces = reduces[counts[group[reduces]] > 1]
    passed = table(of[moves], server[moves], (kinds, tasks.servers)) @ members.T
    summed = table(of[reduces], group[reduces], (kinds, counts.size))
    collective = tasks.collective[sends]
    others = members_of(tasks)[np.where(collective, tasks.first[sends], 0)] - 1.0
    size = tasks.size[sends]
    used = sum(
        (coo_array((amount, (np.arange(sends.size), of_task)), shape=(sends.size, kinds)) @ one)
        for amount, one in (
            (np.where(collective, 0.0, size), passed),
            (each, summed @ within),
            (np.where(collective, tasks.passes[sends] * others * size, 0.0), summed @ whole),
        )
    ).tocoo()
    kept = used.data > 0.0
    return PortUses(
        sends[used.row[kept]], used.col[kept].astype(np.int64), used.data[kept],
        members.indptr.astype(np.int64), members.indices.astype(np.int64),
    )  # fmt: skip


__all__ = ["PortUses", "port_uses"]
