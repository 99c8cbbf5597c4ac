"""Dragonfly: groups of switches, all joined within a group, groups joined pair by pair.

Source: Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology"
(ISCA 2008), section 3: balanced, a = 2 p = 2 h.
"""

from itertools import combinations

import numpy as np

from routing.network import Network
from topoopt.topology.cables import both_ways, check_rates


def dragonfly_size(servers: int) -> tuple[int, int]:
    """Return (h, groups) of the smallest balanced dragonfly for a number of servers.

    A switch has h servers, 2 h - 1 links within its group of 2 h switches, and h links to
    other groups; there are at most 2 h^2 + 1 groups.
    """
    h = 1
    while 2 * h * h * (2 * h * h + 1) < servers:
        h += 1
    return h, -(-servers // (2 * h * h))


def dragonfly(servers: int, bandwidth: float, latency: float, cables: int = 1) -> Network:
    """Build the smallest balanced dragonfly, groups that no server needs left out.

    Parameters
    ----------
    servers : int
    bandwidth : float
        Bytes per second of every cable in each direction.
    latency : float
        Seconds of each link.
    cables : int
        Cables of every server to its switch, and of every other bundle.

    Returns
    -------
    Network
        Hosts, then switches group by group. Where groups are left out, every two of the others
        have as many links more as their switches have ports for.
    """
    check_rates(servers, bandwidth, latency)
    h, groups = dragonfly_size(servers)
    a = 2 * h
    host = np.arange(servers, dtype=np.int64)
    low, high = [host], [servers + host // h]
    switch = servers + np.arange(groups * a, dtype=np.int64).reshape(groups, a)
    i, j = np.triu_indices(a, 1)
    low.append(switch[:, i].ravel())
    high.append(switch[:, j].ravel())
    if groups > 1:
        # The ports of a group to others are numbered 0 .. a h - 1, h a switch.
        used = [0] * groups
        ends = []
        for _ in range(a * h // (groups - 1)):
            for x, y in combinations(range(groups), 2):
                ends.append((switch[x, used[x] // h], switch[y, used[y] // h]))
                used[x] += 1
                used[y] += 1
        pairs = np.array(ends, dtype=np.int64)
        low.append(pairs[:, 0])
        high.append(pairs[:, 1])
    return both_ways(
        f"dragonfly (h = {h})",
        servers,
        groups * a,
        np.concatenate(low),
        np.concatenate(high),
        bandwidth,
        latency,
        cables,
    )
