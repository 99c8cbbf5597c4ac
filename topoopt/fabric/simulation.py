"""Simulate one training iteration, by either model."""

from codesign_base import InputError
from codesign_base.arguments import is_number, told
from parallelism.taskgraph import TaskGraph
from topoopt.fabric.fabric import Fabric, check_simulated
from topoopt.fabric.fluid import Run, run_fluid
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.packets import PacketRun, run_packets
from topoopt.fabric.represented import tasks_over, whole_tasks
from topoopt.fabric.timeline import Timeline

MODELS = ("fluid", "packet")


def simulate(
    fabric: Fabric,
    tasks: TaskGraph,
    *,
    model: str = "fluid",
    seed: int = 0,
    completion_tolerance: float = 0.0,
) -> Timeline:
    """Simulate one iteration and return its timeline.

    COMPUTE tasks are ready when all predecessors have finished, and run one at a time on their
    device, first in first out by ready time (ties by task id; see the notes). A TRANSFER of S
    bytes sends them over the routes of its pair when ready. An ALLREDUCE of S bytes over g > 1
    servers waits for its delay, then runs in 2 (g - 1) rounds of g messages of S / (g R) bytes on
    each of its R rings; REDUCE_SCATTER and ALL_GATHER in half as many; over one server it takes its
    delay. Over many servers there may be fewer rounds of larger messages
    (`topoopt.fabric.ring_trees`). Messages are whole packets, and are announced (see `Transport`).

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    model : {"fluid", "packet"}
        fluid: at every instant rates are max-min fair over all active flows; an AllReduce is one
        coupled stream over every edge of its rings, whose rate is such that a round takes at
        least its bytes and its lag on an empty network. packet: packet trains through first-in
        first-out links with DCTCP windows; slower and truer, see `run_packets`.
    seed : int
        Of the paths that the packet model draws.
    completion_tolerance : float, optional
        Fluid only. 0 (default) is exact. Otherwise flows whose time left is at most this
        fraction of the time they have been active, when another one ends, keep their rate for
        that remainder, and all other rates are brought up to date once, half way through. Every
        flow still moves all its bytes; a link may be over or under its capacity for as long, but
        the makespan is never less than what the busiest link needs at its capacity.
        Fewer re-solves where very many flows end one after another.

    Returns
    -------
    Timeline

    Raises
    ------
    InputError
        If the task graph does not fit the fabric, a size is out of range, a transfer has no
        route, or tasks wait for each other in a cycle.

    Notes
    -----
    In the fluid model events whose times differ by less than 1e-12 of the time form one instant,
    in which ties go by task id: the same input gives bit-identical results. Tasks that get ready
    only by others that begin and end at that very instant (computation of no time, a collective
    of one server without delay) come after those that were ready before, whatever their ids;
    packet trains may order such tasks otherwise. When flows come or
    go, progressive filling is repeated only from the lowest level that can change, and equal
    flows of a symmetric fabric are filled as one (see `collapse`); both are exact.
    """
    check_model(model)
    check_simulated(fabric, tasks)
    tasks = whole_tasks(tasks)
    if model == "packet":
        return timeline_of(fabric, tasks, run_packets(fabric, tasks, seed=seed))
    return timeline_of(fabric, tasks, run_fluid(fabric, tasks, completion_tolerance))


def timeline_of(fabric: Fabric, tasks: TaskGraph, run: Run | PacketRun) -> Timeline:
    """Return what happened in a run, task by task, link by link and device by device.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    run : Run or PacketRun
        Of these tasks over this fabric, to the end.

    Returns
    -------
    Timeline
    """
    return Timeline(
        start=run.start,
        finish=run.finish,
        makespan=run.makespan,
        binding=run.binding,
        link_bytes=link_bytes(fabric, tasks),
        device_busy=tasks.device_seconds(),
    )


def score(
    fabric: Fabric,
    tasks: TaskGraph,
    *,
    model: str = "fluid",
    seed: int = 0,
    limit: float = float("inf"),
) -> float:
    """Return only the makespan.

    Parameters
    ----------
    fabric, tasks, model, seed
        As in `simulate`, with its errors.
    limit : float
        Give up when the makespan is known to exceed this many seconds.

    Returns
    -------
    float
        Seconds; infinity if the simulation gave up.
    """
    check_model(model)
    check_simulated(fabric, tasks)
    if not is_number(limit):
        raise InputError(f"limit is {told(limit)}; give a number of seconds")
    if model == "packet":
        return run_packets(fabric, whole_tasks(tasks), seed=seed, limit=limit).makespan
    tasks = tasks_over(fabric, tasks)
    return run_fluid(fabric, tasks, limit=limit).makespan


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
    if model == "train":
        raise InputError("simulation model is 'train', which is now called 'packet'; give 'packet'")
    if model not in MODELS:
        raise InputError(f"simulation model is {model!r}; choose {', '.join(MODELS)}")
