"""The building blocks of multi-dimensional networks, and LIBRA's notation of them."""

import re
from collections.abc import Sequence
from enum import StrEnum
from math import prod

from codesign_base import InputError
from codesign_base.arguments import check_kind


class BuildingBlock(StrEnum):
    """What joins the members of one dimension; the values are LIBRA's names in files."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


SHORT = {"RI": BuildingBlock.RING, "FC": BuildingBlock.FULLY_CONNECTED, "SW": BuildingBlock.SWITCH}
_MOST_DIMENSIONS = 64
_MOST_NPUS = 10**12
_DIMENSION = re.compile(r"\s*([A-Za-z]+)\s*\(\s*([0-9]{1,15})\s*\)\s*")


def read_blocks(text: str) -> list[tuple[BuildingBlock, int]]:
    """Read the compact notation.

    Parameters
    ----------
    text : str
        ``RI(4)_FC(8)_RI(4)_SW(32)``: Ring, FullyConnected or Switch with its members, from
        the innermost dimension to the outermost.

    Returns
    -------
    list of (BuildingBlock, int)
        In the order of the text.

    Raises
    ------
    InputError
        If the text is not of this form, or `check_sizes` refuses it.
    """
    check_kind("network", text, str, "its dimensions as a text, such as 'RI(4)_FC(8)_SW(32)'")
    read = []
    for part in text.split("_"):
        match = _DIMENSION.fullmatch(part)
        if match is None or match[1].upper() not in SHORT:
            raise InputError(
                f"network {text!r}: {part!r} is no dimension; write RI(n), FC(n) or SW(n) "
                "joined by _, such as RI(4)_FC(8)_SW(32)"
            )
        read.append((SHORT[match[1].upper()], int(match[2])))
    check_sizes([size for _, size in read])
    return read


def check_sizes(sizes: Sequence[int]) -> None:
    """Refuse members of dimensions that make no network.

    Parameters
    ----------
    sizes : sequence of int
        Members of each dimension.

    Raises
    ------
    InputError
        If there is no dimension or more than 64, a size is no whole number of at least 2, or
        there are more than 1e12 members in all.
    """
    if len(sizes) > _MOST_DIMENSIONS:
        raise InputError(f"network: it has {len(sizes)} dimensions; give at most 64")
    if not sizes:
        raise InputError("network: it has no dimension; give at least one, such as SW(32)")
    for d, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or not 2 <= size < 2**53:
            raise InputError(
                f"network: size of dimension {d} is {size!r}; give a whole number of at least 2"
            )
    if prod(sizes) > _MOST_NPUS:
        raise InputError("network: it has more than 1e12 NPUs; give fewer members")
