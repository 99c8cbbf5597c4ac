"""Markov-chain Monte Carlo over strategies, with FlexFlow's moves and relative acceptance."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parallelism.search.space import Change, StrategySpace
from parallelism.strategy import OperatorConfig, Strategy

# Strategy and the largest time of interest to seconds. Beyond that limit any time above it may
# be returned (a scorer can stop early), and infinity where the strategy does not fit.
Score = Callable[[Strategy, float], float]


@dataclass(frozen=True)
class Acceptance:
    """When a slower proposal is accepted.

    Relative (default): with probability exp(-(t' / t - 1) / temperature), the temperature
    falling geometrically from ``start`` to ``end`` over the chain. Absolute: with probability
    exp(-alpha * (t' - t)), t in milliseconds, as in FlexFlow and the TopoOpt artifact; this
    depends on the scale of the job.
    """

    start: float = 0.01
    end: float = 0.0005
    absolute_alpha: float | None = None

    def threshold(self, current: float, uniform: float, progress: float) -> float:
        """Return the largest proposed time that is accepted.

        Accepting with probability p(t') is the same as accepting when a uniform number is
        below p(t'), and p falls with t'; so the number, drawn first, fixes a limit on t'. A
        proposal that provably exceeds it need not be simulated.

        Parameters
        ----------
        current : float
            Seconds.
        uniform : float
            A uniform random number in [0, 1).
        progress : float
            Share of the chain's steps already made.

        Returns
        -------
        float
            Seconds.
        """
        surprise = -math.log(uniform) if uniform > 0 else math.inf
        if self.absolute_alpha is not None:
            return current + surprise / self.absolute_alpha * 1e-3
        temperature: float = self.start * (self.end / self.start) ** progress
        return current * (1.0 + temperature * surprise)


def propose(
    space: StrategySpace, strategy: Strategy, rng: np.random.Generator, *, plain: bool = False
) -> Change:
    """Propose a change of one or several operators' configurations.

    FlexFlow's two moves (Jia et al., MLSys 2019, sec. 6): give a random operator a random
    configuration; or copy an operator's configuration to a neighbour, and on. Beyond them:
    give all identical layers the same new configuration, change only the placement, and swap
    the servers of two single-part operators.

    Parameters
    ----------
    space : StrategySpace
    strategy : Strategy
    rng : numpy.random.Generator
    plain : bool
        Only FlexFlow's moves.

    Returns
    -------
    list of (int, OperatorConfig)
        Operators that change, and those that use their weights; empty if the move has no effect.
    """
    return _really(strategy, space.following(_proposed(space, strategy, rng, plain=plain)))


def _proposed(
    space: StrategySpace, strategy: Strategy, rng: np.random.Generator, *, plain: bool
) -> Change:
    count = len(strategy.configs)
    index = int(rng.integers(count))
    kind = rng.random()
    if kind < (0.6 if plain else 0.25):
        return [(index, space.random_config(index, rng))]
    if kind < (1.0 if plain else 0.5):
        return _propagate(space, strategy, index, rng)
    if kind < 0.75:
        config = space.random_config(index, rng)
        return [(i, config) for i in space.alike[index]]
    if kind < 0.9:
        config = strategy.configs[index]
        moved = space.placed(
            config.sample,
            config.parameter,
            config.mode,
            offset=int(rng.integers(space.servers)),
            contiguous=bool(rng.integers(2)),
            adjacent=bool(rng.integers(2)),
        )
        return [(index, moved)]
    single = [i for i, c in enumerate(strategy.configs) if c.parts == 1]
    if len(single) < 2:
        return []
    a, b = (int(v) for v in rng.choice(single, size=2, replace=False))
    return [(a, strategy.configs[b]), (b, strategy.configs[a])]


def _really(strategy: Strategy, change: Change) -> Change:
    return [(i, config) for i, config in change if strategy.configs[i] is not config]


def _propagate(
    space: StrategySpace, strategy: Strategy, index: int, rng: np.random.Generator
) -> Change:
    config = strategy.configs[index]
    change: dict[int, OperatorConfig] = {}
    while True:
        neighbours = space.neighbours[index]
        if not neighbours:
            break
        index = neighbours[int(rng.integers(len(neighbours)))]
        if not space.allows(index, config):
            break
        change[index] = config
        if rng.random() < 0.3:
            break
    return list(change.items())


@dataclass
class Chain:
    """The state of one Markov chain.

    Attributes
    ----------
    strategy, time
        Where the chain is, and its score in seconds.
    best, best_time
        The best strategy it has seen on the current score.
    """

    strategy: Strategy
    time: float
    best: Strategy
    best_time: float

    @classmethod
    def start(cls, strategy: Strategy, time: float) -> "Chain":
        """Return a chain that begins at a scored strategy."""
        return cls(strategy, time, strategy, time)

    def step(
        self,
        change: Change,
        score: Score,
        rng: np.random.Generator,
        acceptance: Acceptance,
        progress: float = 0.0,
    ) -> None:
        """Score a proposed change, and accept or reject it.

        Parameters
        ----------
        change : list of (int, OperatorConfig)
            Against the chain's strategy; empty for a move without effect.
        score : callable
            Strategy and limit to seconds; infinity where it does not fit.
        rng : numpy.random.Generator
        acceptance : Acceptance
        progress : float
            Share of the chain's steps already made, 0..1 (sets the temperature).
        """
        uniform = rng.random()
        if not change:
            return
        candidate = self.strategy.replace(change)
        limit = acceptance.threshold(self.time, uniform, progress)
        time = score(candidate, limit)
        if time <= limit and math.isfinite(time):
            self.strategy, self.time = candidate, time
            if time < self.best_time:
                self.best, self.best_time = candidate, time
