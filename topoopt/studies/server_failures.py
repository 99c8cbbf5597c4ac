"""What an iteration costs after servers fail: the job goes on with those that are left."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InfeasibleError, InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.operator_family import OperatorFamily
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy
from parallelism.taskgraph import FloatArray
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer, no_network
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulate import score
from topoopt.fabrics.baselines import best_on
from topoopt.plan.rebuild import Rebuilt
from topoopt.problem.budget import Budget
from topoopt.problem.job import Cluster
from topoopt.search.starts import starting_strategies

WAYS = ("skip", "new-rings", "rewired")
"""How the wiring of the survivors serves them: see `after_servers`."""


def without_servers(fabric: Fabric, dead: tuple[int, ...], how: str = "skip") -> Fabric:
    """Return a fabric without some servers and all their cables; the others close ranks.

    Parameters
    ----------
    fabric : Fabric
        Direct-connect.
    dead : tuple of int
        Distinct servers.
    how : {"skip", "new-rings"}
        skip: rings go from the server before a dead one to the server after it, over as many
        links as that takes. new-rings: all groups choose rings anew, as `default_rings` does.

    Returns
    -------
    Fabric
        Servers renumbered in their order, all routes anew (equal splits over shortest paths).

    Raises
    ------
    InputError
        If a server does not exist, or none is left.
    InfeasibleError
        If the survivors are not connected.
    """
    network = fabric.network
    alive = _survivors(network.hosts, dead)
    if network.switches:
        raise InputError(f"fabric {fabric.name!r} has switches; give a direct-connect one")
    if alive.size == 1:
        return no_network(1)
    number = np.full(network.hosts, -1, dtype=np.int64)
    number[alive] = np.arange(alive.size)
    kept = (number[network.source] >= 0) & (number[network.target] >= 0)
    smaller = Network(
        name=network.name,
        hosts=alive.size,
        switches=0,
        source=number[network.source[kept]],
        target=number[network.target[kept]],
        capacity=network.capacity[kept],
        latency=network.latency[kept],
        multiplicity=network.multiplicity[kept],
    )
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
        ecmp_routes(smaller),
        {group: tuple(orders) for group, orders in rings.items()},
    )


def surviving_strategy(
    strategy: Strategy, servers: int, dead: tuple[int, ...], batch: int
) -> Strategy:
    """Return a strategy with its parts moved off dead servers, as little changed as may be.

    Parameters
    ----------
    strategy : Strategy
    servers : int
        Before.
    dead : tuple of int
        Distinct servers.
    batch : int
        Global batch of the survivors, a multiple of their number.

    Returns
    -------
    Strategy
        On survivors, renumbered in their order. A replica that lost a server takes one that holds
        nothing of the operator, the least busy first; where there is none it is given up, and
        further ones until their number divides the batch. Shards stay as many; an operator with
        more shards than survivors becomes data-parallel.
    """
    alive = _survivors(servers, dead)
    number = {int(v): i for i, v in enumerate(alive)}
    parts = np.zeros(alive.size, dtype=np.int64)
    for config in strategy.configs:
        for v in config.servers:
            if v in number:
                parts[number[v]] += 1
    configs = []
    for config in strategy.configs:
        p = config.parameter
        places = [number.get(v, -1) for v in config.servers]
        rows = [places[i * p : (i + 1) * p] for i in range(config.sample)]
        idle = sorted(set(range(alive.size)) - set(places), key=lambda v: (parts[v], v))
        rows = _refilled(rows, idle)
        count = max((s for s in range(1, len(rows) + 1) if batch % s == 0), default=0)
        if not count:
            configs.append(OperatorConfig(alive.size, 1, config.mode, tuple(range(alive.size))))
            continue
        chosen = tuple(v for row in rows[:count] for v in row)
        for v in set(chosen) - set(places):
            parts[v] += 1
        configs.append(OperatorConfig(count, p, config.mode, chosen))
    return Strategy(tuple(configs))


def _refilled(rows: list[list[int]], idle: list[int]) -> list[list[int]]:
    """Fill the gaps (-1) of replicas with idle servers; break up replicas where there are none."""
    whole = [row for row in rows if min(row) >= 0]
    broken = sorted((row for row in rows if min(row) < 0), key=lambda row: row.count(-1))
    while broken:
        row = broken.pop(0)
        if row.count(-1) <= len(idle):
            whole.append([idle.pop(0) if v < 0 else v for v in row])
        else:
            idle = sorted([*idle, *(v for v in broken.pop() if v >= 0)]) if broken else []
            if idle:
                broken.insert(0, row)
    return whole


@dataclass(frozen=True)
class Continued:
    """How a job goes on without some servers.

    Parameters
    ----------
    dead : tuple of int
    times : dict of str to float
        Seconds an iteration, by way; infinity where the survivors are not connected.
    fits : bool
        Whether any strategy fits in the survivors' memory; without, all times are infinite.
    origin : str
        What the best strategy came from: "plan" (moved off the dead), a named one, or "search".
    """

    dead: tuple[int, ...]
    times: dict[str, float]
    fits: bool
    origin: str


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
        Proposals of the strategy search on each wiring.
    seed : int
        Of the search.

    Returns
    -------
    Continued
        Ways: skip and new-rings (`without_servers`) keep the cables that are left, rewired
        builds a topology of all ports of the survivors for the best strategy found on those.

    Raises
    ------
    InputError
        If a server does not exist, or none is left.

    Notes
    -----
    The batch of each GPU stays, so the global batch shrinks with the servers. Searched are
    strategies from the plan's, moved off the dead (`surviving_strategy`), and from the named ones.
    """
    family = job.family
    if not isinstance(family, OperatorFamily):
        raise InputError("servers fail of plans by operators only; fail cables or ports")
    whole = family.builder
    alive = _survivors(whole.servers, dead).size
    batch = whole.batch // whole.servers * alive
    builder = TaskGraphBuilder(
        whole.graph, whole.compute, whole.server, alive, batch, whole.optimizer_states
    )
    family = replace(family, builder=builder)
    cluster = Cluster(
        alive, job.cluster.degree, job.cluster.bandwidth, job.cluster.ports, job.cluster.latency
    )
    problem = Problem(family, cluster, seed=seed)
    space = StrategySpace(whole.graph, alive, batch)
    moved = surviving_strategy(job.strategy, whole.servers, dead, batch)
    starts = {"plan": space.intern(moved)}
    starts |= starting_strategies(space, family)
    starts = {name: strategy for name, strategy in starts.items() if problem.fits(strategy)}
    times = dict.fromkeys(WAYS, float("inf"))
    if not starts:
        return Continued(dead, times, fits=False, origin="")
    best, fastest, origin = next(iter(starts.values())), float("inf"), next(iter(starts))
    for how in ("skip", "new-rings"):
        try:
            fabric = without_servers(job.fabric, dead, how)
        except InfeasibleError:
            break  # the links are the same for both
        rng = np.random.default_rng((seed, *dead))
        strategy, time, came = best_on(fabric, problem, space, starts, Budget(steps=steps), rng)
        times[how] = time
        if time < fastest:
            best, fastest, origin = strategy, time, came
    try:
        pair = Rewirer(problem).wire(best, origin)
    except InfeasibleError:
        pair = None
    if pair is not None:
        times["rewired"] = pair.time
    return Continued(dead, times, fits=True, origin=origin)


