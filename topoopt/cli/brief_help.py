"""Help that shows what is needed first, and all of it where that is asked for."""

from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand

from topoopt.base.option_groups import Options, option

FIRST = frozenset({
    "model", "servers", "degree", "bandwidth", "device", "gpus", "batch", "global_batch", "seed",
    "effort", "fabrics", "output", "save_job", "details", "as_json", "help", "help_all",
})  # fmt: skip
"""Parameters that brief help shows, of commands that have many more."""

_ALL = f"{__name__}.all"


class BriefCommand(TyperCommand):
    """A command that takes `HELP`: its ``--help`` shows the first options, ``--help-all`` all."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, of the first options only unless ``--help-all`` asked for it."""
        shown = self
        if not ctx.meta.get(_ALL):
            shown = copy(self)
            shown.params = [each for each in self.params if each.name in FIRST]
            shown.help = f"{self.help}\n\nMore options: {ctx.command_path} --help-all"
        TyperCommand.format_help(shown, ctx, formatter)


def _show_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta[_ALL] = True
        print(context.get_help())
        raise typer.Exit


HELP: Options = {
    "help_all": option(
        bool, False, "Show every option and exit.", "--help-all", is_eager=True,
        callback=_show_all,
    )
}  # fmt: skip
"""The option that commands with many options take."""
