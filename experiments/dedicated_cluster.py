"""Iteration time of six workloads on a dedicated cluster, over fabrics and bandwidths."""

from collections.abc import Sequence

from topoopt import Cluster, Job, compare, models
from topoopt.experiment import Experiment, Row, Table, pivot, run_from_command_line

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
        A preset; its batch a GPU and the default server and roofline are used.
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
        fabrics=FABRICS[1:],
        steps=steps,
        seed=seed,
    )
    return [
        {
            "fabric": result.fabric,
            "iteration_time_s": result.iteration_time_s,
            "relative_time": result.relative_time,
            "lower_bound_s": found.lower_bound_s if result.fabric == "topoopt" else None,
            "cost_usd": result.cost_usd,
            "link_bandwidth_gbps": result.bandwidth_bytes_per_s * 8 / 1e9,
            "strategy_origin": result.strategy_origin,
            "steps_done": found.steps,
        }
        for result in found.fabrics
    ]


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return, for each cluster, the times and the times relative to the co-designed fabric."""
    tables = []
    for servers, degree in dict.fromkeys((row["servers"], row["degree"]) for row in rows):
        chosen: list[Row] = [
            {
                **row,
                "job": f"{row['model']}, {row['bandwidth_gbps']} Gbps",
                # A case without a result has no fabric; its status stands in the first column.
                "fabric": row["fabric"] or FABRICS[0],
            }
            for row in rows
            if (row["servers"], row["degree"]) == (servers, degree)
        ]
        size = f"{servers} servers, degree {degree}"
        for value, what in (
            ("iteration_time_s", "iteration time in seconds"),
            ("relative_time", "iteration time over that of topoopt"),
        ):
            title = f"{size}: {what}"
            tables.append(pivot(chosen, index="job", columns="fabric", value=value, title=title))
    return tables


EXPERIMENT = Experiment(
    name="dedicated-cluster",
    description=(
        "Best iteration time found for each fabric: the co-designed one (topoopt), an ideal "
        "switch with all ports' bandwidth, Fat-trees of the same cost, a random expander, and the "
        "same ports rewired during the iteration (SiP-ML, OCS-reconfig)."
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
        "seed": [0],
    },
    columns=(
        "fabric",
        "iteration_time_s",
        "relative_time",
        "lower_bound_s",
        "cost_usd",
        "link_bandwidth_gbps",
        "strategy_origin",
        "steps_done",
    ),
    case=case,
    tabulate=tabulate,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
