"""The fabrics that a plan is compared with."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from parallelism.suggestions import choice
from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.paths import ecmp_routes
from routing.rotation import least_rotation
from routing.routes import Routes
from topoopt.baselines.baseline import BaselineFabric
from topoopt.baselines.reconfiguration import reconfigurable_fabric
from topoopt.baselines.zoo_baselines import noted_rings, zoo_fabric
from topoopt.baselines.zoo_names import ZOO, entry_of, is_zoo_name
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import Rings
from topoopt.problem.cluster import Cluster
from topoopt.problem.prices import (
    PriceTable,
    direct_connect_cost,
    equal_cost_fat_tree_bandwidth,
    fat_tree_cost,
)
from topoopt.problem.reconfiguration import RECONFIGURABLE, Reconfiguration
from topoopt.topology.expander import expander_stream
from topoopt.topology.fabrics import (
    even_fat_tree,
    fat_tree,
    ideal_switch,
    merged_fat_tree,
    random_regular,
)
from topoopt.topology.network_file import load_network
from topoopt.topology.zoo.registry import SWITCHED

# Those of TopoOpt (NSDI 2023), section 5, which `compare` prints by default.
BASELINES = ("ideal-switch", "fat-tree", "oversubscribed-fat-tree", "expander", *RECONFIGURABLE)
ALL_BASELINES = (*BASELINES, *ZOO)
# Those that every plan prints.
PLAN_BASELINES = ("ideal-switch", "fat-tree", "expander")

EXPANDER_UP_TO = 2048
"""Servers up to which plans are compared with an expander unasked: the routes of all its pairs fill
memory beyond."""
MERGED_UP_TO = 256
"""Servers up to which Fat-trees are made whole first, then merged: beyond, routes fill memory."""


def baseline_fabric(
    name: str,
    cluster: Cluster,
    prices: PriceTable,
    seed: int,
    reconfiguration: Reconfiguration | None = None,
) -> BaselineFabric:
    """Build one of the fabrics that plans are compared with.

    Parameters
    ----------
    name : str
        One of `ALL_BASELINES`, or a name of the zoo with parameters (see
        `topoopt.baselines.zoo_names.entry_of`).
    cluster : Cluster
        Sets the servers, and the cost to match: that of the direct-connect fabric.
    prices : PriceTable
    seed : int
        Of random wirings.
    reconfiguration : Reconfiguration, optional
        Of ``sip-ml`` and ``ocs-reconfig``; the default otherwise.

    Returns
    -------
    BaselineFabric

    Raises
    ------
    InputError
        If the name is unknown, or the servers or ports do not suit the fabric.
    InfeasibleError
        If the degree cannot join the servers.
    """
    n, d, rate, latency = (
        cluster.servers, cluster.degree, cluster.port_rate, cluster.hop_latency,
    )  # fmt: skip
    if name == "ideal-switch":
        network, routes = ideal_switch(n, d * rate, latency)
        return BaselineFabric(
            Fabric(name, network, routes, {}),
            # One switch for all servers cannot be built; this is what comes nearest to it.
            fat_tree_cost(n, d * rate, prices),
            d * rate,
            "one switch, every server with all its ports' bandwidth; cost of a full Fat-tree",
        )
    if name in ("fat-tree", "oversubscribed-fat-tree"):
        ratio = 2 if name.startswith("over") else 1
        target = direct_connect_cost(n, d, rate, prices)
        if target == 0:
            raise InputError(
                f"the plan's network costs nothing at the prices of {prices.source!r}, so that no "
                f"{name} costs the same; give its parts a price (transceiver, nic, "
                "patch-panel-port)"
            )
        bandwidth = equal_cost_fat_tree_bandwidth(target, n, prices, oversubscription=ratio)
        real: Callable[[], Fabric] | None = None
        unmerged: Network | None = None
        even = ""
        if n > MERGED_UP_TO:
            network, routes, even = _large_fat_tree(n, bandwidth, latency, ratio)
        else:
            real = partial(_fat_tree, name, n, bandwidth, latency, ratio)
            whole = real()
            network, routes = merge_equivalent_links(whole.network, whole.routes)[:2]
            unmerged = whole.network
        return BaselineFabric(
            Fabric(name, network, routes, {}, unmerged=unmerged),
            fat_tree_cost(n, bandwidth, prices, oversubscription=ratio),
            bandwidth,
            f"k-ary Fat-tree{', 2:1 at the ToR,' if ratio == 2 else ''} of the same cost{even}",
            real,
        )
    if name == "expander":
        stream = expander_stream(seed)
        network, routes = random_regular(n, d, rate, latency, stream, cluster.port_model)
        return BaselineFabric(
            Fabric(name, network, routes, {}),
            direct_connect_cost(n, d, rate, prices),
            rate,
            "random regular graph with the same ports",
        )
    if name in RECONFIGURABLE:
        rewired, note = reconfigurable_fabric(
            name, cluster, Reconfiguration() if reconfiguration is None else reconfiguration
        )
        return BaselineFabric(
            rewired, direct_connect_cost(n, d, rate, prices, layer="ocs"), rate, note
        )
    if is_zoo_name(name):
        return zoo_fabric(name, cluster, prices, seed)
    raise _unknown(name)


def seed_matters(name: str) -> bool:
    """Say whether a fabric may be another one for another seed.

    Parameters
    ----------
    name : str

    Returns
    -------
    bool
        True of random wirings, and of those whose Hamiltonian rings a seeded search finds.
    """
    if is_zoo_name(name):
        return entry_of(name).name not in (*SWITCHED, "totient")
    return name == "expander"


def _fat_tree(name: str, servers: int, bandwidth: float, latency: float, ratio: int) -> Fabric:
    return Fabric(name, *fat_tree(servers, bandwidth, latency, ratio), {})


def _large_fat_tree(
    servers: int, bandwidth: float, latency: float, ratio: int
) -> tuple[Network, Routes, str]:
    """Return a Fat-tree of many servers, and what to say of it.

    Where nothing but the distances in a last pod that is not full tells one server from another,
    they are evened out, so that one task can stand for all its images.
    """
    network, routes = merged_fat_tree(servers, bandwidth, latency, ratio)
    if ratio > 1 or least_rotation(network) is not None:
        return network, routes, ""
    network, routes = even_fat_tree(servers, bandwidth, latency)
    return network, routes, ", all pairs as far apart as in different pods"


def usual_baselines(servers: int) -> tuple[str, ...]:
    """Return the fabrics that a plan is compared with unless it is said otherwise.

    Parameters
    ----------
    servers : int

    Returns
    -------
    tuple of str
        `PLAN_BASELINES`, without the expander on more than `EXPANDER_UP_TO` servers.

    Examples
    --------
    >>> usual_baselines(16), usual_baselines(4096)
    (('ideal-switch', 'fat-tree', 'expander'), ('ideal-switch', 'fat-tree'))
    """
    if servers <= EXPANDER_UP_TO:
        return PLAN_BASELINES
    return tuple(name for name in PLAN_BASELINES if name != "expander")


def baseline_fabrics(
    chosen: Iterable[str | BaselineFabric],
    cluster: Cluster,
    prices: PriceTable,
    seed: int,
    reconfiguration: Reconfiguration | None = None,
) -> list[BaselineFabric]:
    """Build all fabrics that a plan is compared with.

    Parameters
    ----------
    chosen : iterable of str or BaselineFabric
        Fabrics are passed on as they are.
    cluster, prices, seed, reconfiguration
        As in `baseline_fabric`, with its errors.

    Returns
    -------
    list of BaselineFabric
        Empty for one server, which needs no network.
    """
    given = list(chosen)
    for name in given:
        if isinstance(name, str) and name not in ALL_BASELINES and not is_zoo_name(name):
            raise _unknown(name)
    names = [name if isinstance(name, str) else name.fabric.name for name in given]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"fabric {name!r} is given twice; give it once")
    if cluster.servers == 1:
        return []
    return [
        baseline_fabric(name, cluster, prices, seed, reconfiguration)
        if isinstance(name, str)
        else name
        for name in given
    ]


def every_fabric(
    cluster: Cluster,
    prices: PriceTable,
    seed: int,
    reconfiguration: Reconfiguration | None = None,
) -> tuple[list[BaselineFabric], dict[str, str]]:
    """Build every fabric of `ALL_BASELINES` that the servers and ports allow.

    Parameters
    ----------
    cluster, prices, seed, reconfiguration
        As in `baseline_fabric`.

    Returns
    -------
    fabrics : list of BaselineFabric
    refused : dict of str to str
        Why the others cannot be built, by name.
    """
    built: list[BaselineFabric] = []
    refused: dict[str, str] = {}
    for name in ALL_BASELINES if cluster.servers > 1 else ():
        try:
            built.append(baseline_fabric(name, cluster, prices, seed, reconfiguration))
        except InputError as error:
            refused[name] = str(error)
    return built, refused


def _unknown(name: str) -> InputError:
    return InputError(
        f"fabric is {name!r}; {choice(name, ALL_BASELINES)}, or one with parameters, "
        "such as torus:4x4x8, product:RI(4)_FC(8) or rail:group=8:ports=gpus"
    )


def is_network_file(name: str) -> bool:
    """Say whether a fabric is given as a network file: by its suffix, or a separator in it."""
    return Path(name).suffix.lower() in (".json", ".graphml", ".xml") or "/" in name


def file_fabric(path: str, cluster: Cluster, seed: int = 0) -> BaselineFabric:
    """Read a network file as a fabric to compare with, routed over all shortest paths.

    Parameters
    ----------
    path : str
        Also the fabric's name.
    cluster : Cluster
        Sets the number of servers.
    seed : int
        Of the search for rings.

    Returns
    -------
    BaselineFabric
        Servers forward for each other only where switches do not join all of them. Without
        switches AllReduces over all servers take the rings that `zoo_fabric` would choose. Of
        unknown cost; its bandwidth is what a server can send at once, on the average.

    Raises
    ------
    InputError
        If the file cannot be read, or is for another number of servers.
    InfeasibleError
        If a server cannot reach another.
    """
    network = load_network(path)
    if network.hosts != cluster.servers:
        raise InputError(
            f"network file {path!r} has {counted(network.hosts, 'server')}, but the cluster "
            f"{cluster.servers}; give a network of as many"
        )
    try:
        routes, how = ecmp_routes(network), ""
    except InfeasibleError:
        # Networks of several dimensions have servers between their switches.
        routes, how = ecmp_routes(network, hosts_forward=True), " and forwarding servers"
    leaving = float(network.capacity[network.source < network.hosts].sum())
    rings: dict[tuple[int, ...], Rings] = {}
    if not network.switches:
        # As for a wiring that is given by name: the same network takes the same time.
        rings, found = noted_rings(network, routes, seed)
        how = f"; {found}"
    return BaselineFabric(
        Fabric(path, network, routes, rings),
        None,
        leaving / network.hosts,
        f"network file, routed over all shortest paths{how}; its cost is not known, its "
        "bandwidth is that of all links of a server",
    )
