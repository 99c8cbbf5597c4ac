"""Matching on and off, and the formula's degree split against every other."""

from collections.abc import Sequence

from parallelism.models import get_model
from parallelism.taskgraph import traffic_of
from topoopt.evaluate.routed import direct_fabric
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import grouped_bars, legend_below, panels_of
from topoopt.fabric import score
from topoopt.studies.setting import setting
from topoopt.topology.finder import find_topology


def case(
    model: str, strategy: str, servers: int, degree: int, bandwidth_gbps: float
) -> list[dict[str, object]]:
    """Wire one strategy with each split of the ports; one row a builder.

    Parameters
    ----------
    model, strategy : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`.
    """
    given = setting(get_model(model), servers, degree, bandwidth_gbps)
    tasks = given.builder.build(given.strategy(strategy))
    traffic = traffic_of(tasks)
    found: list[tuple[str, int, float]] = []

    def wire(builder: str, split: int | None) -> None:
        topology = find_topology(
            traffic,
            degree,
            given.cluster.port_rate,
            latency=given.cluster.hop_latency,
            ports=given.cluster.port_model,
            degree_allreduce=split,
        )
        found.append((builder, topology.degree_allreduce, score(direct_fabric(topology), tasks)))

    wire("formula", None)
    wire("no matching", degree)
    for split in range(1, degree + 1):
        wire("best split", split)
    best = min(found, key=lambda entry: entry[2])
    chosen = [*found[:2], ("best split", *best[1:])]
    return [
        {
            "builder": builder,
            "ports_for_rings": split,
            "iteration_time_s": time,
            "relative_time": time / found[0][2],
        }
        for builder, split, time in chosen
    ]


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return ports for rings, time, and time over the formula's."""
    titles = {
        "ports_for_rings": "ports for AllReduce rings",
        "iteration_time_s": "iteration time in seconds",
        "relative_time": "iteration time over that of the formula's split",
    }
    label = "{model}, {strategy}, {servers} x {degree} x {bandwidth_gbps} Gbps"
    return pivots(rows, titles, columns="builder", label=label, first="formula")


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the time over the formula's; a panel a speed and degree."""
    kinds = list(dict.fromkeys((r["degree"], r["bandwidth_gbps"]) for r in rows))
    figure, panels = panels_of(len(kinds), wide=2, size=(5.0, 3.0), share_y=True)
    for axes, kind in zip(panels, kinds, strict=True):
        mine: list[Row] = [
            {**row, "job": f"{row['model']},\n{row['strategy']}"} for row in rows
            if (row["degree"], row["bandwidth_gbps"]) == kind
        ]  # fmt: skip
        grouped_bars(axes, mine, group="job", kind="builder", value="relative_time")
        axes.set_xticks(axes.get_xticks(), axes.get_xticklabels(), fontsize="x-small")
        axes.set_title(f"d={kind[0]}, {kind[1]} Gbps", fontsize="medium")
    panels[0].set_ylabel("time over formula's split")
    legend_below(figure, panels[0], 3)
    return {"matching-ablation": figure}


JOBS = (("dlrm-16", "hybrid"), ("dlrm-16", "tensor-2"), ("candle-16", "tensor-2"))


def _grid(degrees: Sequence[int], speeds: Sequence[int]) -> list[Row]:
    return [
        {"model": model, "strategy": strategy, "servers": 16, "degree": degree,
         "bandwidth_gbps": gbps}
        for model, strategy in JOBS
        for degree in degrees
        for gbps in speeds
    ]  # fmt: skip


EXPERIMENT = Experiment(
    name="matching-ablation",
    description=(
        "Iteration time of fixed strategies on wirings of the paper's degree split (formula), "
        "without matching (all ports carry rings), and of the fastest split; geometric rings, "
        "all shortest paths."
    ),
    source="TopoOpt (NSDI 2023), section 4, TopologyFinder; ablation",
    grid=_grid((2, 4, 6, 8), (10, 25, 100)),
    quick_grid=_grid((4,), (25, 100)),
    columns=("builder", "ports_for_rings", "iteration_time_s", "relative_time"),
    case=case,
    tabulate=tabulate,
    draw=draw,
)

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
