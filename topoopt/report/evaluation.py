"""What a report shows beyond the plan file: the iteration simulated again, and its traffic."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import TaskGraph, traffic_of
from topoopt.evaluate.scheduling import simulate_schedule
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.represented import whole_tasks
from topoopt.fabric.simulation import simulate
from topoopt.fabric.timeline import Timeline, critical_path
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt, rebuild
from topoopt.studies.demand import ring_demand


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A plan, and what follows from it.

    Parameters
    ----------
    plan : Plan
    built : Rebuilt
        Its objects.
    tasks : TaskGraph
        One iteration, as the plan's schedule orders it.
    timeline : Timeline
        Of that iteration on an idle cluster.
    critical : tuple of int
        Tasks of the critical path, in order of time.
    home : int64 array, shape (servers,)
        The server that the devices of each server are listed under: its own, or the first of
        those that one device spans.
    server_busy : float64 array, shape (servers,)
        Seconds that a device of each server computes, the mean over its devices.
    allreduce, transfers : float64 arrays, shape (servers, servers)
        Bytes that the row server sends to the column server: to its successors on the rings of
        collectives, and in transfers. Forwarding for others is not counted.
    """

    plan: Plan
    built: Rebuilt
    tasks: TaskGraph
    timeline: Timeline
    critical: tuple[int, ...]
    home: Ints
    server_busy: Floats
    allreduce: Floats
    transfers: Floats


def simulate_again(plan: Plan) -> Evaluation:
    """Simulate one iteration of a plan again.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        If the plan is not well formed, is of another fabric model, or takes another time than it
        says.
    """
    if plan.fabric_model != FABRIC_MODEL:
        raise InputError(
            f"fabric_model is {plan.fabric_model!r}, this version has {FABRIC_MODEL!r}; plan again"
        )
    try:
        built = rebuild(plan)
        tasks = whole_tasks(built.scheduled_tasks())
        simulated = simulate_schedule(built.fabric, tasks, built.schedule)
        timeline = simulate(built.fabric, simulated.tasks)
    except InputError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"cannot be simulated ({type(error).__name__}: {reason}); plan again"
        ) from None
    require_same("iteration_time_s", plan.iteration_time_s, simulated.time, SIMULATED)
    tasks = simulated.tasks
    traffic = traffic_of(tasks)
    devices = np.bincount(tasks.server_of_device, minlength=tasks.servers)
    busy = np.bincount(
        tasks.server_of_device, weights=timeline.device_busy, minlength=tasks.servers
    )
    home = np.maximum.accumulate(np.where(devices > 0, np.arange(tasks.servers), 0))
    return Evaluation(
        plan=plan,
        built=built,
        tasks=tasks,
        timeline=timeline,
        critical=critical_path(tasks, timeline),
        home=home,
        server_busy=busy[home] / devices[home],
        allreduce=ring_demand(built.fabric, traffic),
        transfers=traffic.transfers,
    )
