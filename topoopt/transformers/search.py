"""Search over layouts, the places of their ranks, topologies and routings together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from parallelism.builder import TaskGraphBuilder
from parallelism.strategy import Strategy
from parallelism.taskgraph import FloatArray, TaskGraph
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import AXES, Placement, axis_orders
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.rewire import Rewirer
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import Playable
from topoopt.fabrics.baselines import BaselineFabric, baseline_fabric
from topoopt.problem.job import Cluster
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PriceTable
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology
from topoopt.transformers.candidates import Candidate, Survey, survey
from topoopt.transformers.job import TransformerJob
from topoopt.transformers.play import played, tasks_of

SIMULATED = 24
"""Layouts that are simulated, by default."""
_WIRED = 6
"""Of these, placed layouts that a topology is built for."""
_WORTH = 0.995
"""Share of the best time that a placed layout must need on the ideal switch to be wired."""
_COMPARED = 12
"""Placed layouts that are played on each fabric to compare with."""
_REORDERED = 12
"""Of the layouts simulated, those whose axes are tried in every order."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A layout with its ranks on servers, and its time where every port reaches every server.

    Parameters
    ----------
    candidate : Candidate
    placement : Placement
    ideal_s : float
        On the ideal switch.
    """

    candidate: Candidate
    placement: Placement
    ideal_s: float


@dataclass(frozen=True, eq=False)
class Wired:
    """A placed layout on a topology of its own.

    Parameters
    ----------
    placed : Placed
    topology : Topology or None
        None for a single server.
    routing : Routing
    fabric : Fabric
    time_s : float
    """

    placed: Placed
    topology: Topology | None
    routing: Routing
    fabric: Fabric
    time_s: float


@dataclass(frozen=True, eq=False)
class OnFabric:
    """The best placed layout found on another fabric.

    Parameters
    ----------
    base : BaselineFabric
    placed : Placed
    time_s : float
    """

    base: BaselineFabric
    placed: Placed
    time_s: float


@dataclass(eq=False)
class Found:
    """What a search found.

    Attributes
    ----------
    survey : Survey
    best : Wired
    baselines : dict of str to OnFabric
    simulated : int
        Placed layouts that were simulated.
    wired : int
        Those that topologies were built for.
    interrupted : bool
    """

    survey: Survey
    best: Wired
    baselines: dict[str, OnFabric]
    simulated: int
    wired: int
    interrupted: bool = False


class _Fixed:
    """Stands for a builder of strategies where the task graph is given."""

    def __init__(self, tasks: TaskGraph) -> None:
        self.tasks = tasks

    def build(self, strategy: Strategy) -> TaskGraph:
        """Return the one task graph."""
        return self.tasks

    def memory(self, strategy: Strategy) -> FloatArray:
        """Return nothing: layouts that do not fit are not wired."""
        return np.zeros(1)


def wire(
    tasks: TaskGraph, cluster: Cluster, seed: int, limit: float = float("inf")
) -> tuple[Topology | None, Routing, Fabric, float] | None:
    """Return the best topology and routing found for a task graph, and its time.

    Parameters
    ----------
    tasks : TaskGraph
    cluster : Cluster
    seed : int
    limit : float
        Seconds beyond which a topology is of no interest.

    Returns
    -------
    tuple or None
        None if every topology is slower than the limit.
    """
    builder = cast(TaskGraphBuilder, _Fixed(tasks))
    rewirer = Rewirer(builder, cluster, float("inf"), SearchOptions(), seed)
    pair = rewirer.wire(cast(Strategy, None), "layout", limit=limit)
    return None if pair is None else (pair.topology, pair.routing, pair.fabric, pair.time)


def search(
    job: TransformerJob,
    cluster: Cluster,
    baselines: Sequence[str],
    prices: PriceTable,
    *,
    simulated: int = SIMULATED,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Found:
    """Find the best layout, placement, topology and routing, and the best on other fabrics.

    Parameters
    ----------
    job : TransformerJob
    cluster : Cluster
    baselines : sequence of str
        Fabrics to compare with, each with the layout and placement that is best there.
    prices : PriceTable
        For fabrics of equal cost.
    simulated : int
        Layouts that are simulated (`diverse`); the fastest of them with every order of their
        axes.
    seed : int
    progress : callable, optional

    Returns
    -------
    Found

    Raises
    ------
    InfeasibleError
        If no layout fits.

    Notes
    -----
    All layouts are estimated and bounded by formula; the best are played on the ideal switch of
    the same ports, the fastest of these with their ranks in every order of axes; for the fastest,
    topologies are built from their traffic as for any job, until none can be expected to do
    better.
    """

    def report(stage: str, done: int, total: int, best: float) -> None:
        if progress:
            progress(Progress(stage, done, total, best))

    found = survey(job, cluster, lambda *at: report("layouts", *at))
    ideal = baseline_fabric("ideal-switch", cluster, prices, seed)
    placed: list[Placed] = []
    chosen = diverse(found.candidates, simulated)
    interrupted = False
    try:
        for done, candidate in enumerate(chosen):
            placed.append(_placed(job, candidate, AXES, ideal.fabric))
            report("placements", done + 1, len(chosen), min(p.ideal_s for p in placed))
        for one in sorted(placed, key=lambda p: p.ideal_s)[:_REORDERED]:
            for order in axis_orders(one.candidate.layout)[1:]:
                placed.append(_placed(job, one.candidate, order, ideal.fabric))
    except KeyboardInterrupt:
        if not placed:
            raise
        interrupted = True
    placed.sort(key=lambda p: p.ideal_s)
    best: Wired | None = None
    wired = 0
    for one in placed[:_WIRED]:
        limit = float("inf") if best is None else best.time_s
        if one.ideal_s >= limit * _WORTH or (interrupted and best is not None):
            break
        try:
            made = wire(tasks_of(job, one.placement), cluster, seed, limit)
            wired += 1
            if made is not None and made[3] < limit:
                best = Wired(one, *made)
            report("topologies", wired, min(_WIRED, len(placed)), best.time_s if best else limit)
        except KeyboardInterrupt:
            if best is None:
                raise
            interrupted = True
    assert best is not None  # without a limit the first is always wired
    result = Found(found, best, {}, len(placed), wired, interrupted)
    if cluster.servers == 1:
        return result
    try:
        for name in baselines:
            if name == "ideal-switch":
                result.baselines[name] = OnFabric(ideal, placed[0], placed[0].ideal_s)
            else:
                base = baseline_fabric(name, cluster, prices, seed)
                result.baselines[name] = _best_on(job, base, placed)
            report(name, 1, 1, result.baselines[name].time_s)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def diverse(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Choose layouts that are worth a simulation, and differ.

    Parameters
    ----------
    candidates : sequence of Candidate
        By estimate.
    count : int

    Returns
    -------
    list of Candidate
        Two of the best estimates and one of the least bounds in turn, because estimates do not
        know placements, and bounds no communication. Layouts that differ only in that they
        split a microbatch by sequence rather than by sample come after all others.
    """

    def once(order: Sequence[int]) -> list[int]:
        kinds = set[tuple[object, ...]]()
        firsts = [i for i in order if _new(kinds, candidates[i].layout)]
        seen = set(firsts)
        return firsts + [i for i in order if i not in seen]

    numbers = range(len(candidates))
    estimates = iter(once(numbers))
    bounds = iter(once(sorted(numbers, key=lambda i: (candidates[i].bound.seconds, i))))
    chosen: dict[int, None] = {}
    for turn in range(3 * len(candidates)):
        if len(chosen) == min(count, len(candidates)):
            break
        following = next(bounds if turn % 3 == 2 else estimates, None)
        if following is not None:
            chosen[following] = None
    return [candidates[i] for i in chosen]


