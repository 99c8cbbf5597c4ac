"""The communication x topology plane: the best wiring and routing for one strategy."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Generic

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from parallelism.family import Family, P, Shorter
from parallelism.taskgraph import TaskGraph, TaskKind, traffic_of
from routing.routes import tabled
from topoopt.base.side_by_side import in_twos
from topoopt.bounds.bounds import strategy_bound
from topoopt.evaluate.least_times import (
    busiest,
    busiest_in_sum,
    link_seconds,
    routed_links,
    sent_seconds,
)
from topoopt.evaluate.mcf_routes import check_least_congestion
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import direct_fabric, no_network
from topoopt.evaluate.scheduling import MOST_CROSSINGS
from topoopt.evaluate.scoring import (
    BUILD_WORK,
    MADE_WORK,
    MOST_FOLDED,
    MOST_MOVES,
    SEARCH_TOLERANCE,
    Scorer,
    moves_too_often,
    search_tolerance,
)
from topoopt.evaluate.wiring_candidates import (
    BestWiring,
    WiringCandidate,
    WiringKey,
    promising_first,
    wiring_key,
)
from topoopt.evaluate.wirings import one_way, other_rings, wirings, with_rings
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.represented import whole_size
from topoopt.fabric.transport import PACKETS
from topoopt.fabric.used_pairs import transfer_pairs
from topoopt.problem.routing import Routing
from topoopt.topology.finder import Topology

# Work of one more simulation on many servers, of a strategy that has a wiring; how many go on to
# their end although it has (one of hundreds of thousands of transfers takes ten times as much);
# and how many others may pass that work unfinished.
_TRIED_WORK, _MOST_WHOLE, _MOST_CUT = 1e7, 2, 4
# Share of all pairs of servers up to which only those that exchange something are routed.
_FEW_PAIRS = 0.25
# Links of a pair's routes up to which a flow is re-solved in the usual time.
_USUAL_LINKS = 32.0
# Links that the routes of one strategy may have: 12 bytes each, and as much again to make them.
_MOST_ROUTED = 2e8
# By what share of the time wirings must be faster that no server may leave.
_ONE_WAY_GAIN = 0.01
# Transfers of each of many servers that are routed for the best strategy on a wiring.
_WEIGHTED_MOVES = 300
# Candidates whose routes are kept until their turn, at least, and on how many servers one is.
_KEPT, _KEPT_SERVERS = 4, 1024
# Cost of building a candidate topology and adding up its load, a server pair.
_WIRE_WORK = 5.0
# The same of routes of least congestion; on more servers most rounds that they may take are needed.
_ROUTE_WORK, _MANY_ROUTE_WORK = 80.0, 1500.0


def _sends_between_few(tasks: TaskGraph) -> bool:
    """Say whether so few pairs of servers exchange anything that the others need no routes."""
    return transfer_pairs(tasks, tasks.servers).size < _FEW_PAIRS * tasks.servers**2


def _of_all_pairs(fabric: Fabric) -> Fabric:
    """Return a fabric with the routes of all pairs made."""
    if fabric.routes.pairs is None and fabric.edge_routes.pairs is None:
        return fabric
    edges = None if fabric.ring_routes is None else fabric.ring_routes.complete()
    return replace(fabric, routes=fabric.routes.complete(), ring_routes=edges)


class Rewirer(Generic[P]):
    """Builds topologies and routes for parallelizations of one job on one cluster.

    Parameters
    ----------
    problem : Problem
    most_work : float
        No more wirings are simulated once it has done so much.
    grids : bool
        Whether wirings in rows and columns are tried, too.

    Attributes
    ----------
    work : float
        Cost so far, in the units of `topoopt.evaluate.scoring.Scorer`.
    unsimulated : int
        Wirings with routes that may be faster than what was found, as only a bound is known.
    """

    def __init__(
        self,
        problem: Problem[Family[P]],
        most_work: float = float("inf"),
        *,
        grids: bool = True,
    ) -> None:
        self.problem, self.most_work, self.grids = problem, most_work, grids
        self.family, self.cluster, self.options = problem.family, problem.cluster, problem.options
        servers = self.cluster.servers
        self.tolerance = search_tolerance(servers)
        self.work = 0.0
        self.unsimulated = 0
        self.spares = problem.spares
        self._many = not tabled(servers)
        # K shortest paths take longer than all else of a candidate, and hardly ever make another
        # wiring the best.
        several = {Routing.ECMP, Routing.K_SHORTEST} <= set(self.options.routings(servers))
        costly = not self.family.enumerated and self.tolerance > 0.0
        self._spared = several and (costly or self._many)
        self._alone = no_network() if self.cluster.servers == 1 else None

    def _scorer(self, fabric: Fabric, tolerance: float = 0.0) -> Scorer[P]:
        return Scorer(self.problem, fabric, tolerance)

    def wire(
        self,
        strategy: P,
        origin: str,
        *,
        formula_only: bool = False,
        formula_limit: float = float("inf"),
        limit: float = float("inf"),
        exact: bool = True,
        weighted: bool = False,
        known: Pair[P] | None = None,
    ) -> Pair[P] | None:
        """Return the best pair of a parallelization with a topology built for its traffic.

        Parameters
        ----------
        strategy : P
            One that fits in memory.
        origin : str
        formula_only : bool
            Try the paper's degree split only.
        formula_limit : float
            Where that one takes longer than this many seconds, no other is tried.
        limit : float
            Pairs that are provably slower than this many seconds are not simulated.
        exact : bool
            Score the best pair exactly, even where the search's scores are not.
        weighted : bool
            Try ``mcf`` routing on the best topology, too. On many servers it is then tried in all
            ways although there is a limit.
        known : Pair, optional
            One of the parallelization with a topology, which is not simulated again.

        Returns
        -------
        Pair or None
            At least as fast as what is known. None if every pair is slower than the limit, or takes
            too much work to simulate.
        """
        if self._alone is not None:
            time = self._scorer(self._alone)(strategy)
            return Pair(strategy, None, Routing.ECMP, self._alone, time, origin)
        most = limit * (1.0 + SEARCH_TOLERANCE)
        spares = self.spares and limit < float("inf")
        if limit < float("inf") and self.problem.least_seconds(strategy) > most:
            return None
        if spares:
            load, ports = self.problem.port_load(strategy), self._ports
            folded = not weighted and load.transfers > MOST_FOLDED
            if folded or sent_seconds(load.sent, ports, ports) > most:
                self.work += MADE_WORK * load.tasks
                return None
        tasks = self.family.represented(strategy)
        if self.spares:
            self.work += MADE_WORK * tasks.tasks
        # To put them in another order, all tasks are made, on any wiring.
        ordered = self.options.compute_order != "ready"
        if ordered and BUILD_WORK * whole_size(tasks) > self.problem.candidate_work:
            self.unsimulated += 1
            return None
        if spares and moves_too_often(tasks) and not weighted:
            return None
        if limit < float("inf") and self._too_long(tasks, most):
            return None
        seen: set[WiringKey] = set()
        best = BestWiring(
            time=limit * (1.0 + SEARCH_TOLERANCE),
            whole=_MOST_WHOLE if spares else float("inf"),
            routed=MOST_CROSSINGS if spares and weighted else _MOST_ROUTED,
            moves=(_WEIGHTED_MOVES if weighted else MOST_MOVES) if spares else float("inf"),
            shorter=self.family.shorter(strategy),
        )
        if known is not None and known.topology is not None and known.time <= best.time:
            best.time, best.found = known.time, (known.topology, known.routing, known.fabric)
            best.simulated = (wiring_key(known.topology), known.routing)
        # The published search knows no other split either.
        formula_only |= self.options.faithful is not None or (spares and not weighted)
        traffic = traffic_of(tasks)
        every = partial(wirings, self.problem, traffic, grids=self.grids)
        if formula_limit < float("inf"):
            first = replace(best, time=formula_limit)
            self._try(tasks, every(True), seen, first)
            if first.found is None:
                return None
            best = first if first.time <= best.time else replace(best, promising=first.promising)
        self._try(tasks, every(formula_only), seen, best)
        if best.large and limit == float("inf") and self.options.faithful is None:
            # A matching beside the rings leaves few shortest paths, and so few routes.
            self._try(tasks, every(False), seen, best)
        # Where no wiring is faster by what a stage of the search must gain, no more are tried.
        done = self._exhausted(tasks, best)
        if not formula_only and best.promising is not None and not done:
            # Other rings for the split of the fastest so far: all splits would cost as much
            # again, and the best one hardly depends on the rings.
            like = best.promising if best.found is None else best.found[0]
            improved = other_rings(self.problem, traffic, like.degree_allreduce)
            self._try(tasks, improved, seen, best)
            done = self._exhausted(tasks, best)
        if not formula_only:
            # Without any of its servers nothing goes on there, for which it must be worth it.
            sooner = replace(best, time=best.time * (1.0 - _ONE_WAY_GAIN), found=None)
            self._try(tasks, one_way(self.problem), seen, sooner)
            if sooner.found is not None:
                best = sooner
        if best.found is None:
            return None
        routings = self.options.routings(self.cluster.servers)
        if self._spared and not formula_only and not done:
            self._reroute(tasks, best, Routing.K_SHORTEST)
        if weighted and Routing.MCF in routings and not self.spares and not done:
            self._reroute(tasks, best, Routing.MCF)
        topology, routing, fabric = best.found
        if not self._many:
            fabric = _of_all_pairs(fabric)
        pair = Pair(strategy, topology, routing, fabric, best.time, origin)
        if exact:
            pair = self.exactly(pair, lengthened=best.shorter is not None)
        return pair if pair.time <= limit else None

    def _exhausted(self, tasks: TaskGraph, best: BestWiring) -> bool:
        """Say whether no wiring of a strategy is faster by as much as a stage must gain."""
        gain = self.options.spent.least_gain
        if best.found is None or gain <= 0.0 or self.family.enumerated:
            return False
        if self.problem.yielding > 0.0 or self._many:
            return False
        cluster = self.cluster
        lag = PACKETS.ways * cluster.hop_latency
        bound = strategy_bound(tasks, cluster.degree, cluster.port_rate, lag).seconds
        return best.time <= (1.0 + gain) * bound

    def _too_long(self, tasks: TaskGraph, most: float) -> bool:
        """Say whether every iteration takes more seconds, whatever the wiring and the routes."""
        degree, rate = self.cluster.degree, self.cluster.port_rate
        if sent_seconds(tasks.port_bytes(), self._ports, self._ports) > most:
            return True
        return link_seconds(tasks, degree, rate, most) > most

    @property
    def _ports(self) -> Floats:
        """Bytes/s of all ports of a server together."""
        return np.array(self.cluster.degree * self.cluster.port_rate)

    def _try(
        self,
        tasks: TaskGraph,
        topologies: Iterable[Topology],
        seen: set[WiringKey],
        best: BestWiring,
    ) -> None:
        """Score topologies that were not seen yet under every routing."""
        routings = self.options.routings(self.cluster.servers)
        spared, few = self._spared, _sends_between_few(tasks)
        kept = max(_KEPT, _KEPT_SERVERS // self.cluster.servers)
        candidates: list[WiringCandidate] = []
        for topology in with_rings(topologies, tasks):
            wires = wiring_key(topology)
            if wires in seen:
                continue
            seen.add(wires)
            for routing in routings:
                if (wires, routing) == best.simulated:
                    best.promising = best.promising or topology
                    continue
                if routing is Routing.MCF or (routing is Routing.K_SHORTEST and spared):
                    continue  # costly, and worth it for the best topology only
                # Its bytes on links are added up without routes, which only what is simulated gets.
                summed = spared and routing is Routing.ECMP
                links = 0.0
                fabric = direct_fabric(
                    topology, routing, self.problem.seed, tasks=tasks, on_demand=summed or few
                )
                if self._many and moves_too_often(tasks, fabric, best.moves):
                    continue
                if summed:
                    if self.spares:
                        all_links, links = routed_links(fabric, tasks)
                        if all_links > best.routed:
                            best.large += 1
                            continue
                    bound = busiest_in_sum(fabric, tasks)
                else:
                    bound = busiest(fabric, tasks, best.time)
                self.work += _WIRE_WORK * self.cluster.servers**2
                # The routes of many servers fill memory: only of the most promising they are kept
                # until their turn, the more the fewer servers there are.
                made = None if summed or self.spares or bound > best.time else fabric
                place = len(candidates)
                candidates.append(WiringCandidate(bound, place, topology, routing, made, links))
                if len(candidates) > kept:
                    candidates.sort(key=promising_first)
                    candidates[kept:] = [one._replace(fabric=None) for one in candidates[kept:]]
        # Most promising first, so that the bounds of most others rule them out unsimulated.
        candidates.sort(key=promising_first)
        if candidates and best.promising is None:
            best.promising = candidates[0].topology
        candidates.reverse()

        def promising() -> Iterator[WiringCandidate]:
            while candidates and candidates[-1].bound <= best.time and self.work < self.most_work:
                if best.cut == _MOST_CUT:
                    candidates.pop()
                    self.unsimulated += 1
                else:
                    yield candidates.pop()

        def simulated(one: WiringCandidate, limit: float) -> tuple[Fabric, float, Scorer[P]]:
            fabric = one.fabric or direct_fabric(
                one.topology, one.routing, self.problem.seed, tasks=tasks, on_demand=few
            )
            quick = self._scorer(fabric, self.tolerance)
            quick.budget = self.problem.candidate_work
            if self.spares and (best.whole <= 0 or best.found is not None):
                quick.budget = _TRIED_WORK * min(1.0, _USUAL_LINKS / max(one.links, 1.0))
            return fabric, self._quick_time(quick, tasks, best.shorter, limit), quick

        # Routes of two wirings of many servers would fill memory.
        for one, (fabric, time, quick) in in_twos(
            promising(), simulated, lambda: best.time, 0 if self._many else self.cluster.servers
        ):
            best.whole -= 1
            self.work += quick.work
            if quick.bounded:
                best.cut += self.spares
                self.unsimulated += time < best.time
            elif time < best.time or (best.found is None and time <= best.time):
                best.time, best.found = time, (one.topology, one.routing, fabric)

    def _quick_time(
        self, quick: Scorer[P], tasks: TaskGraph, shorter: Shorter | None, limit: float
    ) -> float:
        """Return a score; of a long iteration what follows from shorter ones if these agree."""
        if shorter is not None and self.problem.candidate_work == float("inf"):
            found = quick.lengthened(shorter)
            if found is not None and found.steady:
                return found.seconds
        return quick.timed(tasks, limit)

    def _reroute(self, tasks: TaskGraph, best: BestWiring, routing: Routing) -> None:
        """Try costly routes on the best topology."""
        if best.found is None or not np.any(tasks.kind == TaskKind.TRANSFER):
            return
        topology = best.found[0]
        fabric = direct_fabric(topology, routing, self.problem.seed, tasks=tasks)
        # Only all shortest paths follow a rotation of the servers.
        if self._many and moves_too_often(tasks, fabric, best.moves):
            return
        each = _WIRE_WORK
        if routing is Routing.MCF:
            each = _MANY_ROUTE_WORK if self.tolerance > 0.0 else _ROUTE_WORK
        self.work += each * self.cluster.servers**2
        if busiest(fabric, tasks, best.time) > best.time:
            return
        quick = self._scorer(fabric, self.tolerance)
        quick.budget = self.problem.candidate_work
        time = self._quick_time(quick, tasks, best.shorter, best.time)
        self.work += quick.work
        if quick.bounded:
            self.unsimulated += time < best.time
        elif time < best.time:
            best.time, best.found = time, (topology, routing, fabric)

    def settled(self, pair: Pair[P]) -> Pair[P]:
        """Return a pair whose routes of least congestion are those of its own strategy.

        A chain changes strategies without routing anew, and is often as fast so; but then a
        plan would say what is not true of its routes.
        """
        if pair.routing is not Routing.MCF or pair.topology is None:
            return pair
        tasks = self.family.represented(pair.strategy)
        try:
            check_least_congestion(pair.fabric, tasks)
        except InputError:
            fabric = direct_fabric(pair.topology, Routing.MCF, self.problem.seed, tasks=tasks)
            scorer = self._scorer(fabric)
            time = scorer.timed(tasks)
            self.work += scorer.work
            return replace(pair, fabric=fabric, time=time)
        return pair

    def exactly(self, pair: Pair[P], *, lengthened: bool = False) -> Pair[P]:
        """Return the pair with its exact time; on many servers as it is, which is near.

        There a simulation of tens of millions of changes of rates would be repeated for a
        thousandth of its time; that of the plan is exact.
        """
        if self._many or not (self.tolerance or lengthened):
            return pair
        scorer = self._scorer(pair.fabric)
        time = scorer.timed(self.family.represented(pair.strategy))
        self.work += scorer.work
        return replace(pair, time=time)
