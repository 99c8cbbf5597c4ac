"""Which layouts of a job fit, what each takes at least and by formula, and which are simulated."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from math import gcd
from typing import NamedTuple

from codesign_base import InfeasibleError
from codesign_base.counted import counted
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import schedule_of
from topoopt.base.second import Second, Task
from topoopt.bounds.bounds import Bound
from topoopt.bounds.everything import wirings_of
from topoopt.bounds.layouts import Bounded, layout_bound, least_bound, needless, passes_bound
from topoopt.evaluate.problem import Problem

# Estimates are off by less than this factor, so layouts with higher bounds are not worth one.
_HOPEFUL = 1.3
# Of kinds of pipelines whose estimates are off by different factors, the most that these differ by.
_RIVAL = 1.5
# Layouts that are looked at by one call.
_TOGETHER = 64
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
    placement : Placement
        Of all orders of the layout's axes the one with the least estimate.
    estimate_s : float
        Its iteration time where all ports reach all servers, about (`LayoutFamily.estimate`), or,
        if that is longer, the bound.
    bound : Bound
        Below any simulated time, whatever placement, topology and routing (`layout_bound`).
    """

    placement: Placement
    estimate_s: float
    bound: Bound

    @property
    def layout(self) -> Layout:
        """What is placed."""
        return self.placement.layout

    def on(self, placement: Placement) -> "Candidate":
        """Return the same layout with its ranks in the order of another placement."""
        return replace(self, placement=replace(placement, layout=self.layout))


@dataclass(frozen=True)
class Survey:
    """All layouts of a job on a cluster.

    Parameters
    ----------
    candidates : tuple of Candidate
        Those that fit and are not ruled out by their bound, nor compute again what they have room
        to keep, or are published, by estimate.
    least : Task
        Gives the lowest bound over all that fit and every order of their axes.
    bounded : list of Bounded
        All that fit.
    layouts : int
        Legal layouts.
    """

    candidates: tuple[Candidate, ...]
    least: Task
    bounded: list[Bounded]
    layouts: int


class Looked(NamedTuple):
    """What is known of a layout; each is None where what comes before rules the layout out.

    ``memory`` is in bytes of the fullest GPU, ``passes`` a `passes_bound`, or what of a
    `layout_bound` rules the layout out, ``bound`` a `layout_bound`, ``placed`` the order of its
    axes with the least estimate, and that in seconds. What is ``needless``
    (`topoopt.bounds.layouts.needless`) is not looked at further.
    """

    memory: float
    passes: Bound | None = None
    bound: Bound | None = None
    placed: tuple[Placement, float] | None = None
    needless: bool = False


def look_at(problem: Problem[LayoutFamily], layouts: Sequence[Layout], best: float) -> list[Looked]:
    """Bound and estimate layouts, as far as each is hopeful.

    Parameters
    ----------
    problem : Problem
    layouts : sequence of Layout
    best : float
        Least estimate of others, seconds.

    Returns
    -------
    list of Looked
    """
    family, found = problem.family, []
    wirings = wirings_of(family, problem.cluster)
    # Twins that compute again what these keep come soon after them.
    keeping = set[Layout]()
    for layout in layouts:
        schedule = schedule_of(layout, family.batch)
        memory = max(use.total for use in family.uses(layout, schedule))
        if memory > family.memory_limit:
            found.append(Looked(memory))
            continue
        known = layout in family.published
        passes, bound, placed = passes_bound(family, layout, schedule), None, None
        if layout.recompute == "none":
            keeping.add(layout)
        elif not known and needless(layout, keeping):
            found.append(Looked(memory, passes, needless=True))
            continue
        hopeful = float("inf") if known else _HOPEFUL * best
        if passes.seconds <= hopeful:
            bound = layout_bound(family, wirings, layout, hopeful)
            if bound.seconds > hopeful:
                passes, bound = bound, None
            else:
                places = family.unlike_placements(layout)
                rate, ring = wirings.port_rate, wirings.degree == 1
                times = [
                    family.estimate(each, rate / _ring_hops(each) if ring else rate, schedule)
                    for each in places
                ]
                least = min(times)
                # No network is faster than the bound, which counts hops.
                placed = places[times.index(least)], max(least, bound.seconds)
                best = min(best, placed[1])
        found.append(Looked(memory, passes, bound, placed))
    return found


