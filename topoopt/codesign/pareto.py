"""Which cluster to buy: plans for a grid of clusters, and those that are worth their money."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import (
    check_called,
    check_kind,
    check_path,
    is_number,
    several,
    told,
    whole,
)
from codesign_base.counted import counted
from topoopt.base.answers import read_answers, write_answers
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.base.version import installed_version
from topoopt.bounds.everything import everything_bound
from topoopt.codesign.designs import (
    Design,
    DesignObjective,
    Limits,
    Point,
    frontier,
    none_planned,
)
from topoopt.codesign.exploration import Exploration
from topoopt.codesign.question import question_of
from topoopt.codesign.solve import co_optimize
from topoopt.plan.plan import Plan
from topoopt.plan.summary import parallelization_text
from topoopt.problem.cluster import Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import (
    MOST_USD,
    PRICES_EXAMPLE,
    PriceTable,
    default_prices,
    direct_connect_cost,
)
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import (
    bandwidth_text,
    format_bandwidth,
    format_time,
    parse_latency,
    parse_port_rate,
)

_STORE = "topoopt-designs/2"


@dataclass(frozen=True)
class Grid:
    """The clusters to choose among: every combination.

    Parameters
    ----------
    servers, degrees : tuple of int
    bandwidths : tuple of (str or float)
        Of a port, each way; a number is bytes/s.
    ports : {"directed", "bidirectional"}
    latency : str or float

    Examples
    --------
    >>> import topoopt as to
    >>> grid = to.Grid(servers=(8, 16), degrees=(2, 4), bandwidths=("25Gbps", "100Gbps"))
    >>> len(grid.servers) * len(grid.degrees) * len(grid.bandwidths)
    8
    """

    servers: tuple[int, ...]
    degrees: tuple[int, ...]
    bandwidths: tuple[str | float, ...]
    ports: str = "directed"
    latency: str | float = "1us"

    def __post_init__(self) -> None:
        for name, example in (
            ("servers", "(8, 16)"), ("degrees", "(2, 4)"), ("bandwidths", "('100Gbps',)")
        ):  # fmt: skip
            instead = f"several, such as {example}"
            values = several(name, getattr(self, name), instead)
            if not values:
                raise InputError(f"{name} is empty; give at least one value")
            if name != "bandwidths":
                instead = f"several whole numbers of at least 1, such as {example}"
                values = tuple(whole(f"one of {name}", value, instead) for value in values)
                if min(values) < 1:
                    raise InputError(f"one of {name} is {min(values)}; give {instead}")
            for value in values:
                if not (is_number(value) or isinstance(value, str)):
                    raise InputError(f"one of {name} is {told(value)}; give {instead}")
            object.__setattr__(self, name, values)

    def cluster(self, point: Point) -> Cluster:
        """Return the cluster of a point."""
        rate = bandwidth_text(point.bandwidth_bytes_per_s)
        return Cluster(point.servers, point.degree, rate, self.ports, self.latency)

    def points(self, prices: PriceTable, server_usd: float) -> list[Point]:
        """Return all clusters, cheapest first; of equal cost, those with fewer servers first."""
        rates = sorted({parse_port_rate(bandwidth) for bandwidth in self.bandwidths})
        found = [
            Point(n, d, rate, direct_connect_cost(n, d, rate, prices) + n * server_usd)
            for n in sorted(set(self.servers))
            for d in sorted(set(self.degrees))
            for rate in rates
        ]
        for point in found:
            self.cluster(point)  # refuses what is out of range before any work is done
        return sorted(found, key=lambda p: (p.cost_usd, p.servers, p.degree))


def explore(
    job: Job,
    grid: Grid,
    options: SearchOptions | None = None,
    *,
    objective: str = "time",
    limits: Limits | None = None,
    global_batch: int | None = None,
    server_usd: float = 0.0,
    seed: int = 0,
    prune: bool = True,
    least_gain: float = 0.0,
    prices: PriceTable | None = None,
    store: str | Path | None = None,
    save_plan: Callable[[Point, Plan], None] | None = None,
    progress: ProgressCallback | None = None,
) -> Exploration:
    """Plan a job on every cluster of a grid, and find those that none beats in cost and time.

    Clusters are taken by increasing cost. One whose lower bound shows that it cannot be on the
    frontier is left unplanned: something that costs no more is proven to be no slower, or slower by
    less than is asked of what costs more.

    Parameters
    ----------
    job : Job
    grid : Grid
    options : SearchOptions, optional
        How each cluster's plan is sought.
    objective : {"time", "cost-time"}
        What the best design has least of. Time counts a sample, because larger clusters take
        larger batches.
    limits : Limits, optional
        Clusters beyond them are left out.
    global_batch : int, optional
        The same samples an iteration on every cluster; by default the job's own: a batch per GPU
        for models by operators, a global batch for transformers.
    server_usd : float
        US dollars of a server, without its network ports.
    seed : int
        As in `co_optimize`.
    prune : bool
        False: plan dominated clusters as well.
    least_gain : float
        Share by which a more expensive design must be faster to be worth its money.
    prices : PriceTable, optional
    store : path, optional
        A file of finished designs; what it holds of this question is not planned again.
    save_plan : callable, optional
        Given every point that was planned, and its plan.
    progress : callable, optional

    Returns
    -------
    Exploration
        Of what was finished, if interrupted from the keyboard.

    Raises
    ------
    InputError
        If an argument is out of range, or the store belongs to another question.

    Examples
    --------
    >>> import topoopt as to
    >>> found = to.explore(
    ...     to.Job(to.models.dlrm(tables=4, batch_per_gpu=32)),
    ...     to.Grid(servers=(4,), degrees=(1, 2), bandwidths=("100Gbps",)),
    ...     to.SearchOptions(steps=5, confirm="none"),
    ... )
    >>> [design.point.degree for design in found.designs]
    [1, 2]
    """
    if objective not in list(DesignObjective):
        raise InputError(f"objective is {objective!r}; choose {', '.join(DesignObjective)}")
    if not (is_number(server_usd) and 0 <= server_usd <= MOST_USD):
        raise InputError(
            f"server_usd is {told(server_usd)}; give zero or more US dollars, at most {MOST_USD:g}"
        )
    if not (is_number(least_gain) and 0 <= least_gain < 1):
        raise InputError(
            f"least_gain is {told(least_gain)}; give a share of at least 0 and below 1"
        )
    if global_batch is not None:
        global_batch = whole("global_batch", global_batch, "a whole number of at least 1")
        if global_batch < 1:
            raise InputError(f"global_batch is {global_batch}; give at least 1")
    seed = checked_seed(seed)
    check_kind("job", job, Job, "a topoopt.Job, such as topoopt.Job(topoopt.models.dlrm())")
    check_kind("grid", grid, Grid, "a topoopt.Grid, which has several clusters")
    check_kind("limits", limits, Limits | None, "a topoopt.Limits")
    check_kind("options", options, SearchOptions | None, "a topoopt.SearchOptions")
    check_kind("prices", prices, PriceTable | None, PRICES_EXAMPLE)
    check_kind("prune", prune, bool, "True or False")
    check_called("save_plan", save_plan)
    check_called("progress", progress)
    if store is not None:
        check_path("store", store)
    table = default_prices() if prices is None else prices
    server_usd, least_gain = float(server_usd), float(least_gain)
    points = grid.points(table, server_usd)
    options = SearchOptions() if options is None else options
    question = question_of(
        job, options, seed, table, ports=grid.ports, latency=parse_latency(grid.latency),
        global_batch=job.global_batch if global_batch is None else global_batch,
    )  # fmt: skip
    known = {} if store is None else _read_store(Path(store), question)
    limits = limits or Limits()
    designs: list[Design] = []
    interrupted = False
    for number, point in enumerate(points):
        report = _numbered(progress, number, len(points), point)
        try:
            why = limits.refuses(point)
            design = Design(point, "over-limit", why) if why else None
            if design is None and _key(point) in known:
                # Server prices are no part of the question that the store answers.
                design = replace(known[_key(point)], point=point)
            if design is None:
                best = _to_beat(designs, point, least_gain) if prune else float("inf")
                design, plan = _planned(
                    job, grid, point, global_batch, seed, options, table, best, report
                )
                if plan is not None and plan.search.interrupted:
                    interrupted = True  # less than the search that the question asks for
                    break
                if plan is not None and save_plan is not None:
                    save_plan(point, plan)
                if store is not None and design.state != "dominated":
                    # What dominates depends on the grid, so it is found anew.
                    known[_key(point)] = design
                    _write_store(Path(store), question, known)
        except KeyboardInterrupt:
            interrupted = True
            break
        designs.append(design)
    return Exploration(
        job.model.name, DesignObjective(objective), tuple(designs), least_gain, interrupted, seed,
        installed_version(),
    )  # fmt: skip


def _to_beat(designs: Sequence[Design], point: Point, least_gain: float) -> float:
    """Return the seconds a sample below which a point, not cheaper than designs, may be kept."""
    kept = set(frontier(designs, least_gain))
    best = float("inf")
    for design in designs:
        if design.iteration_time_s is not None and design.samples is not None:
            # Bounds are of times by flows; a design is as fast by both.
            slower = max(design.iteration_time_s, design.packet_time_s or 0.0)
            asked = design in kept and design.point.cost_usd < point.cost_usd
            best = min(best, slower / design.samples * (1.0 - asked * least_gain))
    return best


def _planned(
    job: Job,
    grid: Grid,
    point: Point,
    global_batch: int | None,
    seed: int,
    options: SearchOptions,
    prices: PriceTable,
    best: float,
    progress: ProgressCallback | None,
) -> tuple[Design, Plan | None]:
    """Plan one cluster, unless its bound shows that it cannot be on the frontier."""
    try:
        asked = job if global_batch is None else job.of_batch(global_batch, point.servers)
        cluster = grid.cluster(point)
        family = asked.family(cluster.servers)
        bound = everything_bound(family, cluster, quick=True).seconds / family.batch
        if bound >= best:
            why = (
                f"no plan takes less than {format_time(bound)} a sample; one that is worth its "
                f"cost takes less than {format_time(best)}"
            )
            return Design(point, "dominated", why, bound), None
        plan = co_optimize(
            asked, cluster, options, seed=seed, baselines=(), prices=prices, progress=progress
        )
    except InfeasibleError as error:
        return Design(point, "infeasible", str(error)), None
    design = Design(
        point,
        "planned",
        lower_bound_s_per_sample=plan.lower_bound_s / family.batch,
        iteration_time_s=plan.iteration_time_s,
        packet_time_s=plan.packet_time_s,
        time_per_sample_s=plan.time_s / family.batch,
        samples=family.batch,
        strategy_origin=parallelization_text(plan.parallelization, plan.origin),
    )
    return design, plan


def _numbered(
    progress: ProgressCallback | None, number: int, total: int, point: Point
) -> ProgressCallback | None:
    """Say at which design a search is."""
    if progress is None:
        return None
    rate = format_bandwidth(point.bandwidth_bytes_per_s)
    servers = counted(point.servers, "server")
    stage = f"design {number + 1} of {total} ({servers}, {point.degree} x {rate})"

    def report(made: Progress) -> None:
        progress(Progress(stage, made.done, made.total, made.best))

    return report


def _key(point: Point) -> tuple[int, int, float]:
    return point.servers, point.degree, point.bandwidth_bytes_per_s


def _read_store(path: Path, question: dict[str, Any]) -> dict[tuple[int, int, float], Design]:
    kept = read_answers(path, "store", _STORE, question)
    designs = [Design.from_dict(item) for item in kept.values()]
    return {_key(design.point): design for design in designs}


def _write_store(
    path: Path, question: dict[str, Any], known: dict[tuple[int, int, float], Design]
) -> None:
    designs = {str(number): known[key].to_dict() for number, key in enumerate(sorted(known))}
    write_answers(path, _STORE, question, designs)


def choose_degree(
    job: Job,
    cluster: Cluster,
    options: SearchOptions | None = None,
    *,
    objective: str,
    limits: Limits,
    **how: Any,
) -> Exploration:
    """Decide how many ports of a cluster are worth using.

    Parameters
    ----------
    job : Job
    cluster : Cluster
        Its degree is the most that may be used.
    options : SearchOptions, optional
    objective : {"time", "cost-time"}
    limits : Limits
    **how
        Further arguments of `explore`.

    Returns
    -------
    Exploration
        Of all degrees; with a best design.

    Raises
    ------
    InfeasibleError
        If no degree can be planned within the limits.
    """
    check_kind("cluster", cluster, Cluster, "a topoopt.Cluster(...)")
    grid = Grid(
        (cluster.servers,), tuple(range(1, cluster.degree + 1)), (cluster.bandwidth,),
        cluster.ports, cluster.latency,
    )  # fmt: skip
    exploration = explore(job, grid, options, objective=objective, limits=limits, **how)
    if exploration.best is None:
        if exploration.interrupted:
            raise KeyboardInterrupt
        raise InfeasibleError(none_planned(exploration.designs))
    return exploration
