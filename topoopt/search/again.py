"""A second search of more servers, by another score, where packet trains do not confirm the first.

Up to 32 servers scores weigh transfers that yield to AllReduces (`topoopt.search.yielding`). On
more, simulations take long, and most jobs need no second one for each score. Where they do, packet
trains say so of the best pair: they take clearly longer than flows, and transfers that yield would,
too. Then the whole search is made again by that score, and packet trains choose among the pairs of
both. The usual weight makes faster plans than the one that explains the best pair, which is the
best because flows flatter it.
"""

from copy import copy
from dataclasses import replace

import numpy as np

from parallelism.strategy import Strategy
from parallelism.taskgraph import TRANSFER
from topoopt.base.progress import ProgressCallback
from topoopt.base.side_by_side import in_twos
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.routed import direct_fabric
from topoopt.evaluate.scheduling import simulate_schedule
from topoopt.evaluate.scoring import Scorer
from topoopt.problem.routing import Routing
from topoopt.problem.schedule import Schedule
from topoopt.search.confirm import confirmed_times
from topoopt.search.driver import run
from topoopt.search.finalists import finalists
from topoopt.search.result import SearchResult
from topoopt.search.steps import Search
from topoopt.search.yielding import YIELDING

# So many times its time by flows the best pair takes where the search is made again.
_ASTRAY = 1.05


def one_path(problem: Problem, pair: Pair[Strategy]) -> Pair[Strategy] | None:
    """Return a wired pair with one path for each pair of servers, as messages take.

    None where no transfers take a path.
    """
    assert pair.topology is not None
    tasks = problem.family.build(pair.strategy)
    if not np.any(tasks.kind == TRANSFER):
        return None
    fabric = direct_fabric(pair.topology, Routing.BALANCED, tasks=tasks)
    own = simulate_schedule(fabric, problem.family.represented(pair.strategy), problem.schedule)
    return replace(
        pair, fabric=fabric, routing=Routing.BALANCED, time=own.time, packets=None,
        simulated=own if problem.schedule == Schedule.plain() else None,
    )  # fmt: skip


def judged(problem: Problem, pair: Pair[Strategy]) -> list[Pair[Strategy]]:
    """Return a wired pair, and the same with one path each if it differs, with packet times.

    Those have none that would take too long.
    """
    tasks = problem.family.build(pair.strategy)

    def timed(one: Pair[Strategy], _: float) -> Pair[Strategy]:
        return replace(one, packets=confirmed_times(one.fabric, tasks, problem.seed))

    other = one_path(problem, pair)
    both = [pair] if other is None else [pair, other]
    return [one for _, one in in_twos(both, timed, lambda: 0.0, problem.cluster.servers, 0)]


def astray(search: Search, best: list[Pair[Strategy]]) -> bool:
    """Say whether packet trains, and flows that yield, take clearly longer than flows say.

    Parameters
    ----------
    search : Search
    best : list of Pair
        Its best pair, as `judged` returns it.

    Returns
    -------
    bool
    """
    times = [(one.packets.mean, one) for one in best if one.packets is not None]
    if not times:
        return False
    packets, nearest = min(times, key=lambda each: each[0])
    if packets <= _ASTRAY * best[0].time:
        return False
    tasks = search.builder.build(nearest.strategy)
    late = Scorer(search.problem, nearest.fabric).simulate(tasks, transfers_yield=True)
    return late > _ASTRAY * nearest.time


def search_again(
    search: Search, result: SearchResult[Strategy], progress: ProgressCallback | None = None
) -> None:
    """Search again by the score of transfers that yield.

    Parameters
    ----------
    search : Search
    result : SearchResult
        What is found is added to it.
    progress : callable, optional

    Notes
    -----
    The second search has the usual budget, whatever the first was given: so as many steps as the
    first has made give the same plan again.
    """
    other = copy(search)
    other.yielding = YIELDING
    second = run(other, search.method.budget(search.cluster.servers), progress)
    result.work += second.work
    result.interrupted = second.interrupted
    result.again = second.best
    met = [*result.others, *second.others]
    result.others = finalists(met, search.method.spacing, search.kept)
