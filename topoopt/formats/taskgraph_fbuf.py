"""From a task-graph file to the task graph that the fabric simulates."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Ints
from codesign_base.rows import starts
from parallelism.taskgraph import Group, Phase, TaskGraph, TaskKind
from topoopt.formats.fbuf_check import dependencies, find
from topoopt.formats.fbuf_file import FbufDevice, FbufFile, FbufTask

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
    """A task graph and where its parts are in the file.

    Parameters
    ----------
    graph : TaskGraph
        Tasks by ascending id. ``operator`` is -1, because the format does not say which operator
        a task belongs to.
    compute_devices : int
        The first devices of the graph are processors; the ones after serve transfers inside a
        node.
    orders : dict of tuple of int to tuple of int
        The members of each AllReduce's group, in the order in which the file lists them first.
    """

    graph: TaskGraph
    compute_devices: int
    orders: dict[Group, Group]

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
        if graph.groups[first] not in self.orders:
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
    tasks keep their followers. A barrier takes its stored runtime (zero) and no resource; a device
    of barriers only is none of the graph's.

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
    computing = (file.device_type == FbufDevice.GPU) | (file.device_type == FbufDevice.CPU)
    processor = computing[used]
    # Every processor counts, also one without work, but not what only carries barriers, which
    # `fbuf_of` gives devices of their own; in order of nodes.
    waits = kind == FbufTask.BARRIER
    carrier = np.setdiff1d(device[waits], device[~waits])
    computing[carrier[carrier >= 0]] = False
    processors = np.flatnonzero(computing & (file.device_node < np.uint64(file.nodes)))
    processors = processors[np.lexsort((file.device_property[processors], place[processors]))]
    devices = np.concatenate((processors, used[~processor]))
    number = np.full(file.device_id.size, -1, dtype=np.int64)
    number[devices] = np.arange(devices.size)

    reduces = (kind == FbufTask.ALLREDUCE) | (kind == FbufTask.BARRIER)
    orders, groups, group_of = _groups(file, index, device, place)
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
            ids=file.task_id[index].astype(np.int64),
        ),
        compute_devices=int(processors.size),
        orders=orders,
    )


def _groups(
    file: FbufFile, index: Ints, device: Ints, place: Ints
) -> tuple[dict[Group, Group], tuple[Group, ...], Ints]:
    """Return the stored order of each AllReduce's group, the sorted groups, and each task's."""
    orders: dict[Group, Group] = {}
    groups: dict[Group, int] = {}
    which = np.full(index.size, -1, dtype=np.int64)
    kind = file.task_type[index]
    for task in np.flatnonzero(kind == FbufTask.ALLREDUCE).tolist():
        members = tuple(file.nexts(index[task]).tolist())
        group = tuple(sorted(members))
        orders.setdefault(group, members)
        which[task] = groups.setdefault(group, len(groups))
    for task in np.flatnonzero(kind == FbufTask.BARRIER).tolist():
        node = int(place[device[task]]) if device[task] >= 0 else 0
        which[task] = groups.setdefault((node,), len(groups))
    return orders, tuple(groups), which
