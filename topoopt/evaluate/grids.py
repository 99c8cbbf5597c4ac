"""Wirings in rows and columns: rings over neighbouring servers, and rings across these.

What is split over small groups of neighbours keeps its transfers inside rows of two or three hops,
and AllReduces of all servers still have rings that use up every cable.
"""

from functools import lru_cache

import numpy as np

from codesign_base.arrays import Ints
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric.whole_rings import wired_rings
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.topology.finder import Topology

# Servers up to which they are tried, and of a row and a column at least: two are a cable.
_UP_TO, _LEAST = 128, 3
# On more servers than so many every wiring takes long to try, and rows are no longer than this.
_ALL_UP_TO, _SHORT = 32, 8


@lru_cache(maxsize=16)
def grid_topologies(cluster: Cluster) -> tuple[Topology, ...]:
    """Return the wirings of a cluster as rings over its rows and columns.

    Parameters
    ----------
    cluster : Cluster

    Returns
    -------
    tuple of Topology
        For every length of rows, up to 8 on more than 32 servers, with rings of all servers where
        such share no cable. Rows and columns have half the ports each, or a few more than half for
        rings that go both ways; of an odd number of directed ports one ring goes one way. None for
        more than 128 servers, nor for an odd number of bidirectional ports.
    """
    servers, degree = cluster.servers, cluster.degree
    both_ways = cluster.port_model is PortModel.BIDIRECTIONAL
    inside = max((degree + 1) // 4 * 2, 2 if both_ways else 1)
    if servers > _UP_TO or inside >= degree or (both_ways and degree % 2):
        return ()
    most = servers // _LEAST if servers <= _ALL_UP_TO else _SHORT
    found = []
    for columns in range(_LEAST, most + 1):
        if servers % columns == 0:
            for ports in dict.fromkeys((inside, degree - inside)):
                cables = _rings_of(servers, columns, 1, ports)
                cables += _rings_of(servers, servers // columns, columns, degree - ports)
                found.append(_wired(cables, cluster))
    return tuple(found)


def is_grid(topology: Topology | None, cluster: Cluster) -> bool:
    """Say whether a topology is one of those that `grid_topologies` returned."""
    return any(topology is grid for grid in grid_topologies(cluster))


def _rings_of(servers: int, size: int, apart: int, ports: int) -> Ints:
    """Return cables of rings over so many servers that are so far apart each, both ways in turn."""
    cables = np.zeros((servers, servers), dtype=np.int64)
    grid = np.arange(servers).reshape(-1, size, apart)
    following = np.roll(grid, -1, axis=1)
    cables[grid.ravel(), following.ravel()] += (ports + 1) // 2
    cables[following.ravel(), grid.ravel()] += ports // 2
    return cables


def _wired(cables: Ints, cluster: Cluster) -> Topology:
    source, target = np.nonzero(cables)
    count = cables[source, target]
    network = Network(
        name="topoopt",
        hosts=cluster.servers,
        switches=0,
        source=source.astype(np.int64),
        target=target.astype(np.int64),
        capacity=count.astype(np.float64) * np.float64(cluster.port_rate),
        latency=np.full(source.size, cluster.hop_latency),
        multiplicity=count,
    )
    return Topology.wired(network, cluster, wired_rings(network, ecmp_routes(network)))
