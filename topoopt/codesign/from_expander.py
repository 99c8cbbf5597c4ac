"""The random wiring that a plan is compared with, taken over where the plan is slower.

Both have the same ports. A search of few steps, or of traffic that no ring serves, may miss what a
search for the random wiring finds; then its parallelization is wired anew, or as it is there.
"""

from dataclasses import replace
from typing import Any

from topoopt.codesign.baseline_search import BaselineSearch
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.problem.routing import Routing
from topoopt.search.confirm import Confirmed, confirm_pairs
from topoopt.topology.finder import Topology


def faster_than_expander(
    comparison: BaselineSearch, packets: Confirmed[Any] | None
) -> tuple[Pair[Any], Confirmed[Any] | None] | None:
    """Return a pair that is faster than a plan, made of what is faster on the expander.

    Parameters
    ----------
    comparison : BaselineSearch
        Of the plan, when it has been made.
    packets : Confirmed or None
        The plan's times in packet trains, if they were looked at.

    Returns
    -------
    (Pair, Confirmed or None) or None
        With its times in packet trains, if the plan has them. None if nothing is faster.
    """
    problem: Problem[Any] = comparison.search.problem
    named = [base.fabric for base in comparison.chosen if base.fabric.name == "expander"]
    if not named or not isinstance(named[0], Fabric):
        return None
    best = comparison.found["expander"]
    there, here = best.time, comparison.result.best.time
    timed = packets is not None and packets.jitter is not None
    if packets is not None and packets.jitter is not None:
        if best.packets is None:
            return None
        there, here = best.packets.mean, packets.jitter.mean
    if best.bounded or there >= here:
        return None
    strategy = best.parallelization
    # With rings first: of equal times theirs can be deployed as they are.
    anew = Rewirer(problem).wire(strategy, "search")
    pairs = [] if anew is None else [anew]
    pairs.append(_as_there(problem, named[0], strategy))
    if not timed:
        fastest = min(pairs, key=lambda pair: pair.time)
        return (fastest, None) if fastest.time < here else None
    confirmed: Confirmed[Any] = confirm_pairs(problem, pairs, comparison.beside.report)
    if confirmed.jitter is None or confirmed.jitter.mean >= here:
        return None
    both = (*(packets.candidates if packets is not None else ()), *confirmed.candidates)
    return confirmed.pair, replace(confirmed, candidates=both)


def _as_there(problem: Problem[Any], fabric: Fabric, parallelization: Any) -> Pair[Any]:
    topology = Topology.wired(replace(fabric.network, name="topoopt"), problem.cluster)
    tasks = problem.family.represented(parallelization)
    own = direct_fabric(topology, Routing.ECMP, problem.seed, tasks=tasks)
    time = Scorer(problem, own).timed(tasks)
    return Pair(parallelization, topology, Routing.ECMP, own, time, "search")
