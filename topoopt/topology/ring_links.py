"""The links of a ring."""

from collections.abc import Sequence


def ring_links(order: Sequence[int]) -> list[tuple[int, int]]:
    """Return the links that a ring goes over, in its order.

    Parameters
    ----------
    order : sequence of int
        Its servers; the last sends to the first.

    Returns
    -------
    list of (int, int)
        From which server to which.

    Examples
    --------
    >>> ring_links((0, 2, 1))
    [(0, 2), (2, 1), (1, 0)]
    """
    return list(zip(order, (*order[1:], *order[:1]), strict=True))
