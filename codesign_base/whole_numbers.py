"""Whole numbers."""

from math import isqrt


def divisors(number: int, limit: int | None = None) -> tuple[int, ...]:
    """Return the divisors of a number, ascending, up to a limit if there is one.

    Parameters
    ----------
    number : int
        Not negative; 0 has none.
    limit : int, optional

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> divisors(12), divisors(12, limit=4)
    ((1, 2, 3, 4, 6, 12), (1, 2, 3, 4))
    """
    most, root = number if limit is None else limit, isqrt(number)
    small = [d for d in range(1, min(root, most) + 1) if number % d == 0]
    if most <= root:  # of numbers too large to go through
        return tuple(small)
    return tuple(d for d in sorted({*small, *(number // d for d in small)}) if d <= most)
