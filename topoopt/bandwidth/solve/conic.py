"""The convex form as a cone program, solved by Clarabel.

All loads on a dimension share one inverse ``u >= 1 / x``, a second-order cone of three rows;
everything else is linear, so that the program has few more cones than dimensions.
"""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from topoopt.bandwidth.solve.form import ConvexForm, form_nodes


@dataclass(frozen=True, eq=False)
class ConicSolution:
    """What the cone solver found, in the form's own units.

    Parameters
    ----------
    status : str
        Clarabel's word, such as "Solved" or "PrimalInfeasible".
    x : float64 array, shape (x,)
    load_duals : float64 array, shape (loads, x)
        Multipliers of ``e_k >= loads[k, d] u_d``.
    part_duals : float64 array, shape (parts,)
    duals : float64 array, shape (constraints,)
        Multipliers of ``A x <= bound`` (of either sign for equalities).
    limit_dual : float
        Multiplier of the deadline.
    limit_load_duals, limit_part_duals : float64 arrays
        As above, of the second copy of the nodes that a deadline of time x cost needs.
    """

    status: str
    x: Floats
    load_duals: Floats
    part_duals: Floats
    duals: Floats
    limit_dual: float
    limit_load_duals: Floats
    limit_part_duals: Floats


@dataclass(frozen=True, eq=False)
class _Copy:
    """Where the nodes and inverses of one copy of the time model lie in the program.

    Parameters
    ----------
    inverse : int64 array, shape (x,)
        Column of each inverse, -1 where there is none.
    unit : float64 array, shape (x,)
        What the inverses are counted in.
    first : int
        Column of the first node.
    size : float64 array, shape (nodes,)
        What the nodes are counted in.
    load_rows, part_rows : int64 arrays
        Rows of the loads (in the order of ``numpy.nonzero``) and of the parts.
    """

    inverse: Ints
    unit: Floats
    first: int
    size: Floats
    load_rows: Ints
    part_rows: Ints


def solve_conic(form: ConvexForm, scale: Floats, tolerance: float = 1e-9) -> ConicSolution:
    """Solve the form once.

    Parameters
    ----------
    form : ConvexForm
    scale : float64 array, shape (x,)
        Positive values near those of the solution; variables are counted in them.
    tolerance : float, optional
        Of Clarabel's gap and feasibility.

    Returns
    -------
    ConicSolution
    """
    n, nodes, parts = len(scale), len(form.weights), len(form.part_node)
    load_row, load_dim = np.nonzero(form.loads)
    inverted = form.loads.any(axis=0) | form.part_load.any(axis=0) | (form.inverse > 0)
    used = np.flatnonzero(inverted)
    again = used[used < n - 1] if form.perspective and form.limit_weights is not None else used[:0]
    free = np.flatnonzero(~inverted)  # the cones keep the others positive
    order = np.concatenate([np.flatnonzero(form.equality), np.flatnonzero(~form.equality)])
    copies = _lay_out(form, scale, used, again, len(order) + len(free), len(load_row))
    one = copies[0]
    at = len(order) + len(free) + len(copies) * (len(load_row) + parts)
    rows = at + (form.limit_weights is not None)
    width = copies[-1].first + nodes
    a = np.zeros((rows + 3 * (len(used) + len(again)), width))
    b = np.zeros(len(a))
    q = np.zeros(width)

    goal = float(abs(form.linear @ scale) + form.inverse @ (1 / scale) + form.weights @ one.size)
    goal = goal if goal > 0 else 1.0
    q[:n] = form.linear * scale / goal
    q[one.inverse[used]] = form.inverse[used] / scale[used] / goal
    q[one.first : one.first + nodes] = form.weights * one.size / goal

    scaled = form.matrix * scale
    row_size = np.maximum(np.abs(scaled).max(axis=1, initial=0.0), np.abs(form.bound))
    row_size = np.where(row_size > 0, row_size, 1.0)
    a[: len(order), :n] = scaled[order] / row_size[order, None]
    b[: len(order)] = form.bound[order] / row_size[order]
    a[len(order) + np.arange(len(free)), free] = -1.0

    for copy in copies:
        _put_nodes(a, form, copy, load_row, load_dim)
    if parts:
        u = one.inverse[used]
        part_size = one.size[form.part_node]
        a[np.ix_(one.part_rows, u)] += form.part_load[:, used] / scale[used] / part_size[:, None]
        b[one.part_rows] = -form.part_constant / part_size
    limit_size = 1.0
    if form.limit_weights is not None:
        last = copies[-1]
        t = scale[-1] if form.perspective else 1.0
        limit_size = max(abs(form.limit) * t, float(form.limit_weights @ last.size), 1e-300)
        a[at, last.first : last.first + nodes] = form.limit_weights * last.size / limit_size
        if form.perspective:
            a[at, n - 1] = -form.limit * t / limit_size
            constants = form.time_constants * t / last.size[form.part_node]
            a[last.part_rows, n - 1] = constants
        else:
            b[at] = form.limit / limit_size

    # (u + x, u - x, 2) in the second-order cone says u x >= 1, and with 2 t that u x >= t^2.
    top = rows + 3 * np.arange(len(used) + len(again))
    x = np.concatenate([used, again])
    u = np.concatenate([one.inverse[used], copies[-1].inverse[again]])
    a[top, u] = a[top, x] = a[top + 1, u] = -1.0
    a[top + 1, x] = 1.0
    b[top[: len(used)] + 2] = 2.0
    a[top[len(used) :] + 2, n - 1] = -2.0

    equal = int(form.equality.sum())
    status, values, z = _run(q, a, b, equal, rows - equal, tolerance)
    z = z * goal
    duals = np.zeros(len(order))
    duals[order] = z[: len(order)] / row_size[order]
    load_duals = np.zeros((2, *form.loads.shape))
    part_duals = np.zeros((2, parts))
    for which, copy in enumerate(copies):
        load_duals[which, load_row, load_dim] = z[copy.load_rows] / copy.size[load_row]
        part_duals[which] = z[copy.part_rows] / copy.size[form.part_node]
    return ConicSolution(
        status=status,
        x=values[:n] * scale,
        load_duals=load_duals[0],
        part_duals=part_duals[0],
        duals=duals,
        limit_dual=float(z[at] / limit_size) if form.limit_weights is not None else 0.0,
        limit_load_duals=load_duals[1],
        limit_part_duals=part_duals[1],
    )