def _survivors(servers: int, dead: tuple[int, ...]) -> np.ndarray:
    gone = sorted(set(dead))
    if len(gone) != len(dead) or (gone and not 0 <= gone[0] <= gone[-1] < servers):
        raise InputError(f"dead servers are {dead}; name different ones of 0..{servers - 1}")
    if len(gone) >= servers:
        raise InputError(f"all {servers} servers are dead; leave at least one")
    return np.setdiff1d(np.arange(servers), gone)


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
    """

    undamaged: float
    times: dict[str, FloatArray]
    trials: tuple[Continued, ...]


def fail_servers(
    job: Rebuilt,
    count: int,
    trials: int,
    *,
    steps: int = 200,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
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
        Called with the number of trials done, and the shortest time of the last in seconds.

    Returns
    -------
    ServerTrials
        Stopped from the keyboard after at least one trial, the trials so far.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    servers = job.family.servers
    if trials < 1:
        raise InputError(f"trials is {trials}; give at least 1")
    if steps < 0:
        raise InputError(f"steps is {steps}; give zero or more")
    if not 0 < count < servers:
        raise InputError(
            f"{count} of {servers} servers are to fail; give 1 to {servers - 1}, to leave one"
        )
    rng = np.random.default_rng(seed)
    known: dict[tuple[int, ...], Continued] = {}
    drawn: list[Continued] = []
    undamaged = score(job.fabric, job.tasks())
    try:
        for trial in range(trials):
            dead = tuple(sorted(rng.choice(servers, count, replace=False).tolist()))
            if dead not in known:
                known[dead] = after_servers(job, dead, steps=steps, seed=seed)
            drawn.append(known[dead])
            if progress:
                progress(trial + 1, min(drawn[-1].times.values()))
    except KeyboardInterrupt:
        if not drawn:
            raise
    times = {how: np.array([trial.times[how] for trial in drawn]) for how in WAYS}
    return ServerTrials(undamaged, times, tuple(drawn))
