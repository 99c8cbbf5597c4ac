"""Simulate a task graph over a fabric as packet trains on first-in first-out links."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from parallelism.taskgraph import COMPUTE, TRANSFER, TaskGraph
from routing.routes import Routes
from topoopt.base.interrupts import interruptible
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.orders import collective_rounds
from topoopt.fabric.rounding import ROUNDED_UP
from topoopt.fabric.tasks import never_ran, routed_tasks, starting_order
from topoopt.fabric.used_pairs import listing
from topoopt.problem.seeds import checked_seed

MOST_TRAINS = 1e9
"""Packet trains of one iteration, rounds of rings counted: some minutes' work."""
_ANY_EVENTS = 2**62
# Packet trains from which on a simulation may take longer than an interrupt should wait.
_WATCHED_FROM = 2e4


class PacketRun(NamedTuple):
    """What the kernel returns: times and bindings, and the number of events."""

    start: Floats
    finish: Floats
    binding: Ints
    events: int

    @property
    def makespan(self) -> float:
        """Seconds: the last finish (0 without tasks, infinity if given up)."""
        return float(self.finish.max(initial=0.0))


class _Messages(NamedTuple):
    """All messages of a task graph; see `packet_kernels.simulate_packets`."""

    task: Ints
    pair: Ints
    ring: Ints
    packets: Ints
    row_begin: Ints
    row_end: Ints


def run_packets(
    fabric: Fabric,
    tasks: TaskGraph,
    *,
    seed: int = 0,
    limit: float = float("inf"),
    most_events: int = _ANY_EVENTS,
) -> PacketRun:
    """Simulate one iteration packet train by packet train.

    Every link is a first-in first-out server that sends at its capacity. A transfer, and each
    member's part of each round of a ring AllReduce, is a message over one path, drawn among the
    pair's routes with their shares. It is announced by a set-up packet that waits in the same
    queues, then sends its first window in packet trains; the window grows by what has arrived, in
    slow start, or by a packet each round trip once a train was marked, and shrinks by the share of
    marks. A queue marks packet trains that leave a long backlog behind, which is looked at when the
    train reaches the next link, or on its last link when its acknowledgement arrives. Hosts
    behind a switch do not mark in their own queue. A round begins when all messages of the one
    before it have arrived.

    Parameters
    ----------
    fabric : Fabric
        With its real links: not one whose links were merged.
    tasks : TaskGraph
    seed : int
        Of the draws of paths.
    limit : float
        Give up when the makespan is known to exceed this many seconds.
    most_events : int
        Give up after so many events, of which a million take 0.05 to 0.09 seconds.

    Returns
    -------
    PacketRun
        Tasks that a limit cut off finish at infinity.

    Raises
    ------
    InputError
        If the task graph does not fit the fabric, a size is out of range, a pair has no path,
        links were merged, or tasks wait for each other in a cycle.

    References
    ----------
    The windows follow DCTCP (SIGCOMM 2010) in slow start, the packet sizes TopoOpt's simulator
    (NSDI 2023, section 5); packet trains in place of packets are ours.
    """
    from topoopt.fabric.packet_kernels import Tasks, simulate_packets
    from topoopt.fabric.packet_queue_kernels import (
        COLUMNS,
        DELAY,
        EACH,
        LINK,
        MARKS,
        PACKETS,
        PAIR,
        RATE,
        RING,
        TASK,
        MessageRoutes,
        Sending,
    )

    transport, network = fabric.transport, fabric.network
    if transport.segment_bytes == 0:
        raise InputError(
            f"fabric {fabric.name!r}: a transport without packets has no packet trains; set "
            "segment_bytes"
        )
    fabric = listing(fabric, tasks)
    _check_unmerged(fabric)
    seed = checked_seed(seed)
    tasks = routed_tasks(fabric, tasks).tasks
    _check_one_level(tasks)
    compute = tasks.kind == COMPUTE
    messages, rings, lag = _messages(fabric, tasks)
    trains = _checked_count(fabric, messages, rings)
    sends = np.zeros(tasks.tasks, dtype=np.bool_)
    sends[messages.task] = True
    volume = np.where(compute, tasks.size, sends.astype(np.float64))
    first_message = np.full(tasks.tasks, -1, dtype=np.int64)
    single = np.flatnonzero(messages.ring < 0)
    first_message[messages.task[single]] = single
    owners = rings[:, 0]
    first_ring = np.searchsorted(owners, np.arange(tasks.tasks + 1)).astype(np.int64)
    table = np.zeros((messages.task.size, COLUMNS), dtype=np.int64)
    table[:, TASK] = messages.task
    table[:, PAIR] = messages.pair
    table[:, RING] = messages.ring
    table[:, PACKETS] = messages.packets
    link = np.zeros((network.links, LINK))
    link[:, RATE] = network.capacity
    link[:, DELAY] = network.latency
    link[:, MARKS] = transport.marking_backlog * transport.segment_bytes / network.capacity
    link[:, EACH] = transport.segment_bytes / network.capacity
    if network.switches:
        link[network.source < network.hosts, MARKS] = np.inf
    routes = (fabric.routes,) if fabric.ring_routes is None else (fabric.routes, fabric.ring_routes)
    todo = Tasks(
        compute=compute,
        resource=tasks.first.copy(),
        volume=volume,
        delay=tasks.delay.copy(),
        lag=lag,
        first_message=first_message,
        first_ring=first_ring,
        successor_offsets=tasks.successor_offsets.copy(),
        successors=tasks.successors.copy(),
        predecessors=tasks.predecessors.copy(),
        start_order=starting_order(fabric, tasks),
        priority=(
            np.zeros(tasks.tasks, np.int64) if tasks.priority is None else tasks.priority.copy()
        ),
        tail=(
            _least_after(fabric, tasks, messages, rings)
            if limit < np.inf
            else np.zeros(tasks.tasks)
        ),
        devices=tasks.devices,
    )
    rows = MessageRoutes(
        messages.row_begin,
        messages.row_end,
        np.concatenate([r.links for r in routes]).astype(np.int32),
        np.concatenate([r.weights for r in routes]),
        network.source.copy(),
        network.target.copy(),
        network.hosts,
    )
    how = Sending(
        packet=transport.segment_bytes,
        window=transport.initial_window,
        longest_train=transport.train_packets,
        arrival_order=transport.htsim,
        acknowledged=not transport.htsim,
        handshake=transport.handshake,
        cold=transport.htsim or transport.reconnect,
        timeout=transport.timeout,
        # Without ring sets htsim's rings begin with a shorter one.
        ring_timeout=0.1 * transport.timeout
        if transport.htsim and network.switches
        else transport.timeout,
    )
    longest = _longest_path(fabric, routes)

    def run(stop: Ints) -> tuple[Floats, Floats, Ints, int, Ints]:
        return simulate_packets(
            todo, table, rings, rows, link, longest, how, seed, limit * ROUNDED_UP, most_events,
            stop,
        )  # fmt: skip

    start, finish, binding, done, work = interruptible(run, long=trains >= _WATCHED_FROM)
    events, gave_up, lost = work.tolist()
    if lost >= 0:
        source, target = divmod(int(messages.pair[lost]), network.hosts)
        raise InputError(
            f"fabric {fabric.name!r}: no path along its links leads from host {source} to "
            f"{target}; list every link of that route"
        )
    if done < tasks.tasks and not gave_up:
        raise never_ran(tasks.tasks, tasks.tasks - done)
    return PacketRun(start, finish, binding, events)


