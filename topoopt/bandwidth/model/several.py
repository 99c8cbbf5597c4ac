"""One network for several workloads: weighted sum and minimax."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from topoopt.bandwidth.model.expressions import Expr, maximum, total


class Together(StrEnum):
    """How the times of several workloads become one number."""

    SUM = "sum"
    MAXIMUM = "max"


def combine(
    expressions: Sequence[Expr],
    weights: Sequence[float] | None = None,
    together: Together = Together.SUM,
    reference: npt.ArrayLike | None = None,
) -> Expr:
    """Return one expression of several workloads' iteration times.

    Parameters
    ----------
    expressions : sequence of Expr
    weights : sequence of float, optional
        Positive; 1 each by default.
    together : Together, optional
        The weighted sum of the times, or the largest weighted time (minimax).
    reference : array_like of float, shape (dimensions,), optional
        Bandwidths in bytes/s (equal ones, say). Each time then counts relative to its time
        there, so that long workloads do not outvote short ones; the result has no unit.

    Returns
    -------
    Expr

    Raises
    ------
    InputError
        If there is no workload, a weight is not positive, or the numbers differ.
    """
    if not expressions:
        raise InputError("there is no workload; give at least one")
    factors = [1.0] * len(expressions) if weights is None else list(weights)
    if len(factors) != len(expressions):
        raise InputError(f"{len(factors)} weights for {len(expressions)} workloads; give one each")
    for factor in factors:
        if not 0 < factor < float("inf"):
            raise InputError(f"workload weight {factor}; give a positive number")
    if reference is not None:
        at = np.asarray(reference, dtype=np.float64).tolist()
        times = [expression.evaluate(at) for expression in expressions]
        if min(times) == 0.0:
            raise InputError("a workload takes no time at all, so that none is relative to it")
        factors = [factor / time for factor, time in zip(factors, times, strict=True)]
    scaled = [factor * e for factor, e in zip(factors, expressions, strict=True)]
    return total(scaled) if together == Together.SUM else maximum(*scaled)
