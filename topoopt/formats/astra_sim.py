"""One iteration for ASTRA-sim 2: network, system and workload files.

ASTRA-sim's workload layer keeps one send or collective in flight an NPU, and its analytical
networks are rings, switches and complete graphs. So an NPU is a server, the network is the
complete graph, of which messages use the plan's cables only, and the iteration is one custom
collective, whose traces may have any number of messages in flight: compute in the order in which
our simulation ran it, each transfer in pieces over its routes hop by hop, and each collective in
the rounds of its rings. ASTRA-sim takes such traces from ``all-reduce-implementation-custom``
(astra-sim/system/astraccl) and runs their nodes as their dependencies allow.

- Links pass one message after another. Messages are in pieces, of which few are under way on a
  link: so those that share it take turns, and one is on all links of its route at once.
- The set-up of messages is counted as latency: a link's is as often a hop's as messages have ways.
- All links of such a network are alike. On one of m cables the messages are m times shorter.
- Compute is in whole microseconds, rounded so that the sum of each device stays exact.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from codesign_base.rows import dependency_order
from parallelism.taskgraph import TaskGraph, TaskKind, edges_of
from routing.network import NodePath
from routing.pair_paths import pair_paths
from routing.routes import Routes
from topoopt.base.text import ended
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.orders import collective_rounds
from topoopt.fabric.timeline import Timeline
from topoopt.formats.chakra_export import rounded_micros, untold
from topoopt.formats.chakra_file import TraceNode, attributes, trace_bytes
from topoopt.formats.chakra_schema import CollectiveCommType, NodeType

GIBI = 2.0**30
"""Bytes of ASTRA-sim's "GB" in networks."""
PIECE = 32 * 1024.0
"""Bytes of a piece of a message, unless that makes too few or too many.

Pieces take turns on a link one by one, so that a message in smaller pieces than others' gets less
of it: the most bytes of a piece are the same for all messages.
"""
_FEWEST_FORWARDED = 32
_IN_FLIGHT = 4
_MESSAGES = 200_000
_ITERATION, _WORKLOAD = "iteration", "workload"


def astra_sim_files(
    tasks: TaskGraph, fabric: Fabric, run: Timeline, label: Callable[[int], str]
) -> dict[str, bytes]:
    """Return the files of one iteration.

    Parameters
    ----------
    tasks : TaskGraph
        Whose tasks stand for themselves (`topoopt.fabric.represented.whole_tasks`).
    fabric : Fabric
        Direct-connect.
    run : Timeline
        Our simulation of it: devices compute in its order.
    label : callable
        The name of a task, by its index.

    Returns
    -------
    dict of str to bytes
        By path: ``network.yml``, ``system.json``, ``remote_memory.json``, traces
        ``workload/workload.N.et`` that start the iteration, and ``iteration/iteration.N.et``.

    Raises
    ------
    InputError
        If the network has switches, links of different latency, fewer hosts than the task graph
        has servers, or a route is no set of paths.
    """
    network = fabric.network
    if network.switches or network.hosts != tasks.servers or tasks.servers < 2:
        raise InputError(
            f"network {network.name!r} has {counted(network.hosts, 'server')} and "
            f"{counted(network.switches, 'switch', 'switches')}; ASTRA-sim files are written of "
            f"two or more servers of the task graph ({tasks.servers}) joined directly"
        )
    if np.ptp(network.latency) > 0.0:
        raise InputError(
            "links have different latencies, but all links of an ASTRA-sim network are alike; "
            "give them one latency"
        )
    schedule = _Schedule(tasks, fabric, run, label)
    for task in schedule.order:
        schedule.add(task)
    config = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 0,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{f"{name}-implementation": ["ring"] for name in (
            "all-reduce", "all-gather", "reduce-scatter", "all-to-all",
        )},
        "all-reduce-implementation-custom": [f"{_ITERATION}/{_ITERATION}"],
        "local-mem-bw": 1,
    }  # fmt: skip
    latency = fabric.transport.ways * float(network.latency.max(initial=0.0))
    lines = (
        "topology: [ FullyConnected ]",
        f"npus_count: [ {network.hosts} ]",
        f"bandwidth: [ {schedule.rate / GIBI!r} ]  # GB/s of 2^30 bytes",
        f"latency: [ {latency * 1e9!r} ]  # ns",
    )
    files = {
        "network.yml": ended(lines).encode(),
        "system.json": (json.dumps(config, indent=1) + "\n").encode(),
        "remote_memory.json": b'{"memory-type": "NO_MEMORY_EXPANSION"}\n',
    }
    for rank, nodes in enumerate(schedule.ranks):
        # ASTRA-sim takes a trace without nodes for a deadlock.
        idle = TraceNode(0, "idle", NodeType.COMP)
        files[f"{_ITERATION}/{_ITERATION}.{rank}.et"] = trace_bytes(nodes or [idle])
        values = attributes(
            is_cpu_op=("bool", False),
            comm_type=("int64", int(CollectiveCommType.ALL_REDUCE)),
            comm_size=("int64", 2**20),
        )
        whole = TraceNode(0, _ITERATION, NodeType.COMM_COLL, attributes=values)
        files[f"{_WORKLOAD}/{_WORKLOAD}.{rank}.et"] = trace_bytes([whole])
    return files


