"""Chakra execution traces as a task graph.

A rank is a server. Nodes of the traces become tasks:

- ``COMP``: compute of its duration on the rank's processor; with ``is_cpu_op`` on its CPU.
- ``MEM_LOAD`` and ``MEM_STORE``: as compute, on a device of the rank's memory.
- ``COMM_SEND`` with its ``COMM_RECV``: a transfer, matched by ends, tag and order. What waits for
  the receiver's node waits for what that node waits for, too.
- ``COMM_COLL``: the n-th node of a group on each member is one task. ``ALL_REDUCE``, ``BARRIER``
  (no bytes), ``REDUCE_SCATTER`` (bytes of a member's input, all of the buffer) and ``ALL_GATHER``
  (bytes of a member's input, its part) are collectives; ``ALL_TO_ALL`` is a transfer of its share
  from each member to each other one.
- ``METADATA`` and ``INVALID``: no time; process groups of PyTorch are read from the former.

Sizes of collectives are those of ASTRA-sim's and Chakra's PyTorch converter: a member's input.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.rows import dependency_order
from parallelism.taskgraph import Phase, TaskGraph, TaskKind, dependency_lists
from topoopt.formats.chakra_export import DEVICE, REDUCTION, SECONDS
from topoopt.formats.chakra_file import Trace, TraceNode
from topoopt.formats.chakra_schema import CollectiveCommType, NodeType
from topoopt.formats.chakra_waits import RankNode, Waits

_REDUCED = {
    CollectiveCommType.ALL_REDUCE: TaskKind.ALLREDUCE,
    CollectiveCommType.BARRIER: TaskKind.ALLREDUCE,
    CollectiveCommType.REDUCE_SCATTER: TaskKind.REDUCE_SCATTER,
    CollectiveCommType.REDUCE_SCATTER_BLOCK: TaskKind.REDUCE_SCATTER,
    CollectiveCommType.ALL_GATHER: TaskKind.ALL_GATHER,
}
_PROCESSOR, _CPU, _MEMORY = range(3)
_DEVICES = {
    NodeType.COMP: _PROCESSOR,
    NodeType.MEM_LOAD: _MEMORY,
    NodeType.MEM_STORE: _MEMORY,
}
_PHASES = {TaskKind.COMPUTE: Phase.FORWARD, TaskKind.TRANSFER: Phase.ACTIVATION}


@dataclass(frozen=True, eq=False)
class TraceTasks:
    """The task graph of traces.

    Parameters
    ----------
    graph : TaskGraph
    names : tuple of str
        Of the tasks.
    processors : int
        The first devices are the ranks' processors; others are their CPUs and memories.
    """

    graph: TaskGraph
    names: tuple[str, ...]
    processors: int


@dataclass
class _Task:
    kind: TaskKind
    first: int
    second: int
    size: float
    delay: float
    name: str
    order: RankNode


def trace_tasks(trace: Trace) -> TraceTasks:
    """Return the task graph of traces.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    TraceTasks
        Tasks in the order of their lowest node, then rank.

    Raises
    ------
    InputError
        If a message has one end only, members of a group do not agree, a node lacks what its
        type needs or is of a kind that no task is, or nodes wait for each other.
    """
    return _Reader(trace).tasks()


class _Reader:
    """Builds tasks, and remembers for each node what waits for it must wait for."""

    def __init__(self, trace: Trace) -> None:
        self.ranks = len(trace.ranks)
        self.nodes = {(r, node.id): node for r, nodes in enumerate(trace.ranks) for node in nodes}
        self.groups = dict(trace.groups)
        for node in self.nodes.values():
            if node.type is NodeType.METADATA:
                self.groups |= _process_groups(node.inputs)
        self.found: list[_Task] = []
        self.begin: dict[RankNode, list[int]] = {}
        self.end: dict[RankNode, list[int]] = {}
        self.through: set[RankNode] = set()
        self.group_numbers: dict[tuple[int, ...], int] = {}
        # Kind of device, its number where there are several a rank, and rank.
        self.devices: dict[tuple[int, int, int], int] = {}

    def tasks(self) -> TraceTasks:
        folded = self._folded()
        sends: dict[tuple[int, int, int], list[RankNode]] = defaultdict(list)
        receipts: dict[tuple[int, int, int], list[RankNode]] = defaultdict(list)
        members: dict[tuple[int, ...], dict[int, list[TraceNode]]] = {}
        for place, node in self.nodes.items():
            rank = place[0]
            if place in folded.values():
                continue
            try:
                if node.type in _DEVICES:
                    self._compute(place, node)
                elif node.type is NodeType.COMM_SEND:
                    sends[_ends(node, rank, int(node.number("comm_dst")))].append(place)
                elif node.type is NodeType.COMM_RECV:
                    receipts[_ends(node, int(node.number("comm_src")), rank)].append(place)
                elif node.type is NodeType.COMM_COLL:
                    group = self._group(node, rank)
                    members.setdefault(group, {}).setdefault(rank, []).append(node)
                else:
                    self.through.add(place)
            except InputError as error:
                raise InputError(f"rank {rank}: {error}") from None
        self._transfers(sends, receipts)
        for group, nodes in members.items():
            self._collectives(group, nodes, folded)
        return self._graph(folded)

    def _folded(self) -> dict[RankNode, RankNode]:
        """Return the reductions inside servers that collectives of our own exports begin with."""
        found: dict[RankNode, RankNode] = {}
        for (rank, number), node in self.nodes.items():
            if node.type is NodeType.COMM_COLL and len(node.after) == 1:
                before = self.nodes[rank, node.after[0]]
                if before.type is NodeType.COMP and before.number(REDUCTION, 0):
                    found[rank, number] = (rank, before.id)
        return found

    def _add(self, task: _Task) -> int:
        self.found.append(task)
        return len(self.found) - 1

    def _compute(self, place: RankNode, node: TraceNode) -> None:
        rank, seconds = place[0], node.number(SECONDS, node.micros * 1e-6)
        if not 0.0 <= seconds < float("inf"):
            raise InputError(f"node {node.id} takes {seconds} seconds; give a time of at least 0")
        if node.micros == 0 and SECONDS not in node.attributes:
            work = node.number("num_ops", 0) or (
                node.type is not NodeType.COMP and node.number("tensor_size", 0)
            )
            if work:
                raise InputError(
                    f"node {node.id} ({node.name}) has work but no duration; give duration_micros"
                )
        if REDUCTION in node.attributes:
            alone = self._number((rank,))
            task = _Task(
                TaskKind.ALLREDUCE, alone, -1, 0.0, seconds, node.name, (node.id, rank)
            )  # fmt: skip
        else:
            what = _DEVICES[node.type]
            if what == _PROCESSOR and node.number("is_cpu_op", 0):
                what = _CPU
            key = (what, int(node.number(DEVICE, -1)), rank)
            device = self.devices.setdefault(key, len(self.devices))
            task = _Task(TaskKind.COMPUTE, device, -1, seconds, 0.0, node.name, (node.id, rank))
        self.begin[place] = self.end[place] = [self._add(task)]

    def _number(self, group: tuple[int, ...]) -> int:
        return self.group_numbers.setdefault(group, len(self.group_numbers))

    def _group(self, node: TraceNode, rank: int) -> tuple[int, ...]:
        name = node.text("pg_name")
        group = self.groups.get(name)
        if group is None and name in ("", "0"):
            group = tuple(range(self.ranks))
        if group is None:
            raise InputError(
                f"node {node.id} is of group {name!r}, of which no ranks are given; give "
                "comm_groups.json beside the traces"
            )
        group = group or tuple(range(self.ranks))
        if rank not in group or group[-1] >= self.ranks:
            raise InputError(
                f"node {node.id} is of group {name!r} of ranks {list(group)}, which do not fit; "
                "correct comm_groups.json"
            )
        return group

    def _transfers(
        self,
        sends: Mapping[tuple[int, int, int], list[RankNode]],
        receipts: Mapping[tuple[int, int, int], list[RankNode]],
    ) -> None:
        for source, target, tag in sorted(sends.keys() | receipts.keys()):
            key = (source, target, tag)
            out, into = sends.get(key, []), receipts.get(key, [])
            if not (0 <= source < self.ranks and 0 <= target < self.ranks):
                raise InputError(
                    f"a message goes from rank {source} to {target}, but ranks are 0 to "
                    f"{self.ranks - 1}; export all ranks"
                )
            if len(out) != len(into):
                raise InputError(
                    f"ranks {source} to {target} have {counted(len(out), 'send')} and "
                    f"{counted(len(into), 'receive')} of tag {tag}; a message has both"
                )
            for one, other in zip(sorted(out), sorted(into), strict=True):
                send, receipt = self.nodes[one], self.nodes[other]
                size = send.number("comm_size")
                if size < 0 or size != receipt.number("comm_size"):
                    raise InputError(
                        f"node {one[1]} of rank {source} sends {size:g} bytes, but node {other[1]} "
                        f"of rank {target} receives {receipt.number('comm_size'):g}; give both one "
                        "size"
                    )
                order = (min(one[1], other[1]), source)
                self.begin[one] = self.end[one] = self.end[other] = [
                    self._add(_sent(source, target, size, send.name, order))
                ]

    def _collectives(
        self,
        group: tuple[int, ...],
        nodes: Mapping[int, Sequence[TraceNode]],
        folded: Mapping[RankNode, RankNode],
    ) -> None:
        counts = {rank: len(nodes.get(rank, ())) for rank in group}
        if len(set(counts.values())) > 1:
            raise InputError(
                f"members of group {list(group)} have different numbers of collectives "
                f"({', '.join(f'rank {r}: {n}' for r, n in counts.items())}); each has a node of "
                "every collective"
            )
        ordered = [sorted(nodes[rank], key=lambda node: node.id) for rank in group]
        for same in zip(*ordered, strict=True):
            kinds = {(n.number("comm_type"), n.number("comm_size", 0)) for n in same}
            if len(kinds) > 1:
                raise InputError(
                    f"collective {same[0].id} of group {list(group)} has different types or sizes "
                    "on its members; give all one"
                )
            kind, size = kinds.pop()
            if kind not in set(CollectiveCommType):
                raise InputError(f"collective {same[0].id} is of the unknown type {kind:g}")
            places = [(rank, node.id) for rank, node in zip(group, same, strict=True)]
            what, order = CollectiveCommType(kind), (same[0].id, group[0])
            if what is CollectiveCommType.ALL_TO_ALL:
                self._all_to_all(group, size, same[0].name, order, places)
                continue
            if what not in _REDUCED:
                known = ", ".join([*(each.name for each in _REDUCED), "ALL_TO_ALL"])
                raise InputError(
                    f"collective {same[0].id} is a {what.name}, which is no task; known are {known}"
                )
            if what is CollectiveCommType.ALL_GATHER:
                size *= len(group)
            first = folded.get(places[0])
            delay = 0.0 if first is None else self.nodes[first].number(SECONDS)
            task = _Task(
                _REDUCED[what], self._number(group), -1,
                0.0 if what is CollectiveCommType.BARRIER else size, delay, same[0].name, order,
            )  # fmt: skip
            number = [self._add(task)]
            for place in places:
                self.begin[place] = self.end[place] = number

    def _all_to_all(
        self,
        group: tuple[int, ...],
        size: float,
        name: str,
        order: RankNode,
        places: Sequence[RankNode],
    ) -> None:
        share = size / len(group)
        moved = {
            (a, b): self._add(_sent(a, b, share, name, order))
            for a in group for b in group if a != b
        }  # fmt: skip
        for place in places:
            rank = place[0]
            self.begin[place] = [task for (a, _), task in moved.items() if a == rank]
            self.end[place] = [task for ends, task in moved.items() if rank in ends]

    def _graph(self, folded: Mapping[RankNode, RankNode]) -> TraceTasks:
        order = sorted(range(len(self.found)), key=lambda task: (self.found[task].order, task))
        place_of = {task: number for number, task in enumerate(order)}
        edges: set[tuple[int, int]] = set()
        waits = Waits(self.nodes, self.begin, self.end, folded)
        for place, begun in self.begin.items():
            for task in waits(place):
                edges |= {(place_of[task], place_of[each]) for each in begun}
        found = [self.found[task] for task in order]
        count = len(found)
        before, after = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T
        offsets, successors, predecessors = dependency_lists(before, after, count)
        busy = {rank for what, _, rank in self.devices if what == _PROCESSOR}
        idle = {(_PROCESSOR, -1, rank) for rank in set(range(self.ranks)) - busy}
        devices = sorted(self.devices.keys() | idle)
        number = {self.devices[key]: n for n, key in enumerate(devices) if key in self.devices}
        kind = np.array([task.kind for task in found], dtype=np.int64)
        first = [
            number[task.first] if task.kind is TaskKind.COMPUTE else task.first for task in found
        ]
        phase = [_PHASES.get(task.kind, Phase.SYNCHRONISE) for task in found]
        zeros = np.zeros(count, dtype=np.int64)
        graph = TaskGraph(
            servers=self.ranks,
            devices=len(devices),
            kind=kind,
            first=np.array(first, dtype=np.int64),
            second=np.array([task.second for task in found], dtype=np.int64),
            size=np.array([task.size for task in found], dtype=np.float64),
            delay=np.array([task.delay for task in found], dtype=np.float64),
            operator=zeros - 1,
            phase=np.array(phase, dtype=np.int64),
            part=zeros,
            successor_offsets=offsets,
            successors=successors,
            predecessors=predecessors,
            groups=tuple(self.group_numbers),
            server_of_device=np.array([rank for _, _, rank in devices], dtype=np.int64),
            ids=np.arange(count, dtype=np.int64),
        )
        _, stuck = dependency_order(
            graph.predecessors.tolist(), graph.successor_offsets, graph.successors
        )
        if stuck:
            node, rank = found[stuck[0]].order
            raise InputError(
                f"rank {rank}: node {node} waits in a cycle over several ranks; remove a dependency"
            )
        processors = sum(what == _PROCESSOR for what, _, _ in devices)
        return TraceTasks(graph, tuple(task.name for task in found), processors)


def _ends(node: TraceNode, source: int, target: int) -> tuple[int, int, int]:
    for name, rank in (("comm_src", source), ("comm_dst", target)):
        if node.number(name, rank) != rank:
            raise InputError(
                f"node {node.id} has {name} {node.number(name):g} in the trace of another rank; "
                "sends are in the sender's trace and receives in the receiver's"
            )
    return source, target, int(node.number("comm_tag", 0))


def _sent(source: int, target: int, size: float, name: str, order: RankNode) -> _Task:
    if source == target:
        raise InputError(f"rank {source} sends to itself (node {order[0]}); leave that out")
    return _Task(TaskKind.TRANSFER, source, target, float(size), 0.0, name, order)


def _process_groups(text: str) -> dict[str, tuple[int, ...]]:
    """Return the groups that PyTorch's metadata of process groups lists, none if it is other."""
    try:
        listed = json.loads(text[2:-2])
        return {
            str(each["pg_name"]): tuple(sorted({int(rank) for rank in each["ranks"]}))
            for each in listed
        }
    except (TypeError, KeyError, ValueError, OverflowError, RecursionError):
        return {}
