"""What was fitted on published runs, and how it does on models that were left out.

``python -m topoopt.studies.validation.calibration RUNS.json [published]`` fits again, on the rows
of all files that say so, and prints both errors of the first file's rows.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from codesign_base.arrays import Floats
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import STACKS
from topoopt.studies.validation.llm import run_case
from topoopt.studies.validation.published_run import PublishedRun
from topoopt.studies.validation.runs_file import read_runs

# What is fitted of each stack, with its bounds; numbers that are one share a value.
_NUMBERS: dict[str, tuple[tuple[tuple[str, ...], float, float], ...]] = {
    "megatron-core": ((("product_efficiency",), 0.3, 1.0), (("iteration_s",), 0.0, 1.0)),
    "nemo": ((("sending",), 0.0, 1.0), (("casts",), 1.0, 8.0)),
    "fsdp2": ((("elementwise", "norms"), 1.0, 10.0),),
    "fsdp2-eager": ((("elementwise", "norms"), 1.0, 10.0),),
    "fsdp2-moe": (),
    "fsdp1": ((("overlap_data",), 0.0, 1.0),),
}


def errors(runs: list[PublishedRun], stack: str, values: Sequence[float]) -> list[float]:
    """Return relative errors of runs of a stack for values of its fitted numbers."""
    given: dict[str, Any] = {
        name: value
        for (names, _, _), value in zip(_NUMBERS[stack], values, strict=True)
        for name in names
    }
    efficiency = given.pop("product_efficiency", None)
    found = []
    for run in runs:
        rates = rates_of(run.accelerator)
        if efficiency is not None:
            rates = replace(rates, product_efficiency=efficiency)
        changed = replace(run, implementation=replace(run.implementation, **given))
        found.append(run_case(changed, rates).error)
    return found


def fit(runs: list[PublishedRun], stack: str) -> list[float]:
    """Return the values of a stack's fitted numbers with least squares over its runs.

    A number that no run depends on stays what it is.
    """
    numbers = _NUMBERS[stack]
    if not numbers or not runs:
        return [float(getattr(STACKS[stack], names[0])) for names, _, _ in numbers]
    h100, one = rates_of("h100"), STACKS[stack]
    start = [
        float(getattr(h100 if names[0] == "product_efficiency" else one, names[0]))
        for names, _, _ in numbers
    ]

    def residuals(at: Floats) -> Floats:
        return np.array(errors(runs, stack, [float(value) for value in at]))

    found = least_squares(
        residuals, start, bounds=([low for _, low, _ in numbers], [high for *_, high in numbers]),
        x_scale=start, diff_step=[0.01] * len(start), max_nfev=6,
    )  # fmt: skip
    return [float(value) for value in found.x]


def leave_one_model_out(
    runs: list[PublishedRun], stack: str, others: Sequence[PublishedRun] = ()
) -> dict[str, list[float]]:
    """Return the errors of each model's runs, by the name of its first, fitted without the model.

    Fitted are all rows of ``runs`` and ``others`` that have another model.
    """
    models: dict[tuple[int, int], list[PublishedRun]] = {}
    for run in runs:
        models.setdefault((run.model.layers, run.model.hidden), []).append(run)
    found = {}
    for (layers, hidden), mine in models.items():
        rest = [
            run
            for run in (*runs, *others)
            if (run.model.layers, run.model.hidden) != (layers, hidden)
        ]
        found[mine[0].name] = errors(mine, stack, fit(rest, stack))
    return found


def main(path: str, *more: str) -> None:
    """Print what is fitted on files of runs, and errors with and without each model."""
    every = read_runs(Path(path))
    fitted = [run for name in more for run in read_runs(name) if run.role == "fitted"]
    left_out: list[float] = []
    for stack, numbers in _NUMBERS.items():
        runs = [run for run in every if run.implementation.stack == stack]
        others = [run for run in fitted if run.implementation.stack == stack]
        best = fit([run for run in runs if run.role == "fitted"] + others, stack)
        for (names, _, _), value in zip(numbers, best, strict=True):
            print(f"{stack}: {' = '.join(names)} = {value:.3f}")
        if not runs:
            continue
        print(f"{stack}: fitted, mean {100 * np.abs(errors(runs, stack, best)).mean():.2f} %")
        for model, found in leave_one_model_out(runs, stack, others).items():
            print(f"{model} left out: {', '.join(f'{100 * error:+.1f}' for error in found)} %")
            left_out += found
    whole = np.abs(left_out)
    print(f"left out: mean {100 * whole.mean():.2f} %, max {100 * whole.max():.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
