"""`topoopt experiment`: lists and runs the experiment scripts of a checkout."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from codesign_base import InputError
from topoopt.base.option_groups import takes
from topoopt.base.text import table_lines
from topoopt.cli import common
from topoopt.cli.titled_help import TitledCommand, TitledGroup

# The options of experiments need nothing heavy, but scripts are loaded in the commands only.
from topoopt.experiment.command import RUN

experiment_app = typer.Typer(
    cls=TitledGroup,
    help="Reproduce the tables and figures of the papers.",
)
From = Annotated[
    Path | None,
    typer.Option("--from", help="Directory of the scripts.", show_default="experiments"),
]


@experiment_app.command("list", cls=TitledCommand)
def list_command(directory: From = None, as_json: common.AsJson = False) -> None:
    """List the experiments, the cases of their grids, and what they reproduce or extend."""
    from topoopt.experiment.scripts import find_scripts

    scripts = find_scripts(directory)
    entries = [
        {
            "name": name,
            "script": script.path.name,
            "quick_cases": len(script.experiment.cases(quick=True)),
            "full_cases": len(script.experiment.cases()),
            "source": script.experiment.source,
            "description": script.experiment.description,
        }
        for name, script in scripts.items()
    ]
    if as_json:
        common.print_json(entries)
        return
    keys = ("name", "quick_cases", "full_cases", "source")
    rows: list[tuple[str, ...]] = [("experiment", "quick", "full", "source")]
    rows += [tuple(str(entry[key]) for key in keys) for entry in entries]
    print("\n".join(table_lines(rows, left=(0, 3))))


@experiment_app.command("run", cls=TitledCommand)
@takes(RUN)
def experiment_run_command(
    name: Annotated[str, typer.Argument(help="One that `list` shows, or all.")],
    given: dict[str, Any],
    directory: From = None,
) -> None:
    """Compute an experiment's cases, and write its tables, figures and manifest.

    Every finished case is kept at once, so that --resume goes on after a kill at any moment.

    Example: topoopt experiment run dedicated-cluster --quick
    """
    from topoopt.experiment.command import INTERRUPTED, run_and_tell
    from topoopt.experiment.scripts import DIRECTORY, find_scripts

    scripts = find_scripts(directory)
    if name != "all" and name not in scripts:
        raise InputError(f"experiment is {name!r}; choose all, {', '.join(scripts)}")
    chosen = list(scripts) if name == "all" else [name]
    common.refuse_dash(given["output"], "folder")
    results = given.pop("output") or (directory or Path(DIRECTORY)) / "results"
    worst = 0
    for number, each in enumerate(chosen, start=1):
        script = scripts[each]
        if len(chosen) > 1:
            print(f"== {each} ({number} of {len(chosen)})", file=sys.stderr, flush=True)
        status = run_and_tell(script.experiment, script.case, results, **given)
        worst = max(worst, status)
        if status == INTERRUPTED:
            break
    # Not typer's exit: after Ctrl-C that would say that nothing was written, but cases are kept.
    sys.exit(worst)
