"""One job over all fabrics: the co-designed one and those that it is compared with."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from codesign_base import InputError
from codesign_base.arguments import check_kind, check_path, several
from codesign_base.counted import counted
from parallelism.reading import parse_json, schema_fault
from parallelism.record_fields import Amount, Count, Whole
from topoopt.base.atomic import write_text_atomically
from topoopt.base.display import displayed
from topoopt.base.frames import frame, new_axes
from topoopt.base.progress import ProgressCallback
from topoopt.base.text import dollars, table_lines
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.baselines import BASELINES, every_fabric, file_fabric, is_network_file
from topoopt.codesign.solve import co_optimize
from topoopt.plan.plan import Plan
from topoopt.plan.records import Baseline, Timed
from topoopt.plan.summary import bounded_noun, has_schedule, parallelization_text, placed_text
from topoopt.problem.cluster import CLUSTER_EXAMPLE, Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PRICES_EXAMPLE, PriceTable, default_prices
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# How strictly `parse_comparison` reads the records.
_STRICT = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


@dataclass(frozen=True)
class FabricResult(Timed):
    """The best found for one fabric.

    Parameters
    ----------
    fabric : str
    iteration_time_s : float
        In the fluid model.
    packet_time_s : float or None
        In the packet model, where that was asked and knows the fabric.
    relative_time : float
        Over that of the co-designed fabric: of packet times where there are both.
    cost_usd : float or None
    bandwidth_bytes_per_s : float
        Of a port (direct) or of a server's link (switched).
    strategy_origin : str
        A named strategy, "plan", or "search"; a layout in the field's abbreviations.
    bounded : bool
        Whether the time is one that the fabric is not below: its simulation took too much work.
    """

    fabric: str
    iteration_time_s: Amount
    packet_time_s: Amount | None
    relative_time: Amount
    cost_usd: Amount | None
    bandwidth_bytes_per_s: Amount
    strategy_origin: str
    bounded: bool = False

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT


@dataclass(frozen=True)
class Comparison:
    """What `topoopt compare` prints.

    Parameters
    ----------
    model : str
    servers, degree : int
    lower_bound_s : float
        On any direct-connect fabric of this degree.
    fabrics : tuple of FabricResult
        The co-designed fabric first.
    seed : int
    steps : int
        Of the co-design's search: strategies proposed, or placed layouts simulated.
    version : str
    refused : dict of str to str
        Fabrics that these servers and ports cannot build, and why.
    interrupted : bool
        Whether the search was stopped from the keyboard: all times are the best so far.
    kind : {"operators", "layouts"}
        Of parallelizations.
    plan : str or None
        File of the co-designed plan, if it was written; its report links to the plan's page.
    """

    model: str
    servers: Whole
    degree: Whole
    lower_bound_s: Amount
    fabrics: tuple[FabricResult, ...]
    seed: Count
    steps: Count
    version: str
    refused: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    kind: Literal["operators", "layouts"] = "operators"
    plan: str | None = None

    __pydantic_config__: ClassVar[dict[str, object]] = _STRICT

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain dictionaries and lists."""
        found = asdict(self)
        return {**found, "fabrics": list(found["fabrics"])}

    def to_json(self) -> str:
        """Return what ``topoopt compare --json`` prints."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write what ``topoopt compare --json`` prints, which ``topoopt report`` reads.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        InputError
            If the path is none, or the file cannot be written.
        """
        check_path("path", path)
        write_text_atomically(Path(path), self.to_json() + "\n")

    def to_frame(self) -> "DataFrame":
        """Return one row a fabric, the co-designed one first, as a pandas DataFrame.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        return frame({**asdict(result), "time_s": result.time_s} for result in self.fabrics)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw a bar a fabric, as long as its iteration, with the lower bound as a line.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        InputError
            If matplotlib is not installed.
        """
        axes = new_axes(axes, (6.0, 0.8 + 0.32 * len(self.fabrics)))
        colours = ["#0072b2", *["#999999"] * (len(self.fabrics) - 1)]
        axes.barh([r.fabric for r in self.fabrics], [1e3 * r.time_s for r in self.fabrics],
                  color=colours)  # fmt: skip
        axes.axvline(1e3 * self.lower_bound_s, color="#d55e00", linestyle="--", label="lower bound")
        axes.invert_yaxis()
        axes.set(xlabel="time an iteration [ms]", title=self.model)
        axes.legend()
        return axes

    def __str__(self) -> str:
        """Return the summary, as `print` shows it."""
        return self.summary()

    def summary(self) -> str:
        """Return the comparison as a table of text."""
        packets = self.fabrics[0].packet_time_s is not None
        rows: list[tuple[str, ...]] = [
            (
                "fabric", *(("packets",) if packets else ()), "fluid", "vs plan", "bandwidth",
                "network cost", "layout" if self.kind == "layouts" else "strategy",
            )
        ]  # fmt: skip
        rows += [
            (
                r.fabric,
                *((format_time(r.packet_time_s) if r.packet_time_s else "-",) if packets else ()),
                ">= " * r.bounded + format_time(r.iteration_time_s),
                ">= " * r.bounded + f"{r.relative_time:.2f}x",
                format_bandwidth(r.bandwidth_bytes_per_s),
                dollars(r.cost_usd),
                r.strategy_origin,
            )
            for r in self.fabrics
        ]
        servers = counted(self.servers, "server")
        title = f"{self.model} on {servers}, degree {self.degree}"
        of = f" of any {bounded_noun(self.kind)}" * (self.kind == "layouts")
        bound = f"lower bound{of} on any wiring of this degree: {format_time(self.lower_bound_s)}"
        refused = [f"not built: {name}: {why}" for name, why in self.refused.items()]
        stopped = ["search interrupted: the best so far"] if self.interrupted else []
        table = table_lines(rows, left=(0, 6 if packets else 5))
        fluid = [r.fabric for r in self.fabrics if r.packet_time_s is None] if packets else []
        without = (
            [f"without packets (not known there, or too many): {', '.join(fluid)}"] if fluid else []
        )
        return "\n".join([title, "", *table, "", *without, *refused, bound, *stopped])

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return displayed("html", self)


