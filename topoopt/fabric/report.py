"""The numbers of a simulated iteration: devices, links, completion times, bandwidth tax."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.timeline import (
    Timeline,
    compute_on_critical_path,
    critical_path,
    exposed_communication,
)


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What one device did in an iteration; the three times sum to the iteration.

    Parameters
    ----------
    device, server : int
    busy_s : float
        Computing.
    exposed_communication_s : float
        Idle while what its next task waited for was on the network (see `device_uses`).
    waiting_compute_s : float
        Idle while what its next task waited for was computed on another device.
    """

    device: int
    server: int
    busy_s: float
    exposed_communication_s: float
    waiting_compute_s: float


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one link carried: payload bytes, and their share of what it could carry."""

    link: int
    source: int
    target: int
    capacity_bytes_per_s: float
    bytes: float
    utilisation: float


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion times of the tasks of one kind, from ready to done (nearest rank).

    All times are zero if there is no such task.
    """

    tasks: int
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True)
class Report:
    """The numbers of one simulated iteration.

    Parameters
    ----------
    makespan_s : float
    exposed_communication_s : float
        Makespan minus the compute on the critical path.
    critical_compute_s : float
        Compute on the critical path.
    devices : tuple of DeviceUse
        In order of devices.
    links : tuple of LinkUse
        In order of links; also those that carried nothing.
    transfers, allreduces : Completion
        AllReduces, ReduceScatters and AllGathers over two or more servers, with their delay
        inside the servers.
    transfer_bytes, allreduce_bytes : float
        Bytes that servers have to send to others, forwarding apart: of transfers, and
        2 (g - 1) S of each AllReduce, or half as many of a ReduceScatter or AllGather.
    bandwidth_tax : float
        Bytes that servers send, forwarding included, over those that they have to: the mean
        number of links that a byte takes without switches, 1 with switches; 1 without traffic.
    """

    makespan_s: float
    exposed_communication_s: float
    critical_compute_s: float
    devices: tuple[DeviceUse, ...]
    links: tuple[LinkUse, ...]
    transfers: Completion
    allreduces: Completion
    transfer_bytes: float
    allreduce_bytes: float
    bandwidth_tax: float

    def hottest(self, count: int) -> tuple[LinkUse, ...]:
        """Return the links that are used most, the most used first, ties by number."""
        # Loads that differ by the rounding of their sums are ties.
        ranked = sorted(self.links, key=lambda link: (-round(link.utilisation, 9), link.link))
        return tuple(link for link in ranked[:count] if link.bytes > 0.0)


def collective_noun(tasks: TaskGraph) -> str:
    """Return what text calls the collectives of a task graph: AllReduces where they all are."""
    return "collectives" if (tasks.kind > TaskKind.ALLREDUCE).any() else "AllReduces"


def report_of(
    fabric: Fabric, tasks: TaskGraph, timeline: Timeline, link_bytes: Floats | None = None
) -> Report:
    """Return the numbers of a simulated iteration.

    Parameters
    ----------
    fabric : Fabric
        Whose links are to be listed.
    tasks : TaskGraph
    timeline : Timeline
    link_bytes : float64 array, shape (links,), optional
        Bytes on each link of the fabric, where the timeline is of one with merged links.

    Returns
    -------
    Report
    """
    carried = timeline.link_bytes if link_bytes is None else link_bytes
    kind = tasks.kind
    sizes = np.array([len(group) for group in tasks.groups] or [1], dtype=np.int64)
    reduces = np.flatnonzero(tasks.collective)
    members = sizes[tasks.first[reduces]]
    moved = float(tasks.size[kind == TaskKind.TRANSFER].sum())
    reduced = float((tasks.passes[reduces] * (members - 1) * tasks.size[reduces]).sum())
    lasted = timeline.finish - timeline.start
    return Report(
        makespan_s=timeline.makespan,
        exposed_communication_s=exposed_communication(tasks, timeline),
        critical_compute_s=compute_on_critical_path(tasks, timeline),
        devices=device_uses(tasks, timeline),
        links=_link_uses(fabric, carried, timeline.makespan),
        transfers=_completion(lasted[kind == TaskKind.TRANSFER]),
        allreduces=_completion(lasted[tasks.crossing]),
        transfer_bytes=moved,
        allreduce_bytes=reduced,
        bandwidth_tax=_tax(fabric, carried, moved + reduced),
    )


