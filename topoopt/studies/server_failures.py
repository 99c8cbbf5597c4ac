"""What an iteration costs after servers fail: the job goes on with those that are left."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_called, check_kind, several, told, whole
from codesign_base.arrays import Floats
from codesign_base.counted import counted
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.evaluate.routed import no_network
from topoopt.fabric.fabric import Fabric, check_fabric
from topoopt.fabric.simulation import score
from topoopt.plan.rebuild import Rebuilt
from topoopt.problem.seeds import checked_seed
from topoopt.studies.failures import check_trials
from topoopt.studies.fewer_replicas import fewer_replicas
from topoopt.studies.replanning import Alternatives, alternatives_on, surviving_batch, survivors_of

WAYS = ("skip", "new-rings", "rewired")
"""How the wiring of the survivors serves them: see `after_servers`."""


def without_servers(
    fabric: Fabric, dead: tuple[int, ...], how: str = "skip", idle: tuple[int, ...] = ()
) -> Fabric:
    """Return a fabric without dead servers and their cables, its rings closed over the others.

    Parameters
    ----------
    fabric : Fabric
        Direct-connect.
    dead : tuple of int
        Distinct servers.
    how : {"skip", "new-rings"}
        skip: rings go from the server before a dead one to the server after it, over as many
        links as that takes. new-rings: all groups choose rings anew, as `default_rings` does.
    idle : tuple of int
        Distinct servers that are left, but only forward.

    Returns
    -------
    Fabric
        Servers renumbered in their order, idle ones (as switches) after the others; all routes
        anew (equal splits over shortest paths).

    Raises
    ------
    InputError
        If a server does not exist, or none is left, or an argument is of another kind.
    InfeasibleError
        If the survivors are not connected.
    """
    check_fabric(fabric)
    dead, idle = _servers("dead", dead), _servers("idle", idle)
    if how not in WAYS[:2]:
        raise InputError(f"how is {told(how)}; choose {' or '.join(WAYS[:2])}")
    network = fabric.network
    alive = survivors_of(network.hosts, (*dead, *idle))
    if network.switches:
        raise InputError(f"fabric {fabric.name!r} has switches; give a direct-connect one")
    if alive.size == 1:
        return no_network()
    number = np.full(network.hosts, -1, dtype=np.int64)
    number[[*alive, *idle]] = np.arange(alive.size + len(idle))
    source, target = number[network.source], number[network.target]
    order = np.lexsort((target, source))
    kept = order[(source[order] >= 0) & (target[order] >= 0)]
    smaller = Network(
        name=network.name,
        hosts=alive.size,
        switches=len(idle),
        source=source[kept],
        target=target[kept],
        capacity=network.capacity[kept],
        latency=network.latency[kept],
        multiplicity=network.multiplicity[kept],
    )
    number[list(idle)] = -1
    rings: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for group, orders in fabric.rings.items() if how == "skip" else ():
        left = tuple(int(number[v]) for v in group if number[v] >= 0)
        if len(left) > 1:
            # Groups that differed by the dead share their rings.
            rings.setdefault(left, []).extend(
                tuple(int(number[v]) for v in order if number[v] >= 0) for order in orders
            )
    return Fabric(
        fabric.name,
        smaller,
        ecmp_routes(smaller, hosts_forward=True),
        {group: tuple(orders) for group, orders in rings.items()},
        forwarding=bool(idle),
    )


def _servers(name: str, given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the servers of an argument."""
    wanted = "several whole numbers, such as (0, 3)"
    return tuple(whole(f"one of {name}", server, wanted) for server in several(name, given, wanted))


@dataclass(frozen=True)
class Continued:
    """How a job goes on without some servers.

    Parameters
    ----------
    dead : tuple of int
    times : dict of str to float
        Seconds per iteration, by way; infinity where the survivors are not connected, and
        everywhere if nothing fits.
    origin : str
        What the best one came from: "plan" (moved off the dead, or a layout of the same
        degrees), a named strategy, or "search".
    why : str
        Why no parallelization fits, in a sentence; empty if one does.
    """

    dead: tuple[int, ...]
    times: dict[str, float]
    origin: str
    why: str = ""

    @property
    def fits(self) -> bool:
        """Whether any parallelization is legal on the survivors and fits in their memory."""
        return not self.why


def after_servers(
    job: Rebuilt, dead: tuple[int, ...], *, steps: int = 200, seed: int = 0
) -> Continued:
    """Plan a job again on the servers that are left.

    Parameters
    ----------
    job : Rebuilt
        From `topoopt.plan.rebuild.rebuild`.
    dead : tuple of int
        Distinct servers.
    steps : int
        Proposals of the strategy search on each wiring; layouts are all looked at instead.
    seed : int
        Of the search.

    Returns
    -------
    Continued
        Ways: skip and new-rings (`without_servers`) keep the cables that are left. Rewired
        builds a topology of all ports of the survivors, for the best strategy found on those or
        for the best layouts.

    Raises
    ------
    InputError
        If a server does not exist, or none is left.

    Notes
    -----
    The batch of each server stays, so the global batch shrinks with the servers. Searched are
    strategies from the plan's, moved off the dead (`surviving_strategy`), and from the named
    ones. Of layouts, those of the plan's degrees but data, and the most promising others, are
    simulated on each wiring; and that of the plan without the replicas that lost a server
    (`fewer_replicas`), whose other servers only forward. Its times are of as many samples.
    """
    dead = _servers("dead", dead)
    _check_asked(job, steps)
    seed = checked_seed(seed)
    alive = survivors_of(job.family.servers, dead).size
    return _without(job, dead, alternatives_on(job, alive, steps, seed), {})


