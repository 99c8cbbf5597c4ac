"""Layouts of language models and their wirings, over ports and speeds, beside switched fabrics."""

from collections.abc import Sequence

from parallelism.transformers.presets import get_transformer
from topoopt import Cluster, Job, SearchOptions, co_optimize
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import legend_below, panels_of
from topoopt.problem.job import nvlink_server

FABRICS = ("topoopt", "ideal-switch", "fat-tree", "expander")


def case(
    model: str,
    servers: int,
    degree: int,
    bandwidth_gbps: float,
    batch_per_gpu: int,
    simulated: int,
    seed: int,
) -> list[dict[str, object]]:
    """Plan a language model on servers of eight H100; one row a fabric.

    Parameters
    ----------
    model : str
        A transformer preset, with its own sequence.
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    batch_per_gpu : int
        Samples of an iteration over all GPUs.
    simulated : int
        Layouts that are wired and simulated.
    seed : int

    Returns
    -------
    list of dict
        The columns of `EXPERIMENT`.
    """
    server = nvlink_server("h100", 8)
    batch = servers * server.gpus * batch_per_gpu
    job = Job(get_transformer(model), global_batch=batch, server=server)
    plan = co_optimize(
        job, Cluster(servers, degree, f"{bandwidth_gbps}Gbps"),
        SearchOptions(simulated=simulated), baselines=FABRICS[1:], seed=seed,
    )  # fmt: skip
    own = plan.iteration_time_s
    tokens = plan.global_batch * plan.job.sequence
    layout = plan.parallelization.layout
    found = {"topoopt": (own, layout, plan.cost_usd, bandwidth_gbps * 1e9 / 8)}
    for name in FABRICS[1:]:
        other = plan.baselines[name]
        found[name] = (
            other.iteration_time_s, other.parallelization.layout, other.cost_usd,
            other.bandwidth_bytes_per_s,
        )  # fmt: skip
    return [
        {
            "fabric": name,
            "iteration_time_s": time,
            "relative_time": time / own,
            "tokens_per_s": tokens / time,
            "model_flops_utilisation": plan.model_flops_utilisation * own / time,
            "lower_bound_s": plan.lower_bound_s if name == "topoopt" else None,
            "exposed_communication_s": plan.exposed_communication_s if name == "topoopt" else None,
            "tensor": layout.tensor,
            "pipeline": layout.pipeline,
            "data": layout.data,
            "context": layout.context,
            "expert": layout.expert,
            "cost_usd": cost,
            "link_bandwidth_gbps": bandwidth * 8 / 1e9,
        }
        for name, (time, layout, cost, bandwidth) in found.items()
    ]


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return time, relative time, utilisation and the layout of each fabric."""
    named: list[Row] = [
        {
            **row,
            "layout": f"t{row['tensor']} p{row['pipeline']} d{row['data']} "
            f"c{row['context']} e{row['expert']}",
        }
        for row in rows
    ]
    titles = {
        "iteration_time_s": "iteration time in seconds",
        "relative_time": "iteration time over that of topoopt",
        "model_flops_utilisation": "model FLOPs utilisation",
        "layout": "tensor, pipeline, data, context and expert parallel degrees",
    }
    label = "{model}, {servers} x {degree} x {bandwidth_gbps} Gbps"
    return pivots(named, titles, columns="fabric", label=label, first=FABRICS[0])


def draw(rows: Sequence[Row]) -> Figures:
    """Draw model FLOPs utilisation over port speed, a panel a model and degree."""
    jobs = list(dict.fromkeys((r["model"], r["servers"], r["degree"]) for r in rows))
    figure, panels = panels_of(len(jobs), wide=4, size=(2.8, 2.6), around=(0.8, 0.7))
    colours = ("#000000", "#999999", "#D55E00", "#009E73")
    for axes, job in zip(panels, jobs, strict=True):
        mine = [row for row in rows if (row["model"], row["servers"], row["degree"]) == job]
        for place, fabric in enumerate(FABRICS):
            line = [row for row in mine if row["fabric"] == fabric]
            axes.semilogx(
                [float(row["bandwidth_gbps"] or 0) for row in line],
                [100 * float(row["model_flops_utilisation"] or 0) for row in line],
                "--" if fabric == "ideal-switch" else "-", marker="osD^"[place], markersize=4,
                color=colours[place], label=fabric,
            )  # fmt: skip
        speeds = sorted({float(row["bandwidth_gbps"] or 0) for row in mine})
        axes.set_xticks(speeds, [f"{speed:g}" for speed in speeds])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.set_title(f"{job[0]}, {job[1]} servers, d={job[2]}", fontsize="small")
        axes.set_xlabel("Gbps a port", fontsize="small")
    figure.supylabel("model FLOPs utilisation [%]", fontsize="medium")
    legend_below(figure, panels[0])
    return {"llm-layouts": figure}


EXPERIMENT = Experiment(
    name="llm-layouts",
    description=(
        "Best layout (tensor, pipeline, data, context and expert parallelism) with its wiring, "
        "for language models on servers of eight H100, beside the best layout found for each "
        "other fabric. Fat-tree and expander cost as much as the plan's network; the ideal "
        "switch gives every server the bandwidth of all its ports."
    ),
    source="extends TopoOpt (NSDI 2023) to language models",
    grid={
        "model": ["llama3-8b", "llama3-70b", "mixtral-8x7b", "gpt3-175b"],
        "servers": [32, 64],
        "degree": [4, 8],
        "bandwidth_gbps": [25, 100, 200, 400],
        "batch_per_gpu": [2],
        "simulated": [24],
        "seed": [0],
    },
    quick_grid={
        "servers": [16],
        "degree": [4],
        "bandwidth_gbps": [25, 400],
        "batch_per_gpu": [1],
        "simulated": [4],
    },
    columns=(
        "fabric", "iteration_time_s", "relative_time", "tokens_per_s", "model_flops_utilisation",
        "lower_bound_s", "exposed_communication_s", "tensor", "pipeline", "data", "context",
        "expert", "cost_usd", "link_bandwidth_gbps",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
