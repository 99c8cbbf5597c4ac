"""Network shapes: the ways to write N as a product of dimensions, with a block for each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.whole_numbers import divisors
from topoopt.bandwidth.model.cost import CostModel, default_cost
from topoopt.bandwidth.model.network import MultiDimNetwork, default_levels
from topoopt.topology.zoo.blocks import SHORT, BuildingBlock

_LIMIT = re.compile(r"\s*([A-Za-z]+)\s*\(\s*([0-9]{1,12})\s*\.\.\s*([0-9]{1,12})\s*\)\s*")
_MOST_SHAPES = 1_000_000


@dataclass(frozen=True)
class BlockLimit:
    """A block that shapes may use, and the members that it can join.

    Parameters
    ----------
    block : BuildingBlock
    least, most : int
    """

    block: BuildingBlock
    least: int
    most: int


# A full mesh of more members needs more links than a package or board has room for.
DEFAULT_LIMITS = (
    BlockLimit(BuildingBlock.RING, 2, 64),
    BlockLimit(BuildingBlock.FULLY_CONNECTED, 3, 16),
    BlockLimit(BuildingBlock.SWITCH, 2, 1024),
)


def parse_limits(text: str) -> tuple[BlockLimit, ...]:
    """Read which blocks shapes may use, and how large.

    Parameters
    ----------
    text : str
        ``"RI(2..64),FC(3..16),SW(2..1024)"``.

    Returns
    -------
    tuple of BlockLimit

    Raises
    ------
    InputError
        If it is not of this form.
    """
    found = []
    for part in text.split(","):
        match = _LIMIT.fullmatch(part)
        if match is None or match[1].upper() not in SHORT:
            raise InputError(
                f"blocks {text!r}: {part!r} is no block with its least and most members; "
                "write for example 'RI(2..64),FC(3..16),SW(2..1024)'"
            )
        least, most = int(match[2]), int(match[3])
        if not 2 <= least <= most:
            raise InputError(f"blocks {text!r}: {part!r} joins {least} to {most}; give 2 or more")
        found.append(BlockLimit(SHORT[match[1].upper()], least, most))
    return tuple(found)


def factorisations(number: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the ordered factorisations of a number into 1 to ``most`` factors of at least 2.

    Parameters
    ----------
    number : int
        At least 2.
    most : int

    Examples
    --------
    >>> list(factorisations(12, 2))
    [(12,), (2, 6), (3, 4), (4, 3), (6, 2)]
    """
    factors = divisors(number)[1:]

    def split(rest: int, count: int) -> Iterator[tuple[int, ...]]:
        if count == 1:
            yield (rest,)
            return
        for first in factors:
            if first < rest and rest % first == 0:
                for others in split(rest // first, count - 1):
                    yield (first, *others)

    for count in range(1, most + 1):
        yield from split(number, count)


def _sold(block: BuildingBlock, level: str, prices: CostModel) -> bool:
    price = prices.levels.get(level)
    return price is not None and (block != BuildingBlock.SWITCH or price.switch is not None)


def network_shapes(
    npus: int,
    most_dimensions: int = 4,
    limits: Sequence[BlockLimit] = DEFAULT_LIMITS,
    prices: CostModel | None = None,
) -> tuple[MultiDimNetwork, ...]:
    """Return every network of so many NPUs within the limits.

    Parameters
    ----------
    npus : int
        At least 2.
    most_dimensions : int, optional
    limits : sequence of BlockLimit, optional
    prices : CostModel, optional
        LIBRA's by default. Blocks that a level has no price of are not there.

    Returns
    -------
    tuple of MultiDimNetwork
        Fewer dimensions first; with the cost levels of `default_levels`.

    Raises
    ------
    InputError
        If there are none, or more than a million.
    """
    if not 2 <= npus <= 10**9:
        raise InputError(f"shapes of {counted(npus, 'NPU')}; give 2 to 1e9")
    prices = default_cost() if prices is None else prices
    if not 1 <= most_dimensions <= 12:
        raise InputError(f"shapes of up to {most_dimensions} dimensions; give 1 to 12")
    plans = []
    count = 0
    for sizes in factorisations(npus, most_dimensions):
        levels = default_levels(len(sizes))
        choices = [
            [
                limit.block
                for limit in limits
                if limit.least <= size <= limit.most and _sold(limit.block, level, prices)
            ]
            for size, level in zip(sizes, levels, strict=True)
        ]
        plans.append((sizes, levels, choices))
        count += prod(len(blocks) for blocks in choices)
        if count > _MOST_SHAPES:
            raise InputError(
                f"{npus} NPUs have more than a million shapes of up to {most_dimensions} "
                "dimensions; give fewer dimensions or blocks"
            )
    found = [
        MultiDimNetwork(blocks, sizes, levels)
        for sizes, levels, choices in plans
        for blocks in product(*choices)
    ]
    if not found:
        raise InputError(
            f"{npus} NPUs have no shape of up to {counted(most_dimensions, 'dimension')} within "
            "the limits of the blocks; allow more dimensions or larger blocks"
        )
    return tuple(found)
