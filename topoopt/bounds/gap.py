"""The gap between a plan and the bound over everything, taken apart.

A telescope of bounds, each over fewer things that are still free: everything; topologies and
routings for the plan's strategy; routings on its wiring; schedules of AllReduces beside its routes;
the order of events over its rings.
Each is at least the one before, and the differences add up to the gap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parallelism.taskgraph import TaskGraph
from topoopt.bounds.bounds import Bound, strategy_bound
from topoopt.bounds.everything import AnyFamily, everything_bound, own_bound
from topoopt.bounds.wired import collective_bound, routes_bound, topology_bound
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.represented import tasks_over
from topoopt.fabric.rounding import ROUNDED_DOWN
from topoopt.problem.cluster import Cluster
from topoopt.problem.schedule import Schedule


def how(part: str, noun: str) -> str:
    """Return what is subtracted from what in a part of the gap.

    Parameters
    ----------
    part : str
        Name of the part; the first is called like the parallelizations.
    noun : str
        What the family calls its parallelizations.
    """
    return {
        noun: f"bound of this {noun}, any wiring and routing, less the bound over everything",
        "topology": f"bound of this {noun} and wiring, any routing, less that of any wiring",
        "routing": "bound of these routes, any schedule of AllReduces, less that of any routing",
        "collective": "bound of these routes and rings, less that of any schedule of AllReduces",
        "scheduling": "simulated time, less the bound of these routes and rings",
    }[part]


@dataclass(frozen=True)
class GapPart:
    """What one kind of choice may cost.

    Parameters
    ----------
    name : str
        See `how`, which says what is subtracted from what.
    seconds : float
        How much higher the bound (or the plan) is than with that choice free.
    binding : str
        The term that fixes the higher one.
    """

    name: str
    seconds: float
    binding: str


@dataclass(frozen=True)
class PlanBounds:
    """All bounds of one plan, and the gap taken apart."""

    everything: Bound
    parallelization: Bound
    topology: Bound
    routes: Bound
    collective: Bound
    parts: tuple[GapPart, ...]


def plan_bounds(
    family: AnyFamily,
    cluster: Cluster,
    parallelization: Any,
    fabric: Fabric,
    tasks: TaskGraph,
    time: float,
    *,
    weights: Mapping[str, float] | None = None,
    schedule: Schedule | None = None,
    everything: Bound | None = None,
) -> PlanBounds:
    """Bound a plan at every level.

    Parameters
    ----------
    family : OperatorFamily or LayoutFamily
    cluster : Cluster
    parallelization : Strategy or Placement
        The plan's.
    fabric : Fabric
        The plan's.
    tasks : TaskGraph
        One iteration of the plan, as scheduled.
    time : float
        Its simulated time.
    weights : mapping of str to float, optional
        As in `space_bound`.
    schedule : Schedule, optional
        The plan's; plain by default. All bounds hold for any order of tasks and any buckets.
        Where iterations overlap, only what resources must do, and turns of operators, bound
        their period.
    everything : Bound, optional
        `everything_bound`, where it is at hand.

    Returns
    -------
    PlanBounds
    """
    # A message is announced over at least one hop, and sent over it.
    hops = fabric.transport.ways
    schedule = schedule or Schedule.plain()
    steady = schedule.streaming
    tasks = tasks_over(fabric, tasks)
    if everything is None:
        everything = everything_bound(
            family, cluster, hops=hops, weights=weights, schedule=schedule
        )
    lag = hops * cluster.hop_latency
    bound = strategy_bound(tasks, cluster.degree, cluster.port_rate, lag, steady=steady)
    own = own_bound(family, cluster, parallelization)
    if own is not None and bound.seconds <= own.seconds:
        bound = own
    topology = topology_bound(fabric, tasks, steady=steady)
    routes = routes_bound(fabric, tasks, steady=steady)
    collective = collective_bound(fabric, tasks, steady=steady)
    fixed = {
        family.noun: bound, "topology": topology, "routing": routes, "collective": collective,
    }  # fmt: skip
    parts = gap_parts(everything, fixed, time)
    return PlanBounds(everything, bound, topology, routes, collective, parts)


def gap_parts(everything: Bound, fixed: Mapping[str, Bound], time: float) -> tuple[GapPart, ...]:
    """Take the gap between a time and the bound over everything apart.

    Parameters
    ----------
    everything : Bound
        `everything_bound`.
    fixed : mapping of str to Bound
        By the name of the part: bounds of one plan with one choice more fixed each.
    time : float
        Its simulated iteration time.

    Returns
    -------
    tuple of GapPart
        The named ones and ``scheduling``, none negative; with ``everything.seconds`` they add
        up to the time. A bound over fewer things may happen to be the weaker; then the one
        before it, which holds all the same, stands for it.
    """
    reached, binding = everything.seconds, everything.binding
    parts = []
    for name, bound in fixed.items():
        if bound.seconds * ROUNDED_DOWN > reached:  # rounding alone is no gap
            parts.append(GapPart(name, bound.seconds - reached, bound.binding))
            reached, binding = bound.seconds, bound.binding
        else:
            parts.append(GapPart(name, 0.0, binding))
    parts.append(GapPart("scheduling", max(time - reached, 0.0), "simulation"))
    return tuple(parts)
