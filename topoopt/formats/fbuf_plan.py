"""What a plan exports: its task-graph file, and its network."""

from parallelism.taskgraph import TaskKind
from routing.network import Network
from topoopt.formats.fbuf_export import DRAM_BANDWIDTH, Updates, fbuf_of
from topoopt.formats.fbuf_file import FbufFile
from topoopt.plan import Plan


def plan_fbuf(
    plan: Plan, *, updates: Updates = Updates.REFUSE, dram_bandwidth: float = DRAM_BANDWIDTH
) -> FbufFile:
    """Return the task-graph file of a plan: one iteration on the plan's own network.

    Where only the order of compute is scheduled, it becomes dependencies between the tasks of
    each device, because the format has no priorities.

    Parameters
    ----------
    plan : Plan
    updates : Updates
        What becomes of optimizer steps that wait for an AllReduce.
    dram_bandwidth : float
        Bytes per second of a server's memory, which a plan does not hold.

    Returns
    -------
    FbufFile

    Raises
    ------
    InputError
        If the plan is not well formed, or `fbuf_of` cannot express it.
    """
    from topoopt.rebuild import rebuild
    from topoopt.scheduling import ORDERED, chained_tasks

    built = rebuild(plan)
    tasks = built.builder.build(built.strategy)
    if built.schedule == ORDERED:
        tasks = chained_tasks(built.fabric, tasks, built.schedule)
    used = {tasks.groups[g] for g in tasks.first[tasks.kind == TaskKind.ALLREDUCE].tolist()}
    return fbuf_of(
        tasks,
        built.fabric.network,
        built.fabric.routes,
        {group: built.fabric.rings_of(group) for group in sorted(used) if len(group) > 1},
        gpus_per_node=built.server.gpus,
        intergpu_bandwidth=built.server.intra_bandwidth,
        net_bandwidth=plan.cluster.bandwidth_bytes_per_s,
        dram_bandwidth=dram_bandwidth,
        operators=[op.name for op in plan.model.operators],
        updates=updates,
    )


def plan_network(plan: Plan) -> Network:
    """Return the network of a plan, for export as GraphML or node-link JSON."""
    from topoopt.rebuild import rebuild_network

    return rebuild_network(plan)
