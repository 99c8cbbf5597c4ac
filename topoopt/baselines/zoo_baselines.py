"""Fabrics of the topology zoo to compare with, at the price of the direct-connect one."""

from dataclasses import replace
from functools import partial

from codesign_base import InputError
from codesign_base.counted import counted
from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.bill import NO_LAYER, equal_cost_bandwidth, network_bill
from topoopt.baselines.zoo_names import GPUS, Entry, entry_of
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.fabric.rings import Rings
from topoopt.fabric.whole_rings import whole_rings
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel
from topoopt.problem.prices import PriceTable, direct_connect_cost
from topoopt.topology.wiring import ring_orders
from topoopt.topology.zoo.registry import BuiltFabric, build_fabric

_DIRECTED_ONLY = ("de-bruijn", "kautz")


def zoo_fabric(name: str, cluster: Cluster, prices: PriceTable, seed: int) -> BaselineFabric:
    """Build a fabric of the zoo for as many servers, at the price of the direct-connect fabric.

    Parameters
    ----------
    name : str
        As `topoopt.baselines.zoo_names.entry_of` reads it.
    cluster : Cluster
        Sets servers, ports and the price.
    prices : PriceTable
    seed : int
        Of random wirings.

    Returns
    -------
    BaselineFabric
        Its bandwidth is that of a port.

    Raises
    ------
    InputError
        If the servers or ports do not suit the fabric.
    InfeasibleError
        If there are too few ports.

    Notes
    -----
    All links get the same factor, such that the network's bill (`topoopt.baselines.bill`) is what
    the co-designed fabric costs. Direct wirings go through patch panels, as that does, unless their
    entry or name says otherwise. Traffic takes all shortest paths.

    An AllReduce over all servers of a direct wiring runs on edge-disjoint Hamiltonian cycles
    where the search finds such that end it sooner than the rings that groups get by default
    (`default_rings`), whose edges are routed over shortest paths. Where there are
    switches, it runs on one ring in the order of the servers' numbers, unless servers forward.
    """
    entry = entry_of(name)
    built = _build(name, entry, cluster, seed)
    network = built.network
    if network.hosts != cluster.servers:
        raise InputError(
            f"{name} has {counted(network.hosts, 'server')}, but the cluster {cluster.servers}; "
            "give dimensions of as many"
        )
    target = direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices)
    if name == "totient":
        # The same ports as the co-designed fabric, though the last one may be left over.
        bandwidth, factor = cluster.port_rate, 1.0
    else:
        bandwidth = equal_cost_bandwidth(
            network, cluster.port_rate, target, prices, built.forwarders, entry.layer
        )
        factor = bandwidth / cluster.port_rate
    if abs(factor - 1.0) < 1e-9:
        bandwidth, factor = cluster.port_rate, 1.0
    sized = replace(network, capacity=network.capacity * factor)
    bill = network_bill(sized, prices, forwarders=built.forwarders, layer=entry.layer)
    cost = target if name == "totient" else bill.cost
    routes = ecmp_routes(sized)
    rings: dict[tuple[int, ...], Rings] = {}
    fabric: Fabric | GpuPorts
    whole_network, real = sized, None
    unmerged: Network | None = None
    if sized.switches:
        forwarding = built.forwarders > 0
        real = partial(Fabric, name, sized, routes, rings, forwarding=forwarding)
        unmerged = whole_network
        sized, routes, _ = merge_equivalent_links(sized, routes)
        how = "AllReduces on one ring by number"
        if forwarding:
            how = "AllReduces on the rings that end soonest, over shortest paths"
    elif built.rings:
        rings = ring_orders(built.rings)
        how = f"{counted(len(built.rings), 'AllReduce ring')}"
    else:
        rings, how = noted_rings(sized, routes, seed)
    ports = f"{counted(built.degree, 'port')} a server"
    note = f"{network.name}, {ports}, of the same cost; {how}"
    if entry.layer != Entry.layer:
        note += (
            "; fixed cables" if entry.layer == NO_LAYER else "; ports joined by optical switches"
        )
    fabric = Fabric(name, sized, routes, rings, forwarding=built.forwarders > 0, unmerged=unmerged)
    if entry.owner == GPUS:
        fabric, real = GpuPorts(name, whole_network, fabric), None
        note += "; ports belong to GPUs"
    return BaselineFabric(fabric, cost, bandwidth, note, real)


def _build(name: str, entry: Entry, cluster: Cluster, seed: int) -> BuiltFabric:
    if entry.name in _DIRECTED_ONLY and cluster.port_model is not PortModel.DIRECTED:
        raise InputError(
            f"{name} needs ports whose two fibres go to different servers; give directed ports"
        )
    return build_fabric(
        entry.name,
        cluster.servers,
        cluster.degree if entry.ports else None,
        cluster.port_rate,
        cluster.hop_latency,
        ports=cluster.ports if entry.name == "totient" else PortModel.DIRECTED,
        dims=entry.dims_for(cluster),
        group=entry.group,
        oversubscription=entry.oversubscription,
        tier=entry.tier,
        seed=seed,
    )


def noted_rings(
    network: Network, routes: Routes, seed: int
) -> tuple[dict[tuple[int, ...], Rings], str]:
    """Return the rings of all servers of a direct wiring, and what they are, for a note."""
    rings, disjoint = whole_rings(network, routes, seed)
    kind, over = ("Hamiltonian ring", "") if disjoint else ("ring", " over shortest paths")
    how = f"AllReduces of all servers on {counted(len(rings), kind)}{over}"
    return {tuple(range(network.hosts)): rings}, how
