"""The typer application, and what happens to errors."""

import errno
import gc
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import cast

import typer

from codesign_base import InputError
from codesign_base.collisions import distribution_conflicts
from topoopt.base.version import installed_version
from topoopt.cli.bandwidth_command import bandwidth_command
from topoopt.cli.brief_help import FIRST, BriefCommand, with_brief_help
from topoopt.cli.clos_command import clos_app
from topoopt.cli.collective_command import collective_command
from topoopt.cli.compare_command import compare_command
from topoopt.cli.deploy_command import deploy_command
from topoopt.cli.experiment_command import experiment_app
from topoopt.cli.export_command import export_command
from topoopt.cli.models_command import models_command
from topoopt.cli.pareto_command import pareto_command
from topoopt.cli.plan_command import plan_command
from topoopt.cli.profile_command import profile_command
from topoopt.cli.report_command import report_command
from topoopt.cli.route_command import route_command
from topoopt.cli.simulate_command import simulate_command
from topoopt.cli.space_command import space_command
from topoopt.cli.titled_help import WIDTH, TitledCommand, TitledGroup
from topoopt.cli.topology_command import topology_command
from topoopt.cli.validate_command import validate_command
from topoopt.cli.verify_command import verify_command
from topoopt.cli.what_if_command import what_if_command
from topoopt.cli.wire_command import wire_command

app = typer.Typer(
    name="topoopt",
    help="Co-design parallelization strategy, topology and routing of AI training clusters.",
    cls=TitledGroup,
    context_settings=WIDTH,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
# Titles in `topoopt --help`, in the order in which their commands are registered.
_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Plan": {
        "plan": plan_command,
        "space": space_command,
        "pareto": pareto_command,
        "compare": compare_command,
        "models": models_command,
        "profile": profile_command,
    },
    "Build": {"deploy": deploy_command},
    "Look closer": {
        "report": report_command,
        "verify": verify_command,
        "simulate": simulate_command,
        "what-if": what_if_command,
        "export": export_command,
    },
    "Networks": {
        "wire": wire_command,
        "topology": topology_command,
        "route": route_command,
        "collective": collective_command,
        "bandwidth": bandwidth_command,
    },
    "Experiments": {"validate": validate_command},
}
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        if _name in FIRST:
            app.command(_name, cls=BriefCommand, rich_help_panel=_panel)(with_brief_help(_command))
        else:
            app.command(_name, cls=TitledCommand, rich_help_panel=_panel)(_command)
app.add_typer(clos_app, name="clos", rich_help_panel="Networks")
app.add_typer(experiment_app, name="experiment", rich_help_panel="Experiments")
# Of typer, whatever it builds on: what is wrong about words of a command line.
_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[1])


def _version(value: bool) -> None:
    if value:
        print(installed_version())
        raise typer.Exit


_FIRST_STEPS = """\
topoopt finds how to split a training job over servers, how to wire them and how to route. Try:

  topoopt plan dlrm-16 --servers 16 --degree 4 --bandwidth 100Gbps -o plan.json
  topoopt report plan.json -o plan.html
  topoopt plan llama3-8b --servers 8 --degree 4 --bandwidth 400Gbps \\
    --global-batch 128

topoopt models lists the models that are known by name, topoopt --help all commands,
topoopt plan --help what a plan can be asked."""


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Answer --version before any command; without a command say what to try first."""
    if context.invoked_subcommand is None:
        print(_FIRST_STEPS)


# Objects made, less those freed, after which the interpreter looks for garbage among the young.
_GARBAGE = 10_000


# What standard output says where there is no room left.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _interrupted(error: BaseException) -> bool:
    """Say whether Ctrl-C is behind an error: compiled code wraps it, often several times."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    return cause is not None


