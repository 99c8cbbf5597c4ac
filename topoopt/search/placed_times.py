"""Times of placed layouts, on the ideal switch and on fabrics to compare with.

A time is a function of its arguments alone, so that a second process may work it out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from parallelism.family import Shorter
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.placement import Placement
from topoopt.base.second import Second, Task
from topoopt.evaluate.least_times import least_hops
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Lengthened, Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.search.survey import Candidate

# Placed layouts, fastest on the ideal switch first, whose times by hops are looked at; on more
# than so many servers all, of which the fastest are hard to wire.
_HOPPED, _HOPPED_UP_TO = 24, 256
# Times that follow from those of shorter iterations which do not grow evenly are off by less than
# this factor: what is farther from the fastest is not simulated whole.
_UNEVEN = 1.05


@dataclass(frozen=True, eq=False)
class Placed:
    """A layout with its ranks on servers, and its time where every port reaches every server.

    Parameters
    ----------
    candidate : Candidate
    placement : Placement
    ideal_s : float
        Seconds on the ideal switch; of a long pipeline those of `switched`.
    """

    candidate: Candidate
    placement: Placement
    ideal_s: float


def ideal_s(one: Placed) -> float:
    """Return the seconds on the ideal switch, by which placed layouts are sorted."""
    return one.ideal_s


def placed_on_switch(second: Second, places: Mapping[Placement, Candidate]) -> Iterator[Placed]:
    """Yield placed layouts with their times on the ideal switch, in order.

    Long pipelines whose time does not grow evenly come last.

    Parameters
    ----------
    second : Second
        Shares the problem.
    places : mapping of Placement to Candidate
    """
    tasks = second.share(switched, [{"placement": place} for place in places])
    least, uneven = float("inf"), {}
    for place, task in zip(places, tasks, strict=True):
        seconds, steady = task.result(hear=True)
        least = min(least, seconds)
        if steady:
            yield Placed(places[place], place, seconds)
        else:
            uneven[place] = seconds
    near = [place for place, seconds in uneven.items() if seconds <= _UNEVEN * least]
    again = second.share(switched_s, [{"placement": place} for place in near])
    for place, task in zip(near, again, strict=True):
        uneven[place] = task.result(hear=True)
    for place, seconds in uneven.items():
        yield Placed(places[place], place, seconds)


def by_hops(second: Second, placed: Sequence[Placed], servers: int) -> list[Placed]:
    """Return placed layouts in the order in which they are wired.

    A switch joins all servers by one hop. Of tokens sent to experts on dozens of servers, which
    take several on any direct network, it says too little; so the fastest on it are put in the
    order of their times on a switch whose ports are as much slower as their bytes take hops.

    Parameters
    ----------
    second : Second
        Shares the problem.
    placed : sequence of Placed
        Fastest on the ideal switch first.
    servers : int

    Returns
    -------
    list of Placed
    """
    count = _HOPPED if servers <= _HOPPED_UP_TO else len(placed)
    fastest, others = placed[:count], placed[count:]
    tasks = second.share(hopped_s, [{"placement": one.placement} for one in fastest])
    slower = [task.result(hear=True) for task in tasks]
    times = {
        one: one.ideal_s if time is None else time
        for one, time in zip(fastest, slower, strict=True)
    }
    return [*sorted(fastest, key=times.__getitem__), *others]


class Fastest(NamedTuple):
    """The fastest of placed layouts on a fabric: its seconds, and its number among these.

    If ``bounded``, the budget did not suffice for the first of them, and the time is a bound that
    it is not below.
    """

    bounded: bool
    time: float
    number: int


def switched_s(problem: Problem[LayoutFamily], placement: Placement) -> float:
    """Return the time of a placed layout on the ideal switch.

    Parameters
    ----------
    problem : Problem
    placement : Placement

    Returns
    -------
    float
        Seconds.
    """
    return Scorer(problem.plain, problem.ideal).simulate(problem.family.represented(placement))


def switched(problem: Problem[LayoutFamily], placement: Placement) -> Lengthened:
    """Return the time by which a placed layout is ranked, on the ideal switch as well.

    Parameters
    ----------
    problem : Problem
    placement : Placement

    Returns
    -------
    Lengthened
        Of a long pipeline what follows from shorter iterations of it; else what is simulated.
    """
    return _time_on(problem, problem.ideal, placement, problem.family.shorter(placement))


def _time_on(
    problem: Problem[LayoutFamily], fabric: Fabric, placement: Placement, shorter: Shorter | None
) -> Lengthened:
    scorer = Scorer(problem.plain, fabric)
    found = None if shorter is None else scorer.lengthened(shorter)
    if found is not None:
        return found
    return Lengthened(scorer.simulate(problem.family.represented(placement)), steady=True)


def hopped_s(problem: Problem[LayoutFamily], placement: Placement) -> float | None:
    """Return the time on a switch whose ports are as much slower as bytes take hops.

    Parameters
    ----------
    problem : Problem
    placement : Placement

    Returns
    -------
    float or None
        Seconds; None where bytes take one hop (`least_hops`), as on the switch itself.
    """
    shorter = problem.family.shorter(placement)
    hops = least_hops(shorter or problem.family.represented(placement), problem.cluster.degree)
    if hops <= 1.0:
        return None
    return _time_on(problem, problem.switch(hops), placement, shorter).seconds


def fastest_on(
    problem: Problem[LayoutFamily],
    fabric: AnyFabric,
    placed: Sequence[tuple[Placement, float]],
    numbers: Sequence[int],
    budget: float,
    first: float,
) -> Fastest:
    """Return which of some placed layouts is fastest on a fabric.

    Parameters
    ----------
    problem : Problem
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
    placed : sequence of (Placement, float)
        With seconds that they take at least, such as those on the ideal switch.
    numbers : sequence of int
        Of those that are tried, in this order, but for those that cannot be expected to do
        better, until the budget is spent.
    budget, first : float
        Work, as of `topoopt.evaluate.scoring.Scorer`, for all of them, and for the first.

    Returns
    -------
    Fastest
    """
    found, spent = Fastest(bounded=False, time=float("inf"), number=numbers[0]), 0.0
    for number in numbers:
        placement, least = placed[number]
        if least < found.time and spent < budget:
            scorer = Scorer(problem.plain, fabric, budget=budget - spent if spent else first)
            time = scorer.simulate(problem.family.represented(placement), found.time)
            spent += scorer.work
            if scorer.bounded:
                if found.time == float("inf"):
                    return Fastest(bounded=True, time=time, number=number)
                break
            if time < found.time:
                found = Fastest(bounded=False, time=time, number=number)
    return found


class Compared(NamedTuple):
    """Placed layouts that are tried on a fabric, and what gives the fastest of every other one."""

    placed: Sequence[tuple[Placement, float]]
    halves: list[Task]


def compared_on(
    second: Second,
    tried: Sequence[tuple[AnyFabric, Sequence[tuple[Placement, float]]]],
    budget: float,
) -> list[Compared]:
    """Begin to look for the fastest of placed layouts on fabrics.

    Parameters
    ----------
    second : Second
        Shares the problem.
    tried : sequence of (AnyFabric, sequence of (Placement, float))
        Fabrics with placed layouts, as in `fastest_on`, in the order in which they are tried.
    budget : float
        As in `fastest_on`.

    Returns
    -------
    list of Compared
        Of each fabric. Each half has half of the budget, but the first layout all of it.
    """
    halves = [
        {
            "fabric": fabric,
            "placed": placed,
            "numbers": range(begin, len(placed), 2),
            "budget": budget / 2,
            "first": budget / (1 + begin),
        }
        for fabric, placed in tried
        for begin in range(min(2, len(placed)))
    ]
    tasks = iter(second.share(fastest_on, halves))
    return [Compared(placed, list(islice(tasks, min(2, len(placed))))) for _, placed in tried]
