"""What a plan is compared with: the same job on other fabrics."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from routing.routes import tabled
from topoopt.base.freed import give_back
from topoopt.base.side_by_side import Beside
from topoopt.baselines.baseline import BaselineFabric
from topoopt.evaluate.problem import Problem
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.plan.recorded import reconfiguration_record
from topoopt.plan.records import Baseline
from topoopt.search.confirm import NO_PACKET_TIME, packet_times_on, states_packets
from topoopt.search.layouts import LayoutSearch
from topoopt.search.operators import OperatorSearch
from topoopt.search.result import BestOnBaseline, SearchResult

_NEAR_TIME = "its time is off by about 0.1 %"

AnySearch = OperatorSearch | LayoutSearch


class BaselineSearch:
    """A job on other fabrics, each with a parallelization searched for it.

    Where simulations take long, and what these searches begin from is known before packet trains
    choose the plan, they run beside that choice.

    Parameters
    ----------
    search : OperatorSearch or LayoutSearch
        Of the plan.
    result : SearchResult
        What it has found, from now on changed by the choice of the plan alone.
    chosen : list of BaselineFabric
    beside : Beside

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
    ) -> None:
        self.search, self.result, self.chosen, self.beside = search, result, chosen, beside
        problem: Problem[Any] = search.problem
        options, servers = problem.options, problem.cluster.servers
        self.stated = states_packets(problem)
        self.found: dict[str, BestOnBaseline[Any]] = {}
        self._started: dict[int, Future[BestOnBaseline[Any]]] = {}
        if isinstance(search, LayoutSearch):
            search.compare_with(chosen)
            return
        if search.search.moves_by_packets:
            return
        if tabled(servers) and options.plain_orders and not result.interrupted:
            # As it is now: packet trains are about to choose its best pair.
            self._start(replace(result, others=list(result.others)))

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
                for base, best in self._all():
                    self.found[base.fabric.name] = best
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

    def _exchange(self) -> None:
        """Try on each fabric what was found for the others."""
        if isinstance(self.search, OperatorSearch) and self.search.exchanges(self.result):
            found = dict.fromkeys(each.parallelization for each in self.found.values())
            for base in self.chosen:
                name = base.fabric.name
                self.found[name] = self.search.better_on(base, self.found[name], found)

    def _start(self, result: SearchResult[Any]) -> None:
        # Those without switches first: their flows are hardly alike, so that they take longest.
        order = sorted(range(len(self.chosen)), key=lambda n: _switched(self.chosen[n].fabric))
        self._started = {
            number: self.beside.start(partial(self._on, number, result)) for number in order
        }

    def _all(self) -> Iterator[tuple[BaselineFabric, BestOnBaseline[Any]]]:
        """Yield the fabrics with what was found on each, in order."""
        if isinstance(self.search, OperatorSearch) and not self._started:
            self._start(self.result)
        for number, base in enumerate(self.chosen):
            started = self._started.get(number)
            try:
                found = self._on(number, self.result) if started is None else started.result()
            except KeyboardInterrupt:
                if started is None or not (started.done() and self.result.interrupted):
                    raise  # it came here, not to the search that is waited for
                # It was to be searched beside the plan's choice, which an interruption ended.
                found = self._on(number, self.result)
            yield base, found
            give_back()

    def _on(self, number: int, result: SearchResult[Any]) -> BestOnBaseline[Any]:
        """Find the best parallelization on a fabric, and its times in packet trains."""
        search, base = self.search, self.chosen[number]
        asked = self.stated and not result.interrupted
        report = None if result.interrupted else self.beside.report
        best = search.best_on(base, result, number, report)
        if asked and best.packets is None:
            family: Any = search.problem.family
            packets = packet_times_on(base, family.build(best.parallelization))
            best = best._replace(packets=packets)
        return best


def _switched(fabric: AnyFabric) -> bool:
    return not isinstance(fabric, Fabric) or bool(fabric.network.switches)
