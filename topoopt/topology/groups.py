"""Finite groups as multiplication tables: what Cayley graphs are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints


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
