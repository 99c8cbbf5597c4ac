"""A lower bound on the optimum that anybody can check: multipliers and a closed form.

Whatever multipliers the cone solver returns are first made exactly feasible for the dual of
the nodes' linear part. Then, with ``mu`` the loads that they put on the dimensions and
``q = linear + A' lambda``, every feasible x has

    objective >= constants - lambda . bound + sum over d of (mu_d / x_d + q_d x_d)
              >= constants - lambda . bound + sum over d of 2 sqrt(mu_d q_d)      (q >= 0).

No property of the solver enters.
"""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats
from topoopt.bandwidth.solve.conic import ConicSolution
from topoopt.bandwidth.solve.form import ConvexForm


@dataclass(frozen=True, eq=False)
class Certificate:
    """Multipliers that prove a lower bound.

    Parameters
    ----------
    bound : float
        No feasible x has a smaller objective; -inf if the multipliers prove nothing.
    duals : float64 array, shape (constraints,)
        Of the linear constraints.
    limit_dual : float
        Of the deadline.
    loads : float64 array, shape (x,)
        ``mu``: what the multipliers load on each x.
    node_weights : float64 array, shape (nodes,)
        Marginal weight of each node; zero where a node is hidden behind others.
    """

    bound: float
    duals: Floats
    limit_dual: float
    loads: Floats
    node_weights: Floats


def prove(form: ConvexForm, found: ConicSolution) -> Certificate:
    """Return the best bound that a solver's multipliers prove.

    Parameters
    ----------
    form : ConvexForm
    found : ConicSolution

    Returns
    -------
    Certificate
    """
    duals = np.where(form.equality, found.duals, np.maximum(found.duals, 0.0))
    limit = max(found.limit_dual, 0.0)
    weights = form.weights
    constant = form.constant
    if form.limit_weights is not None and not form.perspective:
        weights = weights + limit * form.limit_weights
        constant -= limit * form.limit
    total, loads, parts = _make_feasible(form, weights, found.load_duals, found.part_duals)
    mu = form.inverse + np.einsum("kd,kd->d", loads, form.loads) + parts @ form.part_load
    constant += float(parts @ form.part_constant)
    if form.limit_weights is not None and form.perspective:
        return _prove_limited(form, found, duals, limit, mu, constant, total)
    q = form.linear + duals @ form.matrix
    duals, q = _lift(form, duals, q, found.x)
    bound = _closed_form(form, constant, mu, q, duals)
    if not np.any(form.linear):
        # Without a linear objective the multipliers may be scaled: take the best factor.
        height = float(duals @ form.bound)
        root = float(np.sum(np.sqrt(mu * np.maximum(q, 0.0))))
        if height > 0 and root > 0:
            factor = (root / height) ** 2
            duals, q = duals * factor, q * factor
            bound = max(bound, _closed_form(form, constant, mu, q, duals))
    # Times, costs and their products are never negative beyond their constant.
    return Certificate(max(bound, form.constant), duals, limit, mu, total)


def _closed_form(form: ConvexForm, constant: float, mu: Floats, q: Floats, duals: Floats) -> float:
    if np.any(q < 0):
        return -np.inf
    return constant - float(duals @ form.bound) + 2.0 * float(np.sum(np.sqrt(mu * q)))


def _make_feasible(
    form: ConvexForm, weights: Floats, load_duals: Floats, part_duals: Floats
) -> tuple[Floats, Floats, Floats]:
    """Scale multipliers so that those of each node add up to its weight exactly."""
    total = weights.copy()
    parts = np.maximum(part_duals, 0.0)
    count = len(form.loads)
    for node in range(len(weights) - 1, count - 1, -1):
        rows = np.flatnonzero(form.part_node == node)
        given = parts[rows].sum()
        if given > 0:
            parts[rows] *= total[node] / given
        else:
            parts[rows] = total[node] / len(rows)
        total = total + parts[rows] @ form.part_coefficients[rows]
    loads = np.where(form.loads > 0, np.maximum(load_duals, 0.0), 0.0)
    given = loads.sum(axis=1)
    spread = np.where(form.loads > 0, 1.0, 0.0)
    loads = np.where(given[:, None] > 0, loads, spread)
    loads *= (total[:count] / loads.sum(axis=1))[:, None] if count else 1.0
    return total, loads, parts


