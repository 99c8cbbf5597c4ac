"""Options that several commands share, and progress on standard error."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.jit import compiled_cache_is_warm
from codesign_base.paths import exists, is_directory, is_file, names_model_file
from topoopt.base.atomic import check_writable
from topoopt.base.interrupts import interrupts_between_steps
from topoopt.base.progress import Progress, ProgressCallback
from topoopt.problem.units import format_time

# A budget in seconds has no number of steps to count towards.
_UNLIMITED = 2**60

if TYPE_CHECKING:
    from parallelism.graph import ModelGraph
    from topoopt.problem.prices import PriceTable


def model_names(incomplete: str) -> list[str]:
    """Return the presets that begin with what was typed, for the shell's completion."""
    from parallelism.models import PRESETS
    from parallelism.transformers.presets import TRANSFORMERS

    return [name for name in sorted({*PRESETS, *TRANSFORMERS}) if name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Argument(
        autocompletion=model_names,
        help="A preset (`topoopt models` lists them), an operator-graph file or a config.json.",
    ),
]
Servers = Annotated[int, typer.Option(help="Number of servers.")]
Bandwidth = Annotated[str, typer.Option(help="Speed of a port each way, with its unit: 100Gbps.")]
Ports = Annotated[
    str,
    typer.Option(
        help="directed: a port's two fibres may go to different servers; "
        "bidirectional: they go to the same one."
    ),
]
Latency = Annotated[str, typer.Option(help="Time for one hop, with its unit.")]
Gpus = Annotated[int, typer.Option("--gpus-per-server", help="GPUs of each server.")]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch-per-gpu",
        help="Samples of each GPU in one iteration.",
        show_default="the model's own",
    ),
]
Prices = Annotated[
    Path | None, typer.Option(help="Component prices (JSON).", show_default="built-in table")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def was_given(context: typer.Context, name: str) -> bool:
    """Say whether a parameter is from the command line or a job file, rather than its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")


def refuse_given(context: typer.Context, names: Iterable[str], reason: str) -> None:
    """Refuse options that would count for nothing.

    Parameters
    ----------
    context : typer.Context
        Of the command.
    names : iterable of str
        Names of its parameters.
    reason : str
        Why they do not count, and the remedy: what follows "--option is value, but", or "--flag
        is given, but".

    Raises
    ------
    InputError
        Naming the first on the command line or in a job file, in the order of the command's help.
    """
    wanted = set(names)
    for parameter in context.command.params:
        name = parameter.name
        if name is None or name not in wanted:
            continue
        if was_given(context, name):
            value = context.params[name]
            # Of --option and --no-option the one that was given.
            words = parameter.secondary_opts if value is False else parameter.opts
            said = "given" if isinstance(value, bool) else value
            raise InputError(f"{words[0]} is {said}, but {reason}")


def read_model(model: str) -> "ModelGraph":
    """Return a preset, or what a model file or a config.json describes."""
    from parallelism.model_file import load_model
    from parallelism.models import get_model

    check_model_name(model)
    return load_model(Path(model)) if names_model_file(model) else get_model(model)


def check_model_name(model: str) -> None:
    """Refuse a folder, and the name of a model that somebody would have to download.

    Raises
    ------
    InputError
    """
    if not model:
        raise InputError("model is empty; give a name that topoopt models lists, or a file")
    path = Path(model)
    if is_directory(path):
        if not exists(path / "config.json"):
            raise InputError(f"model {model!r} is a folder without config.json; name a file in it")
        if not names_model_file(model):
            raise InputError(f"model {model!r} is a folder; give {path / 'config.json'}")
    named = path.suffix.lower() in (".yaml", ".yml", ".json")
    if model.count("/") == 1 and not named and not exists(path):
        raise InputError(
            f"model {model!r} is no file, and nothing is downloaded; give the config.json of that "
            "model, or a name that topoopt models lists"
        )


def make_prices(path: Path | None) -> "PriceTable | None":
    """Return the user's price table, if one is given."""
    if path is None:
        return None
    from topoopt.problem.prices import load_prices

    return load_prices(path)


@contextmanager
def kept_if_interrupted(what: str) -> Iterator[None]:
    """Say what was written before Ctrl-C ended a command, rather than that nothing was.

    Parameters
    ----------
    what : str
        What follows "interrupted: there is no result yet; "; empty if nothing was written.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not what:
            raise
        print(f"interrupted: there is no result yet; {what}", file=sys.stderr)
        sys.exit(130)


def print_json(document: Any) -> None:
    """Print a JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


@contextmanager
def progress_reports(quiet: bool) -> Iterator[ProgressCallback]:
    """Show a search's progress on standard error, and hold Ctrl-C until the next report.

    Yields
    ------
    callable
        To be given to the search.
    """
    with _shown(quiet) as shown, interrupts_between_steps(shown) as progress:
        yield progress


@contextmanager
def _shown(quiet: bool) -> Iterator[ProgressCallback | None]:
    """A live line on a terminal, else a few lines."""
    if quiet:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with first_run_notice() as started:
        if console.is_terminal:
            with console.status("starting") as status:

                def report_always(report: Progress) -> None:
                    started()
                    status.update(_line(report))

                yield report_always
            return
        seen: dict[str, int] = {}

        def report_rarely(report: Progress) -> None:
            started()
            milestone = _milestone(report)
            if milestone is not None and seen.get(report.stage) != milestone:
                seen[report.stage] = milestone
                print(_line(report), file=sys.stderr, flush=True)

        yield report_rarely


@contextmanager
def shown_steps(doing: str, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Show on a terminal's standard error what work that goes through named steps is at.

    Yields
    ------
    callable or None
        To be called with the name of each step before it begins.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with console.status(f"{doing} ...") as status:
        yield lambda name: status.update(f"{doing} {name}")


@contextmanager
def first_run_notice(kernels: str = "*/*") -> Iterator[Callable[[], None]]:
    """Say that kernels are being compiled, if that is why nothing happens at first.

    A wrong option is refused within the grace time, so that its message comes alone.

    Parameters
    ----------
    kernels : str
        Which kernels, see `codesign_base.jit.compiled_cache_is_warm`.

    Yields
    ------
    callable
        To be called when the first result is there.
    """
    from threading import Timer

    if compiled_cache_is_warm(kernels):
        yield lambda: None
        return
    notice = Timer(1.0, _say, ["first run: compiling kernels (up to a minute, once)"])
    notice.daemon = True
    notice.start()
    try:
        yield notice.cancel
    finally:
        notice.cancel()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _milestone(report: Progress) -> int | None:
    """Return a number that changes when a line is due: every tenth, and when steps have doubled.

    Scoring the starts and the fabrics compared with is short, and gets one line each.
    """
    if report.stage == "start":
        # If no strategy fits, the error says so.
        return 0 if report.done == report.total and report.best < float("inf") else None
    if report.stage == "restarts":
        return report.done
    if report.stage != "search":
        return 0
    doubled = (report.done // 100).bit_length()
    limited = 0 < report.total < _UNLIMITED
    return doubled + (10 * report.done // report.total if limited else 0)


def _line(report: Progress) -> str:
    if report.stage.startswith("design "):
        return report.stage
    best = format_time(report.best) if report.best < float("inf") else "none fits yet"
    total = f" of at most {report.total}" if 0 < report.total < _UNLIMITED else ""
    stage = {
        "start": "starting strategies",
        "fewer servers": "search on fewer servers",
        "search": "search",
        "packet moves": "moves scored by packet trains",
        "packet ranking": "ranking by packet trains",
        "packet trains": "confirming with packet trains",
        "failures": "failures",
        "layouts": "estimating layouts",
        "placements": "simulating layouts",
        "topologies": "building topologies",
        "restarts": "searches",
        "schedules": "choosing a schedule",
    }.get(report.stage, f"comparing with {report.stage}")
    gained = ""
    if report.gained is not None:
        gained = f", {100.0 * report.gained:.2g} % in the last tenth of the work"
    if report.stage == "failures":  # nothing is sought
        return f"{stage}: {report.done}{total}"
    return f"{stage}: step {report.done}{total}, best {best}{gained}"


def refuse_dash(path: Path | None, kind: str) -> None:
    """Refuse ``-``, which elsewhere means standard output, as the name of an output.

    Parameters
    ----------
    path : Path or None
        None stands for an output that is not wanted.
    kind : str
        What it is: file or folder.

    Raises
    ------
    InputError
        If it is called ``-``.
    """
    if path is not None and str(path) == "-":
        raise InputError(f"output is '-', but {kind}s do not go to standard output; name a {kind}")


def check_outputs(*paths: Path | None, inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuse output files that cannot be written before the work is done.

    Parameters
    ----------
    *paths : Path or None
        None stands for an output that is not wanted.
    inputs : iterable of (Path or str or None)
        What is read; names that are no file are passed over.

    Raises
    ------
    InputError
        If a directory does not exist or takes no files, a path is a directory or may not be
        written or is called ``-``, two outputs are the same file, or an output would overwrite an
        input.
    """
    given = [path for path in paths if path is not None]
    for path in given:
        refuse_dash(path, "file")
        if is_directory(path):
            raise InputError(f"output {path} is a directory; give a file name")
        if not is_directory(path.parent):
            raise InputError(
                f"output {path}: directory {path.parent} does not exist; create it first"
            )
        check_writable(path)
    if len({path.resolve() for path in given}) < len(given):
        raise InputError(f"two outputs are written to {given[0]}; give each its own file")
    for source in inputs:
        if source is None or not is_file(source):
            continue
        for path in given:
            if exists(path) and path.samefile(source):
                raise InputError(f"output {path} is also read; give it another name")
