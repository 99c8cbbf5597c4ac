"""The search as published: TopoOpt's paper (NSDI'23, sec. 4), and its artifact.

One chain alternates between FlexFlow's moves with absolute acceptance and the topology that the
paper's formula gives. (Which topologies and routings those are, `topoopt.problem.options` says.)
The artifact knows sample splits and whole placements only, and keeps its first topology.
"""

from dataclasses import replace

import numpy as np

from codesign_base import InputError
from parallelism.search.mcmc import Acceptance, Chain, Score, propose
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.problem.budget import Budget
from topoopt.problem.ports import PortModel
from topoopt.search.search_state import SearchState
from topoopt.search.starts import USUAL
from topoopt.search.steps import Deadline, Search, SearchMethod, rewired, stay

# FlexFlow's acceptance constant, per millisecond.
_FLEXFLOW = Acceptance(absolute_alpha=0.05)


class PlainChain:
    """The published search as a searcher: FlexFlow's moves and absolute acceptance."""

    def __init__(self, space: StrategySpace, start: Pair) -> None:
        self.space = space
        self.chain = Chain.start(start.strategy, start.time)

    @property
    def best(self) -> Strategy:
        """The fastest strategy seen."""
        return self.chain.best

    @property
    def best_time(self) -> float:
        """Its score, seconds."""
        return self.chain.best_time

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Go on from another strategy."""
        self.chain = Chain.start(strategy, time)

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Make one proposal; the temperature plays no part in absolute acceptance."""
        change = propose(self.space, self.chain.strategy, rng, plain=True)
        self.chain.step(change, score, rng, _FLEXFLOW)
        return True


def plain_chain(search: Search, pair: Pair) -> PlainChain:
    """Return the published search from a pair on its fabric."""
    return PlainChain(search.space, pair)


def from_hybrid(
    search: Search, state: SearchState, pairs: list[Pair], deadline: Deadline
) -> list[Pair]:
    """Start one chain from tables placed whole and all else data-parallel."""
    return [next((p for p in pairs if p.origin == "hybrid"), pairs[0])]


def bidirectional_ports(problem: Problem) -> None:
    """Refuse clusters on which the artifact's rings cannot be wired."""
    if problem.cluster.port_model is not PortModel.BIDIRECTIONAL:
        raise InputError(
            "faithful is 'artifact' but ports is 'directed'; the artifact's rings are "
            "bidirectional, so give ports='bidirectional'"
        )


PAPER = SearchMethod(
    from_hybrid, rewired, any_parts=False, starts=USUAL, searcher=plain_chain,
    budget=Budget.published, round_steps=60, spacing=0.0,
)  # fmt: skip
ARTIFACT = replace(PAPER, after=stay, check=bidirectional_ports, sample_only=True)
