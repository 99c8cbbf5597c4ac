"""Studies: one plan for every combination of jobs, clusters and seeds, as a table."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import check_called, check_kind, check_path, several
from codesign_base.paths import exists, make_directory
from topoopt.base.calls import Call
from topoopt.base.engine import run_jobs
from topoopt.base.frames import frame
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.baselines.baselines import usual_baselines
from topoopt.codesign.question import PlanQuestion
from topoopt.codesign.solve import co_optimize
from topoopt.plan.plan import Plan, load_plan
from topoopt.problem.cluster import CLUSTER_EXAMPLE, Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PRICES_EXAMPLE, PriceTable, default_prices
from topoopt.problem.seeds import checked_seed

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class _Case:
    name: Hashable
    asked: PlanQuestion

    def file_name(self) -> str:
        """Return the name of the plan's file, which is that of no other question."""
        record, cluster = self.asked.record(), self.asked.cluster
        digest = sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]
        words = "".join(c if c.isalnum() or c in "-_." else "-" for c in str(self.name)[:100])
        return f"{words}-{cluster.servers}x{cluster.degree}-{digest}.json"


def sweep(
    jobs: Job | Mapping[Any, Job] | Iterable[Job],
    clusters: Cluster | Iterable[Cluster],
    options: SearchOptions | None = None,
    *,
    seeds: Sequence[int] = (0,),
    folder: str | Path | None = None,
    workers: int = 1,
    baselines: Iterable[str] | None = None,
    prices: PriceTable | None = None,
    progress: ProgressCallback | None = None,
) -> "DataFrame":
    """Plan every job on every cluster with every seed; one row a plan.

    Parameters
    ----------
    jobs : Job, or iterable or mapping of Job
        The keys of a mapping are names for the rows; otherwise a job has the name of its model.
    clusters : Cluster or iterable of Cluster
    options : SearchOptions, optional
        How each plan is sought.
    seeds : sequence of int
    folder : path, optional
        A directory, made if there is none. Every plan is written there when it is finished, and
        a plan that is there already is read instead of being made again: an interrupted sweep
        goes on.
    workers : int
        Plans at a time, each in a process; it changes no result.
    baselines : iterable of str, optional
        Fabrics to compare with, as in `co_optimize`.
    prices : PriceTable, optional
    progress : callable, optional
        Called with a `Progress` after every plan.

    Returns
    -------
    pandas.DataFrame
        In the order of jobs, clusters and seeds. Column ``time_s`` is by packet trains where a plan
        has such a time (``packet_time_s``), otherwise that of the fluid model
        (``iteration_time_s``); ``lower_bound_s`` and ``gap``, by which ``iteration_time_s`` is
        above it, are of the fluid model always. A question without answer is a row that says why
        in ``infeasible``, with missing times.

    Raises
    ------
    InputError
        If an argument is out of range, the folder cannot be made, or pandas is not installed.

    Examples
    --------
    >>> import topoopt as to
    >>> job = to.Job(to.models.dlrm(tables=4, batch_per_gpu=32))
    >>> clusters = [to.Cluster(servers=4, degree=d, bandwidth="100Gbps") for d in (1, 2)]
    >>> table = to.sweep(job, clusters, to.SearchOptions(steps=5, confirm="none"))
    >>> table.degree.tolist(), bool((table.gap >= 0.0).all())
    ([1, 2], True)
    """
    frame(())  # refuses before any work is done
    check_called("progress", progress)
    check_kind("prices", prices, PriceTable | None, PRICES_EXAMPLE)
    if folder is not None:
        check_path("folder", folder)
        make_directory(folder)
    asked = SearchOptions() if options is None else options
    table = prices or default_prices()
    fabrics = None
    if baselines is not None:
        fabrics = several("baselines", baselines, "several names, such as ('fat-tree', 'expander')")
    if isinstance(clusters, Cluster):
        clusters = (clusters,)
    wired = several("clusters", clusters, CLUSTER_EXAMPLE)
    named = list(_named(jobs))
    for cluster in wired:
        check_kind("one of clusters", cluster, Cluster, CLUSTER_EXAMPLE)
    numbers = several("seeds", seeds, "several whole numbers, such as (0, 1)")
    seeds = tuple(checked_seed(seed, "one of seeds") for seed in numbers)
    for what, given in (("jobs", named), ("clusters", wired), ("seeds", seeds)):
        if not given:
            raise InputError(f"{what} is empty, so there is nothing to plan; give at least one")

    def compared(cluster: Cluster) -> tuple[str, ...]:
        return usual_baselines(cluster.servers) if fabrics is None else fabrics

    cases = [
        _Case(name, PlanQuestion(job, cluster, asked, seed, compared(cluster), table))
        for name, job in named
        for cluster in wired
        for seed in seeds
    ]
    calls = [Call(_row, {"case": case, "folder": folder}) for case in cases]
    rows: dict[int, dict[str, Any]] = {}

    def finished(place: int, row: dict[str, Any]) -> None:
        rows[place] = row
        if progress is not None:
            best = min((r["time_s"] for r in rows.values() if r["time_s"] is not None),
                       default=float("inf"))  # fmt: skip
            progress(Progress("sweep", len(rows), len(cases), best))

    ended = run_jobs(calls, workers=workers, finished=finished)
    if ended.interrupted:
        raise KeyboardInterrupt
    return frame(ended.results[place] for place in range(len(cases)))


def _named(jobs: Job | Mapping[Any, Job] | Iterable[Job]) -> Iterator[tuple[Hashable, Job]]:
    if isinstance(jobs, Job):
        jobs = (jobs,)
    needed = "topoopt.Job, such as topoopt.Job(topoopt.models.dlrm())"
    if isinstance(jobs, Mapping):
        named = list(jobs.items())
    else:
        named = [(None, job) for job in several("jobs", jobs, f"one or several {needed}")]
    for name, job in named:
        check_kind("one of jobs", job, Job, f"a {needed}")
        yield job.model.name if name is None else name, job


def _row(case: _Case, folder: str | Path | None) -> dict[str, Any]:
    """Make or read one plan, and say in one row what it is worth."""
    path = None if folder is None else Path(folder) / case.file_name()
    row: dict[str, Any] = {
        "job": case.name,
        "servers": case.asked.cluster.servers,
        "degree": case.asked.cluster.degree,
        "bandwidth_bytes_per_s": case.asked.cluster.port_rate,
        "seed": case.asked.seed,
    }
    try:
        plan = _plan(case.asked, path)
    except InfeasibleError as error:
        return row | dict.fromkeys((*_values(None), "plan")) | {"infeasible": str(error)}
    return row | _values(plan) | {"plan": None if path is None else str(path), "infeasible": ""}


def _plan(asked: PlanQuestion, path: Path | None) -> Plan:
    if path is not None and exists(path):
        return load_plan(path)
    plan = co_optimize(
        asked.job, asked.cluster, asked.options, seed=asked.seed, baselines=asked.baselines,
        prices=asked.prices,
    )  # fmt: skip
    if plan.search.interrupted:
        raise KeyboardInterrupt  # less than the search that was asked for
    if path is not None:
        plan.save(path)
    return plan


def _values(plan: Plan | None) -> dict[str, Any]:
    """Return the columns of a plan; their names alone without one."""
    names = (
        "time_s", "iteration_time_s", "packet_time_s", "compute_time_s", "lower_bound_s", "gap",
        "cost_usd", "memory_per_gpu_bytes", "bandwidth_tax", "tokens_per_s", "global_batch",
    )  # fmt: skip
    return {name: None if plan is None else getattr(plan, name) for name in names}