def device_uses(tasks: TaskGraph, timeline: Timeline) -> tuple[DeviceUse, ...]:
    """Return how long each device was busy, and what it waited for otherwise.

    A task on an idle device begins when the last of its predecessors finishes, that one began
    when its own last predecessor had finished (or the task before it on its device), and so on:
    a chain without gaps. Each instant at which the device is idle belongs to the one task of
    the chain of the device's next task that is under way then. It is exposed communication if
    that is a transfer or an AllReduce (with its delay inside the servers), and waiting for
    compute otherwise. After the device's last task the chain is the critical path: the device
    waits for the end of the iteration.

    Parameters
    ----------
    tasks : TaskGraph
    timeline : Timeline

    Returns
    -------
    tuple of DeviceUse
    """
    start, finish = timeline.start.tolist(), timeline.finish.tolist()
    binding = timeline.binding.tolist()
    network = (tasks.kind != TaskKind.COMPUTE).tolist()
    end = timeline.makespan
    path = critical_path(tasks, timeline)
    last = path[-1] if path else -1

    def exposed(task: int, begin: float, until: float) -> float:
        """Seconds of network tasks on the chain that ends with a task, within an interval."""
        found = 0.0
        while task >= 0 and until > begin:
            if network[task]:
                found += max(min(finish[task], until) - max(start[task], begin), 0.0)
            until = min(until, start[task])
            task = binding[task]
        return found

    uses = []
    for device, order in enumerate(_by_device(tasks, timeline)):
        at = waited = on_network = 0.0
        for task in order.tolist():
            if start[task] > at:
                waited += start[task] - at
                on_network += exposed(binding[task], at, start[task])
            at = max(at, finish[task])
        if end > at:
            waited += end - at
            on_network += exposed(last, at, end)
        uses.append(
            DeviceUse(
                device=device,
                server=int(tasks.server_of_device[device]),
                busy_s=float(timeline.device_busy[device]),
                exposed_communication_s=on_network,
                waiting_compute_s=max(waited - on_network, 0.0),
            )
        )
    return tuple(uses)


def _by_device(tasks: TaskGraph, timeline: Timeline) -> list[Ints]:
    """Return the compute tasks of each device in the order in which they ran."""
    compute = np.flatnonzero(tasks.kind == TaskKind.COMPUTE)
    device = tasks.first[compute]
    order = compute[np.lexsort((timeline.finish[compute], timeline.start[compute], device))]
    bounds = np.searchsorted(tasks.first[order], np.arange(1, tasks.devices))
    return [part.astype(np.int64) for part in np.split(order, bounds)]


def _link_uses(fabric: Fabric, carried: Floats, makespan: float) -> tuple[LinkUse, ...]:
    network = fabric.network
    # One division after the other, because capacity times makespan may overflow.
    share = carried / network.capacity / makespan if makespan > 0.0 else np.zeros(carried.size)
    columns = (network.source, network.target, network.capacity, carried, share)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(LinkUse(link, *row) for link, row in enumerate(rows))


def _completion(lasted: Floats) -> Completion:
    if not lasted.size:
        return Completion(0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = np.percentile(lasted, (50, 90, 99), method="inverted_cdf").tolist()
    return Completion(int(lasted.size), p50, p90, p99, float(lasted.max()))


def _tax(fabric: Fabric, carried: Floats, needed: float) -> float:
    if needed <= 0.0:
        return 1.0
    network = fabric.network
    return float(carried[network.source < network.hosts].sum()) / needed
