"""What a notebook shows of an object: pages register themselves, and objects ask here.

So a plan can be shown by pages that lie above it, without an arrow up.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

_T = TypeVar("_T")

_PAGES: dict[type, Callable[[Any], str]] = {}
_PROVIDERS: list[str] = []


def provide_pages(module: str) -> None:
    """Name a module that registers pages; it is imported when one is first asked for.

    Parameters
    ----------
    module : str
        Its full name.
    """
    if module not in _PROVIDERS:
        _PROVIDERS.append(module)


def register_page(kind: type[_T], page: Callable[[_T], str]) -> None:
    """Say what shows the objects of a class.

    Parameters
    ----------
    kind : type
        The class itself; objects of its subclasses are shown alike.
    page : callable
        Makes a fragment of HTML of one object.
    """
    _PAGES[kind] = page


def html_of(shown: object) -> str:
    """Return the fragment of HTML that shows an object.

    Parameters
    ----------
    shown : object

    Returns
    -------
    str

    Raises
    ------
    LookupError
        If no page is registered for its class.
    """
    for provider in _PROVIDERS:
        import_module(provider)
    for kind in type(shown).__mro__:
        if kind in _PAGES:
            return _PAGES[kind](shown)
    raise LookupError(f"no page shows a {type(shown).__name__}; register one")
