"""Wirings in rows and columns: rings or meshes of neighbouring servers, and others across these.

What is split over small groups of neighbours keeps its transfers inside rows of two or three hops,
and AllReduces of all servers still have rings that use up every cable.
"""

from functools import lru_cache

import numpy as np

from codesign_base.arrays import Ints
from routing.paths import ecmp_routes
from topoopt.evaluate.wiring_candidates import wiring_key
from topoopt.fabric.whole_rings import wired_rings
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.topology.finder import Topology
from topoopt.topology.wiring import Wiring

# Servers up to which they are tried, and of a row and a column at least: two are a cable.
_UP_TO, _LEAST = 128, 3
# On more servers than so many every wiring takes long to try, and rows are no longer than this.
_ALL_UP_TO, _SHORT = 32, 8


@lru_cache(maxsize=16)
def grid_topologies(cluster: Cluster) -> tuple[Topology, ...]:
    """Return the wirings of a cluster as rings, or full meshes, over its rows and columns.

    Parameters
    ----------
    cluster : Cluster

    Returns
    -------
    tuple of Topology
        For every length of rows, up to 8 on more than 32 servers, with rings of all servers where
        such share no cable. Rows and columns have half the ports each, or a few more than half for
        rings that go both ways; of an odd number of directed ports one ring goes one way. None for
        more than 128 servers, nor where bidirectional ports are left over.
    """
    servers, degree = cluster.servers, cluster.degree
    if servers > _UP_TO:
        return ()
    even = (degree + 1) // 4 * 2
    shares = sorted({degree // 2, degree - degree // 2, even, degree - even} - {0, degree})
    most = servers // _LEAST if servers <= _ALL_UP_TO else _SHORT
    found = []
    for columns in range(_LEAST, most + 1):
        if servers % columns:
            continue
        for ports in shares:
            inside = _joined(servers, columns, 1, ports, cluster.port_model)
            across = _joined(
                servers, servers // columns, columns, degree - ports, cluster.port_model
            )
            if inside is not None and across is not None:
                found.append(_wired(inside + across, cluster))
    return tuple(found)


def is_grid(topology: Topology | None, cluster: Cluster) -> bool:
    """Say whether a topology has the links and rings of one of `grid_topologies`."""
    if topology is None:
        return False
    # Not the object: two threads that ask for the first time at once are given one each.
    return wiring_key(topology) in map(wiring_key, grid_topologies(cluster))


def _joined(servers: int, size: int, apart: int, ports: int, model: PortModel) -> Ints | None:
    """Return cables that join so many servers, so far apart each, on so many ports of each.

    Full meshes where these take all ports, else rings both ways in turn; None if that leaves a
    bidirectional port over.
    """
    grid = np.arange(servers).reshape(-1, size, apart)
    if ports % (size - 1) == 0:
        steps = [*range(1, size)] * (ports // (size - 1))
    elif ports % 2 and model is PortModel.BIDIRECTIONAL:
        return None
    else:
        steps = [1] * ((ports + 1) // 2) + [size - 1] * (ports // 2)
    cables = np.zeros((servers, servers), dtype=np.int64)
    for step in steps:
        cables[grid.ravel(), np.roll(grid, -step, axis=1).ravel()] += 1
    return cables


def _wired(cables: Ints, cluster: Cluster) -> Topology:
    wiring = Wiring(cluster.servers, cluster.degree, cluster.port_model)
    wiring.cables += cables
    network = wiring.network("topoopt", cluster.port_rate, cluster.hop_latency)
    return Topology.wired(network, cluster, wired_rings(network, ecmp_routes(network)))
