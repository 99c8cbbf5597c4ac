"""What a plan is compared with: the same job on other fabrics."""

from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from typing import Any

from routing.routes import tabled
from topoopt.base.freed import give_back
from topoopt.base.progress import Progress
from topoopt.base.second import Second, Task
from topoopt.base.side_by_side import Beside
from topoopt.baselines.baseline import BaselineFabric
from topoopt.evaluate.problem import Problem
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.plan.recorded import reconfiguration_record
from topoopt.plan.records import Baseline
from topoopt.search.confirm import (
    NO_PACKET_TIME,
    packet_times_on,
    states_packets,
    takes_long,
)
from topoopt.search.layouts import LayoutSearch
from topoopt.search.operators import OperatorSearch, best_for_fabric
from topoopt.search.result import BestOnBaseline, SearchResult

_NEAR_TIME = "its time is off by about 0.1 %"

AnySearch = OperatorSearch | LayoutSearch


class BaselineSearch:
    """A job on other fabrics, each with a parallelization searched for it.

    Where simulations take long, these searches run beside packet trains, from what the plan's
    search found; again, if packet trains have the plan searched again. On few servers, where they
    are mostly plain Python, a second process makes some of them; they begin from what packet
    trains choose, which is mostly what the search found. So where that choice is quick, it begins
    from what was found, and again if another is chosen.

    Parameters
    ----------
    search : OperatorSearch or LayoutSearch
        Of the plan.
    result : SearchResult
        What it has found, from now on changed by the choice of the plan alone.
    chosen : list of BaselineFabric
    beside : Beside
    second : Second
        A second process, if there is one, that shares the problem.

    Attributes
    ----------
    found : dict
        What was found on each fabric, by name.
    """

    def __init__(
        self,
        search: AnySearch,
        result: SearchResult[Any],
        chosen: list[BaselineFabric],
        beside: Beside,
        second: Second,
    ) -> None:
        self.search, self.result, self.chosen = search, result, chosen
        self.beside, self.second = beside, second
        problem: Problem[Any] = search.problem
        self.stated = states_packets(problem)
        self.found: dict[str, BestOnBaseline[Any]] = {}
        # What the searches begin from, and these by the fabrics' numbers, in the order in which
        # they are waited for.
        self._began = result
        self._started: dict[int, Future[BestOnBaseline[Any]] | Task] = {}

    def begin(self) -> None:
        """Begin from what was found until now: packet trains are about to choose its best pair."""
        search, servers = self.search, self.search.problem.cluster.servers
        if isinstance(search, LayoutSearch):
            search.compare_with(self.chosen)
            return
        if search.search.moves_by_packets and not (self.second.there and self._is_quick()):
            return
        plain: bool = search.problem.options.plain_orders
        if tabled(servers) and plain and not self.result.interrupted:
            self._start(replace(self.result, others=list(self.result.others)))

    def forget(self) -> None:
        """End what was begun: it would be from less than the plan's search finds."""
        for task in self._started.values():
            # So that nobody begins it.
            task.begin() if isinstance(task, Task) else task.cancel()
        self._began, self._started = self.result, {}

    def made(self) -> tuple[dict[str, Baseline], bool]:
        """Return what each fabric takes, and whether it was stopped from the keyboard.

        After an interruption only what is quick is still worked out.

        Returns
        -------
        found : dict
            Baselines by name.
        interrupted : bool
        """
        if self.search.problem.cluster.servers == 1:
            return {}, False
        interrupted = False
        if len(self.found) < len(self.chosen):
            try:
                self._all()
                self._exchange()
            except KeyboardInterrupt:
                interrupted = True
        known = [base for base in self.chosen if base.fabric.name in self.found]
        return {base.fabric.name: self._record(base) for base in known}, interrupted

    def _record(self, base: BaselineFabric) -> Baseline:
        best, family = self.found[base.fabric.name], self.search.problem.family
        asked = self.stated and not self.result.interrupted
        unstated = asked and best.packets is None and isinstance(base.fabric, Fabric)
        said = [base.note, *[NO_PACKET_TIME] * unstated, *[_NEAR_TIME] * best.near]
        return Baseline(
            iteration_time_s=best.time,
            bounded=best.bounded,
            packet_time_s=None if best.packets is None else best.packets.mean,
            cost_usd=base.cost,
            bandwidth_bytes_per_s=base.bandwidth,
            origin=self.search.origin_of(best.parallelization, self.result),
            parallelization=family.record(best.parallelization),
            note="; ".join(said),
            reconfiguration=reconfiguration_record(base.fabric),
        )

    def _all(self) -> None:
        """Find the best on every fabric."""
        if isinstance(self.search, OperatorSearch):
            other = self._began.best.strategy != self.result.best.strategy
            if self.search.search.moves_by_packets and other:
                self.forget()
            if not self._started:
                self._start(self.result)
        for number in self._started or range(len(self.chosen)):
            self.found[self.chosen[number].fabric.name] = self._awaited(number)
            give_back()
        names = [base.fabric.name for base in self.chosen]
        self.found = {name: self.found[name] for name in names}

    def _exchange(self) -> None:
        """Try on each fabric what was found for the others."""
        if isinstance(self.search, OperatorSearch) and self.search.exchanges(self.result):
            found = dict.fromkeys(each.parallelization for each in self.found.values())
            for base in self.chosen:
                name = base.fabric.name
                self.found[name] = self.search.better_on(base, self.found[name], found)

    def _start(self, result: SearchResult[Any]) -> None:
        self._began = result
        # Those without switches first: their flows are hardly alike, so that they take longest.
        order = sorted(range(len(self.chosen)), key=lambda n: _switched(self.chosen[n].fabric))
        if self.second.there:
            order.reverse()  # the second process begins with the last
            calls = [{"base": self.chosen[number], "result": result} for number in order]
            self._started = dict(zip(order, self.second.share(best_for_fabric, calls), strict=True))
            return
        self._started = {
            number: self.beside.start(partial(self._on, number, result)) for number in order
        }

    def _is_quick(self) -> bool:
        """Whether packet trains of the best pair leave a core idle: those that take long do not."""
        best, family = self.result.best, self.search.problem.family
        return not takes_long(best.fabric, family.build(best.strategy))

    def _awaited(self, number: int) -> BestOnBaseline[Any]:
        """Return what was found on a fabric, or find it."""
        started = self._started.get(number)
        if started is None:
            return self._on(number, self.result)
        if isinstance(started, Task):
            if self.result.interrupted and not started.answered:
                return self._on(number, self.result)
            if started.begin():
                return self._on(number, self._began)
            return self._with_packets(number, started.result(hear=True))
        try:
            return started.result()
        except KeyboardInterrupt:
            if not (started.done() and self.result.interrupted):
                raise  # it came here, not to the search that is waited for
            # It was to be searched beside the plan's choice, which an interruption ended.
            return self._on(number, self.result)

    def _on(self, number: int, result: SearchResult[Any]) -> BestOnBaseline[Any]:
        """Find the best parallelization on a fabric, and its times in packet trains."""

        def report(made: Progress) -> None:
            if result is not self._began:
                raise CancelledError  # nobody waits for it
            self.beside.report(made)

        heard = None if result.interrupted else report
        best = self.search.best_on(self.chosen[number], result, heard)
        return self._with_packets(number, best)

    def _with_packets(self, number: int, best: BestOnBaseline[Any]) -> BestOnBaseline[Any]:
        if not self.stated or self.result.interrupted or best.packets is not None:
            return best
        family: Any = self.search.problem.family
        tasks = family.build(best.parallelization)
        return best._replace(packets=packet_times_on(self.chosen[number], tasks))


def _switched(fabric: AnyFabric) -> bool:
    return not isinstance(fabric, Fabric) or bool(fabric.network.switches)
