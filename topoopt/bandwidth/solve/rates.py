"""Rates that links come in: lists (``25,50,100 GB/s``) or lanes (``1..16 x 25GB/s``)."""

import re
from collections.abc import Sequence

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats
from topoopt.problem.units import parse_bandwidth

_DIMENSIONS = re.compile(r"\s*(b[0-9]{1,4}(?:\s*,\s*b[0-9]{1,4})*)\s*:(.*)", re.DOTALL)
_LANES = re.compile(r"\s*([0-9]{1,6})\s*\.\.\s*([0-9]{1,6})\s*[xX*]\s*(.+)", re.DOTALL)
_NUMBER = re.compile(r"[0-9.eE+-]+")
_MOST = 100_000
_HINT = "write for example '25,50,100GB/s', '1..16 x 25GB/s' or 'b0,b1: 100,200GB/s'"


def parse_rates(texts: Sequence[str], dimensions: int) -> tuple[Floats, ...]:
    """Read the bandwidths that each dimension may have.

    Parameters
    ----------
    texts : sequence of str
        ``"25,50,100GB/s"`` (a unit counts for the numbers before it that have none) or
        ``"1..16 x 25GB/s"`` (1 to 16 lanes). ``"b0,b2: "`` before it names dimensions; a text
        without counts for all dimensions that no other names. Zero stands for a dimension that
        is not built.
    dimensions : int

    Returns
    -------
    tuple of float64 array
        Ascending bytes/s, one array a dimension.

    Raises
    ------
    InputError
        If a text cannot be read, a dimension is unknown, named twice or without rates.

    Examples
    --------
    >>> [r.tolist() for r in parse_rates(["b0: 1..3 x 2B/s", "5,10B/s"], 2)]
    [[2.0, 4.0, 6.0], [5.0, 10.0]]
    """
    own: dict[int, Floats] = {}
    common: Floats | None = None
    for text in texts:
        check_kind("one of rates", text, str, "a text, such as '25,50,100GB/s'")
        match = _DIMENSIONS.fullmatch(text)
        if match is None:
            if common is not None:
                raise InputError(
                    f"rates {text!r} are the second for all dimensions; name the dimensions, "
                    "such as 'b0: 100,200GB/s'"
                )
            common = _rates(text, text)
            continue
        found = _rates(match[2], text)
        for name in match[1].split(","):
            d = int(name.strip()[1:])
            if d >= dimensions:
                raise InputError(
                    f"rates {text!r} name b{d}, but the dimensions are b0 to b{dimensions - 1}; "
                    "name one of these"
                )
            if d in own:
                raise InputError(f"rates {text!r} name b{d} again; give its rates once")
            own[d] = found
    listed = []
    for d in range(dimensions):
        rates = own.get(d, common)
        if rates is None:
            raise InputError(f"dimension b{d} has no rates; add 'b{d}: ...', or rates for all")
        listed.append(rates)
    return tuple(listed)


def _rates(text: str, whole: str) -> Floats:
    lanes = _LANES.fullmatch(text)
    if lanes is not None:
        first, last = int(lanes[1]), int(lanes[2])
        if not first <= last < first + _MOST:
            raise InputError(f"rates {whole!r}: lanes {first} to {last}; {_HINT}")
        lane = parse_bandwidth(lanes[3].strip(), "rates")
        return np.arange(first, last + 1, dtype=np.float64) * lane
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"rates {whole!r} have an empty entry; {_HINT}")
    values: list[float] = []
    unit = ""
    for part in reversed(parts):
        if _NUMBER.fullmatch(part):
            if not unit:
                raise InputError(f"rates {whole!r} end without a unit; {_HINT}")
            part += unit
        else:
            unit = _NUMBER.sub("", part, count=1)
        values.append(parse_bandwidth(part, "rates", allow_zero=True))
    return np.unique(np.array(values))
