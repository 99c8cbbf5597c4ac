"""A portfolio: several searchers share the steps, and those that pay get more of them."""

import math
from collections.abc import Sequence

import numpy as np

from parallelism.search.mcmc import Score
from parallelism.search.searcher import Searcher, work_of
from parallelism.strategy import Strategy

# Proposals of one turn.
_TURN = 25
# Of what earlier turns have brought, so much counts still.
_MEMORY = 0.7
# What a turn without gain is worth beside one that gains all: searchers are not given up.
_HOPE = 0.002


class Portfolio:
    """Searchers that take turns by what their last turns brought for their cost.

    Each has one turn first. Then the next turn goes to the one with the highest index: its
    remembered relative gains over its remembered work, plus a bonus that grows with the turns
    that it has waited. Gains are of the best of all, and all learn of it before their turn. Work
    is counted by the score, never timed, so that the same input and seed give the same turns.

    Parameters
    ----------
    members : sequence of Searcher
        At least one.
    """

    def __init__(self, members: Sequence[Searcher]) -> None:
        self.members = list(members)
        first = min(range(len(self.members)), key=lambda i: (self.members[i].best_time, i))
        self.best: Strategy = self.members[first].best
        self.best_time = self.members[first].best_time
        count = len(self.members)
        self._gain = [0.0] * count
        self._work = [0.0] * count
        self._waited = [0] * count
        self._over = [False] * count
        self._began = [False] * count
        self._now = 0
        self._left = 0
        self._start = (self.best_time, 0.0)

    def adopt(self, strategy: Strategy, time: float) -> None:
        """Let all members go on from a faster strategy."""
        self.best, self.best_time = strategy, time
        self._over = [False] * len(self.members)

    def step(self, score: Score, rng: np.random.Generator) -> bool:
        """Make one proposal of the member whose turn it is.

        Parameters
        ----------
        score : callable
        rng : numpy.random.Generator

        Returns
        -------
        bool
            False when no member has anything left to propose.
        """
        while True:
            if self._left == 0 and not self._next(score):
                return False
            member = self.members[self._now]
            self._left -= 1
            if member.step(score, rng):
                break
            self._over[self._now] = True
            self._end(score)
        if member.best_time < self.best_time:
            self.best, self.best_time = member.best, member.best_time
        if self._left == 0:
            self._end(score)
        return True

    def _next(self, score: Score) -> bool:
        """Give the next turn to a member; False if all are done."""
        for place, member in enumerate(self.members):
            if self.best_time < member.best_time:
                member.adopt(self.best, self.best_time)
                self._over[place] = False
        open_ = [i for i in range(len(self.members)) if not self._over[i]]
        if not open_:
            return False
        self._now = max(open_, key=lambda i: (self._index(i), -i))
        self._left = _TURN
        self._start = (self.best_time, work_of(score))
        return True

    def _index(self, place: int) -> float:
        if not self._began[place]:
            return math.inf
        hope = _HOPE * (1.0 + self._waited[place]) / len(self.members)
        return (self._gain[place] + hope) / max(self._work[place], 1e-300)

    def _end(self, score: Score) -> None:
        """Remember what a turn brought."""
        self._left = 0
        before, work = self._start
        gain = (before - self.best_time) / before if math.isfinite(before) and before > 0 else 0.0
        cost = work_of(score) - work
        now = self._now
        self._gain[now] = _MEMORY * self._gain[now] + gain
        self._work[now] = _MEMORY * self._work[now] + (cost if cost > 0.0 else float(_TURN))
        self._began[now] = True
        self._waited = [0 if i == now else w + 1 for i, w in enumerate(self._waited)]
