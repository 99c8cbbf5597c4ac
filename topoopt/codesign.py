"""Alternating co-optimization of strategy, topology and routing (TopoOpt, NSDI'23, sec. 4)."""

import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from parallelism.builder import TaskGraphBuilder
from parallelism.search.mcmc import Acceptance, Chain
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from parallelism.taskgraph import TaskGraph, traffic_of
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric
from topoopt.job import Cluster
from topoopt.scoring import Routing, Scorer, busiest, direct_fabric
from topoopt.topology.finder import PortModel, Topology, find_topology
from topoopt_base import InfeasibleError, InputError

FAITHFUL = ("paper", "artifact")

# FlexFlow's acceptance constant, per millisecond; used by the faithful settings only.
_FLEXFLOW_ALPHA = 0.05
# A round that improves the best time by less than this share counts as converged.
_CONVERGED = 1e-3
_PATIENCE = 4
# Proposals that a chain makes on one fabric before the topology is built anew.
_ROUND_STEPS = 60
# Beyond this size a search scores with flows that end within this share of their age batched
# (error below 0.1 %); whatever it keeps is simulated again exactly.
_EXACT_SERVERS = 32
_TOLERANCE = 0.01
# Cost of building and routing the candidate topologies, a server pair.
_WIRE_WORK = 200.0


@dataclass(frozen=True)
class Progress:
    """What a search reports while it works.

    Parameters
    ----------
    stage : str
        What is being searched ("start", "search", or a baseline's name).
    done, total : int
        Steps made and planned in this stage (total 0: bounded by time).
    best : float
        Best iteration time so far, seconds.
    """

    stage: str
    done: int
    total: int
    best: float


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Settings:
    """How a search works; everything that departs from the paper can be switched back.

    Parameters
    ----------
    faithful : {None, "paper", "artifact"}
        "paper": one chain, FlexFlow's moves and absolute acceptance, the formula's degree
        split, k-shortest-path routing. "artifact": besides, sample splits and whole placements
        only, d_A = d, the artifact's generators, single random shortest paths; needs
        bidirectional ports.
    chains : int
        Markov chains; each carries a pair of strategy and topology of its own.
    """

    faithful: str | None = None
    chains: int = 3

    def __post_init__(self) -> None:
        if self.faithful is not None and self.faithful not in FAITHFUL:
            raise InputError(f"faithful is {self.faithful!r}; choose {' or '.join(FAITHFUL)}")
        if self.chains < 1:
            raise InputError(f"chains is {self.chains}; give at least 1")

    @property
    def acceptance(self) -> Acceptance:
        """Acceptance rule of the chains."""
        return Acceptance(absolute_alpha=_FLEXFLOW_ALPHA if self.faithful else None)

    @property
    def routings(self) -> tuple[Routing, ...]:
        """Routings tried for each topology."""
        if self.faithful == "artifact":
            return (Routing.SINGLE,)
        if self.faithful == "paper":
            return (Routing.K_SHORTEST,)
        return (Routing.ECMP, Routing.K_SHORTEST)


@dataclass(frozen=True)
class Pair:
    """A strategy on a wired and routed cluster, scored.

    Parameters
    ----------
    strategy : Strategy
    topology : Topology or None
        None for a single server, which needs no network.
    routing : Routing
    fabric : Fabric
    time : float
        Iteration time, seconds.
    origin : str
        Where the strategy came from (a named strategy, or "search").
    """

    strategy: Strategy
    topology: Topology | None
    routing: Routing
    fabric: Fabric
    time: float
    origin: str


@dataclass
class SearchResult:
    """What a search found, and what it tried.

    Attributes
    ----------
    best : Pair
    named : dict
        Iteration time of each named strategy on a topology of its own, seconds; infinity
        where it does not fit in memory.
    steps : int
        Proposals made.
    work : float
        Cost of all scores; see `topoopt.scoring.Scorer`.
    interrupted : bool
        Whether it was stopped from the keyboard.
    converged : bool
        Whether it stopped because no chain improved any more.
    """

    best: Pair
    named: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    work: float = 0.0
    interrupted: bool = False
    converged: bool = False