def _lift(form: ConvexForm, duals: Floats, q: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Raise multipliers by as little as makes q >= 0, if they can."""
    if np.all(q >= 0):
        return duals, q
    low = q < 0
    for r in range(len(duals)):
        for sign in (1.0, -1.0) if form.equality[r] else (1.0,):
            row = sign * form.matrix[r]
            if np.all(row[low] > 0):
                step = float(np.max(-q[low] / row[low])) * (1 + 1e-12)
                lifted = q + step * row
                if np.all(lifted >= 0):
                    raised = duals.copy()
                    raised[r] += sign * step
                    return raised, lifted
    return _lift_together(form, duals, q, x)


def _lift_together(form: ConvexForm, duals: Floats, q: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Change several multipliers at once: a linear program, hardly ever needed.

    Counted in what is missing, at the solution's sizes; nothing may fall by more than a
    thousand times that.
    """
    from scipy.optimize import linprog

    finite = np.isfinite(q) & (x > 0)
    missing = -(q * x)[finite]
    unit = float(missing.max(initial=0.0))
    if unit <= 0:
        return duals, q
    matrix = form.matrix[:, finite] * x[finite]
    rows = np.abs(matrix).max(axis=1, initial=0.0)
    rows = np.where(rows > 0, rows, 1.0)
    matrix = matrix / rows[:, None]
    room = np.where(form.equality, 1e3, np.minimum(duals * rows / unit, 1e3))
    n = len(duals)
    answer = linprog(
        np.ones(2 * n),
        A_ub=-np.hstack([matrix.T, -matrix.T]),
        b_ub=-(np.maximum(missing / unit, -1e3) + 1e-4),
        bounds=[(0.0, None)] * n + [(0.0, float(most)) for most in room],
        method="highs",
    )
    if answer.status != 0 or answer.x is None:
        return duals, q
    raised = duals + (answer.x[:n] - answer.x[n:]) * unit / rows
    raised = np.where(form.equality, raised, np.maximum(raised, 0.0))
    return raised, q + (raised - duals) @ form.matrix


def _prove_limited(
    form: ConvexForm,
    found: ConicSolution,
    duals: Floats,
    limit: float,
    mu: Floats,
    constant: float,
    total: Floats,
) -> Certificate:
    """Time x cost under a deadline: also ``limit * (t T(y / t) - limit t)`` enters.

    For a fixed t the best y is closed; the rest is a convex function of t, bounded from below
    by its tangent at the solver's t (Cauchy and Schwarz).
    """
    assert form.limit_weights is not None
    _, loads, parts = _make_feasible(
        form, limit * form.limit_weights, found.limit_load_duals, found.limit_part_duals
    )
    second = np.einsum("kd,kd->d", loads, form.loads)[:-1]
    own = float(parts @ form.time_constants) - limit * form.limit
    t = found.x[-1]
    norm = np.sqrt(mu[:-1] + second * t * t)
    safe = np.where(norm > 0, norm, 1.0)
    for _ in range(4):
        q = form.linear + duals @ form.matrix
        duals, _ = _lift(form, duals, np.append(q[:-1], np.inf), found.x)
        q = form.linear + duals @ form.matrix
        root = 2.0 * np.sqrt(np.maximum(q[:-1], 0.0))
        slope = q[-1] + own + float(np.sum(root * second * t / safe))
        if slope >= 0:
            break
        # Multipliers that raise the slope at t, if some can.
        duals, _ = _lift(form, duals, np.append(q[:-1], slope), found.x)
    if slope < 0 or np.any(q[:-1] < 0):
        return Certificate(form.constant, duals, limit, mu, total)
    bound = constant - float(duals @ form.bound) + float(np.sum(root * mu[:-1] / safe))
    bound += 2.0 * float(np.sqrt(mu[-1] * slope))
    return Certificate(max(bound, form.constant), duals, limit, mu, total)
