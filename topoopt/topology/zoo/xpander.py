"""Xpander: random lifts of a complete graph.

Source: Valadarsky, Shahaf, Dinitz and Schapira, "Xpander: Towards Optimal-Performance
Datacenters" (CoNEXT 2016), section 3.
"""

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from routing.network import Network
from topoopt.topology.cables import both_ways, check_rates
from topoopt.topology.wiring import DegreeTooSmallError, is_strongly_connected

_ATTEMPTS = 100


def xpander(
    servers: int, degree: int, bandwidth: float, latency: float, rng: np.random.Generator
) -> Network:
    """Join d + 1 clusters of servers, every two of them by a random perfect matching.

    Parameters
    ----------
    servers : int
        A multiple of ``degree + 1``.
    degree : int
        Bidirectional ports a server.
    bandwidth : float
        Bytes per second of one port in each direction.
    latency : float
        Seconds of each link.
    rng : numpy.random.Generator

    Returns
    -------
    Network
        The first draw that is connected.

    Raises
    ------
    InputError
        If a number is out of range or the servers do not divide.
    DegreeTooSmallError
        If no draw is connected.
    """
    check_rates(servers, bandwidth, latency)
    clusters = degree + 1
    if degree < 1 or servers % clusters:
        below = max(servers // max(clusters, 1), 1) * clusters
        raise InputError(
            f"an Xpander of {counted(servers, 'server')} with degree {degree} cannot be built; "
            f"give a multiple of {clusters}, such as {below}"
        )
    size = servers // clusters
    for _ in range(_ATTEMPTS):
        cables = np.zeros((servers, servers), dtype=np.int64)
        for a in range(clusters):
            for b in range(a + 1, clusters):
                one, other = a * size + np.arange(size), b * size + rng.permutation(size)
                cables[one, other] = cables[other, one] = 1
        if is_strongly_connected(cables):
            low, high = np.nonzero(np.triu(cables))
            return both_ways("Xpander", servers, 0, low, high, bandwidth, latency)
    raise DegreeTooSmallError(
        f"no connected Xpander of {servers} servers with degree {degree} in {_ATTEMPTS} draws; "
        "give a larger degree"
    )
