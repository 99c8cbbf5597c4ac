"""What a search is given and what it returns: settings, budget, progress, pairs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from codesign_base import InputError
from parallelism.search.mcmc import Acceptance
from parallelism.strategy import Strategy
from topoopt.evaluate.scoring import Routing
from topoopt.fabric.fabric import Fabric
from topoopt.topology.finder import Topology

FAITHFUL = ("paper", "artifact")
METHODS = ("joint", "alternating", "sequential", "strategy-only", "topology-only")

# FlexFlow's acceptance constant, per millisecond; used by the faithful settings only.
_FLEXFLOW_ALPHA = 0.05
# Beyond this size a search scores with flows that end within this share of their age batched
# (error about 0.1 %); whatever it keeps is simulated again exactly.
_EXACT_SERVERS = 32
SEARCH_TOLERANCE = 0.03


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
        Best score so far, seconds: an iteration time, or the mean of two where trains confirm
        (`topoopt.evaluate.scoring.Scorer.wary`).
    """

    stage: str
    done: int
    total: int
    best: float


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Improvements:
    """Which departures from the paper's topology finder are tried beside it.

    Parameters
    ----------
    exact : bool
        The shortest circulant networks rather than geometric steps.
    traffic : bool
        The steps that serve the transfers best.
    placement : bool
        Servers seated on their rings so that heavy transfer pairs come near.
    splits : bool
        Every split of the ports between rings and matching, not only the formula's.
    groups : bool
        Rings of Cayley graphs of other groups than cycles, where their paths are shorter.
    """

    exact: bool = True
    traffic: bool = True
    placement: bool = True
    splits: bool = True
    groups: bool = True


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
    improvements : Improvements
        Of the topology finder; none where ``faithful`` is given.
    method : {"joint", "alternating", "sequential", "strategy-only", "topology-only"}
        "joint": a population of strategies and topologies, scored crosswise. "alternating":
        each chain alternates between strategies on its topology and topologies for its strategy
        (the paper's). "sequential": strategies for an ideal switch, then a topology for the best.
        "strategy-only": strategies on the topology built for the usual strategy.
        "topology-only": topologies for the usual strategy. ``faithful`` alternates.
    parameter_splits : bool
        Whether parameter splits are proposed at all.
    one_path : bool
        Routes of one path a pair only: where packet trains have the last word, whose messages
        take one path each.
    compute_order : {"ready", "critical-path"}
        Order of tasks that wait for a device, see `topoopt.evaluate.scheduling.Schedule`.
    """

    faithful: str | None = None
    chains: int = 3
    improvements: Improvements = Improvements()
    method: str = "joint"
    parameter_splits: bool = True
    one_path: bool = False
    compute_order: str = "ready"

    def __post_init__(self) -> None:
        if self.faithful is not None and self.faithful not in FAITHFUL:
            raise InputError(f"faithful is {self.faithful!r}; choose {' or '.join(FAITHFUL)}")
        if self.chains < 1:
            raise InputError(f"chains is {self.chains}; give at least 1")
        if self.method not in METHODS:
            raise InputError(f"method is {self.method!r}; choose {', '.join(METHODS)}")
        if self.faithful is not None and self.method not in ("joint", "alternating"):
            raise InputError(
                f"method is {self.method!r} but faithful is {self.faithful!r}, which alternates; "
                "leave one of them out"
            )

    @property
    def searched(self) -> str:
        """The method that is used: a faithful search alternates."""
        return "alternating" if self.faithful is not None else self.method

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
        if self.one_path:
            return (Routing.BALANCED,)
        return (Routing.ECMP, Routing.K_SHORTEST, Routing.MCF)


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

    def wired_like(self, other: "Pair") -> bool:
        """Whether both have the same links, rings and routing."""
        mine, theirs = self.fabric.network, other.fabric.network
        return (
            self.routing is other.routing
            and self.fabric.rings == other.fabric.rings
            and np.array_equal(mine.source, theirs.source)
            and np.array_equal(mine.target, theirs.target)
            and np.array_equal(mine.capacity, theirs.capacity)
        )


@dataclass
class SearchResult:
    """What a search found, and what it tried.

    Attributes
    ----------
    best : Pair
    named : dict
        Iteration time of each named strategy on a topology of its own, seconds; infinity
        where it does not fit in memory.
    others : list of Pair
        The best few pairs met, those of the best score first, ``best`` among them.
    steps : int
        Proposals made.
    work : float
        Cost of all scores; see `topoopt.evaluate.scoring.Scorer`.
    interrupted : bool
        Whether it was stopped from the keyboard.
    converged : bool
        Whether it stopped because no chain improved any more.
    """

    best: Pair
    named: dict[str, float] = field(default_factory=dict)
    others: list[Pair] = field(default_factory=list)
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
        Cost of all scores, in the units of `topoopt.evaluate.scoring.Scorer`.
    seconds : float
        Wall-clock time.
    """

    steps: int = 2**62
    work: float = float("inf")
    seconds: float = float("inf")

    @classmethod
    def default(cls, servers: int, faithful: bool = False) -> "Budget":
        """Return the budget of a job that names none.

        Up to 20000 steps (4000 where the search is that of the paper); fewer where scores are
        expensive, by counted work and not by the clock, so that a 16-server job takes seconds and
        a 128-server job about a minute.
        """
        if faithful:
            return cls(steps=4000, work=float(np.clip(3e6 * servers, 2e7, 8e7)))
        return cls(steps=20000, work=float(np.clip(8e6 * servers, 2e7, 1e8)))


def search_tolerance(servers: int) -> float:
    """Return the completion tolerance that a search scores with."""
    return SEARCH_TOLERANCE if servers > _EXACT_SERVERS else 0.0
