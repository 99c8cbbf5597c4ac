"""Search over layouts, the places of their ranks, topologies and routings together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import TypeVar

from codesign_base import InfeasibleError
from codesign_base.counted import counted
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from parallelism.transformers.text import layout_text
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.second import Second
from topoopt.baselines.baseline import BaselineFabric
from topoopt.bounds.bounds import Bound
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.problem.effort import EFFORTS
from topoopt.search.crossed import crossed
from topoopt.search.finalists import FINALISTS, finalists
from topoopt.search.further_layouts import data_across, for_fabric, of_depth
from topoopt.search.placed_times import (
    Compared,
    Fastest,
    Placed,
    by_hops,
    compared_on,
    fastest_on,
    ideal_s,
    placed_on_switch,
)
from topoopt.search.result import BestOnBaseline, SearchResult
from topoopt.search.route_moves import other_routes
from topoopt.search.search_state import Keeper
from topoopt.search.survey import Candidate, Survey, diverse, lowest_bound, survey

# Placed layouts that a topology is built for; further ones until wirings have taken so much work,
# which is all of them on dozens of servers; those that need at most this share of the best time on
# the ideal switch until it is twice as much.
_WIRED, _WIRING_WORK = 6, 8e7
_PROMISING = 0.95
# Share of the best time that a placed layout may need on the ideal switch to be wired.
_WORTH = 0.999
# By how much a layout's other map of layers may be faster than it.
_NEAR = 1.05
# Placed layouts that are simulated on each fabric to compare with.
_COMPARED = 40
# Of the layouts simulated, those whose axes are tried in every order.
_REORDERED = 12
# Pairs whose routes are improved where packet trains choose.
_ROUTED = 4

_Item = TypeVar("_Item")


def _twins(candidates: Sequence[Candidate]) -> dict[Layout, Candidate]:
    """Return for layouts those that differ in nothing but the layers of their parts."""
    found: dict[Layout, list[Candidate]] = {}
    for each in candidates:
        found.setdefault(replace(each.layout, stage_layers=()), []).append(each)
    pairs = [each for each in found.values() if len(each) == 2]
    return {a.layout: b for one, other in pairs for a, b in ((one, other), (other, one))}


def _in_turn(first: Iterable[_Item], second: Iterable[_Item]) -> Iterator[_Item]:
    """Yield both in turn, each the first of two every other time, until both have ended.

    So each half of those that two processes try has as many of both.
    """
    for turn, two in enumerate(zip_longest(first, second)):
        yield from (each for each in two[:: -1 if turn % 2 else 1] if each is not None)


def _least_s(pairs: list[Pair[Placement]]) -> float:
    """Return the least time of pairs, infinite if there are none."""
    return min((pair.time for pair in pairs), default=float("inf"))


def _stages(count: int) -> list[int]:
    """Return after how many layouts the best are wired: 28, 84, 252 ... and in the end.

    So a search of 84 layouts wires all that a search of 28 wires, and then more: a larger budget
    does not end with a slower plan. Another budget wires once more at its own end.
    """
    least = EFFORTS["normal"].layouts
    stages = [min(count, least)]
    while stages[-1] < count:
        stages.append(min(count, 3 * stages[-1]))
    return stages


class LayoutSearch:
    """The search over placed layouts of one job on one cluster.

    All layouts are estimated and bounded by formula; the best are simulated on the ideal switch
    of the same ports, the fastest of these with their ranks in every order of axes; for the
    fastest, topologies are built from their traffic as for any job, until none can be expected
    to do better. The best of these topologies are tried under the other layouts, too.

    Parameters
    ----------
    problem : Problem
        Of a family of layouts.
    like : Placement, optional
        Of the same model on other servers. A layout of the same degrees, but that of data, is
        simulated whatever its estimate, with its ranks in the same order first.
    """

    def __init__(self, problem: Problem[LayoutFamily], like: Placement | None = None) -> None:
        self.problem, self.like = problem, like
        self.second = Second(self.shared)
        self.family, self.cluster = problem.family, problem.cluster
        self.placed: list[Placed] = []
        self.skipped: dict[Layout, None] = {}
        self.twins: dict[Layout, Candidate] = {}
        self._survey: Survey | None = None
        self._candidates: tuple[Candidate, ...] = ()
        # By the names of fabrics.
        self._compared: dict[str, Compared] = {}

    @property
    def shared(self) -> dict[str, Problem[LayoutFamily]]:
        """What a second process needs to know of the search."""
        return {"problem": self.problem}

    @contextmanager
    def using(self, second: Second) -> Iterator[None]:
        """Let a second process, if there is one, make some of the calls while a block runs.

        Parameters
        ----------
        second : Second
            It shares ``shared``.
        """
        before, self.second = self.second, second
        try:
            yield
        finally:
            self.second = before

    def bound(self, *, quick: bool = False) -> Bound | None:
        """Return the bound over all layouts and placements, once `run` has looked at these.

        Parameters
        ----------
        quick : bool
            Not tightened by task graphs, which may take half a minute.

        Returns
        -------
        Bound or None
        """
        found = self._survey
        if found is None:
            return None
        if quick:
            return lowest_bound(self.problem, found.bounded, quick=True)
        least: Bound = found.least.result(hear=True)
        return least

    def run(
        self, progress: ProgressCallback | None = None, keeper: Keeper | None = None
    ) -> SearchResult[Placement]:
        """Find the best layout, placement, topology and routing.

        Parameters
        ----------
        progress : callable, optional
        keeper : None
            A search of layouts is short, and keeps no state.

        Returns
        -------
        SearchResult
            Also when interrupted from the keyboard, provided that any layout was wired. Its
            ``steps`` are placed layouts that were simulated.

        Raises
        ------
        InfeasibleError
            If no layout fits, or none can be simulated on any wiring.
        """

        def report(stage: str, done: int, total: int, best: float) -> None:
            if progress:
                progress(Progress(stage, done, total, best))

        found = survey(self.problem, self.second, lambda *at: report("layouts", *at))
        self._survey = found
        chosen, always = self._chosen(found)
        self._candidates, self.twins = found.candidates, _twins(found.candidates)
        pairs: list[Pair[Placement]] = []
        wired, unsimulated, interrupted = 0, 0, False
        tried = set[Placed]()
        for several in self._in_stages(chosen, always, found, pairs):
            interrupted = self._simulate(several, report)
            ordered = by_hops(self.second, self.placed, self.cluster.servers)
            # What these could join meshes of groups that exchange do: no plan was faster on them.
            rewirer = Rewirer(self.problem, grids=False)
            for one, little in self._worth_wiring(ordered, tried, pairs, rewirer):
                if pairs and interrupted:
                    break
                tried.add(one)
                limit = _least_s(pairs)
                try:
                    made = rewirer.wire(one.placement, "search", limit=limit, formula_only=little)
                    wired += 1
                    if made is not None:
                        pairs.append(made)
                    report("topologies", wired, len(self.placed), _least_s(pairs))
                except KeyboardInterrupt:
                    if not pairs:
                        raise
                    interrupted = True
            unsimulated += rewirer.unsimulated
            try:
                if pairs and not interrupted:
                    worth = [(one.placement, one.ideal_s / _WORTH) for one in ordered]
                    pairs += crossed(self.problem, pairs, worth)
            except KeyboardInterrupt:
                interrupted = True
            if interrupted:
                break
        if not pairs and self.problem.options.compute_order != "ready":
            raise InfeasibleError(
                f"schedule is 'compute', for which every task is simulated, too many for any of "
                f"{counted(len(self.placed), 'placed layout')} on "
                f"{counted(self.cluster.servers, 'server')}; give schedule 'plain', fewer servers, "
                "or a smaller global batch"
            )
        if not pairs:
            raise InfeasibleError(
                f"none of {counted(unsimulated, 'wiring')} of "
                f"{counted(self.cluster.servers, 'server')} can be simulated for any of "
                f"{counted(len(self.placed), 'placed layout')}, as on them too few servers are "
                "alike; give fewer servers, or a smaller global batch"
            )
        kept = finalists(pairs, count=FINALISTS)
        return SearchResult(
            kept[0],
            others=kept,
            steps=len(self.placed),
            interrupted=interrupted,
            converged=not interrupted,
            skipped=tuple(layout_text(layout) for layout in self.skipped),
            counts={"layouts": found.layouts, "fitting": len(found.bounded), "wired": wired},
            unsimulated=unsimulated,
        )

    def _chosen(self, found: Survey) -> tuple[list[Candidate], int]:
        """Return the layouts to simulate, and how many of them, the first, are always."""
        always = [
            each
            for each in found.candidates
            if self._alike(each.layout) or each.layout in self.family.published
        ]
        options = self.problem.options
        promising = diverse(found.candidates, options.simulated or options.spent.layouts)
        chosen = [*always, *(each for each in promising if each not in always)]
        chosen = self._within_memory(chosen, len(always))
        return chosen, min(len(always), len(chosen))

    def _in_stages(
        self,
        chosen: Sequence[Candidate],
        always: int,
        found: Survey,
        pairs: list[Pair[Placement]],
    ) -> Iterator[Sequence[Candidate]]:
        """Yield the chosen layouts in stages, and more after the first.

        What these are follows from the pairs, which the caller adds to meanwhile.
        """
        begin = 0
        for count in _stages(len(chosen) - always):
            yield chosen[begin : always + count]
            if begin == 0 and pairs:
                yield self._more(found.candidates, min(pairs, key=lambda pair: pair.time))
            begin = always + count

    def _more(self, candidates: Sequence[Candidate], best: Pair[Placement]) -> list[Candidate]:
        """Return layouts that may be faster than the best pair though a switch says otherwise.

        Those with only data parallelism across servers, with the other maps of layers of these and
        of those that are simulated and near; and those of as many stages as the best.
        """
        below = _WORTH * best.time
        simulated = [one for one in self.placed if one.placement.of_degrees.data_across]
        known = [one.placement for one in simulated]
        more = data_across(self.problem, candidates, below, known)
        near = [one.placement for one in simulated if one.ideal_s < _NEAR * below]
        places = [*near, *(each.placement for each in more)]
        twins = [(place, self.twins.get(place.layout)) for place in places]
        more += [twin.on(place) for place, twin in twins if twin is not None]
        known = [one.placement for one in self.placed]
        more += of_depth(candidates, best.strategy.layout, below, known)
        most = self.problem.options.memory_bytes
        return [one for one in more if self.family.expected_bytes(one.placement) <= most]

    def _simulate(
        self, chosen: Sequence[Candidate], report: Callable[[str, int, int, float], None]
    ) -> bool:
        """Simulate chosen layouts on the ideal switch; say whether interrupted."""
        placed, most = self.placed, self.problem.options.memory_bytes
        # The other map of an earlier stage's layout may be among those chosen for this one.
        known = {one.placement for one in placed}
        try:
            firsts = {self._first(each): each for each in chosen}
            new = {place: each for place, each in firsts.items() if place not in known}
            for done, one in enumerate(placed_on_switch(self.second, new)):
                placed.append(one)
                best = min(p.ideal_s for p in placed)
                report("placements", done + 1, len(new), best)
            fastest = {p.candidate.layout: p.candidate for p in sorted(placed, key=ideal_s)}
            close = list(fastest.values())[:_REORDERED]
            twins = [self.twins.get(candidate.layout) for candidate in close]
            known |= {one.placement for one in placed}
            others = {
                other: candidate
                for candidate in [*close, *(twin for twin in twins if twin is not None)]
                for other in self.family.placements(candidate.layout)
                if other not in known and self.family.expected_bytes(other) <= most
            }
            for one in placed_on_switch(self.second, others):
                placed.append(one)
        except KeyboardInterrupt:
            if not placed:
                raise
            return True
        finally:
            placed.sort(key=ideal_s)
        return False

    def _worth_wiring(
        self,
        ordered: list[Placed],
        tried: set[Placed],
        pairs: list[Pair[Placement]],
        rewirer: Rewirer[Placement],
    ) -> Iterator[tuple[Placed, bool]]:
        """Yield what to wire next that was not tried, and whether by the formula only.

        Pairs are those found so far; there may be more whenever it is asked for the next. The
        rewirer knows what their wirings have taken.
        """
        published = self._published()
        first = list(dict.fromkeys([*ordered[:_WIRED], *published]))
        others = [one for one in ordered[_WIRED:] if one not in first]
        for turn, one in enumerate([*first, *others]):
            least = _least_s(pairs)
            if one in tried or one.ideal_s >= least:
                continue
            most = _WIRING_WORK * (2.0 if one.ideal_s <= _PROMISING * least else 1.0)
            if turn >= len(first) and pairs and rewirer.work >= most:
                continue
            # A plan is not slower than a published layout on the formula's wiring, be it by the
            # little that is not worth the wirings of a search.
            little = one.ideal_s >= least * _WORTH
            if not little or one in published:
                yield one, little

    def _published(self) -> list[Placed]:
        """Return the fastest placement of each published layout."""
        known = dict.fromkeys(self.family.published, True)
        return [one for one in self.placed if known.pop(one.candidate.layout, False)]

    def _within_memory(self, chosen: list[Candidate], always: int) -> list[Candidate]:
        """Leave out layouts that would take too much memory, but for the first ``always``.

        If nothing is left, the one that takes least.
        """
        takes = [self.family.expected_bytes(self._first(each)) for each in chosen]
        most = self.problem.options.memory_bytes
        kept = [i for i, size in enumerate(takes) if i < always or size <= most]
        kept = kept or [takes.index(min(takes))]
        self.skipped = {chosen[i].layout: None for i in range(len(chosen)) if i not in kept}
        return [chosen[i] for i in kept]

    def _first(self, candidate: Candidate) -> Placement:
        """Return the placement of a layout that is simulated first."""
        orders = self.family.placements(candidate.layout)
        return next(filter(self.resembles, orders), candidate.placement)

    def _alike(self, layout: Layout) -> bool:
        if self.like is None:
            return False
        here, there = asdict(layout), asdict(self.like.layout)
        return all(here[name] == there[name] for name in here if name != "data")

    def resembles(self, placement: Placement) -> bool:
        """Say whether a placement is ``like``, but for its servers."""
        like = self.like
        return like is not None and self._alike(placement.layout) and placement.order == like.order

    def candidates(
        self, result: SearchResult[Placement], progress: ProgressCallback | None = None
    ) -> list[Pair[Placement]]:
        """Return the pairs among which packet trains choose: the best, with other routes, too."""
        return other_routes(self.problem, result.others, _ROUTED)

    def best_on(
        self,
        base: BaselineFabric,
        result: SearchResult[Placement],
        progress: ProgressCallback | None = None,
    ) -> BestOnBaseline[Placement]:
        """Return which of the placed layouts is fastest on another fabric.

        Parameters
        ----------
        base : BaselineFabric
            One of those of `compare_with`.
        result : SearchResult
            Of this search.
        progress : callable, optional

        Returns
        -------
        BestOnBaseline
        """
        compared = self._compared[base.fabric.name]
        halves: list[Fastest] = [half.result(hear=True) for half in compared.halves]
        bounded, time, which = min(halves)
        if progress:
            progress(Progress(base.fabric.name, 1, 1, time))
        return BestOnBaseline(compared.placed[which][0], time, bounded)

    def compare_with(self, bases: Sequence[BaselineFabric]) -> None:
        """Begin what `best_on` returns for several fabrics.

        Parameters
        ----------
        bases : sequence of BaselineFabric
        """
        fabrics = [base.fabric for base in bases]
        fitted = [for_fabric(self.problem, self._candidates, fabric) for fabric in fabrics]
        tried = zip(fabrics, map(self._tried, fitted), strict=True)
        begun = compared_on(self.second, list(tried), self.problem.baseline_work)
        self._compared = dict(zip((fabric.name for fabric in fabrics), begun, strict=True))

    def origin_of(self, placement: Placement, result: SearchResult[Placement]) -> str:
        """Say where a placed layout comes from: "plan" or "search".

        Parameters
        ----------
        placement : Placement
        result : SearchResult
            Of this search.

        Returns
        -------
        str
        """
        return "plan" if placement == result.best.strategy else "search"

    def fastest_on(self, fabric: AnyFabric) -> tuple[Placement, float]:
        """Return which of the placed layouts is fastest on a fabric, and its seconds.

        Those that resemble ``like`` come first, then those fastest on the ideal switch.

        Parameters
        ----------
        fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits

        Returns
        -------
        placement : Placement
        time : float
        """
        tried, work = self._tried(), float("inf")
        found = fastest_on(self.problem, fabric, tried, range(len(tried)), work, work)
        return tried[found.number][0], found.time

    def _tried(self, fitted: Sequence[Candidate] = ()) -> list[tuple[Placement, float]]:
        """Return the placed layouts that are tried on another fabric, in order.

        Those that resemble ``like`` come first, then in turn those fastest on the ideal switch and
        those ``fitted`` to the fabric. Every layout has its turn before others of its placements
        that are fast on the ideal switch have: fabrics of many servers leave work for a dozen. Each
        comes with seconds that it takes at least.
        """
        fastest = self.placed[:_COMPARED]
        alike = [one for one in self.placed if self.resembles(one.placement)]
        firsts = {one.candidate.layout: one for one in reversed(fastest)}
        known = [
            [(one.placement, one.ideal_s) for one in several]
            for several in (alike, sorted(firsts.values(), key=ideal_s), fastest)
        ]
        others = [(each.placement, each.bound.seconds) for each in fitted]
        tried: dict[Placement, float] = {}
        for place, least in [*known[0], *_in_turn(known[1], others), *known[2]]:
            tried.setdefault(place, least)
        return list(tried.items())
