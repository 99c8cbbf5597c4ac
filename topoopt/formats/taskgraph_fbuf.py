"""From a task-graph file to the objects that the fabric plays: tasks, network, routes, rings."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import Phase, TaskGraph, TaskKind
from routing.network import Network
from routing.routes import Routes
from topoopt.formats.fbuf_check import dependencies, find
from topoopt.formats.fbuf_file import (
    FbufDevice,
    FbufFile,
    FbufTask,
    FloatArray,
    IntArray,
    WordArray,
    spread,
    starts,
)
from topoopt.formats.fbuf_rings import ring_orders

Group = tuple[int, ...]
_PHASES = {
    FbufTask.FORWARD: Phase.FORWARD,
    FbufTask.BACKWARD: Phase.BACKWARD,
    FbufTask.UPDATE: Phase.UPDATE,
    FbufTask.COMM: Phase.ACTIVATION,
    FbufTask.NOMINAL_COMM: Phase.ACTIVATION,
    FbufTask.BARRIER: Phase.SYNCHRONISE,
    FbufTask.ALLREDUCE: Phase.SYNCHRONISE,
}


@dataclass(frozen=True, eq=False)
class FbufTasks:
    """A task graph and where its parts stand in the file.

    Parameters
    ----------
    graph : TaskGraph
        Tasks by ascending id. ``operator`` is -1, because the format does not say which operator
        a task belongs to.
    index : int64 array, shape (tasks,)
        Place in the file of each task.
    task_id : uint64 array, shape (tasks,)
    device_id : uint64 array, shape (devices,)
        The file's id of each device of the graph.
    compute_devices : int
        The first devices of the graph are processors; the ones after serve transfers inside a
        node.
    stored_groups : tuple of tuple of int
        Distinct groups, members in the order in which the file lists them.
    stored_group : int64 array, shape (tasks,)
        Index into ``stored_groups`` of each AllReduce, -1 for other tasks.
    """

    graph: TaskGraph
    index: IntArray
    task_id: WordArray
    device_id: WordArray
    compute_devices: int
    stored_groups: tuple[Group, ...]
    stored_group: IntArray

    def label(self, task: int) -> str:
        """Return what a trace calls a task."""
        graph = self.graph
        kind, first = TaskKind(graph.kind[task]), int(graph.first[task])
        if kind is TaskKind.TRANSFER:
            return f"transfer {first}->{graph.second[task]}"
        if kind is TaskKind.COMPUTE:
            if first >= self.compute_devices:
                return f"transfer inside server {graph.server_of_device[first]}"
            phase = Phase(graph.phase[task]).name.lower()
            return f"{phase} on server {graph.server_of_device[first]}"
        if self.stored_group[task] < 0:
            return "barrier"
        return f"AllReduce of {len(graph.groups[first])} servers"


def task_graph_of(file: FbufFile) -> FbufTasks:
    """Return the task graph of a file.

    Forward, backward and update tasks compute on their device. Communication on a network device
    is a transfer from its source to its destination node. Communication on any other device, or
    from a node to itself, stays inside the node: it occupies that device for its stored runtime,
    one task at a time, and no link. An AllReduce waits for its stored runtime (the reduction
    inside each server) and then reduces its bytes over its group; over one node it takes that
    runtime only. Nothing can wait for an AllReduce, because the file keeps its group where other
    tasks keep their followers. A barrier takes its stored runtime (zero) and no resource.

    Parameters
    ----------
    file : FbufFile

    Returns
    -------
    FbufTasks

    Raises
    ------
    InputError
        If a task names one that does not exist, or cannot run where it is placed.
    """
    index = np.argsort(file.task_id, kind="stable").astype(np.int64)
    rank = np.empty_like(index)
    rank[index] = np.arange(index.size)
    kind = file.task_type[index]
    if not file.device_id.size and index.size and np.any(kind < FbufTask.BARRIER):
        raise InputError("the task graph has tasks but no devices; give each task its device")
    device = find(file.device_id, file.task_device[index])
    nodes = file.nodes + file.switches

    moves = (kind == FbufTask.COMM) | (kind == FbufTask.NOMINAL_COMM)
    network = np.isin(file.device_type, (FbufDevice.NETWORK, FbufDevice.NOMINAL_NETWORK))
    ends = np.divmod(file.device_property.astype(np.int64), nodes)
    crosses = np.zeros(index.size, dtype=bool)
    crosses[moves] = (network & (ends[0] != ends[1]))[device[moves]]
    place = np.where(network, ends[0], file.device_node.astype(np.int64))

    used = np.unique(
        device[(moves & ~crosses) | (kind < FbufTask.COMM) | (kind == FbufTask.UPDATE)]
    )
    processor = ((file.device_type == FbufDevice.GPU) | (file.device_type == FbufDevice.CPU))[used]
    # Every processor counts, also one without work; in order of nodes.
    processors = np.flatnonzero(
        ((file.device_type == FbufDevice.GPU) | (file.device_type == FbufDevice.CPU))
        & (file.device_node < np.uint64(file.nodes))
    )
    processors = processors[np.lexsort((file.device_property[processors], place[processors]))]
    devices = np.concatenate((processors, used[~processor]))
    number = np.full(file.device_id.size, -1, dtype=np.int64)
    number[devices] = np.arange(devices.size)

    reduces = (kind == FbufTask.ALLREDUCE) | (kind == FbufTask.BARRIER)
    stored_groups, stored_group, groups, group_of = _groups(file, index, device, place)
    computes = ~crosses & ~reduces
    first = np.where(reduces, group_of, -1)
    first[computes] = number[device[computes]]
    first[crosses] = ends[0][device[crosses]]
    second = np.full(index.size, -1, dtype=np.int64)
    second[crosses] = ends[1][device[crosses]]
    runtime = file.task_runtime[index]
    size = file.task_bytes[index].astype(np.float64)
    size[computes] = runtime[computes]
    size[kind == FbufTask.BARRIER] = 0.0

    before, after = dependencies(file)
    before, after = rank[before], rank[after]
    order = np.argsort(before, kind="stable")
    offsets = starts(np.bincount(before, minlength=index.size))
    phase = np.array([_PHASES[FbufTask(t)] for t in range(7)], dtype=np.int64)[kind]
    # Transfers that lead to a backward task bring gradients back.
    returns = np.zeros(index.size, dtype=bool)
    returns[before[phase[after] == Phase.BACKWARD]] = True
    phase[moves & returns] = Phase.GRADIENT
    zeros = np.zeros(index.size, dtype=np.int64)
    return FbufTasks(
        graph=TaskGraph(
            servers=file.nodes,
            devices=int(devices.size),
            kind=np.where(reduces, TaskKind.ALLREDUCE, crosses * TaskKind.TRANSFER),
            first=first,
            second=second,
            size=size,
            delay=np.where(reduces, runtime, 0.0),
            operator=zeros - 1,
            phase=phase,
            part=zeros,
            successor_offsets=offsets,
            successors=after[order],
            predecessors=np.bincount(after, minlength=index.size).astype(np.int64),
            groups=groups,
            server_of_device=place[devices],
        ),
        index=index,
        task_id=file.task_id[index],
        device_id=file.device_id[devices],
        compute_devices=int(processors.size),
        stored_groups=stored_groups,
        stored_group=stored_group,
    )


def _groups(
    file: FbufFile, index: IntArray, device: IntArray, place: IntArray
) -> tuple[tuple[Group, ...], IntArray, tuple[Group, ...], IntArray]:
    """Return distinct stored groups and each task's, then distinct sorted ones and each task's."""
    stored: dict[Group, int] = {}
    groups: dict[Group, int] = {}
    which = np.full(index.size, -1, dtype=np.int64)
    sorted_which = np.full(index.size, -1, dtype=np.int64)
    kind = file.task_type[index]
    for task in np.flatnonzero(kind == FbufTask.ALLREDUCE).tolist():
        members = tuple(file.nexts(index[task]).tolist())
        which[task] = stored.setdefault(members, len(stored))
        sorted_which[task] = groups.setdefault(tuple(sorted(members)), len(groups))
    for task in np.flatnonzero(kind == FbufTask.BARRIER).tolist():
        node = int(place[device[task]]) if device[task] >= 0 else 0
        sorted_which[task] = groups.setdefault((node,), len(groups))
    return tuple(stored), which, tuple(groups), sorted_which


def network_of(file: FbufFile, latency: float = 1e-6, name: str = "task-graph file") -> Network:
    """Return the network that a file describes: cables carry the file's port rate both ways.

    Parameters
    ----------
    file : FbufFile
    latency : float
        Seconds of each hop, which the file does not hold (the published simulations take 1 us).
    name : str

    Returns
    -------
    Network

    Raises
    ------
    InputError
        If it has no connections, no port rate, or two numbers of cables for one pair.
    """
    if not file.conn_source.size or file.net_bandwidth <= 0.0:
        raise InputError(
            "the task graph holds no connections or no network bandwidth; name another fabric"
        )
    cables: dict[tuple[int, int], int] = {}
    for a, b, count in zip(
        file.conn_source.tolist(), file.conn_target.tolist(), file.conn_cables.tolist(), strict=True
    ):
        pair = (min(a, b), max(a, b))
        if cables.setdefault(pair, count) != count:
            raise InputError(
                f"nodes {a} and {b} are joined by {cables[pair]} and by {count} cables; the "
                "format means both directions at once, so keep one"
            )
    ends = sorted([*cables, *((b, a) for a, b in cables)])
    multiplicity = np.array([cables[min(e), max(e)] for e in ends], dtype=np.int64)
    return Network(
        name=name,
        hosts=file.nodes,
        switches=file.switches,
        source=np.array([a for a, _ in ends], dtype=np.int64),
        target=np.array([b for _, b in ends], dtype=np.int64),
        capacity=multiplicity.astype(np.float64) * file.net_bandwidth,
        latency=np.full(len(ends), latency),
        multiplicity=multiplicity,
    )


def routes_of(file: FbufFile, network: Network) -> Routes:
    """Return the routes that a file gives the pairs of hosts.

    Parameters
    ----------
    file : FbufFile
    network : Network
        From `network_of`.

    Returns
    -------
    Routes
        Chances of each pair scaled to sum to 1.

    Raises
    ------
    InputError
        If a pair has no route or two, or a path uses a link that does not exist.
    """
    hosts = network.hosts
    crosses = (file.route_source < hosts) & (file.route_target < hosts)
    crosses &= file.route_source != file.route_target
    counts = np.diff(file.route_offsets)
    routed = np.sort((file.route_source * hosts + file.route_target)[crosses & (counts > 0)])
    twice = np.flatnonzero(routed[1:] == routed[:-1])
    if twice.size:
        a, b = divmod(int(routed[twice[0]]), hosts)
        raise InputError(f"the pair {a}->{b} has two routes; keep one")
    # A table of all pairs must not grow beyond what the file gives paths for.
    if routed.size < hosts * (hosts - 1):
        raise InputError(
            f"{routed.size} of the {hosts * (hosts - 1)} ordered pairs of nodes have paths; "
            "give every pair its route"
        )
    route = np.repeat(np.arange(file.route_source.size), counts)
    between = crosses[route]
    pair_of_path = file.route_source[route] * hosts + file.route_target[route]
    paths = np.flatnonzero(between)
    steps = np.diff(file.hop_offsets)[paths] - 1
    at = spread(file.hop_offsets[:-1][paths], steps)
    keys = network.source * network.nodes + network.target
    wanted = file.hops[at] * network.nodes + file.hops[at + 1]
    links = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    missing = np.flatnonzero(keys[links] != wanted)
    if missing.size:
        a, b = divmod(int(wanted[missing[0]]), network.nodes)
        raise InputError(f"a path goes from {a} to {b}, which no connection joins; mend the path")
    total = np.bincount(pair_of_path[paths], file.path_chance[paths], minlength=hosts * hosts)
    if np.any(total[pair_of_path[paths]] <= 0.0):
        pair = pair_of_path[paths][np.argmin(total[pair_of_path[paths]])]
        a, b = divmod(int(pair), hosts)
        raise InputError(
            f"the paths of the pair {a}->{b} have no chance; give shares that sum to 1"
        )
    share = file.path_chance[paths] / total[pair_of_path[paths]]
    # A link in several paths of a pair carries the sum of their shares.
    row = np.repeat(pair_of_path[paths], steps)
    entries, inverse = np.unique(row * network.links + links, return_inverse=True)
    summed = _summed(inverse, np.repeat(share, steps), entries.size)
    used = summed > 0.0
    entries, weights = entries[used], np.minimum(summed[used], 1.0)
    rows = entries // network.links
    latency = np.zeros(hosts * hosts)
    slowest = np.bincount(
        np.repeat(np.arange(paths.size), steps), network.latency[links], minlength=paths.size
    )
    np.maximum.at(latency, pair_of_path[paths], np.where(share > 0.0, slowest, 0.0))
    return Routes(
        hosts=hosts,
        offsets=starts(np.bincount(rows, minlength=hosts * hosts)),
        links=(entries % network.links).astype(np.int64),
        weights=weights,
        latency=latency,
        hops=_summed(rows, weights, hosts * hosts),
    )


def _summed(rows: IntArray, weights: FloatArray, count: int) -> FloatArray:
    return np.bincount(rows, weights, minlength=count).astype(np.float64)


def rings_of(file: FbufFile) -> Mapping[Group, tuple[Group, ...]]:
    """Return the ring orders of the AllReduce groups of a file.

    Parameters
    ----------
    file : FbufFile

    Returns
    -------
    mapping of tuple of int to tuple of tuple of int
        By sorted group: the rings that the file's ring sets make over it; in files without ring
        sets one ring, in the order in which the (first) AllReduce lists its group.

    Raises
    ------
    InputError
        If the file has ring sets, but none for this size, or they do not visit the group.
    """
    sets = file.ring_jumps()
    found: dict[Group, tuple[Group, ...]] = {}
    for task in np.flatnonzero(file.task_type == FbufTask.ALLREDUCE).tolist():
        members = tuple(file.nexts(task).tolist())
        group = tuple(sorted(members))
        if len(group) < 2 or group in found:
            continue
        found[group] = ring_orders(sets, members, file.nodes) if sets else (members,)
    return found
