"""What is to be done once before a clock starts: load kernels, choose rings."""

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulate import MODELS, simulate


def check_model(model: str) -> None:
    """Refuse an unknown simulation model.

    Parameters
    ----------
    model : str

    Raises
    ------
    InputError
        If it is none of `MODELS`.
    """
    if model not in MODELS:
        raise InputError(f"simulation model is {model!r}; choose {', '.join(MODELS)}")


def warm_up(model: str) -> None:
    """Simulate an iteration of three tasks, so that the next one is timed without loading.

    Parameters
    ----------
    model : str
    """
    from topoopt.topology.fabrics import ideal_switch

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
    simulate(Fabric("warm-up", network, routes), tasks, model=model)


def choose_rings(fabric: Fabric, tasks: TaskGraph) -> None:
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
    for group in sorted(set(tasks.first[tasks.kind == TaskKind.ALLREDUCE].tolist())):
        if len(tasks.groups[group]) > 1:
            fabric.group_streams(tasks.groups[group])
