"""The k-ary fat-tree: its size, its cables and its network."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from codesign_base import InputError
from routing.network import IntArray, Network


@dataclass(frozen=True, slots=True)
class FatTreeSize:
    """How large a fat-tree for a number of hosts is, switches that no host needs left out.

    Parameters
    ----------
    hosts : int
    k : int
        Ports of a switch: the smallest even number with k^3 / 4 >= hosts.
    edges : int
        Top-of-rack switches in use; each serves up to k / 2 hosts.
    pods : int
        Groups of up to k / 2 top-of-rack switches.
    aggregations, cores : int
        Switches above: none for one rack, no cores for one pod, else k / 2 a pod and (k / 2)^2.
    """

    hosts: int
    k: int
    edges: int
    pods: int
    aggregations: int
    cores: int

    @property
    def switches(self) -> int:
        """Number of switches."""
        return self.edges + self.aggregations + self.cores

    @property
    def edge_cables(self) -> int:
        """Cables between top-of-rack and aggregation switches."""
        return self.edges * (self.k // 2) if self.aggregations else 0

    @property
    def core_cables(self) -> int:
        """Cables between aggregation and core switches."""
        return self.aggregations * (self.k // 2) if self.cores else 0


def fat_tree_size(hosts: int) -> FatTreeSize:
    """Return the size of the fat-tree for a number of hosts, filled from the first rack on.

    Raises
    ------
    InputError
        If there is no host.
    """
    if hosts < 1:
        raise InputError(f"a fat-tree of {hosts} hosts; give at least 1")
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    half = k // 2
    edges = -(-hosts // half)
    pods = -(-edges // half)
    return FatTreeSize(
        hosts=hosts,
        k=k,
        edges=edges,
        pods=pods,
        aggregations=pods * half if edges > 1 else 0,
        cores=half * half if pods > 1 else 0,
    )


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
    low: IntArray = np.concatenate(lower).astype(np.int64)
    high: IntArray = np.concatenate(upper).astype(np.int64)
    capacity = np.full(low.size, bandwidth / oversubscription)
    full = hosts + (size.edge_cables if tier == "aggregation" else 0)
    capacity[:full] = bandwidth
    return Network.from_links(
        f"fat-tree (k = {size.k})",
        hosts,
        size.switches,
        np.concatenate((low, high)),
        np.concatenate((high, low)),
        np.concatenate((capacity, capacity)),
        latency,
    )
