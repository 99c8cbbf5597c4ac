"""The task-graph file of a plan."""

from enum import StrEnum

from codesign_base import InputError
from parallelism.operator_records import OperatorQuestion
from parallelism.transformers.records import LayoutRecord
from topoopt.evaluate.scheduling import chained_tasks
from topoopt.formats.fbuf_export import Updates, fbuf_of
from topoopt.formats.fbuf_file import FbufFile
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import rebuild
from topoopt.problem.schedule import ORDERED


class AllReduces(StrEnum):
    """How AllReduces are written.

    ``rings``: as AllReduces with ring sets, which can say only groups of every k-th server and
    rings of equal steps, and which TopoOpt's packet simulator runs on the right servers only
    where a group is all of them. ``rounds``: as messages, round by round. ``auto``: as rings where
    every group is all servers and the format can say them and what waits for them; as rounds
    otherwise.
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

    Where only the order of compute is scheduled, it becomes dependencies between the tasks of
    each device, because the format has no priorities.

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
        If the plan is not well formed, or `fbuf_of` cannot express it.
    """
    built = rebuild(plan)
    tasks = built.tasks()
    if built.schedule == ORDERED:
        tasks = chained_tasks(built.fabric, tasks, built.schedule)
    used = {tasks.groups[g] for g in tasks.first[tasks.collective].tolist()}
    used = {group for group in used if len(group) > 1}

    def written(rounds: bool) -> FbufFile:
        return fbuf_of(
            tasks,
            built.fabric.network,
            built.fabric.routes.complete(),
            {group: built.fabric.rings_of(group) for group in sorted(used)},
            gpus_per_node=plan.job.server.gpus,
            intergpu_bandwidth=plan.job.server.intra_bandwidth,
            net_bandwidth=plan.cluster.bandwidth_bytes_per_s,
            operators=_operators(plan),
            updates=updates,
            rounds=rounds,
        )

    if allreduces is not AllReduces.AUTO:
        return written(allreduces is AllReduces.ROUNDS)
    if any(len(group) < plan.cluster.servers for group in used):
        return written(rounds=True)
    try:
        return written(rounds=False)
    except InputError:
        return written(rounds=True)


def _operators(plan: Plan) -> list[str]:
    """Return the names of what tasks belong to: operators, or parts of a transformer."""
    if isinstance(plan.job, OperatorQuestion):
        return [op.name for op in plan.job.model.operators]
    assert isinstance(plan.parallelization, LayoutRecord)
    layout = plan.parallelization.layout
    return [f"part_{part}" for part in range(layout.pipeline * layout.virtual_stages)]
