"""What a search over operator strategies is made of: its question, its steps, and their state.

A method is a record of functions, which `topoopt.search.driver` calls in the same order for all
methods. They share one state, which is everything that the search goes on from.
"""

import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from parallelism.builder import TaskGraphBuilder
from parallelism.search.annealing import Annealer
from parallelism.search.local import LocalSearch
from parallelism.search.mcmc import Acceptance
from parallelism.search.portfolio import Portfolio
from parallelism.search.regions import Regions
from parallelism.search.searcher import Searcher
from parallelism.search.space import StrategySpace
from topoopt.base.progress import ProgressCallback
from topoopt.base.second import Second, Task
from topoopt.base.side_by_side import THREADED_FROM, in_twos
from topoopt.bounds.bounds import Bound
from topoopt.bounds.everything import everything_bound
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.transport import PACKETS
from topoopt.problem.budget import Budget
from topoopt.problem.effort import Effort
from topoopt.problem.routing import Routing
from topoopt.search.finalists import FINALISTS, PACKET_FINALISTS, finalists
from topoopt.search.joint_moves import JointMoves
from topoopt.search.result import SearchResult
from topoopt.search.search_state import SearchState
from topoopt.search.wirer import Wirer
from topoopt.search.yielding import YIELDING

# Of many variants of one pair only the fastest is worth a truer simulation.
_SPACING = 0.004
# Proposals that a chain makes on one fabric before the topology is built anew.
_ROUND_STEPS = 150
SPLITS_GAIN = 1.03
"""By how much other wirings of a strategy are hoped to be faster than the published formula's."""


@dataclass(frozen=True)
class Deadline:
    """When a search stops, and to whom it reports.

    Parameters
    ----------
    budget : Budget
    at : float
        When time is up, on the monotonic clock, seconds.
    progress : callable or None
    """

    budget: Budget
    at: float
    progress: ProgressCallback | None

    @classmethod
    def begun(cls, budget: Budget, progress: ProgressCallback | None) -> "Deadline":
        """Return that of a search whose time begins now."""
        return cls(budget, clock.monotonic() + budget.seconds, progress)


@dataclass
class Round:
    """One chain's share of a round: its own state, so that chains can run side by side.

    Attributes
    ----------
    pair : Pair
        Where the chain is.
    rng : numpy.random.Generator
    steps : int
        Proposals to make at most.
    searcher : Searcher or None
        What goes on proposing strategies on the pair's fabric; None to begin anew.
    moves : JointMoves or None
        What goes on with neighbours of the pair.
    most_work : float
        What proposals may cost; the first that exceeds it is the last.
    done : int
        Proposals made.
    work : float
        What they and their topologies cost.
    """

    pair: Pair
    rng: np.random.Generator
    steps: int
    searcher: Searcher | None = None
    moves: JointMoves | None = None
    most_work: float = float("inf")
    done: int = 0
    work: float = 0.0


After = Callable[["Search", SearchState, Round, bool], None]
Mix = Callable[["Search", SearchState, list[Pair]], list[Pair]]


def any_ports(problem: Problem) -> None:
    """Accept every problem."""


def portfolio(search: "Search", pair: Pair) -> Searcher:
    """Return two annealers and a local search that take turns from a pair on its fabric."""
    space, regions, start, time = search.space, search.regions, pair.strategy, pair.time
    return Portfolio(
        [
            Annealer(space, regions, start, time, period=400),
            Annealer(
                space, regions, start, time, period=1000,
                acceptance=Acceptance(start=0.003, end=0.0001),
            ),
            LocalSearch(space, regions, start, time),
        ]
    )  # fmt: skip


def stay(search: "Search", state: SearchState, r: Round, changed: bool) -> None:
    """Keep a chain on its fabric."""


def as_found(search: "Search", state: SearchState) -> None:
    """Leave a result as the rounds have left it."""


