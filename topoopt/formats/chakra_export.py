"""A task graph as Chakra execution traces, one a server.

A rank is a server, since that is what the network joins. Compute is a ``COMP`` node, a transfer a
``COMM_SEND`` of its source and a ``COMM_RECV`` of its target with a tag of their own, a collective
a ``COMM_COLL`` node of each member. The three nodes that task t may need are called 3 t (what it
does), 3 t + 1 (what it receives) and 3 t + 2 (the reduction inside a server that precedes a
collective), so that a collective has one number on all ranks.

Durations are whole microseconds in the format. Those of a device are rounded so that their sums
are off by half a microsecond at most, and the exact one is in attribute ``topoopt_seconds``.
"""

import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from codesign_base import InputError
from codesign_base.rows import starts
from parallelism.taskgraph import TaskGraph, TaskKind, edges_of
from topoopt.formats.chakra_file import GROUPS, TraceNode, attributes, trace_bytes
from topoopt.formats.chakra_schema import CollectiveCommType, NodeType

SECONDS, DEVICE, REDUCTION = "topoopt_seconds", "topoopt_device", "topoopt_reduction"
PREFIX = "trace"
"""Of the names of files."""
_COLLECTIVES = {
    TaskKind.ALLREDUCE: CollectiveCommType.ALL_REDUCE,
    TaskKind.REDUCE_SCATTER: CollectiveCommType.REDUCE_SCATTER,
    TaskKind.ALL_GATHER: CollectiveCommType.ALL_GATHER,
}


def chakra_files(tasks: TaskGraph, label: Callable[[int], str]) -> dict[str, bytes]:
    """Return the traces of a task graph, and the file of its groups.

    Parameters
    ----------
    tasks : TaskGraph
        Whose tasks stand for themselves (`topoopt.fabric.represented.whole_tasks`).
    label : callable
        The name of a task, by its index.

    Returns
    -------
    dict of str to bytes
        By name of file.

    Raises
    ------
    InputError
        If a task waits for one that ends on other servers only: a trace knows no other way from
        rank to rank than messages.
    """
    writer = _Writer(tasks, label)
    for task in range(tasks.tasks):
        writer.add(task)
    files = {f"{PREFIX}.{rank}.et": trace_bytes(nodes) for rank, nodes in enumerate(writer.ranks)}
    named = {str(number + 1): list(group) for number, group in enumerate(tasks.groups)}
    used = {str(int(tasks.first[t]) + 1) for t in np.flatnonzero(tasks.collective)}
    groups = {name: group for name, group in named.items() if name in used and len(group) > 1}
    files[GROUPS] = (json.dumps(groups, indent=1) + "\n").encode()
    return files


def rounded_micros(seconds: float, before: float) -> tuple[int, float]:
    """Return whole microseconds, and how much longer than they the rounded times are in all.

    Parameters
    ----------
    seconds : float
    before : float
        Microseconds that earlier roundings left out.
    """
    exact = seconds * 1e6 + before
    whole = max(round(exact), 0)
    return whole, exact - whole


def untold(label: Callable[[int], str], task: int, before: int) -> InputError:
    """Return what refuses a task that waits for one of other servers, which tell it nothing.

    Parameters
    ----------
    label : callable
        The name of a task, by its index.
    task, before : int
        The task, and the one that it waits for.
    """
    return InputError(
        f"task {task} ({label(task)}) waits for task {before} ({label(before)}) of other servers "
        "without a message between them, which traces of ranks cannot say; add a transfer, write "
        "the format fbuf instead, or plan without tensor groups that spread over several servers "
        "(--tensor-across-servers)"
    )