# Names that plans and Megatron-LM have for what options ask for.
_SHORT = {
    "--tp": "--tensor", "--tensor-model-parallel-size": "--tensor",
    "--pp": "--pipeline", "--pipeline-model-parallel-size": "--pipeline",
    "--cp": "--context", "--context-parallel-size": "--context",
    "--ep": "--expert", "--expert-model-parallel-size": "--expert",
    "--etp": "--expert-tensor", "--expert-tensor-parallel-size": "--expert-tensor",
    "--vpp": "--virtual-stages", "--num-virtual-stages-per-pipeline-rank": "--virtual-stages",
    "--mbs": "--microbatch", "--micro-batch-size": "--microbatch",
    "--gbs": "--global-batch", "--global-batch-size": "--global-batch",
    "--seq-length": "--sequence",
}  # fmt: skip
# What typer says of words that are none, without the words, and what was needed.
_NUMBERS = {"valid integer": "a whole number, such as 4", "valid number": "a number, such as 0.5"}


def _word_after(names: Sequence[str]) -> str:
    """Return the last word that the command line gives for an option, by any of its names."""
    words = sys.argv[1:]
    found = ""
    for place, word in enumerate(words):
        name, separator, value = word.partition("=")
        if name in names:
            found = value if separator else "".join(words[place + 1 : place + 2])
    return found


def _usage_message(error: Exception) -> str:
    """Return one sentence about a word that the command line does not know."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    word = getattr(error, "option_name", "")
    names = [name for each in getattr(command, "params", ()) for name in each.opts]
    begun = [name for name in names if name == _SHORT.get(word)]
    begun += [name for name in names if len(word) > len("--") and name.startswith(word)]
    if begun:
        # What a word begins is meant rather than what looks like it.
        error.possibilities = begun  # type: ignore[attr-defined]
    message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    parameter = getattr(error, "param", None)
    for kind, needed in _NUMBERS.items():
        if parameter is not None and kind in message:
            option = parameter.opts[0]
            message = f"{option} is {_word_after(parameter.opts)!r}; give {needed}"
    # "No such command 'plna'. Did you mean 'plan'?" is two sentences.
    message = message.replace(". Did you mean", ", did you mean").rstrip("?")
    return f"{message}; see {context.command_path} --help"


def _misplaced() -> str:
    from topoopt.cli.misplaced import misplaced_file

    return misplaced_file(sys.argv[1:])


def _told(error: InputError) -> str:
    from topoopt.cli.given import in_options

    return in_options(error)


def main() -> None:
    """Run the command line; wrong input ends in one sentence and exit status 2.

    Raises
    ------
    KeyboardInterrupt
        Where Ctrl-C left no result; `topoopt.cli.main` says so.
    """
    # Commands leave hardly any cycles, and looking for them took 4 % of a small plan's time.
    gc.set_threshold(_GARBAGE)
    if isinstance(sys.stdout, TextIOWrapper):
        # Of names that this terminal has no letters for, or that are no text.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except InputError as error:
        message = _misplaced() or _told(error)
        print(f"error: {message}", file=sys.stderr)
        for conflict in distribution_conflicts():
            print(f"warning: {conflict}", file=sys.stderr)
        sys.exit(2)
    except _USAGE_ERROR as error:
        print(f"error: {_misplaced() or _usage_message(error)}", file=sys.stderr)
        sys.exit(2)
    except SystemError as error:
        if not _interrupted(error):
            raise
        raise KeyboardInterrupt from error
    except MemoryError as error:
        reason = " ".join(str(error).split()) or "none is left"
        print(
            f"error: not enough memory ({reason}); give a smaller job, network or number of "
            "repetitions",
            file=sys.stderr,
        )
        sys.exit(2)
    except BrokenPipeError:
        # The reader (head, less) has what it wanted.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        reason = (error.strerror or type(error).__name__).lower()
        print(
            f"error: the answer cannot be written ({reason}); send standard output elsewhere",
            file=sys.stderr,
        )
        sys.stdout = None  # which would be tried again at the end
        sys.exit(2)
    # typer makes this of Ctrl-C, without a word; a search that has a plan returns it.
    if status == 130:
        raise KeyboardInterrupt
    sys.exit(status)
