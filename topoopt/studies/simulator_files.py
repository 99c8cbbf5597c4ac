"""Tasks on their own network as the files of other simulators."""

from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.taskgraph import TaskKind
from topoopt.base.directory import mark_text
from topoopt.evaluate.scheduling import ordered_tasks
from topoopt.fabric.report import collective_noun
from topoopt.fabric.represented import whole_tasks
from topoopt.fabric.simulation import simulate
from topoopt.formats.astra_sim import astra_sim_files
from topoopt.formats.chakra_export import chakra_files
from topoopt.formats.fbuf_check import COMPUTES
from topoopt.formats.fbuf_file import FbufFile, FbufTask
from topoopt.formats.fbuf_ring_routes import moved_ring_edges
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import rebuild
from topoopt.problem.schedule import ORDERED, Schedule
from topoopt.problem.units import format_time
from topoopt.studies.workload import (
    EXPORT_FILE,
    Workload,
    fbuf_workload,
    schedule_left_out,
    scheduled_workload,
)

Written = tuple[dict[str, bytes], list[str]]
"""Files by path, and notes."""


def simulator_files(
    workload: Workload, kind: str, latency: float, schedule: Schedule | None = None
) -> Written:
    """Return the files of one iteration.

    Parameters
    ----------
    workload : Workload
    kind : {"chakra", "astra-sim"}
    latency : float
        Seconds of a hop, where the workload does not say.
    schedule : Schedule, optional
        That keeps the barrier and the batch whole: for ``astra-sim`` devices compute in its order.

    Returns
    -------
    files : dict of str to bytes
        By path; ``export.json`` has how they were made, and our time of the iteration.
    notes : list of str

    Raises
    ------
    InputError
        If the format cannot express the tasks, or there is no direct-connect network.
    """
    notes = list(workload.notes)
    said: dict[str, Any] = {"format": kind, "file": workload.name}
    if kind == "chakra":
        files = chakra_files(whole_tasks(workload.tasks), workload.label)
        notes.append("traces hold tasks and groups; network, routes and rings stay in the plan")
        return _marked(files, said, notes)
    if not workload.direct:
        raise InputError(
            f"{workload.name} has no direct-connect network, over which ASTRA-sim's messages go; "
            "give a plan, or wire it first (topoopt wire)"
        )
    fabric = workload.own_fabric(workload.port_rate, latency)
    if schedule is not None:
        workload = scheduled_workload(workload, fabric, schedule)
    tasks = whole_tasks(workload.tasks)
    run = simulate(fabric, tasks)
    files = astra_sim_files(tasks, fabric, run, workload.label)
    said["iteration_time_s"] = run.makespan
    notes.append(f"the fluid model gives this iteration {format_time(run.makespan)}")
    return _marked(files, said, notes)


def _marked(files: dict[str, bytes], said: dict[str, Any], notes: list[str]) -> Written:
    return files | {
        EXPORT_FILE: mark_text(said | {"notes": notes}, files, EXPORT_FILE).encode()
    }, notes


def fbuf_notes(plan: Plan, file: FbufFile) -> list[str]:
    """Return in what the iteration of a plan's task-graph file differs from the plan's.

    Parameters
    ----------
    plan : Plan
    file : FbufFile
        From `topoopt.formats.fbuf_plan.plan_fbuf`.
    """
    built = rebuild(plan)
    tasks, notes = built.tasks(), []
    if built.schedule.only_fuses:
        tasks, _ = ordered_tasks(built.fabric, whole_tasks(tasks), built.schedule)
    elif built.schedule == ORDERED:
        notes = ["the order of compute is in the file, as dependencies between tasks of a device"]
    else:
        notes = schedule_left_out(plan)
    computed = int((tasks.kind == TaskKind.COMPUTE).sum())
    omitted = computed - int(np.isin(file.task_type, COMPUTES).sum())
    if omitted:
        one = "optimizer step that waits for an AllReduce is"
        more = "optimizer steps that wait for an AllReduce are"
        notes.append(f"{counted(omitted, one, more)} left out")
    reduced = int(tasks.crossing.sum())
    if reduced and not file.ring_size.size:
        messages = int((file.task_type == FbufTask.NOMINAL_COMM).sum())
        messages -= int((tasks.kind == TaskKind.TRANSFER).sum())
        noun = collective_noun(tasks).removesuffix("s")
        notes.append(
            f"{counted(reduced, f'{noun} is', f'{noun}s are')} in the file as "
            f"{counted(messages, 'message')}, round by round"
        )
    if not file.ring_size.size:
        return notes
    own = fbuf_workload(file, "file").own_fabric(file.net_bandwidth, plan.cluster.latency_s)
    moved = moved_ring_edges(built.fabric, own)
    if moved:
        notes.append(
            f"{counted(moved, 'ring edge takes', 'ring edges take')} one path in the file, which "
            "the plan splits over several: the format has one list of links a ring"
        )
    if int(file.ring_size.min()) < file.nodes:
        notes.append(
            "TopoOpt's packet simulator runs AllReduces over some of the servers on other ones; "
            "give --allreduce rounds to replay it"
        )
    return notes
