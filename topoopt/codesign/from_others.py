"""What was found for other fabrics, taken over where it makes a faster plan.

A search may miss what another finds on a fabric to compare with, of which each begins elsewhere. So
the best parallelization of each is wired anew. A random wiring has the plan's own ports, and may
also stay as it is: that helps where steps are few, or no ring serves the traffic.
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
from topoopt.search.operators import OperatorSearch
from topoopt.topology.finder import Topology


def faster_of_others(
    comparison: BaselineSearch, packets: Confirmed[Any] | None, expander: bool
) -> tuple[Pair[Any], Confirmed[Any] | None] | None:
    """Return a pair that is faster than a plan, made of what was found for other fabrics.

    Parameters
    ----------
    comparison : BaselineSearch
        Of the plan, when it has been made.
    packets : Confirmed or None
        The plan's times in packet trains, if they were looked at.
    expander : bool
        Whether the fabric of this name is the random wiring of the plan's ports.

    Returns
    -------
    (Pair, Confirmed or None) or None
        With its times in packet trains, if the plan has them. None if nothing is faster.
    """
    problem: Problem[Any] = comparison.search.problem
    here = comparison.result.best.time
    jitter = None if packets is None else packets.jitter
    pairs = _wired_anew(comparison)
    if expander:
        pairs += _of_expander(comparison, packets, pairs)
    if not pairs:
        return None
    pairs.sort(key=lambda pair: pair.time)
    if packets is None or jitter is None:
        return (pairs[0], None) if pairs[0].time < here else None
    confirmed: Confirmed[Any] = confirm_pairs(problem, pairs, comparison.beside.report)
    if confirmed.jitter is None or confirmed.jitter.mean >= jitter.mean:
        return None
    both = (*packets.candidates, *confirmed.candidates)
    return confirmed.pair, replace(confirmed, candidates=both)


def _wired_anew(comparison: BaselineSearch) -> list[Pair[Any]]:
    """Return what the plan's search has not kept, wired anew, if it is taken for faster."""
    search, result = comparison.search, comparison.result
    if not (isinstance(search, OperatorSearch) and search.exchanges(result)):
        return []
    kept = {result.best.strategy, *(pair.strategy for pair in result.others)}
    found = dict.fromkeys(each.parallelization for each in comparison.found.values())
    return search.wired_anew([each for each in found if each not in kept], result.best)


def _of_expander(
    comparison: BaselineSearch, packets: Confirmed[Any] | None, known: list[Pair[Any]]
) -> list[Pair[Any]]:
    """Return what is faster on the random wiring, wired anew if it is not, and as it is there."""
    problem: Problem[Any] = comparison.search.problem
    named = [base.fabric for base in comparison.chosen if base.fabric.name == "expander"]
    if not named or not isinstance(named[0], Fabric):
        return []
    best = comparison.found["expander"]
    there, here = best.time, comparison.result.best.time
    if packets is not None and packets.jitter is not None:
        if best.packets is None:
            return []
        there, here = best.packets.mean, packets.jitter.mean
    if best.bounded or there >= here:
        return []
    pairs = []
    if all(pair.strategy != best.parallelization for pair in known):
        anew = Rewirer(problem).wire(best.parallelization, "search")
        pairs = [] if anew is None else [anew]
    # With rings first: of equal times theirs can be deployed as they are.
    return [*pairs, _as_there(problem, named[0], best.parallelization)]


def _as_there(problem: Problem[Any], fabric: Fabric, parallelization: Any) -> Pair[Any]:
    topology = Topology.wired(replace(fabric.network, name="topoopt"), problem.cluster)
    tasks = problem.family.represented(parallelization)
    own = direct_fabric(topology, Routing.ECMP, problem.seed, tasks=tasks)
    time = Scorer(problem, own).timed(tasks)
    return Pair(parallelization, topology, Routing.ECMP, own, time, "search")
