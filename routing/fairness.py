"""Weighted max-min fair rates of flows on links of given capacity."""

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from routing.network import FloatArray


def max_min_rates(
    offsets: npt.ArrayLike,
    links: npt.ArrayLike,
    weights: npt.ArrayLike,
    capacity: npt.ArrayLike,
    caps: npt.ArrayLike | None = None,
) -> FloatArray:
    """Return the max-min fair rate of every flow.

    Flow f puts ``weights[e] * rate[f]`` on ``links[e]`` for its entries
    ``e = offsets[f] .. offsets[f + 1]``. All rates rise together; a flow stops when one of its
    links is full.

    Parameters
    ----------
    offsets : array_like of int, shape (flows + 1,)
        CSR boundaries of the flows' entries.
    links : array_like of int, shape (entries,)
        Link indices.
    weights : array_like of float, shape (entries,)
        Share of the flow's rate on each link, positive.
    capacity : array_like of float, shape (links,)
        Bytes per second, not negative.
    caps : array_like of float, shape (flows,), optional
        Bytes per second that each flow does not exceed; infinity for none.

    Returns
    -------
    float64 array, shape (flows,)
        Bytes per second; its cap (or infinity) for a flow without links.

    Raises
    ------
    InputError
        If the arrays do not fit together or hold values out of range.

    Notes
    -----
    O(entries * log(links)), by a lazy heap of the links' fair shares.

    References
    ----------
    D. Bertsekas and R. Gallager, *Data Networks*, 2nd ed., section 6.5.2 (progressive filling);
    the weights generalise it to flows that split over paths and to coupled streams.

    Examples
    --------
    Two flows share link 0, one of them goes on over link 1:

    >>> max_min_rates([0, 1, 3], [0, 0, 1], [1.0, 1.0, 1.0], [10.0, 2.0]).tolist()
    [8.0, 2.0]
    """
    bounds = np.ascontiguousarray(offsets, dtype=np.int64)
    entries = np.ascontiguousarray(links, dtype=np.int32)
    parts = np.ascontiguousarray(weights, dtype=np.float64)
    room = np.ascontiguousarray(capacity, dtype=np.float64)
    if bounds.ndim != 1 or bounds.size < 1 or bounds[0] != 0 or bounds[-1] != entries.size:
        raise InputError(f"offsets must run from 0 to the {entries.size} entries of links")
    if np.any(np.diff(bounds) < 0):
        raise InputError("offsets must not decrease; give one boundary after each flow's entries")
    if entries.shape != parts.shape:
        raise InputError(f"links has {entries.size} entries and weights {parts.size}; match them")
    if entries.size and (entries.min() < 0 or entries.max() >= room.size):
        raise InputError(f"a link index lies outside 0..{room.size - 1}; use existing links")
    if not np.all((parts > 0) & np.isfinite(parts)):
        raise InputError("every weight must be positive and finite; drop entries of weight zero")
    if not np.all((room >= 0) & np.isfinite(room)):
        raise InputError("every capacity must be finite and not negative, in bytes per second")

    limits = np.full(bounds.size - 1, np.inf)
    if caps is not None:
        limits = np.array(caps, dtype=np.float64)
        if limits.shape != (bounds.size - 1,):
            raise InputError(f"caps has shape {limits.shape}; give one for each flow")
        if not np.all(limits > 0):
            raise InputError("every cap must be positive, in bytes per second")

    from routing.fairness_kernels import max_min

    rates: FloatArray = max_min(bounds[:-1], bounds[1:], entries, parts, room, limits)
    return rates
