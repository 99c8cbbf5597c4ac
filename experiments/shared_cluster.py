"""Many jobs on one cluster: dedicated partitions against shared fabrics with contention."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from topoopt import Cluster
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import legend_below
from topoopt.experiment.quantiles import weighted_quantiles
from topoopt.fabric import Fabric
from topoopt.problem.prices import default_prices
from topoopt.studies.shared.contention import Tenant, alone_s, simulate_together
from topoopt.studies.shared.fabrics import SHARED_FABRICS, partition_run, shared_fabric, tenant_run
from topoopt.studies.shared.mix import apportion, place_jobs

FABRICS = ("topoopt", *SHARED_FABRICS)


def job_sizes(sizes: str, jobs: int) -> list[int]:
    """Return the servers of each job: one size for all, or several in turn."""
    choices = [int(size) for size in sizes.split("/")]
    return [choices[job % len(choices)] for job in range(jobs)]


def case(
    jobs: int,
    sizes: str,
    placement: str,
    servers: int,
    degree: int,
    bandwidth_gbps: float,
    connections: int,
    least: int,
    steps: int,
    seed: int,
) -> list[dict[str, object]]:
    """Run the mix of jobs on every fabric; one row a fabric and model, and one for all models.

    Parameters
    ----------
    jobs : int
    sizes : str
        Servers of a job; several by slashes, in turn.
    placement : {"packed", "scattered"}
        On the shared fabrics; partitions are wired, so that places make no difference.
    servers, degree : int
        Of the cluster.
    bandwidth_gbps : float
        Of a port, each way.
    connections : int
        Paths that each pair of servers hashes its bytes to, on Fat-trees.
    least : int
        Iterations measured of the slowest job, at least.
    steps : int
        Proposals of each search.
    seed : int
        Of searches, placement, phases and hashes.

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`. Every job counts alike in the mean and the quantile,
        however many of its iterations were measured.
    """
    cluster = Cluster(servers, degree, f"{bandwidth_gbps}Gbps")
    models, counts = apportion(jobs), job_sizes(sizes, jobs)
    # Sizes must not go with models.
    counts = np.random.default_rng(seed).permutation(counts).tolist()
    places = place_jobs(counts, servers, placement, np.random.default_rng(seed + 1))
    own = [partition_run(m, n, degree, bandwidth_gbps, steps, seed)[1]
           for m, n in zip(models, counts, strict=True)]  # fmt: skip
    rows = _rows("topoopt", models, own, [np.array([time]) for time in own], own, None)
    for name in SHARED_FABRICS:
        fabric, bandwidth = _fabric(name, cluster, connections, seed)
        tenants = [
            Tenant(m, tenant_run(m, n, name, bandwidth, steps, seed, degree), place)
            for m, n, place in zip(models, counts, places, strict=True)
        ]
        alone = [alone_s(fabric, tenant) for tenant in tenants]
        found = simulate_together(fabric, tenants, seed=seed, least=least)
        rows += _rows(name, models, alone, found.times, own, found.window_s)
    for row in rows:
        row["load"] = sum(counts) / servers
    return rows


@cache
def _fabric(name: str, cluster: Cluster, connections: int, seed: int) -> tuple[Fabric, float]:
    return shared_fabric(name, cluster, default_prices(), connections=connections, seed=seed)


def _rows(
    fabric: str,
    models: Sequence[str],
    alone: Sequence[float],
    times: Sequence[np.ndarray],
    own: Sequence[float],
    window: float | None,
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for model in ("all", *dict.fromkeys(models)):
        which = [job for job, name in enumerate(models) if model in ("all", name)]
        every = np.concatenate([times[job] for job in which])
        weight = np.concatenate([np.full(times[job].size, 1 / times[job].size) for job in which])
        means = [float(times[job].mean()) for job in which]
        rows.append(
            {
                "fabric": fabric,
                "model": model,
                "mean_iteration_s": float(np.mean(means)),
                "p99_iteration_s": weighted_quantiles(every, weight, (0.99,))[0],
                "slowdown_by_others": float(
                    np.mean([mean / alone[job] for mean, job in zip(means, which, strict=True)])
                ),
                "mean_over_partition": float(
                    np.mean([mean / own[job] for mean, job in zip(means, which, strict=True)])
                ),
                "worst_over_partition": max(
                    float(times[job].max()) / own[job] for job in which
                ),
                "iterations": int(every.size),
                "window_s": window,
            }
        )  # fmt: skip
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return mean and 99th percentile by load, per model at each load, and the trend."""
    named: list[Row] = [
        {
            **row,
            "cluster": f"{row['jobs']} jobs of {row['sizes']}, {row['placement']}, "
            f"d={row['degree']}, {row['bandwidth_gbps']} Gbps, "
            f"{row['connections']} path(s) a pair, seed {row['seed']}",
            "fabric": row["fabric"] or FABRICS[0],
            "model": row["model"] or "all",
        }
        for row in rows
    ]
    everything = [row for row in named if row["model"] == "all"]
    titles = {
        "mean_iteration_s": "all jobs: mean iteration time in seconds",
        "p99_iteration_s": "all jobs: 99th percentile of the iteration time in seconds",
        "mean_over_partition": "mean over jobs: time over that on a dedicated partition",
        "slowdown_by_others": "mean over jobs: time over that of the job alone in its place",
    }
    tables = pivots(everything, titles, columns="fabric", label="{cluster}", index="cluster")
    single = [row for row in named if row["model"] != "all"]
    if single:
        by_model = {"mean_iteration_s": "by model: mean iteration time in seconds"}
        tables += pivots(single, by_model, columns="fabric", label="{cluster}: {model}")
    return [*tables, published_trend(everything)]


def published_trend(rows: Sequence[Row]) -> Table:
    """Say whether partitions beat the similar-cost Fat-tree, on the average and at the tail."""
    lines = []
    for cluster in dict.fromkeys(row["cluster"] for row in rows):
        found = {
            row["fabric"]: row for row in rows if row["cluster"] == cluster
            and row["status"] == "ok"
        }  # fmt: skip
        if "topoopt" in found and "fat-tree" in found:
            mean, tail = (
                float(found["fat-tree"][column] or 0) / float(found["topoopt"][column] or 1)
                for column in ("mean_iteration_s", "p99_iteration_s")
            )
            load = found["topoopt"]["load"]
            lines.append((cluster, load, mean, tail, tail > mean, mean > 1 and tail > 1))
    columns = ("cluster", "load", "gain of the mean", "gain of the 99th percentile",
               "tail gains more", "partitions win")  # fmt: skip
    title = (
        "gain over the shared similar-cost Fat-tree (published as a figure only, so that there "
        "is no column for it)"
    )
    return Table(columns, tuple(lines), title)


def draw(rows: Sequence[Row]) -> Figures:
    """Draw mean, 99th percentile and loss over load; a column a placement, size and hashing."""
    from matplotlib.figure import Figure

    colours = dict(zip(FABRICS, ("#000000", "#999999", "#D55E00", "#0072B2", "#E69F00", "#009E73"),
                       strict=True))  # fmt: skip
    marks = dict(zip(FABRICS, "osD^vP", strict=True))
    whole = [row for row in rows if row["model"] == "all"]
    kinds = list(dict.fromkeys((r["placement"], r["sizes"], r["connections"]) for r in whole))
    figure = Figure(figsize=(1.2 + 3.4 * len(kinds), 8.0), layout="constrained")
    panels = figure.subplots(3, len(kinds), squeeze=False, sharex=True, sharey="row")
    for place, kind in enumerate(kinds):
        mine = [r for r in whole if (r["placement"], r["sizes"], r["connections"]) == kind]
        for line, (value, scale) in enumerate(
            (("mean_iteration_s", 1e3), ("p99_iteration_s", 1e3), ("mean_over_partition", 1.0))
        ):
            axes = panels[line][place]
            for fabric in FABRICS:
                loads: dict[float, list[float]] = {}
                for row in mine:
                    if row["fabric"] == fabric:
                        load = 100 * float(row["load"] or 0)
                        loads.setdefault(load, []).append(scale * float(row[value] or 0))
                xs = sorted(loads)
                means = [float(np.mean(loads[x])) for x in xs]
                axes.plot(
                    xs, means, "--" if fabric == "fat-tree-spread" else "-", label=fabric,
                    color=colours[fabric], marker=marks[fabric], markersize=4, linewidth=1.4,
                )  # fmt: skip
            axes.grid(alpha=0.3)
        panels[0][place].set_title(
            f"{kind[0]}, jobs of {kind[1]}, {kind[2]} path(s)", fontsize="medium"
        )
        panels[2][place].set_xlabel("servers in use [%]")
    for axes in panels[:, 0]:
        # Panels of a row share it, so that it is set when all are drawn.
        axes.set_ylim(bottom=0)
    panels[0][0].set_ylabel("mean iteration [ms]")
    panels[1][0].set_ylabel("99th percentile [ms]")
    panels[2][0].set_ylabel("mean of time over partition's")
    legend_below(figure, panels[0][0], 3)
    return {"shared-cluster": figure}


_CLUSTER = {"servers": [432], "degree": [4], "bandwidth_gbps": [100]}
EXPERIMENT = Experiment(
    name="shared-cluster",
    description=(
        "40 % DLRM, 30 % BERT, 20 % CANDLE, 10 % VGG16 at the same time on 432 servers, from "
        "random phases: each on a partition of its own (topoopt), or all on one shared fabric. "
        "Each job has the best strategy found for it alone on that fabric."
    ),
    source="TopoOpt (NSDI 2023), figure 16",
    grid={
        "jobs": [5, 10, 15, 20, 27],
        "sizes": ["16", "8/16/24"],
        "placement": ["packed", "scattered"],
        **_CLUSTER,
        "connections": [1, 4],
        "least": [3],
        "steps": [1000],
        "seed": [0, 1, 2],
    },
    quick_grid={
        "jobs": [5, 15],
        "sizes": ["16"],
        "connections": [1],
        "least": [1],
        "steps": [200],
        "seed": [0],
    },
    columns=(
        "fabric", "model", "load", "mean_iteration_s", "p99_iteration_s", "slowdown_by_others",
        "mean_over_partition", "worst_over_partition", "iterations", "window_s",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
