"""Random regular wirings of two-way ports that rings cannot all take.

A ring step takes two bidirectional ports, so of an odd number one is left over, and its matching
serves no AllReduce. Rings that are chosen on a random regular wiring may use all ports, each link
one way: of many draws those are kept that serve rings, or transfers, best.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from routing.network import Network
from topoopt.fabric.rings import default_rings, ring_loads
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.topology.expander import expander_stream
from topoopt.topology.fabrics import random_regular
from topoopt.topology.finder import Topology

# Draws; on more servers than so many hardly one of them has better rings than the first.
_DRAWS = 64
_DRAWN_UP_TO = 32


def drawn_topologies(cluster: Cluster, seed: int) -> tuple[Topology, ...]:
    """Return random regular topologies without rings of their own, for odd bidirectional ports.

    Parameters
    ----------
    cluster : Cluster
    seed : int

    Returns
    -------
    tuple of Topology
        Empty for other ports. First that of the expander that plans of this seed are compared with;
        then, on few servers, of 64 draws the one whose rings over all servers are fastest, and the
        one with the fewest hops.
    """
    odd = cluster.degree % 2 == 1 and cluster.degree > 2
    if cluster.port_model is not PortModel.BIDIRECTIONAL or not odd:
        return ()
    drawn = _best_drawn(cluster, seed)
    return tuple(Topology.wired(replace(network, name="topoopt"), cluster) for network in drawn)


@lru_cache(maxsize=16)
def _best_drawn(cluster: Cluster, seed: int) -> tuple[Network, ...]:
    servers, stream = cluster.servers, expander_stream(seed)
    everyone = tuple(range(servers))
    drawn: list[tuple[float, float, Network]] = []
    for _ in range(_DRAWS):
        network, routes = random_regular(
            servers, cluster.degree, cluster.port_rate, cluster.hop_latency, stream,
            cluster.port_model,
        )  # fmt: skip
        if not 2 < servers <= _DRAWN_UP_TO:
            # Nothing to choose by: routes of all pairs of thousands of servers fill memory.
            return (network,)
        rings = default_rings(network, routes, everyone)
        loads = ring_loads(routes, network.links, np.array(rings, dtype=np.int64))
        seconds = float((loads.sum(axis=0) / network.capacity).max()) / len(rings)
        drawn.append((seconds, float(routes.hops.sum()), network))
    by_rings = min(range(_DRAWS), key=lambda k: (*drawn[k][:2], k))
    by_hops = min(range(_DRAWS), key=lambda k: (drawn[k][1], drawn[k][0], k))
    return tuple(drawn[k][2] for k in dict.fromkeys((0, by_rings, by_hops)))
