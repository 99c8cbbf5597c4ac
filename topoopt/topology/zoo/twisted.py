"""Twisted tori: a torus whose wrap-around cables shift along the longer dimensions.

Sources: Camara, Moreto, Vallejo, Beivide, Miguel-Alonso, Martinez and Navaridas, "Twisted Torus
Topologies for Enhanced Interconnection Networks" (IEEE TPDS 2010), sections 3 and 4; Jouppi et
al., "TPU v4" (ISCA 2023), section 2.8, whose twisted slices have k x k x 2k or k x 2k x 2k chips.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.network import Network
from topoopt.topology.cables import both_ways, check_rates


def twisted_torus(dims: Sequence[int], bandwidth: float, latency: float) -> Network:
    """Join servers to their neighbours in every dimension, with twisted wrap-around cables.

    Parameters
    ----------
    dims : sequence of int
        Servers along each dimension, two ports each: all k or 2 k, both among them, k at least 2.
    bandwidth : float
        Bytes per second of one cable in each direction.
    latency : float
        Seconds of each link.

    Returns
    -------
    Network
        The cable that closes a line of k servers ends k places further along every dimension of
        2 k; those of 2 k close as in a torus. Server numbers count the last dimension fastest.

    Raises
    ------
    InputError
        If the sizes are others, or a number is out of range.

    Notes
    -----
    Servers are the points of a lattice: 2 k x k the plane's checkerboard, k x k x 2 k the
    face-centred, and k x 2 k x 2 k the body-centred cubic one. All dimensions are alike then, so
    that uniform traffic loads all cables equally.
    """
    sizes = [int(size) for size in dims]
    k = min(sizes, default=0)
    if k < 2 or set(sizes) != {k, 2 * k}:
        raise InputError(
            f"twisted torus of dimensions {'x'.join(map(str, sizes))}; give sizes of k and 2 k "
            "with k of at least 2, such as 4x4x8 or 4x8x8"
        )
    servers = prod(sizes)
    check_rates(servers, bandwidth, latency)
    number = np.arange(servers, dtype=np.int64)
    place = np.array(np.unravel_index(number, sizes))
    low: list[Ints] = []
    high: list[Ints] = []
    for axis, size in enumerate(sizes):
        ahead = place.copy()
        ahead[axis] += 1
        if size == k:
            wraps = (ahead[axis] == k).astype(np.int64)
            for other, length in enumerate(sizes):
                if length == 2 * k:
                    ahead[other] += k * wraps
        low.append(number)
        high.append(np.ravel_multi_index(tuple(ahead), sizes, mode="wrap").astype(np.int64))
    return both_ways(
        "twisted torus", servers, 0, np.concatenate(low), np.concatenate(high), bandwidth, latency
    )
