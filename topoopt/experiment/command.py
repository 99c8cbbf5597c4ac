"""The command line of an experiment script, and what it shares with `topoopt experiment`."""

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from codesign_base import InputError
from topoopt.base.engine import LOCAL
from topoopt.base.option_groups import Options, option, takes
from topoopt.base.processes import usable_cores
from topoopt.experiment.cases import ScriptCase
from topoopt.experiment.declaration import Experiment, case_text
from topoopt.experiment.manifest import software_hash
from topoopt.experiment.run import run_experiment
from topoopt.experiment.scripts import DIRECTORY, script_of
from topoopt.experiment.store import STORE, open_store

INTERRUPTED = 130

RUN: Options = {
    "quick": option(bool, False, "Run the small grid.", "--quick"),
    "workers": option(
        int | None, None, "Cases at a time.", min=1, show_default="the cores of this machine"
    ),
    "engine": option(str, LOCAL, "local processes, ray on this machine, or ray://HOST:PORT."),
    "resume": option(bool, False, "Skip cases that this software finished before.", "--resume"),
    "stale": option(
        bool, False, "Resume, also from cases that other software finished.", "--stale"
    ),
    "output": option(
        Path | None, None, "Directory of all results.", "--output", "-o", show_default="results"
    ),
}
"""How an experiment is run."""


def run_from_command_line(experiment: Experiment) -> NoReturn:
    """Run an experiment as a script, and exit.

    The options are those of `topoopt experiment run`, and ``--list``, which shows the cases and
    stops. Progress goes to standard error, the table to standard output.

    Exit status: 0 if every case is ok or infeasible, 1 if a case failed, 2 on bad input, 130
    after Ctrl-C.

    Parameters
    ----------
    experiment : Experiment
    """

    @takes(RUN)
    def main(
        given: dict[str, Any],
        show: Annotated[bool, typer.Option("--list", help="Show the cases and stop.")] = False,
    ) -> None:
        script = script_of(experiment)
        directory = given.pop("output") or default_output()
        try:
            if show:
                _list_cases(experiment, script, directory, quick=given["quick"])
                return
            status = run_and_tell(experiment, script, directory, **given)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            status = 2
        raise typer.Exit(status)

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=experiment.description)(main)
    app()
    sys.exit(0)


def default_output() -> Path:
    """Return the directory of all results: beside the script, or in ``experiments`` here."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return (Path(script).parent if script else Path(DIRECTORY)) / "results"


def run_and_tell(
    experiment: Experiment,
    script: ScriptCase | None,
    output: Path,
    *,
    workers: int | None,
    **how: Any,
) -> int:
    """Run an experiment, print its table, and return the exit status.

    Parameters
    ----------
    experiment, script, output
        As in `run_experiment`.
    workers : int or None
        None: as many as there are cores.
    **how
        Further arguments of `run_experiment`.

    Returns
    -------
    int
        0; 1 if a case failed; 130 after Ctrl-C.
    """
    try:
        run = run_experiment(
            experiment, output, workers=usable_cores() if workers is None else workers,
            script=script, show_progress=True, **how,
        )  # fmt: skip
    except KeyboardInterrupt:
        print(
            "interrupted; finished cases are kept: run the same command with --resume to go on "
            "from there",
            file=sys.stderr,
        )
        return INTERRUPTED
    print(run.table)
    print(run.counts, file=sys.stderr)
    if run.note:
        print(run.note, file=sys.stderr)
    return 1 if run.failed else 0


def _list_cases(
    experiment: Experiment, script: ScriptCase | None, output: Path, *, quick: bool
) -> None:
    code = software_hash(experiment, script)
    cases = experiment.cases(quick=quick)
    finished = [False] * len(cases)
    if (output / STORE).is_file():  # a list leaves no files behind
        with open_store(output) as store:
            place = experiment.name, experiment.columns
            finished = [store.load(*place, inputs, code) is not None for inputs in cases]
    for inputs, done in zip(cases, finished, strict=True):
        print(f"{'finished' if done else 'to do':<8}  {case_text(inputs)}")
