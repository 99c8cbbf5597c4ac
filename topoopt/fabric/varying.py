"""The state of an iteration that is played over a network whose links change."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from parallelism.taskgraph import FloatArray, IntArray, TaskGraph, TaskKind
from topoopt.fabric.transport import Transport

Group = tuple[int, ...]


class VaryingRun(NamedTuple):
    """What came of an iteration over a changing network.

    ``start``, ``finish``, ``binding``, ``instants``, ``solves`` and ``resolved`` are those of
    `topoopt.fabric.fluid.Run`; ``resolved`` also counts what choosing and routing circuits cost,
    in the time of one stream re-solved. ``reconfigurations`` counts the decisions that moved
    circuits, ``moved`` the circuits set up anew. ``history`` holds, if asked for, the seconds
    and the circuits between servers that carry bytes from then on (servers, servers).
    """

    start: FloatArray
    finish: FloatArray
    binding: IntArray
    instants: int
    solves: int
    resolved: int
    reconfigurations: int
    moved: int
    history: tuple[tuple[float, IntArray], ...]

    @property
    def makespan(self) -> float:
        """Seconds: the last finish (0 without tasks, infinity if given up)."""
        return float(self.finish.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Demands:
    """What a task graph sends, whatever carries it.

    Parameters
    ----------
    nature : int8 array, shape (tasks,)
        See `topoopt.fabric.varying_kernels`.
    row : int64 array, shape (tasks,)
        Compute: device. Transfer: ``source * servers + target``. AllReduce: ``servers ** 2``
        plus the place in ``groups``.
    volume : float64 array, shape (tasks,)
        Seconds of compute, or bytes in whole packets (AllReduce: over each ring edge).
    pace : float64 array, shape (tasks,)
        Bytes of one round of an AllReduce; 0 of all else.
    rounds : float64 array, shape (tasks,)
        Of an AllReduce over several servers; 0 of all else.
    groups : tuple of tuple of int
        Group of each AllReduce row; a group has a row for every pace.
    edges : tuple of int64 array
        Ordered pairs of each AllReduce row: one ring, in the order of the servers' numbers.
    """

    nature: npt.NDArray[np.int8]
    row: IntArray
    volume: FloatArray
    pace: FloatArray
    rounds: FloatArray
    groups: tuple[Group, ...]
    edges: tuple[IntArray, ...]

    def matrix(self, servers: int, tasks: IntArray, amount: FloatArray) -> FloatArray:
        """Return the bytes between servers that some network tasks have to send.

        Parameters
        ----------
        servers : int
        tasks : int64 array
        amount : float64 array, of the same shape
            Bytes, over each edge of an AllReduce's ring.

        Returns
        -------
        float64 array, shape (servers, servers)
        """
        pairs = servers * servers
        count = pairs + len(self.groups)
        by_row = np.bincount(self.row[tasks], weights=amount, minlength=count).astype(np.float64)
        total: FloatArray = by_row[:pairs].copy()
        for place, edges in enumerate(self.edges):
            total[edges] += by_row[pairs + place]
        return total.reshape(servers, servers)


def demands_of(tasks: TaskGraph, servers: int, transport: Transport, name: str) -> Demands:
    """Work out what a task graph sends.

    Parameters
    ----------
    tasks : TaskGraph
    servers : int
        Of the fabric.
    transport : Transport
    name : str
        What errors call the fabric.

    Returns
    -------
    Demands

    Raises
    ------
    InputError
        If the task graph has more servers, a size is out of range, or the transport is htsim's.
    """
    if tasks.servers > servers:
        raise InputError(
            f"the task graph uses {tasks.servers} servers, fabric {name!r} has {servers}; "
            "give a fabric with as many servers"
        )
    both = np.concatenate((tasks.size, tasks.delay))
    if both.size and not (both.min() >= 0.0 and np.isfinite(both.max())):
        raise InputError("task graph: a size or delay is negative or not finite; correct that task")
    if tasks.priority is not None:
        raise InputError(
            f"fabric {name!r} plays tasks in the order in which they are ready; give a task graph "
            "without priorities"
        )
    if transport.htsim:
        raise InputError(f"fabric {name!r} cannot repeat htsim's artefacts; give another transport")
    from topoopt.fabric.varying_kernels import DRAINED, NETWORK

    row = tasks.first.copy()
    volume = tasks.size.copy()
    pace = np.zeros(tasks.tasks)
    moves = np.flatnonzero(tasks.kind == TaskKind.TRANSFER)
    row[moves] = tasks.first[moves] * servers + tasks.second[moves]
    volume[moves] = transport.wire_bytes(tasks.size[moves])

    reduces = np.flatnonzero(tasks.collective)
    members = np.array([len(group) for group in tasks.groups] + [0])[tasks.first[reduces]]
    each, message = transport.rounds(
        tasks.size[reduces], np.maximum(members, 2), np.ones_like(members), tasks.passes[reduces]
    )
    wire = np.where(members > 1, transport.wire_bytes(message), 0.0)
    rounds = np.zeros(tasks.tasks)
    rounds[reduces] = np.where(members > 1, each, 0.0)
    volume[reduces] = each * wire
    pace[reduces] = wire
    keys, place = np.unique(
        np.stack((tasks.first[reduces], wire.view(np.int64))), axis=1, return_inverse=True
    )
    row[reduces] = servers * servers + place.ravel()
    groups = tuple(tasks.groups[which] for which in keys[0].tolist())
    nature = np.zeros(tasks.tasks, dtype=np.int8)
    nature[tasks.kind != TaskKind.COMPUTE] = NETWORK
    nature[(nature == NETWORK) & (volume == 0.0)] = DRAINED
    edges = tuple(_ring(group, servers) for group in groups)
    return Demands(nature, row, volume, pace, rounds, groups, edges)


def _ring(group: Group, servers: int) -> IntArray:
    """Return the pairs of one ring in the order of the servers' numbers; none of one server."""
    order = np.array(group, dtype=np.int64)
    return order * servers + np.roll(order, -1) if order.size > 1 else order[:0]


