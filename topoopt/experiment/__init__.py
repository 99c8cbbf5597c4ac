"""The harness of every experiment script: declare a grid and a case, get a resumable run.

A script declares one `Experiment` and ends in `run_from_command_line`::

    from topoopt.experiment import Experiment, run_from_command_line

    def case(model: str, servers: int, seed: int) -> dict[str, float]:
        ...
        return {"iteration_time_s": ...}

    EXPERIMENT = Experiment(
        name="dedicated-cluster",
        description="Iteration time on a dedicated cluster",
        source="TopoOpt, NSDI 2023, figure 11",
        grid={"model": ["dlrm", "bert"], "servers": [128], "seed": [0]},
        quick_grid={"model": ["dlrm-16"], "servers": [16], "seed": [0]},
        columns=("iteration_time_s",),
        case=case,
    )

    if __name__ == "__main__":
        run_from_command_line(EXPERIMENT)
"""

from topoopt.experiment.command import run_from_command_line
from topoopt.experiment.declaration import Experiment
from topoopt.experiment.plots import Figures
from topoopt.experiment.rows import Row, Value
from topoopt.experiment.run import ExperimentRun, run_experiment
from topoopt.experiment.tables import Table, grouped, listed, pivot, pivots

__all__ = [
    "Experiment",
    "ExperimentRun",
    "Figures",
    "Row",
    "Table",
    "Value",
    "grouped",
    "listed",
    "pivot",
    "pivots",
    "run_experiment",
    "run_from_command_line",
]
