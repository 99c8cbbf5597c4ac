"""What an iteration costs after cables fail: drawn at random, or each in turn."""

from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_called, check_kind, whole
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from codesign_base.rows import spread, starts
from parallelism.taskgraph import TaskGraph
from routing.network import Network
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.fabric.fabric import Fabric, check_simulated
from topoopt.fabric.simulation import score
from topoopt.fabric.used_pairs import listing
from topoopt.problem.seeds import checked_seed
from topoopt.studies.repairs import REPAIRS, Survivors, fail_cables, repaired

MOST_TRIALS = 100_000
"""A thousand of so many are beyond the 99th percentile, which more of them hardly move."""
_COUNTED = "a whole number, of what fails in a trial"


def random_cables(
    network: Network, count: int, rng: np.random.Generator, *, both_ways: bool
) -> Ints:
    """Draw cables to fail, each as likely as any other.

    Parameters
    ----------
    network : Network
    count : int
    rng : numpy.random.Generator
    both_ways : bool
        A cable carries both directions, which fail together.

    Returns
    -------
    int64 array
        Link index of each failed cable, direction by direction.

    Raises
    ------
    InputError
        If there are fewer cables, or an argument is of another kind.
    """
    count = _count_drawn(network, count, rng)
    links = np.arange(network.links)
    if both_ways:
        links = links[network.source < network.target]
    cables = np.repeat(links, network.multiplicity[links])
    if not cables.size:
        raise InputError(
            f"{counted(count, 'cable is', 'cables are')} to fail; the network has none; plan more "
            "servers"
        )
    if not 0 < count <= cables.size:
        raise InputError(
            f"{counted(count, 'cable is', 'cables are')} to fail; the network has {cables.size}, "
            f"so give 1 to {cables.size}"
        )
    chosen = np.sort(rng.choice(cables, count, replace=False)).astype(np.int64)
    if not both_ways:
        return chosen
    back = [network.link(int(network.target[c]), int(network.source[c])) for c in chosen]
    return np.concatenate((chosen, np.array(back, dtype=np.int64)))


def random_ports(
    network: Network, count: int, rng: np.random.Generator, *, both_ways: bool
) -> Ints:
    """Draw ports of servers to fail, each in use as likely as any other.

    Parameters
    ----------
    network : Network
        Direct-connect.
    count : int
    rng : numpy.random.Generator
    both_ways : bool
        A port is one end of a two-way cable, which fails. Otherwise it sends on one cable and
        receives on another, of which both fail; which two share a port is drawn, too, since a
        wiring does not say so.

    Returns
    -------
    int64 array
        Link index of each failed cable, direction by direction, ascending.

    Raises
    ------
    InputError
        If there are fewer ports in use, or switches, or an argument is of another kind.
    """
    count = _count_drawn(network, count, rng)
    if network.switches:
        raise InputError(f"network {network.name!r} has switches; ports fail of servers only")
    link = np.repeat(np.arange(network.links), network.multiplicity)
    copy = spread(np.zeros(network.links, dtype=np.int64), network.multiplicity)
    sends = np.argsort(network.source[link], kind="stable")
    out = np.bincount(network.source[link], minlength=network.hosts)
    into = np.bincount(network.target[link], minlength=network.hosts)
    ports = out if both_ways else np.maximum(out, into)
    if not ports.sum():
        raise InputError(
            f"{counted(count, 'port is', 'ports are')} to fail; servers use none; plan more servers"
        )
    if not 0 < count <= ports.sum():
        raise InputError(
            f"{counted(count, 'port is', 'ports are')} to fail; servers use {ports.sum()}, so give "
            f"1 to {ports.sum()}"
        )
    chosen = np.sort(rng.choice(int(ports.sum()), count, replace=False))
    server = np.repeat(np.arange(network.hosts), ports)[chosen]
    port = chosen - starts(ports)[server]
    first = starts(out)
    dead = {int(sends[first[v] + k]) for v, k in zip(server, port, strict=True) if k < out[v]}
    if both_ways:
        start = starts(network.multiplicity)
        for cable in list(dead):
            at = link[cable]
            back = network.link(int(network.target[at]), int(network.source[at]))
            dead.add(int(start[back] + copy[cable]))
    else:
        receives = np.argsort(network.target[link], kind="stable")
        begin = starts(into)
        for v in np.unique(server):
            paired = rng.permutation(int(ports[v]))[port[server == v]]
            dead.update(int(receives[begin[v] + k]) for k in paired if k < into[v])
    return np.sort(link[sorted(dead)]).astype(np.int64)


def _count_drawn(network: Network, count: int, rng: np.random.Generator) -> int:
    """Return how many are drawn; refuse what cannot be drawn from, or with."""
    instead = "a Network, such as topoopt.plan.rebuild.rebuild(plan).fabric.network"
    check_kind("network", network, Network, instead)
    check_kind("rng", rng, np.random.Generator, "what numpy.random.default_rng(seed) returns")
    return whole("count", count, _COUNTED)


@dataclass(frozen=True, eq=False)
class FailureTrials:
    """Iteration times after random failures.

    Parameters
    ----------
    undamaged : float
        Seconds without failures.
    times : dict of str to float64 array, shape (trials,)
        Seconds by repair; infinity where the survivors are not connected.
    cables : tuple of int64 array
        What failed in each trial.
    """

    undamaged: float
    times: dict[str, Floats]
    cables: tuple[Ints, ...]

    @property
    def best(self) -> Floats:
        """Seconds of each trial with the repair that is fastest there."""
        fastest: Floats = np.min(np.stack(list(self.times.values())), axis=0)
        return fastest


