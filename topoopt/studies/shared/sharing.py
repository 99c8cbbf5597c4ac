"""Several jobs on one fabric, in one call: what each takes alone, and beside the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind, several, told, whole
from parallelism.graph import ModelGraph
from topoopt.problem.cluster import CLUSTER_EXAMPLE, Cluster
from topoopt.problem.prices import default_prices
from topoopt.problem.seeds import checked_seed
from topoopt.studies.shared.contention import Tenant, alone_s, simulate_together
from topoopt.studies.shared.fabrics import shared_fabric, tenant_run
from topoopt.studies.shared.mix import place_jobs


@dataclass(frozen=True)
class Share:
    """What a job takes on a cluster that others use too.

    Parameters
    ----------
    model : str
    servers : tuple of int
        Where it runs.
    alone_s : float
        Seconds of an iteration with the fabric to itself.
    shared_s : float
        Mean seconds of an iteration beside the others.
    """

    model: str
    servers: tuple[int, ...]
    alone_s: float
    shared_s: float


def share(
    jobs: Sequence[tuple[str | ModelGraph, int]],
    cluster: Cluster,
    *,
    fabric: str = "fat-tree",
    placement: str = "scattered",
    steps: int = 100,
    seed: int = 0,
) -> list[Share]:
    """Run several jobs at once on a fabric that they share.

    Parameters
    ----------
    jobs : sequence of (str or ModelGraph, int)
        Model, by its preset's name or one of your own, and number of servers. It is planned by
        operators, with four A100 a server and its own batch a GPU.
    cluster : Cluster
        With servers enough for all.
    fabric : str
        One of `topoopt.studies.shared.fabrics.SHARED_FABRICS`; of the cost of the cluster's ports.
    placement : str
        ``packed`` or ``scattered``, see `place_jobs`.
    steps : int
        Proposals of the search of each job's strategy.
    seed : int
        Of places, hashes, searches and phases.

    Returns
    -------
    list of Share
        In the order of the jobs.

    Raises
    ------
    InputError
        If a job is no pair of a name and a whole number, a model, the fabric or the placement is
        unknown, servers are too few, or another argument is out of range.

    Examples
    --------
    >>> import topoopt as to
    >>> cluster = to.Cluster(servers=8, degree=2, bandwidth="100Gbps")
    >>> jobs = [("dlrm-16", 4), ("dlrm-16", 4)]
    >>> one, other = share(jobs, cluster, fabric="ideal-switch", steps=1)
    >>> one.shared_s >= 0.99 * one.alone_s
    True
    """
    check_kind("cluster", cluster, Cluster, CLUSTER_EXAMPLE)
    if cluster.servers == 1:
        raise InputError("servers of the cluster is 1, which shares no network; give 2 or more")
    seed = checked_seed(seed)
    if whole("steps", steps, "a whole number") < 0:
        raise InputError(f"steps is {steps}; give zero or more")
    pairs = "pairs of a model and its servers, such as [('bert-16', 8)]"
    jobs = several("jobs", jobs, pairs)
    if not jobs:
        raise InputError("no job shares the cluster; give at least one")
    for job in jobs:
        if not isinstance(job, tuple | list) or len(job) != 2:
            raise InputError(
                f"job {told(job)} is no pair; give a model and its servers: ('bert-16', 8)"
            )
        check_kind("model of a job", job[0], str | ModelGraph, "a name or a graph of operators")
        whole(f"servers of job {_name(job[0])!r}", job[1], "a whole number")
    on, bandwidth = shared_fabric(fabric, cluster, default_prices(), seed=seed)
    sizes = [servers for _, servers in jobs]
    places = place_jobs(sizes, cluster.servers, placement, np.random.default_rng(seed))
    asked = cluster.degree, cluster.ports, cluster.latency
    tenants = [
        Tenant(
            _name(model),
            tenant_run(model, servers, fabric, bandwidth, steps, seed, *asked),
            place,
        )
        for (model, servers), place in zip(jobs, places, strict=True)
    ]
    together = simulate_together(on, tenants, seed=seed)
    return [
        Share(tenant.name, tenant.place, alone_s(on, tenant), float(times.mean()))
        for tenant, times in zip(tenants, together.times, strict=True)
    ]


def _name(model: str | ModelGraph) -> str:
    return model if isinstance(model, str) else model.name
