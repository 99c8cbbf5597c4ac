"""Names of layers in few words: numbers that vary become ranges."""

import re
from collections.abc import Sequence
from itertools import product

from parallelism.operator_text import operator_names

_NUMBER = re.compile(r"(\d+)")


def layer_names(names: Sequence[str]) -> str:
    """Return names in few words: ``"block_0..5_add"`` for six names that differ in a number.

    Parameters
    ----------
    names : sequence of str
        Distinct.

    Returns
    -------
    str
        One pattern for all names that agree outside their numbers and take every combination of
        them; other names as `operator_names` writes them.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        alike.setdefault(tuple(_NUMBER.split(name)[::2]), []).append(name)
    shown = []
    for words, members in alike.items():
        values = [list(dict.fromkeys(column)) for column in _numbers(members)]
        whole = {_woven(words, numbers) for numbers in product(*values)} == set(members)
        if len(members) > 2 and whole:
            shown.append(_woven(words, [_range(column) for column in values]))
        else:
            shown.append(operator_names(members))
    return ", ".join(shown)


def _numbers(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the numbers of names by their place."""
    return list(zip(*(_NUMBER.split(name)[1::2] for name in names), strict=True))


def _woven(words: tuple[str, ...], numbers: Sequence[str]) -> str:
    return "".join(a + b for a, b in zip(words, (*numbers, ""), strict=True))


def _range(numbers: list[str]) -> str:
    """Return ``"0..5"`` for numbers that count up by one, else all of them in braces."""
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) > 2 and len(numbers[0]) < 19:
        first = int(numbers[0])
        if numbers == [str(first + i) for i in range(len(numbers))]:
            return f"{numbers[0]}..{numbers[-1]}"
    return f"{{{','.join(numbers)}}}"
