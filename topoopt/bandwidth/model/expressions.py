"""Convex expressions of bandwidth: seconds of compute and communication, sums and maxima.

An expression is affine over *atoms*; an atom is the time of a load on the dimensions or a
maximum of expressions. Atoms are compared by value, so equal collectives fold by themselves.

>>> step = comm((2.0, 0.5)) + compute(3.0)
>>> hidden = maximum(step, compute(4.0))
>>> (2 * hidden + step).evaluate([1.0, 1.0])
15.0
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from codesign_base import InputError


@dataclass(frozen=True, slots=True)
class Load:
    """The time of bytes on the dimensions: ``max over d of bytes[d] / b[d]``."""

    bytes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest of several expressions, each a constant and coefficients of atoms."""

    parts: tuple[tuple[float, tuple[tuple["Load | Largest", float], ...]], ...]


Atom = Load | Largest


class Expr:
    """Seconds as a convex function of the bandwidths; immutable.

    Built by `compute`, `comm` and `maximum`; added with ``+``, scaled with ``*`` by a number
    of zero or more.
    """

    __slots__ = ("constant", "terms")

    def __init__(self, constant: float, terms: dict[Atom, float]) -> None:
        self.constant = constant
        self.terms = terms

    def __add__(self, other: "Expr | float") -> "Expr":
        if not isinstance(other, Expr):
            return Expr(self.constant + _seconds(other), self.terms)
        terms = dict(self.terms)
        for atom, factor in other.terms.items():
            terms[atom] = terms.get(atom, 0.0) + factor
        return Expr(self.constant + other.constant, terms)

    __radd__ = __add__

    def __mul__(self, factor: float) -> "Expr":
        scale = _seconds(factor)
        if scale == 0.0:
            return Expr(0.0, {})
        return Expr(self.constant * scale, {a: f * scale for a, f in self.terms.items()})

    __rmul__ = __mul__

    def evaluate(self, bandwidth: Sequence[float]) -> float:
        """Return the seconds at bandwidths in bytes/s, one a dimension."""
        return self.constant + sum(
            factor * _value(atom, bandwidth) for atom, factor in self.terms.items()
        )


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"expression: {value!r} is neither an expression nor a number")
    if not isfinite(value) or value < 0:
        raise InputError(f"expression: {value!r} is not convex here; give a number >= 0")
    return float(value)


def _value(atom: Atom, bandwidth: Sequence[float]) -> float:
    if isinstance(atom, Load):
        return max(
            (m / b if b > 0 else float("inf")) if m > 0 else 0.0
            for m, b in zip(atom.bytes, bandwidth, strict=True)
        )
    return max(
        constant + sum(factor * _value(inner, bandwidth) for inner, factor in terms)
        for constant, terms in atom.parts
    )


def compute(seconds: float) -> Expr:
    """Return a constant time.

    Raises
    ------
    InputError
        If it is negative or not finite.
    """
    return Expr(_seconds(seconds), {})


def comm(load: Iterable[float], factor: float = 1.0) -> Expr:
    """Return the time of bytes on the dimensions.

    Parameters
    ----------
    load : iterable of float
        Bytes on each dimension.
    factor : float, optional
        Multiplies them; expressions of one ``load`` share an atom whatever their factors.
    """
    atom = Load(tuple(load))
    scale = _seconds(factor)
    if scale == 0.0 or not any(atom.bytes):
        return Expr(0.0, {})
    if not all(isfinite(m) and m >= 0 for m in atom.bytes):
        raise InputError(f"expression: load {atom.bytes}; give finite bytes >= 0")
    return Expr(0.0, {atom: scale})


def maximum(*expressions: Expr | float) -> Expr:
    """Return the largest of expressions.

    Raises
    ------
    InputError
        If there is none.
    """
    made = [e if isinstance(e, Expr) else compute(e) for e in expressions]
    if not made:
        raise InputError("expression: the maximum of nothing; give at least one expression")
    floor = max((e.constant for e in made if not e.terms), default=0.0)
    open_ = [e for e in made if e.terms]
    if not open_:
        return Expr(floor, {})
    if floor > 0 and all(e.constant < floor for e in open_):
        open_.append(Expr(floor, {}))
    # Taking the shared constant out lets maxima that differ only in it be one atom.
    shared = min(e.constant for e in open_)
    parts = dict.fromkeys((e.constant - shared, tuple(e.terms.items())) for e in open_)
    if len(parts) == 1:
        return Expr(shared, dict(open_[0].terms))
    return Expr(shared, {Largest(tuple(parts)): 1.0})


def total(expressions: Iterable[Expr]) -> Expr:
    """Return the sum of expressions, without copying partial sums."""
    constant = 0.0
    terms: dict[Atom, float] = {}
    for expression in expressions:
        constant += expression.constant
        for atom, factor in expression.terms.items():
            terms[atom] = terms.get(atom, 0.0) + factor
    return Expr(constant, terms)
