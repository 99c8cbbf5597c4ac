"""What is to be done once before a clock starts: load kernels, choose rings."""

from dataclasses import replace

import numpy as np

from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulation import simulate
from topoopt.fabric.transport import PACKETS, Transport
from topoopt.topology.fabrics import ideal_switch


def warm_up(model: str) -> None:
    """Simulate an iteration of three tasks, so that the next one is timed without loading.

    Parameters
    ----------
    model : str
    """
    network, routes = ideal_switch(2, 1e9, 1e-6)
    tasks = TaskGraph.from_lists(
        2,
        [
            (TaskKind.COMPUTE, 0, -1, 1e-3, 0.0),
            (TaskKind.TRANSFER, 0, 1, 1e4, 0.0),
            (TaskKind.ALLREDUCE, 0, -1, 1e4, 0.0),
        ],
        [(0, 1)],
        ((0, 1),),
    )
    named = replace(tasks, ids=np.arange(3, dtype=np.int64))
    for transport in (PACKETS, Transport(htsim=True)):
        simulate(Fabric("warm-up", network, routes, transport=transport), named, model=model)


def prepare_rings(fabric: Fabric, tasks: TaskGraph) -> None:
    """Work out the rings of all AllReduces of a task graph, which the fabric then keeps.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Raises
    ------
    InputError
        If a group does not fit the fabric.
    """
    for group in sorted(set(tasks.first[tasks.collective].tolist())):
        if len(tasks.groups[group]) > 1:
            fabric.group_streams(tasks.groups[group])
