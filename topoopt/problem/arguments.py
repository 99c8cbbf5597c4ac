"""Arguments of another kind than was meant, refused in words before they fail deep inside."""

from collections.abc import Iterable
from numbers import Real
from types import UnionType
from typing import Any

from codesign_base import InputError


def check_kind(name: str, value: Any, kind: type | UnionType, instead: str) -> None:
    """Refuse an argument that is no ``kind``.

    Parameters
    ----------
    name : str
        Of the argument.
    value : object
    kind : type or union of types
    instead : str
        What to give, as the end of "give ...".

    Raises
    ------
    InputError
    """
    if not isinstance(value, kind):
        raise InputError(f"{name} is {told(value)}; give {instead}")


def check_number(name: str, value: Any, instead: str) -> None:
    """Refuse an argument that is no number above zero; infinity is one, a text is none.

    Parameters and errors are those of `check_kind`.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
        raise InputError(f"{name} is {told(value)}; give {instead}")


def several(name: str, values: Any, instead: str) -> tuple[Any, ...]:
    """Return the values of an argument that holds several; refuse a single one, or a text.

    Parameters
    ----------
    name : str
    values : object
    instead : str
        What to give, as the end of "give ...".

    Returns
    -------
    tuple

    Raises
    ------
    InputError
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} is {told(values)}; give {instead}")
    return tuple(values)


def told(value: object) -> str:
    """Return a value as an error names it: itself if it is short, else what it is."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"of type {type(value).__name__}"
