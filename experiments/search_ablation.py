"""What joint search earns over less: strategy or topology alone, one after the other, in turns."""

from collections.abc import Sequence

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import Experiment, Row, Table, pivot, run_from_command_line
from topoopt.experiment.published import PROFILES, measured_profile
from topoopt.problem.options import SearchOptions

METHODS = ("topology-only", "strategy-only", "sequential", "alternating", "joint")


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, method: str, steps: int, seed: int
) -> dict[str, object]:
    """Plan one job by one method.

    Parameters
    ----------
    model : str
        A preset; with its measured profile where there is one, else the roofline.
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way; ports are bidirectional.
    method : str
        One of `METHODS`.
    steps : int
        Proposals, the same for every method (topologies alone need none).
    seed : int

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    path = measured_profile(model)
    profile = path if path.is_file() else None
    job = Job(models.get_model(model), profile=profile)
    cluster = Cluster(servers, degree, f"{bandwidth_gbps}Gbps", "bidirectional")
    plan = co_optimize(
        job,
        cluster,
        SearchOptions(steps=steps, method=method, confirm="none"),
        seed=seed,
        baselines=(),
    )
    return {
        "times": "profile" if profile else "roofline",
        "iteration_time_s": plan.iteration_time_s,
        "lower_bound_s": plan.lower_bound_s,
        "steps_made": plan.search.steps,
    }


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return the mean, the best and the worst over the seeds, of each job by each method."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        job = f"{row['model']}, {row['servers']} servers, degree {row['degree']}"
        times = groups.setdefault((job, str(row["method"])), [])
        if isinstance(row["iteration_time_s"], float):
            times.append(row["iteration_time_s"])
    statistics = {"mean": lambda t: sum(t) / len(t), "best": min, "worst": max}
    tables = []
    for name, statistic in statistics.items():
        chosen: list[Row] = [
            {"job": job, "method": method, "status": "ok", "time_ms": 1e3 * statistic(times)}
            for (job, method), times in groups.items()
            if times
        ]
        title = f"Iteration time in ms, {name} of the seeds"
        tables.append(pivot(chosen, index="job", columns="method", value="time_ms", title=title))
    return tables


EXPERIMENT = Experiment(
    name="search-ablation",
    description=(
        "Iteration time found with equal budgets by searching strategies alone, topologies alone, "
        "one after the other, in turns, and jointly."
    ),
    source="extends TopoOpt (NSDI 2023), section 4",
    grid={
        "model": list(PROFILES),
        "servers": [16],
        "degree": [4, 8],
        "bandwidth_gbps": [100],
        "method": list(METHODS),
        "steps": [6000],
        "seed": [0, 1, 2, 3, 4],
    },
    quick_grid={
        "model": ["candle-16"],
        "degree": [4],
        "steps": [600],
        "seed": [0],
    },
    columns=("times", "iteration_time_s", "lower_bound_s", "steps_made"),
    case=case,
    tabulate=tabulate,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