@dataclass(frozen=True)
class SearchMethod:
    """A way to search: the steps that `topoopt.search.driver.run` takes, in this order.

    Parameters
    ----------
    population : callable
        Given the search, its state, the starting pairs (fastest first) and the deadline, return the
        pairs that the chains start from, none where there is nothing to search; bring the
        state's result up to date with what that costs and finds.
    after : callable
        Given the search, its state, a chain's round and whether it has found a faster strategy
        on its fabric, change the topology.
    mix : sequence of callables
        After every round, each given the search, its state and the pairs of the chains: return
        the pairs that they go on with.
    conclude : callable
        Do what is left to do when the rounds are over.
    check : callable
        Refuse problems that the method cannot serve.
    any_parts, sample_only : bool
        Which strategies may be proposed, see `parallelism.search.space.StrategySpace`.
    starts : sequence of str or None
        Names of the strategies that it begins with; all that are known by default.
    searcher : callable
        Return what proposes strategies from a pair on its fabric.
    budget : callable
        Of a number of servers, when to stop by default.
    round_steps : int
        Proposals in a chain's round at most.
    spacing : float
        By how much the pairs differ that a truer model may choose among.
    compared : bool
        Whether the method holds strategy or topology fast, to be compared with: its result may
        be slower than a start, and packet trains do not go on from it.
    """

    population: Callable[["Search", SearchState, list[Pair], Deadline], list[Pair]]
    after: After = stay
    mix: Sequence[Mix] = ()
    conclude: Callable[["Search", SearchState], None] = as_found
    check: Callable[[Problem], None] = any_ports
    any_parts: bool = True
    sample_only: bool = False
    starts: Sequence[str] | None = None
    searcher: Callable[["Search", Pair], Searcher] = portfolio
    budget: Callable[[int], Budget] = Budget.default
    round_steps: int = _ROUND_STEPS
    spacing: float = _SPACING
    compared: bool = False


