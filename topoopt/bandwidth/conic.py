"""The convex form as a cone program, solved by Clarabel.

All loads on a dimension share one inverse ``u >= 1 / x``, a second-order cone of three rows;
everything else is linear, so that the program has few more cones than dimensions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topoopt.bandwidth.form import Form, form_nodes
from topoopt.bandwidth.time_model import Floats


@dataclass(frozen=True, eq=False)
class ConicSolution:
    """What the cone solver found, in the form's own units.

    Parameters
    ----------
    status : str
        Clarabel's word; "Solved" or "AlmostSolved" when ``x`` means something.
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
    iterations : int
    """

    status: str
    x: Floats
    load_duals: Floats
    part_duals: Floats
    duals: Floats
    limit_dual: float
    limit_load_duals: Floats
    limit_part_duals: Floats
    iterations: int

    @property
    def solved(self) -> bool:
        """Whether there is a solution, if perhaps not an accurate one."""
        return self.status in ("Solved", "AlmostSolved", "InsufficientProgress")


def solve_conic(form: Form, scale: Floats, tolerance: float = 1e-9) -> ConicSolution:
    """Solve the form once.

    Parameters
    ----------
    form : Form
    scale : float64 array, shape (x,)
        Positive values near those of the solution; variables are counted in them.
    tolerance : float, optional
        Of Clarabel's gap and feasibility.

    Returns
    -------
    ConicSolution
    """
    import clarabel
    from scipy.sparse import csc_matrix

    n, nodes, count = len(scale), len(form.weights), len(form.loads)
    used = np.flatnonzero((form.loads > 0).any(axis=0) | (form.part_load > 0).any(axis=0)
                          | (form.inverse > 0))  # fmt: skip
    cones = len(used)
    inverse_at = np.full(n, -1)
    inverse_at[used] = n + np.arange(cones)
    twice = form.perspective and form.limit_weights is not None
    first = n + cones
    second = first + nodes  # the second copy: inverses t^2 / y, then nodes
    y_used = used[used < n - 1] if twice else used[:0]
    width = second + (len(y_used) + nodes if twice else 0)

    size = form_nodes(form, scale)
    size = np.where(size > 0, size, 1.0)
    goal = abs(form.linear @ scale) + form.inverse @ (1 / scale) + form.weights @ size
    goal = goal if goal > 0 else 1.0

    q = np.zeros(width)
    q[:n] = form.linear * scale / goal
    q[inverse_at[used]] = form.inverse[used] / scale[used] / goal
    q[first : first + nodes] = form.weights * size / goal

    # Linear constraints: equalities first, then inequalities.
    scaled = form.matrix * scale
    row_size = np.maximum(np.abs(scaled).max(axis=1, initial=0.0), np.abs(form.bound))
    row_size = np.where(row_size > 0, row_size, 1.0)
    order = np.concatenate([np.flatnonzero(form.equality), np.flatnonzero(~form.equality)])
    equal = int(form.equality.sum())
    free = np.setdiff1d(np.arange(n), used)  # the cones keep the others positive

    load_row, load_dim = np.nonzero(form.loads)
    parts = len(form.part_node)
    limited = form.limit_weights is not None
    linear = len(order) + len(free)
    rows = linear + len(load_row) + parts + int(limited)
    if twice:
        rows += len(load_row) + parts
    soc = 3 * (cones + len(y_used))
    a = np.zeros((rows + soc, width))
    b = np.zeros(rows + soc)
    a[: len(order), :n] = scaled[order] / row_size[order, None]
    b[: len(order)] = form.bound[order] / row_size[order]
    a[len(order) + np.arange(len(free)), free] = -1.0
    at = linear
    own = at + np.arange(len(load_row))
    a[own, first + load_row] = -1.0
    loads = form.loads[load_row, load_dim]
    a[own, inverse_at[load_dim]] = loads / scale[load_dim] / size[load_row]
    at += len(load_row)
    mine = at + np.arange(parts)
    if parts:
        node_size = size[form.part_node]
        coefficients = form.part_coefficients * size / node_size[:, None]
        a[at : at + parts, first : first + nodes] = coefficients
        a[mine, first + form.part_node] -= 1.0
        a[np.ix_(mine, inverse_at[used])] += (
            form.part_load[:, used] / scale[used] / node_size[:, None]
        )
        b[mine] = -form.part_constant / node_size
        at += parts
    limit_size = 1.0
    second_size = size
    if twice:
        t = scale[-1]
        places = second + np.arange(len(y_used))
        inverse2 = np.full(n, -1)
        inverse2[y_used] = places
        nodes2 = second + len(y_used)
        # Counted in t**2 / y for the inverses and in t times seconds for the nodes.
        second_size = _limit_sizes(form, scale)
        own2 = at + np.arange(len(load_row))
        a[own2, nodes2 + load_row] = -1.0
        a[own2, inverse2[load_dim]] = loads * t * t / scale[load_dim] / second_size[load_row]
        at += len(load_row)
        if parts:
            mine2 = at + np.arange(parts)
            node_size = second_size[form.part_node]
            a[at : at + parts, nodes2 : nodes2 + nodes] = (
                form.part_coefficients * second_size / node_size[:, None]
            )
            a[mine2, nodes2 + form.part_node] -= 1.0
            a[mine2, n - 1] = form.time_constants * t / node_size
            at += parts
        limit_size = max(abs(form.limit) * t, float(form.limit_weights @ second_size), 1e-300)
        a[at, nodes2 : nodes2 + nodes] = form.limit_weights * second_size / limit_size
        a[at, n - 1] = -form.limit * t / limit_size
        at += 1
    elif form.limit_weights is not None:
        limit_size = max(abs(form.limit), float(form.limit_weights @ size), 1e-300)
        a[at, first : first + nodes] = form.limit_weights * size / limit_size
        b[at] = form.limit / limit_size
        at += 1
    # (u + x, u - x, 2) in the second-order cone says u x >= 1.
    top = rows + 3 * np.arange(cones)
    u = inverse_at[used]
    a[top, u] = a[top, used] = -1.0
    a[top + 1, u] = -1.0
    a[top + 1, used] = 1.0
    b[top + 2] = 2.0
    if twice:
        top = rows + 3 * (cones + np.arange(len(y_used)))
        a[top, places] = a[top, y_used] = -1.0
        a[top + 1, places] = -1.0
        a[top + 1, y_used] = 1.0
        a[top + 2, n - 1] = -2.0

    column, row = np.nonzero(a.T)
    pointers = np.zeros(width + 1, dtype=np.int64)
    np.cumsum(np.bincount(column, minlength=width), out=pointers[1:])
    matrix = csc_matrix((a[row, column], row, pointers), shape=a.shape)
    nothing = csc_matrix((width, width))
    kinds: list[object] = []
    if equal:
        kinds.append(clarabel.ZeroConeT(equal))
    if rows > equal:
        kinds.append(clarabel.NonnegativeConeT(rows - equal))
    kinds += [clarabel.SecondOrderConeT(3)] * (cones + len(y_used))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.presolve_enable = False
    found = clarabel.DefaultSolver(nothing, q, matrix, b, kinds, settings).solve()
    values, z = np.array(found.x), np.array(found.z) * goal

    duals = np.zeros(len(order))
    duals[order] = z[: len(order)] / row_size[order]
    load_duals = np.zeros_like(form.loads)
    load_duals[load_row, load_dim] = z[own] / size[load_row]
    part_duals = z[mine] / size[form.part_node] if parts else np.zeros(0)
    limit_loads, limit_parts = np.zeros_like(form.loads), np.zeros(parts)
    if twice:
        limit_loads[load_row, load_dim] = z[own2] / second_size[load_row]
        if parts:
            limit_parts = z[mine2] / second_size[form.part_node]
    limit_dual = float(z[at - 1] / limit_size) if limited else 0.0
    return ConicSolution(
        str(found.status), values[:n] * scale, load_duals, part_duals, duals, limit_dual,
        limit_loads, limit_parts, int(found.iterations),
    )  # fmt: skip


def _limit_sizes(form: Form, scale: Floats) -> Floats:
    """Return the nodes of ``t T(y / t)`` at a point, to count the second copy in."""
    t = scale[-1]
    values: npt.NDArray[np.float64] = np.zeros(len(form.weights))
    count = len(form.loads)
    if count:
        values[:count] = np.max(form.loads[:, :-1] * t * t / scale[:-1], axis=1)
    for r, node in enumerate(form.part_node):
        part = form.time_constants[r] * t + float(form.part_coefficients[r] @ values)
        values[node] = max(values[node], part)
    return np.where(values > 0, values, 1.0)
