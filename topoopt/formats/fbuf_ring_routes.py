"""Routes of ring edges in a task-graph file: along the jumps that it gives each ring."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from codesign_base.rows import starts
from parallelism.taskgraph import Group
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import Rings
from topoopt.formats.fbuf_file import FbufFile
from topoopt.formats.fbuf_network import network_of, rings_of, routes_of
from topoopt.topology.ring_links import ring_links


def fabric_of(
    file: FbufFile, latency: float = 1e-6, name: str = "task-graph file", rate: float | None = None
) -> Fabric:
    """Return the fabric that a file describes: network, routes and rings.

    Parameters
    ----------
    file : FbufFile
    latency : float
        Seconds of each hop, which the file does not hold.
    name : str
        Of the network.
    rate : float, optional
        Bytes/s of a port, if not the file's.

    Returns
    -------
    Fabric

    Raises
    ------
    InputError
        If the file has no network, or a part of it is not well formed.
    """
    network = network_of(file, latency, name)
    if rate is not None and rate != file.net_bandwidth:
        network = replace(network, capacity=network.multiplicity.astype(np.float64) * rate)
    routes = routes_of(file, network)
    rings = rings_of(file)
    along = ring_routes_of(file, network, routes, rings) if file.ring_size.size else None
    return Fabric("own network", network, routes, rings, along)


def ring_routes_of(
    file: FbufFile, network: Network, routes: Routes, rings: Mapping[Group, Rings]
) -> Routes:
    """Return the routes of ring edges that a file with ring sets describes.

    Parameters
    ----------
    file : FbufFile
    network, routes, rings
        From `fbuf_network.network_of`, `routes_of` and `rings_of`.

    Returns
    -------
    Routes
        Of ring edges along the jumps; of other pairs as ``routes``. Where the rings of two
        group sizes join one pair along different links, the pair takes both in equal parts.

    Raises
    ------
    InputError
        If a jump is along no link.
    """
    hosts = network.hosts
    paths: dict[int, list[tuple[int, ...]]] = {}
    jumps = file.ring_jumps()
    for group, orders in rings.items():
        for order, steps in zip(orders, jumps[len(group)], strict=True):
            # The packet simulator begins at the places of members, 0 .. g - 1: those routes serve
            # only there, where the links for them exist.
            for a in (*order, *(v for v in range(len(group)) if v not in group)):
                nodes = [a]
                for jump in steps:
                    nodes.append((nodes[-1] + jump) % hosts)
                if a not in group and not all(network.has_link(*e) for e in pairwise(nodes)):
                    continue
                links = tuple(network.link(s, t) for s, t in pairwise(nodes))
                known = paths.setdefault(a * hosts + nodes[-1], [])
                if links not in known:
                    known.append(links)
    rows: list[tuple[list[int], list[float]]] = []
    latency, hops = routes.latency.copy(), routes.hops.copy()
    for pair in range(hosts * hosts):
        found = paths.get(pair)
        if found is None:
            given, weights = routes.row(*divmod(pair, hosts))
            rows.append((given.tolist(), weights.tolist()))
            continue
        shares: dict[int, float] = {}
        for path in found:
            for link in path:
                shares[link] = shares.get(link, 0.0) + 1.0 / len(found)
        used = sorted(shares)
        rows.append((used, [min(shares[link], 1.0) for link in used]))
        latency[pair] = max(float(network.latency[list(path)].sum()) for path in found)
        hops[pair] = sum(shares.values())
    lengths = np.array([len(links) for links, _ in rows], dtype=np.int64)
    return Routes(
        hosts,
        starts(lengths),
        np.array([link for links, _ in rows for link in links], dtype=np.int64),
        np.array([weight for _, weights in rows for weight in weights], dtype=np.float64),
        latency,
        hops,
    )


def moved_ring_edges(plan: Fabric, file: Fabric) -> int:
    """Return how many ring edges take other links in a file than in the plan that it is from.

    A file has one list of links a ring, so an edge that the plan splits over several paths
    takes one of them there.

    Parameters
    ----------
    plan : Fabric
    file : Fabric
        With the file's rings and the routes of their edges.
    """

    def row(fabric: Fabric, a: int, b: int) -> list[tuple[int, int, float]]:
        links, weights = fabric.edge_routes.row(a, b)
        network = fabric.network
        ends = zip(network.source[links].tolist(), network.target[links].tolist(), strict=True)
        return [
            (s, t, round(w, 6)) for (s, t), w in zip(ends, weights.tolist(), strict=True)
        ]  # fmt: skip

    edges = {
        edge for orders in file.rings.values() for order in orders for edge in ring_links(order)
    }
    return sum(row(plan, a, b) != row(file, a, b) for a, b in edges)
