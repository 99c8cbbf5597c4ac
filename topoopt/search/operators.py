"""The search over operator strategies, as the whole answer calls it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

from parallelism.strategy import Strategy
from topoopt.base.progress import ProgressCallback
from topoopt.base.second import Second
from topoopt.base.side_by_side import in_twos
from topoopt.baselines.baseline import BaselineFabric
from topoopt.bounds.bounds import Bound
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.problem.budget import Budget
from topoopt.problem.routing import Routing
from topoopt.search.again import astray, judged, one_path, search_again
from topoopt.search.confirm import screened
from topoopt.search.driver import run
from topoopt.search.finalists import FINALISTS, finalists
from topoopt.search.methods import search_for
from topoopt.search.of_fewer import best_of_fewer
from topoopt.search.on_baseline import best_on_baseline, better_on_baseline, origin_of
from topoopt.search.packet_climbs import Climber
from topoopt.search.packet_moves import PacketMoves
from topoopt.search.result import BestOnBaseline, SearchResult
from topoopt.search.route_moves import other_routes
from topoopt.search.search_state import Keeper
from topoopt.search.steps import Search
from topoopt.search.yielding import YIELDING


class OperatorSearch:
    """One search of a job by operators.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.search = search_for(problem.fused)
        # What packet trains said of the best pair before they choose.
        self._judged: list[Pair] = []

    @property
    def shared(self) -> dict[str, Search]:
        """What a second process needs to know of the search."""
        return {"search": self.search}

    def using(self, second: Second) -> AbstractContextManager[None]:
        """Let a second process, if there is one, make some of the calls while a block runs.

        Parameters
        ----------
        second : Second
            It shares ``shared``.
        """
        return self.search.using(second)

    def budget(self) -> Budget:
        """Return when the search stops at the latest."""
        options = self.problem.options
        if options.seconds is not None:
            return Budget(seconds=options.seconds)
        if options.steps is not None:
            return Budget(steps=options.steps)
        return self.search.method.budget(self.problem.cluster.servers)

    def run(
        self, progress: ProgressCallback | None = None, keeper: Keeper | None = None
    ) -> SearchResult:
        """Search; see `topoopt.search.driver.run`."""
        return run(self.search, self.budget(), progress, keeper)

    def astray(self, result: SearchResult[Strategy]) -> bool:
        """Say whether packet trains do not confirm the best pair, so that it pays to search again.

        Parameters
        ----------
        result : SearchResult
            What `run` returned.

        Returns
        -------
        bool
        """
        if not self._judges(result):
            return False
        try:
            self._judged = judged(self.problem, result.best)
        except KeyboardInterrupt:
            result.interrupted = True
            return False
        result.best = self._judged[0]
        return astray(self.search, self._judged)

    def search_again(
        self, result: SearchResult[Strategy], progress: ProgressCallback | None = None
    ) -> None:
        """Add to a result what a search by another score finds."""
        try:
            search_again(self.search, result, progress)
        except KeyboardInterrupt:
            result.interrupted = True

    def _judges(self, result: SearchResult[Strategy]) -> bool:
        """Say whether the pairs of a search may be misjudged by flows, and packets can tell."""
        options, search = self.problem.options, self.search
        return (
            options.confirm == "packet" and options.faithful is None
            and not search.moves_by_packets and not search.method.compared
            and not self.problem.spares and search.effort.finalists > 1
            and not result.interrupted and result.best.topology is not None
        )  # fmt: skip

    def bound(self, *, quick: bool = False) -> Bound | None:
        """Return the bound over all strategies; None where it depends on the schedule chosen.

        Parameters
        ----------
        quick : bool
            Ignored: it takes no time to speak of.

        Returns
        -------
        Bound or None
        """
        return self.search.least

    def candidates(
        self, result: SearchResult, progress: ProgressCallback | None = None
    ) -> list[Pair]:
        """Return the pairs among which packet trains choose.

        Parameters
        ----------
        result : SearchResult
            Its best pair becomes that of the moves by packet trains if they are interrupted.
        progress : callable, optional

        Returns
        -------
        list of Pair

        Raises
        ------
        KeyboardInterrupt
            From the keyboard.
        """
        found, search, effort = result.others, self.search, self.search.effort
        servers = self.problem.cluster.servers
        if self.problem.options.routings(servers) != (Routing.BALANCED,):
            # Of many variants flows may like all for what packets do not: the best start is none.
            beside = [pair for pair in (result.again, result.first) if pair is not None]
            own = finalists([result.best, *beside], count=effort.finalists)
            distinct = finalists([*own, *found], count=len(found) + 1)
            distinct = [pair for pair in distinct if all(pair is not one for one in own)]
            others = self._yielding(distinct)[: effort.finalists - len(own)]
            fewer = self._of_fewer(progress) if effort.finalists > 1 else []
            return [*own, *self._one_path([*own, *fewer]), *others, *fewer]
        if search.moves_by_packets and not result.interrupted:
            climber = Climber(self.problem, search.space, search.regions, search.yielding)
            moves = PacketMoves(climber, result.work, search.second)
            found = moves.improved(found, result.steps, progress)[:FINALISTS]
            if moves.interrupted:
                result.best = found[0]
                raise KeyboardInterrupt
        found = other_routes(self.problem, found, effort.routed)
        found = screened(self.problem, found, effort.confirmed, progress)
        if search.moves_by_packets and not result.interrupted:
            # One copy in packet trains may be fast by chance; copies of this pair differ least.
            found = finalists([*found, self._steadiest(result.others)], count=len(found) + 1)
        return sorted(found, key=lambda pair: pair.time)

    def _steadiest(self, pairs: list[Pair]) -> Pair:
        """Return the pair, of at least one, that is fastest if all transfers yield."""
        problem = self.problem.scored(1.0)
        best, least = pairs[0], float("inf")
        for pair in sorted(pairs, key=lambda pair: pair.time):
            if pair.time >= least:
                break  # yielding takes no less than fair shares
            time = Scorer(problem, pair.fabric)(pair.strategy, least)
            if time < least:
                best, least = pair, time
        return best

    def _of_fewer(self, progress: ProgressCallback | None) -> list[Pair]:
        """Return wirings of the best that a search on fewer servers has found, by yielding scores.

        As starts they would take the place of pairs that packet trains like better: packet trains
        had a say in them, but flows choose what a search of so many servers keeps.
        """
        strategies, _ = best_of_fewer(self.search, progress)
        rewirer = Rewirer(self.problem.scored(YIELDING))
        # What takes longer by this score than the best pair by packets is hardly faster by these.
        known = [pair.packets.mean for pair in self._judged if pair.packets is not None]
        most = min(known, default=float("inf"))
        found = [rewirer.wire(each, "search", limit=most) for each in strategies]
        return [
            replace(pair, time=Scorer(self.problem, pair.fabric)(pair.strategy))
            for pair in found
            if pair is not None and pair.time < most
        ]

    def _yielding(self, pairs: list[Pair]) -> list[Pair]:
        """Return pairs in the order of their yielding scores, which predict packets."""
        servers = self.problem.cluster.servers
        problem = self.problem.scored(YIELDING)

        def scored(pair: Pair, _: float) -> float:
            return Scorer(problem, pair.fabric, search_tolerance(servers))(pair.strategy)

        times = [time for _, time in in_twos(pairs, scored, lambda: 0.0, servers)]
        order = sorted(range(len(pairs)), key=lambda place: (times[place], place))
        return [pairs[place] for place in order]

    def _one_path(self, pairs: list[Pair]) -> list[Pair]:
        """Return pairs of many servers with one path a pair, as messages take."""
        rerouted = []
        for pair in pairs:
            if pair.topology is None or self.problem.options.faithful is not None:
                continue
            if self._judged and self._judged[0] is pair:
                rerouted += self._judged[1:]
            elif (other := one_path(self.problem, pair)) is not None:
                rerouted.append(other)
        return rerouted

    def best_on(
        self,
        base: BaselineFabric,
        result: SearchResult,
        progress: ProgressCallback | None = None,
    ) -> BestOnBaseline[Strategy]:
        """Search the best strategy for a fabric to compare with.

        Parameters
        ----------
        base : BaselineFabric
        result : SearchResult
            Of this search.
        progress : callable, optional

        Returns
        -------
        BestOnBaseline
        """
        return best_on_baseline(self.search, base, result, progress)

    def exchanges(self, result: SearchResult) -> bool:
        """Say whether the plan and the fabrics it is compared with try what others found."""
        return not result.interrupted and self.search.compares_more

    def better_on(
        self, base: BaselineFabric, best: BestOnBaseline[Strategy], others: Iterable[Strategy]
    ) -> BestOnBaseline[Strategy]:
        """Return the best strategy for a fabric to compare with, of one found and others.

        Parameters
        ----------
        base : BaselineFabric
        best : BestOnBaseline
            What `best_on` returned.
        others : iterable of Strategy

        Returns
        -------
        BestOnBaseline
        """
        return better_on_baseline(self.search.problem.plain, base, best, others)

    def wired_anew(self, strategies: Iterable[Strategy], best: Pair) -> list[Pair]:
        """Wire strategies that were found elsewhere.

        Parameters
        ----------
        strategies : iterable of Strategy
        best : Pair
            Of the plan.

        Returns
        -------
        list of Pair
            Those that the search's score takes for faster than the plan, with their fluid times.
        """
        search = self.search
        least = search.scorer(best.fabric)(best.strategy)
        wired = [search.rewirer().wire(each, "search", limit=least) for each in strategies]
        return [
            replace(pair, time=Scorer(self.problem, pair.fabric)(pair.strategy))
            for pair in wired
            if pair is not None and pair.time < least
        ]

    def origin_of(self, strategy: Strategy, result: SearchResult) -> str:
        """Say where a strategy comes from: "plan", the name of a usual one, or "search".

        Parameters
        ----------
        strategy : Strategy
        result : SearchResult
            Of this search.

        Returns
        -------
        str
        """
        return origin_of(self.search, strategy, result)


def best_for_fabric(
    search: Search, base: BaselineFabric, result: SearchResult[Strategy]
) -> BestOnBaseline[Strategy]:
    """Return what `OperatorSearch.best_on` does, also in another process.

    Parameters
    ----------
    search : Search
    base, result
        As there.

    Returns
    -------
    BestOnBaseline
    """
    return best_on_baseline(search, base, result)
