"""What an iteration costs after random cable failures, under each way to go on."""

from collections.abc import Sequence

import numpy as np

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import panels_of
from topoopt.plan.rebuild import rebuild
from topoopt.problem.options import SearchOptions
from topoopt.studies.failures import fail_randomly

BEST = "fastest of them"
# Slowdowns below this are drawn as none.
_VISIBLE = 1.01


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, cables: int, trials: int,
    steps: int | None, seed: int,
) -> list[dict[str, object]]:  # fmt: skip
    """Plan a job, then fail cables of its network at random; one row a repair.

    Parameters
    ----------
    model : str
    servers, degree : int
    bandwidth_gbps : float
    cables : int
        One-way cables that fail together in each trial.
    trials : int
    steps : int or None
        Of the search; None: the default budget.
    seed : int
        Of the search and of the draws.

    Returns
    -------
    list of dict
        Slowdowns over the undamaged plan, of the trials that leave all servers connected.
    """
    cluster = Cluster(servers=servers, degree=degree, bandwidth=f"{bandwidth_gbps}Gbps")
    plan = co_optimize(
        Job(models.get_model(model)),
        cluster,
        SearchOptions(steps=steps, confirm="none"),
        seed=seed,
        baselines=(),
    )
    built = rebuild(plan)
    tasks = built.tasks()
    found = fail_randomly(built.fabric, tasks, cables, trials, seed=seed)
    rows: list[dict[str, object]] = []
    for repair, times in {**found.times, BEST: found.best}.items():
        slow = times[np.isfinite(times)] / found.undamaged
        rows.append(
            {
                "repair": repair,
                "undamaged_s": found.undamaged,
                "mean_slowdown": slow.mean() if slow.size else None,
                "p99_slowdown": (
                    np.quantile(slow, 0.99, method="inverted_cdf") if slow.size else None
                ),
                "worst_slowdown": slow.max() if slow.size else None,
                "cut_off": int(times.size - slow.size),
            }
        )
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return mean and worst slowdown by repair."""
    titles = {
        "mean_slowdown": "mean slowdown over the undamaged plan",
        "worst_slowdown": "worst slowdown over the undamaged plan",
        "cut_off": "trials in which servers were cut off",
    }
    label = "{model}, d={degree}, {cables} failed"
    return pivots(rows, titles, columns="repair", label=label, first=BEST)


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the mean slowdown of each repair over the number of failed cables."""
    jobs = list(dict.fromkeys((row["model"], row["degree"]) for row in rows))
    figure, panels = panels_of(len(jobs), wide=len(jobs), size=(3.8, 3.6), around=(0, 0))
    for axes, job in zip(panels, jobs, strict=True):
        mine = [row for row in rows if (row["model"], row["degree"]) == job]
        for repair in dict.fromkeys(row["repair"] for row in mine):
            line = [r for r in mine if r["repair"] == repair and r["mean_slowdown"] is not None]
            axes.plot(
                [r["cables"] for r in line], [r["mean_slowdown"] for r in line], "o-",
                label=str(repair),
            )  # fmt: skip
        axes.set_title(f"{job[0]}, d={job[1]}")
        axes.set_xlabel("failed cables")
        axes.set_xticks(sorted({int(r["cables"] or 0) for r in mine}))
        axes.set_ylim(1.0, None if max(_slowdowns(mine)) > _VISIBLE else _VISIBLE)
    figure.axes[0].set_ylabel("mean slowdown")
    figure.axes[0].legend(fontsize="small")
    return {"failures": figure}


def _slowdowns(rows: Sequence[Row]) -> list[float]:
    return [float(row["mean_slowdown"] or 1.0) for row in rows]


EXPERIMENT = Experiment(
    name="failures",
    description=(
        "Iteration time after 1 to 8 random one-way cables fail: fast reroute, new routes, rings "
        "without the dead, new rings."
    ),
    source="extends TopoOpt (NSDI 2023), handling of failures",
    grid={
        "model": ["dlrm-16", "candle-16", "bert-16", "vgg16-16"],
        "servers": [16],
        "degree": [4, 8],
        "bandwidth_gbps": [25],
        "cables": [1, 2, 4, 8],
        "trials": [100],
        "steps": [None],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16", "vgg16-16"],
        "degree": [4],
        "cables": [1, 4],
        "trials": [10],
        "steps": [100],
    },
    columns=(
        "repair", "undamaged_s", "mean_slowdown", "p99_slowdown", "worst_slowdown", "cut_off",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
