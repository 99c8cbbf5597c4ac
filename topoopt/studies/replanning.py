"""What a job may run as on the servers that are left: strategies or layouts, and their wiring."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from parallelism.operator_family import OperatorFamily
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.placement import Placement
from topoopt.bounds.everything import AnyFamily
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.fabric.fabric import Fabric
from topoopt.plan.rebuild import Rebuilt
from topoopt.problem.budget import Budget
from topoopt.problem.cluster import Cluster
from topoopt.search.layouts import LayoutSearch
from topoopt.search.starts import starting_strategies
from topoopt.studies.fixed_fabric import best_on


def survivors_of(servers: int, dead: tuple[int, ...]) -> Ints:
    """Return the servers that are left, ascending.

    Parameters
    ----------
    servers : int
        Before.
    dead : tuple of int

    Raises
    ------
    InputError
        If a dead server does not exist or is named twice, or none is left.
    """
    gone = sorted(set(dead))
    if len(gone) != len(dead) or (gone and not 0 <= gone[0] <= gone[-1] < servers):
        raise InputError(f"dead servers are {dead}; name different ones of 0..{servers - 1}")
    if len(gone) >= servers:
        raise InputError(f"all of {counted(servers, 'server')} died; leave at least one")
    return np.setdiff1d(np.arange(servers), gone).astype(np.int64)


class Alternatives(Protocol):
    """The parallelizations of a job on the servers that are left.

    Attributes
    ----------
    first : (parallelization, str)
        One of them, and what it came from.
    """

    first: tuple[Any, str]

    def best_on(self, fabric: Fabric) -> tuple[Any, float, str]:
        """Return one for a wiring of the survivors: itself, its seconds, and what it came from."""
        ...

    def rewired(self, best: Any, origin: str) -> float:
        """Return the seconds with all ports wired anew; infinity if they cannot be."""
        ...


def surviving_batch(family: AnyFamily, alive: int) -> int:
    """Return the samples of an iteration on so many servers, each with as many as before."""
    return family.batch // family.servers * alive


def alternatives_on(
    job: Rebuilt, alive: int, steps: int, seed: int
) -> Callable[[tuple[int, ...]], Alternatives]:
    """Return what gives, for dead servers, the parallelizations of a job on the others.

    Parameters
    ----------
    job : Rebuilt
    alive : int
        Servers that are left.
    steps : int
        Proposals of the strategy search on each wiring. Layouts are enumerated instead.
    seed : int

    Returns
    -------
    callable
        Of the dead servers. It raises `InfeasibleError` if no parallelization is legal and fits.
        Layouts do not depend on which servers are dead, and are looked at once.
    """
    try:
        return _alternatives_on(job, alive, steps, seed)
    except InfeasibleError as error:
        refusal = error

    def refuse(_: tuple[int, ...]) -> Alternatives:
        raise refusal

    return refuse


def _alternatives_on(
    job: Rebuilt, alive: int, steps: int, seed: int
) -> Callable[[tuple[int, ...]], Alternatives]:
    whole, old = job.family, job.cluster
    batch = surviving_batch(whole, alive)
    if batch < 1:
        raise InfeasibleError(
            f"the batch of {counted(whole.batch, 'sample')} is less than one a server of "
            f"{whole.servers}; give a larger batch"
        )
    cluster = Cluster(alive, old.degree, old.bandwidth, old.ports, old.latency)
    family = whole.on(alive, batch)
    if isinstance(family, LayoutFamily):
        layouts = _Layouts(family, cluster, job.strategy, seed)
        return lambda _: layouts
    shared = family.builder.graph.shared
    return lambda dead: _Strategies(
        family, cluster, surviving_strategy(job.strategy, whole.servers, dead, batch, shared),
        steps, (seed, *dead),
    )  # fmt: skip


class _Strategies:
    """Strategies searched from the plan's, moved off the dead, and from the named ones."""

    def __init__(
        self,
        family: OperatorFamily,
        cluster: Cluster,
        moved: Strategy,
        steps: int,
        seed: tuple[int, ...],
    ) -> None:
        graph, limit = family.builder.graph, family.memory_limit
        self.problem = Problem(family, cluster, seed=seed[0])
        self.steps, self.seed = steps, seed
        self.space = StrategySpace(graph, family.servers, family.batch)
        starts = {"plan": self.space.intern(moved)}
        starts |= starting_strategies(self.space, family)
        memory = {name: float(family.memory(each).max()) for name, each in starts.items()}
        self.starts = {name: each for name, each in starts.items() if memory[name] <= limit}
        if not self.starts:
            raise InfeasibleError(
                f"model {graph.name!r} does not fit on {counted(family.servers, 'server')}: the "
                f"least of {counted(len(starts), 'strategy', 'strategies')} needs "
                f"{min(memory.values()) / 1e9:.4g} GB on a GPU that has {limit / 1e9:.4g} GB; keep "
                "spare servers, or use accelerators with more memory"
            )
        origin, strategy = next(iter(self.starts.items()))
        self.first = strategy, origin

    def best_on(self, fabric: Fabric) -> tuple[Strategy, float, str]:
        return best_on(
            fabric, self.problem, self.space, self.starts, Budget(steps=self.steps),
            np.random.default_rng(self.seed),
        )  # fmt: skip

    def rewired(self, best: Strategy, origin: str) -> float:
        try:
            pair = Rewirer(self.problem).wire(best, origin)
        except InfeasibleError:
            pair = None
        return float("inf") if pair is None else pair.time


class _Layouts:
    """All layouts that fit, those like the plan's first, and the best of all wirings for them."""

    def __init__(self, family: LayoutFamily, cluster: Cluster, plan: Placement, seed: int) -> None:
        self.search = LayoutSearch(Problem(family, cluster, seed=seed), like=plan)
        found = self.search.run()
        if found.interrupted:
            raise KeyboardInterrupt
        self.time = found.best.time
        self.first = found.best.strategy, self._origin(found.best.strategy)

    def _origin(self, placement: Placement) -> str:
        return "plan" if self.search.resembles(placement) else "search"

    def best_on(self, fabric: Fabric) -> tuple[Placement, float, str]:
        placement, time = self.search.fastest_on(fabric)
        return placement, time, self._origin(placement)

    def rewired(self, best: Placement, origin: str) -> float:
        return self.time


def surviving_strategy(
    strategy: Strategy,
    servers: int,
    dead: tuple[int, ...],
    batch: int,
    shared: Sequence[tuple[int, ...]] = (),
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
    shared : sequence of tuple of int
        Operators of the same weights, as in `ModelGraph`, which stay on the same servers.

    Returns
    -------
    Strategy
        On survivors, renumbered in their order. A replica that lost a server takes one that holds
        nothing of the operator, the least busy first; where there is none it is given up, and
        further ones until their number divides the batch. Shards stay as many; an operator with
        more shards than survivors becomes data-parallel.
    """
    alive = survivors_of(servers, dead)
    number = {int(v): i for i, v in enumerate(alive)}
    parts = np.zeros(alive.size, dtype=np.int64)
    for config in strategy.configs:
        for v in config.servers:
            if v in number:
                parts[number[v]] += 1
    first = {index: min(group) for group in shared for index in group}
    configs: list[OperatorConfig] = []
    for index, config in enumerate(strategy.configs):
        if first.get(index, index) < index:
            configs.append(configs[first[index]])
            continue
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
