"""Where the time of an iteration goes at given bandwidths."""

from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats
from topoopt.bandwidth.model.expressions import Expr, total
from topoopt.bandwidth.model.loops import LayerTimes, Loop, TrainingLoop, add_up
from topoopt.bandwidth.model.time_model import TimeModel, compile_time

# Times within this relative distance of each other differ by rounding.
_TIE = 1e-6


@dataclass(frozen=True, eq=False)
class WorkloadTimes:
    """One workload at some bandwidths; times in seconds.

    Parameters
    ----------
    name : str
    iteration : float
    compute : float
        The iteration if communication took no time.
    exposed : tuple of float
        Rest of the iteration by the dimension that is waited for; dimensions that are equally
        slow share it evenly.
    latency : float
        What the steps' latency adds.
    utilisation : tuple of float
        Share of the collectives' time in which each dimension's usable links are busy.
    equal_iteration : float
        The iteration at equal bandwidths.
    """

    name: str
    iteration: float
    compute: float
    exposed: tuple[float, ...]
    latency: float
    utilisation: tuple[float, ...]
    equal_iteration: float


def workload_times(
    name: str,
    layers: tuple[LayerTimes, ...],
    expression: Expr,
    loop: Loop | TrainingLoop,
    bandwidth: Floats,
    equal: Floats,
) -> WorkloadTimes:
    """Return the times of a workload at some bandwidths, and at equal ones.

    Parameters
    ----------
    name : str
    layers : tuple of LayerTimes
    expression : Expr
        Of the iteration time.
    loop : Loop or callable
    bandwidth, equal : float64 array, shape (dimensions,)
        Bytes/s.

    Returns
    -------
    WorkloadTimes
    """
    n = len(bandwidth)
    model = compile_time(expression, n)
    iteration = model.time(bandwidth)
    no_bytes = add_up(tuple(layer.without_communication() for layer in layers), loop)
    free_of_bytes = model.time(np.full(n, np.inf))
    compute = compile_time(no_bytes, n).time(np.full(n, np.inf))
    shares = critical_shares(model, bandwidth)
    exposed = shares * ((iteration - free_of_bytes) / shares.sum() if shares.sum() > 0 else 0.0)
    traffic = compile_time(
        total(
            layer.count * part
            for layer in layers
            for part in (layer.forward_comm, layer.input_grad_comm, layer.weight_grad_comm)
        ),
        n,
    )
    busy = np.zeros(n)
    loaded = traffic.loads.any(axis=0)
    busy[loaded] = (traffic.weights @ traffic.loads)[loaded] / bandwidth[loaded]
    span = float(traffic.weights @ traffic.node_values(bandwidth))
    return WorkloadTimes(
        name,
        iteration,
        compute,
        tuple(exposed.tolist()),
        free_of_bytes - compute,
        tuple((busy / span if span > 0 else busy).tolist()),
        model.time(equal),
    )


def critical_shares(model: TimeModel, bandwidth: Floats) -> Floats:
    """Return the seconds on the iteration's critical path by dimension waited for.

    Parameters
    ----------
    model : TimeModel
    bandwidth : float64 array, shape (dimensions,)
        Bytes/s.

    Returns
    -------
    float64 array, shape (dimensions,)
        Dimensions, and parts of a maximum, that are alike but for rounding share evenly.
    """
    values = model.node_values(bandwidth)
    weight = model.weights.copy()
    count = len(model.loads)
    for node in range(model.nodes - 1, count - 1, -1):
        rows = np.flatnonzero(model.part_node == node)
        sizes = model.part_constant[rows] + model.part_coefficients[rows] @ values
        tied = rows[sizes >= sizes.max() * (1 - _TIE)]
        weight = weight + weight[node] / len(tied) * model.part_coefficients[tied].sum(axis=0)
    shares = np.zeros(model.dimensions)
    for k in range(count):
        on = model.loads[k] > 0
        times = np.zeros(model.dimensions)
        times[on] = model.loads[k][on] / bandwidth[on]
        slow = times >= times.max() * (1 - _TIE)
        shares[slow] += weight[k] * values[k] / slow.sum()
    return shares
