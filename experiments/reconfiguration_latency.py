"""Fabrics rewired during the iteration, by reconfiguration delay, beside a static plan."""

from collections.abc import Sequence
from dataclasses import replace

from topoopt import Cluster, Job, co_optimize, models
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.baselines import baseline_fabric
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import MARKS, PALETTE, legend_below, panels_of
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import default_prices
from topoopt.problem.reconfiguration import Reconfiguration
from topoopt.problem.units import format_time

DELAYS_S = (1e-6, 10e-6, 100e-6, 1e-3, 10e-3)
FABRICS = {
    "sip-ml": ("sip-ml", False),
    "ocs-reconfig": ("ocs-reconfig", True),
    "ocs-reconfig, no forwarding": ("ocs-reconfig", False),
}


def case(
    model: str,
    servers: int,
    degree: int,
    bandwidth_gbps: float,
    window_ms: float,
    steps: int | None,
    seed: int,
) -> list[dict[str, object]]:
    """Plan a workload, and search a strategy for each rewired fabric and delay; a row each.

    Parameters
    ----------
    model : str
        A preset; its batch per GPU and the default server and roofline are used.
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    window_ms : float
        Demand window of OCS-reconfig, not less than the longest delay.
    steps : int or None
        Proposals of the co-design's search; None: the default budget.
    seed : int

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`; the static plan first.
    """
    cluster = Cluster(servers=servers, degree=degree, bandwidth=f"{bandwidth_gbps}Gbps")
    keys: dict[str, tuple[str, float]] = {}
    chosen: list[BaselineFabric] = []
    for label, (name, forwarding) in FABRICS.items():
        for delay in DELAYS_S:
            rewired = Reconfiguration(delay, window_ms / 1e3, forwarding)
            base = baseline_fabric(name, cluster, default_prices(), seed, rewired)
            key = f"{label}, {format_time(delay)}"
            keys[key] = (label, delay)
            # One plan tells fabrics apart by name.
            chosen.append(replace(base, fabric=replace(base.fabric, name=key)))
    plan = co_optimize(
        Job(models.get_model(model)),
        cluster,
        SearchOptions(steps=steps, confirm="none"),
        seed=seed,
        baselines=chosen,
    )
    rows: list[dict[str, object]] = [
        {
            "fabric": "topoopt",
            "delay_us": None,
            "iteration_time_s": plan.iteration_time_s,
            "relative_time": 1.0,
            "cost_usd": plan.cost_usd,
            "strategy_origin": plan.origin,
        }
    ]
    rows += [
        {
            "fabric": label,
            "delay_us": delay * 1e6,
            "iteration_time_s": plan.baselines[key].iteration_time_s,
            "relative_time": plan.baselines[key].iteration_time_s / plan.iteration_time_s,
            "cost_usd": plan.baselines[key].cost_usd,
            "strategy_origin": plan.baselines[key].origin,
        }
        for key, (label, delay) in keys.items()
    ]
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return, for each job, the times and those relative to the static plan, by delay."""
    chosen: list[Row] = [
        {
            **row,
            "fabric": row["fabric"] or "topoopt",
            "delay": "static" if row["delay_us"] is None else f"{row['delay_us']:g} us",
        }
        for row in rows
    ]
    titles = {
        "iteration_time_s": "iteration time in seconds, by reconfiguration delay",
        "relative_time": "iteration time over that of the static plan",
    }
    label = "{model}, {servers} servers, d = {degree}, {window_ms} ms window: {fabric}"
    return pivots(chosen, titles, columns="delay", label=label)


def draw(rows: Sequence[Row]) -> Figures:
    """Draw time over reconfiguration delay, the static plan as a line; a panel a job."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    names = ("model", "servers", "degree", "window_ms")
    jobs = list(dict.fromkeys(tuple(row[name] for name in names) for row in rows))
    figure, panels = panels_of(len(jobs), wide=2, size=(3.6, 3.0), share_y=True)
    for axes, job in zip(panels, jobs, strict=True):
        mine = [row for row in rows if tuple(row[name] for name in names) == job]
        for row in mine:
            if row["delay_us"] is None:
                static = 1e3 * float(row["iteration_time_s"] or 0)
                axes.axhline(static, color=PALETTE[0], linestyle="--", label="topoopt, static")
        for place, fabric in enumerate(FABRICS, start=1):
            line = [row for row in mine if row["fabric"] == fabric]
            axes.loglog(
                [float(row["delay_us"] or 0) for row in line],
                [1e3 * float(row["iteration_time_s"] or 0) for row in line],
                marker=MARKS[place], markersize=5, color=PALETTE[place], label=fabric,
            )  # fmt: skip
        axes.set_title(f"{job[0]}, {job[1]} servers, d={job[2]}, {job[3]} ms window",
                       fontsize="small")  # fmt: skip
        axes.set_xticks([1, 10, 100, 1e3, 1e4], ["1 us", "10 us", "100 us", "1 ms", "10 ms"])
        axes.set_xlabel("reconfiguration delay")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("iteration time [ms]")
    legend_below(figure, panels[0], 2)
    return {"reconfiguration-latency": figure}


EXPERIMENT = Experiment(
    name="reconfiguration-latency",
    description=(
        "Best iteration time found on circuits that are rewired during the iteration, by the time "
        "for which moved ports are dark, beside the static co-designed plan."
    ),
    source="TopoOpt (NSDI 2023), section 5, reconfiguration latency",
    grid={
        "model": ["dlrm"],
        "servers": [128],
        "degree": [4, 8],
        "bandwidth_gbps": [100],
        "window_ms": [50, 10],
        "steps": [None],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16"],
        "servers": [16],
        "degree": [4],
        "steps": [300],
    },
    columns=(
        "fabric",
        "delay_us",
        "iteration_time_s",
        "relative_time",
        "cost_usd",
        "strategy_origin",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
