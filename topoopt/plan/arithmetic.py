"""Comparing a stored number with its recomputation."""

import math

from codesign_base import InputError

# Relative. Simulated times may be summed in another order on another machine; what is a
# product of a few stored numbers may differ in the last bits only.
SIMULATED = 1e-9
_EXACT = 1e-12


def require_same(
    name: str, stored: float | None, computed: float, tolerance: float = _EXACT
) -> None:
    """Require that a stored number equals its recomputation.

    Parameters
    ----------
    name : str
        What the number is called in the plan.
    stored : float or None
    computed : float
    tolerance : float
        Relative.

    Raises
    ------
    InputError
        If they differ, or nothing is stored.
    """
    if stored is None or not math.isclose(stored, computed, rel_tol=tolerance, abs_tol=1e-15):
        raise InputError(f"{name} is {stored!r} in the plan, recomputed {computed!r}")
