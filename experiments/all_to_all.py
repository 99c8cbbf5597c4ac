"""DLRM with 128 tables placed whole: all-to-all against AllReduce as the batch grows."""

from collections.abc import Sequence

import numpy as np

from parallelism.models import get_model
from parallelism.taskgraph import traffic_of
from topoopt.baselines.baselines import baseline_fabric
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import panels_of
from topoopt.experiment.quantiles import weighted_quantiles
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.simulation import simulate
from topoopt.problem.prices import default_prices
from topoopt.studies.setting import setting

FABRICS = ("topoopt", "ideal-switch", "fat-tree")
SHARES = {"p50": 0.5, "p90": 0.9, "max": 1.0}


def case(
    servers: int, degree: int, bandwidth_gbps: float, batch_per_gpu: int, tables: int, seed: int
) -> list[dict[str, object]]:
    """Simulate one iteration of the hybrid strategy on each fabric; one row a fabric.

    Parameters
    ----------
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    batch_per_gpu, tables : int
    seed : int

    Returns
    -------
    list of dict
        Path lengths are links that a transferred byte crosses, weighted by bytes; link traffic
        counts links that are wired, over their mean.
    """
    model = get_model("dlrm", tables=tables)
    given = setting(model, servers, degree, bandwidth_gbps, batch_per_gpu=batch_per_gpu)
    strategy = given.strategy("hybrid")
    tasks = given.builder.build(strategy)
    traffic = traffic_of(tasks)
    moved, reduced = traffic.transfer_sent(), traffic.allreduce_sent()
    rows: list[dict[str, object]] = []
    for name in FABRICS:
        if name == "topoopt":
            fabric = given.wired(strategy, "hybrid", seed=seed).fabric
        else:
            fabric = baseline_fabric(name, given.cluster, default_prices(), seed).fabric
        carried = link_bytes(fabric, tasks)
        paths = weighted_quantiles(
            fabric.routes.hops, traffic.transfers.ravel(), list(SHARES.values())
        )
        load = carried / carried.mean()
        loads = np.quantile(load, list(SHARES.values()), method="inverted_cdf").tolist()
        rows.append(
            {
                "fabric": name,
                "iteration_time_s": simulate(fabric, tasks).makespan,
                "transfer_bytes": moved,
                "allreduce_bytes": reduced,
                "all_to_all_ratio": moved / reduced,
                # Bytes of a switched fabric cross switches, not servers: no tax there.
                "bandwidth_tax": (
                    float(carried.sum()) / (moved + reduced) if name == "topoopt" else None
                ),
                **{f"path_hops_{key}": p for key, p in zip(SHARES, paths, strict=True)},
                **{f"link_load_{key}": x for key, x in zip(SHARES, loads, strict=True)},
            }
        )
    return rows


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return the times of each fabric, and ratio, tax and distributions of the co-designed one."""
    label = "{servers} servers, d={degree}, batch {batch_per_gpu}"
    titles = {"iteration_time_s": "iteration time in seconds"}
    ours = [row for row in rows if row["fabric"] in ("topoopt", None)]
    columns = ("all_to_all_ratio", "bandwidth_tax", "path_hops_p50", "path_hops_p90",
               "path_hops_max", "link_load_p50", "link_load_p90", "link_load_max")  # fmt: skip
    return [
        *pivots(rows, titles, columns="fabric", label=label, first=FABRICS[0]),
        Table(
            ("job", *columns),
            tuple((label.format(**row), *(row[c] for c in columns)) for row in ours),
            "topoopt: all-to-all over AllReduce bytes, bandwidth tax, hops, link load over mean",
        ),
    ]


def draw(rows: Sequence[Row]) -> Figures:
    """Draw iteration time and bandwidth tax over the batch."""
    figure, (left, right) = panels_of(2, size=(5, 4), around=(0, 0))
    for degree, style in zip(sorted({int(r["degree"] or 0) for r in rows}), ("-", "--"),
                             strict=False):  # fmt: skip
        for name in FABRICS:
            mine = [r for r in rows if r["degree"] == degree and r["fabric"] == name]
            batches = [r["batch_per_gpu"] for r in mine]
            times = [1e3 * float(r["iteration_time_s"] or 0) for r in mine]
            left.plot(batches, times, style, marker="o", label=f"{name}, d={degree}")
            if name == "topoopt":
                taxes = [r["bandwidth_tax"] for r in mine]
                right.plot(batches, taxes, style, marker="o", label=f"d={degree}")
    for axes, label in ((left, "iteration time [ms]"), (right, "bandwidth tax of topoopt")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("batch a GPU")
        axes.set_ylabel(label)
        axes.legend(fontsize="small")
    left.set_yscale("log")
    return {"all-to-all": figure}


EXPERIMENT = Experiment(
    name="all-to-all",
    description=(
        "DLRM with 128 tables, each whole on one server, all else data-parallel: the larger the "
        "batch, the more is all-to-all. Published as figures only, so there is no column for them."
    ),
    source="TopoOpt (NSDI 2023), figures 12 to 15",
    grid={
        "servers": [128],
        "degree": [4, 8],
        "bandwidth_gbps": [100],
        "batch_per_gpu": [64, 128, 256, 512, 1024, 2048],
        "tables": [128],
        "seed": [0],
    },
    quick_grid={
        "servers": [16],
        "batch_per_gpu": [64, 512, 2048],
    },
    columns=(
        "fabric", "iteration_time_s", "transfer_bytes", "allreduce_bytes", "all_to_all_ratio",
        "bandwidth_tax", "path_hops_p50", "path_hops_p90", "path_hops_max", "link_load_p50",
        "link_load_p90", "link_load_max",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
