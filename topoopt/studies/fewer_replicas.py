"""A layout that goes on without the replicas that lost a server."""

from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Flags, Ints
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.placement import Placement
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.plan.rebuild import Rebuilt
from topoopt.problem.cluster import Cluster


@dataclass(frozen=True, eq=False)
class FewerReplicas:
    """A plan's layout with fewer replicas, on the servers that hold these.

    Parameters
    ----------
    problem : Problem
        The job on those servers, with fewer samples.
    placement : Placement
    idle : tuple of int
        Servers that are left, but held parts of the replicas that are not.
    """

    problem: Problem[LayoutFamily]
    placement: Placement
    idle: tuple[int, ...]

    @property
    def batch(self) -> int:
        """Samples of an iteration."""
        return self.problem.family.batch

    def on(self, fabric: Fabric) -> float:
        """Return the seconds of an iteration on a wiring of its servers."""
        tasks = self.problem.family.represented(self.placement)
        return Scorer(self.problem.plain, fabric).simulate(tasks)

    def rewired(self) -> float:
        """Return the seconds with all ports wired anew; infinity if they cannot be."""
        try:
            pair = Rewirer(self.problem).wire(self.placement, "plan")
        except InfeasibleError:
            pair = None
        return float("inf") if pair is None else pair.time


def fewer_replicas(job: Rebuilt, dead: tuple[int, ...]) -> FewerReplicas | None:
    """Return a plan's layout without the replicas that dead servers held parts of.

    Parameters
    ----------
    job : Rebuilt
    dead : tuple of int
        Distinct servers.

    Returns
    -------
    FewerReplicas or None
        None of strategies by operators, which lose single servers, and where none is left, or what
        is left does not fit in memory. Ranks that share experts, and replicas that share a server,
        go together; copies of sharded states stay as large as they are.
    """
    family, placement = job.family, job.strategy
    if not isinstance(family, LayoutFamily):
        return None
    kept = _kept(placement, dead)
    if not kept.any():
        return None
    layout, data = placement.layout, int(kept.sum())
    copies, apart = divmod(layout.replicate * data, layout.data)
    if layout.replicate == 1:
        copies, apart = 1, 0
    if apart:
        return None
    left = replace(placement, layout=replace(layout, data=data, replicate=copies))
    servers = np.unique(_servers(placement)[:, kept])
    if servers.size != left.servers or not _alike(placement, kept, left):
        return None
    fewer = family.on(servers.size, family.batch // layout.data * data)
    if fewer.memory(left).max() > fewer.memory_limit:
        return None
    old = job.cluster
    cluster = Cluster(servers.size, old.degree, old.bandwidth, old.ports, old.latency)
    idle = np.setdiff1d(np.arange(old.servers), [*servers, *dead])
    return FewerReplicas(Problem(fewer, cluster), left, tuple(idle.tolist()))


def _servers(placement: Placement) -> Ints:
    """Return the servers of each rank, shape (context, data, pipeline, servers of a rank)."""
    return placement.home[..., None] + np.arange(placement.servers_per_rank)


def _kept(placement: Placement, dead: tuple[int, ...]) -> Flags:
    """Return which replicas go on, shape (data,)."""
    layout, servers = placement.layout, _servers(placement)
    # So many next replicas have whole groups of ranks that share experts.
    together = lcm(layout.expert_ranks, layout.context) // layout.context
    lost, before = np.isin(servers, dead).any(axis=(0, 2, 3)), -1
    while lost.sum() != before:
        before = lost.sum()
        lost = np.repeat(lost.reshape(-1, together).any(axis=1), together)
        lost |= np.isin(servers, servers[:, lost]).any(axis=(0, 2, 3))
    return np.asarray(~lost)


def _alike(placement: Placement, kept: Flags, left: Placement) -> bool:
    """Say whether ranks of fewer replicas fill servers as they did among all."""
    _, number = np.unique(placement.home[:, kept], return_inverse=True)
    return bool((number.reshape(left.home.shape) * left.servers_per_rank == left.home).all())
