"""Finite groups as multiplication tables: what Cayley graphs are made of."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from math import gcd, prod
from typing import Any

import numpy as np

from codesign_base import InputError
from routing.network import IntArray

# Automorphisms of one abelian group that are tried, and factors that it may have.
_MOST_AUTOMORPHISMS = 64
_MOST_FACTORS = 6
_MOST_GROUPS = 200
# Entries that the tables of all groups of an order may have.
_MOST_ENTRIES = 200 * 256**2


@dataclass(frozen=True, eq=False)
class FiniteGroup:
    """A group of n elements, numbered 0 .. n-1; 0 is the identity.

    Parameters
    ----------
    name : str
    table : int64 array, shape (n, n)
        Product of row and column element.
    """

    name: str
    table: IntArray

    @property
    def order(self) -> int:
        """Number of elements."""
        return int(self.table.shape[0])

    @cached_property
    def inverse(self) -> IntArray:
        """Inverse of each element, shape (n,)."""
        return np.asarray((self.table == 0).argmax(axis=1), dtype=np.int64)

    @cached_property
    def commuting(self) -> int:
        """Ordered pairs of elements that commute; n^2 in an abelian group."""
        return int((self.table == self.table.T).sum())

    @cached_property
    def element_orders(self) -> IntArray:
        """Order of each element, shape (n,)."""
        everyone = np.arange(self.order)
        orders = np.ones(self.order, dtype=np.int64)
        power = everyone.copy()
        while power.any():
            orders[power != 0] += 1
            power = np.where(power == 0, 0, self.table[power, everyone])
        return orders

    def fingerprint(self) -> tuple[tuple[int, int, int], ...]:
        """Return what groups that are the same but for names have in common.

        Order, size of the centraliser and number of square roots of each element, sorted. Some
        different groups agree in it.
        """
        squares = np.bincount(np.diag(self.table), minlength=self.order)
        centre = (self.table == self.table.T).sum(axis=1)
        rows = zip(self.element_orders.tolist(), centre.tolist(), squares.tolist(), strict=True)
        return tuple(sorted(rows))


def cyclic_extension(
    moduli: Sequence[int],
    top: int = 1,
    matrix: Sequence[Sequence[int]] | None = None,
    carry: Sequence[int] | None = None,
) -> FiniteGroup:
    """Return an abelian group extended by a cyclic one.

    Parameters
    ----------
    moduli : sequence of int
        The abelian group A: vectors x, entry i modulo ``moduli[i]``.
    top : int
        b, the order of the cyclic group.
    matrix : sequence of sequence of int, optional
        Automorphism phi of A, x -> matrix x, with phi^b = 1; by default the identity.
    carry : sequence of int, optional
        Element c of A with phi(c) = c that b steps add up to; by default 0.

    Returns
    -------
    FiniteGroup
        Elements (x, y), y modulo b counting slowest, with
        (x, y) (x', y') = (x + phi^y(x') + c [y + y' >= b], y + y').

    Raises
    ------
    InputError
        If phi is no such automorphism, or c is not fixed.

    Notes
    -----
    With c = 0 the semidirect product. Cycles and their products have b = 1; dihedral groups
    b = 2 and phi(x) = -x, quaternion groups besides c = a / 2; affine groups of the field of q
    elements b = q - 1 and multiplication by a primitive element.
    """
    sizes = np.array(moduli, dtype=np.int64)
    if sizes.size == 0 or sizes.min() < 1 or top < 1:
        raise InputError(f"group of moduli {tuple(moduli)} and top {top}; give positive numbers")
    vectors = np.array(list(product(*(range(m) for m in moduli))), dtype=np.int64)
    count = vectors.shape[0]
    radix = np.array([prod(moduli[i + 1 :]) for i in range(len(moduli))], dtype=np.int64)
    identity = np.eye(sizes.size, dtype=np.int64)
    map_ = identity if matrix is None else np.array(matrix, dtype=np.int64)
    phi = ((vectors @ map_.T) % sizes) @ radix
    # A homomorphism maps generators to elements of no greater order.
    if ((map_ * sizes[None, :]) % sizes[:, None]).any() or np.unique(phi).size < count:
        raise InputError(f"matrix {map_.tolist()} is no automorphism of moduli {tuple(moduli)}")
    powers = np.empty((top, count), dtype=np.int64)
    powers[0] = np.arange(count)
    for y in range(1, top):
        powers[y] = phi[powers[y - 1]]
    if not np.array_equal(phi[powers[top - 1]], powers[0]):
        raise InputError(f"matrix {map_.tolist()} to the power {top} is not the identity")
    extra = np.zeros(sizes.size, np.int64) if carry is None else np.array(carry, dtype=np.int64)
    if phi[int((extra % sizes) @ radix)] != int((extra % sizes) @ radix):
        raise InputError(f"carry {extra.tolist()} is not fixed by matrix {map_.tolist()}")
    added = ((vectors[:, None, :] + vectors[None, :, :]) % sizes) @ radix
    wrapped = added[:, int((extra % sizes) @ radix)]
    # x, y and x' of x + phi^y(x').
    moved = added[:, powers].transpose(1, 0, 2)
    total = np.arange(top)[:, None] + np.arange(top)
    table = np.where(
        (total >= top)[:, None, :, None], wrapped[moved][:, :, None], moved[:, :, None]
    )
    table += (total % top * count)[:, None, :, None]
    table = table.reshape(count * top, count * top)
    return FiniteGroup(_name(moduli, top, map_, extra), table)


def permutation_group(group: Any, name: str) -> FiniteGroup:
    """Return a permutation group of SymPy as a table.

    Parameters
    ----------
    group : sympy.combinatorics.PermutationGroup
    name : str

    Returns
    -------
    FiniteGroup
        Elements by their array forms, ascending.
    """
    forms = np.array(sorted(group.generate_schreier_sims(af=True)), dtype=np.int64)
    place = {form.tobytes(): i for i, form in enumerate(forms)}
    table = np.empty((forms.shape[0], forms.shape[0]), dtype=np.int64)
    for g, form in enumerate(forms):
        # Left to right as in SymPy: first g, then h.
        table[g] = [place[row.tobytes()] for row in forms[:, form]]
    return FiniteGroup(name, table)


def groups_of_order(order: int) -> list[FiniteGroup]:
    """Return groups of an order, those in which fewest elements commute first.

    Parameters
    ----------
    order : int
        At least 1.

    Returns
    -------
    list of FiniteGroup
        All abelian groups; their extensions by cyclic groups that `cyclic_extension` makes of
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
    found: list[FiniteGroup] = []
    for group in chain(_extensions(order), _letter_groups(order)):
        mark = group.fingerprint()
        if mark not in seen:
            seen.add(mark)
            found.append(group)
        if len(found) > 2 * most:
            found = _least_commuting(found)[:most]
    return _least_commuting(found)[:most]


def _least_commuting(groups: list[FiniteGroup]) -> list[FiniteGroup]:
    return sorted(groups, key=lambda group: group.commuting)


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


def _extensions(order: int) -> Iterator[FiniteGroup]:
    for moduli in abelian_types(order):
        yield cyclic_extension(moduli)
    for top in (b for b in range(2, order) if order % b == 0):
        for moduli in abelian_types(order // top):
            if len(moduli) > _MOST_FACTORS:
                continue
            for matrix in _automorphisms(moduli, top):
                yield cyclic_extension(moduli, top, matrix)
                a = moduli[0]
                if len(moduli) == 1 and a % 2 == 0:
                    # Half the cycle is fixed by every unit.
                    yield cyclic_extension(moduli, top, matrix, (a // 2,))


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


def _name(moduli: Sequence[int], top: int, matrix: IntArray, carry: IntArray) -> str:
    below = " x ".join(f"Z{m}" for m in moduli)
    if top == 1:
        return below
    if np.array_equal(matrix, np.diag(np.diag(matrix))):
        units = np.diag(matrix).tolist()
        turn = f"times {units[0] if len(units) == 1 else units}"
    else:
        turn = f"matrix rows {matrix.tolist()}"
    adds = f", carry {carry.tolist()}" if carry.any() else ""
    below = f"({below})" if len(moduli) > 1 else below
    return f"{below} by Z{top}, {turn}{adds}"
