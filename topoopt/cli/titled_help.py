"""Help as plain text under titles, which takes no library for terminals to show."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from codesign_base import InputError

WIDTH = {"max_content_width": 100}
"""Of the help on a wide terminal, for ``context_settings``."""


class TitledCommand(TyperCommand):
    """A command whose options are shown under the titles of their ``rich_help_panel``.

    Options that take one value are refused where they are given twice.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; the parser takes the last value of several without a word."""
        words = list(args)
        left = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            _refuse_repeated(self.make_parser(ctx).parse_args(words)[2])
        return left

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; typer would load rich, which takes longer than the rest of it."""
        super(TyperCommand, self).format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options, those without a title first."""
        _write_parameters(self.get_params(ctx), ctx, formatter)


class TitledGroup(TyperGroup):
    """A group whose commands are shown under the titles of their ``rich_help_panel``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, as commands do."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options, then commands."""
        _write_parameters(self.get_params(ctx), ctx, formatter)
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        shown: list[Any] = [each for each in commands if each is not None and not each.hidden]
        rows = [(each.name, each.get_short_help_str(1000)) for each in shown]
        longest = max((len(name) for name, _ in rows), default=0)
        _write_titled(
            (
                (getattr(each, "rich_help_panel", None) or "Commands", (name.ljust(longest), text))
                for each, (name, text) in zip(shown, rows, strict=True)
            ),
            formatter,
        )


def _refuse_repeated(parameters: Iterable[Any]) -> None:
    """Refuse an option of one value that occurs several times; flags may repeat themselves."""
    for each, times in Counter(parameters).items():
        single = each.param_type_name == "option" and not each.multiple
        if times > 1 and single and (each.secondary_opts or not each.is_flag):
            names = "/".join(
                max(opts, key=len) for opts in (each.opts, each.secondary_opts) if opts
            )
            often = "twice" if times == 2 else f"{times} times"
            raise InputError(f"{names} is given {often}; give it once")


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    titled = []
    for each in parameters:
        record = each.get_help_record(ctx)
        if record is not None:
            of_kind = "Arguments" if each.param_type_name == "argument" else "Options"
            titled.append((getattr(each, "rich_help_panel", None) or of_kind, record))
    first = ("Arguments", "Options")
    titled.sort(key=lambda row: first.index(row[0]) if row[0] in first else len(first))
    _write_titled(titled, formatter)


def _write_titled(titled: Iterable[tuple[str, tuple[str, str]]], formatter: Any) -> None:
    """Write rows under their titles, in the order in which titles are first met."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for title, row in titled:
        sections.setdefault(title, []).append(row)
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)
