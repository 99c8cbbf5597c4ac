"""The state of an iteration that is simulated over a network whose links change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arguments import is_number, told
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import summed
from parallelism.taskgraph import Group, TaskGraph, TaskKind
from topoopt.base.interrupts import interruptible
from topoopt.fabric.arrays_kernels import Orders
from topoopt.fabric.fluid import WATCHED_FROM
from topoopt.fabric.orders import distinct
from topoopt.fabric.rounding import ROUNDED_UP
from topoopt.fabric.tasks import check_fit, never_ran
from topoopt.fabric.transport import Transport


class VaryingRun(NamedTuple):
    """What came of an iteration over a changing network.

    ``start``, ``finish``, ``binding`` and ``resolved`` are those of
    `topoopt.fabric.fluid.Run`; ``resolved`` also counts what choosing and routing circuits cost,
    in the time of one stream re-solved. ``moved`` counts the circuits set up anew. ``history``
    holds, if asked for, the seconds and the circuits between servers that carry bytes from then
    on (servers, servers).
    """

    start: Floats
    finish: Floats
    binding: Ints
    resolved: int
    moved: int
    history: tuple[tuple[float, Ints], ...]

    @property
    def makespan(self) -> float:
        """Seconds: the last finish (0 without tasks, infinity if given up)."""
        return float(self.finish.max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Demands:
    """What a task graph sends, whatever carries it.

    Parameters
    ----------
    compute : bool array, shape (tasks,)
        Compute task, or network task.
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

    compute: npt.NDArray[np.bool_]
    row: Ints
    volume: Floats
    pace: Floats
    rounds: Floats
    groups: tuple[Group, ...]
    edges: tuple[Ints, ...]

    def matrix(self, servers: int, tasks: Ints, amount: Floats) -> Floats:
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
        by_row = summed(self.row[tasks], amount, count)
        total = by_row[:pairs].copy()
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
    check_fit(tasks, servers, name)
    if tasks.priority is not None:
        raise InputError(
            f"fabric {name!r} runs tasks in the order in which they are ready; give a task graph "
            "without priorities"
        )
    if transport.htsim:
        raise InputError(f"fabric {name!r} cannot repeat htsim's artefacts; give another transport")
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
    which, place = distinct(tasks.first[reduces], wire.view(np.int64))
    row[reduces] = servers * servers + place
    groups = tuple(tasks.groups[group] for group in tasks.first[reduces[which]].tolist())
    edges = tuple(_ring(group, servers) for group in groups)
    return Demands(tasks.kind == TaskKind.COMPUTE, row, volume, pace, rounds, groups, edges)


def _ring(group: Group, servers: int) -> Ints:
    """Return the pairs of one ring in the order of the servers' numbers; none of one server."""
    order = np.array(group, dtype=np.int64)
    return order * servers + np.roll(order, -1) if order.size > 1 else order[:0]


