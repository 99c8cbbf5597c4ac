"""Strategies wired one after the other, by two threads or processes where there are two cores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Protocol

from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.base.second import Second, Task
from topoopt.base.side_by_side import THREADED_FROM, in_twos
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer

Wires = Callable[[Rewirer, Strategy, Any, float], Pair | None]
"""A way to wire a strategy, at the top level of a module: it is given what else is asked, and the
limit in seconds, and returns None where the best pair is slower."""


# A strategy, what else is asked, and how much work it may take.
_Asked = tuple[Strategy, Any, float]


class SharedSearch(Protocol):
    """What a second process needs of the search that it shares."""

    @property
    def problem(self) -> Problem: ...  # noqa: D102
    @property
    def space(self) -> StrategySpace: ...  # noqa: D102


@dataclass
class Wirer:
    """Wires strategies, of which each should know the best before it.

    Parameters
    ----------
    problem : Problem
        Scores as it says.
    space : StrategySpace
    second : Second
        Shares the search.

    Attributes
    ----------
    work : float
        Cost of what was asked for, in the units of `topoopt.evaluate.scoring.Scorer`.

    Notes
    -----
    On few servers, where wiring is mostly plain Python, a second process wires the second of two as
    if the first were of no interest; if it is, that is made again, so that pairs and work are those
    of one after the other. On more, two are wired in threads, and both know what held before them.
    """

    problem: Problem
    space: StrategySpace
    second: Second
    work: float = 0.0

    def in_turn(
        self,
        wires: Wires,
        items: Iterable[tuple[Strategy, Any]],
        limit: Callable[[], float],
        most_work: float = float("inf"),
    ) -> Iterator[Pair | None]:
        """Yield strategies wired, in order.

        Parameters
        ----------
        wires : callable
        items : iterable of (Strategy, object)
            With what else is asked.
        limit : callable
            Returns the limit, seconds, that what was yielded so far sets.
        most_work : float
            Wire no more of them, nor any in more ways, once so much work was done.

        Yields
        ------
        Pair or None
        """
        if self.problem.cluster.servers < THREADED_FROM:
            yield from self._by_two(wires, iter(items), limit, most_work)
            return

        def affordable() -> Iterator[_Asked]:
            left = iter(items)
            while self.work < most_work and (item := next(left, None)) is not None:
                yield *item, most_work - self.work

        task = partial(_made, self.problem, wires)
        for _, made in in_twos(affordable(), task, limit, self.problem.cluster.servers):
            yield self._taken(*made)

    def exactly(self, pair: Pair) -> Pair:
        """Return a pair with its exact time; see `topoopt.evaluate.rewire.Rewirer.exactly`."""
        rewirer = Rewirer(self.problem)
        exact = rewirer.exactly(pair)
        self.work += rewirer.work
        return exact

    def _by_two(
        self,
        wires: Wires,
        items: Iterator[tuple[Strategy, Any]],
        limit: Callable[[], float],
        most_work: float,
    ) -> Iterator[Pair | None]:
        same = {"wires": wires, "yielding": self.problem.yielding}

        def shared(items: Sequence[tuple[Strategy, Any]], held: float) -> list[Task]:
            left = most_work - self.work
            asked = [same | {"item": (*item, left), "limit": held} for item in items]
            return self.second.share(_wired, asked)

        while self.work < most_work:
            two = list(islice(items, 2))
            if not two:
                return
            held = limit()
            tasks = shared(two, held)  # the second process begins with the last
            try:
                yield self._taken(*tasks[0].result())
                if len(two) == 2 and self.work < most_work:
                    made = None
                    if not tasks[1].begin() and limit() == held:
                        made = tasks[1].result()
                    if made is None or made[1] > most_work - self.work:
                        made = shared(two[1:], limit())[0].result()
                    yield self._taken(*made)
            finally:
                for task in tasks:
                    task.begin()  # so that nobody does

    def _taken(self, pair: Pair | None, work: float) -> Pair | None:
        self.work += work
        if pair is None:
            return None
        # What another process has made is of equal configurations, which are others.
        return replace(pair, strategy=self.space.intern(pair.strategy))


def _wired(
    search: SharedSearch, wires: Wires, yielding: float, item: _Asked, limit: float
) -> tuple[Pair | None, float]:
    """Wire a strategy in either process; return what it cost, too."""
    strategy, *rest = item
    own = search.space.intern(strategy), *rest
    return _made(search.problem.scored(yielding), wires, own, limit)


def _made(problem: Problem, wires: Wires, item: _Asked, limit: float) -> tuple[Pair | None, float]:
    strategy, asked, most_work = item
    rewirer = Rewirer(problem, most_work)
    pair = wires(rewirer, strategy, asked, limit)
    return pair, rewirer.work