@dataclass(frozen=True)
class Budget:
    """When a search stops at the latest.

    Parameters
    ----------
    steps : int
        Proposals over all chains.
    work : float
        Cost of all scores, in the units of `topoopt.scoring.Scorer`.
    seconds : float
        Wall-clock time.
    """

    steps: int = 2**62
    work: float = float("inf")
    seconds: float = float("inf")

    @classmethod
    def default(cls, servers: int) -> "Budget":
        """Return the budget of a job that names none.

        Up to 4000 steps; fewer where scores are expensive, by counted work and not by the
        clock, so that a 16-server job takes seconds and a 128-server job under a minute.
        """
        return cls(steps=4000, work=float(np.clip(3e6 * servers, 2e7, 2e8)))


def search_tolerance(servers: int) -> float:
    """Return the completion tolerance that a search scores with."""
    return _TOLERANCE if servers > _EXACT_SERVERS else 0.0


def no_network(servers: int) -> Fabric:
    """Return the fabric of a single server, which sends nothing."""
    empty = np.zeros(0)
    none = np.zeros(0, dtype=np.int64)
    network = Network("one server", servers, 0, none, none, empty, empty, none)
    pairs = servers * servers
    routes = Routes(
        servers, np.zeros(pairs + 1, dtype=np.int64), none, empty, np.zeros(pairs), np.zeros(pairs)
    )
    return Fabric("topoopt", network, routes, {})


