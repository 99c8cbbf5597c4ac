"""Two-tier fabrics of switches: leaf-spine, and rails.

Sources: NVIDIA, "DGX SuperPOD reference architecture: H100" (2023), compute fabric, for rails that
meet in spines; Wang, Ghobadi, Shakeri, Zhang and Hasani, "Rail-only: A Low-Cost High-Performance
Network for Training LLMs with Trillion Parameters" (2023, arXiv 2307.12169), section 3, without.
"""

from math import ceil, isfinite, sqrt

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from routing.network import Network
from topoopt.topology.cables import both_ways, check_rates

RAIL_SWITCH = 64
"""Ports of a rail switch to servers: those of one switch of 400 Gbps ports."""


def leaf_spine(
    servers: int,
    bandwidth: float,
    latency: float,
    *,
    cables: int = 1,
    per_leaf: int | None = None,
    oversubscription: float = 1.0,
) -> Network:
    """Build racks with a leaf switch each, and spines that join all leaves.

    Parameters
    ----------
    servers : int
    bandwidth : float
        Bytes per second of one cable of a server in each direction.
    latency : float
        Seconds of each link.
    cables : int
        Cables of each server, all to its leaf.
    per_leaf : int, optional
        Servers a rack; by default the square root of all, rounded up.
    oversubscription : float
        Ratio of a rack's bandwidth to that of its leaf's uplinks, at least 1.

    Returns
    -------
    Network
        Hosts, leaves, spines; one rack has no spine. Spines are as many as a rack has cables,
        divided by the oversubscription and rounded up; each uplink has an equal part of the
        uplink bandwidth.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    check_rates(servers, bandwidth, latency)
    rack = _rack(servers, per_leaf)
    leaf = np.arange(servers, dtype=np.int64)[:, None] // rack
    return _two_tiers(
        "leaf-spine", leaf, rack * cables, bandwidth, latency, cables, oversubscription
    )


def rail_optimised(
    servers: int,
    rails: int,
    bandwidth: float,
    latency: float,
    *,
    per_pod: int | None = None,
    oversubscription: float = 1.0,
) -> Network:
    """Join cable r of every server of a pod to the pod's switch of rail r, and rails by spines.

    Parameters
    ----------
    servers : int
    rails : int
        Cables of each server (one a GPU).
    bandwidth : float
        Bytes per second of one cable in each direction.
    latency : float
        Seconds of each link.
    per_pod : int, optional
        Servers that share rail switches; by default the square root of all, rounded up.
    oversubscription : float
        Ratio of a rail switch's bandwidth to its servers to that of its uplinks.

    Returns
    -------
    Network
        Hosts, rail switches pod by pod, spines; one pod has no spine. Each spine joins all rail
        switches. Servers of a pod reach each other over any rail in two links.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    check_rates(servers, bandwidth, latency)
    pod = _rack(servers, per_pod)
    rail = np.arange(servers, dtype=np.int64)[:, None] // pod * rails + np.arange(rails)
    return _two_tiers("rail-optimised", rail, pod, bandwidth, latency, 1, oversubscription)


def rail_only(
    servers: int,
    rails: int,
    bandwidth: float,
    latency: float,
    *,
    per_pod: int | None = None,
    oversubscription: float = 1.0,
) -> Network:
    """Join cable r of every server to rail r, and rails to nothing else.

    Parameters
    ----------
    servers : int
    rails : int
        Cables of each server (one a GPU).
    bandwidth : float
        Bytes per second of one cable in each direction.
    latency : float
        Seconds of each link.
    per_pod : int, optional
        Servers that share rail switches; by default all up to 64, and 64 of more. Pods are joined
        by spines of each rail's own.
    oversubscription : float
        Ratio of a rail switch's bandwidth to its servers to that of its uplinks.

    Returns
    -------
    Network
        Hosts, rail switches pod by pod, spines rail by rail. From rail to rail leads no cable:
        that way is inside the servers.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    check_rates(servers, bandwidth, latency)
    pod = min(servers, RAIL_SWITCH) if per_pod is None else _rack(servers, per_pod)
    rail = np.arange(servers, dtype=np.int64)[:, None] // pod * rails + np.arange(rails)
    return _two_tiers("rail-only", rail, pod, bandwidth, latency, 1, oversubscription, rails)


def _two_tiers(
    name: str,
    leaf: Ints,
    below: int,
    bandwidth: float,
    latency: float,
    cables: int,
    oversubscription: float,
    planes: int = 1,
) -> Network:
    """Join servers to leaves, and leaves by spines: leaf l to those of plane l modulo planes.

    Row i of ``leaf`` lists the leaves of server i, to each of which it has so many cables; a leaf
    has ``below`` cables to servers.
    """
    if leaf.shape[1] * cables < 1:
        raise InputError(f"{leaf.shape[1] * cables} cables a server; give at least 1")
    if not (oversubscription >= 1 and isfinite(oversubscription)):
        raise InputError(f"oversubscription is {oversubscription}; give 1 (none) or more")
    servers, each = leaf.shape
    leaves = int(leaf.max()) + 1
    spines = ceil(below / oversubscription - 1e-9) if leaf[0, 0] != leaf[-1, 0] else 0
    uplink = below * bandwidth / oversubscription / max(spines, 1)
    above = np.arange(leaves)[:, None] % planes * spines + np.arange(spines)
    return both_ways(
        name,
        servers,
        leaves + planes * spines,
        np.concatenate((
            np.repeat(np.arange(servers), each), np.repeat(servers + np.arange(leaves), spines),
        )),
        np.concatenate((
            servers + leaf.ravel(), (servers + leaves + above).ravel(),
        )),
        np.repeat((float(bandwidth), uplink), (leaf.size, leaves * spines)),
        latency,
        np.repeat((cables, 1), (leaf.size, leaves * spines)),
    )  # fmt: skip


def _rack(servers: int, wanted: int | None) -> int:
    if wanted is None:
        return ceil(sqrt(servers))
    if wanted < 1:
        raise InputError(f"{wanted} servers a rack or pod; give at least 1")
    return min(wanted, servers)