def check_trials(trials: int) -> None:
    """Refuse a number of trials that is none, or more than `MOST_TRIALS`.

    Raises
    ------
    InputError
    """
    if not 1 <= whole("trials", trials, "a whole number") <= MOST_TRIALS:
        raise InputError(
            f"trials is {trials}; give 1 to {MOST_TRIALS}, beyond which neither mean nor 99th "
            "percentile changes by anything that counts"
        )


def fail_randomly(
    fabric: Fabric,
    tasks: TaskGraph,
    count: int,
    trials: int,
    *,
    seed: int = 0,
    both_ways: bool = False,
    ports: bool = False,
    progress: ProgressCallback | None = None,
) -> FailureTrials:
    """Simulate an iteration after random failures of cables or ports, under each repair.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    count : int
        Cables, or ports, that fail in each trial.
    trials : int
    seed : int
    both_ways : bool
        As in `random_cables`.
    ports : bool
        Ports fail rather than cables; see `random_ports`.
    progress : callable, optional
        Told after each trial, with the shortest time of it.

    Returns
    -------
    FailureTrials
        Stopped from the keyboard after at least one trial, the trials so far.

    Raises
    ------
    InputError
        If a number is out of range, or an argument of another kind.
    """
    check_trials(trials)
    count = whole("count", count, _COUNTED)
    check_simulated(fabric, tasks)
    check_called("progress", progress)
    rng = np.random.default_rng(checked_seed(seed))
    draw = random_ports if ports else random_cables
    times: dict[str, list[float]] = {how: [] for how in REPAIRS}
    failed: list[Ints] = []
    undamaged = score(fabric, tasks)
    fabric = _with_its_rings(fabric, tasks)
    try:
        for trial in range(trials):
            cables = draw(fabric.network, count, rng, both_ways=both_ways)
            survivors = fail_cables(fabric.network, cables)
            row = [_time(fabric, tasks, survivors, how) for how in REPAIRS]
            for how, seconds in zip(REPAIRS, row, strict=True):
                times[how].append(seconds)
            failed.append(cables)
            if progress:
                progress(Progress("failures", trial + 1, trials, min(row)))
    except KeyboardInterrupt:
        if not failed:
            raise
    return FailureTrials(
        undamaged, {how: np.array(row) for how, row in times.items()}, tuple(failed)
    )


@dataclass(frozen=True)
class LostCable:
    """What an iteration takes without one cable.

    Parameters
    ----------
    source, target : int
        Its servers (or switches); of a two-way cable the lower first.
    cables : int
        Parallel cables there before, of which one fails.
    repair : str
        The fastest of `REPAIRS`, the first of equal ones.
    time_s : float
        Seconds with it; infinity where the survivors are not connected.
    reroute_s : float
        The same under ``reroute``, whose files `topoopt deploy --without` writes.
    """

    source: int
    target: int
    cables: int
    repair: str
    time_s: float
    reroute_s: float


def fail_each(
    fabric: Fabric,
    tasks: TaskGraph,
    *,
    both_ways: bool = False,
    progress: ProgressCallback | None = None,
) -> list[LostCable]:
    """Simulate an iteration without each cable in turn, under the repair that is fastest there.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    both_ways : bool
        As in `random_cables`.
    progress : callable, optional
        As in `fail_randomly`.

    Returns
    -------
    list of LostCable
        The worst first; parallel cables once. Stopped from the keyboard after at least one, those
        so far.
    """
    check_simulated(fabric, tasks)
    check_called("progress", progress)
    network = fabric.network
    fabric = _with_its_rings(fabric, tasks)
    links = np.flatnonzero((network.source < network.target) | (not both_ways))
    found: list[LostCable] = []
    try:
        for link in links.tolist():
            source, target = int(network.source[link]), int(network.target[link])
            dead = [link, network.link(target, source)] if both_ways else [link]
            survivors = fail_cables(network, np.array(dead, dtype=np.int64))
            times = {how: _time(fabric, tasks, survivors, how) for how in REPAIRS}
            best = min(REPAIRS, key=times.__getitem__)
            cables = int(network.multiplicity[link])
            found.append(LostCable(source, target, cables, best, times[best], times["reroute"]))
            if progress:
                progress(Progress("failures", len(found), links.size, times[best]))
    except KeyboardInterrupt:
        if not found:
            raise
    # Times that differ by rounding alone do not decide what comes first.
    return sorted(found, key=lambda lost: (-float(f"{lost.time_s:.9g}"), lost.source, lost.target))


def _with_its_rings(fabric: Fabric, tasks: TaskGraph) -> Fabric:
    """Return a fabric that lists its routes, and the rings of all groups, chosen ones as well.

    Repairs that keep rings would otherwise let groups that were given none choose others.
    """
    listed = listing(fabric, tasks)
    rings = {group: listed.rings_of(group) for group in tasks.groups if len(group) > 1}
    return replace(listed, rings=dict(listed.rings) | rings)


def _time(fabric: Fabric, tasks: TaskGraph, survivors: Survivors, how: str) -> float:
    try:
        return score(repaired(fabric, survivors, how), tasks)
    except InfeasibleError:
        return float("inf")
