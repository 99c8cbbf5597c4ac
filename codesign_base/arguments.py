"""Arguments of another kind than was meant, refused in words before they fail deep inside."""

import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from enum import Enum
from functools import wraps
from numbers import Integral, Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar

from codesign_base.errors import InputError

_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")
_Member = TypeVar("_Member", bound=Enum)


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


def check_flags(what: str, record: Any) -> None:
    """Refuse a dataclass with another value than True or False where a field's default is one.

    Parameters
    ----------
    what : str
        Begins the message.
    record : dataclass instance

    Raises
    ------
    InputError
    """
    for each in fields(record):
        if isinstance(each.default, bool):
            check_kind(f"{what}: {each.name}", getattr(record, each.name), bool, "True or False")


def check_number(name: str, value: Any) -> None:
    """Refuse an argument that is no number above zero; infinity is one, a text is none.

    Parameters
    ----------
    name : str
        Of the argument.
    value : object

    Raises
    ------
    InputError
    """
    if not (is_number(value) and value > 0):
        raise InputError(f"{name} is {told(value)}; give a positive number")


def whole(name: str, value: Any, instead: str) -> int:
    """Return an argument that is a whole number; numpy's count, truth values and fractions do not.

    Parameters and errors are those of `check_kind`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{name} is {told(value)}; give {instead}")
    return int(value)


def member(name: str, value: Any, members: type[_Member]) -> _Member:
    """Return what a value names of an enumeration.

    Parameters
    ----------
    name : str
        Of the argument.
    value : object
        A member, or its value.
    members : enumeration

    Raises
    ------
    InputError
        If it names none.
    """
    try:
        return members(value)
    except ValueError:
        *others, last = (str(each.value) for each in members)
        raise InputError(f"{name} is {told(value)}; choose {', '.join(others)} or {last}") from None


def check_fractions(what: str, record: Any, names: Iterable[str]) -> None:
    """Refuse a record with a field that is no fraction above zero.

    Parameters
    ----------
    what : str
        Begins the message.
    record : object
    names : iterable of str
        Of its fields.

    Raises
    ------
    InputError
    """
    for name in names:
        value = getattr(record, name)
        if not (is_number(value) and 0 < value <= 1):
            raise InputError(
                f"{what}: {name} is {told(value)}; give a fraction above 0 and at most 1"
            )


def check_not_negative(
    what: str, record: Any, names: Iterable[str], instead: str = "zero or more"
) -> None:
    """Refuse a record with a field that is no finite number of zero or more.

    Parameters
    ----------
    what, record, names
        As in `check_fractions`, with its error.
    instead : str
        What to give, as the end of "give ...".
    """
    for name in names:
        value = getattr(record, name)
        if not (is_number(value) and 0 <= value < float("inf")):
            raise InputError(f"{what}: {name} is {told(value)}; give {instead}")


def is_number(value: object) -> bool:
    """Whether this is a real number; a text is none, and neither is True."""
    return isinstance(value, Real) and not isinstance(value, bool)


def python_numbers(record: Any) -> None:
    """Put Python's numbers in place of NumPy's and others, which no file of a plan can hold.

    Parameters
    ----------
    record : dataclass instance
        A frozen one, too; its fields, and tuples and lists in them.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from fractions import Fraction
    >>> @dataclass(frozen=True)
    ... class Record:
    ...     share: float
    ...     def __post_init__(self):
    ...         python_numbers(self)
    >>> Record(Fraction(1, 2))
    Record(share=0.5)
    """
    for each in fields(record):
        object.__setattr__(record, each.name, python_number(getattr(record, each.name)))


def python_number(value: Any) -> Any:
    """Return a number of NumPy as one of Python, numbers in a list likewise, all else as it is."""
    if type(value) in (tuple, list):
        return type(value)(map(python_number, value))
    if type(value) in (int, float) or not is_number(value):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def of_python_numbers(
    function: Callable[_Parameters, _Returned],
) -> Callable[_Parameters, _Returned]:
    """Return a function that gets every number as one of Python (`python_number`)."""

    @wraps(function)
    def called(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Returned:
        numbers = {name: python_number(value) for name, value in named.items()}
        return function(*map(python_number, arguments), **numbers)

    return called


def check_path(name: str, value: Any) -> None:
    """Refuse what cannot name a file or a directory.

    Parameters and errors are those of `check_kind`.
    """
    check_kind(name, value, str | os.PathLike, "its path, as a text or a pathlib.Path")


def check_called(name: str, value: Any) -> None:
    """Refuse an argument that is to be called, and cannot be; None is none.

    Parameters and errors are those of `check_kind`.
    """
    if not (value is None or callable(value)):
        raise InputError(f"{name} is {told(value)}; give a function, or leave it out")


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
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"{name} is {told(values)}; give {instead}")
    return tuple(values)


def told(value: object) -> str:
    """Return a value as an error names it: itself if it is short, else what it is."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"of type {type(value).__name__}"
