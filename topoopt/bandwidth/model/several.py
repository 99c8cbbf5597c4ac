"""One network for several workloads: weighted sum and minimax."""

from collections.abc import Sequence
from enum import StrEnum

from codesign_base import InputError
from codesign_base.arguments import is_number, several, told
from codesign_base.counted import counted
from topoopt.bandwidth.model.expressions import Expr, maximum, total


class Together(StrEnum):
    """How the times of several workloads become one number."""

    SUM = "sum"
    MAXIMUM = "max"


class RelativeTo(StrEnum):
    """What the time of each of several workloads is divided by."""

    OPTIMUM = "optimum"
    """Its least time on this network alone, under the same budget and constraints."""
    EQUAL = "equal"
    """Its time at 100 GB/s on every dimension, whatever the budget."""


def combine(
    expressions: Sequence[Expr],
    weights: Sequence[float] | None = None,
    together: Together = Together.SUM,
    references: Sequence[float] | None = None,
) -> Expr:
    """Return one expression of several workloads' iteration times.

    Parameters
    ----------
    expressions : sequence of Expr
    weights : sequence of float, optional
        Positive; 1 each by default.
    together : Together, optional
        The weighted sum of the times, or the largest weighted time (minimax).
    references : sequence of float, optional
        Seconds, one a workload. Each time then counts relative to its reference, so that long
        workloads do not outvote short ones; the result has no unit.

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
    wanted = "a number for each workload, such as (1, 2)"
    factors = (
        [1.0] * len(expressions) if weights is None else list(several("weights", weights, wanted))
    )
    if len(factors) != len(expressions):
        raise InputError(
            f"{counted(len(factors), 'weight')} for {counted(len(expressions), 'workload')}; give "
            "one each"
        )
    for factor in factors:
        if not (is_number(factor) and 0 < factor < float("inf")):
            raise InputError(f"workload weight {told(factor)}; give a positive number")
    if references is not None:
        if min(references) == 0.0:
            raise InputError("a workload takes no time at all, so that none is relative to it")
        factors = [factor / time for factor, time in zip(factors, references, strict=True)]
    scaled = [factor * e for factor, e in zip(factors, expressions, strict=True)]
    return total(scaled) if together == Together.SUM else maximum(*scaled)
