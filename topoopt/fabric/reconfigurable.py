"""Fabrics of servers, of GPUs' ports, and fabrics that are rewired, behind one interface."""

from typing import TypeAlias

from codesign_base import InputError
from codesign_base.arguments import check_kind, is_number, told
from parallelism.taskgraph import TaskGraph
from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.fabric import Fabric, check_tasks
from topoopt.fabric.fluid import Run, run_fluid
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.fabric.represented import tasks_over, whole_tasks
from topoopt.fabric.rounding import ROUNDED_DOWN
from topoopt.fabric.varying import VaryingRun, VaryingState, demands_of
from topoopt.fabric.windowed import WindowedCircuits

Reconfigurable: TypeAlias = DirectCircuits | WindowedCircuits
AnyFabric: TypeAlias = Fabric | GpuPorts | DirectCircuits | WindowedCircuits

# Hosts from which on it pays to look whether a limit must be passed: simulations are long there.
FORESEEN_FROM = 33


def run_iteration(
    fabric: AnyFabric,
    tasks: TaskGraph,
    completion_tolerance: float = 0.0,
    *,
    limit: float = float("inf"),
    budget: float = float("inf"),
    exact_classes: bool = False,
) -> Run | VaryingRun:
    """Simulate one iteration in the fluid model over any fabric.

    Parameters
    ----------
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
    tasks, completion_tolerance
        As in `topoopt.fabric.simulate`, with its errors.
    limit : float
        As in `topoopt.fabric.score`.
    budget : float
        Streams re-solved after which a simulation gives up; of fabrics that stay as they are.
    exact_classes : bool
        As in `topoopt.fabric.fluid.run_fluid`.

    Returns
    -------
    Run or VaryingRun
        Both have ``start``, ``finish`` and ``binding`` of each task, and ``resolved``.
    """
    if isinstance(fabric, GpuPorts):
        fabric, tasks = fabric.divided(whole_tasks(tasks))
    if isinstance(fabric, Fabric):
        tasks = tasks_over(fabric, tasks)
        foresee = fabric.network.hosts >= FORESEEN_FROM
        return run_fluid(
            fabric, tasks, completion_tolerance, limit=limit, foresee=foresee, budget=budget,
            exact_classes=exact_classes,
        )  # fmt: skip
    return run_circuits(fabric, whole_tasks(tasks), completion_tolerance, limit=limit)


def run_circuits(
    fabric: Reconfigurable,
    tasks: TaskGraph,
    completion_tolerance: float = 0.0,
    *,
    limit: float = float("inf"),
    record: bool = False,
) -> VaryingRun:
    """Simulate one iteration over circuits that change.

    Parameters
    ----------
    fabric : DirectCircuits or WindowedCircuits
    tasks : TaskGraph
    completion_tolerance : float
        As in `topoopt.fabric.simulate`.
    limit : float
        As in `topoopt.fabric.score`.
    record : bool
        Keep the history of circuits.

    Returns
    -------
    VaryingRun

    Raises
    ------
    InputError
        If the task graph does not fit, its tasks wait for each other, or an argument is of another
        kind.
    """
    check_kind("fabric", fabric, Reconfigurable, "DirectCircuits or WindowedCircuits")
    check_tasks(tasks)
    if not is_number(limit):
        raise InputError(f"limit is {told(limit)}; give a number of seconds")
    demands = demands_of(tasks, fabric.servers, fabric.transport, fabric.name)
    state = VaryingState(tasks, demands, fabric.servers, completion_tolerance, limit, record)
    return state.result(fabric.run(tasks, state))


def least_time(fabric: Reconfigurable, tasks: TaskGraph) -> float:
    """Return the seconds that the busiest device, or server, is occupied at least.

    Parameters
    ----------
    fabric : DirectCircuits or WindowedCircuits
    tasks : TaskGraph

    Returns
    -------
    float
        No iteration is shorter, whatever the circuits: a transfer leaves and enters a server at
        least once, and so does every byte of a ring AllReduce on each of its servers.
    """
    busy = tasks.device_seconds().max(initial=0.0)
    ports = tasks.port_bytes().max(initial=0.0) / (fabric.degree * fabric.rate)
    return float(max(busy, ports)) * ROUNDED_DOWN
