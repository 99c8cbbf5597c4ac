"""Re-rank the best pairs of a search with a truer fabric model.

Every round of an AllReduce begins with new connections there, as in the packet simulator that
published times come from: whole first windows at once hold up the transfers that they meet, which
plans must bear.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, takewhile
from typing import Generic

import numpy as np

from parallelism.family import Family, P
from parallelism.operator_family import OperatorFamily
from parallelism.taskgraph import TaskGraph
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.side_by_side import in_twos
from topoopt.baselines.baseline import BaselineFabric
from topoopt.evaluate.least_times import sent_seconds
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scheduling import ordered_tasks
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.jitter import Jitter, jittered
from topoopt.fabric.packets import expected_events, run_packets
from topoopt.fabric.represented import whole_tasks
from topoopt.fabric.rounding import ROUNDED_DOWN, ROUNDED_UP
from topoopt.fabric.transport import Transport
from topoopt.problem.options import PACKET_SERVERS
from topoopt.problem.seeds import SEEDS

PACKET_MODEL = "packet-4"
# What long trains rank first may be first by chance: some plans take one of two courses, which
# packet trains of several lengths show. Of many servers, or much traffic, short ones take minutes.
_RANKING_TRAIN = 64
_SHORT_TRAINS, _LONG_TRAINS = (32, 24, 16), (128, 96, 64)
# Much is what is expected to take more events than this in the shortest of these trains; where it
# contends, it takes some ten times as many.
_MUCH_EVENTS = 1_000_000
# On many servers an iteration is first simulated in the longest trains; of what takes fewer events
# than this so, the other copies count.
_FEW_EVENTS = 4_000_000
MOST_EVENTS = 100_000_000
"""Events beyond which an iteration on many servers has no packet time: some ten seconds."""
NO_PACKET_TIME = (
    f"no packet time: packet trains have more than {MOST_EVENTS / 1e6:.0f} million events"
)
# What contends has about this many times the events of what does not.
_CONTENDED = 2.0
# Of what takes so many times the best mean in the first copy the others are not simulated.
_HOPELESS = 1.05
# Of many servers or much traffic, simulations begin that long, counted in events, and the best so
# far is taken.
_CHOOSING_EVENTS = 60_000_000
PACKET_RUNS = len(_SHORT_TRAINS)
"""Simulations of each finalist, with perturbed delays; their mean counts."""


@dataclass(frozen=True)
class Confirmed(Generic[P]):
    """The pair that the truer model likes best.

    Parameters
    ----------
    pair : Pair
    jitter : Jitter, optional
        Its times in that model; none where they would take too long.
    candidates : tuple of (str, float, float)
        Origin, time in the fluid model and mean time in the truer one, seconds, of every pair
        that was compared, in the order given.
    """

    pair: Pair[P]
    jitter: Jitter | None
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
    tasks = _ordered(problem, pair)
    length = _LONG_TRAINS[0] if takes_long(pair.fabric, tasks) else _RANKING_TRAIN
    fabric = _in_trains(pair.fabric, length)
    return jittered(fabric, tasks, 1, model="packet", seed=problem.seed, limit=limit).mean


def _in_trains(fabric: Fabric, length: int) -> Fabric:
    """Return the fabric with new connections in every round, in trains of so many packets."""
    return replace(fabric, transport=Transport(reconnect=True, train_packets=length))


def takes_long(fabric: Fabric, tasks: TaskGraph) -> bool:
    """Say whether simulations in short packet trains would take long.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        One iteration.

    Returns
    -------
    bool
    """
    many = fabric.network.hosts > PACKET_SERVERS
    return many or expected_events(_in_trains(fabric, _SHORT_TRAINS[-1]), tasks) > _MUCH_EVENTS


def confirmed_times(
    fabric: Fabric,
    tasks: TaskGraph,
    seed: int,
    limit: float = float("inf"),
    ranked: float | None = None,
) -> Jitter | None:
    """Return the times that confirm a pair, in shorter trains of several lengths.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    seed : int
    limit : float
        Where the mean is known to be more than this many seconds, or the first copy takes
        `_HOPELESS` times as long, the copies left take infinitely long.
    ranked : float, optional
        What `packet_time` says of these tasks and this seed, if that is known, in seconds.

    Returns
    -------
    Jitter or None
        Of `PACKET_RUNS` runs, with the events of long simulations; on many servers of a single one
        where that takes long, and None where it would take more than `MOST_EVENTS`.
    """
    events, tasks = 0, whole_tasks(tasks)
    lengths = _LONG_TRAINS if takes_long(fabric, tasks) else _SHORT_TRAINS
    first = _in_trains(fabric, lengths[0])
    if fabric.network.hosts > PACKET_SERVERS:
        if _CONTENDED * expected_events(first, tasks) > MOST_EVENTS:
            return None
        run = run_packets(first, tasks, seed=seed, most_events=MOST_EVENTS)
        if run.makespan == np.inf:
            return None
        if run.events > _FEW_EVENTS:
            return Jitter(np.array([run.makespan]), run.events)
        events = (1 + 2 * PACKET_RUNS) * run.events
    elif lengths == _LONG_TRAINS:
        expected = expected_events(first, tasks)
        events = int(expected * sum(lengths[0] / length for length in lengths))
    times = np.full(len(lengths), np.inf)
    least = _least_seconds(fabric, tasks) if limit < np.inf else 0.0
    for copy, length in enumerate(lengths):
        others = times[:copy].sum() + (len(lengths) - copy - 1) * least
        most = len(lengths) * limit - others
        if copy == 0:
            most = min(most, _HOPELESS * limit)
        if copy == 0 and ranked is not None and lengths == _LONG_TRAINS:
            times[copy] = ranked if ranked <= most * ROUNDED_UP else np.inf
        else:
            truer, number = _in_trains(fabric, length), (seed + copy) % SEEDS
            copies = jittered(truer, tasks, 1, model="packet", seed=number, limit=most)
            times[copy] = copies.mean
        if times[copy] == np.inf:
            break
    return Jitter(times, events)


def _least_seconds(fabric: Fabric, tasks: TaskGraph) -> float:
    """Return what devices and ports need; a link may have less where messages draw their paths."""
    network, servers = fabric.wired, tasks.servers
    out, into = network.out_rate()[:servers], network.in_rate()[:servers]
    busy = float(tasks.device_seconds().max(initial=0.0)) * ROUNDED_DOWN
    return max(busy, sent_seconds(tasks.port_bytes(), out, into))


def states_packets(problem: Problem[Family[P]]) -> bool:
    """Say whether a plan states what packet trains take, on its network and on others.

    Parameters
    ----------
    problem : Problem
        Layouts send many times more messages, so theirs are asked for; and so is everything
        on many servers, where the search says by default what is. Of schedules only the plain one
        and the order of devices are known to packet trains.

    Returns
    -------
    bool
    """
    options, servers = problem.options, problem.cluster.servers
    if servers == 1 or options.scheduling not in ("plain", "compute"):
        return False
    small = isinstance(problem.family, OperatorFamily) and servers <= PACKET_SERVERS
    return small or options.confirm == "packet"


def packet_times_in_turn(
    pairs: list[Pair[P]],
    tasks: Callable[[Pair[P]], TaskGraph],
    seed: int,
    ranked: bool = False,
) -> Iterator[tuple[Pair[P], Jitter | None]]:
    """Yield pairs with their times in packet trains, as many as can be simulated soon.

    Those that cannot have the lowest mean are given up, and take infinitely long; so are those
    whose fluid time is clearly longer, which packets hardly ever pass. The same are given up
    however many are simulated at a time.

    Parameters
    ----------
    pairs : list of Pair
        In this order; the first is always among them.
    tasks : callable
        Returns the task graph of a pair.
    seed : int
    ranked : bool
        Whether times in packet trains that pairs may have are of these tasks and this seed.

    Yields
    ------
    (Pair, Jitter or None)
        As `confirmed_times` has them.
    """
    spent, best = 0, float("inf")
    given_up = Jitter(np.full(PACKET_RUNS, np.inf), 0)

    def timed(pair: Pair[P], limit: float) -> Jitter | None:
        if pair.time > _HOPELESS * limit:
            return given_up
        if ranked and pair.packets is not None:
            return pair.packets
        known = pair.in_trains if ranked else None
        return confirmed_times(pair.fabric, tasks(pair), seed, limit, known)

    def limit() -> float:
        return best

    # The first alone, because its time is the limit of the others.
    others = takewhile(lambda _: spent <= _CHOOSING_EVENTS, pairs[1:])
    servers = pairs[0].fabric.network.hosts
    for pair, times in chain(
        in_twos(pairs[:1], timed, limit, servers, 0),
        in_twos(others, timed, limit, servers, 0),
    ):
        # The second of two did not know the first.
        if pair.time > _HOPELESS * best:
            times = given_up
        if times is not None:
            spent += times.events
            if times.times[0] > _HOPELESS * best or times.mean > best:
                times = given_up
            best = min(best, times.mean)
        yield pair, times


def packet_times_on(base: BaselineFabric, tasks: TaskGraph) -> Jitter | None:
    """Return the times of packet trains on a fabric to compare with.

    Parameters
    ----------
    base : BaselineFabric
    tasks : TaskGraph

    Returns
    -------
    Jitter or None
        None of fabrics whose ports belong to GPUs, or that are rewired during the iteration: packet
        trains do not know these.
    """
    fabric = base.unmerged
    # The same copies for every seed, so that what several searches find on a fabric compares.
    return confirmed_times(fabric, tasks, 0) if isinstance(fabric, Fabric) else None


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
        Fastest first. Of pairs with one time in trains the first counts: routes that are the same,
        or variants that differ in the numbers of servers only, would confirm one plan twice.
    count : int
        How many to return; all, in the given order, if there are no more.
    progress : callable, optional

    Returns
    -------
    list of Pair
        Fastest in packet trains first, ties as given, with their times in these.
    """
    if len(pairs) <= count:
        return list(pairs)
    times: list[float] = []

    def limit() -> float:
        distinct = sorted(set(times))
        return distinct[count - 1] if len(distinct) >= count else float("inf")

    def timed(pair: Pair[P], limit: float) -> float:
        return packet_time(problem, pair, limit)

    for _, time in in_twos(pairs, timed, limit, problem.cluster.servers, 0):
        times.append(time)
        if progress:
            progress(Progress("packet ranking", len(times), len(pairs), min(times)))
    first: dict[float, int] = {}
    for place, time in enumerate(times):
        first.setdefault(time, place)
    return [replace(pairs[first[time]], in_trains=time) for time in sorted(first)[:count]]


