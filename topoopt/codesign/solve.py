"""The main job: from a job and a cluster to a complete plan."""

from collections.abc import Iterable
from pathlib import Path

from codesign_base import InputError
from codesign_base.arguments import check_called, check_kind, check_path, several
from routing.network import Network
from topoopt.base.progress import ProgressCallback
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.baselines import usual_baselines
from topoopt.codesign.given_wiring import given_wiring
from topoopt.codesign.once import optimize_once
from topoopt.codesign.question import PlanQuestion
from topoopt.codesign.restarts import co_optimize_with_restarts
from topoopt.plan.plan import Plan
from topoopt.problem.cluster import CLUSTER_EXAMPLE, Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PRICES_EXAMPLE, PriceTable
from topoopt.problem.seeds import checked_seed


def co_optimize(
    job: Job,
    cluster: Cluster,
    options: SearchOptions | None = None,
    *,
    seed: int = 0,
    baselines: Iterable[str | BaselineFabric] | None = None,
    prices: PriceTable | None = None,
    wiring: str | Path | Network | None = None,
    checkpoint: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> Plan:
    """Co-optimize parallelization, topology and routing of a training job.

    Operators: strategies are sought on an ideal switch first; the most promising are wired
    (TotientPerms, matching), refined on their fabrics by a portfolio of searchers and wired anew,
    and scored crosswise on each other's topologies (after the alternation of TopoOpt, NSDI'23,
    sec. 4). The best pair ever scored is returned; it is never worse than the named starting
    strategies on topologies built for them (by its score, before packet trains or a schedule
    choose). Transformers: all layouts are estimated and bounded, the best are simulated with
    their ranks in every order, and wired.

    Parameters
    ----------
    job : Job
    cluster : Cluster
    options : SearchOptions, optional
        How to search; recorded in the plan.
    seed : int
        The same seed and options give the same plan.
    baselines : iterable of str or BaselineFabric, optional
        Fabrics to compare with: names that `topoopt.baselines.baselines.baseline_fabric` knows, or
        fabrics of your own (which are not part of the plan file, so that `verify_plan` cannot
        check their times). By default `topoopt.baselines.baselines.usual_baselines`.
    prices : PriceTable, optional
        Component prices; the default table otherwise.
    wiring : path or Network, optional
        How the servers are wired already: a network file, the file of a plan, or a network. Then
        parallelization and routing are sought for it, and no other wiring.
    checkpoint : path, optional
        Operators: a file that keeps finished searches, and those under way beside it; see
        `topoopt.codesign.restarts.co_optimize_with_restarts`.
    progress : callable, optional
        Called with a `Progress` after every step.

    Returns
    -------
    Plan
        Marked as interrupted if the search was stopped from the keyboard.

    Raises
    ------
    InputError
        If an argument is out of range, or says nothing for such a job.
    InfeasibleError
        If the model does not fit in memory, or the degree or the wiring does not connect the
        servers.

    Examples
    --------
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> cluster = to.Cluster(servers=4, degree=2, bandwidth="100Gbps")
    >>> plan = to.co_optimize(job, cluster, to.SearchOptions(steps=5, confirm="none"))
    >>> plan.lower_bound_s <= plan.iteration_time_s
    True
    >>> sorted(plan.baselines)
    ['expander', 'fat-tree', 'ideal-switch']
    """
    options = SearchOptions() if options is None else options
    check_kind("job", job, Job, "a topoopt.Job, such as topoopt.Job(topoopt.models.dlrm())")
    check_kind("cluster", cluster, Cluster, CLUSTER_EXAMPLE)
    check_kind("options", options, SearchOptions, "a topoopt.SearchOptions")
    check_kind("prices", prices, PriceTable | None, PRICES_EXAMPLE)
    check_called("progress", progress)
    if checkpoint is not None:
        check_path("checkpoint", checkpoint)
    seed = checked_seed(seed)
    family = job.family(1)
    options.check(family)
    if checkpoint is not None and "checkpoint" in family.refused:
        raise InputError(f"checkpoint is {str(checkpoint)!r}, but {family.refused['checkpoint']}")
    options = options.settled(family.kind, cluster.servers)
    if baselines is None:
        baselines = usual_baselines(cluster.servers)
    names = "several names, such as ('fat-tree', 'expander')"
    given = several("baselines", baselines, names)
    for name in given:
        check_kind("one of baselines", name, str | BaselineFabric, names)
    wired = None if wiring is None else given_wiring(wiring, cluster, seed)
    if wired is not None and options.faithful is not None:
        raise InputError(
            f"faithful is {options.faithful!r}, which wires servers as published, but they are "
            "wired already; leave out one of faithful and wiring"
        )
    asked = PlanQuestion(job, cluster, options, seed, given, prices, wired)
    alone = (options.restarts, options.workers, options.engine, checkpoint) == (1, 1, "local", None)
    if not alone:
        return co_optimize_with_restarts(asked, checkpoint=checkpoint, progress=progress)
    return optimize_once(asked, progress=progress)
