"""Reads the YAML files of this room; whatever is wrong with them is one `InputError`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codesign_base import InputError
from parallelism.reading import kind_in_file, parse_yaml, read_text


def read_yaml(path: str | Path, what: str) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; repeated keys are refused.

    Parameters
    ----------
    path : str or Path
    what : str
        What the file should be, for the message ("network file").

    Returns
    -------
    dict

    Raises
    ------
    InputError
        If the file cannot be read, is not YAML, repeats a key or is no mapping.
    """
    where = f"{what} {str(path)!r}"
    data = parse_yaml(read_text(path, what), where)
    if not isinstance(data, dict):
        raise InputError(f"{where} holds {kind_in_file(data)}; give fields with values")
    return data


def check_fields(
    data: Mapping[Any, Any], where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Refuse missing and unknown fields.

    Parameters
    ----------
    data : mapping
    where : str
        The place, for the message.
    needed, optional : tuple of str

    Raises
    ------
    InputError
        Naming the first field that is missing or unknown.
    """
    known = (*needed, *optional)
    for key in data:
        if key not in known:
            raise InputError(f"{where}: unknown field {key!r}; known: {', '.join(known)}")
    for key in needed:
        if key not in data:
            raise InputError(f"{where}: field {key!r} is missing; add it")


def finite_number(value: Any, name: str) -> float:
    """Return a finite number of zero or more.

    Raises
    ------
    InputError
        If it is anything else (text, a truth value, NaN, negative).
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {value!r}; give a number")
    result = float(value) if abs(value) < 1e300 else math.inf
    if not math.isfinite(result) or result < 0:
        raise InputError(f"{name} is {value!r}; give a finite number of zero or more")
    return result