@dataclass(frozen=True)
class _Stretch:
    """One path of a message: its nodes, and the share of the bytes that takes it."""

    nodes: NodePath
    share: float


class _Schedule:
    """The nodes of all ranks as they grow."""

    def __init__(
        self, tasks: TaskGraph, fabric: Fabric, run: Timeline, label: Callable[[int], str]
    ) -> None:
        self.tasks, self.fabric, self.label = tasks, fabric, label
        network = fabric.network
        self.rate = float(network.capacity.min())
        ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
        # How much faster a link is than those of the network file.
        self.speed = dict(zip(ends, (network.capacity / self.rate).tolist(), strict=True))
        self.ranks: list[list[TraceNode]] = [[] for _ in range(tasks.servers)]
        # Compute tasks have the numbers of tasks, so that one can wait for a later one.
        self.next_id = tasks.tasks
        self.ends: list[dict[int, tuple[int, ...]]] = [{} for _ in range(tasks.tasks)]
        self.before: list[list[int]] = [[] for _ in range(tasks.tasks)]
        for one, other in zip(*(ends.tolist() for ends in edges_of(tasks)), strict=True):
            self.before[other].append(one)
        total = float(link_bytes(fabric, tasks).sum())
        self.piece = max(PIECE, total / _MESSAGES)
        self.tags: dict[tuple[int, int], int] = defaultdict(int)
        self.paths: dict[tuple[bool, int, int], list[_Stretch]] = {}
        self.order, stuck = dependency_order(
            tasks.predecessors.tolist(), tasks.successor_offsets, tasks.successors
        )
        if stuck:
            raise InputError("tasks wait for each other in a cycle; remove a dependency")
        self.micros, self.previous = self._devices(run.start)

    def _devices(self, start: Floats) -> tuple[dict[int, int], dict[int, int]]:
        """Return the whole microseconds of compute tasks, and which one is before each."""
        tasks = self.tasks
        compute = np.flatnonzero(tasks.kind == TaskKind.COMPUTE)
        # What starts at one moment goes in an order in which nothing waits for a later one.
        place = np.argsort(self.order)
        order = compute[np.lexsort((place[compute], start[compute], tasks.first[compute]))].tolist()
        micros: dict[int, int] = {}
        previous: dict[int, int] = {}
        left = [0.0] * tasks.devices
        for one in order:
            device = int(tasks.first[one])
            micros[one], left[device] = rounded_micros(float(tasks.size[one]), left[device])
        for one, other in pairwise(order):
            if tasks.first[one] == tasks.first[other]:
                previous[other] = one
        return micros, previous

    def add(self, task: int) -> None:
        """Write a task, all of whose predecessors are written."""
        kind = TaskKind(int(self.tasks.kind[task]))
        if kind is TaskKind.COMPUTE:
            rank = int(self.tasks.server_of_device[self.tasks.first[task]])
            chain = (self.previous[task],) if task in self.previous else ()
            self._compute(rank, task, self.micros[task], (*self._after(task, rank), *chain), task)
            self.ends[task][rank] = (task,)
        elif kind is TaskKind.TRANSFER:
            self._transfer(task)
        else:
            self._collective(task)

    def _after(self, task: int, rank: int) -> tuple[int, ...]:
        found: list[int] = []
        for before in self.before[task]:
            if rank in self.ends[before]:
                found += self.ends[before][rank]
            elif not self._tells(before, task):
                raise untold(self.label, task, before)
        return tuple(found)

    def _tells(self, before: int, task: int) -> bool:
        """Whether another member of a collective waits for a task, and holds up this one so."""
        tasks = self.tasks
        return bool(tasks.collective[task]) and bool(
            set(tasks.groups[int(tasks.first[task])]) & self.ends[before].keys()
        )

    def _compute(
        self, rank: int, task: int, micros: int, after: tuple[int, ...], number: int | None = None
    ) -> int:
        number = self._number() if number is None else number
        self.ranks[rank].append(
            TraceNode(number, self.label(task), NodeType.COMP, tuple(dict.fromkeys(after)), micros)
        )
        return number

    def _number(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _send(
        self, source: int, target: int, size: float, after: tuple[int, ...]
    ) -> tuple[int, int]:
        """Write a message over one link; return its nodes in both traces."""
        tag, self.tags[source, target] = self.tags[source, target], self.tags[source, target] + 1
        values = attributes(
            comm_size=("int64", max(round(size / self.speed[source, target]), 1)),
            comm_src=("int32", source),
            comm_dst=("int32", target),
            comm_tag=("int32", tag),
        )
        out, into = self._number(), self._number()
        unique = tuple(dict.fromkeys(after))
        self.ranks[source].append(TraceNode(out, "", NodeType.COMM_SEND, unique, attributes=values))
        self.ranks[target].append(TraceNode(into, "", NodeType.COMM_RECV, attributes=values))
        return out, into

    def _stretches(self, routes: Routes, source: int, target: int) -> list[_Stretch]:
        key = (routes is self.fabric.routes, source, target)
        if key not in self.paths:
            pair = np.array([source * self.fabric.network.hosts + target])
            listed = routes if routes.pairs is None and routes.more is None else routes.of(pair)
            found = pair_paths(self.fabric.network, listed, source, target)
            if not found:
                raise InputError(f"servers {source} to {target} have no route; route that pair")
            self.paths[key] = [_Stretch(path, share) for path, share in found]
        return self.paths[key]

    def _forward(
        self, stretch: _Stretch, size: float, after: tuple[int, ...], sent: list[list[int]]
    ) -> tuple[int, int]:
        """Write a piece along a path; return its first node and its last, where it arrives.

        At each hop it waits until few pieces are under way of those ``sent`` along before.
        """
        first = into = -1
        for hop, (a, b) in enumerate(pairwise(stretch.nodes)):
            earlier = sent[hop]
            waits = (*after, earlier[-_IN_FLIGHT]) if len(earlier) >= _IN_FLIGHT else after
            out, into = self._send(a, b, size, waits)
            earlier.append(out)
            first, after = (first if hop else out), (into,)
        return first, into

    def _transfer(self, task: int) -> None:
        source, target = int(self.tasks.first[task]), int(self.tasks.second[task])
        after = self._after(task, source)
        bytes_ = float(self.fabric.transport.wire_bytes(self.tasks.size[task : task + 1])[0])
        left: list[int] = []
        arrived: list[int] = []
        for stretch in self._stretches(self.fabric.routes, source, target):
            size = bytes_ * stretch.share
            count = self._pieces(size, len(stretch.nodes) - 1)
            sent: list[list[int]] = [[] for _ in stretch.nodes]
            pieces = [self._forward(stretch, size / count, after, sent) for _ in range(count)]
            left += [out for out, _ in pieces]
            arrived += [into for _, into in pieces]
        self.ends[task] = {source: tuple(left), target: tuple(arrived)}

    def _pieces(self, size: float, hops: int) -> int:
        packet = self.fabric.transport.segment_bytes or 1.0
        count = np.ceil(size / self.piece)
        if hops > 1:
            count = max(count, min(_FEWEST_FORWARDED * (hops - 1), np.ceil(size / packet)))
        return int(max(count, 1))

    def _collective(self, task: int) -> None:
        tasks = self.tasks
        group = tasks.groups[int(tasks.first[task])]
        after = {rank: self._after(task, rank) for rank in group}
        delay = round(float(tasks.delay[task]) * 1e6)
        crosses = bool(tasks.crossing[task])
        if delay or not crosses:
            after = {rank: (self._compute(rank, task, delay, after[rank]),) for rank in group}
        if not crosses:
            self.ends[task] = after
            return
        rings = self.fabric.rings_of(group)
        rounds, message = collective_rounds(self.fabric, tasks, np.array([task]))
        size = float(self.fabric.transport.wire_bytes(message)[0])
        last: dict[int, list[int]] = {rank: list(after[rank]) for rank in group}
        for ring in rings:
            for rank, numbers in self._ring(task, ring, int(rounds[0]), size, after).items():
                last[rank] += numbers
        # One node to wait for, in place of the last messages of all rings.
        self.ends[task] = {
            rank: (self._compute(rank, task, 0, tuple(last[rank])),) for rank in group
        }

    def _ring(
        self,
        task: int,
        ring: Sequence[int],
        rounds: int,
        size: float,
        after: dict[int, tuple[int, ...]],
    ) -> dict[int, list[int]]:
        """Write the rounds of a ring; return what each member receives at last."""
        edges = {
            a: (b, self._stretches(self.fabric.edge_routes, a, b))
            for a, b in pairwise((*ring, ring[0]))
        }
        longest = max(len(s.nodes) - 1 for _, stretches in edges.values() for s in stretches)
        count = self._pieces(size, longest)
        sent: dict[int, list[list[list[int]]]] = {
            a: [[[] for _ in s.nodes] for s in stretches] for a, (_, stretches) in edges.items()
        }
        arrived: dict[int, list[tuple[int, ...]]] = {a: [after[a]] * count for a in edges}
        for number in range(rounds):
            now: dict[int, list[tuple[int, ...]]] = {}
            for a, (b, stretches) in edges.items():
                now[b] = []
                for piece in range(count):
                    now[b].append(tuple(
                        self._forward(s, size * s.share / count, arrived[a][piece], sent[a][way])[1]
                        for way, s in enumerate(stretches)
                    ))  # fmt: skip
            if longest == 1 and count > 1 and number < rounds - 1:
                # Neighbours pass a round on whole, as the plan's rings do.
                for rank, pieces in now.items():
                    whole = tuple(n for piece in pieces for n in piece)
                    now[rank] = [(self._compute(rank, task, 0, whole),)] * count
            arrived = now
        return {rank: [n for piece in pieces for n in piece] for rank, pieces in arrived.items()}
