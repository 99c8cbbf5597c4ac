"""Who sits where on a ring: heavy transfer pairs become neighbours.

A ring AllReduce costs the same whichever server takes which place (TopoOpt, NSDI 2023, arXiv
2202.00433, section 4, mutability), so places are free to serve the transfers. Least bytes x hops
is a quadratic assignment problem; here pairs are exchanged until none helps.
"""

from collections.abc import Sequence

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints

# Random starts beside the given one.
_RESTARTS = 2
# Exchanges evaluated at most; each takes about a nanosecond a server.
_MOST_SWAPS = 50_000_000
# A gain below this share of the cost is a rounding error.
_LEAST = 1e-9


def place_servers(
    demand: Floats,
    distance: Ints,
    *,
    start: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Choose the server of each place of a network, for least bytes x hops.

    Parameters
    ----------
    demand : float64 array, shape (n, n)
        Bytes from row server to column server.
    distance : int64 array, shape (n,) or (n, n)
        Hops from any place of a circulant network to the one ``offset`` farther; or from row
        place to column place of any network.
    start : sequence of int, optional
        Server of each place to start from; by default server i at place i.

    Returns
    -------
    tuple of int
        Server of each place. The start itself unless another placement is strictly better; in a
        circulant network turned so that the server of place 0 stays where it was.

    Raises
    ------
    InputError
        If shapes do not fit, or the start is no permutation.
    """
    from topoopt.topology.circulant_kernels import improve_placement, placement_cost

    n = distance.shape[0]
    first = list(range(n)) if start is None else [int(v) for v in start]
    if demand.shape != (n, n) or sorted(first) != list(range(n)):
        raise InputError(
            f"placement of {n} places: demand has shape {demand.shape} and the start "
            f"{len(first)} servers; give n x n bytes and a permutation"
        )
    sent = np.ascontiguousarray(demand, dtype=np.float64)
    given = _places(first)
    place = np.arange(n)
    circulant = distance.ndim == 1
    between = distance[(place[None, :] - place[:, None]) % n] if circulant else distance.copy()
    best, lowest = given, float(placement_cost(sent, between, given))
    off = sent[~np.eye(n, dtype=np.bool_)]
    if off.size and off.min() == off.max():
        return tuple(first)  # any placement is as good
    if not lowest > float(sent.sum()) * (1 + _LEAST):
        return tuple(first)  # all demand is between neighbours already
    rng = np.random.default_rng(0)
    left = max(1, _MOST_SWAPS // n)
    for restart in range(1 + _RESTARTS):
        at = given.copy() if restart == 0 else rng.permutation(n)
        shuffled = rng.permutation(n)
        left = int(improve_placement(sent, between, at, shuffled, _LEAST * lowest, left))
        cost = float(placement_cost(sent, between, at))
        if cost < lowest * (1 - _LEAST):
            best, lowest = at, cost
        if left <= 0:
            break
    order = np.empty(n, dtype=np.int64)
    order[best] = np.arange(n)
    turn = int(best[first[0]]) if circulant else 0
    return tuple(np.roll(order, -turn).tolist())


def _places(order: Sequence[int]) -> Ints:
    """Return the place of each server."""
    at = np.empty(len(order), dtype=np.int64)
    at[list(order)] = np.arange(len(order))
    return at