class Play:
    """An iteration under way: arrays that `varying_kernels.advance` plays on.

    Parameters
    ----------
    tasks : TaskGraph
    demands : Demands
    servers : int
        Of the fabric.
    tolerance : float
        See `topoopt.fabric.simulate.simulate`.
    limit : float
        Give up when the clock passes this many seconds.
    record : bool
        Keep the history of circuits.

    Attributes
    ----------
    decisions, moved : int
        Decisions so far that moved circuits, circuits set up anew.
    work : float
        What choosing and routing circuits has cost, in streams re-solved.

    Raises
    ------
    InputError
        If the tolerance is out of range.
    """

    def __init__(
        self,
        tasks: TaskGraph,
        demands: Demands,
        servers: int,
        tolerance: float,
        limit: float,
        record: bool = False,
    ) -> None:
        if not 0.0 <= tolerance < 1.0:
            raise InputError(f"completion_tolerance is {tolerance}; give a fraction in [0, 1)")
        n, devices = tasks.tasks, tasks.devices
        self.demands = demands
        self.tolerance = tolerance
        # A little beyond the limit, so that rounding never rules out what is exactly as fast.
        self.horizon = limit * (1.0 + 1e-9)
        self.pairs = servers * servers
        self.nature = demands.nature.copy()
        self.delay = tasks.delay.copy()
        self.successor_offsets = tasks.successor_offsets.copy()
        self.successors = tasks.successors.copy()
        self.waiting = tasks.predecessors.copy()
        self.ready, self.start = np.zeros(n), np.zeros(n)
        self.finish = np.full(n, np.inf)
        self.binding = np.full(n, -1, dtype=np.int64)
        self.left = demands.volume.copy()
        self.times, self.names = np.empty(n), np.empty(n, dtype=np.int64)
        self.events = np.zeros(1, dtype=np.int64)
        self.device = np.full((6, devices), -1, dtype=np.int64)
        self.device[5] = 0
        self.following = np.full(n, -1, dtype=np.int64)
        self.fresh, self.starting = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        self.parked, self.batch = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        self.ended_at = np.empty(n)
        self.clock = np.array([0.0, np.inf, np.inf])
        self.number = np.zeros(7, dtype=np.int64)
        first = np.flatnonzero(self.waiting == 0)
        self.fresh[: first.size] = first
        self.number[0] = first.size
        self.solves = self.resolved = 0
        self.sending = np.flatnonzero(demands.nature != 0)
        self.slots = max(int(np.unique(demands.row[self.sending]).size), 1)
        self.count = np.zeros(5, dtype=np.int64)
        self.decisions, self.moved, self.work = 0, 0, 0.0
        self.record = record
        self.history: list[tuple[float, IntArray]] = []

    @property
    def now(self) -> float:
        """Seconds on the clock."""
        return float(self.clock[0])

    def lay(
        self,
        begin: IntArray,
        end: IntArray,
        way_lag: FloatArray,
        links: npt.NDArray[np.int32],
        weights: FloatArray,
        capacity: FloatArray,
    ) -> None:
        """Put a network under the tasks; no flow may be active.

        Parameters
        ----------
        begin, end : int64 arrays, shape (tasks,)
            Entries of each network task's row; none where it has no way.
        way_lag : float64 array, shape (tasks,)
            Seconds that a message takes beyond its bytes.
        links, weights : arrays
            Entries of all rows.
        capacity : float64 array, shape (links,)
            Bytes/s as they are now; 0 is dark.
        """
        from topoopt.fabric.flows_kernels import BLOCK

        self.begin, self.end, self.hold = begin, end, way_lag
        rounds = self.demands.rounds
        reduces = self.demands.row >= self.pairs
        self.lag = np.where(
            self.demands.nature == 0,
            0.0,
            np.where(reduces, np.where(self.demands.volume > 0, 0.0, rounds * way_lag), way_lag),
        )
        self.links, self.weights = links, weights
        self.solves += int(self.count[2])
        self.resolved += int(self.count[3])
        _, which = np.unique(self.demands.row[self.sending], return_index=True)
        chosen = self.sending[which]
        entries = int((end[chosen] - begin[chosen]).sum())
        room = (self.slots + BLOCK - 1) // BLOCK * BLOCK
        self.slot = np.zeros((6, room))
        self.slot[1] = -1.0
        self.slot[4] = np.inf
        self.index = np.zeros((5, room), dtype=np.int64)
        self.slot_of_row = np.full(self.pairs + len(self.demands.groups), -1, dtype=np.int32)
        self.block = np.empty((2, room // BLOCK))
        n, count = self.left.size, capacity.size
        self.member = np.zeros((2, n))
        self.behind = np.full(n, -1, dtype=np.int64)
        self.link = np.zeros((4, count))
        self.link[0] = self.link[2] = capacity
        self.news = np.empty(max(n, 1), dtype=np.int64)
        self.count = np.zeros(5, dtype=np.int64)
        self.chosen = np.empty(self.slots, dtype=np.int32)
        self.real = np.empty((2, count + 1))
        self.whole = np.zeros((3, count), dtype=np.int32)
        self.near = np.empty((2, max(entries, 1)), dtype=np.int32)
        self.amounts = np.empty(max(entries, 1))
        self.given = np.empty(self.slots)
        self.first = np.empty(2 * self.slots + 2, dtype=np.int64)
        self.priority = np.zeros(self.left.size, dtype=np.int64)
        self.clock[1] = self.clock[2] = np.inf

    def advance(self, until: float, on_demand: bool) -> int:
        """Play on; see `varying_kernels.advance`."""
        from topoopt.fabric.varying_kernels import advance

        why: int = advance(
            until, self.horizon, self.tolerance, on_demand, self.nature, self.demands.row,
            self.demands.volume, self.delay, self.successor_offsets, self.successors,
            self.waiting, self.ready, self.start, self.finish, self.binding, self.left,
            self.times, self.names, self.events, self.device, self.following, self.fresh,
            self.starting, self.parked, self.batch, self.ended_at, self.clock, self.number,
            self.demands.pace, self.hold, self.lag, self.begin, self.end, self.links, self.weights,
            self.slot, self.index, self.slot_of_row, self.block, self.member, self.behind,
            self.link, self.news, self.count, self.chosen, self.real, self.whole, self.near,
            self.amounts, self.given, self.first, self.priority,
        )  # fmt: skip
        return why

    def outstanding(self) -> IntArray:
        """Return the flows that are active or parked, ascending; ``left`` says their bytes."""
        parked = self.parked[: self.number[2]]
        return np.sort(np.concatenate((self._active(), parked)))

    def park(self) -> None:
        """Take all flows off the network, with what they have left."""
        waiting = self.outstanding()
        self.parked[: waiting.size] = waiting
        self.number[2] = waiting.size

    def _active(self) -> IntArray:
        from topoopt.fabric.varying_kernels import note_left

        end = note_left(
            self.left, self.batch, 0, self.clock, self.slot, self.index, self.member, self.behind,
            self.count,
        )  # fmt: skip
        return self.batch[:end]

    def unpark(self) -> None:
        """Let parked flows go that have a way now."""
        from topoopt.fabric.varying_kernels import unpark

        unpark(
            self.parked, self.starting, self.number, self.begin, self.end, self.links,
            self.weights, self.link,
        )  # fmt: skip

    def note(self, lit: IntArray) -> None:
        """Keep in the history which circuits carry bytes from now on (servers, servers)."""
        if self.record:
            self.history.append((self.now, lit.copy()))

    def result(self, over: bool) -> VaryingRun:
        """Return what came of it.

        Parameters
        ----------
        over : bool
            Whether it was simulated to the end.

        Raises
        ------
        InputError
            If tasks wait for each other.
        """
        n = self.left.size
        if over and self.number[3] < n:
            raise InputError(
                f"task graph: {n - int(self.number[3])} of {n} tasks never ran, because tasks "
                "wait for each other in a cycle; remove a dependency"
            )
        return VaryingRun(
            self.start, self.finish, self.binding, int(self.number[4]),
            self.solves + int(self.count[2]), self.resolved + int(self.count[3] + self.work),
            self.decisions, self.moved, tuple(self.history),
        )  # fmt: skip
