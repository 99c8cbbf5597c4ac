"""Fabrics of the topology zoo to compare with, at the price of the direct-connect one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from codesign_base import InputError
from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import Rings, default_rings, ring_loads
from topoopt.fabrics.bill import equal_cost_bandwidth, network_bill
from topoopt.problem.job import Cluster
from topoopt.problem.ports import PortModel
from topoopt.problem.prices import PriceTable, direct_connect_cost
from topoopt.topology.hamiltonian import disjoint_cycles
from topoopt.topology.zoo.registry import BuiltFabric, build_fabric

_DIRECTED_ONLY = ("de-bruijn", "kautz")
_FREE_DIMS = ("torus", "product")


def _grid(servers: int, dims: int) -> tuple[int, ...]:
    """Return the most even sizes whose product is the number of servers, largest last."""
    if dims == 1:
        return (servers,)
    best: tuple[int, ...] | None = None
    for first in range(1, round(servers ** (1.0 / dims)) + 1):
        if servers % first == 0:
            rest = _grid(servers // first, dims - 1)
            sizes = tuple(sorted((first, *rest)))
            # A dimension of one server is none.
            found = (sizes[0] == 1, max(sizes), sizes)
            if best is None or found < (best[0] == 1, max(best), best):
                best = sizes
    assert best is not None
    return best


def _torus(dims: int) -> Callable[[Cluster], str]:
    def of(cluster: Cluster) -> str:
        sizes = _grid(cluster.servers, dims)
        if sizes[0] == 1:
            raise InputError(
                f"{cluster.servers} servers are no grid of {dims} dimensions; give a number that "
                f"has {dims} factors"
            )
        return "x".join(map(str, sizes))

    return of


def _ring_of(kind: str) -> Callable[[Cluster], str]:
    """Return the function that names a product of rings and full meshes, or switches."""

    def of(cluster: Cluster) -> str:
        n, d = cluster.servers, cluster.degree
        most = n // 2 if kind == "SW" else d - 1
        inner = [size for size in range(2, min(most, n // 2) + 1) if n % size == 0]
        if kind == "SW":
            inner = [size for size in inner if size <= 8] or inner[:1]
        # A ring of two servers takes one port, a longer one two.
        fit = [s for s in inner if (1 if kind == "SW" else s - 1) + (1 if n == 2 * s else 2) <= d]
        if not fit:
            what = "switches" if kind == "SW" else "full meshes"
            raise InputError(
                f"{n} servers of {d} ports are no product of {what} and rings; give more ports, "
                "or a number of servers that has factors"
            )
        return f"{kind}({fit[-1]})_RI({n // fit[-1]})"

    return of


@dataclass(frozen=True)
class _Entry:
    """How a name of the comparison is built from the registry."""

    name: str
    dims: Callable[[Cluster], str] | None = None
    oversubscription: float = 1.0
    tier: str = "tor"
    ports: bool = True  # whether it takes the cluster's ports


ZOO = {
    "totient": _Entry("totient"),
    "xpander": _Entry("xpander"),
    "de-bruijn": _Entry("de-bruijn"),
    "kautz": _Entry("kautz"),
    "torus2d": _Entry("torus", _torus(2)),
    "torus3d": _Entry("torus", _torus(3)),
    "hypercube": _Entry("hypercube"),
    "full-mesh": _Entry("full-mesh"),
    "mesh-ring": _Entry("product", _ring_of("FC")),
    "switch-ring": _Entry("product", _ring_of("SW")),
    "oversubscribed-aggregation": _Entry(
        "fat-tree", oversubscription=2.0, tier="aggregation", ports=False
    ),
    "leaf-spine": _Entry("leaf-spine", ports=False),
    "oversubscribed-leaf-spine": _Entry("leaf-spine", oversubscription=2.0, ports=False),
    "rail": _Entry("rail"),
    "dragonfly": _Entry("dragonfly", ports=False),
}


def is_zoo_name(name: str) -> bool:
    """Say whether a name is one of `ZOO`, or torus: or product: with its dimensions."""
    return name in ZOO or (name.split(":", 1)[0] in _FREE_DIMS and ":" in name)


def zoo_fabric(
    name: str, cluster: Cluster, prices: PriceTable, seed: int
) -> tuple[Fabric, float, float, str, Callable[[], Fabric] | None]:
    """Build a fabric of the zoo for as many servers, at the price of the direct-connect fabric.

    Parameters
    ----------
    name : str
        A key of `ZOO`, or ``torus:4x4x8`` and ``product:RI(4)_FC(8)`` with dimensions.
    cluster : Cluster
        Sets servers, ports and the price.
    prices : PriceTable
    seed : int
        Of random wirings.

    Returns
    -------
    fabric : Fabric
    cost : float
        US dollars.
    bandwidth : float
        Bytes/s of a port.
    note : str
        How it was sized and routed.
    real : callable or None
        Returns the fabric with each link of its own, where the first has merged ones.

    Raises
    ------
    InputError
        If the servers or ports do not suit the fabric.
    InfeasibleError
        If there are too few ports.

    Notes
    -----
    All links get the same factor, such that the network's bill (`topoopt.fabrics.bill`) is what the
    co-designed fabric costs; direct wirings go through patch panels, as that does. Traffic takes
    all shortest paths.

    An AllReduce over all servers of a direct wiring runs on edge-disjoint Hamiltonian cycles
    where the search finds such that end it sooner than the rings that groups get by default
    (`default_rings`), whose edges are routed over shortest paths. Where there are switches, it
    runs on one ring in the order of the servers' numbers.
    """
    built = _build(name, cluster, seed)
    network = built.network
    if network.hosts != cluster.servers:
        raise InputError(
            f"{name} has {network.hosts} servers, but the cluster {cluster.servers}; give "
            "dimensions of as many"
        )
    target = direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices)
    if name == "totient":
        # The same ports as the co-designed fabric, though the last one may be left over.
        bandwidth, factor = cluster.port_rate, 1.0
    else:
        bandwidth = equal_cost_bandwidth(network, cluster.port_rate, target, prices, built.own)
        factor = bandwidth / cluster.port_rate
    if abs(factor - 1.0) < 1e-9:
        bandwidth, factor = cluster.port_rate, 1.0
    sized = replace(network, capacity=network.capacity * factor)
    cost = target if name == "totient" else network_bill(sized, prices, own=built.own).cost
    routes = ecmp_routes(sized)
    rings: dict[tuple[int, ...], Rings] = {}
    real = None
    if sized.switches:
        real = partial(Fabric, name, sized, routes, rings)
        sized, routes, _ = merge_equivalent_links(sized, routes)
        how = "AllReduces on one ring by number"
    elif built.rings:
        for ring in built.rings:
            rings[ring.group] = (*rings.get(ring.group, ()), ring.members)
        how = f"{len(built.rings)} AllReduce rings"
    else:
        whole = tuple(range(sized.hosts))
        found, direct = _whole_rings(sized, routes, seed)
        rings = {whole: found}
        how = (
            f"AllReduces of all servers on {len(found)} Hamiltonian rings"
            if direct
            else f"AllReduces of all servers on {len(found)} rings over shortest paths"
        )
    ports = f"{built.degree} {'port' if built.degree == 1 else 'ports'} a server"
    note = f"{network.name}, {ports}, of the same cost; {how}"
    return Fabric(name, sized, routes, rings), cost, bandwidth, note, real


def _build(name: str, cluster: Cluster, seed: int) -> BuiltFabric:
    n, rate, latency = cluster.servers, cluster.port_rate, cluster.hop_latency
    if name not in ZOO:
        kind, dims = name.split(":", 1)
        return build_fabric(kind, n, cluster.degree, rate, latency, dims=dims)
    entry = ZOO[name]
    if entry.name in _DIRECTED_ONLY and cluster.port_model is not PortModel.DIRECTED:
        raise InputError(
            f"{name} needs ports whose two fibres go to different servers; give directed ports"
        )
    return build_fabric(
        entry.name,
        n,
        cluster.degree if entry.ports else None,
        rate,
        latency,
        ports=cluster.ports if entry.name == "totient" else PortModel.DIRECTED,
        dims=entry.dims(cluster) if entry.dims else None,
        oversubscription=entry.oversubscription,
        tier=entry.tier,
        seed=seed,
    )


def _whole_rings(network: Network, routes: Routes, seed: int) -> tuple[Rings, bool]:
    """Return the better rings of all servers, and whether they are cycles of links."""
    whole = tuple(range(network.hosts))
    usual = default_rings(network, routes, whole)
    cables = np.zeros((network.hosts, network.hosts), dtype=np.int64)
    cables[network.source, network.target] = network.multiplicity
    cycles = disjoint_cycles(cables, seed)
    if cycles and _alone(network, routes, cycles) <= _alone(network, routes, usual):
        return cycles, True
    return usual, False


def _alone(network: Network, routes: Routes, rings: Rings) -> float:
    """Return the seconds of the busiest link for a byte on the edges of all rings together."""
    loads = ring_loads(routes, network.links, np.array(rings, dtype=np.int64)).sum(axis=0)
    return float((loads / network.capacity).max()) / len(rings)
