"""Strategies wired each for itself, two at a time: in threads, or by a second process."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.base.second import Second
from topoopt.base.side_by_side import THREADED_FROM, in_twos
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer

Wires = Callable[[Rewirer, Strategy, Any, float], Pair | None]
"""A way to wire a strategy, at the top level of a module: it is given what else is asked, and the
limit in seconds, and returns None where the best pair is slower."""


class SharedSearch(Protocol):
    """What a second process needs of the search that it shares."""

    @property
    def problem(self) -> Problem: ...  # noqa: D102
    @property
    def space(self) -> StrategySpace: ...  # noqa: D102


@dataclass
class Wirer:
    """Wires strategies that hardly depend on each other.

    Parameters
    ----------
    problem : Problem
        Scores as it says.
    space : StrategySpace
    second : Second
        Shares the search. On few servers, where wiring is mostly plain Python, it makes every
        second call.

    Attributes
    ----------
    work : float
        Cost of what was asked for, in the units of `topoopt.evaluate.scoring.Scorer`.
    """

    problem: Problem
    space: StrategySpace
    second: Second
    work: float = 0.0

    def in_twos(
        self,
        wires: Wires,
        items: Iterable[tuple[Strategy, Any]],
        limit: Callable[[], float],
    ) -> Iterator[Pair | None]:
        """Yield strategies wired, in order.

        Parameters
        ----------
        wires : callable
        items : iterable of (Strategy, object)
            With what else is asked.
        limit : callable
            Returns the limit, seconds, that what was yielded so far sets; both of two know the
            one that held before them.

        Yields
        ------
        Pair or None
        """
        servers, yielding = self.problem.cluster.servers, self.problem.yielding
        made: Iterator[tuple[Pair | None, float]]
        if servers < THREADED_FROM:
            asked = ({"wires": wires, "yielding": yielding, "item": item} for item in items)
            made = self.second.in_twos(_wired, asked, limit)
        else:
            task = partial(_made, self.problem, wires)
            made = (each for _, each in in_twos(items, task, limit, servers))
        for pair, work in made:
            self.work += work
            # What another process has made is of equal configurations, which are others.
            yield pair and replace(pair, strategy=self.space.intern(pair.strategy))

    def exactly(self, pair: Pair) -> Pair:
        """Return a pair with its exact time; see `topoopt.evaluate.rewire.Rewirer.exactly`."""
        rewirer = Rewirer(self.problem)
        exact = rewirer.exactly(pair)
        self.work += rewirer.work
        return exact


def _wired(
    search: SharedSearch, wires: Wires, yielding: float, item: tuple[Strategy, Any], limit: float
) -> tuple[Pair | None, float]:
    """Wire a strategy in either process; return what it cost, too."""
    strategy, asked = item
    own = search.space.intern(strategy), asked
    return _made(search.problem.scored(yielding), wires, own, limit)


def _made(
    problem: Problem, wires: Wires, item: tuple[Strategy, Any], limit: float
) -> tuple[Pair | None, float]:
    rewirer = Rewirer(problem)
    pair = wires(rewirer, *item, limit)
    return pair, rewirer.work