def _new(kinds: set[tuple[object, ...]], layout: Layout) -> bool:
    """Say whether a kind of layout is not in a set yet, and add it."""
    kind = (
        layout.tensor, layout.pipeline, layout.expert, layout.schedule, layout.virtual_stages,
        layout.recompute, layout.zero, layout.microbatch / layout.context,
    )  # fmt: skip
    known = kind in kinds
    kinds.add(kind)
    return not known


def _placed(
    job: TransformerJob, candidate: Candidate, order: tuple[str, str, str], fabric: Playable
) -> Placed:
    """Play a layout with its axes in an order."""
    placement = Placement(candidate.layout, job.server.gpus, order)
    return Placed(candidate, placement, played(fabric, tasks_of(job, placement)))


def _best_on(job: TransformerJob, base: BaselineFabric, placed: list[Placed]) -> OnFabric:
    """Play the placed layouts on a fabric, those fastest on the ideal switch first."""
    best: OnFabric | None = None
    for one in placed[:_COMPARED]:
        limit = float("inf") if best is None else best.time_s
        if one.ideal_s >= limit:
            break
        time = played(base.fabric, tasks_of(job, one.placement), limit)
        if time < limit:
            best = OnFabric(base, one, time)
    assert best is not None
    return best


__all__ = ["SIMULATED", "Found", "OnFabric", "Placed", "Wired", "search"]