class AlternatingSearch:
    """The alternating optimizer of one job on one cluster.

    Parameters
    ----------
    builder : TaskGraphBuilder
    cluster : Cluster
    memory_limit : float
        Bytes of each GPU.
    settings : Settings
    seed : int
        Of the random proposals; the same seed and steps give the same result.
    """

    def __init__(
        self,
        builder: TaskGraphBuilder,
        cluster: Cluster,
        memory_limit: float,
        settings: Settings,
        seed: int,
    ) -> None:
        if settings.faithful == "artifact" and cluster.port_model is not PortModel.BIDIRECTIONAL:
            raise InputError(
                "faithful is 'artifact' but ports is 'directed'; the artifact's rings are "
                "bidirectional, so give ports='bidirectional'"
            )
        self.builder = builder
        self.cluster = cluster
        self.memory_limit = memory_limit
        self.settings = settings
        self.seed = seed
        self.space = StrategySpace(
            builder.graph,
            cluster.servers,
            builder.batch,
            sample_only=settings.faithful == "artifact",
        )
        self.tolerance = search_tolerance(cluster.servers)
        self.work = 0.0
        self._alone = no_network(1) if cluster.servers == 1 else None

    # -- communication x topology ---------------------------------------------------------

    def wire(
        self,
        strategy: Strategy,
        origin: str,
        *,
        formula_only: bool = False,
        limit: float = float("inf"),
        exact: bool = True,
    ) -> Pair | None:
        """Return the best pair of a strategy with a topology built for its traffic.

        Parameters
        ----------
        strategy : Strategy
            One that fits in memory.
        origin : str
        formula_only : bool
            Try the paper's degree split only.
        limit : float
            Pairs that are provably slower than this many seconds are not simulated.
        exact : bool
            Score the best pair exactly, even where the search's scores are not.

        Returns
        -------
        Pair or None
            None if every pair is slower than the limit.
        """
        if self._alone is not None:
            time = Scorer(self.builder, self._alone, self.memory_limit)(strategy)
            return Pair(strategy, None, Routing.ECMP, self._alone, time, origin)
        tasks = self.builder.build(strategy)
        self.work += _WIRE_WORK * self.cluster.servers**2
        candidates: list[tuple[float, int, Topology, Routing, Fabric]] = []
        for topology in self._topologies(tasks, formula_only):
            for routing in self.settings.routings:
                fabric = direct_fabric(topology, routing, self.seed)
                bound = busiest(fabric, tasks)
                candidates.append((bound, len(candidates), topology, routing, fabric))
        # Most promising first, so that the bounds of most others rule them out unsimulated.
        candidates.sort(key=lambda candidate: candidate[:2])
        found: tuple[Topology, Routing, Fabric] | None = None
        fastest = limit * (1.0 + _TOLERANCE)
        for bound, _, topology, routing, fabric in candidates:
            if bound > fastest:
                break
            quick = Scorer(self.builder, fabric, self.memory_limit, self.tolerance)
            time = quick.simulate(tasks, fastest)
            self.work += quick.work
            if time <= fastest:
                fastest, found = time, (topology, routing, fabric)
        if found is None:
            return None
        topology, routing, fabric = found
        pair = Pair(strategy, topology, routing, fabric, fastest, origin)
        if exact:
            pair = self._exactly(pair)
        return pair if pair.time <= limit else None

    def _exactly(self, pair: Pair) -> Pair:
        """Return the pair with its exact time."""
        if not self.tolerance:
            return pair
        scorer = Scorer(self.builder, pair.fabric, self.memory_limit)
        time = scorer.simulate(self.builder.build(pair.strategy))
        self.work += scorer.work
        return replace(pair, time=time)

    def _topologies(self, tasks: TaskGraph, formula_only: bool) -> Iterator[Topology]:
        """Build the candidate topologies for a strategy's traffic, the paper's formula first."""
        traffic = traffic_of(tasks)
        cluster, faithful = self.cluster, self.settings.faithful

        def build(split: int | None, like: str | None, surplus: str = "matching") -> Topology:
            return find_topology(
                traffic,
                cluster.degree,
                cluster.port_rate,
                latency=cluster.hop_latency,
                ports=cluster.port_model,
                degree_allreduce=split,
                surplus=surplus,
                faithful=like,
            )

        first = build(None, faithful)
        yield first
        if formula_only or faithful is not None:
            return
        if traffic.transfer_sent() > 0 and traffic.groups:
            yield build(None, None, "rings")
            for split in range(1, cluster.degree + 1):
                if split != first.degree_allreduce:
                    yield build(split, None, "rings")
        if cluster.port_model is PortModel.BIDIRECTIONAL:
            # The published generators, so that a plan is never worse than on those rings.
            yield build(None, "artifact")

    # -- start ----------------------------------------------------------------------------

    def start(
        self, progress: ProgressCallback | None = None
    ) -> tuple[list[Pair], dict[str, float], bool]:
        """Score every named strategy on a topology of its own.

        Returns
        -------
        pairs : list of Pair
            Those that fit, fastest first.
        times : dict
            Seconds by name; infinity where a strategy does not fit. Those that are slower than
            the best few are left out.
        interrupted : bool
            Whether it was stopped from the keyboard after at least one pair was scored.

        Raises
        ------
        InfeasibleError
            If none fits in memory.
        """
        scorer = Scorer(self.builder, no_network(self.cluster.servers), self.memory_limit)
        named = named_strategies(self.space)
        pairs: list[Pair] = []
        times: dict[str, float] = {}
        best = float("inf")
        usual = ("data-parallel", "hybrid")
        interrupted = False
        try:
            for done, (name, plain) in enumerate(named.items()):
                strategy = self.space.intern(plain)
                if not scorer.fits(strategy):
                    times[name] = float("inf")
                else:
                    # The usual two are always simulated, because plans are compared with them.
                    limit = float("inf") if name in usual else 1.5 * best
                    pair = self.wire(strategy, name, limit=limit, exact=name in usual)
                    if pair is not None:
                        pairs.append(pair)
                        best = min(best, pair.time)
                if progress:
                    progress(Progress("start", done + 1, len(named), best))
        except KeyboardInterrupt:
            if not pairs:
                raise
            interrupted = True
        if not pairs:
            least = min(float(self.builder.memory(s).max()) for s in named.values())
            raise InfeasibleError(
                f"model {self.builder.graph.name!r} does not fit: every starting strategy needs "
                f"at least {least / 1e9:.1f} GB on a GPU that has {self.memory_limit / 1e9:.1f} GB; "
                "use more servers, more GPUs a server, a smaller batch, fewer or smaller "
                "embedding tables, or accelerators with more memory"
            )
        pairs.sort(key=lambda pair: pair.time)
        # Only those that chains may start from, and the usual two, need exact times.
        kept = [
            pair if pair.origin in usual else self._exactly(pair)
            for place, pair in enumerate(pairs)
            if place < self.settings.chains or pair.origin in usual
        ]
        kept.sort(key=lambda pair: pair.time)
        times |= {pair.origin: pair.time for pair in kept}
        return kept, times, interrupted

    # -- the loop -------------------------------------------------------------------------

    def run(self, budget: Budget, progress: ProgressCallback | None = None) -> SearchResult:
        """Alternate strategy search and topology building from the best starting pairs.

        Each chain alternates on its own: a round of proposals on its present fabric, then new
        topologies for the best strategy found, of which the best is kept if it beats the
        present pair. The worst chain restarts from the best pair of all after each round.
        Stops when the budget is spent, or when no chain improved for some rounds. The steps
        made are reported, and a budget of so many steps reproduces the result.

        Parameters
        ----------
        budget : Budget
        progress : callable, optional

        Returns
        -------
        SearchResult
            Also when interrupted from the keyboard, provided that any pair was scored.
        """
        deadline = clock.monotonic() + budget.seconds
        pairs, times, interrupted = self.start(progress)
        self.work = 0.0
        result = SearchResult(pairs[0], times, interrupted=interrupted)
        if interrupted:
            return result
        faithful = self.settings.faithful is not None
        chains = 1 if faithful else self.settings.chains
        # Where fewer strategies fit than there are chains, several start at the same one.
        current = [pairs[c % len(pairs)] for c in range(chains)]
        if faithful:
            # The published search starts from data parallelism, where it fits.
            current = [next((p for p in pairs if p.origin == "data-parallel"), pairs[0])]
        streams = [
            np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(c,)))
            for c in range(chains)
        ]
        stale = 0

        def spent() -> bool:
            return (
                result.steps >= budget.steps
                or self.work >= budget.work
                or clock.monotonic() >= deadline
            )

        try:
            while stale < _PATIENCE and not spent():
                before = result.best.time
                for c in range(chains):
                    if spent():
                        break
                    current[c] = self._round(
                        current[c], streams[c], result, budget.steps, spent, progress
                    )
                    if current[c].time < result.best.time:
                        result.best = current[c]
                worst = max(range(chains), key=lambda c: (current[c].time, c))
                current[worst] = result.best
                stale = stale + 1 if result.best.time > before * (1 - _CONVERGED) else 0
            result.converged = stale >= _PATIENCE
            result.work = self.work
        except KeyboardInterrupt:
            result.interrupted = True
        return result

    def _round(
        self,
        pair: Pair,
        rng: np.random.Generator,
        result: SearchResult,
        planned: int,
        spent: Callable[[], bool],
        progress: ProgressCallback | None,
    ) -> Pair:
        """Search strategies on one fabric, then topologies for the best strategy found."""
        score = Scorer(self.builder, pair.fabric, self.memory_limit, self.tolerance)
        chain = Chain.start(pair.strategy, pair.time)
        try:
            for step in range(_ROUND_STEPS):
                if spent():
                    break
                before = score.work
                chain.step(
                    self.space,
                    score,
                    rng,
                    step / _ROUND_STEPS,
                    self.settings.acceptance,
                    plain=self.settings.faithful is not None,
                )
                result.steps += 1
                self.work += score.work - before
                if progress:
                    best = min(result.best.time, chain.best_time)
                    progress(Progress("search", result.steps, planned, best))
        finally:
            # An interruption must not lose what this round has found so far.
            pair = self._adopt(pair, chain.best)
            if pair.time < result.best.time:
                result.best = pair
        if self.settings.faithful != "artifact":
            # The published code keeps its fixed rings; everything else rewires.
            rewired = self.wire(pair.strategy, pair.origin, limit=pair.time)
            if rewired is not None and rewired.time < pair.time:
                pair = rewired
        return pair

    def _adopt(self, pair: Pair, found: Strategy) -> Pair:
        """Return the pair with the strategy that a chain found, if it is faster indeed."""
        if found is pair.strategy:
            return pair
        exact = Scorer(self.builder, pair.fabric, self.memory_limit)
        time = exact(found, pair.time)
        self.work += exact.work
        if time >= pair.time:
            return pair
        return Pair(found, pair.topology, pair.routing, pair.fabric, time, "search")