class VaryingState:
    """An iteration under way, which the kernels take further.

    Parameters
    ----------
    tasks : TaskGraph
    demands : Demands
    servers : int
        Of the fabric.
    tolerance : float
        See `topoopt.fabric.simulate`.
    limit : float
        Give up when the clock passes this many seconds.
    record : bool
        Keep the history of circuits.

    Attributes
    ----------
    orders : Orders
        With the rows as they are now.
    it : Iteration
    changing : Changing
    flows : Flows
    moved : int
        Circuits set up anew so far.
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
        from topoopt.fabric.flows_kernels import no_flows
        from topoopt.fabric.iteration_kernels import begun
        from topoopt.fabric.varying_kernels import Changing

        if not (is_number(tolerance) and 0.0 <= tolerance < 1.0):
            raise InputError(
                f"completion_tolerance is {told(tolerance)}; give a fraction in [0, 1)"
            )
        n = tasks.tasks
        self.demands = demands
        self.tolerance = tolerance
        self.horizon = limit * ROUNDED_UP
        self.pairs = servers * servers
        self.sending = np.flatnonzero(~demands.compute)
        nowhere = np.zeros(n, dtype=np.int64)
        self.orders = Orders(
            compute=demands.compute,
            resource=demands.row,
            volume=demands.volume,
            delay=tasks.delay.copy(),
            lag=np.zeros(n),
            cap=np.full(n, np.inf),
            begin=nowhere,
            end=nowhere,
            successor_offsets=tasks.successor_offsets.copy(),
            successors=tasks.successors.copy(),
            predecessors=tasks.predecessors.copy(),
            start_order=np.arange(n, dtype=np.int64),
            priority=nowhere,
            levels=1,
            devices=tasks.devices,
            rows=self.pairs + len(demands.groups),
            slots=max(int(np.unique(demands.row[self.sending]).size), 1),
            entries=1,
            links=np.zeros(0, dtype=np.int32),
            weights=np.zeros(0),
            capacity=np.zeros(0),
        )
        self.it = begun(self.orders)
        self.changing = Changing(
            left=demands.volume.copy(),
            pace=demands.pace,
            hold=np.zeros(n),
            parked=np.empty(n, dtype=np.int64),
            clock=np.array([0.0, np.inf, np.inf]),
            waits=np.zeros(2, dtype=np.int64),
        )
        none = self.orders
        self.flows = no_flows(n, 0, 0, 0, none.links, none.weights, none.capacity)
        self.resolved, self.moved, self.work = 0, 0, 0.0
        self.record = record
        self.history: list[tuple[float, Ints]] = []

    @property
    def now(self) -> float:
        """Seconds on the clock."""
        return float(self.changing.clock[0])

    def set_network(
        self,
        begin: Ints,
        end: Ints,
        way_lag: Floats,
        links: npt.NDArray[np.int32],
        weights: Floats,
        capacity: Floats,
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
        from topoopt.fabric.flows_kernels import no_flows

        demands = self.demands
        reduces = demands.row >= self.pairs
        after = np.where(demands.volume > 0.0, 0.0, demands.rounds * way_lag)
        lag = np.where(demands.compute, 0.0, np.where(reduces, after, way_lag))
        _, which = np.unique(demands.row[self.sending], return_index=True)
        chosen = self.sending[which]
        entries = max(int((end[chosen] - begin[chosen]).sum()), 1)
        self.orders = self.orders._replace(
            begin=begin, end=end, lag=lag, entries=entries, links=links, weights=weights,
            capacity=capacity,
        )  # fmt: skip
        self.changing = self.changing._replace(hold=way_lag)
        self.changing.clock[1:] = np.inf
        self._count()
        self.flows = no_flows(
            begin.size, self.orders.rows, self.orders.slots, entries, links, weights, capacity
        )

    def _count(self) -> None:
        """Add up the work that the flows laid last took."""
        from topoopt.fabric.flows_kernels import RESOLVED

        self.resolved += int(self.flows.counts[RESOLVED])

    def advance(self, until: float) -> int:
        """Simulate until a time, or to the end; see `topoopt.fabric.varying_kernels.advance`."""
        from topoopt.fabric.varying_kernels import simulate_until

        return self.watched(
            lambda stop: simulate_until(
                self.orders, self.it, self.changing, self.flows, until, self.horizon,
                self.tolerance, stop,
            )
        )  # fmt: skip

    def watched(self, run: Callable[[Ints], int]) -> int:
        """Run a kernel, so that Ctrl-C is heard where there is much to simulate."""
        return interruptible(run, long=self.orders.compute.size >= WATCHED_FROM)

    def outstanding(self) -> Ints:
        """Return the flows that are active or parked, ascending; bytes are in ``changing.left``."""
        from topoopt.fabric.varying_kernels import PARKED, note_left

        active = self.it.batch[: note_left(self.changing, self.flows, self.it.batch)]
        return np.sort(
            np.concatenate((active, self.changing.parked[: self.changing.waits[PARKED]]))
        )

    def change_network(self, *network: Any) -> None:
        """Put another network under what is under way, as `set_network`; what has no way waits."""
        from topoopt.fabric.varying_kernels import PARKED, unpark

        waiting = self.outstanding()
        self.changing.parked[: waiting.size] = waiting
        self.changing.waits[PARKED] = waiting.size
        self.set_network(*network)
        unpark(self.orders, self.it, self.changing, self.flows)

    def note(self, lit: Ints) -> None:
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
        from topoopt.fabric.iteration_kernels import DONE

        it, n = self.it, self.changing.left.size
        done = int(it.number[DONE])
        if over and done < n:
            raise never_ran(n, n - done)
        self._count()
        return VaryingRun(
            it.start, it.finish, it.binding, self.resolved + int(self.work), self.moved,
            tuple(self.history),
        )  # fmt: skip
