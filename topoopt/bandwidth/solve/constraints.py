"""Linear constraints on bandwidths, parsed from text such as ``b0 >= 2 b1``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.arrays import Floats
from topoopt.bandwidth.model.cost import GBYTE
from topoopt.problem.units import parse_bandwidth

_TOKEN = re.compile(
    r"\s*(?:(?P<relation><=|>=|==|=|<|>)|(?P<sum>sum\s*\(\s*b\s*\))|(?P<variable>b[0-9]{1,4})\b"
    r"|(?P<cost>cost)\b"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)"
    r"(?P<unit>\s*[kKMGTP]?i?(?:B/s|Bps|bps|b/s|bit/s))?|(?P<sign>[+-])|(?P<times>\*))"
)
# Of any number: far above any bandwidth, and far from where sums of products overflow.
_MOST = 1e24
_HINT = "write for example 'b0 == 500', 'b0 >= 2 b1' or 'b2 + b3 <= 200GB/s'"


@dataclass(frozen=True, eq=False)
class Constraints:
    """Linear constraints ``A b <= h``, or ``A b == h`` where ``equality``; b in bytes/s.

    Parameters
    ----------
    names : tuple of str
        How messages and shadow prices call them.
    matrix : float64 array, shape (constraints, dimensions)
    bound : float64 array, shape (constraints,)
        Bytes/s, or US dollars where ``in_dollars``.
    equality, in_dollars : bool arrays, shape (constraints,)
    """

    names: tuple[str, ...]
    matrix: Floats
    bound: Floats
    equality: npt.NDArray[np.bool_]
    in_dollars: npt.NDArray[np.bool_]

    def keep(self, chosen: Iterable[int]) -> "Constraints":
        """Return some of the constraints."""
        at = list(chosen)
        return Constraints(
            tuple(self.names[i] for i in at), self.matrix[at], self.bound[at],
            self.equality[at], self.in_dollars[at],
        )  # fmt: skip

    def plus(
        self,
        names: Iterable[str],
        matrix: Floats,
        bound: Floats,
        equality: npt.ArrayLike = False,
    ) -> "Constraints":
        """Return these constraints and others, which are not in dollars."""
        return Constraints(
            (*self.names, *names),
            np.vstack([self.matrix, matrix]),
            np.append(self.bound, bound),
            np.append(self.equality, np.broadcast_to(np.asarray(equality), bound.shape)),
            np.append(self.in_dollars, np.zeros(bound.shape, dtype=np.bool_)),
        )

    def violation(self, bandwidth: Floats) -> float:
        """Return the largest violation, relative to the constraint's largest term."""
        if not self.names:
            return 0.0
        excess = self.matrix @ bandwidth - self.bound
        excess = np.where(self.equality, np.abs(excess), excess)
        size = np.maximum(np.abs(self.matrix * bandwidth).max(axis=1), np.abs(self.bound))
        return float(np.max(excess / np.where(size > 0, size, 1.0), initial=0.0))


def budget_constraint(text: str) -> str:
    """Turn a budget into the constraint on the sum of bandwidths.

    Parameters
    ----------
    text : str
        ``"500GB/s"`` or ``"== 500GB/s"`` (exactly), ``"<= 500GB/s"`` (at most); the unit may
        be left out, then it is GB/s.

    Raises
    ------
    InputError
        If it is not of this form.
    """
    check_kind("budget", text, str, "a text, such as '500GB/s' or '<= 500GB/s'")
    match = re.fullmatch(r"\s*(==|<=|)\s*([^<>=]+?)\s*", text)
    if match is None:
        raise InputError(f"budget {text!r}; write 500GB/s (exactly) or '<= 500GB/s' (at most)")
    amount = match[2]
    if re.fullmatch(r"[0-9.eE+-]+", amount):
        amount += "GB/s"
    parse_bandwidth(amount, "budget")
    return f"sum(b) {match[1] or '=='} {amount}"


