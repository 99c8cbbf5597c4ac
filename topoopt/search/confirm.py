"""Re-rank the best pairs of a search with a truer fabric model.

Every round of an AllReduce begins with new connections there, as in the packet simulator that
published times come from: whole first windows at once hold up the transfers that they meet, which
plans must bear.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from parallelism.family import Family, P
from parallelism.operator_family import OperatorFamily
from parallelism.taskgraph import TaskGraph
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scheduling import ordered_tasks
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.jitter import Jitter, jittered
from topoopt.fabric.reconfigurable import Playable
from topoopt.fabric.transport import Transport
from topoopt.problem.options import PACKET_SERVERS, SearchOptions

PACKET_MODEL = "packet-2"
PACKET_FINALISTS = 120
"""The same where simulations with packet trains go on from them."""
SCREENED = 5
"""Of variants that one copy each has ranked so many have all copies."""
_RANKED = Transport(reconnect=True)
# What long trains rank first is theirs by luck as well: some plans take one of two courses, which
# packet trains of several lengths show. Beyond this many servers short ones take minutes.
_SHORT_TRAINS, _LONG_TRAINS = (16, 8, 4), (32, 24, 16)
COPIES = len(_SHORT_TRAINS)
"""Simulations of each finalist, with perturbed delays; their mean counts."""


@dataclass(frozen=True)
class Confirmed(Generic[P]):
    """The pair that the truer model likes best.

    Parameters
    ----------
    pair : Pair
    jitter : Jitter
        Its times in that model.
    candidates : tuple of (str, float, float)
        Origin, time in the fluid model and mean time in the truer one, seconds, of every pair
        that was compared, fastest in the fluid model first.
    """

    pair: Pair[P]
    jitter: Jitter
    candidates: tuple[tuple[str, float, float], ...]


def packet_time(problem: Problem[Family[P]], pair: Pair[P], limit: float = float("inf")) -> float:
    """Return the time of one copy of a pair in long packet trains, which rank pairs quickly.

    Parameters
    ----------
    problem : Problem
        Its order of devices holds in packet trains, too; their links are first in, first out.
    pair : Pair
    limit : float
        A pair that is known to take longer than this many seconds takes infinitely long.

    Returns
    -------
    float
        Seconds.
    """
    fabric = replace(pair.fabric, transport=_RANKED)
    tasks = _ordered(problem, pair)
    return jittered(fabric, tasks, 1, model="packet", seed=problem.seed, limit=limit).mean


def confirmed_times(fabric: Fabric, tasks: TaskGraph, seed: int) -> Jitter:
    """Return the times that confirm a pair, in shorter trains of several lengths.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    seed : int

    Returns
    -------
    Jitter
        Of `COPIES` copies.
    """
    lengths = _SHORT_TRAINS if fabric.network.hosts <= PACKET_SERVERS else _LONG_TRAINS
    times = []
    for copy, length in enumerate(lengths):
        truer = replace(fabric, transport=Transport(reconnect=True, train_packets=length))
        times.append(jittered(truer, tasks, 1, model="packet", seed=seed + copy).mean)
    return Jitter(np.array(times))


def states_packets(family: Family[P], options: SearchOptions, servers: int) -> bool:
    """Say whether a plan states what packet trains take, on its network and on others.

    Parameters
    ----------
    family : Family
        Layouts send many times more messages, so theirs are asked for.
    options : SearchOptions
        Only the plain schedule and the order of devices are known to packet trains.
    servers : int

    Returns
    -------
    bool
    """
    if servers == 1 or options.schedule not in ("plain", "compute"):
        return False
    small = isinstance(family, OperatorFamily) and servers <= PACKET_SERVERS
    return small or options.confirm == "packet"


def packet_times_on(
    fabric: Playable, tasks: TaskGraph, real: Callable[[], Fabric] | None = None
) -> Jitter | None:
    """Return the times of packet trains on a fabric to compare with.

    Parameters
    ----------
    fabric : Fabric, DirectCircuits or WindowedCircuits
    tasks : TaskGraph
    real : callable, optional
        Returns the fabric with each link of its own, where `fabric` has merged ones.

    Returns
    -------
    Jitter or None
        None of fabrics that are rewired during the iteration, which packet trains do not know.
    """
    if not isinstance(fabric, Fabric):
        return None
    # The same copies for every seed of a search: fabrics do not depend on it.
    return confirmed_times(fabric if real is None else real(), tasks, 0)


def _ordered(problem: Problem[Family[P]], pair: Pair[P]) -> TaskGraph:
    tasks = problem.family.build(pair.strategy)
    return ordered_tasks(pair.fabric, tasks, problem.schedule)[0]


def screened(
    problem: Problem[Family[P]],
    pairs: list[Pair[P]],
    count: int,
    progress: ProgressCallback | None = None,
) -> list[Pair[P]]:
    """Return the pairs of which one copy each is fastest in the packet model.

    Parameters
    ----------
    problem : Problem
    pairs : list of Pair
        Fastest first.
    count : int
        How many to return; all, in the given order, if there are no more.
    progress : callable, optional

    Returns
    -------
    list of Pair
        Fastest in packet trains first, ties as given.
    """
    if len(pairs) <= count:
        return list(pairs)
    times: list[float] = []
    for pair in pairs:
        limit = sorted(times)[count - 1] if len(times) >= count else float("inf")
        times.append(packet_time(problem, pair, limit))
        if progress:
            progress(Progress("packet ranking", len(times), len(pairs), min(times)))
    order = sorted(range(len(pairs)), key=lambda i: (times[i], i))
    return [pairs[i] for i in order[:count]]


def confirm_pairs(
    problem: Problem[Family[P]],
    pairs: list[Pair[P]],
    progress: ProgressCallback | None = None,
) -> Confirmed[P]:
    """Simulate each pair with packet trains and return the one with the lowest mean.

    Parameters
    ----------
    problem : Problem
    pairs : list of Pair
        At least one, fastest first; ties go to the earlier.
    progress : callable, optional

    Returns
    -------
    Confirmed
    """
    results: list[Jitter] = []
    for pair in pairs:
        results.append(confirmed_times(pair.fabric, _ordered(problem, pair), problem.seed))
        if progress:
            best = min(result.mean for result in results)
            progress(Progress("packet trains", len(results), len(pairs), best))
    winner = min(range(len(pairs)), key=lambda i: results[i].mean)
    return Confirmed(
        pairs[winner],
        results[winner],
        tuple((p.origin, p.time, r.mean) for p, r in zip(pairs, results, strict=True)),
    )
