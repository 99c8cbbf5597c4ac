"""How a search works: its method, and what of the paper is kept or improved."""

from dataclasses import dataclass

from codesign_base import InputError
from parallelism.search.mcmc import Acceptance
from topoopt.problem.routing import Routing

FAITHFUL = ("paper", "artifact")
METHODS = ("joint", "alternating", "sequential", "strategy-only", "topology-only")

# FlexFlow's acceptance constant, per millisecond; used by the faithful settings only.
_FLEXFLOW_ALPHA = 0.05


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
