"""Which finite groups of an order are tried: abelian ones, their extensions, permutations."""

from collections.abc import Callable, Iterator
from itertools import chain, product
from math import gcd
from typing import Any

import numpy as np

from codesign_base import InputError
from topoopt.topology.groups import Extension, FiniteGroup, extension, permutation_group

# Automorphisms of one abelian group that are tried, and factors that it may have.
_MOST_AUTOMORPHISMS = 64
_MOST_FACTORS = 6
_MOST_GROUPS = 200
# Entries that the tables of all groups of an order may have.
_MOST_ENTRIES = 200 * 256**2


def groups_of_order(order: int) -> list[FiniteGroup]:
    """Return groups of an order, those in which fewest elements commute first.

    Parameters
    ----------
    order : int
        At least 1.

    Returns
    -------
    list of FiniteGroup
        All abelian groups; their extensions by cyclic groups that `extension` makes of
        units, of companion matrices and, on one cycle, of carries; alternating and symmetric
        groups. One of each `FiniteGroup.fingerprint`. Not all groups of the order, and 200 at
        most (fewer of more than 256 elements), of which abelian ones are the last.

    Raises
    ------
    InputError
        If the order is below 1.
    """
    if order < 1:
        raise InputError(f"groups of order {order}; give at least 1")
    most = max(1, min(_MOST_GROUPS, _MOST_ENTRIES // order**2))
    seen: set[tuple[tuple[int, int, int], ...]] = set()
    found: list[tuple[int, int, Extension | FiniteGroup]] = []
    everything: Iterator[Extension | FiniteGroup]
    everything = chain(_extensions(order), _letter_groups(order))
    for group in everything:
        mark = group.fingerprint if isinstance(group, Extension) else group.fingerprint()
        if mark not in seen:
            seen.add(mark)
            found.append((group.commuting, len(seen), group))
    chosen = [group for *_, group in sorted(found, key=lambda row: row[:2])[:most]]
    # Tables of many elements are made of those only that are wanted.
    return [group.group() if isinstance(group, Extension) else group for group in chosen]


def _letter_groups(order: int) -> Iterator[FiniteGroup]:
    """Yield the alternating and the symmetric group of an order, if there is one."""
    letters = {12: 4, 24: 4, 60: 5, 120: 5, 360: 6, 720: 6}.get(order)
    if letters is None:
        return
    from sympy.combinatorics.named_groups import AlternatingGroup, SymmetricGroup

    alternating: Callable[[int], Any] = AlternatingGroup
    symmetric: Callable[[int], Any] = SymmetricGroup
    if order in (12, 60, 360):
        yield permutation_group(alternating(letters), f"A{letters}")
    else:
        yield permutation_group(symmetric(letters), f"S{letters}")


def _extensions(order: int) -> Iterator[Extension]:
    for moduli in abelian_types(order):
        yield extension(moduli)
    for top in (b for b in range(2, order) if order % b == 0):
        for moduli in abelian_types(order // top):
            if len(moduli) > _MOST_FACTORS:
                continue
            for matrix in _automorphisms(moduli, top):
                yield extension(moduli, top, matrix)
                a = moduli[0]
                if len(moduli) == 1 and a % 2 == 0:
                    # Half the cycle is fixed by every unit.
                    yield extension(moduli, top, matrix, (a // 2,))


def abelian_types(order: int) -> list[tuple[int, ...]]:
    """Return the invariant factors of every abelian group of an order, each dividing the next.

    The cycle comes first.
    """
    types: list[tuple[int, ...]] = [()]
    left, p = order, 2
    while left > 1:
        if p * p > left:
            p = left
        power = 0
        while left % p == 0:
            left //= p
            power += 1
        if power:
            types = [_joined(a, [p**e for e in part]) for a in types for part in _parts(power)]
        p += 1
    return [factors or (1,) for factors in types]


def _parts(total: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of a number, parts descending."""
    if total == 0:
        yield ()
    for first in range(min(total, largest or total), 0, -1):
        for rest in _parts(total - first, first):
            yield (first, *rest)


def _joined(factors: tuple[int, ...], powers: list[int]) -> tuple[int, ...]:
    """Multiply invariant factors by powers of another prime, largest by largest."""
    length = max(len(factors), len(powers))
    old = (1,) * (length - len(factors)) + factors
    new = (1,) * (length - len(powers)) + tuple(reversed(powers))
    return tuple(a * b for a, b in zip(old, new, strict=True))


def _automorphisms(moduli: tuple[int, ...], top: int) -> Iterator[list[list[int]]]:
    """Yield some automorphisms other than 1 whose power ``top`` is 1."""
    units = [
        [k for k in range(1, m) if gcd(k, m) == 1 and pow(k, top, m) == 1] or [1] for m in moduli
    ]
    size = len(moduli)
    yielded = 0
    for chosen in product(*units):
        if any(k != 1 for k in chosen) and yielded < _MOST_AUTOMORPHISMS:
            yielded += 1
            yield [[chosen[i] if i == j else 0 for j in range(size)] for i in range(size)]
    if size < 2 or len(set(moduli)) > 1:
        return
    m, yielded = moduli[0], 0
    for last in product(*([range(m)] * size)):
        if gcd(last[0], m) != 1 or yielded >= _MOST_AUTOMORPHISMS:
            continue
        companion = [[int(j == i + 1) for j in range(size)] for i in range(size - 1)]
        matrix = np.array([*companion, list(last)], dtype=np.int64)
        power = np.eye(size, dtype=np.int64)
        for _ in range(top):
            power = power @ matrix % m
        if np.array_equal(power, np.eye(size, dtype=np.int64)):
            yielded += 1
            yield matrix.tolist()