def _ring_hops(placement: Placement) -> float:
    """Return the hops of a byte where one port a server makes a ring, about.

    What two servers send each other goes once round it, in all. Sums, which go from next to next,
    are slowed with that: layouts that have both are looked at later, but ruled out by bounds alone.
    """
    ranks = [placement.rank.reshape(-1, placement.layout.pipeline)]
    if placement.layout.expert > 1:
        ranks += [group.T for group in placement.expert_groups()]
    servers = [each // placement.ranks_per_server for each in ranks]
    apart = any((each != each[:, :1]).any() for each in servers)
    return max(1.0, placement.servers / 2) if apart else 1.0


def survey(
    problem: Problem[LayoutFamily],
    second: Second | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Survey:
    """Look at every layout of the job's choices.

    Parameters
    ----------
    problem : Problem
    second : Second, optional
        Shares the problem.
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
    second = Second({"problem": problem}) if second is None else second
    family = problem.family
    layouts = family.layouts()
    found: list[Candidate] = []
    least, best = float("inf"), float("inf")
    bounded: list[Bounded] = []
    parts = [layouts[begin : begin + _TOGETHER] for begin in range(0, len(layouts), _TOGETHER)]
    looks = second.share(look_at, [{"layouts": part} for part in parts], lambda: {"best": best})
    done = 0
    for part, look in zip(parts, looks, strict=True):
        for layout, one in zip(part, look.result(hear=True), strict=True):
            least = min(least, one.memory)
            if one.passes is None:
                continue
            hopeful = float("inf") if layout in family.published else _HOPEFUL * best
            if one.needless or one.passes.seconds > hopeful:
                bounded.append(Bounded(layout, one.passes, passes_only=True))
                continue
            bound, placed = one.bound, one.placed
            if bound is None or (placed is None and bound.seconds <= hopeful):
                # Ruled out by an estimate that is not among those before this layout.
                (again,) = look_at(problem, [layout], float("inf"))
                bound, placed = again.bound, again.placed
            assert bound is not None
            bounded.append(Bounded(layout, bound, passes_only=False))
            if placed is not None and bound.seconds <= hopeful:
                best = min(best, placed[1])
                found.append(Candidate(placed[0], placed[1], bound))
        done += len(part)
        if progress:
            progress(done, len(layouts), best)
    if not found:
        raise InfeasibleError(
            f"model {family.model.name!r} does not fit: the least of "
            f"{counted(len(layouts), 'layout')} needs {least / 1e9:.4g} GB on a GPU that has "
            f"{family.memory_limit / 1e9:.4g} GB to use; {_room(family, layouts)}",
            fields=tuple(family.choices.asked),
        )
    order = sorted(range(len(found)), key=lambda i: (found[i].estimate_s, i))
    return Survey(
        tuple(found[i] for i in order),
        second.start(lowest_bound, bounded=bounded),
        bounded,
        len(layouts),
    )


def _room(family: LayoutFamily, layouts: Sequence[Layout]) -> str:
    """Return what to change where no layout fits: nothing of samples, if states alone do not."""
    states = min(max(use.states for use in family.uses(layout)) for layout in layouts)
    asked = " or ".join(family.choices.asked)
    more = f"{_undivided(family)}give more servers, GPUs with more memory, "
    if states > family.memory_limit:
        other = f"or {asked} other values" if asked else "or more GPUs a server"
        return f"weights, gradients and optimizer alone take {states / 1e9:.4g} GB; {more}{other}"
    other = f"{asked} other values" if asked else "fewer samples in an iteration"
    return f"{more}a shorter sequence, or {other}"


def _undivided(family: LayoutFamily) -> str:
    """Say so where the tokens of a sample have few divisors to split them by, or nothing."""
    gpus, tokens = family.servers * family.server.gpus, family.sequence
    common = gcd(gpus, tokens)
    # All GPUs of a server may share a sample: more degrees would help little.
    enough = common == gpus or common >= max(2, family.server.gpus)
    if enough or tokens < gpus or {"tensor", "context"} & set(family.choices.asked):
        return ""
    parts = f"into {common} parts at most" if common > 1 else "by no degree"
    return (
        f"tensor and context parallelism split {tokens} tokens {parts}; give a sequence that more "
        f"degrees divide, such as {tokens // gpus * gpus}; otherwise "
    )


def lowest_bound(
    problem: Problem[LayoutFamily], bounded: Sequence[Bounded], *, quick: bool = False
) -> Bound:
    """Return the `least_bound` of a problem's layouts.

    Parameters
    ----------
    problem : Problem
    bounded : sequence of Bounded
    quick : bool

    Returns
    -------
    Bound
    """
    wirings = wirings_of(problem.family, problem.cluster)
    return least_bound(problem.family, wirings, bounded, quick=quick)


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
        of a switch, and the best estimate of the pipeline schedule, and of the number of
        stages, that has the fewest so far, because what estimates leave out differs between
        these. Layouts that differ only in that they split a microbatch by sequence rather than by
        sample come after all others. The first of more layouts are those of fewer.
    """

    def once(order: Sequence[int]) -> list[int]:
        kinds = set[tuple[object, ...]]()
        firsts = [i for i in order if new_kind(kinds, candidates[i].layout)]
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


def new_kind(kinds: set[tuple[object, ...]], layout: Layout) -> bool:
    """Say whether a kind of layout is not in a set yet, and add it."""
    kind = (
        layout.tensor, layout.pipeline, layout.expert, layout.schedule, layout.virtual_stages,
        layout.recompute, layout.zero, layout.microbatch / layout.context, layout.expert_tensor,
        layout.replicate,
    )  # fmt: skip
    known = kind in kinds
    kinds.add(kind)
    return not known
