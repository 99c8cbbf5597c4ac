"""Help that shows what is needed first, and all of it where that is asked for."""

import inspect
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any

import typer

from topoopt.base.option_groups import option
from topoopt.cli.titled_help import TitledCommand

_ALWAYS = ("output", "as_json", "help", "help_all")
_PLANS = ("model", "servers", "degree", "bandwidth", "device", "gpus", "batch", "global_batch",
          "seed", "effort")  # fmt: skip
_CLOS = ("tors", "spines", "nics", "fail_spines", "fail_link", "jobs", "traffic", "random",
         "seed")  # fmt: skip
FIRST = {
    "plan": (*_PLANS, "save_job", "details"),
    "pareto": _PLANS,
    "compare": (*_PLANS, "fabrics"),
    "simulate": ("file", "fabric", "bandwidth", "latency", "routing", "model", "jitter", "compat",
                 "seed", "timeline"),
    "topology": ("name", "servers", "degree", "bandwidth", "ports", "traffic", "dims", "group",
                 "oversubscription", "selection", "seed"),
    "bandwidth": ("workload", "network", "budget", "objective", "constraint", "cost", "rates",
                  "sensitivity", "search_shapes", "search_parallelism", "top"),
    "clos route": (*_CLOS, "method", "tables"),
    "clos run": (*_CLOS, "bandwidth", "epochs", "methods"),
}  # fmt: skip
"""What brief help shows of each command that has more options than a screen holds."""

_ALL = f"{__name__}.all"


class BriefCommand(TitledCommand):
    """A command whose ``--help`` shows its first options only, and ``--help-all`` every one."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, of the first options only unless ``--help-all`` asked for it."""
        shown = self
        if not ctx.meta.get(_ALL):
            # The program may be several words: python -m topoopt.
            program = ctx.find_root().command_path
            first = {*_ALWAYS, *FIRST[ctx.command_path.removeprefix(program).strip()]}
            shown = copy(self)
            shown.params = [each for each in self.params if each.name in first]
            shown.help = f"{self.help}\n\nMore options: {ctx.command_path} --help-all"
        TitledCommand.format_help(shown, ctx, formatter)


def with_brief_help(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes ``--help-all``, too.

    Parameters
    ----------
    command : callable
        Of a command line, as `typer.Typer.command` takes it.

    Returns
    -------
    callable
    """

    @wraps(command)
    def run(**values: Any) -> None:
        del values["help_all"]
        command(**values)

    kind, default = option(
        bool, False, "Show every option and exit.", "--help-all", is_eager=True, callback=_show_all
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.signature(command)
    every = [
        *(each.replace(kind=keyword) for each in signature.parameters.values()),
        inspect.Parameter("help_all", keyword, default=default, annotation=kind),
    ]
    run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every}
    return run


def _show_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta[_ALL] = True
        print(context.get_help())
        raise typer.Exit
