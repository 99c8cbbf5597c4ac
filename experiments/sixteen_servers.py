"""Plans for 16 servers beside the published packet-level times, by both fabric models."""

from collections.abc import Sequence

from topoopt import Cluster, Job, co_optimize, models
from topoopt.experiment import Experiment, Figures, Row, Table, run_from_command_line
from topoopt.experiment.plots import PALETTE, legend_below, panels_of
from topoopt.experiment.published import (
    PROFILES,
    SIXTEEN_SERVERS_SOURCE,
    measured_profile,
    operator_times,
    sixteen_servers_s,
)
from topoopt.problem.options import SearchOptions


def case(
    model: str, degree: int, bandwidth_gbps: float, compute: str, steps: int | None, seed: int
) -> dict[str, object]:
    """Plan one job for bidirectional ports, and let packet trains choose among the best.

    Parameters
    ----------
    model : str
    degree : int
    bandwidth_gbps : float
        Of a port, each way.
    compute : {"roofline", "measured"}
        Operator times: the default roofline, or the profiles published with TopoOpt, from the
        directory ``measured`` of the one that TOPOOPT_DATA names.
    steps : int or None
        None: the default budget.
    seed : int

    Returns
    -------
    dict
        The columns of `EXPERIMENT`.
    """
    profile = None if compute == "roofline" else measured_profile(model)
    plan = co_optimize(
        Job(models.get_model(model), profile=profile),
        Cluster(16, degree, f"{bandwidth_gbps}Gbps", ports="bidirectional"),
        SearchOptions(steps=steps, confirm="packet"),
        seed=seed,
        baselines=(),
    )
    assert plan.packet_time_s is not None  # asked for
    packet = plan.packet_time_s
    best, worst = sixteen_servers_s(model, degree)
    return {
        "fluid_s": plan.iteration_time_s,
        "packet_s": packet,
        "lower_bound_s": plan.lower_bound_s,
        "published_best_s": best,
        "published_worst_s": worst,
        "difference": packet / best - 1.0,
        "memory_gbytes_per_gpu": plan.memory_per_gpu_bytes / 1e9,
    }


def tabulate(rows: Sequence[Row]) -> Table:
    """Return ours beside the published; differences only where the compute times are the same."""
    lines = [
        (
            row["model"], row["degree"], row["compute"], row["fluid_s"], row["packet_s"],
            row["lower_bound_s"], row["published_best_s"], row["published_worst_s"],
            row["difference"] if row["compute"] == "measured" else "other compute times",
            "" if row["status"] == "ok" else row["message"],
        )
        for row in rows
    ]  # fmt: skip
    columns = ("model", "degree", "compute", "fluid [s]", "packet trains [s]", "lower bound [s]",
               "published best [s]", "published worst [s]", "packet trains over published - 1",
               "note")  # fmt: skip
    return Table(columns, tuple(lines), f"published: {SIXTEEN_SERVERS_SOURCE}")


def draw(rows: Sequence[Row]) -> Figures:
    """Draw both models' times and the bound beside the range of the published; a panel a job."""
    kinds = list(dict.fromkeys(row["compute"] for row in rows))
    jobs = list(dict.fromkeys((row["model"], row["degree"]) for row in rows))
    figure, panels = panels_of(len(jobs), wide=4, size=(2.5, 2.8))
    for axes, job in zip(panels, jobs, strict=True):
        mine = [row for row in rows if (row["model"], row["degree"]) == job]
        for place, (value, label) in enumerate(
            (("fluid_s", "ours, fluid"), ("packet_s", "ours, packet trains"))
        ):
            axes.bar(
                [kinds.index(row["compute"]) + 0.3 * (place - 0.5) for row in mine],
                [1e3 * float(row[value] or 0) for row in mine],
                0.28, color=("#56B4E9", PALETTE[2])[place], label=label,
            )  # fmt: skip
        for at, row in enumerate(mine):
            spot = kinds.index(row["compute"])
            bound = 1e3 * float(row["lower_bound_s"] or 0)
            axes.hlines(bound, spot - 0.33, spot + 0.33, color=PALETTE[0], linestyle=":",
                        label=None if at else "lower bound")  # fmt: skip
        low, high = (1e3 * float(mine[0][name] or 0)
                     for name in ("published_best_s", "published_worst_s"))  # fmt: skip
        axes.axhspan(low, high, color=PALETTE[1], alpha=0.25, linewidth=0)
        axes.axhline(low, color=PALETTE[1], label="published, measured operators")
        axes.set_xticks(range(len(kinds)), [str(kind) for kind in kinds])
        axes.set_xlim(-0.6, len(kinds) - 0.4)
        axes.set_title(f"{job[0]}, d={job[1]}", fontsize="medium")
    figure.supylabel("iteration time [ms]", fontsize="medium")
    legend_below(figure, panels[0], 2)
    return {"sixteen-servers": figure}


EXPERIMENT = Experiment(
    name="sixteen-servers",
    description=(
        "Plans for 16 servers of 4 GPUs with bidirectional 100 Gbps ports, times in the fluid "
        "and the packet model, beside the published searches. Only rows with the measured "
        "profiles (where TOPOOPT_DATA names them) compare like with like."
    ),
    source="TopoOpt (NSDI 2023), published searches for 16 servers",
    grid={
        "model": list(PROFILES),
        "degree": [4, 8],
        "bandwidth_gbps": [100],
        "compute": operator_times(),
        "steps": [None],
        "seed": [0],
    },
    quick_grid={
        "model": ["dlrm-16", "bert-16"],
        "degree": [4],
        "steps": [200],
    },
    columns=(
        "fluid_s", "packet_s", "lower_bound_s", "published_best_s", "published_worst_s",
        "difference", "memory_gbytes_per_gpu",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
