"""Speed-up and performance per cost over equal bandwidth, for LIBRA's workloads and budgets."""

from collections.abc import Sequence

from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.files.libra_files import WORKLOADS, data_option, libra_inputs, source
from topoopt.bandwidth.solve.problem import AllocationObjective
from topoopt.bandwidth.solve.question import Question
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import lines_by_budget, panels_of

BUDGETS = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]


def case(
    inputs: str, workload: str, dimensions: int, objective: str, budget_gbytes_per_s: int
) -> dict[str, object]:
    """Divide one budget for one workload.

    Parameters
    ----------
    inputs : {"files", "built-in"}
        LIBRA's files, or the built-in workloads.
    workload : str
    dimensions : {3, 4}
    objective : {"time", "time*cost"}
    budget_gbytes_per_s : int
        Sum of an NPU's bandwidths, spent in full.

    Returns
    -------
    dict
        The columns of the experiment.
    """
    given = libra_inputs(workload, dimensions, inputs)
    answer = allocate_bandwidth(
        given.network,
        given.workload,
        Question(
            cost=given.cost,
            budget=f"{budget_gbytes_per_s}GB/s",
            objective=AllocationObjective(objective),
        ),
        given.communicator,
    )
    times, solution = answer.workloads[0], answer.solution
    speedup = times.equal_iteration / times.iteration
    return {
        "bandwidth_gbytes_per_s": " / ".join(f"{b / 1e9:.1f}" for b in answer.bandwidth),
        "iteration_time_s": times.iteration,
        "compute_time_s": times.compute,
        "cost_usd": solution.cost,
        "equal_bandwidth_time_s": times.equal_iteration,
        "equal_bandwidth_cost_usd": answer.equal_cost,
        "speedup": speedup,
        "perf_per_cost_gain": speedup * answer.equal_cost / solution.cost,
        "duality_gap": solution.gap,
    }


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return speed-up and performance per cost by workload and budget."""
    tables = []
    for objective, value, what in (
        ("time", "speedup", "speed-up over equal bandwidth (PerfOpt)"),
        ("time*cost", "perf_per_cost_gain", "performance per cost over equal (PerfPerCost)"),
        ("time*cost", "speedup", "speed-up over equal bandwidth (PerfPerCost)"),
    ):
        chosen = [row for row in rows if row["objective"] == objective]
        label = "{workload}, {dimensions}D"
        tables += pivots(chosen, {value: what}, columns="budget_gbytes_per_s", label=label)
    return tables


def draw(rows: Sequence[Row]) -> Figures:
    """Draw both gains over the budget."""
    figure, panels = panels_of(2, size=(5, 4), around=(0, 0))
    for axes, (objective, value, label) in zip(
        panels,
        (
            ("time", "speedup", "speed-up over equal bandwidth"),
            ("time*cost", "perf_per_cost_gain", "performance per cost over equal bandwidth"),
        ),
        strict=True,
    ):
        lines_by_budget(axes, [row for row in rows if row["objective"] == objective], value)
        axes.set_ylabel(label)
    if axes.lines:
        axes.legend(fontsize="small")
    return {"gains": figure}


if __name__ == "__main__":
    data_option()  # before the inputs are looked for

EXPERIMENT = Experiment(
    name="libra-speedup",
    description=(
        "Optimal bandwidth of each dimension against equal bandwidths of the same sum, on "
        "4,096 NPUs."
    ),
    source="LIBRA (ISPASS 2024), figures 13 to 15",
    grid={
        "inputs": [source()],
        "workload": list(WORKLOADS),
        "dimensions": [3, 4],
        "objective": ["time", "time*cost"],
        "budget_gbytes_per_s": BUDGETS,
    },
    quick_grid={
        "dimensions": [4],
        "budget_gbytes_per_s": [100, 500, 1000],
    },
    columns=(
        "bandwidth_gbytes_per_s", "iteration_time_s", "compute_time_s", "cost_usd",
        "equal_bandwidth_time_s", "equal_bandwidth_cost_usd", "speedup",
        "perf_per_cost_gain", "duality_gap",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
