"""Run every reference case that can be found, by each simulation model."""

import os
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from codesign_base import InputError
from codesign_base.arguments import check_called, check_kind, check_path, several
from codesign_base.paths import exists, is_directory
from parallelism.taskgraph import TaskGraph
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.jitter import jittered
from topoopt.fabric.simulation import check_model, score
from topoopt.fabric.warm import warm_up
from topoopt.studies.replay import replay_fabric
from topoopt.studies.validation.closed_forms import ClosedForm, closed_forms
from topoopt.studies.validation.reference import ReferenceTable, ReferenceTime, packet_level
from topoopt.studies.validation.results import Case, ModelResult, Validation, summaries
from topoopt.studies.workload import load_workload

ENVIRONMENT = "TOPOOPT_DATA"
"""Environment variable that names the directory of reference data."""

_COPIES = 5
"""Copies with perturbed delays of a noisy case."""

_NOISY = "candle"
# Runs repeated for their wall time, and the seconds after which none is.
_REPEATS = 5
_SHORT = 0.1
_FABRICS = {"ideal": "ideal-switch", "fat-tree": "fat-tree"}
CaseCallback = Callable[[Case], None]


def data_directory(data: str | Path | None = None) -> Path | None:
    """Return the directory that holds the published task graphs.

    Parameters
    ----------
    data : str or Path, optional
        A directory; by default the one that the environment variable TOPOOPT_DATA names.

    Returns
    -------
    Path or None
        Its subdirectory ``taskgraphs`` if there is one, else itself; None if none was named.

    Raises
    ------
    InputError
        If it does not exist.
    """
    named = data if data is not None else os.environ.get(ENVIRONMENT) or None
    if named is None:
        return None
    check_path("data", named)
    directory = Path(named)
    if not is_directory(directory):
        wrong = "is a file" if exists(directory) else "does not exist"
        raise InputError(
            f"data directory {str(named)!r} {wrong}; give --data or {ENVIRONMENT} a directory with "
            "task graphs"
        )
    inner = directory / "taskgraphs"
    return inner if inner.is_dir() else directory


def validate(
    data: str | Path | None = None,
    *,
    cases: str = "*",
    models: Sequence[str] = ("fluid", "packet"),
    progress: CaseCallback | None = None,
) -> Validation:
    """Compare the simulation models with references.

    Published task graphs are simulated with the artefacts of the reference simulator
    (``Transport(htsim=True)``), and by default, beside it. The packet model's time of CANDLE
    graphs is the mean of five copies with perturbed delays, because single packet-level runs
    of these depend on chance (see `ReferenceTable.noise`); all other times are of single runs.

    Parameters
    ----------
    data : str or Path, optional
        See `data_directory`. Cases without data are listed as skipped.
    cases : str
        A pattern (``*dlrm*``, ``*/fat-tree``, ``ring-*``) of the names of cases to run.
    models : sequence of {"fluid", "packet"}
    progress : callable, optional
        Called with each case when it is done.

    Returns
    -------
    Validation

    Raises
    ------
    InputError
        If a model is unknown, no case has a name of this pattern, there is no such directory,
        or a task graph in it is malformed.

    Examples
    --------
    >>> found = validate(cases="incast-4-*", models=("fluid",))
    >>> found.cases[0].results["fluid"].error < 1e-9
    True
    """
    check_kind("cases", cases, str, "a pattern of names, such as '*dlrm*'")
    check_called("progress", progress)
    chosen = tuple(dict.fromkeys(several("models", models, "several, such as ('fluid', 'packet')")))
    if not chosen:
        raise InputError("no simulation model is given; name fluid, packet or both")
    for model in chosen:
        check_model(model)
    directory = data_directory(data)
    table = packet_level()
    published = [time for time in table.times if fnmatchcase(_name(time), cases)]
    formulas = [form for form in closed_forms() if fnmatchcase(form.name, cases)]
    if not published and not formulas:
        raise InputError(
            f"no case is called {cases!r}; names are for example {_name(table.times[0])} and "
            f"{closed_forms()[0].name}"
        )
    for model in chosen:
        warm_up(model)
    found: list[Case] = []
    for reference in published:
        found.append(_published_case(reference, table, directory, chosen))
        if progress is not None:
            progress(found[-1])
    for form in formulas:
        found.append(_closed_case(form, chosen))
        if progress is not None:
            progress(found[-1])
    return Validation(
        source=table.source,
        setting=table.setting,
        noise=table.noise,
        data=None if directory is None else str(directory),
        cases=tuple(found),
        summaries=summaries(tuple(found), chosen),
    )


def _name(reference: ReferenceTime) -> str:
    return f"{reference.graph}/{_FABRICS[reference.fabric]}"


def _published_case(
    reference: ReferenceTime,
    table: ReferenceTable,
    directory: Path | None,
    models: tuple[str, ...],
) -> Case:
    def case(results: dict[str, ModelResult], skipped: str | None = None) -> Case:
        return Case(
            _name(reference),
            "packet-level",
            reference.graph.strip("0123456789_"),
            reference.time_s,
            reference.wall_time_s,
            results,
            skipped,
        )

    if directory is None:
        return case({}, f"no data directory (--data or {ENVIRONMENT})")
    path = directory / f"{reference.graph}.fbuf"
    if not path.is_file():
        return case({}, f"{path.name} is not in the data directory")

    workload = load_workload(path)
    mimic, plain = (
        replay_fabric(
            workload,
            reference.fabric,
            bandwidth=reference.bandwidth,
            latency=table.latency_s,
            compat=compat,
        )
        for compat in ("htsim", None)
    )
    results = {}
    for model in models:
        noisy = model == "packet" and _NOISY in reference.graph
        copies = _COPIES if noisy else 1
        seconds, spread, wall = _timed(mimic.for_model(model), workload.tasks, model, copies)
        default, _, _ = _timed(plain.for_model(model), workload.tasks, model, copies)
        results[model] = ModelResult(
            time_s=seconds,
            error=seconds / reference.time_s - 1.0,
            default_time_s=default,
            wall_time_s=wall,
            copies=copies,
            spread_s=spread,
        )
    return case(results)


def _timed(fabric: Fabric, tasks: TaskGraph, model: str, copies: int) -> tuple[float, float, float]:
    """Return iteration time, its spread over the copies, and the wall time of one run.

    The wall time of a short run is the least of several.
    """
    began = time.perf_counter()
    if copies > 1:
        runs = jittered(fabric, tasks, copies, model=model)
        return runs.mean, runs.spread, (time.perf_counter() - began) / copies
    found = score(fabric, tasks, model=model)
    walls = [time.perf_counter() - began]
    while len(walls) < _REPEATS and sum(walls) < _SHORT:
        began = time.perf_counter()
        score(fabric, tasks, model=model)
        walls.append(time.perf_counter() - began)
    return found, 0.0, min(walls)


def _closed_case(form: ClosedForm, models: tuple[str, ...]) -> Case:
    fabric, tasks = form.build()
    results = {}
    for model in models:
        seconds, _, wall = _timed(fabric, tasks, model, 1)
        results[model] = ModelResult(
            time_s=seconds,
            error=seconds / form.time_s - 1.0,
            default_time_s=seconds,
            wall_time_s=wall,
            tolerance=form.tolerance[model],
        )
    return Case(form.name, "closed-form", form.family, form.time_s, None, results)