def _without(
    job: Rebuilt,
    dead: tuple[int, ...],
    alternatives_without: Callable[[tuple[int, ...]], Alternatives],
    rewired: dict[int, float],
) -> Continued:
    """Simulate what runs on all survivors, and fewer replicas on some of them, each way.

    How long so many servers take wired anew is kept.
    """
    found = _on_all(job.fabric, dead, alternatives_without)
    alive = survivors_of(job.family.servers, dead).size
    batch = surviving_batch(job.family, alive)
    fewer = fewer_replicas(job, dead) if batch else None
    if fewer is None:
        return found
    servers = fewer.placement.servers
    if servers not in rewired:
        rewired[servers] = fewer.rewired()
    times = {"rewired": rewired[servers]}
    for how in ("skip", "new-rings"):
        try:
            left = without_servers(job.fabric, dead, how, fewer.idle)
        except InfeasibleError:
            break  # the links are the same for both
        times[how] = fewer.on(left)
    times = {how: time * batch / fewer.batch for how, time in times.items()}
    if min(times.values()) == float("inf"):
        return found
    least = {how: min(time, times.get(how, time)) for how, time in found.times.items()}
    origin = "plan" if min(least.values()) < min(found.times.values()) else found.origin
    return Continued(dead, least, origin)


def _on_all(
    fabric: Fabric,
    dead: tuple[int, ...],
    alternatives_without: Callable[[tuple[int, ...]], Alternatives],
) -> Continued:
    """Simulate the parallelizations of all survivors, each way."""
    times = dict.fromkeys(WAYS, float("inf"))
    try:
        alternatives = alternatives_without(dead)
    except InfeasibleError as error:
        return Continued(dead, times, origin="", why=str(error))
    (best, origin), fastest = alternatives.first, float("inf")
    for how in ("skip", "new-rings"):
        try:
            left = without_servers(fabric, dead, how)
        except InfeasibleError:
            break  # the links are the same for both
        found, time, came = alternatives.best_on(left)
        times[how] = time
        if time < fastest:
            best, fastest, origin = found, time, came
    times["rewired"] = alternatives.rewired(best, origin)
    return Continued(dead, times, origin)


@dataclass(frozen=True, eq=False)
class ServerTrials:
    """Iteration times after random servers died.

    Parameters
    ----------
    undamaged : float
        Seconds without failures.
    times : dict of str to float64 array, shape (trials,)
        Seconds by way; infinity where the survivors are not connected or the job does not fit.
    trials : tuple of Continued
    batch_share : float
        Of the batch that the survivors go on with.
    """

    undamaged: float
    times: dict[str, Floats]
    trials: tuple[Continued, ...]
    batch_share: float


def _check_asked(job: object, steps: object) -> None:
    """Refuse a plan in place of what is made of it, and a budget that is no count."""
    check_kind("job", job, Rebuilt, "what topoopt.plan.rebuild.rebuild(plan) returns")
    if whole("steps", steps, "a whole number of zero or more") < 0:
        raise InputError(f"steps is {steps}; give zero or more")


def fail_servers(
    job: Rebuilt,
    count: int,
    trials: int,
    *,
    steps: int = 200,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> ServerTrials:
    """Plan a job again after random servers died.

    Parameters
    ----------
    job : Rebuilt
    count : int
        Servers that die in each trial, each as likely as any other.
    trials : int
        Sets that come again are not searched again.
    steps : int
        As in `after_servers`.
    seed : int
        Of draws and searches.
    progress : callable, optional
        Told after each trial, with the shortest time of it.

    Returns
    -------
    ServerTrials
        Stopped from the keyboard after at least one trial, the trials so far.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    _check_asked(job, steps)
    servers = job.family.servers
    check_trials(trials)
    check_called("progress", progress)
    seed = checked_seed(seed)
    if servers == 1:
        raise InputError(
            f"{counted(count, 'server is', 'servers are')} to fail of the only one; plan more "
            "servers"
        )
    count = whole("count", count, "a whole number, of servers that fail in a trial")
    if not 0 < count < servers:
        raise InputError(
            f"{count} of {servers} servers are to fail; give 1 to {servers - 1}, to leave one"
        )
    rng = np.random.default_rng(seed)
    known: dict[tuple[int, ...], Continued] = {}
    rewired: dict[int, float] = {}
    drawn: list[Continued] = []
    undamaged = score(job.fabric, job.tasks())
    alternatives = alternatives_on(job, servers - count, steps, seed)
    try:
        for trial in range(trials):
            dead = tuple(sorted(rng.choice(servers, count, replace=False).tolist()))
            if dead not in known:
                known[dead] = _without(job, dead, alternatives, rewired)
            drawn.append(known[dead])
            if progress:
                least = min(drawn[-1].times.values())
                progress(Progress("failures", trial + 1, trials, least))
    except KeyboardInterrupt:
        if not drawn:
            raise
    times = {how: np.array([trial.times[how] for trial in drawn]) for how in WAYS}
    share = surviving_batch(job.family, servers - count) / job.family.batch
    return ServerTrials(undamaged, times, tuple(drawn), share)
