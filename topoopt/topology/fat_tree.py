"""The network of the k-ary fat-tree."""

from math import isfinite

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.network import Network
from topoopt.problem.fat_tree_sizes import fat_tree_size
from topoopt.topology.cables import both_ways


def fat_tree_network(
    hosts: int,
    bandwidth: float,
    latency: float,
    oversubscription: float = 1.0,
    tier: str = "tor",
) -> Network:
    """Wire a fat-tree.

    Parameters
    ----------
    hosts : int
    bandwidth : float
        Bytes per second of a host's link in each direction.
    latency : float
        Seconds of every link.
    oversubscription : float
        Ratio of bandwidth below to bandwidth above the tier, at least 1. All links above it
        have ``bandwidth / oversubscription``.
    tier : {"tor", "aggregation"}
        The switches whose uplinks are fewer than what they serve.

    Returns
    -------
    Network
        Nodes: hosts, top-of-rack, aggregation, core switches.

    Raises
    ------
    InputError
        If the tier is unknown, or the oversubscription below 1.
    """
    if tier not in ("tor", "aggregation"):
        raise InputError(f"tier is {tier!r}; choose tor or aggregation")
    if not (oversubscription >= 1 and isfinite(oversubscription)):
        raise InputError(f"oversubscription is {oversubscription}; give 1 (none) or more")
    size = fat_tree_size(hosts)
    half = size.k // 2
    first_edge = hosts
    first_aggregation = first_edge + size.edges
    first_core = first_aggregation + size.aggregations

    host = np.arange(hosts)
    lower = [host]
    upper = [first_edge + host // half]
    if size.aggregations:
        edge = np.repeat(np.arange(size.edges), half)
        slot = np.tile(np.arange(half), size.edges)
        lower.append(first_edge + edge)
        upper.append(first_aggregation + edge // half * half + slot)
    if size.cores:
        aggregation = np.repeat(np.arange(size.aggregations), half)
        slot = np.tile(np.arange(half), size.aggregations)
        lower.append(first_aggregation + aggregation)
        upper.append(first_core + aggregation % half * half + slot)
    low: Ints = np.concatenate(lower).astype(np.int64)
    high: Ints = np.concatenate(upper).astype(np.int64)
    capacity = np.full(low.size, bandwidth / oversubscription)
    full = hosts + (size.edge_cables if tier == "aggregation" else 0)
    capacity[:full] = bandwidth
    return both_ways(f"fat-tree (k = {size.k})", hosts, size.switches, low, high, capacity, latency)
