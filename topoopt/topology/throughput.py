"""How fast a network's routes carry a demand, and how fast no wiring carries it."""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats
from parallelism.taskgraph import Traffic
from routing.network import Network
from routing.throughput_bounds import least_link_bytes


def routed_rate(network: Network, loads: Floats) -> float:
    """Return how often a second a demand is served, from the bytes that it puts on each link."""
    return 1.0 / float((loads / network.capacity).max())


def best_wiring_seconds(
    traffic: Traffic, degree: int, bandwidth: float, bidirectional: bool = False
) -> float:
    """Return the seconds below which no direct-connect wiring carries one iteration's traffic.

    Parameters
    ----------
    traffic : Traffic
    degree : int
        Ports a server.
    bandwidth : float
        Bytes per second of a port in one direction.
    bidirectional : bool
        Whether both directions of a port go to the same server.

    Returns
    -------
    float
        Seconds; 0 without traffic.

    Raises
    ------
    InputError
        If the degree is below 1 or the bandwidth not positive.

    Notes
    -----
    The larger of two: what the busiest server's ports take, and link-bytes over all links, which
    together carry N d bandwidth. Of transfers these are at least
    `routing.throughput_bounds.least_link_bytes`; AllReduces take one hop a byte.
    """
    if degree < 1 or not bandwidth > 0:
        raise InputError(f"degree {degree} and bandwidth {bandwidth}; give positive numbers")
    n = traffic.servers
    busy = np.maximum(traffic.transfers.sum(axis=0), traffic.transfers.sum(axis=1))
    for group, sent in zip(traffic.groups, traffic.member_bytes().tolist(), strict=True):
        busy[list(group)] += sent
    crossings = traffic.allreduce_sent()
    crossings += least_link_bytes(traffic.transfers, degree, bidirectional)
    return max(crossings / (n * degree * bandwidth), float(busy.max()) / (degree * bandwidth))
