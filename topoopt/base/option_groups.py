"""Groups of options of the command line, each declared once for all commands that take it."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from typing import Annotated, Any, get_args

import typer

Options = Mapping[str, tuple[Any, Any]]
"""A group: of each option its annotated type, and its default."""


def option(kind: Any, default: Any, help_text: str, *names: str, **more: Any) -> tuple[Any, Any]:
    """Return an entry of a group: an annotated type, and its default (``...``: it is required)."""
    return Annotated[kind, typer.Option(*names, help=help_text, **more)], default


def in_panel(name: str, group: Options) -> Options:
    """Return a group whose options are shown under a title in the help, unless they have one."""
    found = {}
    for key, (annotation, default) in group.items():
        kind, info = get_args(annotation)
        titled = copy(info)
        titled.rich_help_panel = info.rich_help_panel or name
        found[key] = (Annotated[kind, titled], default)
    return found


def takes(*groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add groups of options to a command.

    Parameters
    ----------
    *groups : mapping of str to (annotation, default)

    Returns
    -------
    callable
        Decorates a command, which gets the values of the groups as its argument ``given``.
    """

    def added(command: Callable[..., None]) -> Callable[..., None]:
        shared = {name: option for group in groups for name, option in group.items()}
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.name != "given"]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is ... else default,
                annotation=annotation,
            )
            for name, (annotation, default) in shared.items()
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in shared}
            command(**values, given=given)

        keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        # Help says first what must be given.
        every = sorted((*keyword, *more), key=lambda p: p.default is not inspect.Parameter.empty)
        run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in every}
        return run

    return added