class _Writer:
    def __init__(self, tasks: TaskGraph, label: Callable[[int], str]) -> None:
        self.tasks, self.label = tasks, label
        self.ranks: list[list[TraceNode]] = [[] for _ in range(tasks.servers)]
        # Where each task ends: rank to node.
        self.ends: list[dict[int, int]] = [self._ends(task) for task in range(tasks.tasks)]
        row, after = edges_of(tasks)
        order = np.argsort(after, kind="stable")
        bounds = starts(tasks.predecessors).tolist()
        self.before = [row[order[a:b]].tolist() for a, b in pairwise(bounds)]
        self.left = [0.0] * tasks.devices
        self.tags: dict[tuple[int, int], int] = {}

    def _group(self, task: int) -> tuple[int, ...]:
        return self.tasks.groups[int(self.tasks.first[task])]

    def _ends(self, task: int) -> dict[int, int]:
        tasks = self.tasks
        kind = tasks.kind[task]
        if kind == TaskKind.COMPUTE:
            return {int(tasks.server_of_device[tasks.first[task]]): 3 * task}
        if kind == TaskKind.TRANSFER:
            return {int(tasks.first[task]): 3 * task, int(tasks.second[task]): 3 * task + 1}
        return dict.fromkeys(self._group(task), 3 * task)

    def _after(self, task: int, rank: int) -> tuple[int, ...]:
        return tuple(
            self.ends[before][rank] for before in self.before[task] if rank in self.ends[before]
        )

    def add(self, task: int) -> None:
        """Write the nodes of a task."""
        kind = TaskKind(int(self.tasks.kind[task]))
        begins = (
            (int(self.tasks.first[task]),) if kind is TaskKind.TRANSFER else tuple(self.ends[task])
        )
        for before in self.before[task]:
            if not set(begins) & self.ends[before].keys():
                raise untold(self.label, task, before)
        if kind is TaskKind.COMPUTE:
            self._compute(task, begins[0])
        elif kind is TaskKind.TRANSFER:
            self._transfer(task)
        else:
            for rank in begins:
                self._collective(task, rank, kind)

    def _compute(self, task: int, rank: int) -> None:
        tasks, device = self.tasks, int(self.tasks.first[task])
        seconds = float(tasks.size[task])
        micros, self.left[device] = rounded_micros(seconds, self.left[device])
        values = attributes(is_cpu_op=("bool", False), **{SECONDS: ("double", seconds)})
        if tasks.devices > tasks.servers:
            values |= attributes(**{DEVICE: ("int64", device)})
        self.ranks[rank].append(
            TraceNode(
                3 * task, self.label(task), NodeType.COMP, self._after(task, rank), micros, values
            )
        )

    def _transfer(self, task: int) -> None:
        source, target = int(self.tasks.first[task]), int(self.tasks.second[task])
        tag = self.tags[source, target] = self.tags.get((source, target), -1) + 1
        values = attributes(
            is_cpu_op=("bool", False),
            comm_size=("int64", _bytes(self.tasks.size[task])),
            comm_src=("int32", source),
            comm_dst=("int32", target),
            comm_tag=("int32", tag),
        )
        name = self.label(task)
        self.ranks[source].append(
            TraceNode(
                3 * task, name, NodeType.COMM_SEND, self._after(task, source), attributes=values
            )
        )
        self.ranks[target].append(
            TraceNode(3 * task + 1, name, NodeType.COMM_RECV, attributes=values)
        )

    def _collective(self, task: int, rank: int, kind: TaskKind) -> None:
        group, delay = self._group(task), float(self.tasks.delay[task])
        name, after = self.label(task), self._after(task, rank)
        crosses = bool(self.tasks.crossing[task])
        if not crosses or delay > 0:
            number = 3 * task + 2 if crosses else 3 * task
            values = attributes(
                is_cpu_op=("bool", False),
                **{SECONDS: ("double", delay), REDUCTION: ("bool", crosses)},
            )
            micros = round(delay * 1e6)
            self.ranks[rank].append(
                TraceNode(
                    number, f"{name}, inside the server", NodeType.COMP, after, micros, values
                )
            )
            after = (number,)
        if not crosses:
            return
        size = float(self.tasks.size[task])
        if kind is TaskKind.ALL_GATHER:
            size /= len(group)
        values = attributes(
            is_cpu_op=("bool", False),
            comm_type=("int64", int(_COLLECTIVES[kind])),
            comm_size=("int64", _bytes(size)),
            pg_name=("string", str(int(self.tasks.first[task]) + 1)),
        )
        self.ranks[rank].append(
            TraceNode(3 * task, name, NodeType.COMM_COLL, after, attributes=values)
        )


def _bytes(size: float) -> int:
    """Return whole bytes, at least one: simulators refuse messages of none."""
    return max(int(np.ceil(size * (1.0 - 1e-12))), 1)
