"""What schedules inside the iteration earn: none, behind a barrier, and over it."""

from collections.abc import Sequence

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import legend_below, panels_of, values_of
from topoopt.problem.options import SearchOptions

SCHEDULES = ("plain", "barrier", "auto")


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, steps: int | None, seed: int
) -> list[dict[str, object]]:
    """Plan a job with each choice of schedules; one row a choice.

    Parameters
    ----------
    model : str
        A preset; its batch per GPU and the default server and roofline are used.
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    steps : int or None
        Proposals of the search; None: the default budget.
    seed : int

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`. ``auto`` is a period: its iterations may overlap.
    """
    cluster = Cluster(servers, degree, f"{bandwidth_gbps}Gbps")
    rows: list[dict[str, object]] = []
    plain_s = None
    for schedule in SCHEDULES:
        plan = co_optimize(
            Job(models.get_model(model)),
            cluster,
            SearchOptions(steps=steps, schedule=schedule, confirm="none"),
            seed=seed,
            baselines=(),
        )
        plain_s = plan.iteration_time_s if plain_s is None else plain_s
        chosen = plan.schedule
        bucket = chosen.bucket_bytes if chosen else None
        rows.append(
            {
                "schedule": schedule,
                "iteration_time_s": plan.iteration_time_s,
                "relative_time": plan.iteration_time_s / plain_s,
                "same_plan_plain_s": chosen.plain_time_s if chosen else plan.iteration_time_s,
                "overlap": chosen.overlap if chosen else "barrier",
                "compute": chosen.compute if chosen else "ready",
                "network": chosen.network if chosen else "fair",
                "bucket_mb": None if bucket is None else bucket / 1e6,
                "microbatches": chosen.microbatches if chosen else 1,
            }
        )
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return the times, the times over the plain ones, and what was chosen."""
    label = "{model}, {servers} x {degree} x {bandwidth_gbps} Gbps, seed {seed}"
    titles = {
        "iteration_time_s": "iteration time in seconds (auto: period)",
        "relative_time": "over the plain schedule's",
    }
    columns = ("schedule", "overlap", "compute", "network", "bucket_mb", "microbatches")
    chosen = tuple(
        (label.format(**row), row["schedule"] or "plain", *(row[c] for c in columns[1:]))
        for row in rows
    )
    return [
        *pivots(rows, titles, columns="schedule", label=label, first="plain"),
        Table(("job", *columns), chosen, "chosen"),
    ]


def draw(rows: Sequence[Row]) -> Figures:
    """Draw time over that of the plain schedule as bars."""
    ports = list(dict.fromkeys((r["degree"], r["bandwidth_gbps"]) for r in rows))
    names = list(dict.fromkeys(str(row["model"]) for row in rows))
    figure, panels = panels_of(
        len(ports), wide=len(ports), size=(3.6, 3.2), around=(1.2, 0), share_y=True
    )
    for axes, kind in zip(panels, ports, strict=True):
        for place, schedule in enumerate(SCHEDULES):
            for at, model in enumerate(names):
                job = {"degree": kind[0], "bandwidth_gbps": kind[1], "model": model}
                found = values_of(rows, {**job, "schedule": schedule}, "relative_time")
                if not found:
                    continue
                bars = axes.bar(
                    at + 0.27 * (place - 1), sum(found) / len(found), 0.25,
                    color=("#999999", "#0072B2", "#E69F00")[place],
                    label=schedule if at == 0 else None,
                )  # fmt: skip
                axes.bar_label(bars, fmt="%.2f", fontsize="x-small")
        axes.set_xticks(range(len(names)), [name.removesuffix("-16") for name in names])
        axes.set_title(f"d={kind[0]}, {kind[1]} Gbps", fontsize="medium")
        axes.set_ylim(0, 1.12)
    panels[0].set_ylabel("time over plain schedule")
    legend_below(figure, panels[0], 3)
    return {"schedule-ablation": figure}


EXPERIMENT = Experiment(
    name="schedule-ablation",
    description=(
        "Iteration time with the plain schedule (as published), with the best one that keeps the "
        "barrier between iterations, and with the best one whose iterations may overlap."
    ),
    source="extends TopoOpt (NSDI 2023), whose iterations are not scheduled",
    grid={
        "model": ["dlrm-16", "candle-16", "bert-16", "vgg16-16"],
        "servers": [16],
        "degree": [4, 8],
        "bandwidth_gbps": [10, 25, 100],
        "steps": [None],
        "seed": [0, 1, 2],
    },
    quick_grid={
        "degree": [4],
        "bandwidth_gbps": [25],
        "steps": [50],
        "seed": [0],
    },
    columns=(
        "schedule", "iteration_time_s", "relative_time", "same_plan_plain_s", "overlap",
        "compute", "network", "bucket_mb", "microbatches",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
