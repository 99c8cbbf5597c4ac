"""Among bandwidths of equal time, the cheapest.

At a PerfOpt optimum the multipliers load some dimensions (``mu_d > 0``). There the optimal
bandwidth is unique, because the bound of `certificate` is strictly convex in it; so are the
values of all nodes of positive marginal weight. The other dimensions are free as long as those
nodes do not grow. Minimising the cost over them is a smaller problem of the same kind.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from topoopt.bandwidth.model.time_model import TimeModel
from topoopt.bandwidth.solve.certificate import Certificate
from topoopt.bandwidth.solve.problem import AllocationObjective, AllocationProblem

_NEGLIGIBLE = 1e-6  # share of all communication below which a marginal load counts as none
_SLACK = 1.0 + 1e-10


def tied_problem(
    problem: AllocationProblem, bandwidth: Floats, bound: Certificate
) -> tuple[AllocationProblem, Ints] | None:
    """Return the problem of the cheapest among equals, and the free dimensions.

    Parameters
    ----------
    problem : AllocationProblem
        With the objective time.
    bandwidth : float64 array, shape (dimensions,)
        An optimum.
    bound : Certificate
        Its multipliers.

    Returns
    -------
    (AllocationProblem, int array) or None
        The problem over the free dimensions; None if the constraints leave no choice.
    """
    time, limits = problem.time, problem.constraints
    share = np.zeros(problem.dimensions)
    on = bound.loads > 0
    share[on] = bound.loads[on] / bandwidth[on]
    free = np.flatnonzero(share <= _NEGLIGIBLE * share.sum())
    if not len(free):
        return None
    touched = np.flatnonzero(np.any(limits.matrix[:, free] != 0, axis=1))
    equal = limits.matrix[np.ix_(touched[limits.equality[touched]], free)]
    if len(equal) and np.linalg.matrix_rank(equal) == len(free):
        return None
    values = time.node_values(bandwidth)
    weight = bound.node_weights * values
    tight = weight > _NEGLIGIBLE * weight.max(initial=0.0)
    count = len(time.loads)
    lower = np.zeros(len(free))
    if np.any(tight[:count]):
        own = time.loads[:count][tight[:count]]
        lower = np.max(own / (values[:count][tight[:count], None] * _SLACK), axis=0)[free]
    kept = np.flatnonzero(lower > 0)
    rest = bandwidth.copy()
    rest[free] = 0.0
    fewer = replace(
        limits.keep(touched),
        matrix=limits.matrix[np.ix_(touched, free)],
        bound=(limits.bound - limits.matrix @ rest)[touched],
    ).plus(("lower limit",) * len(kept), -np.eye(len(free))[kept], -lower[kept])
    hidden = _hidden_nodes(time, bandwidth, values, tight, free)
    fixed = problem.cost_of(rest)
    return AllocationProblem(
        hidden, problem.cost[free], fixed, fewer, AllocationObjective.COST, _SLACK
    ), free


def _hidden_nodes(
    time: TimeModel, bandwidth: Floats, values: Floats, tight: npt.NDArray[np.bool_], free: Ints
) -> TimeModel:
    """Say how far the nodes of no marginal weight may grow.

    Nodes: the loads of hidden collectives on the free dimensions, the same with what they take
    on the others, the hidden maxima, and last the largest of all parts of the tight maxima
    relative to what they may be. The deadline 1 bounds that last node.
    """
    count = len(time.loads)
    loads = [k for k in range(count) if not tight[k] and np.any(time.loads[k][free] > 0)]
    place: dict[int, int] = {}
    rows: list[tuple[int, float, dict[int, float]]] = []
    for index, k in enumerate(loads):
        place[k] = len(loads) + index
        others = np.delete(time.loads[k], free), np.delete(bandwidth, free)
        least = float(np.max(others[0] / others[1], initial=0.0))
        rows += [(place[k], 0.0, {index: 1.0}), (place[k], least, {})]
    top: list[tuple[float, dict[int, float]]] = []
    for r, node in enumerate(time.part_node.tolist()):
        known, inner = float(time.part_constant[r]), {}
        for j in np.flatnonzero(time.part_coefficients[r]):
            factor = float(time.part_coefficients[r, j])
            if int(j) in place:
                inner[place[int(j)]] = factor
            else:
                known += factor * float(values[j])
        if tight[node]:
            if inner:
                size = float(values[node])
                top.append((known / size, {j: f / size for j, f in inner.items()}))
        else:
            if node not in place:
                place[node] = 2 * len(loads) + sum(1 for k in place if k >= count)
            rows.append((place[node], known, inner))
    if not top:
        # A weight in the objective itself makes a node tight, so nothing hidden is bounded.
        loads, rows = [], []
    nodes = len(loads) + len(place) + 1 if top else 0
    rows += [(nodes - 1, constant, inner) for constant, inner in top]
    weights = np.zeros(nodes)
    weights[-1:] = 1.0
    coefficients = np.zeros((len(rows), nodes))
    for at, (_, _, factors) in enumerate(rows):
        for node, factor in factors.items():
            coefficients[at, node] = factor
    return TimeModel(
        0.0,
        weights,
        time.loads[loads][:, free].reshape(len(loads), len(free)),
        np.array([node for node, _, _ in rows], dtype=np.int64),
        np.array([constant for _, constant, _ in rows]),
        coefficients,
    )
