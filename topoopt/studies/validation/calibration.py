"""What was fitted for H100 and Megatron-Core, and how it does on models that were left out.

``python -m topoopt.studies.validation.calibration RUNS.json`` fits again and prints both errors.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from parallelism.taskgraph import FloatArray
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import MEGATRON_CORE
from topoopt.studies.validation.llm import run_case
from topoopt.studies.validation.published_run import PublishedRun
from topoopt.studies.validation.runs_file import published_run, read_runs


def errors(runs: list[PublishedRun], efficiency: float, iteration_s: float) -> list[float]:
    """Return relative errors of runs for an efficiency of products and seconds an iteration."""
    rates = replace(rates_of("h100"), product_efficiency=efficiency)
    stack = replace(MEGATRON_CORE, iteration_s=iteration_s)
    return [run_case(replace(run, implementation=stack), rates).error for run in runs]


def fit(runs: list[PublishedRun]) -> tuple[float, float]:
    """Return the efficiency of products and the seconds an iteration with least squares."""
    start = (rates_of("h100").product_efficiency, MEGATRON_CORE.iteration_s)

    def residuals(at: FloatArray) -> FloatArray:
        return np.array(errors(runs, float(at[0]), float(at[1])))

    found = least_squares(
        residuals, start, bounds=([0.3, 0.0], [1.0, 1.0]), x_scale=start,
        diff_step=[0.01, 0.01], max_nfev=6,
    )  # fmt: skip
    return float(found.x[0]), float(found.x[1])


def leave_one_model_out(runs: list[PublishedRun]) -> dict[str, list[float]]:
    """Return the errors of each model's runs, fitted on all others."""
    models = list(dict.fromkeys(run.name.rsplit(" ", 1)[0] for run in runs))
    found = {}
    for model in models:
        mine = [run for run in runs if run.name.rsplit(" ", 1)[0] == model]
        found[model] = errors(mine, *fit([run for run in runs if run not in mine]))
    return found


def main(path: str) -> None:
    """Print what is fitted on a file of runs, and errors with and without each model."""
    every = [published_run(entry) for entry in read_runs(Path(path))]
    runs = [r for r in every if r.implementation == MEGATRON_CORE and r.accelerator == "h100"]
    best = fit(runs)
    print(f"product_efficiency {best[0]:.3f}, iteration_s {best[1]:.3f}")
    print(f"fitted: mean {100 * np.abs(errors(runs, *best)).mean():.2f} %")
    apart = leave_one_model_out(runs)
    for model, found in apart.items():
        print(f"{model} left out: {', '.join(f'{100 * error:+.1f}' for error in found)} %")
    whole = np.abs(np.concatenate([np.array(found) for found in apart.values()]))
    print(f"left out: mean {100 * whole.mean():.2f} %, max {100 * whole.max():.2f} %")


if __name__ == "__main__":
    main(sys.argv[1])
