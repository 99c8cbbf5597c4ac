"""The convex form that both objectives share, and how a problem becomes it.

Variables x >= 0, inverses ``u >= 1 / x``, and the nodes e of a time model whose loads are on
x. Minimise ``constant + linear . x + inverse . u + weights . e`` under linear constraints on x.

- Time and cost: x = b, and a deadline bounds ``weights . e``.
- Time x cost (convex although the product of both is not): with t = 1 / cost(b) and y = b t,
  x = (y, t). The iteration time is homogeneous of degree -1 in b up to constants k, which turn
  into loads k on t; every constraint ``A b <= h`` turns into ``A y <= h t``, and
  ``c . y + c0 t = 1`` says what t is.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem


@dataclass(frozen=True, eq=False)
class ConvexForm:
    """The arrays of the convex form.

    Parameters
    ----------
    constant : float
    linear, inverse : float64 arrays, shape (x,)
    weights : float64 array, shape (nodes,)
    loads : float64 array, shape (loads, x)
    part_node : int64 array, shape (parts,)
    part_constant : float64 array, shape (parts,)
    part_load : float64 array, shape (parts, x)
        Coefficients on u.
    part_coefficients : float64 array, shape (parts, nodes)
    matrix, bound, equality : arrays, shape (constraints, x) and (constraints,)
        Linear constraints on x.
    limit_weights : float64 array, shape (nodes,), or None
        The deadline: ``limit_weights . e <= limit``.
    limit : float
    perspective : bool
        Whether x ends in t; then the deadline bounds ``t T(y / t)``, and ``part_constant`` is
        already in ``part_load``.
    time_constants : float64 array, shape (parts,)
        The parts' constants in seconds, for the deadline.
    """

    constant: float
    linear: Floats
    inverse: Floats
    weights: Floats
    loads: Floats
    part_node: Ints
    part_constant: Floats
    part_load: Floats
    part_coefficients: Floats
    matrix: Floats
    bound: Floats
    equality: npt.NDArray[np.bool_]
    limit_weights: Floats | None
    limit: float
    perspective: bool
    time_constants: Floats


def make_form(problem: AllocationProblem) -> ConvexForm:
    """Return the convex form of a problem.

    References
    ----------
    S. Boyd and L. Vandenberghe, *Convex Optimization*, sections 3.2.6 (perspective) and 4.3.2
    (linear-fractional programs): the transformation of time x cost.
    """
    time, limits = problem.time, problem.constraints
    limited = problem.deadline is not None
    limit_weights = time.weights if limited else None
    limit = (problem.deadline or 0.0) - time.constant
    parts = len(time.part_node)
    if problem.objective != AllocationObjective.TIME_COST:
        n = problem.dimensions
        minimise_time = problem.objective == AllocationObjective.TIME
        return ConvexForm(
            time.constant if minimise_time else problem.fixed_cost,
            np.zeros(n) if minimise_time else problem.cost,
            np.zeros(n),
            time.weights if minimise_time else np.zeros(time.nodes),
            time.loads,
            time.part_node,
            time.part_constant,
            np.zeros((parts, n)),
            time.part_coefficients,
            limits.matrix,
            limits.bound,
            limits.equality,
            limit_weights,
            limit,
            False,
            time.part_constant,
        )
    n = problem.dimensions + 1
    inverse = np.zeros(n)
    inverse[-1] = time.constant
    loads = np.zeros((len(time.loads), n))
    loads[:, :-1] = time.loads
    part_load = np.zeros((parts, n))
    part_load[:, -1] = time.part_constant
    rows = len(limits.names)
    matrix = np.zeros((rows + 1, n))
    matrix[:rows, :-1] = limits.matrix
    matrix[:rows, -1] = -limits.bound
    matrix[rows, :-1] = problem.cost
    matrix[rows, -1] = problem.fixed_cost
    bound = np.zeros(rows + 1)
    bound[rows] = 1.0
    return ConvexForm(
        0.0,
        np.zeros(n),
        inverse,
        time.weights,
        loads,
        time.part_node,
        np.zeros(parts),
        part_load,
        time.part_coefficients,
        matrix,
        bound,
        np.append(limits.equality, True),
        limit_weights,
        limit,
        True,
        time.part_constant,
    )


def to_form(form: ConvexForm, problem: AllocationProblem, bandwidth: Floats) -> Floats:
    """Return the x of bandwidths."""
    if not form.perspective:
        return bandwidth
    # Free bandwidth has no cost to count in.
    t = 1.0 / max(problem.cost_of(bandwidth), 1e-9 * float(problem.cost.max(initial=1e-300)))
    return np.append(bandwidth * t, t)


def from_form(form: ConvexForm, x: Floats) -> Floats:
    """Return the bandwidths of x."""
    return x[:-1] / x[-1] if form.perspective else x


def form_nodes(form: ConvexForm, x: Floats) -> Floats:
    """Return the smallest node values at x > 0."""
    count = len(form.loads)
    values = np.zeros(len(form.weights))
    if count:
        values[:count] = np.max(form.loads / x, axis=1)
    if len(values) > count:
        own = form.part_constant + form.part_load @ (1.0 / x)
        for r, node in enumerate(form.part_node):
            part = own[r] + float(form.part_coefficients[r] @ values)
            values[node] = max(values[node], part)
    return values