def parse_constraints(
    texts: Iterable[str],
    dimensions: int,
    cost: npt.ArrayLike | None = None,
    fixed_cost: float = 0.0,
) -> Constraints:
    """Parse constraints.

    Parameters
    ----------
    texts : iterable of str
        Sums of ``b0 .. b9``, ``sum(b)`` and ``cost`` with numeric factors on both sides of
        ``==``, ``<=`` or ``>=``; chains such as ``b0 >= b1 >= b2`` are split. Numbers without
        a unit are GB/s (1e9 bytes/s), or US dollars beside ``cost``.
    dimensions : int
    cost : array_like, shape (dimensions,), optional
        US dollars per byte/s, what ``cost`` stands for.
    fixed_cost : float, optional
        US dollars added to it.

    Returns
    -------
    Constraints

    Raises
    ------
    InputError
        If a text cannot be read, names an unknown dimension, or says nothing about b.

    Examples
    --------
    >>> parse_constraints(["b0 >= 2 b1"], 2).matrix.tolist()
    [[-1.0, 2.0]]
    """
    prices = None if cost is None else np.asarray(cost, dtype=np.float64)
    names: list[str] = []
    rows: list[Floats] = []
    bounds: list[float] = []
    equal: list[bool] = []
    dollars: list[bool] = []
    for text in texts:
        sides, relations = _sides(text, dimensions)
        for at, relation in enumerate(relations):
            left, right = sides[at], sides[at + 1]
            row = left.row - right.row
            money = left.cost - right.cost
            bound = right.constant - left.constant
            if not np.any(row) and money == 0.0:
                raise InputError(f"constraint {text!r} says nothing about a bandwidth; {_HINT}")
            if money != 0.0:
                if left.united or right.united or np.any(row):
                    raise InputError(
                        f"constraint {text!r} mixes cost with bandwidths; compare cost with US "
                        "dollars, such as 'cost <= 1e7'"
                    )
                if prices is None:
                    raise InputError(f"constraint {text!r} needs prices; none are given here")
                row = money * prices
                bound = (bound / GBYTE) - money * fixed_cost
            if relation == ">=":
                row, bound = -row, -bound
            name = text.strip() if len(relations) == 1 else (f"{left.text} {relation} {right.text}")
            names.append(name)
            rows.append(row + 0.0)
            bounds.append(bound + 0.0)
            equal.append(relation == "==")
            dollars.append(money != 0.0)
    return Constraints(
        tuple(names),
        np.array(rows).reshape(len(rows), dimensions),
        np.array(bounds, dtype=np.float64),
        np.array(equal, dtype=np.bool_),
        np.array(dollars, dtype=np.bool_),
    )


@dataclass
class _Side:
    """One side of a relation: ``row . b + cost * (US dollars) + constant``."""

    row: Floats
    cost: float = 0.0
    constant: float = 0.0
    united: bool = False
    text: str = ""


def _sides(text: str, dimensions: int) -> tuple[list[_Side], list[str]]:
    sides = [_Side(np.zeros(dimensions))]
    relations: list[str] = []
    sign, factor, pending, united = 1.0, 1.0, False, False
    expected = True  # whether a term may begin here
    position = begin = 0

    def close() -> None:
        nonlocal sign, factor, pending, united, expected
        side = sides[-1]
        if pending:
            side.constant += sign * factor * (1.0 if united else GBYTE)
            side.united |= united
        elif expected:
            raise InputError(f"constraint {text!r} lacks a term; {_HINT}")
        sign, factor, pending, united = 1.0, 1.0, False, False

    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].strip()
            raise InputError(f"constraint {text!r} cannot be read at {rest!r}; {_HINT}")
        kind = match.lastgroup if match.lastgroup != "unit" else "number"
        word = match[0].strip()
        if kind == "relation":
            if word not in ("<=", ">=", "=="):
                raise InputError(f"constraint {text!r} has {word!r}; use <=, >= or ==")
            close()
            sides[-1].text = text[begin:position].strip()
            sides.append(_Side(np.zeros(dimensions)))
            relations.append(word)
            begin, expected = match.end(), True
        elif kind == "sign":
            if pending or not expected:
                close()
            elif sign < 0 or (position > begin and text[begin:position].strip()):
                raise InputError(f"constraint {text!r} has two signs in a row; {_HINT}")
            sign = -1.0 if word == "-" else 1.0
            expected = True
        elif kind == "number":
            if pending or not expected:
                raise InputError(f"constraint {text!r} cannot be read at {word!r}; {_HINT}")
            united = match["unit"] is not None
            factor = (
                parse_bandwidth(word, "constraint", allow_zero=True)
                if united
                else float(match["number"])
            )
            pending, expected = True, False
        elif kind == "times":
            if not pending:
                raise InputError(f"constraint {text!r} has a * without a number; {_HINT}")
        else:
            if united or (not expected and not pending):
                raise InputError(f"constraint {text!r} cannot be read at {word!r}; {_HINT}")
            _add_variable(sides[-1], kind or "", word, sign * factor, dimensions, text)
            sign, factor, pending, expected = 1.0, 1.0, False, False
        position = match.end()
    if not relations:
        raise InputError(f"constraint {text!r} has no <=, >= or ==; {_HINT}")
    close()
    sides[-1].text = text[begin:].strip()
    for side in sides:
        for number in (*side.row.tolist(), side.cost, side.constant):
            if not abs(number) <= _MOST:
                raise InputError(
                    f"constraint {text!r} has a number above {_MOST:g} (bytes/s); give smaller ones"
                )
    return sides, relations


def _add_variable(
    side: _Side, kind: str, word: str, factor: float, dimensions: int, text: str
) -> None:
    if kind == "sum":
        side.row += factor
    elif kind == "cost":
        side.cost += factor
    else:
        index = int(word[1:])
        if index >= dimensions:
            raise InputError(
                f"constraint {text!r} names {word}, but the dimensions are b0 to "
                f"b{dimensions - 1}; name one of these"
            )
        side.row[index] += factor
