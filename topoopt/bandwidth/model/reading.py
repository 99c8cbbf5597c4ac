"""Reading of LIBRA's YAML files; whatever is wrong with them is one `InputError`."""

import re
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import is_number
from parallelism.reading import kind_in_file, parse_yaml, read_text, shown
from topoopt.problem.prices import MOST_USD


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


def price_number(value: Any, name: str) -> float:
    """Return a price: a finite number of zero or more.

    Raises
    ------
    InputError
        If it is anything else (text, a truth value, NaN, negative), or beyond `MOST_USD`.
    """
    if not is_number(value):
        # YAML takes numbers without a point or a sign in the exponent for text.
        power = isinstance(value, str) and re.fullmatch(r"[+-]?[\d.]+[eE][+-]?\d+", value)
        raise InputError(
            f"{name} is {shown(value)}; give a number"
            + (", with a point and a sign, such as 1.0e+9" if power else "")
        )
    if not 0 <= value <= MOST_USD:
        raise InputError(f"{name} is {shown(value)}; give a number from 0 to {MOST_USD:.1e}")
    return float(value)
