"""Finite groups as multiplication tables: what Cayley graphs are made of."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from math import gcd, prod
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints

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
    table: Ints

    @property
    def order(self) -> int:
        """Number of elements."""
        return int(self.table.shape[0])

    @cached_property
    def inverse(self) -> Ints:
        """Inverse of each element, shape (n,)."""
        return np.asarray((self.table == 0).argmax(axis=1), dtype=np.int64)

    @cached_property
    def commuting(self) -> int:
        """Ordered pairs of elements that commute; n^2 in an abelian group."""
        return int((self.table == self.table.T).sum())

    @cached_property
    def element_orders(self) -> Ints:
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


@dataclass(frozen=True, eq=False)
class Extension:
    """An abelian group extended by a cyclic one, without its table; see `extension`.

    Parameters
    ----------
    name : str
    moduli : int64 array, shape (k,)
    vectors : int64 array, shape (count, k)
        Elements of the abelian group.
    powers : int64 array, shape (top, count)
        Where the automorphism's powers take them.
    carry : int64 array, shape (k,)
    """

    name: str
    moduli: Ints
    vectors: Ints
    powers: Ints
    carry: Ints

    def place(self, vectors: Ints) -> Ints:
        """Return the numbers of elements of the abelian group, entries taken by their moduli."""
        radix = np.append(np.cumprod(self.moduli[:0:-1])[::-1], 1)
        return np.asarray((vectors % self.moduli) @ radix, dtype=np.int64)

    def times(self, one: Ints, other: Ints) -> Ints:
        """Return products of elements, pair by pair."""
        top, count = self.powers.shape
        y, x = np.divmod(one, count)
        v, u = np.divmod(other, count)
        carried = (y + v >= top)[:, None] * self.carry
        moved = self.vectors[x] + self.vectors[self.powers[y, u]] + carried
        return np.asarray((y + v) % top * count + self.place(moved), dtype=np.int64)

    def element_orders(self) -> Ints:
        """Return the order of each element."""
        n = self.powers.size
        orders = np.ones(n, dtype=np.int64)
        left, p = n, 2
        while left > 1:
            p = p if p * p <= left else left
            rest = n
            while rest % p == 0:
                rest //= p
            while left % p == 0:
                left //= p
            # How often an element of the order's part prime to p removed must be raised to p.
            power = self._power(np.arange(n), rest)
            while power.any():
                orders[power != 0] *= p
                power = self._power(power, p)
            p += 1
        return orders

    def _power(self, elements: Ints, exponent: int) -> Ints:
        made = np.zeros_like(elements)
        while exponent:
            if exponent % 2:
                made = self.times(made, elements)
            elements = self.times(elements, elements)
            exponent //= 2
        return made

    def centralisers(self) -> Ints:
        """Return how many elements each commutes with.

        (x, y) and (u, v) do where x - phi^v(x) = u - phi^y(u).
        """
        top, count = self.powers.shape
        moved = np.stack([self.place(self.vectors - self.vectors[row]) for row in self.powers])
        found = np.empty((top, count), dtype=np.int64)
        for y in range(top):
            found[y] = np.bincount(moved[y], minlength=count)[moved].sum(axis=0)
        return found.ravel()

    @cached_property
    def fingerprint(self) -> tuple[tuple[int, int, int], ...]:
        """That of its table, see `FiniteGroup.fingerprint`."""
        everyone = np.arange(self.powers.size)
        squares = np.bincount(self.times(everyone, everyone), minlength=everyone.size)
        rows = zip(
            self.element_orders().tolist(), self.centralisers().tolist(), squares.tolist(),
            strict=True,
        )  # fmt: skip
        return tuple(sorted(rows))

    @property
    def commuting(self) -> int:
        """Ordered pairs of elements that commute."""
        return sum(centre for _, centre, _ in self.fingerprint)

    def group(self) -> FiniteGroup:
        """Return the group with its table."""
        top, count = self.powers.shape
        added = self.place(self.vectors[:, None, :] + self.vectors[None, :, :])
        wrapped = added[:, int(self.place(self.carry))]
        # x, y and x' of x + phi^y(x').
        moved = added[:, self.powers].transpose(1, 0, 2)
        total = np.arange(top)[:, None] + np.arange(top)
        table = np.where(
            (total >= top)[:, None, :, None], wrapped[moved][:, :, None], moved[:, :, None]
        )
        table += (total % top * count)[:, None, :, None]
        return FiniteGroup(self.name, table.reshape(count * top, count * top))


def extension(
    moduli: Sequence[int],
    top: int = 1,
    matrix: Sequence[Sequence[int]] | None = None,
    carry: Sequence[int] | None = None,
) -> Extension:
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
    Extension
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
    return Extension(_name(moduli, top, map_, extra), sizes, vectors, powers, extra)


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


def _name(moduli: Sequence[int], top: int, matrix: Ints, carry: Ints) -> str:
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
