"""Layouts that fit in memory, with an estimate and a lower bound of their time."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from codesign_base import InfeasibleError
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links
from parallelism.transformers.loads import Loads, loads_of
from parallelism.transformers.memory import memory_use
from parallelism.transformers.placement import Placement, axis_orders
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.timeline import PassTimes, timeline
from topoopt.bounds.bounds import ROUNDING, Bound, strategy_bound
from topoopt.problem.job import Cluster
from topoopt.transformers.job import TransformerJob
from topoopt.transformers.play import tasks_of

# Estimates are off by less than this factor, so layouts with higher bounds are not worth one.
_HOPEFUL = 1.3
# Work spent on tightening bounds: tasks of all graphs, and what each graph takes besides.
_WORK = 1.5e7
_EACH = 2e4


@dataclass(frozen=True)
class Candidate:
    """A layout that fits.

    Parameters
    ----------
    layout : Layout
    estimate_s : float
        Iteration time by formula, every message alone on its links.
    bound : Bound
        Below any simulated time, whatever placement, topology and routing (`layout_bound`).
    memory_bytes : float
        Of the fullest GPU.
    """

    layout: Layout
    estimate_s: float
    bound: Bound
    memory_bytes: float


@dataclass(frozen=True)
class Survey:
    """All layouts of a job on a cluster.

    Parameters
    ----------
    candidates : tuple of Candidate
        Those that fit and are not ruled out by their bound, by estimate.
    bound : Bound
        The lowest over all that fit and every order of their axes.
    layouts, fitting : int
        Legal layouts, and those of them that fit.
    least_memory_bytes : float
        Of the fullest GPU under the layout that needs least.
    """

    candidates: tuple[Candidate, ...]
    bound: Bound
    layouts: int
    fitting: int
    least_memory_bytes: float


def survey(
    job: TransformerJob,
    cluster: Cluster,
    progress: Callable[[int, int, float], None] | None = None,
) -> Survey:
    """Look at every layout of the job's choices.

    Parameters
    ----------
    job : TransformerJob
    cluster : Cluster
    progress : callable, optional
        Given layouts done, their number, and the best estimate so far.

    Returns
    -------
    Survey

    Raises
    ------
    InfeasibleError
        If no layout is legal, or none fits in memory.
    """
    model, limit = job.model, job.memory_limit
    layouts = enumerate_layouts(
        model, job.gpus(cluster), job.server.gpus, job.global_batch, job.tokens, job.choices
    )
    links = Links.of_server(job.server, cluster.degree * cluster.port_rate)
    found: list[Candidate] = []
    least, best = float("inf"), float("inf")
    bounded: list[tuple[Layout, Bound]] = []
    for done, layout in enumerate(layouts):
        schedule = schedule_of(layout, job.global_batch)
        uses = memory_use(
            model, layout, job.global_batch, job.implementation, sequence=job.tokens,
            schedule=schedule,
        )  # fmt: skip
        memory = max(use.total for use in uses)
        least = min(least, memory)
        if memory <= limit:
            bounded.append((layout, layout_bound(job, cluster, layout)))
        if memory <= limit and bounded[-1][1].seconds <= _HOPEFUL * best:
            time = iteration_time(
                model, layout, job.global_batch, job.gpu_rates, links, job.implementation,
                sequence=job.tokens, schedule=schedule,
            ).seconds  # fmt: skip
            best = min(best, time)
            found.append(Candidate(layout, time, bounded[-1][1], memory))
        if progress and done % 64 == 0:
            progress(done, len(layouts), best)
    if not found:
        raise InfeasibleError(
            f"model {model.name!r} does not fit: the least of {len(layouts)} layouts needs "
            f"{least / 1e9:.4g} GB on a GPU that has {limit / 1e9:.4g} GB to use; give more "
            "servers, GPUs with more memory, a shorter sequence, or more kinds of layouts"
        )
    order = sorted(range(len(found)), key=lambda i: (found[i].estimate_s, i))
    lowest = least_bound(job, cluster, bounded)
    return Survey(tuple(found[i] for i in order), lowest, len(layouts), len(bounded), least)


def least_bound(
    job: TransformerJob, cluster: Cluster, bounded: Sequence[tuple[Layout, Bound]]
) -> Bound:
    """Return the least bound over layouts and all placements of theirs.

    Parameters
    ----------
    job : TransformerJob
    cluster : Cluster
    bounded : sequence of (Layout, Bound)
        Layouts with their `layout_bound`.

    Returns
    -------
    Bound

    Notes
    -----
    Best first: the layout with the least bound so far is tightened (`tightened_bound`), until
    the least is a tightened one, which then holds for all; or until so many task graphs have
    been looked at that the least is taken as it is.
    """
    heap = [(bound.seconds, number) for number, (_, bound) in enumerate(bounded)]
    heapq.heapify(heap)
    tight: dict[int, Bound] = {}
    work = 0.0
    while True:
        _, number = heap[0]
        if number in tight or work > _WORK:
            return tight.get(number, bounded[number][1])
        layout, bound = bounded[number]
        tight[number], tasks = tightened_bound(job, cluster, layout, bound)
        work += tasks + _EACH * len(axis_orders(layout))
        heapq.heapreplace(heap, (tight[number].seconds, number))


def tightened_bound(
    job: TransformerJob, cluster: Cluster, layout: Layout, bound: Bound
) -> tuple[Bound, int]:
    """Bound a layout's time by the task graphs of all its placements.

    Parameters
    ----------
    job : TransformerJob
    cluster : Cluster
    layout : Layout
    bound : Bound
        Its `layout_bound`.

    Returns
    -------
    Bound
        The least `topoopt.bounds.bounds.strategy_bound` over every order of the axes, where that is
        tighter.
    int
        Tasks of all these graphs.
    """
    least, count = Bound(float("inf"), {}), 0
    for order in axis_orders(layout):
        tasks = tasks_of(job, Placement(layout, job.server.gpus, order))
        count += tasks.tasks
        one = strategy_bound(tasks, cluster.degree, cluster.port_rate, cluster.hop_latency)
        least = min(least, one, key=lambda each: each.seconds)
    return max(bound, least, key=lambda each: each.seconds), count


def layout_bound(job: TransformerJob, cluster: Cluster, layout: Layout) -> Bound:
    """Bound the iteration time of a layout from below, wherever its ranks sit.

    Parameters
    ----------
    job : TransformerJob
    cluster : Cluster
    layout : Layout

    Returns
    -------
    Bound
        ``pipeline``: the schedule's passes with tensor groups at their server's bandwidth and
        all other messages instant, and the optimizer's step. ``injection``: what the ranks of
        the stage with most weights must send to other servers at least, over all ports.
    """
    placement = Placement(layout, job.server.gpus)
    loads = loads_of(
        job.model, placement, job.gpu_rates, job.server, job.implementation,
        sequence=job.tokens, far={"tensor", "context", "expert"} if spans(placement)
        else {"context", "expert"},
    )  # fmt: skip
    schedule = schedule_of(layout, job.global_batch)
    none = np.zeros(loads.seconds.shape[1])
    forward, backward, weight = loads.seconds
    makespan = timeline(schedule, PassTimes(forward, backward, weight, none, none)).makespan
    ports = cluster.degree * cluster.port_rate
    terms = {
        "pipeline": makespan + loads.update_s,
        "injection": least_injection(placement, schedule, loads) / ports,
    }
    return Bound(max(terms.values()) * ROUNDING, terms)


def spans(placement: Placement) -> bool:
    """Whether tensor groups span servers."""
    return placement.servers_per_rank > 1


def least_injection(placement: Placement, schedule: PipelineSchedule, loads: Loads) -> float:
    """Return the bytes that some server must send to share weights, wherever ranks sit.

    Parameters
    ----------
    placement : Placement
        Its order of axes is not looked at.
    schedule : PipelineSchedule
    loads : Loads

    Returns
    -------
    float
        A group of n ranks touches at least so many servers as n ranks fill; on a ring, each
        of s servers sends (s - 1) / s of the buffer.
    """
    layout = placement.layout
    ranks = layout.data * layout.context
    scatters = schedule.microbatches if layout.zero >= 2 else 1
    gathers = {0: 0, 3: 2 * schedule.microbatches}.get(layout.zero, 1)
    reduces = scatters if layout.zero else 2
    most = 0.0
    for stage in range(schedule.stages):
        total = 0.0
        for part in range(stage, len(loads.weights), schedule.stages):
            gradient, weight = loads.gradients[part], loads.weights[part]
            for size, group in (
                (reduces * gradient.dense + gathers * weight.dense, ranks),
                (reduces * gradient.expert + gathers * weight.expert, ranks // layout.expert),
            ):
                servers = ceil(group / placement.ranks_per_server)
                total += (servers - 1) / servers * size / placement.servers_per_rank
        most = max(most, total)
    return most


__all__ = [
    "Candidate", "Survey", "layout_bound", "least_bound", "least_injection", "survey",
    "tightened_bound",
]  # fmt: skip
