"""How iteration time falls with the ports of a server."""

from collections.abc import Sequence

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import panels_of
from topoopt.problem.options import SearchOptions


def case(
    model: str, servers: int, degree: int, bandwidth_gbps: float, steps: int | None, seed: int
) -> dict[str, object]:
    """Co-design one job for one degree.

    Parameters
    ----------
    model : str
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way: more ports are more bandwidth.
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
        baselines=["ideal-switch"],
    )
    ideal = plan.baselines["ideal-switch"].iteration_time_s
    return {
        "iteration_time_s": plan.iteration_time_s,
        "ideal_switch_s": ideal,
        "over_ideal_switch": plan.iteration_time_s / ideal,
        "lower_bound_s": plan.lower_bound_s,
        "exposed_communication_s": plan.exposed_communication_s,
        "bandwidth_tax": plan.bandwidth_tax,
        "ports_for_rings": plan.degree_allreduce,
        "cost_usd": plan.cost_usd,
    }


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return time, time over the ideal switch's, and tax, a table each."""
    titles = {
        "iteration_time_s": "iteration time in seconds, by ports a server",
        "over_ideal_switch": "iteration time over that of an ideal switch, by ports a server",
        "bandwidth_tax": "bandwidth tax, by ports a server",
    }
    label = "{model}, {bandwidth_gbps} Gbps, seed {seed}"
    return pivots(rows, titles, columns="degree", label=label)


def draw(rows: Sequence[Row]) -> Figures:
    """Draw iteration time over the degree, with the ideal switch and the bound."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure, panels = panels_of(len(names), wide=len(names), size=(3.6, 3.6), around=(0, 0))
    for axes, name in zip(panels, names, strict=True):
        mine = [row for row in rows if row["model"] == name]
        for value, style, label in (
            ("iteration_time_s", "o-", "topoopt"),
            ("ideal_switch_s", "s--", "ideal switch"),
            ("lower_bound_s", ":", "lower bound"),
        ):
            axes.plot(
                [r["degree"] for r in mine], [1e3 * float(r[value] or 0) for r in mine], style,
                label=label,
            )  # fmt: skip
        axes.set_title(str(name))
        axes.set_xlabel("ports a server")
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("iteration time [ms]")
    figure.axes[0].legend()
    return {"degree": figure}


EXPERIMENT = Experiment(
    name="degree",
    description="Iteration time of co-designed plans with 2 to 10 ports a server.",
    source="TopoOpt (NSDI 2023), effect of the degree",
    grid={
        "model": ["dlrm", "candle", "bert", "ncf", "resnet50", "vgg16"],
        "servers": [128],
        "degree": [2, 3, 4, 5, 6, 7, 8, 9, 10],
        "bandwidth_gbps": [40],
        "steps": [None],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16", "bert-16"],
        "servers": [16],
        "degree": [2, 4, 6, 8, 10],
        "bandwidth_gbps": [25],
        "steps": [200],
    },
    columns=(
        "iteration_time_s", "ideal_switch_s", "over_ideal_switch", "lower_bound_s",
        "exposed_communication_s", "bandwidth_tax", "ports_for_rings", "cost_usd",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
