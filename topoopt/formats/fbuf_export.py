"""From a task graph on a direct-connect network to a task-graph file."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from codesign_base.rows import starts
from parallelism.taskgraph import Group, Phase, TaskGraph, TaskKind, edges_of
from routing.network import Network
from routing.pair_paths import pair_paths
from routing.routes import Routes
from topoopt.fabric.rings import Rings
from topoopt.fabric.unrolled import unrolled
from topoopt.formats.fbuf_file import MILLISECONDS, NO_NODE, FbufDevice, FbufFile, FbufTask
from topoopt.formats.fbuf_rings import brief, jump_lists

DRAM_BANDWIDTH = 32.0 * 2**20 * MILLISECONDS
"""Bytes per second: what every published file says."""

_COMPUTE_TYPES = {Phase.BACKWARD: FbufTask.BACKWARD, Phase.UPDATE: FbufTask.UPDATE}
# Whole numbers in 64 bits that floats of the task graph may be.
_MOST_BYTES = 2.0**63


class Updates(StrEnum):
    """What becomes of optimizer steps that wait for an AllReduce, which the format cannot say.

    ``refuse``: they are an error, unless collectives are written as rounds of messages. ``omit``:
    they are left out.
    """

    REFUSE = "refuse"
    OMIT = "omit"


def fbuf_of(
    tasks: TaskGraph,
    network: Network,
    routes: Routes,
    rings: Mapping[Group, Rings],
    *,
    gpus_per_node: int,
    intergpu_bandwidth: float,
    net_bandwidth: float,
    operators: Sequence[str] = (),
    updates: Updates = Updates.REFUSE,
    rounds: bool = False,
    cut: Mapping[int, tuple[float, float]] = MappingProxyType({}),
) -> FbufFile:
    """Return the task-graph file of a task graph on a direct-connect network.

    Parameters
    ----------
    tasks : TaskGraph
    network : Network
        Without switches; as many hosts as the task graph has servers.
    routes : Routes
        Of every ordered pair of hosts.
    rings : mapping of tuple of int to tuple of tuple of int
        Ring orders by sorted group; every AllReduce group of two or more servers must be there.
    gpus_per_node : int
    intergpu_bandwidth, net_bandwidth : float
        Bytes per second: between the GPUs of a server, and of one port.
    operators : sequence of str
        Names, for the reader's information.
    updates : Updates
        See there.
    rounds : bool
        Write collectives over several servers as the messages of their rings, round by round
        (`topoopt.fabric.unrolled.unrolled`), rather than as AllReduces with ring sets: any group
        and any ring will do then, messages take the routes of their pairs, and what waits for an
        AllReduce is in the file.
    cut : mapping of int to (float, float)
        With rounds, see `topoopt.fabric.unrolled.unrolled`.

    Returns
    -------
    FbufFile
        Its task ids count from 1 in the order of the graph. Numbers are those that the format
        can hold: runtimes rounded to 32-bit floats of milliseconds, bytes to whole numbers.

    Raises
    ------
    InputError
        If the network has switches, two directions of a pair have different cables, a cable has
        another rate than the port, a pair has no route, a group or ring does not fit the format,
        or a task waits for an AllReduce.

    Notes
    -----
    A connection of the format is a cable both ways. A link without its opposite is written as
    one; nothing in the file then uses the other direction. Latencies are not in the format.
    """
    hosts = network.hosts
    if network.switches:
        raise InputError(
            f"network {network.name!r} has {counted(network.switches, 'switch', 'switches')}; only "
            "direct-connect networks are written as .fbuf"
        )
    if tasks.servers != hosts:
        raise InputError(
            f"the task graph is for {counted(tasks.servers, 'server')} and network "
            f"{network.name!r} has {hosts}; give a network of as many"
        )
    if (tasks.kind > TaskKind.ALLREDUCE).any() and not rounds:
        raise InputError(
            "task graph: the .fbuf format knows no ReduceScatter or AllGather; give "
            "--allreduce rounds"
        )
    kept = _kept(tasks, updates, rounds)
    if rounds:
        whole = unrolled(tasks, rings, cut)
        kept = np.concatenate((kept, np.arange(tasks.tasks, whole.tasks)))
        tasks = whole
    used = sorted(
        {
            tasks.groups[g]
            for g in np.unique(tasks.first[tasks.kind == TaskKind.ALLREDUCE]).tolist()
            if len(tasks.groups[g]) > 1
        }
    )
    for group in used:
        if not rings.get(group):
            raise InputError(f"AllReduce group {brief(group)} has no rings; give its ring orders")
    sets = jump_lists(network, {group: rings[group] for group in used})
    conn = _connections(network, net_bandwidth)
    counts, shares, lengths, hops = _all_paths(network, routes)
    ring_jumps = [jumps for size in sorted(sets) for jumps in sets[size]]
    return FbufFile(
        gpus_per_node=gpus_per_node,
        nodes=hosts,
        switches=0,
        intergpu_bandwidth=_single(intergpu_bandwidth / MILLISECONDS) * MILLISECONDS,
        dram_bandwidth=_single(DRAM_BANDWIDTH / MILLISECONDS) * MILLISECONDS,
        net_bandwidth=_single(net_bandwidth / MILLISECONDS) * MILLISECONDS,
        conn_source=conn[0],
        conn_target=conn[1],
        conn_cables=conn[2],
        op_id=np.arange(1, len(operators) + 1, dtype=np.uint64),
        op_type=np.zeros(len(operators), dtype=np.uint64),
        op_name=tuple(operators),
        route_source=np.repeat(np.arange(hosts), hosts),
        route_target=np.tile(np.arange(hosts), hosts),
        route_offsets=starts(counts),
        path_chance=np.array(shares, dtype=np.float32).astype(np.float64),
        hop_offsets=starts(lengths),
        hops=np.array(hops, dtype=np.int64),
        ring_size=np.array(sorted(sets), dtype=np.int64),
        ring_offsets=starts([len(sets[size]) for size in sorted(sets)]),
        jump_offsets=starts([len(jumps) for jumps in ring_jumps]),
        jumps=np.array([j for jumps in ring_jumps for j in jumps], dtype=np.int64),
        **_tasks(tasks, rings, kept, net_bandwidth),
    )


def _single(value: float) -> float:
    return float(np.float32(value))


def _connections(network: Network, rate: float) -> tuple[Ints, Ints, Ints]:
    """Return (higher node, lower node, cables) of each joined pair."""
    cables: dict[tuple[int, int], int] = {}
    for link in range(network.links):
        a, b = int(network.source[link]), int(network.target[link])
        count = int(network.multiplicity[link])
        if not np.isclose(network.capacity[link], count * rate, rtol=1e-6, atol=0.0):
            raise InputError(
                f"link {a}->{b} carries {network.capacity[link]:g} bytes/s over "
                f"{counted(count, 'cable')}, but a port {rate:g} bytes/s; a .fbuf file knows one "
                "rate for all cables"
            )
        pair = (max(a, b), min(a, b))
        if cables.setdefault(pair, count) != count:
            raise InputError(
                f"links {a}->{b} and {b}->{a} have {counted(count, 'cable')} and {cables[pair]}; a "
                ".fbuf file joins a pair by as many in both directions; choose "
                "bidirectional ports (--ports bidirectional)"
            )
    pairs = sorted(cables)
    return (
        np.array([pair[0] for pair in pairs], dtype=np.int64),
        np.array([pair[1] for pair in pairs], dtype=np.int64),
        np.array([cables[pair] for pair in pairs], dtype=np.int64),
    )


def _kept(tasks: TaskGraph, updates: Updates, rounds: bool) -> Ints:
    """Return the tasks to write: all but updates after AllReduces, if these are to be omitted."""
    if rounds and updates is Updates.REFUSE:
        return np.arange(tasks.tasks)
    before, after = edges_of(tasks)
    waits = np.zeros(tasks.tasks, dtype=bool)
    waits[after[tasks.crossing[before]]] = True
    if not waits.any():
        return np.arange(tasks.tasks)
    ends = np.diff(tasks.successor_offsets) == 0
    plain = (tasks.kind == TaskKind.COMPUTE) & (tasks.phase == Phase.UPDATE) & ends
    if rounds:
        return np.flatnonzero(~(waits & plain))
    if np.any(waits & ~plain):
        raise InputError(
            f"task {int(np.argmax(waits & ~plain))} waits for an AllReduce, and other tasks for "
            "it; a .fbuf file cannot say what follows an AllReduce, so remove that dependency or "
            "give --allreduce rounds"
        )
    if updates is Updates.REFUSE:
        seconds = tasks.size[waits].sum()
        raise InputError(
            f"{counted(int(waits.sum()), 'optimizer step waits', 'optimizer steps wait')} for an "
            f"AllReduce ({seconds * 1e3:.3g} ms in all); a .fbuf file cannot say what follows an "
            "AllReduce, so give --omit-updates or --allreduce rounds"
        )
    return np.flatnonzero(~waits)


def _tasks(
    tasks: TaskGraph, rings: Mapping[Group, Rings], kept: Ints, rate: float
) -> dict[str, Any]:
    """Return the fields of tasks and devices of the file."""
    hosts = tasks.servers
    kind, first, second = tasks.kind[kept], tasks.first[kept], tasks.second[kept]
    ids = np.zeros(tasks.tasks, dtype=np.int64)
    ids[kept] = np.arange(1, kept.size + 1)
    lists = [
        [int(ids[s]) for s in tasks.successors[a:b].tolist() if ids[s]]
        for a, b in zip(
            tasks.successor_offsets[kept].tolist(),
            tasks.successor_offsets[kept + 1].tolist(),
            strict=True,
        )
    ]
    phase = tasks.phase[kept]
    types = np.full(kept.size, FbufTask.FORWARD, dtype=np.int64)
    for value, named in _COMPUTE_TYPES.items():
        types[phase == value] = named
    moves = kind == TaskKind.TRANSFER
    types[moves] = FbufTask.NOMINAL_COMM
    types[kind == TaskKind.ALLREDUCE] = FbufTask.ALLREDUCE

    pairs, pair_of = np.unique(first[moves] * hosts + second[moves], return_inverse=True)
    device = np.where(kind == TaskKind.COMPUTE, first + 1, 0)
    device[moves] = tasks.devices + 1 + pair_of
    crosses = tasks.crossing[kept]
    idle: list[int] = []  # servers of the barriers' own devices
    for task in np.flatnonzero(kind == TaskKind.ALLREDUCE).tolist():
        group = tasks.groups[first[task]]
        if not crosses[task] and (len(group) > 1 or lists[task]):
            # Nothing can follow an AllReduce, but a task that takes as long on a device of its own.
            types[task] = FbufTask.BARRIER
            idle.append(group[0])
            device[task] = tasks.devices + pairs.size + len(idle)
        else:
            lists[task] = list(rings[group][0] if len(group) > 1 else group)

    runtime = np.where(kind == TaskKind.COMPUTE, tasks.size[kept], tasks.delay[kept])
    runtime[moves] = tasks.size[kept][moves] / rate
    amount = np.where(kind == TaskKind.COMPUTE, 0.0, tasks.size[kept])
    if amount.max(initial=0.0) >= _MOST_BYTES:
        raise InputError(f"a task moves {amount.max():g} bytes; a .fbuf file holds below 2^63")
    # Rounding must not make a transfer of nothing.
    whole = np.where(amount > 0.0, np.maximum(np.rint(amount), 1.0), 0.0)
    whole[types == FbufTask.BARRIER] = 0.0
    processors = tasks.server_of_device
    extra = np.array(idle, dtype=np.int64)
    computing = np.concatenate((processors, np.zeros(pairs.size, np.int64), extra))
    node = computing.astype(np.uint64)
    network = slice(processors.size, processors.size + pairs.size)
    node[network] = NO_NODE
    properties = computing.copy()
    properties[network] = pairs
    device_type = np.full(node.size, FbufDevice.GPU, dtype=np.int64)
    device_type[network] = FbufDevice.NOMINAL_NETWORK
    return {
        "task_type": types,
        "task_id": np.arange(1, kept.size + 1, dtype=np.uint64),
        "task_device": device.astype(np.uint64),
        "task_runtime": (runtime * MILLISECONDS).astype(np.float32).astype(np.float64)
        / MILLISECONDS,
        "task_bytes": whole.astype(np.uint64),
        "next_offsets": starts([len(entries) for entries in lists]),
        "next_ids": np.array([e for entries in lists for e in entries], dtype=np.uint64),
        "device_type": device_type,
        "device_id": np.arange(1, node.size + 1, dtype=np.uint64),
        "device_node": node,
        "device_property": properties.astype(np.uint64),
        "device_bytes_per_ms": np.zeros(node.size, dtype=np.uint64),
    }


def _all_paths(
    network: Network, routes: Routes
) -> tuple[list[int], list[float], list[int], list[int]]:
    """Return paths a pair, shares, nodes a path and nodes, of every ordered pair of hosts.

    A host has no path to itself.
    """
    hosts = routes.hosts
    counts: list[int] = []
    shares: list[float] = []
    lengths: list[int] = []
    hops: list[int] = []
    unrouted = np.diff(routes.offsets) == 0
    unrouted[:: hosts + 1] = False
    if unrouted.any():
        source, target = divmod(int(np.argmax(unrouted)), hosts)
        raise InputError(
            f"the pair {source}->{target} has no route, and a .fbuf file needs one for each; "
            "route that pair"
        )
    for source in range(hosts):
        for target in range(hosts):
            paths = pair_paths(network, routes, source, target)
            counts.append(len(paths))
            for path, share in paths:
                shares.append(share)
                lengths.append(len(path))
                hops.extend(path)
    return counts, shares, lengths, hops
