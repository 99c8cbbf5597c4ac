"""Parallelizations on wirings that were made for others."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice

from parallelism.family import Family, P
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import NAMED
from topoopt.evaluate.scoring import Scorer
from topoopt.evaluate.wirings import lacks_rings
from topoopt.search.finalists import finalists

# Of others that are tried, and best wirings on which each is.
_TRIED = 12
_WIRINGS = 3


def crossed(
    problem: Problem[Family[P]], pairs: Sequence[Pair[P]], others: Iterable[tuple[P, float]]
) -> list[Pair[P]]:
    """Simulate parallelizations on the best wirings, whichever those were made for.

    Parameters
    ----------
    problem : Problem
    pairs : sequence of Pair
        Wired each for itself.
    others : iterable of (parallelization, float)
        With the seconds that none of their pairs is hoped to be below, most promising first.

    Returns
    -------
    list of Pair
        Each faster than all before it, and than those given. Up to twelve parallelizations are
        tried, on three wirings with routes that are the same for any traffic, and with rings for
        its large groups; then those that these were made for, which may not be among the twelve.
    """
    found: list[Pair[P]] = []
    best = min((pair.time for pair in pairs), default=float("inf"))
    wirings = finalists((pair for pair in pairs if pair.routing in NAMED), count=_WIRINGS)
    tried: set[P] = set()
    # What is found on the way leaves fewer to hope for.
    hopeful = (other for other, hoped in others if hoped < best)
    for other in chain(islice(hopeful, _TRIED), [pair.strategy for pair in wirings]):
        if other in tried:
            continue
        tried.add(other)
        tasks, shorter = problem.family.represented(other), problem.family.shorter(other)
        for pair in wirings:
            if pair.topology is None or pair.strategy == other:
                continue
            if lacks_rings(pair.topology, tasks):
                continue
            scorer = Scorer(problem, pair.fabric, budget=problem.candidate_work)
            follows = None if shorter is None else scorer.lengthened(shorter)
            if follows is not None and follows.steady and follows.seconds >= best:
                continue
            time = scorer(other, best)
            if time < best and not scorer.bounded:
                best = time
                found.append(replace(pair, strategy=other, time=time, origin="search"))
    return found