def _lay_out(
    form: ConvexForm, scale: Floats, used: Ints, again: Ints, begin: int, loads: int
) -> list[_Copy]:
    """Place the nodes, and their second copy if a deadline of time x cost needs one.

    The second copy bounds ``t T(y / t)``: its inverses are ``t^2 / y``.
    """
    n, nodes, parts = len(scale), len(form.weights), len(form.part_node)
    size = form_nodes(form, scale)
    copies = []
    column, row = n, begin
    for which, dims in enumerate((used, again)):
        if which and not len(again):
            break
        unit: Floats = 1.0 / scale
        if which:
            unit = scale[-1] ** 2 / scale
            size = _limit_sizes(form, scale)
        inverse = np.full(n, -1)
        inverse[dims] = column + np.arange(len(dims))
        first = column + len(dims)
        copies.append(
            _Copy(
                inverse,
                unit,
                first,
                np.where(size > 0, size, 1.0),
                row + np.arange(loads),
                row + loads + np.arange(parts),
            )
        )
        column, row = first + nodes, row + loads + parts
    return copies


def _put_nodes(a: Floats, form: ConvexForm, copy: _Copy, load_row: Ints, load_dim: Ints) -> None:
    """Write ``e >= load u`` and ``e >= coefficients . e`` of one copy."""
    loads = form.loads[load_row, load_dim] * copy.unit[load_dim] / copy.size[load_row]
    a[copy.load_rows, copy.inverse[load_dim]] = loads
    a[copy.load_rows, copy.first + load_row] = -1.0
    if len(form.part_node):
        last = copy.first + len(copy.size)
        own = copy.size[form.part_node]
        a[copy.part_rows, copy.first : last] = form.part_coefficients * copy.size / own[:, None]
        a[copy.part_rows, copy.first + form.part_node] -= 1.0


def _run(
    q: Floats, a: Floats, b: Floats, equal: int, unequal: int, tolerance: float
) -> tuple[str, Floats, Floats]:
    """Minimise ``q . v`` where ``b - a v`` is zero, then not negative, then in cones of 3."""
    import clarabel  # type: ignore[import-untyped]
    from scipy.sparse import csc_matrix

    column, row = np.nonzero(a.T)
    pointers = starts(np.bincount(column, minlength=len(q)))
    matrix = csc_matrix((a[row, column], row, pointers), shape=a.shape)
    kinds: list[object] = [clarabel.ZeroConeT(equal)] if equal else []
    if unequal:
        kinds.append(clarabel.NonnegativeConeT(unequal))
    kinds += [clarabel.SecondOrderConeT(3)] * ((len(b) - equal - unequal) // 3)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    nothing = csc_matrix((len(q), len(q)))
    found = clarabel.DefaultSolver(nothing, q, matrix, b, kinds, settings).solve()
    return str(found.status), np.array(found.x), np.array(found.z)


def _limit_sizes(form: ConvexForm, scale: Floats) -> Floats:
    """Return the nodes of ``t T(y / t)`` at a point, to count the second copy in."""
    t = scale[-1]
    values: Floats = np.zeros(len(form.weights))
    count = len(form.loads)
    if count:
        values[:count] = np.max(form.loads[:, :-1] * t * t / scale[:-1], axis=1)
    for r, node in enumerate(form.part_node):
        part = form.time_constants[r] * t + float(form.part_coefficients[r] @ values)
        values[node] = max(values[node], part)
    return values
