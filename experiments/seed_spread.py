"""How far the result of a search depends on its seed."""

import statistics
from collections.abc import Sequence

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import (
    Experiment,
    Figures,
    Row,
    Table,
    Value,
    grouped,
    run_from_command_line,
)
from topoopt.experiment.plots import MARKS, PALETTE, legend_below, panels_of, values_of
from topoopt.problem.options import SearchOptions


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, steps: int | None, seed: int
) -> dict[str, object]:
    """Search once.

    Parameters
    ----------
    model : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    steps : int or None
        None: the default budget.
    seed : int

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    cluster = Cluster(servers=servers, degree=degree, bandwidth=f"{bandwidth_gbps}Gbps")
    plan = co_optimize(
        Job(models.get_model(model)),
        cluster,
        SearchOptions(steps=steps, confirm="none"),
        seed=seed,
        baselines=(),
    )
    named = [time for time in plan.named_strategies_s.values() if time is not None]
    return {
        "iteration_time_s": plan.iteration_time_s,
        "lower_bound_s": plan.lower_bound_s,
        "gap": plan.gap,
        "best_start_s": min(named),
        "origin": plan.origin,
        "steps_done": plan.search.steps,
    }


def tabulate(rows: Sequence[Row]) -> Table:
    """Return the spread over the seeds of each job and budget."""
    lines = []
    jobs = grouped(rows, "model", "degree", "bandwidth_gbps", "steps")
    for (model, degree, gbps, steps), mine in jobs.items():
        times = [float(row["iteration_time_s"] or 0) for row in mine]
        best = min(times)
        lines.append(
            (
                str(model), f"{degree} x {gbps} Gbps", "default" if steps is None else str(steps),
                len(times), best, statistics.median(times), max(times), max(times) / best - 1,
                mine[0]["lower_bound_s"], mine[0]["best_start_s"],
            )
        )  # fmt: skip
    columns = ("model", "ports", "steps", "seeds", "best [s]", "median [s]", "worst [s]",
               "worst over best - 1", "lower bound [s]", "best start [s]")  # fmt: skip
    return Table(columns, tuple(lines))


def draw(rows: Sequence[Row]) -> Figures:
    """Draw what each seed ends with over the best known, by budget; a panel a job."""
    jobs = list(dict.fromkeys((r["model"], r["degree"], r["bandwidth_gbps"]) for r in rows))
    budgets = list(dict.fromkeys(row["steps"] for row in rows))
    figure, panels = panels_of(len(jobs), wide=4, size=(2.4, 2.7))
    for axes, (model, degree, gbps) in zip(panels, jobs, strict=True):
        job: dict[str, Value] = {"model": model, "degree": degree, "bandwidth_gbps": gbps}
        best = min(values_of(rows, job, "iteration_time_s"))
        for at, steps in enumerate(budgets):
            found = values_of(rows, {**job, "steps": steps}, "iteration_time_s", 1e3)
            # Side by side, so that equal ones are seen.
            spread = [at + 0.3 * (n / max(1, len(found) - 1) - 0.5) for n in range(len(found))]
            axes.plot(spread, found, MARKS[0], color=PALETTE[2], alpha=0.7, markersize=5)
        start = min(values_of(rows, job, "best_start_s", 1e3))
        bound = max(values_of(rows, job, "lower_bound_s", 1e3))
        axes.axhline(start, color=PALETTE[1], linestyle="--", label="best start, no search")
        axes.axhline(bound, color=PALETTE[0], linestyle=":", label="lower bound")
        axes.set_ylim(0.97 * min(bound, 1e3 * best), None)
        axes.set_xlim(-0.5, len(budgets) - 0.5)
        names = ["default" if steps is None else str(steps) for steps in budgets]
        axes.set_xticks(range(len(budgets)), names)
        axes.set_title(f"{model}, d={degree}, {gbps} Gbps", fontsize="small")
        axes.set_xlabel("search steps")
        axes.grid(axis="y", alpha=0.3)
    figure.supylabel("iteration time [ms], a dot a seed", fontsize="medium")
    legend_below(figure, panels[0])
    return {"seed-spread": figure}


EXPERIMENT = Experiment(
    name="seed-spread",
    description="Iteration times that searches with different seeds and budgets end with.",
    source="extends TopoOpt (NSDI 2023), whose published searches differ by up to 1.45x",
    grid={
        "model": ["dlrm-16", "candle-16", "bert-16", "vgg16-16"],
        "servers": [16],
        "degree": [4, 8],
        "bandwidth_gbps": [100],
        "steps": [100, 400, 1600, None],
        "seed": list(range(20)),
    },
    quick_grid={
        "degree": [4],
        "steps": [100],
        "seed": [0, 1, 2],
    },
    columns=(
        "iteration_time_s", "lower_bound_s", "gap", "best_start_s", "origin", "steps_done",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
