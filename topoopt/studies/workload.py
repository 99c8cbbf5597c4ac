"""What `topoopt simulate` simulates: the tasks of a task-graph file, of traces or of a plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_path
from parallelism.reading import parse_json, read_text
from parallelism.taskgraph import Group, TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import Rings
from topoopt.fabric.rolled import rolled
from topoopt.formats.chakra_file import load_traces
from topoopt.formats.chakra_import import trace_tasks
from topoopt.formats.fbuf_file import FbufFile
from topoopt.formats.fbuf_read import read_fbuf
from topoopt.formats.fbuf_ring_routes import fabric_of
from topoopt.formats.taskgraph_fbuf import task_graph_of
from topoopt.plan.document import Document, kind_of
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_bytes, format_time

if TYPE_CHECKING:
    from topoopt.plan.plan import Plan

EXPORT_FILE = "export.json"
"""By this file a directory is known for one that may be replaced."""


@dataclass(frozen=True, eq=False)
class Workload:
    """The tasks of one iteration, and what their file says about a network.

    Parameters
    ----------
    name : str
        Of the file, without its ending.
    kind : {"task-graph file", "traces", "plan"}
    tasks : TaskGraph
    label : callable
        What a trace calls a task, by its index.
    processors : int
        The first devices of the task graph are processors; others serve transfers inside a
        server.
    port_rate : float
        Bytes/s of one port, 0 if the file has none.
    ports : int
        Ports of a server.
    latency : float or None
        Seconds of a hop; None if the file does not say.
    direct : bool
        Whether the file has a direct-connect network of its own.
    own_fabric : callable
        Makes the fabric of the file's own network for a port rate (bytes/s) and a latency (s).
    orders : mapping of tuple of int to tuple of tuple of int
        For networks with switches, one ring of each AllReduce group, by its sorted servers, in
        the order in which the file lists them. Groups that are missing go in sorted order.
    notes : tuple of str
        What of the file is not in the tasks.
    """

    name: str
    kind: str
    tasks: TaskGraph
    label: Callable[[int], str]
    processors: int
    port_rate: float
    ports: int
    latency: float | None
    direct: bool
    own_fabric: Callable[[float, float], Fabric]
    orders: Mapping[Group, Rings] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_workload(path: str | Path) -> Workload:
    """Read what is to be simulated.

    Parameters
    ----------
    path : str or Path
        A plan if its name ends in ``.json``, a task-graph file if in ``.fbuf``; a directory
        holds Chakra execution traces.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        If the name has another ending, or the file cannot be read or is malformed.
    """
    check_path("workload", path)
    if Path(path).is_dir():
        if not any(Path(path).glob("*.et")):
            raise InputError(
                f"{str(path)!r} is a directory without Chakra traces PREFIX.RANK.et; name a "
                "directory of them, a task graph (.fbuf) or a plan (.json)"
            )
        if _for_astra_sim(Path(path)):
            raise InputError(
                f"{str(path)!r} is part of an export for ASTRA-sim, whose traces go by its rules "
                "and have each hop as a message; name what was exported, or export it as chakra"
            )
        return trace_workload(path)
    suffix = Path(path).suffix.lower()
    if suffix == ".fbuf":
        return fbuf_workload(read_fbuf(path), Path(path).stem)
    if suffix == ".json":
        from topoopt.plan.plan import parse_plan

        text = read_text(path, "plan file")
        where = f"plan file {str(path)!r}"
        kind = kind_of(parse_json(text, where))
        if kind not in (Document.PLAN, Document.OTHER):
            more = (
                " (simulate runs it on a network with --fabric)" if kind is Document.NETWORK else ""
            )
            raise InputError(
                f"{str(path)!r} is {kind}, and holds no tasks; name a task graph or plan{more}"
            )
        plan = parse_plan(text, where)
        try:
            return plan_workload(plan, Path(path).stem)
        except InputError as error:
            raise type(error)(f"{where}: {error}") from None
    raise InputError(
        f"{str(path)!r} is no directory of traces and ends neither in .fbuf (task graph) nor in "
        ".json (plan); name one of these"
    )


def _for_astra_sim(directory: Path) -> bool:
    """Say whether a directory of traces is one that `astra_sim_files` made."""
    mark = directory.resolve().parent / EXPORT_FILE
    if not mark.is_file():
        return False
    said = parse_json(read_text(mark, "export file"), f"export file {str(mark)!r}")
    if not isinstance(said, dict) or said.get("format") != "astra-sim":
        return False
    name = directory.resolve().name
    return any(str(file).startswith(f"{name}/") for file in said.get("files", ()))


def trace_workload(directory: str | Path) -> Workload:
    """Return the workload of Chakra execution traces.

    Parameters
    ----------
    directory : str or Path

    Returns
    -------
    Workload
        Without a network.

    Raises
    ------
    InputError
        As `topoopt.formats.chakra_file.load_traces` and `trace_tasks`.
    """
    found = trace_tasks(load_traces(directory))

    def own_fabric(_rate: float, _latency: float) -> Fabric:
        raise InputError(f"traces in {directory} hold no network; give --fabric")

    return Workload(
        name=Path(directory).resolve().name,
        kind="traces",
        tasks=found.graph,
        label=lambda task: found.names[task],
        processors=found.processors,
        port_rate=0.0,
        ports=1,
        latency=None,
        direct=False,
        own_fabric=own_fabric,
    )


def fbuf_workload(file: FbufFile, name: str) -> Workload:
    """Return the workload of a task-graph file.

    Parameters
    ----------
    file : FbufFile
    name : str

    Returns
    -------
    Workload
        A file with one switch only, as published, has no direct-connect network.
    """
    found = task_graph_of(file)
    hosts = file.nodes
    degree = np.bincount(
        np.concatenate((file.conn_source, file.conn_target)),
        weights=np.concatenate((file.conn_cables, file.conn_cables)),
        minlength=hosts,
    )[:hosts]
    return Workload(
        name=name,
        kind="task-graph file",
        tasks=found.graph,
        label=found.label,
        processors=found.compute_devices,
        port_rate=file.net_bandwidth,
        ports=max(1, int(degree.max(initial=0.0))),
        latency=None,
        direct=file.switches == 0 and bool(file.conn_source.size),
        own_fabric=lambda rate, latency: fabric_of(file, latency, name, rate),
        orders={group: (order,) for group, order in found.orders.items() if len(group) > 1},
    )


def streams_of(workload: Workload) -> Workload:
    """Return a workload as the fluid model simulates it: collectives written out are streams again.

    Parameters
    ----------
    workload : Workload

    Returns
    -------
    Workload
        With the rings of these collectives; the given one if it has none written out.
    """
    found = rolled(workload.tasks)
    if not found.rings:
        return workload
    tasks = found.tasks

    def label(task: int) -> str:
        group = tasks.groups[tasks.first[task]] if tasks.collective[task] else ()
        if len(group) > 1 and tasks.kind[task] == TaskKind.ALLREDUCE:
            return f"AllReduce of {len(group)} servers"
        if len(group) > 1:
            return f"ReduceScatter or AllGather of {len(group)} servers"
        return workload.label(int(found.place[task]))

    def own_fabric(rate: float, latency: float) -> Fabric:
        fabric = workload.own_fabric(rate, latency)
        return replace(fabric, rings={**fabric.rings, **found.rings})

    return replace(
        workload,
        tasks=tasks,
        label=label,
        own_fabric=own_fabric,
        orders={**found.rings, **workload.orders},
    )


def scheduled_workload(workload: Workload, fabric: Fabric, schedule: Schedule) -> Workload:
    """Return a workload with the buckets and priorities of a schedule.

    Parameters
    ----------
    workload : Workload
    fabric : Fabric
        That it is to be simulated on.
    schedule : Schedule
        That keeps the barrier and the batch whole.

    Returns
    -------
    Workload
        A bucket is called like its last part.

    Raises
    ------
    InputError
        As `topoopt.evaluate.scheduling.ordered_tasks`; or if there are microbatches, or buckets
        without AllReduces.
    """
    from topoopt.evaluate.scheduling import ordered_tasks

    if schedule.microbatches > 1:
        raise InputError(
            f"microbatches is {schedule.microbatches}, but the tasks of a file have their batch; "
            "give 1"
        )
    collective = workload.tasks.collective
    kinds = workload.tasks.kind[collective]
    whole = (kinds == TaskKind.ALLREDUCE) & (workload.tasks.size[collective] > 0.0)
    if schedule.bucket_bytes is not None and kinds.size and not whole.any():
        scatters = (kinds != TaskKind.ALLREDUCE).any()
        raise InputError(
            f"buckets is {format_bytes(schedule.bucket_bytes)}, but {workload.name} "
            f"{'scatters its gradients' if scatters else 'holds its AllReduces as messages'} and "
            f"has no AllReduce to fuse; leave it out{'' if scatters else ', or simulate the plan'}"
        )
    tasks, place = ordered_tasks(fabric, workload.tasks, schedule)
    last = np.empty(tasks.tasks, dtype=np.int64)
    last[place] = np.arange(place.size)
    parts = np.bincount(place, minlength=tasks.tasks)

    def label(task: int) -> str:
        more = f" and {parts[task] - 1} more" if parts[task] > 1 else ""
        return workload.label(int(last[task])) + more

    return replace(workload, tasks=tasks, label=label)


def plan_workload(plan: "Plan", name: str) -> Workload:
    """Return the workload of a plan.

    Parameters
    ----------
    plan : Plan
    name : str

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        If the plan is not well formed.
    """
    from topoopt.plan.rebuild import rebuild

    built = rebuild(plan)
    tasks = built.tasks()
    family = built.family

    def label(task: int) -> str:
        return family.task_label(tasks, task)

    return Workload(
        name=name,
        kind="plan",
        tasks=tasks,
        label=label,
        processors=tasks.devices,
        port_rate=plan.cluster.bandwidth_bytes_per_s,
        ports=plan.cluster.degree,
        latency=plan.cluster.latency_s,
        direct=True,
        own_fabric=lambda _rate, _latency: built.fabric,
        notes=tuple(schedule_left_out(plan)),
    )


def schedule_left_out(plan: "Plan") -> list[str]:
    """Return a sentence on the schedule of a plan whose plain iteration is used; none if plain.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    list of str
    """
    from topoopt.plan.rebuild import rebuild_schedule

    schedule = rebuild_schedule(plan.schedule)
    if schedule == Schedule.plain():
        return []
    return [
        f"the plan's iteration of {format_time(plan.iteration_time_s)} has a schedule "
        f"({schedule.describe()}); this is its plain iteration of "
        f"{format_time(plan.schedule.plain_time_s)}"
    ]
