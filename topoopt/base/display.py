"""How objects are shown: what makes their pages and texts registers itself, and objects ask here.

So a plan can be shown by modules that lie above it, without an arrow up.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, TypeVar

_T = TypeVar("_T")
Form = Literal["html", "answer", "text", "details"]
"""A fragment of HTML, for notebooks; or plain text: a few lines, at most 25, or all there is."""

_SHOWN_BY: dict[tuple[Form, type], Callable[[Any], str]] = {}
_PROVIDERS: dict[Form, list[str]] = {"html": [], "answer": [], "text": [], "details": []}


def provide(form: Form, module: str) -> None:
    """Name a module that registers what shows objects; it is imported when it is first needed.

    Parameters
    ----------
    form : {"html", "answer", "text", "details"}
    module : str
        Its full name.
    """
    if module not in _PROVIDERS[form]:
        _PROVIDERS[form].append(module)


def register(form: Form, kind: type[_T], show: Callable[[_T], str]) -> None:
    """Say what shows the objects of a class.

    Parameters
    ----------
    form : {"html", "answer", "text", "details"}
    kind : type
        The class itself; objects of its subclasses are shown alike.
    show : callable
        Shows one object.
    """
    _SHOWN_BY[form, kind] = show


def displayed(form: Form, what: object) -> str:
    """Return an object as it is to be shown.

    Parameters
    ----------
    form : {"html", "answer", "text", "details"}
    what : object

    Returns
    -------
    str

    Raises
    ------
    LookupError
        If nothing is registered for its class.
    """
    for provider in _PROVIDERS[form]:
        import_module(provider)
    for kind in type(what).__mro__:
        if (form, kind) in _SHOWN_BY:
            return _SHOWN_BY[form, kind](what)
    raise LookupError(f"nothing shows a {type(what).__name__} as {form}; register what does")