def expected_events(fabric: Fabric, tasks: TaskGraph) -> float:
    """Return about how many events an iteration has where nothing contends, unsimulated.

    One for each set-up packet and each packet train on each link, trains as long as may be.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    float
        Where flows contend, windows are small, and there are several times more.
    """
    fabric = listing(fabric, tasks)
    messages, rings, _ = _messages(fabric, routed_tasks(fabric, tasks).tasks)
    edges = messages.ring >= 0
    hops = np.zeros(messages.pair.size)
    for routes, part in ((fabric.routes, ~edges), (fabric.edge_routes, edges)):
        hops[part] = routes.hops[routes.rows(messages.pair[part])]
    trains = np.ceil(messages.packets / fabric.transport.train_packets)
    return float((_rounds(messages, rings) * hops * (1.0 + trains)).sum())


def _least_after(fabric: Fabric, tasks: TaskGraph, messages: _Messages, rings: Ints) -> Floats:
    """Return the least seconds from each task's end to the end of all: alone, on the best link."""
    from parallelism.longest_path_kernels import heads_and_tails

    packet = fabric.transport.segment_bytes / fabric.network.capacity.max(initial=1.0)
    rounds = _rounds(messages, rings)
    length = np.where(tasks.kind == COMPUTE, tasks.size, 0.0)
    np.maximum.at(length, messages.task, packet * rounds * messages.packets)
    return heads_and_tails(
        length,
        np.zeros(tasks.tasks),
        tasks.successor_offsets.copy(),
        tasks.successors.copy(),
        tasks.predecessors.copy(),
        np.zeros(0),
    )[1]


def _rounds(messages: _Messages, rings: Ints) -> Floats:
    """Return how often each message is sent."""
    from topoopt.fabric.packet_queue_kernels import ROUNDS

    rounds = np.ones(messages.task.size)
    ring = messages.ring >= 0
    rounds[ring] = rings[messages.ring[ring], ROUNDS]
    return rounds


def _checked_count(fabric: Fabric, messages: _Messages, rings: Ints) -> float:
    """Return the packet trains of an iteration; refuse more than could ever be simulated."""
    rounds = _rounds(messages, rings)
    trains = float((rounds * np.ceil(messages.packets / fabric.transport.train_packets)).sum())
    if trains > MOST_TRAINS:
        raise InputError(
            f"task graph: its messages are {trains:.3g} packet trains; give tasks of at most "
            f"{MOST_TRAINS:.0e}, or simulate them with the fluid model"
        )
    return trains


