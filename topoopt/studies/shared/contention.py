"""All jobs of a shared cluster at once: iteration times under contention."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from parallelism.joining import in_turn, side_by_side
from parallelism.taskgraph import TaskGraph
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.fluid import run_fluid
from topoopt.fabric.simulation import score

_MOST_DOUBLINGS = 6
# Tasks of all iterations of all jobs together, which take up to 9 GB.
_MOST_TASKS = 30_000_000


@dataclass(frozen=True, eq=False)
class Tenant:
    """A job on some servers of a shared cluster.

    Parameters
    ----------
    name : str
    tasks : TaskGraph
        One iteration on as many servers, numbered from 0.
    place : tuple of int
        The cluster's server for each of them, ascending.
    """

    name: str
    tasks: TaskGraph
    place: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Contention:
    """Iteration times of jobs that run at the same time.

    Parameters
    ----------
    times : tuple of float64 array
        For each tenant, seconds of each iteration measured.
    window_s : float
        How much time was simulated.
    """

    times: tuple[Floats, ...]
    window_s: float


def alone_s(fabric: Fabric, tenant: Tenant) -> float:
    """Return the iteration time of a tenant in its place, with the fabric to itself.

    Parameters
    ----------
    fabric : Fabric
    tenant : Tenant

    Returns
    -------
    float
        Seconds.
    """
    return score(fabric, side_by_side([tenant.tasks], [tenant.place], fabric.network.hosts))


def simulate_together(
    fabric: Fabric, tenants: Sequence[Tenant], *, seed: int = 0, least: int = 3
) -> Contention:
    """Simulate all tenants at once, each repeating its iteration from a random phase.

    Every tenant begins at a time drawn evenly from one iteration of its own, and repeats its
    iteration with a barrier in between until the window ends, so that none is ever measured while
    another has stopped. An iteration counts if it begins after all tenants have begun and ends
    in the window.

    Parameters
    ----------
    fabric : Fabric
        Shared by all.
    tenants : sequence of Tenant
        On different servers.
    seed : int
        Of the phases.
    least : int
        Iterations that must count for every tenant; the window is doubled until they do.

    Returns
    -------
    Contention

    Raises
    ------
    InputError
        If there is no tenant, two share a server, ``least`` is not positive, an iteration takes
        no time, a tenant gets next to no bandwidth, so that no window is long enough, or one has
        so many iterations in it that they do not fit in memory.

    Notes
    -----
    Rates are those of the fluid model, max-min fair over all flows of all tenants. Iterations
    that the window cuts off are not counted, which leaves out somewhat more long ones than short
    ones where few fit.
    """
    if not tenants:
        raise InputError("no job shares the cluster; give at least one")
    if least < 1:
        raise InputError(f"least is {least} iterations; give at least 1")
    alone = [alone_s(fabric, tenant) for tenant in tenants]
    if min(alone) <= 0.0:
        idle = tenants[alone.index(min(alone))].name
        raise InputError(f"an iteration of job {idle!r} takes no time; give it some work")
    phases = np.random.default_rng(seed).uniform(0.0, alone)
    begun = float(phases.max())
    window = begun + (least + 1) * max(alone)
    for _ in range(_MOST_DOUBLINGS):
        found = _simulated(fabric, tenants, alone, phases, window)
        if min(times.size for times in found.times) >= least:
            return found
        window *= 2.0
    slow = tenants[min(range(len(tenants)), key=lambda t: found.times[t].size)].name
    raise InputError(
        f"job {slow!r} ends fewer than {least} iterations in {window / 2.0:.3g} s; "
        "give the shared fabric more bandwidth"
    )


def _simulated(
    fabric: Fabric,
    tenants: Sequence[Tenant],
    alone: Sequence[float],
    phases: Floats,
    window: float,
) -> Contention:
    # One iteration more covers the phase, and one an iteration that contention makes faster, which
    # hardly ever happens.
    counts = [ceil(window / time) + 2 for time in alone]
    sizes = [tenant.tasks.tasks + 1 for tenant in tenants]
    if sum(count * size for count, size in zip(counts, sizes, strict=True)) > _MOST_TASKS:
        quick, slow = (tenants[alone.index(time)].name for time in (min(alone), max(alone)))
        raise InputError(
            f"job {quick!r} takes {min(alone):.3g} s an iteration and job {slow!r} "
            f"{max(alone):.3g} s, so that {max(counts)} iterations are to be simulated, which do "
            "not fit in memory; give jobs that take more alike, or more bandwidth"
        )
    repeated = [
        in_turn(tenant.tasks, count, float(phase))
        for tenant, count, phase in zip(tenants, counts, phases, strict=True)
    ]
    joint = side_by_side(repeated, [tenant.place for tenant in tenants], fabric.network.hosts)
    finish = run_fluid(fabric, joint, limit=window, collapsed=False).finish
    begun = float(phases.max())
    times, at = [], 0
    for size, count in zip(sizes, counts, strict=True):
        mine = finish[at : at + count * size].reshape(count, size)
        at += count * size
        start, end = mine[:, -1], mine.max(axis=1)
        counted = (start >= begun) & np.isfinite(end)
        times.append(end[counted] - start[counted])
    return Contention(tuple(times), window)
