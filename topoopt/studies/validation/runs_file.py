"""Published training runs from a file, and how true the model is of them."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from codesign_base import InputError
from topoopt.studies.validation.llm import run_case
from topoopt.studies.validation.published_run import PublishedRun
from topoopt.studies.validation.run_entries import published_run
from topoopt.studies.validation.run_schema import read_runs_file
from topoopt.studies.validation.told_alike import Floor, least_errors


@dataclass(frozen=True, slots=True)
class RunError:
    """A run, the model's time of it, and the relative error (0.01 is 1 % too much).

    ``fits`` says whether a layout that the source allows fits into memory by the model.
    """

    name: str
    stack: str
    accelerator: str
    published_s: float
    model_s: float
    error: float
    fitted: bool
    fits: bool
    source: str
    setting: str


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Errors without sign of some runs."""

    group: str
    runs: int
    mean: float
    median: float
    max: float


@dataclass(frozen=True)
class RunsValidation:
    """Errors by run; summaries: all, by stack, accelerator, role, kind in each role; the floor."""

    runs: tuple[RunError, ...]
    summaries: tuple[ErrorSummary, ...]
    floor: Floor


def read_runs(path: str | Path) -> tuple[PublishedRun, ...]:
    """Return the runs of a file as the validation of language models takes them.

    Parameters
    ----------
    path : path
        Of a file in the schema of `docs/llm.md`, or ``published``.

    Raises
    ------
    InputError
        If the file cannot be read, a field is missing, unknown or of another type, or model,
        layout, stack or accelerator of a run are not possible or known.
    """
    found = read_runs_file(path)
    shapes = found.models or {}
    runs = []
    for entry in found.runs:
        try:
            runs.append(published_run(entry, shapes))
        except InputError as error:
            raise InputError(f"run {entry.name!r}: {error}") from None
    return tuple(runs)


def validate_runs(path: str | Path) -> RunsValidation:
    """Compare the model's time of every run of a file with the published one.

    Parameters
    ----------
    path : path
        Of a file in the schema of `docs/llm.md`.

    Returns
    -------
    RunsValidation

    Raises
    ------
    InputError
        If the file or one of its runs is not what it should be.
    """
    found, kinds, every = [], [], read_runs(path)
    for run in every:
        try:
            case = run_case(run)
        except InputError as error:
            raise InputError(f"run {run.name!r}: {error}") from None
        mixture = "experts" if run.model.experts else "dense"
        mixture = "hybrid" if run.model.linear else mixture
        kinds.append(f"{mixture}, {run.implementation.precision}")
        found.append(
            RunError(
                run.name, run.implementation.stack, run.accelerator, run.seconds, case.model,
                case.error, run.role == "fitted", case.fits, run.source, case.setting,
            )
        )  # fmt: skip
    groups: dict[str, list[float]] = {"all": [abs(one.error) for one in found]}
    for one, kind in zip(found, kinds, strict=True):
        role = "fitted" if one.fitted else "held out"
        for group in (
            f"stack {one.stack}", f"accelerator {one.accelerator}", role, f"{role}: {kind}",
        ):  # fmt: skip
            groups.setdefault(group, []).append(abs(one.error))
    summaries = tuple(
        ErrorSummary(group, len(errors), fmean(errors), median(errors), max(errors))
        for group, errors in groups.items()
    )
    return RunsValidation(tuple(found), summaries, least_errors(every))