class Search:
    """A problem and the method that searches it, with what all steps use.

    Parameters
    ----------
    problem : Problem
        Scored by fluid times. The same problem and as many steps give the same result.
    method : SearchMethod

    Raises
    ------
    InputError
        If the method cannot serve the problem.
    """

    def __init__(self, problem: Problem, method: SearchMethod) -> None:
        method.check(problem)
        self.problem, self.method = problem, method
        self.cluster, self.options = problem.cluster, problem.options
        self.space = StrategySpace(
            self.builder.graph, self.cluster.servers, problem.family.batch,
            sample_only=method.sample_only, any_parts=method.any_parts,
            parameter_splits=self.options.parameter_splits,
        )  # fmt: skip
        self.regions = Regions(self.builder.graph, self.space.alike)
        # What scores weigh transfers that yield by, until packet trains say it of this job.
        self.yielding = YIELDING if self.moves_by_packets else 0.0
        self._second: Second | None = None
        self._least: Task | None = None

    def __reduce__(self) -> tuple[type["Search"], tuple[Problem, SearchMethod]]:
        """Return what is sent to another process: nothing that can be worked out there."""
        return Search, (self.problem, self.method)

    def __copy__(self) -> "Search":
        """Return one of the same space, builder and second process."""
        other = object.__new__(Search)
        other.__dict__.update(self.__dict__)
        return other

    @property
    def second(self) -> Second:
        """A second process, if there is one, that shares this as ``search``."""
        # Kept, it would be part of a cycle.
        return Second({"search": self}) if self._second is None else self._second

    @contextmanager
    def using(self, second: Second) -> Iterator[None]:
        """Let a second process, if there is one, make some of the calls while a block runs."""
        self._second = second
        try:
            yield
        finally:
            self._second = self._least = None

    @property
    def sought(self) -> Problem:
        """What the rounds go by."""
        return self.problem.scored(self.yielding)

    @property
    def effort(self) -> Effort:
        """What the search trades for time."""
        return self.options.spent

    @property
    def builder(self) -> TaskGraphBuilder:
        """What builds the task graphs of strategies."""
        return self.problem.family.builder

    @property
    def moves_by_packets(self) -> bool:
        """Whether the search goes on by simulations with packet trains."""
        balanced = self.options.routings(self.cluster.servers) == (Routing.BALANCED,)
        return balanced and not self.method.compared

    @property
    def kept(self) -> int:
        """How many pairs a truer model may choose among."""
        return PACKET_FINALISTS if self.moves_by_packets else FINALISTS

    @property
    def threaded(self) -> bool:
        """Whether chains run side by side, and so can share nothing."""
        return self.cluster.servers >= THREADED_FROM

    @property
    def compares_more(self) -> bool:
        """Whether fabrics compared with get starts of their own, and what others found.

        Not on many servers, where a score takes long, nor where other methods than the default
        one are asked for, which are there to be compared with.
        """
        return self.options.searched == "joint" and not self.threaded

    @property
    def wirings_costly(self) -> bool:
        """Whether a wiring takes long to try, but pairs are still wired in all ways."""
        return self.threaded and not self.problem.spares

    def formula_limit(self, best: float) -> float:
        """Return seconds that the published formula's wiring may take beside the best pair.

        Where wirings are costly, because other splits gain a few percent; infinite elsewhere.
        """
        return SPLITS_GAIN * best if self.wirings_costly else float("inf")

    @property
    def ideal(self) -> Fabric:
        """The switch that strategies are sought on before they are wired."""
        return self.problem.ideal

    @cached_property
    def least(self) -> Bound | None:
        """What no plan is faster than, where devices work in the plain order."""
        if self._least is None:
            return search_bound(self)
        least: Bound | None = self._least.result(hear=True)
        return least

    def look_ahead(self) -> None:
        """Let a second process that has nothing else to do work out what no plan is faster than."""
        if self.second.there:
            (self._least,) = self.second.share(search_bound, [{}])

    def exhausted(self, time: float) -> bool:
        """Say whether no plan is faster than a pair by as much as a stage must gain to go on.

        Where packet trains choose what is kept, more than its fluid time counts.

        Parameters
        ----------
        time : float
            Of the pair, seconds.
        """
        gain = self.effort.least_gain
        if gain <= 0.0 or self.moves_by_packets or self.method.compared or time == np.inf:
            return False
        return self.least is not None and time <= (1.0 + gain) * self.least.seconds

    def rewirer(self) -> Rewirer:
        """Return what builds topologies for a strategy, by the score of the rounds."""
        return Rewirer(self.sought)

    def wirer(self) -> Wirer:
        """Return what wires several strategies, by the score of the rounds."""
        return Wirer(self.sought, self.space, self.second)

    def scorer(self, fabric: Fabric) -> Scorer:
        """Return what scores strategies on a fabric exactly; on many servers near enough."""
        return self.quick_scorer(fabric) if self.problem.spares else Scorer(self.sought, fabric)

    def quick_scorer(self, fabric: Fabric) -> Scorer:
        """Return what scores proposals on a fabric, near enough on many servers."""
        ideal = fabric is self.ideal
        # What rings and transfers meet there says little of what they meet on wires.
        problem = self.problem if ideal else self.sought
        return Scorer(
            problem, fabric, search_tolerance(self.cluster.servers), wired_later=ideal
        )  # fmt: skip

    def keep(self, result: SearchResult, found: list[Pair]) -> None:
        """Bring a result up to date with pairs that were found."""
        result.best = min([result.best, *found], key=lambda pair: pair.time)
        met = [result.best, *result.others, *found]
        result.others = finalists(met, self.method.spacing, self.kept)


def rewired(search: Search, state: SearchState, r: Round, changed: bool) -> None:
    """Build topologies for a chain's strategy, and go on with the best if it is faster."""
    rewirer = search.rewirer()
    time = r.pair.time
    found = rewirer.wire(
        r.pair.strategy, r.pair.origin, formula_limit=search.formula_limit(time), limit=time,
        weighted=True,
    )  # fmt: skip
    r.work += rewirer.work
    if found is not None and found.time < r.pair.time:
        r.pair, r.searcher = found, None
    r.moves = None


def timed(problem: Problem, pairs: list[Pair], result: SearchResult) -> list[Pair]:
    """Return pairs with a problem's scores for times, and count what that costs."""

    def scored(pair: Pair, _: float) -> tuple[float, float]:
        scorer = Scorer(problem, pair.fabric)
        return scorer(pair.strategy), scorer.work

    found = []
    for pair, (time, work) in in_twos(pairs, scored, lambda: 0.0, problem.cluster.servers, 0):
        found.append(replace(pair, time=time))
        result.work += work
    return found


def search_bound(search: Search) -> Bound | None:
    """Work out `Search.least`, also in another process."""
    if not search.options.plain_orders:
        return None
    return everything_bound(search.problem.family, search.cluster, hops=PACKETS.ways)