def parse_comparison(text: str, name: str = "comparison") -> Comparison:
    """Read what ``topoopt compare --json`` printed.

    Parameters
    ----------
    text : str
        JSON.
    name : str
        What errors call it.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If it is not JSON, or not a comparison.
    """
    from pydantic import TypeAdapter, ValidationError

    parse_json(text, name)
    try:
        found = TypeAdapter(Comparison).validate_json(text)
    except ValidationError as error:
        raise InputError(f"{name}: {schema_fault(error, 'compare again')}") from None
    if not found.fabrics:
        raise InputError(f"{name} lists no fabric; compare again")
    return found


def compare(
    job: Job,
    cluster: Cluster,
    options: SearchOptions | None = None,
    *,
    fabrics: Iterable[str | os.PathLike[str]] = BASELINES,
    seed: int = 0,
    prices: PriceTable | None = None,
    progress: ProgressCallback | None = None,
    plan_file: str | Path | None = None,
) -> Comparison:
    """Compare the co-designed fabric with others, each with a parallelization of its own.

    Parameters
    ----------
    job : Job
    cluster : Cluster
    options : SearchOptions, optional
        How to search.
    fabrics : iterable of str or path, or "all"
        Names that `topoopt.baselines.baselines.baseline_fabric` knows, and network files (node-link
        JSON or GraphML) of as many servers, whose cost is not known. "all": every fabric of
        `topoopt.baselines.baselines.ALL_BASELINES` that these servers and ports can build; the
        result says why the others are left out.
    seed : int
    prices : PriceTable, optional
    progress : callable, optional
    plan_file : str or Path, optional
        Where the co-designed plan is written, with the fabrics that it was compared with.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        As `co_optimize`; also if a fabric that is named cannot be built, or the file cannot be
        written.

    Examples
    --------
    >>> import topoopt as to
    >>> found = to.compare(
    ...     to.Job(to.models.dlrm(tables=4, batch_per_gpu=32)),
    ...     to.Cluster(servers=4, degree=2, bandwidth="100Gbps"),
    ...     to.SearchOptions(steps=5, confirm="none"),
    ...     fabrics=("fat-tree", "torus2d"),
    ... )
    >>> [result.fabric for result in found.fabrics]
    ['topoopt', 'fat-tree', 'torus2d']
    """
    options = SearchOptions() if options is None else options
    check_kind("cluster", cluster, Cluster, CLUSTER_EXAMPLE)
    check_kind("options", options, SearchOptions, "a topoopt.SearchOptions")
    check_kind("prices", prices, PriceTable | None, PRICES_EXAMPLE)
    seed = checked_seed(seed)
    if plan_file is not None:
        check_path("plan_file", plan_file)
    # Files are read before the search, so that a wrong one does not cost its time.
    chosen: list[str | BaselineFabric] = []
    refused: dict[str, str] = {}
    if fabrics == "all":
        table = default_prices() if prices is None else prices
        built, refused = every_fabric(cluster, table, seed, options.reconfiguration)
        chosen += built
    else:
        names = "several names, such as ('fat-tree',), or 'all'"
        for name in several("fabrics", fabrics, names):
            check_kind("one of fabrics", name, str | os.PathLike, names)
            path = os.fsdecode(name)
            file = isinstance(name, os.PathLike) or is_network_file(path)
            chosen.append(file_fabric(path, cluster, seed) if file else path)
    plan = co_optimize(
        job, cluster, options, seed=seed, baselines=chosen, prices=prices, progress=progress
    )  # fmt: skip
    if plan_file is not None:
        plan.save(plan_file)
    rows = [
        FabricResult(
            "topoopt",
            plan.iteration_time_s,
            plan.packet_time_s,
            1.0,
            plan.cost_usd,
            cluster.port_rate,
            parallelization_text(plan.parallelization, plan.origin) + _plainly(plan),
        )
    ]
    rows += [
        FabricResult(
            name,
            base.iteration_time_s,
            base.packet_time_s,
            plan.relative_time(base),
            base.cost_usd,
            base.bandwidth_bytes_per_s,
            _found_text(plan, base),
            base.bounded,
        )
        for name, base in plan.baselines.items()
    ]
    return Comparison(
        model=plan.job.model.name,
        servers=cluster.servers,
        degree=cluster.degree,
        lower_bound_s=plan.lower_bound_s,
        fabrics=tuple(rows),
        seed=seed,
        steps=plan.search.steps,
        version=plan.version,
        refused=refused,
        interrupted=plan.search.interrupted,
        kind=plan.job.kind,
        plan=None if plan_file is None else str(plan_file),
    )


def _found_text(plan: Plan, base: Baseline) -> str:
    """Return what was found for a fabric; with its placement where that alone is not the plan's."""
    text, placed = parallelization_text(base.parallelization, base.origin), placed_text(plan, base)
    return f"{text}; {placed}" if placed else text


def _plainly(plan: Plan) -> str:
    """Say what the others are compared with, if it is not the plan's own time."""
    if not has_schedule(plan):
        return ""
    return f"; without its schedule, as the others are, {format_time(plan.schedule.plain_time_s)}"
