"""Fabrics by name, with the options that each takes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind, is_number, told, whole
from codesign_base.counted import counted
from parallelism.suggestions import choice
from parallelism.taskgraph import Traffic
from routing.network import Network
from topoopt.problem.ports import PortModel, port_model
from topoopt.problem.seeds import checked_seed
from topoopt.topology.annealed import annealed
from topoopt.topology.cables import check_degree
from topoopt.topology.expander import random_regular_cables
from topoopt.topology.fabrics import ideal_switch
from topoopt.topology.fat_tree import fat_tree_network
from topoopt.topology.finder import find_topology
from topoopt.topology.wiring import Ring, Wiring
from topoopt.topology.zoo.blocks import BuildingBlock, read_blocks
from topoopt.topology.zoo.cayley import cayley
from topoopt.topology.zoo.dragonfly import dragonfly
from topoopt.topology.zoo.hamming_mesh import hamming_mesh
from topoopt.topology.zoo.products import full_mesh, hypercube, product, torus
from topoopt.topology.zoo.shift_graphs import de_bruijn, kautz
from topoopt.topology.zoo.switched import leaf_spine, rail_only, rail_optimised
from topoopt.topology.zoo.twisted import twisted_torus
from topoopt.topology.zoo.xpander import xpander

FABRICS = {
    "totient": "AllReduce rings and matchings for the traffic (TopoOpt); --degree ports a server",
    "cayley": "Cayley graph of short paths that falls into rings; --degree ports a server",
    "annealed": "regular network of short paths that falls into rings; --degree ports a server",
    "expander": "random regular wiring of --degree ports a server",
    "xpander": "random lift of a complete graph; servers a multiple of --degree + 1",
    "de-bruijn": "generalised de Bruijn network of --degree directed ports, any size",
    "kautz": "generalised Kautz network of --degree directed ports, any size",
    "torus": "neighbours along each of --dims, such as 4x4x8",
    "twisted-torus": "torus of --dims k and 2k whose wrap-around cables shift, such as 4x4x8",
    "hypercube": "servers whose numbers differ in one bit; a power of two",
    "full-mesh": "a cable between every two servers",
    "product": "rings, full meshes and switches: --dims such as RI(4)_FC(8)_SW(4), innermost first",
    "ideal-switch": "one switch, --degree cables to every server",
    "fat-tree": "k-ary Fat-tree, every link of --degree cables",
    "leaf-spine": "racks of --group servers under a leaf, spines above",
    "rail": "port r of a pod's --group servers on rail switch r, spines above",
    "rail-only": "port r of every server on rail r, nothing between rails",
    "hamming-mesh": "boards in a mesh, switches a row and column: --dims 2x2x4x4, the board first",
    "dragonfly": "balanced dragonfly of switches, minimal routing",
}
_EXAMPLES = {
    "torus": "4x4x8", "twisted-torus": "4x4x8", "hamming-mesh": "2x2x4x4",
    "product": "RI(4)_FC(8)_SW(4)",
}  # fmt: skip
"""Dimensions of the fabrics that these size."""
PORTED = ("totient", "cayley", "annealed", "expander")
"""Fabrics of either kind of ports."""
DRAWN = ("cayley", "annealed", "expander", "xpander")
"""Fabrics that a seed chooses."""
SWITCHED = ("ideal-switch", "fat-tree", "leaf-spine", "rail", "rail-only", "dragonfly")
"""Fabrics without cables from server to server."""
TAPERED = ("fat-tree", "leaf-spine", "rail", "rail-only")
"""Fabrics that may be oversubscribed."""
# Tables of all pairs of more servers fill memory, and so do cables of more ports.
_MOST_SERVERS = _MOST_PORTS = 32_768
_GROUPED = ("leaf-spine", "rail", "rail-only")


@dataclass(frozen=True, eq=False)
class BuiltFabric:
    """A fabric by name.

    Parameters
    ----------
    name : str
        A key of `FABRICS`.
    network : Network
    degree : int
        Ports of a server in use, at most.
    forwarders : int
        Nodes by which servers forward; see `topoopt.baselines.bill.network_bill`.
    rings : tuple of Ring
        AllReduce rings that are wired.
    bidirectional : bool
        Whether both directions of every port go to the same node.
    """

    name: str
    network: Network
    degree: int
    forwarders: int = 0
    rings: tuple[Ring, ...] = ()
    bidirectional: bool = True


def build_fabric(
    name: str,
    servers: int | None,
    degree: int | None,
    bandwidth: float,
    latency: float = 1e-6,
    *,
    ports: str = PortModel.DIRECTED,
    dims: str | None = None,
    group: int | None = None,
    oversubscription: float = 1.0,
    tier: str = "tor",
    traffic: Traffic | None = None,
    selection: str = "exact",
    placement: bool = False,
    seed: int = 0,
) -> BuiltFabric:
    """Build a fabric by name.

    Parameters
    ----------
    name : str
        A key of `FABRICS`.
    servers : int, optional
        Needed unless ``dims`` say it.
    degree : int, optional
        Ports a server; needed by direct wirings of free degree, 1 by default of switched ones,
        and otherwise checked against what the fabric needs.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds of each link.
    ports : {"directed", "bidirectional"}
        Of `PORTED` fabrics.
    dims : str, optional
        Of ``torus`` and ``twisted-torus`` (4x4x8), ``hamming-mesh`` (2x2x4x4, the board first) and
        ``product`` (RI(4)_FC(8)).
    group : int, optional
        Servers a rack (``leaf-spine``) or pod (``rail``, ``rail-only``).
    oversubscription : float
        Of ``fat-tree``, ``leaf-spine``, ``rail`` and ``rail-only``.
    tier : {"tor", "aggregation"}
        Where a Fat-tree is oversubscribed.
    traffic : Traffic, optional
        What ``totient`` is built for; by default an AllReduce over all servers.
    selection, placement
        Of ``totient``; see `topoopt.topology.finder.find_topology`.
    seed : int
        Of `DRAWN` fabrics.

    Returns
    -------
    BuiltFabric

    Raises
    ------
    InputError
        If the name is unknown, or an option is missing, out of range, of another kind or of another
        fabric.
    DegreeTooSmallError
        If the fabric needs more ports.
    """
    check_kind("fabric", name, str, "its name, such as 'torus'")
    if name not in FABRICS:
        raise InputError(f"fabric is {name!r}; {choice(name, FABRICS)}")
    check_kind("dims", dims, str | None, "sizes as a text, such as '4x4'")
    _check_counts(servers=servers, degree=degree, group=group)
    if not is_number(bandwidth):
        raise InputError(f"bandwidth is {told(bandwidth)}; give a number of bytes/s")
    if not is_number(latency):
        raise InputError(f"latency is {told(latency)}; give a number of seconds")
    if not is_number(oversubscription):
        raise InputError(f"oversubscription is {told(oversubscription)}; give 1 (none) or more")
    check_kind("traffic", traffic, Traffic | None, "what parallelism.taskgraph.traffic_of returns")
    seed = checked_seed(seed)
    _check_options(name, dims, group, oversubscription, tier)
    if servers is not None:
        _check_size(f"servers is {servers}", servers)
    if degree is not None and degree > _MOST_PORTS:
        raise InputError(f"degree is {degree}; give at most {_MOST_PORTS} ports a server")
    if name in _EXAMPLES:
        blocks = _blocks(name, dims)
        sizes = [size for _, size in blocks]
        if servers not in (None, prod(sizes)):
            raise InputError(
                f"{name} of dims {dims} has {counted(prod(sizes), 'server')}, not {servers}; give "
                "other sizes"
            )
        _check_size(f"dims is {dims!r}, of {prod(sizes)} servers", prod(sizes))
        if name == "product":
            network = product(blocks, bandwidth, latency)
        else:
            of_sizes = {
                "torus": torus, "twisted-torus": twisted_torus, "hamming-mesh": hamming_mesh,
            }  # fmt: skip
            network = of_sizes[name](sizes, bandwidth, latency)
        return _direct(name, network, degree, network.hosts if network.switches else 0)
    if servers is None:
        raise InputError(f"{name} needs the number of servers; give --servers")
    if name in ("hypercube", "full-mesh"):
        build = hypercube if name == "hypercube" else full_mesh
        return _direct(name, build(servers, bandwidth, latency), degree, 0)
    if name in ("totient", "cayley", "annealed", "expander", "xpander", "de-bruijn", "kautz"):
        if degree is None:
            raise InputError(f"{name} needs the ports of a server; give --degree")
        return _free_degree(
            name, servers, degree, bandwidth, latency, port_model(ports), traffic, selection,
            placement, seed,
        )  # fmt: skip
    cables = 1 if degree is None else degree
    if cables < 1:
        raise InputError(f"degree {cables}; give at least 1 port a server")
    whole = cables * bandwidth
    if name == "ideal-switch":
        network = _bundled(ideal_switch(servers, whole, latency)[0], cables)
    elif name == "fat-tree":
        network = _bundled(
            fat_tree_network(servers, whole, latency, oversubscription, tier), cables
        )
    elif name == "leaf-spine":
        network = leaf_spine(
            servers, bandwidth, latency, cables=cables, per_leaf=group,
            oversubscription=oversubscription,
        )  # fmt: skip
    elif name in ("rail", "rail-only"):
        build_rails = rail_optimised if name == "rail" else rail_only
        network = build_rails(
            servers, cables, bandwidth, latency, per_pod=group, oversubscription=oversubscription
        )
    else:
        network = dragonfly(servers, bandwidth, latency, cables)
    return BuiltFabric(name, network, cables)


def _free_degree(
    name: str,
    servers: int,
    degree: int,
    bandwidth: float,
    latency: float,
    ports: PortModel,
    traffic: Traffic | None,
    selection: str,
    placement: bool,
    seed: int,
) -> BuiltFabric:
    """Build a direct wiring of any degree."""
    both_ways = ports is PortModel.BIDIRECTIONAL
    if name == "totient":
        wanted = _allreduce(servers) if traffic is None else traffic
        if wanted.servers != servers:
            raise InputError(
                f"the traffic is of {counted(wanted.servers, 'server')}, not {servers}; give "
                "traffic of as many servers"
            )
        found = find_topology(
            wanted, degree, bandwidth, latency=latency, ports=ports, surplus="rings",
            selection=selection, placement=placement,
        )  # fmt: skip
        network = replace(found.network, name=name)
        return BuiltFabric(name, network, degree, 0, found.rings, both_ways)
    if name in ("cayley", "annealed"):
        build_ringed = cayley if name == "cayley" else annealed
        network, rings = build_ringed(servers, degree, bandwidth, latency, ports, seed)
        return BuiltFabric(name, network, degree, 0, rings, both_ways)
    if name == "expander":
        wiring = Wiring(servers, degree, ports)
        wiring.cables = random_regular_cables(servers, degree, np.random.default_rng(seed), ports)
        network = wiring.network("expander", bandwidth, latency)
        return BuiltFabric(name, network, degree, bidirectional=both_ways)
    if name == "xpander":
        rng = np.random.default_rng(seed)
        return BuiltFabric(name, xpander(servers, degree, bandwidth, latency, rng), degree)
    build = de_bruijn if name == "de-bruijn" else kautz
    network = build(servers, degree, bandwidth, latency)
    # Ports that would join a server to itself are unused, at small sizes some of every server.
    used = int(max(network.out_degree().max(), network.in_degree().max()))
    return BuiltFabric(name, network, used, bidirectional=False)


def _direct(name: str, network: Network, degree: int | None, forwarders: int) -> BuiltFabric:
    """Return a wiring that needs so many ports; servers may have more."""
    first = network.hosts if forwarders else 0
    ports = network.out_degree()[first : first + network.hosts] - (1 if forwarders else 0)
    check_degree(network.name, int(ports.max()), degree)
    return BuiltFabric(name, network, int(ports.max()), forwarders)


def _bundled(network: Network, cables: int) -> Network:
    """Return the network with so many cables behind each link, which share its capacity."""
    return replace(network, multiplicity=cables * network.multiplicity)


def _allreduce(servers: int) -> Traffic:
    if servers < 2:
        raise InputError(f"totient of {counted(servers, 'server')}; give at least 2")
    none = np.zeros((servers, servers))
    return Traffic(servers, none, (tuple(range(servers)),), np.ones(1))


def _blocks(name: str, dims: str | None) -> Sequence[tuple[BuildingBlock, int]]:
    """Read dimensions; those of LIBRA's notation begin with the innermost."""
    if dims is None:
        raise InputError(f"{name} needs its dimensions; give --dims such as {_EXAMPLES[name]}")
    if name == "product":
        return read_blocks(dims)[::-1]
    parts = dims.lower().split("x")
    if not all(re.fullmatch(r"\s*[0-9]{1,15}\s*", part) for part in parts):
        raise InputError(f"dims is {dims!r}; write sizes joined by x, such as {_EXAMPLES[name]}")
    return [(BuildingBlock.RING, int(part)) for part in parts]


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None:
            whole(name, count, "a whole number of at least 1")


def _check_size(given: str, servers: int) -> None:
    if servers < 1:
        raise InputError(f"{given}; give at least 1")
    if servers > _MOST_SERVERS:
        raise InputError(
            f"{given}; tables of all pairs of so many do not fit in memory, so give at most "
            f"{_MOST_SERVERS}"
        )


def _check_options(
    name: str, dims: str | None, group: int | None, oversubscription: float, tier: str
) -> None:
    if dims is not None and name not in _EXAMPLES:
        raise InputError(f"dims {dims!r} does not apply to {name}; leave it out")
    if group is not None and name not in _GROUPED:
        raise InputError(f"group {group} does not apply to {name}; leave it out")
    if oversubscription != 1 and name not in TAPERED:
        raise InputError(f"oversubscription does not apply to {name}; leave it out")
    if tier != "tor" and name != "fat-tree":
        raise InputError(f"tier {tier!r} does not apply to {name}; leave it out")
