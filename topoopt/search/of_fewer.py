"""What a search of the same job on fewer servers finds, repeated on all.

What suits a model that branches takes many moves to find, of which a search on more servers can try
fewer. With as many samples per GPU what is good for some servers is good for each so many of more.
"""

from dataclasses import replace

from codesign_base import InfeasibleError
from parallelism.search.repeated import repeated
from parallelism.strategy import Strategy, parted
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.problem import Problem
from topoopt.search.driver import run
from topoopt.search.steps import Search

# Servers of the smaller search at most, those for which there is one, and strategies that are taken
# over from it.
_MOST, _UP_TO, _TAKEN = 16, 64, 2


def fewer_servers(search: Search) -> int | None:
    """Return on how many servers a search is made beside that on all; None where there is none.

    On the most, up to 16, that divide all of them, more than a server has ports. There is none for
    16 servers or fewer; none for more than 64, where the presets gained nothing for up to half as
    much time again; none for methods that are there to be compared with, nor for servers that are
    wired already.
    """
    servers, degree = search.cluster.servers, search.cluster.degree
    if not _MOST < servers <= _UP_TO or search.options.searched != "joint":
        return None
    if search.problem.wiring is not None:
        return None  # part of a wiring is another
    return max((n for n in range(degree + 1, _MOST + 1) if servers % n == 0), default=None)


def best_of_fewer(
    search: Search, progress: ProgressCallback | None = None
) -> tuple[list[Strategy], float]:
    """Return the best strategies of the same job on fewer servers, repeated on all.

    Parameters
    ----------
    search : Search
    progress : callable, optional

    Returns
    -------
    strategies : list of Strategy
        Distinct ones that fit, two at most, fastest first; none where nothing fits on fewer
        servers.
    work : float
        What finding them cost.

    Raises
    ------
    KeyboardInterrupt
        From the keyboard.

    Notes
    -----
    The smaller search has the usual budget, whatever this one was given: so as many steps as this
    has made give the same plan again.
    """
    fewer = fewer_servers(search)
    if fewer is None:
        return [], 0.0
    problem, space = search.problem, search.space
    family = problem.family.on(fewer, problem.family.batch // search.cluster.servers * fewer)
    smaller = Problem(
        family,
        replace(search.cluster, servers=fewer),
        replace(search.options, effort="quick", steps=None, seconds=None),
        problem.seed,
    )

    def report(made: Progress) -> None:
        if progress is not None:
            progress(replace(made, stage="fewer servers"))

    try:
        result = run(Search(smaller, search.method), search.method.budget(fewer), report)
    except InfeasibleError:
        return [], 0.0
    if result.interrupted:
        raise KeyboardInterrupt
    found = (space.intern(repeated(pair.strategy, space, fewer)) for pair in result.others)
    fitting = [
        strategy
        for strategy in dict.fromkeys(found)
        if parted(space.graph, strategy) is None and problem.fits(strategy)
    ]
    return fitting[:_TAKEN], result.work
