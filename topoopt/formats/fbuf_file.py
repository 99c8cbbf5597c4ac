"""What a TopoOpt task-graph file (.fbuf) holds, as arrays in SI units."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from codesign_base.arrays import Floats, Ints, Words

MILLISECONDS = 1e3
"""Milliseconds in a second: the file counts time in milliseconds, rates in bytes a millisecond."""

NO_NODE = 2**64 - 1
"""What the published files store as the node of a network device."""


class FbufTask(IntEnum):
    """Types of tasks in the file."""

    FORWARD = 0
    BACKWARD = 1
    COMM = 2
    UPDATE = 3
    BARRIER = 4
    NOMINAL_COMM = 5
    ALLREDUCE = 6


class FbufDevice(IntEnum):
    """Types of devices that mean something here; the others are memories and buses of a node."""

    GPU = 0
    CPU = 1
    NETWORK = 13
    NOMINAL_NETWORK = 14


@dataclass(frozen=True, eq=False)
class FbufFile:
    """Everything that a task-graph file holds, in the order of the file.

    Variable-length lists are CSR: list i of ``x`` is ``x[x_offsets[i]:x_offsets[i + 1]]``.

    Parameters
    ----------
    gpus_per_node, nodes, switches : int
    intergpu_bandwidth, dram_bandwidth, net_bandwidth : float
        Bytes per second: between GPUs of a node, of its memory, of one network port.
    conn_source, conn_target, conn_cables : int64 array, shape (connections,)
        Cables between two nodes (switches are the nodes after the hosts), in both directions.
    op_id, op_type : uint64 array, shape (operators,)
    op_name : tuple of str
    task_type : int64 array, shape (tasks,)
        `FbufTask` values.
    task_id, task_device : uint64 array, shape (tasks,)
        ``task_device`` is a device id, 0 for none.
    task_runtime : float64 array, shape (tasks,)
        Seconds. An AllReduce's: reduction inside the servers. A nominal transfer's: an estimate.
    task_bytes : uint64 array, shape (tasks,)
    next_offsets : int64 array, shape (tasks + 1,)
    next_ids : uint64 array
        The task ids that wait for a task; for an AllReduce its nodes, as stored.
    device_type : int64 array, shape (devices,)
        `FbufDevice` values, and others.
    device_id, device_node, device_property, device_bytes_per_ms : uint64 array, shape (devices,)
        Property of a network device: source * (nodes + switches) + destination.
    route_source, route_target : int64 array, shape (routes,)
    route_offsets : int64 array, shape (routes + 1,)
        Paths of each route.
    path_chance : float64 array, shape (paths,)
        Shares of a pair's traffic.
    hop_offsets : int64 array, shape (paths + 1,)
    hops : int64 array
        Nodes of each path, both ends included.
    ring_size : int64 array, shape (ring sets,)
        Group size that the set is for.
    ring_offsets : int64 array, shape (ring sets + 1,)
        Rings of each set.
    jump_offsets : int64 array, shape (rings + 1,)
    jumps : int64 array
        Per ring the links, as differences of node ids, from a member to the next one.
    """

    gpus_per_node: int
    nodes: int
    switches: int
    intergpu_bandwidth: float
    dram_bandwidth: float
    net_bandwidth: float
    conn_source: Ints
    conn_target: Ints
    conn_cables: Ints
    op_id: Words
    op_type: Words
    op_name: tuple[str, ...]
    task_type: Ints
    task_id: Words
    task_device: Words
    task_runtime: Floats
    task_bytes: Words
    next_offsets: Ints
    next_ids: Words
    device_type: Ints
    device_id: Words
    device_node: Words
    device_property: Words
    device_bytes_per_ms: Words
    route_source: Ints
    route_target: Ints
    route_offsets: Ints
    path_chance: Floats
    hop_offsets: Ints
    hops: Ints
    ring_size: Ints
    ring_offsets: Ints
    jump_offsets: Ints
    jumps: Ints

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return int(self.task_id.size)

    def nexts(self, task: int) -> Words:
        """Return the ids that one task lists."""
        return self.next_ids[self.next_offsets[task] : self.next_offsets[task + 1]]

    def ring_jumps(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """Return, per group size, the jumps of each ring."""
        found = {}
        for at, size in enumerate(self.ring_size.tolist()):
            rings = range(self.ring_offsets[at], self.ring_offsets[at + 1])
            found[size] = tuple(
                tuple(self.jumps[self.jump_offsets[r] : self.jump_offsets[r + 1]].tolist())
                for r in rings
            )
        return found