def confirm_pairs(
    problem: Problem[Family[P]],
    pairs: list[Pair[P]],
    progress: ProgressCallback | None = None,
) -> Confirmed[P]:
    """Simulate each pair with packet trains and return the one with the lowest mean.

    Of many servers, or much traffic, only so many, in the given order, as can be simulated soon.

    Parameters
    ----------
    problem : Problem
    pairs : list of Pair
        At least one, the likeliest first; ties go to the earlier.
    progress : callable, optional

    Returns
    -------
    Confirmed
        As `fastest_in_packets` chooses.
    """
    found: list[tuple[Pair[P], Jitter | None]] = []
    timed = packet_times_in_turn(pairs, partial(_ordered, problem), problem.seed, ranked=True)
    for place, (pair, times) in enumerate(timed):
        found.append((pair, times))
        if progress:
            best, mean = fastest_in_packets(found)
            seconds = best.time if mean is None else mean.mean
            progress(Progress("packet trains", place + 1, len(pairs), seconds))
    winner, jitter = fastest_in_packets(found)
    candidates = tuple((p.origin, p.time, t.mean) for p, t in found if t is not None)
    return Confirmed(winner, jitter, candidates)


def fastest_in_packets(found: list[tuple[Pair[P], Jitter | None]]) -> tuple[Pair[P], Jitter | None]:
    """Return the pair with the lowest mean in packet trains, and its times.

    Parameters
    ----------
    found : list of (Pair, Jitter or None)
        One without times counts as if packets took as many times its fluid time as they take at
        most of the others: that no packets were simulated must not speak for it.

    Returns
    -------
    (Pair, Jitter or None)
        The earlier of equals.
    """
    slower = [times.mean / pair.time for pair, times in found if times is not None]
    most = max((factor for factor in slower if factor < np.inf), default=1.0)
    return min(found, key=lambda each: most * each[0].time if each[1] is None else each[1].mean)
