"""What hiding communication behind other work changes, and whether the best network does."""

from collections.abc import Sequence

from topoopt.bandwidth.allocate import allocate_bandwidth
from topoopt.bandwidth.files.libra_files import WORKLOADS, data_option, libra_inputs, source
from topoopt.bandwidth.model.loops import Loop
from topoopt.bandwidth.solve.question import Question
from topoopt.experiment import Experiment, Figures, Row, Table, pivots, run_from_command_line
from topoopt.experiment.plots import lines_by_budget, panels_of


def case(
    inputs: str, workload: str, dimensions: int, budget_gbytes_per_s: int
) -> dict[str, object]:
    """Optimise for both training loops, and run the overlapping one on both networks.

    Parameters
    ----------
    inputs : {"files", "built-in"}
    workload : str
    dimensions : {3, 4}
    budget_gbytes_per_s : int

    Returns
    -------
    dict
        The columns of the experiment.
    """
    given = libra_inputs(workload, dimensions, inputs)
    plain, overlap = (
        allocate_bandwidth(
            given.network,
            given.workload,
            Question(cost=given.cost, budget=f"{budget_gbytes_per_s}GB/s", loop=loop),
            given.communicator,
        )
        for loop in (Loop.NONE, Loop.OVERLAP)
    )
    mixed = overlap.problem.time.time(plain.bandwidth)
    return {
        "no_overlap_time_s": plain.solution.time,
        "overlap_time_s": overlap.solution.time,
        "overlap_gain": plain.solution.time / overlap.solution.time,
        "speedup_without": plain.workloads[0].equal_iteration / plain.solution.time,
        "speedup_with": overlap.workloads[0].equal_iteration / overlap.solution.time,
        "wrong_loop_loss": mixed / overlap.solution.time - 1.0,
        "duality_gap": max(plain.solution.gap, overlap.solution.gap),
    }


def tabulate(rows: Sequence[Row]) -> list[Table]:
    """Return what overlap gains, and what a network made for the other loop loses."""
    titles = {
        "overlap_gain": "time without over time with overlap, both optimal",
        "speedup_with": "speed-up over equal bandwidth with overlap",
        "wrong_loop_loss": "loss with overlap on the network that is best without",
    }
    label = "{workload}, {dimensions}D"
    return pivots(rows, titles, columns="budget_gbytes_per_s", label=label)


def draw(rows: Sequence[Row]) -> Figures:
    """Draw the gain of overlap."""
    figure, (axes,) = panels_of(1, size=(8, 4), around=(0, 0))
    lines_by_budget(axes, rows, "overlap_gain")
    axes.set_ylabel("gain of overlap")
    axes.legend(fontsize="small")
    return {"overlap": figure}


if __name__ == "__main__":
    data_option()  # before the inputs are looked for

EXPERIMENT = Experiment(
    name="libra-overlap",
    description="Optimal networks without and with tensor and data parallelism overlapping.",
    source="LIBRA (ISPASS 2024), section VI (training loops)",
    grid={
        "inputs": [source()],
        "workload": list(WORKLOADS),
        "dimensions": [3, 4],
        "budget_gbytes_per_s": [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000],
    },
    quick_grid={"dimensions": [4], "budget_gbytes_per_s": [100, 500]},
    columns=(
        "no_overlap_time_s", "overlap_time_s", "overlap_gain", "speedup_without",
        "speedup_with", "wrong_loop_loss", "duality_gap",
    ),
    case=case,
    tabulate=tabulate,
    draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    run_from_command_line(EXPERIMENT)
