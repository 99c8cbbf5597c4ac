"""The command line that every experiment script gets."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

from codesign_base import InputError
from topoopt.experiment.cases import UnusableCaseError, case_path, load_case
from topoopt.experiment.declaration import Experiment, describe
from topoopt.experiment.manifest import topoopt_version
from topoopt.experiment.run import run_experiment

INTERRUPTED = 130


def run_from_command_line(
    experiment: Experiment, arguments: Sequence[str] | None = None
) -> NoReturn:
    """Run an experiment as a script, and exit.

    Options: ``--quick`` (the quick grid), ``--output DIR`` (default:
    ``results/<name>/<quick|full>`` beside the script), ``--fresh`` (forget finished cases),
    ``--jobs N`` (worker processes), ``--list`` (show the cases and stop). Progress goes to
    standard error, the table to standard output.

    Exit status: 0 if every case is ok or infeasible, 1 if a case failed, 2 on bad input, 130
    after Ctrl-C.

    Parameters
    ----------
    experiment : Experiment
    arguments : sequence of str, optional
        By default those of the process.
    """
    import typer

    def main(
        quick: Annotated[bool, typer.Option("--quick", help="Run the small grid.")] = False,
        output: Annotated[
            Path | None, typer.Option(help="Directory of the results.", show_default=False)
        ] = None,
        fresh: Annotated[bool, typer.Option("--fresh", help="Forget finished cases.")] = False,
        jobs: Annotated[int, typer.Option(min=1, help="Number of worker processes.")] = 1,
        show: Annotated[bool, typer.Option("--list", help="Show the cases and stop.")] = False,
    ) -> None:
        directory = output or default_output(experiment, quick=quick)
        try:
            if show:
                _list_cases(experiment, directory, quick=quick)
                return
            status = _run(experiment, directory, quick=quick, fresh=fresh, jobs=jobs)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            status = 2
        except KeyboardInterrupt:
            print(
                "interrupted; finished cases are kept: run the same command again "
                "(without --fresh) to go on from there",
                file=sys.stderr,
            )
            status = INTERRUPTED
        raise typer.Exit(status)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=experiment.description)(main)
    app(args=None if arguments is None else list(arguments))
    sys.exit(0)


def default_output(experiment: Experiment, *, quick: bool) -> Path:
    """Return the directory of the results: beside the script, or in ``experiments`` here."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    parent = Path(script).parent if script else Path("experiments")
    return parent / "results" / experiment.name / ("quick" if quick else "full")


def _run(experiment: Experiment, output: Path, *, quick: bool, fresh: bool, jobs: int) -> int:
    run = run_experiment(
        experiment, output, quick=quick, fresh=fresh, jobs=jobs, show_progress=True
    )
    print(run.table)
    print(
        f"{run.computed} cases computed, {run.reused} reused, {run.infeasible} infeasible, "
        f"{run.failed} failed; results in {output}",
        file=sys.stderr,
    )
    if run.note:
        print(run.note, file=sys.stderr)
    return 1 if run.failed else 0


def _list_cases(experiment: Experiment, output: Path, *, quick: bool) -> None:
    version = topoopt_version()
    for inputs in experiment.cases(quick=quick):
        path = case_path(output / "cases", experiment, inputs, version)
        try:
            finished = load_case(path, experiment, inputs, version) is not None
        except UnusableCaseError:
            finished = False
        print(f"{'finished' if finished else 'to do':<8}  {describe(inputs)}")
