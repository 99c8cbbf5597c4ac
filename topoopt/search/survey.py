"""Which layouts of a job fit, what each takes at least and by formula, and which are simulated."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from codesign_base import InfeasibleError
from codesign_base.counted import counted
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.layout import Layout
from parallelism.transformers.schedules import schedule_of
from topoopt.bounds.bounds import Bound
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.layouts import Bounded, layout_bound, least_bound, passes_bound
from topoopt.problem.job import Cluster

# Estimates are off by less than this factor, so layouts with higher bounds are not worth one.
_HOPEFUL = 1.3
# Of kinds of pipelines whose estimates are off by different factors, the most that these differ by.
_RIVAL = 1.5
_KINDS: dict[str, Callable[[Layout], object]] = {
    "schedule": lambda layout: layout.schedule, "depth": lambda layout: layout.pipeline
}  # fmt: skip
# By what layouts to simulate are chosen, in turn.
_TURNS = ("estimate", "estimate", "schedule", "bound", "estimate", "depth", "estimate", "bound")


@dataclass(frozen=True)
class Candidate:
    """A layout that fits.

    Parameters
    ----------
    layout : Layout
    estimate_s : float
        Iteration time where all ports reach all servers, about (`LayoutFamily.estimate`).
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
        Those that fit and are not ruled out by their bound, or are published, by estimate.
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
    family: LayoutFamily,
    cluster: Cluster,
    progress: Callable[[int, int, float], None] | None = None,
) -> Survey:
    """Look at every layout of the job's choices.

    Parameters
    ----------
    family : LayoutFamily
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
    limit = family.memory_limit
    layouts = family.layouts()
    wirings = wirings_of(family, cluster)
    found: list[Candidate] = []
    least, best = float("inf"), float("inf")
    bounded: list[Bounded] = []
    for done, layout in enumerate(layouts):
        schedule = schedule_of(layout, family.batch)
        memory = max(use.total for use in family.uses(layout, schedule))
        least = min(least, memory)
        if memory <= limit:
            own = Bounded(layout, passes_bound(family, layout, schedule), passes_only=True)
            known = layout in family.published
            if known or own.bound.seconds <= _HOPEFUL * best:
                own = Bounded(layout, layout_bound(family, wirings, layout), passes_only=False)
                if known or own.bound.seconds <= _HOPEFUL * best:
                    time = family.estimate(layout, wirings.port_rate, schedule)
                    best = min(best, time)
                    found.append(Candidate(layout, time, own.bound, memory))
            bounded.append(own)
        if progress and done % 64 == 0:
            progress(done, len(layouts), best)
    if not found:
        raise InfeasibleError(
            f"model {family.model.name!r} does not fit: the least of "
            f"{counted(len(layouts), 'layout')} needs {least / 1e9:.4g} GB on a GPU that has "
            f"{limit / 1e9:.4g} GB to use; give more servers, GPUs with more memory, a shorter "
            "sequence, or more kinds of layouts"
        )
    order = sorted(range(len(found)), key=lambda i: (found[i].estimate_s, i))
    lowest = least_bound(family, wirings, bounded)
    return Survey(tuple(found[i] for i in order), lowest, len(layouts), len(bounded), least)


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
        Of eight in turn four of the best estimates, two of the least bounds, because estimates are
        of one placement, and the best estimate of the pipeline schedule, and of the number of
        stages, that has the fewest so far, because what estimates leave out differs between
        these. Layouts that differ only
        in that they split a microbatch by sequence rather than by sample come after all others.
        The first of more layouts are those of fewer.
    """

    def once(order: Sequence[int]) -> list[int]:
        kinds = set[tuple[object, ...]]()
        firsts = [i for i in order if _new(kinds, candidates[i].layout)]
        seen = set(firsts)
        return firsts + [i for i in order if i not in seen]

    numbers = range(len(candidates))
    by_estimate = once(numbers)
    estimates = iter(by_estimate)
    bounds = iter(once(sorted(numbers, key=lambda i: (candidates[i].bound.seconds, i))))
    rivals = [
        i for i in by_estimate if candidates[i].estimate_s <= _RIVAL * candidates[0].estimate_s
    ]
    chosen: dict[int, None] = {}
    rare = {"schedule": Counter[object](), "depth": Counter[object]()}
    for turn in cycle(_TURNS):
        if len(chosen) == min(count, len(candidates)):
            break
        if turn in rare:
            others = [i for i in rivals if i not in chosen]
            counted, of = rare[turn], _KINDS[turn]
            following = min(others, key=lambda i: counted[of(candidates[i].layout)], default=None)
        else:
            following = next(bounds if turn == "bound" else estimates, None)
        if following is not None:
            chosen[following] = None
            for kind, counted in rare.items():
                counted[_KINDS[kind](candidates[following].layout)] += turn != "bound"
    return [candidates[i] for i in chosen]


def _new(kinds: set[tuple[object, ...]], layout: Layout) -> bool:
    """Say whether a kind of layout is not in a set yet, and add it."""
    kind = (
        layout.tensor, layout.pipeline, layout.expert, layout.schedule, layout.virtual_stages,
        layout.recompute, layout.zero, layout.microbatch / layout.context, layout.expert_tensor,
    )  # fmt: skip
    known = kind in kinds
    kinds.add(kind)
    return not known


__all__ = ["Candidate", "Survey", "diverse", "survey"]
