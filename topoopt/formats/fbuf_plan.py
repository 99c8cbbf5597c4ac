"""The task-graph file of a plan."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.operator_records import OperatorQuestion
from parallelism.taskgraph import TaskGraph
from parallelism.transformers.records import LayoutRecord
from topoopt.evaluate.scheduling import chained_tasks, ordered_tasks
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.orders import collective_rounds
from topoopt.fabric.represented import whole_tasks
from topoopt.fabric.rolled import rolled
from topoopt.fabric.simulation import score
from topoopt.formats.fbuf_export import Updates, fbuf_of
from topoopt.formats.fbuf_file import FbufFile
from topoopt.formats.fbuf_ring_routes import fabric_of
from topoopt.formats.fbuf_rounds import message_routes
from topoopt.formats.taskgraph_fbuf import task_graph_of
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import rebuild
from topoopt.problem.schedule import ORDERED
from topoopt.problem.units import format_time

# A file whose iteration takes another time than the plan's, by more than this, is refused.
_ALIKE = 1e-3


class AllReduces(StrEnum):
    """How AllReduces are written.

    ``rings``: as AllReduces with ring sets, which can say only groups of every k-th server and
    rings of equal steps, and which TopoOpt's packet simulator runs on the right servers only
    where a group is all of them. ``rounds``: as messages, round by round. ``auto``: as rings where
    every group is all servers, none goes over trees (`topoopt.fabric.ring_trees`), and the format
    can say them and what waits for them; as rounds otherwise.
    """

    AUTO = "auto"
    RINGS = "rings"
    ROUNDS = "rounds"


def plan_fbuf(
    plan: Plan,
    *,
    updates: Updates = Updates.REFUSE,
    allreduces: AllReduces = AllReduces.AUTO,
) -> FbufFile:
    """Return the task-graph file of a plan: one iteration on the plan's own network.

    Buckets of a plan that has no other schedule are in it. Where only the order of compute is
    scheduled, it becomes dependencies between the tasks of each device, because the format has no
    priorities.

    Parameters
    ----------
    plan : Plan
    updates : Updates
        What becomes of optimizer steps that wait for an AllReduce. Rounds can say them, and do so
        unless they are to be omitted.
    allreduces : AllReduces
        See there.

    Returns
    -------
    FbufFile

    Raises
    ------
    InputError
        If the plan is not well formed, `fbuf_of` cannot express it, or the file would be of an
        iteration that takes another time in the fluid model.
    """
    built = rebuild(plan)
    tasks = whole_tasks(built.tasks())
    if built.schedule.only_fuses:
        tasks, _ = ordered_tasks(built.fabric, tasks, built.schedule)
    elif built.schedule == ORDERED:
        tasks = chained_tasks(built.fabric, tasks, built.schedule)
    return iteration_fbuf(
        tasks,
        built.fabric,
        net_bandwidth=plan.cluster.bandwidth_bytes_per_s,
        latency=plan.cluster.latency_s,
        gpus_per_node=plan.job.server.gpus,
        intergpu_bandwidth=plan.job.server.intra_bandwidth,
        operators=_operators(plan),
        updates=updates,
        allreduces=allreduces,
    )


def iteration_fbuf(
    tasks: TaskGraph,
    fabric: Fabric,
    *,
    net_bandwidth: float,
    latency: float,
    gpus_per_node: int,
    intergpu_bandwidth: float,
    operators: Sequence[str] = (),
    updates: Updates = Updates.REFUSE,
    allreduces: AllReduces = AllReduces.AUTO,
) -> FbufFile:
    """Return the task-graph file of one iteration on a direct-connect fabric.

    Parameters
    ----------
    tasks : TaskGraph
    fabric : Fabric
    net_bandwidth : float
        Bytes/s of a port.
    latency : float
        Seconds of a hop, which the file does not hold.
    gpus_per_node, intergpu_bandwidth, operators, updates
        As in `fbuf_of`.
    allreduces : AllReduces

    Returns
    -------
    FbufFile

    Raises
    ------
    InputError
        If `fbuf_of` cannot express it, or the file would be of an iteration that takes another
        time in the fluid model.
    """
    used = {tasks.groups[g] for g in tasks.first[tasks.collective].tolist()}
    used = {group for group in used if len(group) > 1}
    rings = {group: fabric.rings_of(group) for group in sorted(used)}
    cut = _by_trees(fabric, tasks)
    if cut and allreduces is AllReduces.RINGS:
        raise InputError(
            f"{counted(len(cut), 'AllReduce goes', 'AllReduces go')} over trees of ring edges, "
            "which ring sets of the .fbuf format cannot say; export AllReduces in rounds"
        )

    def written(rounds: bool) -> FbufFile:
        file = fbuf_of(
            tasks,
            fabric.network,
            (message_routes(fabric, tasks, rings) if rounds else fabric.routes).complete(),
            rings,
            gpus_per_node=gpus_per_node,
            intergpu_bandwidth=intergpu_bandwidth,
            net_bandwidth=net_bandwidth,
            operators=operators,
            updates=updates,
            rounds=rounds,
            cut=cut,
        )
        _check_time(file, fabric, tasks, latency, updates)
        return file

    if allreduces is not AllReduces.AUTO:
        return written(allreduces is AllReduces.ROUNDS)
    if cut or any(len(group) < fabric.network.hosts for group in used):
        return written(rounds=True)
    try:
        return written(rounds=False)
    except InputError:
        return written(rounds=True)


def _by_trees(fabric: Fabric, tasks: TaskGraph) -> dict[int, tuple[float, float]]:
    """Return rounds and messages of the collectives that take others than rings do."""
    reduces = np.flatnonzero(tasks.collective)
    rounds, message = collective_rounds(fabric, tasks, reduces)
    members = np.array([len(group) for group in tasks.groups] + [0])[tasks.first[reduces]]
    other = (members > 1) & (rounds != tasks.passes[reduces] * (members - 1))
    return {
        int(task): (float(count), float(size))
        for task, count, size in zip(reduces[other], rounds[other], message[other], strict=True)
    }


def _check_time(
    file: FbufFile, fabric: Fabric, tasks: TaskGraph, latency: float, updates: Updates
) -> None:
    """Refuse a file that is another iteration than the plan's."""
    if not file.conn_source.size:
        return  # a single server sends nothing
    read = rolled(task_graph_of(file).graph)
    own = fabric_of(file, latency)
    there = score(replace(own, rings={**own.rings, **read.rings}), read.tasks)
    # What the file leaves out is left out of the plan's, too.
    here = score(fabric, tasks if updates is Updates.REFUSE else read.tasks)
    if abs(there - here) > _ALIKE * here:
        raise InputError(
            f"the file's iteration would take {format_time(there)} in the fluid model in place of "
            f"{format_time(here)}, because its routes or rings do not fit the .fbuf format; write "
            "the network alone (.json, .graphml); of a plan the other --allreduce or planning with "
            "--confirm packet may help"
        )


def _operators(plan: Plan) -> list[str]:
    """Return the names of what tasks belong to: operators, or parts of a transformer."""
    if isinstance(plan.job, OperatorQuestion):
        return [op.name for op in plan.job.model.operators]
    assert isinstance(plan.parallelization, LayoutRecord)
    layout = plan.parallelization.layout
    return [f"part_{part}" for part in range(layout.pipeline * layout.virtual_stages)]
