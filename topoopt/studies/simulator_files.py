"""Tasks on their own network as the files of other simulators."""

from typing import Any

from codesign_base import InputError
from topoopt.base.directory import mark_text
from topoopt.fabric.represented import whole_tasks
from topoopt.fabric.simulate import simulate
from topoopt.formats.astra_sim import astra_sim_files
from topoopt.formats.chakra_export import chakra_files
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_time
from topoopt.studies.workload import EXPORT_FILE, Workload, scheduled_workload

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
