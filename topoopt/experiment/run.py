"""Run an experiment into a directory, skipping the cases that are finished."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codesign_base import InputError
from topoopt.atomic import write_text_atomically
from topoopt.experiment.cases import Outcome, UnusableCaseError, case_path, load_case, save_case
from topoopt.experiment.declaration import RESERVED_COLUMNS, Experiment, Row, describe
from topoopt.experiment.figures import draw_figures
from topoopt.experiment.manifest import code_hash, now, topoopt_version, write_manifest
from topoopt.experiment.progress import Progress, SilentProgress, progress_on_stderr
from topoopt.experiment.tables import Table, list_rows, to_csv, to_markdown
from topoopt.experiment.workers import compute_in_parallel, compute_serially


@dataclass(frozen=True)
class ExperimentRun:
    """What a run left behind.

    Parameters
    ----------
    output : Path
        Directory with ``manifest.json``, ``results.csv``, ``table.md`` and ``cases/``.
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

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from topoopt.report.notebook import run_html

        return run_html(self)


def run_experiment(
    experiment: Experiment,
    output: Path,
    *,
    quick: bool = False,
    fresh: bool = False,
    jobs: int = 1,
    show_progress: bool = False,
) -> ExperimentRun:
    """Compute every case that is not finished yet, and write results and manifest.

    Parameters
    ----------
    experiment : Experiment
    output : Path
        Directory of the run; created if need be. Finished cases found in it are kept.
    quick : bool
        Run the quick grid instead of the full one.
    fresh : bool
        Forget the finished cases of this grid first.
    jobs : int
        Number of worker processes; 1 computes in this process. Results do not depend on it.
    show_progress : bool
        Tell on standard error what is being done.

    Returns
    -------
    ExperimentRun

    Raises
    ------
    InputError
        If jobs is below 1, there is no quick grid, or the directory cannot be written.
    KeyboardInterrupt
        On Ctrl-C; finished cases are kept, and the next run goes on from there.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; give at least 1")
    mode = "quick" if quick else "full"
    inputs = experiment.cases(quick=quick)
    version, code = topoopt_version(), code_hash(experiment)
    cases = output / "cases"
    try:
        cases.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot create the directory {cases} ({error.strerror}); choose another --output"
        ) from None
    paths = [case_path(cases, experiment, case, version) for case in inputs]
    if fresh:
        for path in paths:
            path.unlink(missing_ok=True)
    done, notes = _load_finished(experiment, inputs, paths, version)
    reused = len(done)
    older = sum(outcome.code != code for outcome in done.values())
    if older:
        notes.append(
            f"{older} finished cases were computed by other source code of the same version; "
            "--fresh computes them again"
        )
    todo = [(index, case) for index, case in enumerate(inputs) if index not in done]
    started_at = now()

    def manifest(state: str, figures: Sequence[str] = ()) -> None:
        write_manifest(
            output / "manifest.json", experiment, mode=mode, cases=inputs, state=state,
            started_at=started_at, code=code, jobs=jobs,
            statuses=[outcome.status for outcome in done.values()],
            case_codes=[outcome.code for outcome in done.values()],
            figures=figures,
        )  # fmt: skip

    def compute(progress: Progress) -> None:
        for note in notes:
            progress.note(note)
        if reused:
            progress.note(f"{reused} of {len(inputs)} cases are finished; {len(todo)} to compute")
        if jobs == 1 or len(todo) < 2:
            outcomes = compute_serially(experiment, todo, code)
        else:
            outcomes = compute_in_parallel(experiment, todo, code, jobs)
        for count, (index, outcome) in enumerate(outcomes, start=1):
            done[index] = outcome
            if outcome.status == "failed":
                where = describe(inputs[index])
                progress.note(f"case {where} failed: {outcome.message}\n{outcome.detail}".rstrip())
            else:
                save_case(paths[index], experiment, inputs[index], version, outcome)
            progress.advance(count, inputs[index], outcome.status)

    manifest("running")
    try:
        if show_progress:
            with progress_on_stderr(len(todo)) as progress:
                compute(progress)
        else:
            compute(SilentProgress())
    except KeyboardInterrupt:
        manifest("interrupted")
        raise
    outcomes = [done[index] for index in range(len(inputs))]
    rows = _all_rows(experiment, inputs, outcomes)
    table = _write_results(experiment, output, mode, rows)
    figures, note = draw_figures(experiment, rows, output)
    manifest("finished", figures)
    statuses = [outcome.status for outcome in outcomes]
    return ExperimentRun(
        output=output,
        rows=tuple(rows),
        table=table,
        computed=len(todo),
        reused=reused,
        infeasible=statuses.count("infeasible"),
        failed=statuses.count("failed"),
        figures=figures,
        note=note,
    )


def _load_finished(
    experiment: Experiment, inputs: Sequence[Row], paths: Sequence[Path], version: str
) -> tuple[dict[int, Outcome], list[str]]:
    done: dict[int, Outcome] = {}
    notes = []
    for index, (case, path) in enumerate(zip(inputs, paths, strict=True)):
        try:
            outcome = load_case(path, experiment, case, version)
        except UnusableCaseError as error:
            notes.append(f"case {describe(case)}: the file {path.name} is {error}; computing again")
            continue
        if outcome is not None:
            done[index] = outcome
    return done, notes


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
    status, message = RESERVED_COLUMNS
    names = [name for name in rows[0] if name not in (*RESERVED_COLUMNS, *experiment.columns)]
    columns = [*names, status, *experiment.columns, message]
    if experiment.tabulate is None:
        tables: Sequence[Table] = [list_rows(rows, columns)]
    else:
        made = experiment.tabulate(rows)
        tables = [made] if isinstance(made, Table) else made
    table = to_markdown(experiment, tables, mode)
    write_text_atomically(output / "results.csv", to_csv(rows, columns))
    write_text_atomically(output / "table.md", table)
    return table
