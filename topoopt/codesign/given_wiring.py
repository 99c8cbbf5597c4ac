"""How servers are wired already, checked against the cluster that a plan is asked for."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind
from codesign_base.counted import counted
from parallelism.reading import parse_json, read_text
from routing.network import Network
from routing.paths import ecmp_routes
from topoopt.fabric.whole_rings import wired_rings
from topoopt.plan.document import Document, kind_of
from topoopt.plan.plan import load_plan
from topoopt.plan.rebuild import rebuild_network
from topoopt.problem.cluster import Cluster
from topoopt.problem.units import format_bandwidth, format_time
from topoopt.topology.finder import Topology
from topoopt.topology.network_file import load_network
from topoopt.topology.wiring import Ring

# By what share rates and latencies of a file may differ from those of a port.
_SAME = 1e-9


def given_wiring(wiring: str | Path | Network, cluster: Cluster, seed: int = 0) -> Topology:
    """Return the topology of servers that are wired already.

    Parameters
    ----------
    wiring : path or Network
        A network file, the file of a plan (whose rings are kept), or a network.
    cluster : Cluster
        What the servers are: no server may use more ports than it has, and each cable has the rate
        and latency of a port. Ports may be free.
    seed : int
        Of the search for rings.

    Returns
    -------
    Topology
        With rings of all servers where such share no cable; other groups have those that
        `topoopt.fabric.rings.default_rings` chooses.

    Raises
    ------
    InputError
        If the file cannot be read, or is not of such a cluster.
    InfeasibleError
        If a server cannot reach another.
    """
    check_kind("wiring", wiring, str | Path | Network, "a network file, a plan file or a Network")
    name, rings = "wiring", None
    if isinstance(wiring, Network):
        network = wiring
    else:
        name = f"wiring {str(wiring)!r}"
        network, rings = _read(Path(wiring), name)
    _check(network, cluster, name)
    network = replace(network, name="topoopt")
    if rings is None:
        routes = ecmp_routes(network)  # refuses what is not joined
        rings = wired_rings(network, routes, seed)
    return Topology.wired(network, cluster, rings)


def _read(path: Path, name: str) -> tuple[Network, tuple[Ring, ...] | None]:
    """Return the network of a file; of a plan its rings, too."""
    if path.suffix.lower() == ".json":
        kind = kind_of(parse_json(read_text(path, "wiring"), name))
        if kind is Document.PLAN:
            plan = load_plan(path)
            return rebuild_network(plan), tuple(ring.wired for ring in plan.rings)
        if kind is not Document.NETWORK:
            raise InputError(f"{name} is {kind}; give a network file or a plan")
    return load_network(path), None


def _check(network: Network, cluster: Cluster, name: str) -> None:
    if network.switches:
        raise InputError(
            f"{name} has {counted(network.switches, 'switch', 'switches')}; a plan wires servers "
            "to each other, so give one without, or compare with it (topoopt compare --fabrics)"
        )
    if network.hosts != cluster.servers:
        raise InputError(
            f"{name} has {counted(network.hosts, 'server')}, but the cluster {cluster.servers}; "
            "give a network of as many"
        )
    if cluster.servers == 1:
        raise InputError(f"{name} is of one server, which needs none; leave it out")
    for what, degrees in (("sends", network.out_degree()), ("receives", network.in_degree())):
        server = int(degrees.argmax())
        if degrees[server] > cluster.degree:
            raise InputError(
                f"{name}: server {server} {what} on {counted(int(degrees[server]), 'port')}, but "
                f"degree is {cluster.degree}; give a degree of as many"
            )
    for link in range(network.links):
        where = f"{name}: link {network.source[link]}->{network.target[link]}"
        cables, rate = int(network.multiplicity[link]), float(network.capacity[link])
        if not np.isclose(rate, cables * cluster.port_rate, rtol=_SAME, atol=0.0):
            raise InputError(
                f"{where} has {format_bandwidth(rate)} on {counted(cables, 'cable')}, but "
                f"bandwidth is {format_bandwidth(cluster.port_rate)}; give the bandwidth of a "
                "cable, or its cables"
            )
        latency = float(network.latency[link])
        if not np.isclose(latency, cluster.hop_latency, rtol=_SAME, atol=0.0):
            raise InputError(
                f"{where} takes {format_time(latency)}, but latency is "
                f"{format_time(cluster.hop_latency)}; give the latency of the links"
            )
    if cluster.ports == "bidirectional":
        for one, other, cables in zip(
            network.source.tolist(), network.target.tolist(), network.multiplicity, strict=True
        ):
            back = network.link(other, one) if network.has_link(other, one) else None
            if back is None or network.multiplicity[back] != cables:
                raise InputError(
                    f"{name}: link {one}->{other} has no {counted(int(cables), 'cable')} back, "
                    "but ports are bidirectional; give directed ports"
                )
