"""Compiled kernels of the bounds of one task graph: how long a resource is busy."""

import numpy as np

from codesign_base.jit import kernel
from routing.fairness_kernels import Floats, Ints


@kernel
def busiest_span(
    order: Ints, resource: Ints, seconds: Floats, early: Floats, late: Floats, count: int
) -> Floats:
    """Return the least end of each resource, over all sets of uses that begin late enough.

    Parameters
    ----------
    order : int64 array, shape (uses,)
        Uses by resource, then by descending ``early``.
    resource : int64 array, shape (uses,)
    seconds : float64 array, shape (uses,)
        How long each occupies its resource.
    early, late : float64 arrays, shape (uses,)
        When it can begin at the earliest, and what must follow its end.
    count : int
        Number of resources.

    Returns
    -------
    float64 array, shape (count,)
    """
    result = np.zeros(count)
    total = 0.0
    least = np.inf
    before = int(np.int64(-1))
    for place in range(order.size):
        use = order[place]
        if resource[use] != before:
            before = resource[use]
            total = 0.0
            least = np.inf
        total += seconds[use]
        least = min(least, late[use])
        result[before] = max(result[before], early[use] + total + least)
    return result
