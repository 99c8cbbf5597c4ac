"""Iteration time of six workloads on a dedicated cluster, over fabrics and bandwidths."""

from collections.abc import Sequence

from topoopt import Cluster, Job, compare, models
from topoopt.experiment import (
    Experiment,
    Figures,
    Row,
    Table,
    grouped,
    pivots,
    run_from_command_line,
)
from topoopt.experiment.plots import MARKS, PALETTE, legend_below, panels_of, plain_ticks
from topoopt.experiment.published import FAT_TREE_TREND, FAT_TREE_TREND_SOURCE
from topoopt.problem.options import SearchOptions

# The co-designed fabric, and names of `topoopt.baselines.baselines` that it is compared with.
FABRICS = (
    "topoopt",
    "ideal-switch",
    "fat-tree",
    "oversubscribed-fat-tree",
    "expander",
    "sip-ml",
    "ocs-reconfig",
)


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, steps: int | None, seed: int
) -> list[dict[str, object]]:
    """Compare the fabrics for one workload and port speed; one row a fabric.

    Parameters
    ----------
    model : str
        A preset; its batch per GPU and the default server and roofline are used.
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    steps : int or None
        Proposals of the co-design's search; None: the default budget.
    seed : int

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`.
    """
    found = compare(
        Job(models.get_model(model)),
        Cluster(servers=servers, degree=degree, bandwidth=f"{bandwidth_gbps}Gbps"),
        SearchOptions(steps=steps),
        fabrics=FABRICS[1:],
        seed=seed,
    )
    return [
        {
            "fabric": result.fabric,
            "iteration_time_s": result.iteration_time_s,
            "packet_time_s": result.packet_time_s,
            "relative_time": result.iteration_time_s / found.fabrics[0].iteration_time_s,
            "lower_bound_s": found.lower_bound_s if result.fabric == "topoopt" else None,
            "cost_usd": result.cost_usd,
            "link_bandwidth_gbps": result.bandwidth_bytes_per_s * 8 / 1e9,
            "strategy_origin": result.strategy_origin,
            "steps_done": found.steps,
        }
        for result in found.fabrics
    ]


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return, for each cluster, the times and the times relative to the co-designed fabric.

    Of packet trains only on fabrics that they know: no circuits that are rewired.
    """
    tables = []
    for servers, degree in dict.fromkeys((row["servers"], row["degree"]) for row in rows):
        chosen = [row for row in rows if (row["servers"], row["degree"]) == (servers, degree)]
        size = f"{servers} servers, degree {degree}"
        titles = {
            "iteration_time_s": f"{size}: iteration time in seconds",
            "relative_time": f"{size}: iteration time over that of topoopt",
        }
        label = "{model}, {bandwidth_gbps} Gbps"
        tables += pivots(chosen, titles, columns="fabric", label=label, first=FABRICS[0])
        known = {row["fabric"] for row in chosen if row["packet_time_s"] is not None}
        simulated = [row for row in chosen if row["fabric"] in known or row["status"] != "ok"]
        titles = {"packet_time_s": f"{size}: iteration time by packet trains in seconds"}
        tables += pivots(simulated, titles, columns="fabric", label=label, first=FABRICS[0])
    return [*tables, published_trend(rows)]


def published_trend(rows: Sequence[Row]) -> Table:
    """Return the largest gain over the similar-cost Fat-tree of each workload and degree."""
    lines = []
    for key, mine in grouped(rows, "model", "servers", "degree").items():
        flows, packets = (_gains(mine, time) for time in ("iteration_time_s", "packet_time_s"))
        reached = max(flows + packets)[0] >= FAT_TREE_TREND
        none = [(None, None)]
        lines.append((*key, *max(flows), *max(packets or none), FAT_TREE_TREND, reached))
    columns = ("model", "servers", "degree", "largest gain", "at Gbps", "by packets", "at Gbps",
               "published, up to", "reaches it")  # fmt: skip
    return Table(columns, tuple(lines), f"gain over fat-tree; published: {FAT_TREE_TREND_SOURCE}")


def _gains(rows: Sequence[Row], time: str) -> list[tuple[float, float]]:
    """Return the gains over the similar-cost Fat-tree of one job, and at what port speeds."""
    found = {
        (row["fabric"], row["bandwidth_gbps"]): float(row[time] or 0)
        for row in rows
        if row[time] is not None
    }
    return [
        (found["fat-tree", speed] / plan, float(speed or 0))
        for (fabric, speed), plan in found.items()
        if fabric == FABRICS[0] and ("fat-tree", speed) in found
    ]


def draw(rows: Sequence[Row]) -> Figures:
    """Draw iteration time over port speed, or bars where there is one speed; a panel a job."""
    jobs = list(dict.fromkeys((row["model"], row["degree"]) for row in rows))
    figure, panels = panels_of(len(jobs), wide=4, size=(3.3, 2.8), around=(0, 0))
    for axes, job in zip(panels, jobs, strict=True):
        mine = [row for row in rows if (row["model"], row["degree"]) == job]
        for place, fabric in enumerate(FABRICS):
            line = [row for row in mine if row["fabric"] == fabric]
            times = [1e3 * float(row["iteration_time_s"] or 0) for row in line]
            if len(times) > 1:
                speeds = [row["bandwidth_gbps"] for row in line]
                axes.loglog(
                    speeds, times, marker=MARKS[place], color=PALETTE[place], markersize=3.5,
                    linewidth=1, label=fabric,
                )  # fmt: skip
                axes.set_xlabel("Gbps a port")
            else:
                axes.bar([place] * len(times), times, color=PALETTE[place], label=fabric)
                axes.set_xticks([])
        if axes.get_xscale() == "log":
            plain_ticks(axes, [float(row["bandwidth_gbps"] or 0) for row in mine])
        axes.set_title(f"{job[0]}, d={job[1]}", fontsize="medium")
    figure.supylabel("iteration time [ms]", fontsize="medium")
    legend_below(figure, panels[0], len(FABRICS))
    return {"dedicated-cluster": figure}


EXPERIMENT = Experiment(
    name="dedicated-cluster",
    description=(
        "Best iteration time found for each fabric: the co-designed one (topoopt), an ideal "
        "switch with all ports' bandwidth, Fat-trees of the same cost, a random expander, and the "
        "same ports rewired during the iteration (SiP-ML, OCS-reconfig). By flows, and by packet "
        "trains where these know the fabric."
    ),
    source="TopoOpt (NSDI 2023), figure 11",
    grid={
        "model": ["dlrm", "candle", "bert", "ncf", "resnet50", "vgg16"],
        "servers": [128],
        "degree": [4, 8],
        "bandwidth_gbps": [10, 25, 40, 100, 200],
        "steps": [None],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16", "candle-16", "bert-16", "vgg16-16"],
        "servers": [16],
        "degree": [4],
        "bandwidth_gbps": [100],
        "steps": [500],
    },
    columns=(
        "fabric",
        "iteration_time_s",
        "packet_time_s",
        "relative_time",
        "lower_bound_s",
        "cost_usd",
        "link_bandwidth_gbps",
        "strategy_origin",
        "steps_done",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