def _check_one_level(tasks: TaskGraph) -> None:
    """Refuse priorities among messages: links of trains are first in, first out."""
    if tasks.priority is None:
        return
    sends = tasks.kind != COMPUTE
    levels = np.unique(tasks.priority[sends]).size
    if levels > 1:
        raise InputError(
            f"task graph: messages have {levels} priorities, and packet trains are first in, first "
            "out; give messages one priority, or use the fluid model"
        )


def _check_unmerged(fabric: Fabric) -> None:
    """Refuse rows that do not list all links of their paths: one path would carry everything."""
    for routes in (fabric.routes, fabric.edge_routes):
        total = np.concatenate(([0.0], np.cumsum(routes.weights)))
        crossed = total[routes.offsets[1:]] - total[routes.offsets[:-1]]
        routed = routes.offsets[1:] > routes.offsets[:-1]
        short = np.flatnonzero(routed & (np.abs(crossed - routes.hops) > 1e-6))
        if short.size:
            source, target = divmod(int(routes.listed[short[0]]), routes.hosts)
            raise InputError(
                f"fabric {fabric.name!r}: the route {source}->{target} crosses "
                f"{counted(f'{routes.hops[short[0]]:g}', 'link')} and lists {crossed[short[0]]:g}; "
                "packet trains need routes whose links were not merged"
            )


def _longest_path(fabric: Fabric, routes: tuple[Routes, ...]) -> int:
    """Return a bound of the hops of paths that may be drawn, with room for some that turn back."""
    least = float(fabric.network.latency.min(initial=np.inf))
    bound = 1
    for table in routes:
        if table.links.size == 0:
            continue
        longest = int(np.diff(table.offsets).max())
        if least > 0.0:
            longest = min(longest, int(table.latency.max() / least * (1.0 + 1e-9)))
        bound = max(bound, longest, 4 + 2 * int(np.ceil(table.hops.max())))
    return min(fabric.network.nodes, bound)


def _messages(fabric: Fabric, tasks: TaskGraph) -> tuple[_Messages, npt.NDArray[np.int64], Floats]:
    """Return all messages, the rings that they belong to, and the lag of what sends nothing."""
    transport, hosts = fabric.transport, fabric.network.hosts
    lag = np.zeros(tasks.tasks)
    moves = np.flatnonzero(tasks.kind == TRANSFER)
    lag[moves] = fabric.rows.lags(tasks.first[moves] * hosts + tasks.second[moves])
    moves = moves[tasks.size[moves] > 0]
    pairs = [tasks.first[moves] * hosts + tasks.second[moves]]
    owners, numbers = [moves], [np.full(moves.size, -1, dtype=np.int64)]
    bytes_ = [tasks.size[moves]]
    rings: list[tuple[int, int, int, int, int]] = []
    place = moves.size
    known: dict[int, Ints] = {}
    reduces = np.flatnonzero(tasks.collective)
    cut = collective_rounds(fabric, tasks, reduces)
    for task, rounds, message in zip(
        reduces.tolist(), *(each.tolist() for each in cut), strict=True
    ):
        group = int(tasks.first[task])
        members = tasks.groups[group]
        if len(members) < 2:
            continue
        if tasks.size[task] == 0:
            lag[task] = rounds * fabric.group_row(members).round_latency
            continue
        if group not in known:
            known[group] = fabric.ring_edges(members)
        edges = known[group]
        for _ in range(edges.shape[0]):
            rings.append((task, place, len(members), int(rounds), 0))
            place += len(members)
        pairs.append(edges.ravel())
        owners.append(np.full(edges.size, task, dtype=np.int64))
        numbers.append(np.repeat(np.arange(len(rings) - edges.shape[0], len(rings)), len(members)))
        bytes_.append(np.full(edges.size, message))
    pair = np.concatenate(pairs).astype(np.int64)
    ring = np.concatenate(numbers).astype(np.int64)
    wire = transport.wire_bytes(np.concatenate(bytes_)) / transport.segment_bytes
    row_begin, row_end = np.zeros(pair.size, np.int64), np.zeros(pair.size, np.int64)
    edge, shift = ring >= 0, 0
    for routes, own in ((fabric.routes, ~edge), (fabric.edge_routes, edge)):
        rows = routes.rows(pair[own])
        row_begin[own] = routes.offsets[rows] + shift
        row_end[own] = routes.offsets[rows + 1] + shift
        shift += 0 if fabric.ring_routes is None else routes.links.size
    table = np.array(rings, dtype=np.int64).reshape(-1, 5)
    return (
        _Messages(
            np.concatenate(owners).astype(np.int64),
            pair,
            ring,
            np.clip(np.rint(wire), 1.0, 2.0**62).astype(np.int64),
            row_begin,
            row_end,
        ),
        table,
        lag,
    )
