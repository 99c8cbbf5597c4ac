"""What a report shows beyond the plan file: the iteration played again, and its traffic."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from parallelism.builder import part_memory
from parallelism.taskgraph import FloatArray, TaskGraph, traffic_of
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.simulate import simulate
from topoopt.fabric.timeline import Timeline, critical_path
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt, rebuild
from topoopt.transformers.plan import TransformerPlan

AnyPlan = Plan | TransformerPlan


@dataclass(frozen=True, eq=False)
class Played:
    """A plan of any kind, and what its iteration sends.

    Parameters
    ----------
    plan : Plan or TransformerPlan
    fabric : Fabric
    tasks : TaskGraph
    timeline : Timeline
    server_busy : float64 array, shape (servers,)
        Seconds that a device of each server computes, the mean over its devices.
    allreduce, transfers : float64 arrays, shape (servers, servers)
        Bytes that the row server sends to the column server: to its successors on AllReduce
        rings, and in transfers. Forwarding for others is not counted.
    """

    plan: AnyPlan
    fabric: Fabric
    tasks: TaskGraph
    timeline: Timeline
    server_busy: FloatArray
    allreduce: FloatArray
    transfers: FloatArray


@dataclass(frozen=True, eq=False)
class Evaluation(Played):
    """A plan by operators, and what follows from it.

    Parameters
    ----------
    critical : tuple of int
        Tasks of the critical path, in order of time.
    part_memory : tuple of float
        Bytes that a part of each operator holds on a GPU.
    """

    plan: Plan
    critical: tuple[int, ...]
    part_memory: tuple[float, ...]


def evaluate(plan: Plan) -> Evaluation:
    """Play one iteration of a plan again.

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
        tasks = built.builder.build(built.strategy)
        timeline = simulate(built.fabric, tasks)
    except InputError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"cannot be simulated ({type(error).__name__}: {reason}); plan again"
        ) from None
    require_same("iteration_time_s", plan.iteration_time_s, timeline.makespan, SIMULATED)
    return Evaluation(
        plan=plan,
        fabric=built.fabric,
        tasks=tasks,
        timeline=timeline,
        server_busy=timeline.device_busy,
        critical=critical_path(tasks, timeline),
        allreduce=ring_bytes(built.fabric, tasks),
        transfers=traffic_of(tasks).transfers,
        part_memory=_memory(built),
    )


def ring_bytes(fabric: Fabric, tasks: TaskGraph) -> FloatArray:
    """Return the bytes that each server sends to each other one along AllReduce rings."""
    hosts = fabric.network.hosts
    sent = np.zeros(hosts * hosts)
    traffic = traffic_of(tasks)
    for group, amount in zip(traffic.groups, traffic.group_bytes.tolist(), strict=True):
        edges = fabric.ring_edges(group)
        share = 2.0 * (len(group) - 1) / len(group) * amount / len(edges)
        np.add.at(sent, edges.ravel(), share)
    return sent.reshape(hosts, hosts)


def _memory(built: Rebuilt) -> tuple[float, ...]:
    builder = built.builder
    return tuple(
        part_memory(
            builder.graph, operator, builder.batch, config.sample, config.parameter, config.mode,
            builder.server.gpus, builder.optimizer_states,
        )
        for operator, config in zip(builder.graph.operators, built.strategy.configs, strict=True)
    )  # fmt: skip
