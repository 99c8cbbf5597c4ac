"""An expression compiled to arrays: what the solver and sweeps work on."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats, Ints
from topoopt.bandwidth.model.expressions import Atom, Expr, Largest, Load


@dataclass(frozen=True, eq=False)
class TimeModel:
    """Iteration time as ``constant + weights . e`` over nodes e.

    Nodes ``0 .. loads - 1`` are loads, ``e = max over d of loads[k, d] / b[d]``. The others
    are maxima, ``e[part_node[r]] >= part_constant[r] + part_coefficients[r] . e`` for their
    parts r, which refer to earlier nodes only.

    Parameters
    ----------
    constant : float
        Seconds.
    weights : float64 array, shape (nodes,)
    loads : float64 array, shape (loads, dimensions)
        Bytes.
    part_node : int64 array, shape (parts,)
        Not decreasing.
    part_constant : float64 array, shape (parts,)
        Seconds.
    part_coefficients : float64 array, shape (parts, nodes)
    """

    constant: float
    weights: Floats
    loads: Floats
    part_node: Ints
    part_constant: Floats
    part_coefficients: Floats

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.weights)

    @property
    def dimensions(self) -> int:
        """Number of dimensions."""
        return int(self.loads.shape[1])

    def node_values(self, bandwidth: Floats) -> Floats:
        """Return the nodes' seconds at bandwidths in bytes/s; infinite on loaded zeros."""
        count = len(self.loads)
        values = np.zeros(self.nodes)
        if count:
            with np.errstate(divide="ignore", invalid="ignore"):
                times = np.where(self.loads > 0, self.loads / bandwidth, 0.0)
            values[:count] = times.max(axis=1)
        if self.nodes > count:
            if not np.all(np.isfinite(values)):
                values[count:] = np.inf
                return values
            for r, node in enumerate(self.part_node):
                part = self.part_constant[r] + float(self.part_coefficients[r] @ values)
                values[node] = max(values[node], part)
        return values

    def time(self, bandwidth: Floats) -> float:
        """Return the iteration time in seconds at bandwidths in bytes/s."""
        values = self.node_values(bandwidth)
        return self.constant + float(self.weights @ values)


def compile_time(expression: Expr, dimensions: int) -> TimeModel:
    """Compile an expression.

    Parameters
    ----------
    expression : Expr
    dimensions : int
        Of the network.

    Returns
    -------
    TimeModel
    """
    loads: dict[Atom, int] = {}
    maxima: dict[Atom, int] = {}
    _visit(expression.terms, loads, maxima)
    count = len(loads)
    nodes = count + len(maxima)
    weights = np.zeros(nodes)
    for atom, factor in expression.terms.items():
        weights[_place(atom, loads, maxima, count)] = factor
    node: list[int] = []
    constant: list[float] = []
    rows: list[Floats] = []
    for atom, index in maxima.items():
        assert isinstance(atom, Largest)
        for part, terms in atom.parts:
            row = np.zeros(nodes)
            for inner, factor in terms:
                row[_place(inner, loads, maxima, count)] = factor
            node.append(count + index)
            constant.append(part)
            rows.append(row)
    return TimeModel(
        expression.constant,
        weights,
        np.array([atom.bytes for atom in loads if isinstance(atom, Load)]).reshape(
            count, dimensions
        ),
        np.array(node, dtype=np.int64),
        np.array(constant),
        np.array(rows).reshape(len(rows), nodes),
    )


def _visit(terms: dict[Atom, float], loads: dict[Atom, int], maxima: dict[Atom, int]) -> None:
    for atom in terms:
        if isinstance(atom, Load):
            loads.setdefault(atom, len(loads))
        elif atom not in maxima:
            for _, inner in atom.parts:
                _visit(dict(inner), loads, maxima)
            maxima.setdefault(atom, len(maxima))


def _place(atom: Atom, loads: dict[Atom, int], maxima: dict[Atom, int], count: int) -> int:
    return loads[atom] if isinstance(atom, Load) else count + maxima[atom]
