"""How much of a demand a network can carry: what its routes do, and what no routing exceeds.

Rates are in multiples of the demand a second: at rate t, D[i, j] t bytes a second go from server
i to server j.
"""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import Traffic
from routing.network import FloatArray, IntArray, Network
from routing.throughput_bounds import host_seconds, least_link_bytes, sweep_seconds
from topoopt.topology.spectrum import cut_order


@dataclass(frozen=True, slots=True)
class RateBound:
    """An upper bound on the rate of a demand, and what it comes from.

    Parameters
    ----------
    rate : float
        Multiples of the demand a second.
    binding : str
        "server" (a server's own ports), "distance" (bytes x hops over all links) or "cut".
    """

    rate: float
    binding: str


def routed_rate(network: Network, loads: FloatArray) -> float:
    """Return the rate at which the busiest link is full, from the bytes that each carries."""
    return 1.0 / float((loads / network.capacity).max())


def rate_upper_bound(network: Network, demand: FloatArray, distance: IntArray) -> RateBound:
    """Return a rate that no routing of this network exceeds.

    Parameters
    ----------
    network : Network
    demand : float64 array, shape (hosts, hosts)
        Bytes, not all zero; zero diagonal.
    distance : int64 array, shape (nodes, nodes)
        `routing.paths.hop_distances`.

    Returns
    -------
    RateBound
        The least of: the ports of the busiest server; all links full with every byte on a
        shortest path; and the cuts between a first and a last part of the nodes, in the order
        of their numbers and in that of `topoopt.topology.spectrum.cut_order`.
    """
    hosts = network.hosts
    needed = float((demand * distance[:hosts, :hosts]).sum())
    bounds = [
        RateBound(1.0 / host_seconds(network, demand), "server"),
        RateBound(float(network.capacity.sum()) / needed, "distance"),
    ]
    orders = [cut_order(network)]
    if not network.switches:
        orders.append(np.arange(network.nodes, dtype=np.float64))
    for key in orders:
        seconds = sweep_seconds(network, demand, np.argsort(key, kind="stable"))
        bounds.append(RateBound(1.0 / seconds, "cut"))
    return min(bounds, key=lambda bound: bound.rate)


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
    sizes = np.array([len(group) for group in traffic.groups], dtype=np.float64)
    ring = 2.0 * (sizes - 1.0) / sizes * traffic.group_bytes
    busy = np.maximum(traffic.transfers.sum(axis=0), traffic.transfers.sum(axis=1))
    for group, sent in zip(traffic.groups, ring, strict=True):
        busy[list(group)] += sent
    crossings = float((sizes * ring).sum())
    crossings += least_link_bytes(traffic.transfers, degree, bidirectional)
    return max(crossings / (n * degree * bandwidth), float(busy.max()) / (degree * bandwidth))
