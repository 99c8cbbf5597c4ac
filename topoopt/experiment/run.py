"""Run an experiment into a directory: compute its cases, keep them, write what came of them."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesign_base.counted import counted
from codesign_base.paths import make_directory
from topoopt.base.atomic import write_text_atomically
from topoopt.base.calls import Call, WorkerDied
from topoopt.base.display import displayed
from topoopt.base.engine import DIED, LOCAL, check_engine, iterate_jobs
from topoopt.experiment.cases import Outcome, ScriptCase, compute_case
from topoopt.experiment.declaration import RESERVED_COLUMNS, Experiment, case_text
from topoopt.experiment.figures import draw_figures
from topoopt.experiment.manifest import RunUnderWay, now, software_hash
from topoopt.experiment.progress import LineProgress, progress_of
from topoopt.experiment.rows import Row
from topoopt.experiment.store import Store, open_store
from topoopt.experiment.tables import Table, listed, to_csv, to_markdown


@dataclass(frozen=True)
class ExperimentRun:
    """What a run left behind.

    Parameters
    ----------
    output : Path
        Directory with ``manifest.json``, ``results.csv``, ``timings.csv``, ``table.md``, figures.
    rows : tuple of dict
        Inputs, status, results and message of every case, in grid order.
    table : str
        The text of ``table.md``.
    computed, reused, infeasible, failed : int
        Number of cases computed by this run, taken from an earlier one, infeasible and failed.
    figures : tuple of str
        Names of the figures drawn into the directory.
    note : str
        Why figures were not drawn.
    """

    output: Path
    rows: tuple[Row, ...]
    table: str
    computed: int
    reused: int
    infeasible: int
    failed: int
    figures: tuple[str, ...] = ()
    note: str = ""

    @property
    def counts(self) -> str:
        """How many cases were computed, and what came of them, in words."""
        return (
            f"{counted(self.computed, 'case')} computed, {self.reused} reused, {self.infeasible} "
            f"infeasible, {self.failed} failed; results in {self.output}"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return displayed("html", self)


def run_experiment(
    experiment: Experiment,
    output: Path,
    *,
    quick: bool = False,
    resume: bool = False,
    stale: bool = False,
    workers: int = 1,
    engine: str = LOCAL,
    script: ScriptCase | None = None,
    show_progress: bool = False,
) -> ExperimentRun:
    """Compute the cases of an experiment, and write results and manifest.

    Parameters
    ----------
    experiment : Experiment
    output : Path
        Directory of all results: the store of finished cases, and a directory for each
        experiment and grid. Created if need be.
    quick : bool
        Run the quick grid instead of the full one.
    resume : bool
        Take the cases that the same software has finished before from the store.
    stale : bool
        Resume, and also take cases that other software (another version of the source code or of
        a library) finished. The manifest counts them.
    workers : int
        Cases at a time; 1 on the local engine computes in this process. Results do not depend
        on it.
    engine : str
        ``local``, ``ray`` or ``ray://HOST:PORT``; see `topoopt.base.engine`.
    script : ScriptCase, optional
        The script that declares the experiment, where worker processes cannot import ``case``.
    show_progress : bool
        Tell on standard error what is being done.

    Returns
    -------
    ExperimentRun

    Raises
    ------
    InputError
        If there is no such engine or no quick grid, or the directory cannot be written.
    KeyboardInterrupt
        On Ctrl-C; finished cases are kept, and a run with ``resume`` goes on from there.
    """
    check_engine(engine, workers)
    inputs, mode = experiment.cases(quick=quick), "quick" if quick else "full"
    with open_store(output) as store:
        run = RunUnderWay(
            experiment,
            output / experiment.name / mode,
            mode,
            inputs,
            software_hash(experiment, script),
            workers,
            engine,
            now(),
            {},
        )
        make_directory(run.output, parents=True)
        if resume or stale:
            _take_finished(run, store, stale=stale)
        reused = len(run.done)
        run.write_manifest("running")
        try:
            _compute_all(run, store, script or experiment.case, show_progress, resume or stale)
        except KeyboardInterrupt:
            run.write_manifest("interrupted")
            raise
    outcomes = [run.done[index] for index in range(len(inputs))]
    rows = _all_rows(experiment, inputs, outcomes)
    table = _write_results(experiment, run.output, run.mode, rows)
    _write_timings(experiment, run.output, inputs, outcomes)
    figures, note = draw_figures(experiment, rows, run.output)
    run.write_manifest("finished", figures)
    statuses = [outcome.status for outcome in outcomes]
    return ExperimentRun(
        output=run.output,
        rows=tuple(rows),
        table=table,
        computed=len(inputs) - reused,
        reused=reused,
        infeasible=statuses.count("infeasible"),
        failed=statuses.count("failed"),
        figures=figures,
        note=note,
    )


def _take_finished(run: RunUnderWay, store: Store, *, stale: bool) -> None:
    for index, case in enumerate(run.inputs):
        place = run.experiment.name, run.experiment.columns, case
        outcome = store.load(*place, run.code)
        if outcome is None and stale:
            outcome = store.load(*place, None)
        if outcome is not None:
            run.done[index] = outcome


def _compute_all(
    run: RunUnderWay, store: Store, case: Callable[..., Any], show_progress: bool, resume: bool
) -> None:
    """Compute what is not done, and keep each case as it finishes."""
    todo = [index for index in range(len(run.inputs)) if index not in run.done]
    columns = tuple(run.experiment.columns)
    calls = [
        Call(
            compute_case,
            {"case": case, "columns": columns, "inputs": run.inputs[index], "code": run.code},
        )
        for index in todo
    ]

    with progress_of(len(todo), silent=not show_progress) as progress:
        _tell_what_is_done(run, store, progress, len(todo), resume)
        with _interrupts_noted() as interrupted:
            results = iterate_jobs(calls, workers=run.workers, engine=run.engine)
            for count, (place, result) in enumerate(results, start=1):
                if interrupted.is_set():
                    # A case that caught Ctrl-C returned what it had: not its result.
                    raise KeyboardInterrupt
                index = todo[place]
                outcome = result
                if isinstance(result, WorkerDied):
                    outcome = Outcome("failed", message=DIED, code=run.code)
                run.done[index] = outcome
                _keep(run, store, index, outcome, progress)
                progress.advance(count, run.inputs[index], outcome.status)


def _tell_what_is_done(
    run: RunUnderWay, store: Store, progress: LineProgress, todo: int, resume: bool
) -> None:
    total, done = len(run.inputs), len(run.done)
    if done:
        progress.note(
            f"{done} of {counted(total, 'case is', 'cases are')} finished; {todo} to compute"
        )
    other = sum(outcome.code != run.code for outcome in run.done.values())
    if other:
        progress.note(f"{other} of them were computed by other software (see the manifest)")
    if not resume:
        _take_finished(run, store, stale=False)
        if run.done:
            progress.note(
                f"{len(run.done)} of {counted(total, 'case is', 'cases are')} finished already and "
                "computed again; --resume would skip them"
            )
        run.done.clear()


def _keep(
    run: RunUnderWay, store: Store, index: int, outcome: Outcome, progress: LineProgress
) -> None:
    if outcome.status == "failed":
        where = case_text(run.inputs[index])
        progress.note(f"case {where} failed: {outcome.message}\n{outcome.detail}".rstrip())
    else:
        store.save(run.experiment.name, run.experiment.columns, run.inputs[index], outcome)


@contextmanager
def _interrupts_noted() -> Iterator[threading.Event]:
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # signals go to the main thread; nothing to note here
        return

    def note(number: int, frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _all_rows(
    experiment: Experiment, inputs: Sequence[Row], outcomes: Sequence[Outcome]
) -> list[Row]:
    empty: Row = dict.fromkeys(experiment.columns)
    return [
        {**case, "status": outcome.status, **results, "message": outcome.message}
        for case, outcome in zip(inputs, outcomes, strict=True)
        for results in (outcome.rows or (empty,))
    ]


def _write_results(experiment: Experiment, output: Path, mode: str, rows: Sequence[Row]) -> str:
    columns = result_columns(experiment, rows)
    if experiment.tabulate is None:
        told = any(row["message"] for row in rows)
        named = [column for column in columns if told or column != "message"]
        tables: Sequence[Table] = [listed(rows, named)]
    else:
        made = experiment.tabulate(rows)
        tables = [made] if isinstance(made, Table) else made
    title = f"{experiment.name} ({mode})"
    table = to_markdown(title, experiment.description, experiment.source, tables)
    write_text_atomically(output / "results.csv", to_csv(rows, columns))
    write_text_atomically(output / "table.md", table)
    return table


def result_columns(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Return the columns of ``results.csv``: inputs, status, results that last, message."""
    status, message = RESERVED_COLUMNS
    names = [name for name in rows[0] if name not in (*RESERVED_COLUMNS, *experiment.columns)]
    return [*names, status, *experiment.lasting_columns, message]


def _write_timings(
    experiment: Experiment, output: Path, inputs: Sequence[Row], outcomes: Sequence[Outcome]
) -> None:
    """Write what a clock measured, which is another in every run."""
    measured = list(experiment.timings)
    rows: list[Row] = [
        {**case, "case_s": outcome.seconds, **{name: results.get(name) for name in measured}}
        for case, outcome in zip(inputs, outcomes, strict=True)
        for results in (outcome.rows or ({},))
    ]
    write_text_atomically(output / "timings.csv", to_csv(rows, [*inputs[0], "case_s", *measured]))
