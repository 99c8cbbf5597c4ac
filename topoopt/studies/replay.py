"""The fabrics that a task graph can be replayed on, from the words of the command line."""

from dataclasses import dataclass, replace
from pathlib import Path

from codesign_base import InputError
from codesign_base.arguments import check_kind, check_path
from codesign_base.counted import counted
from codesign_base.paths import exists
from parallelism.reading import parse_json, read_text
from routing.merging import merge_equivalent_links
from routing.network import Network
from routing.paths import shortest_routes
from routing.routes import Routes
from topoopt.evaluate.routed import allreduce_routes, transfer_router
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.transport import Transport
from topoopt.fabric.whole_rings import whole_rings
from topoopt.plan.document import Document, kind_of
from topoopt.problem.routing import Routing
from topoopt.problem.units import format_bandwidth, format_time, parse_latency, parse_port_rate
from topoopt.studies.workload import Workload
from topoopt.topology.fabrics import fat_tree, ideal_switch
from topoopt.topology.network_file import load_network

_FABRICS = ("ideal", "fat-tree", "oversubscribed-fat-tree", "own")
"""Fabrics by name; anything else names a file."""

LATENCY = 1e-6
"""Seconds of a hop where nothing says otherwise, as in the published simulations."""

TRAIN_PACKETS = 8
"""Most packets simulated as one with htsim's artefacts: where the rounds of many rings contend,
iterations in longer packet trains take up to 5 % longer than in packets."""

COMPAT = ("htsim", "reconnect")
"""Simulators whose artefacts can be repeated."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A fabric to replay on.

    Parameters
    ----------
    fabric : Fabric
        With its real links.
    merged : Fabric
        For the fluid model: the same, or with equivalent links as one, which is as exact and
        faster.
    about : str
        One line on the fabric: what it is, its rates, and where these come from.
    bandwidth : float or None
        Bytes/s of a server's link (switched) or of a port (direct-connect); None if the
        network's links say it.
    latency : float or None
        Seconds of a hop; None if the network's links say it.
    """

    fabric: Fabric
    merged: Fabric
    about: str
    bandwidth: float | None
    latency: float | None

    def for_model(self, model: str) -> Fabric:
        """Return the fabric that a model simulates."""
        return self.merged if model == "fluid" else self.fabric


def replay_fabric(
    workload: Workload,
    name: str | None = None,
    *,
    bandwidth: str | float | None = None,
    latency: str | float | None = None,
    oversubscription: float | None = None,
    routing: str | None = None,
    compat: str | None = None,
    seed: int = 0,
) -> Replay:
    """Return the fabric that a workload is to be replayed on.

    Parameters
    ----------
    workload : Workload
    name : str, optional
        ``ideal``, ``fat-tree``, ``oversubscribed-fat-tree``, ``own`` (the network of the
        workload's file), or a plan or network file. By default ``own`` where the file has a
        direct-connect network, else ``ideal``.
    bandwidth : str or float, optional
        Of a server's link (ideal, Fat-trees), by default the file's port rate times its ports;
        of a port (own network of a task-graph file), by default the file's.
    latency : str or float, optional
        Of a hop; by default the plan's, or 1 us.
    oversubscription : float, optional
        Of the oversubscribed Fat-tree; 2 by default.
    routing : {"ecmp", "k-shortest", "single"}, optional
        Of a network file; ecmp by default.
    compat : {"htsim", "reconnect"}, optional
        Repeat the artefacts of that simulator: all, in packet trains of at most `TRAIN_PACKETS`,
        or only that every round of an AllReduce begins with new connections (which the packet
        model tells from others).
    seed : int
        Of the paths that ``single`` draws.

    Returns
    -------
    Replay

    Raises
    ------
    InputError
        If a number is out of range, a word is unknown, an option does not go with the fabric,
        or the fabric has too few servers.
    """
    check_kind("workload", workload, Workload, "what load_workload returns")
    if name is not None:
        check_path("fabric", name)
    if compat is not None and compat not in COMPAT:
        raise InputError(f"compat is {compat!r}; choose {', '.join(COMPAT)} or leave it out")
    transport = Transport(reconnect=compat == "reconnect")
    if compat == "htsim":
        transport = Transport(htsim=True, train_packets=TRAIN_PACKETS)
    chosen = name if name is not None else ("own" if workload.direct else "ideal")
    options = {
        "--bandwidth": bandwidth,
        "--latency": latency,
        "--oversubscription": oversubscription,
        "--routing": routing,
    }
    given = {option for option, value in options.items() if value is not None}
    if chosen == "own":
        _refuse(given, {"--oversubscription", "--routing"}, "the file's own network")
        if workload.kind == "plan":
            _refuse(given, {"--bandwidth", "--latency"}, "a plan's own network, which sets it")
        return _own(workload, bandwidth, latency, transport)
    if chosen in _FABRICS:
        _refuse(given, {"--routing"}, f"fabric {chosen!r}, which is routed over all shortest paths")
        if chosen != "oversubscribed-fat-tree":
            _refuse(given, {"--oversubscription"}, f"fabric {chosen!r}")
        ratio = 2.0 if oversubscription is None else oversubscription
        return _switched(workload, chosen, bandwidth, latency, ratio, transport)
    if not chosen or not exists(chosen):
        raise InputError(
            f"fabric is {chosen!r}, which is no file; choose {', '.join(_FABRICS)} or name a plan "
            "or network file"
        )
    if Path(chosen).suffix.lower() == ".fbuf":
        raise InputError(
            f"fabric is {chosen!r}, a task-graph file; give a plan or a network file, or simulate "
            "that file on its own network"
        )
    _refuse(given, {"--bandwidth", "--latency", "--oversubscription"}, "a file, whose links set it")
    return _from_file(workload, Path(chosen), routing, transport, seed)


def _refuse(given: set[str], wrong: set[str], why: str) -> None:
    for option in sorted(given & wrong):
        raise InputError(f"{option} does not go with {why}; leave it out")


def _latency(workload: Workload, latency: str | float | None) -> float:
    if latency is not None:
        return parse_latency(latency)
    return LATENCY if workload.latency is None else workload.latency


def _own(
    workload: Workload,
    bandwidth: str | float | None,
    latency: str | float | None,
    transport: Transport,
) -> Replay:
    rate = workload.port_rate if bandwidth is None else parse_port_rate(bandwidth)
    hop = _latency(workload, latency)
    fabric = replace(workload.own_fabric(rate, hop), transport=transport)
    source = f"of the {workload.kind}" if bandwidth is None else "given"
    what = "one switch" if fabric.network.switches else "direct-connect"
    return Replay(
        fabric,
        fabric,
        f"own network ({what}), {counted(fabric.network.hosts, 'server')}, "
        f"{counted(fabric.network.links, 'link')}, ports of {format_bandwidth(rate)} ({source}), "
        f"{format_time(hop)} a hop",
        rate,
        hop,
    )


def _switched(
    workload: Workload,
    name: str,
    bandwidth: str | float | None,
    latency: str | float | None,
    ratio: float,
    transport: Transport,
) -> Replay:
    if bandwidth is not None:
        rate, source = parse_port_rate(bandwidth), "given"
    elif workload.port_rate > 0:
        rate = workload.port_rate * workload.ports
        source = f"of the {workload.kind}"
        if workload.ports > 1:
            source += f", {workload.ports} ports of {format_bandwidth(workload.port_rate)}"
    else:
        raise InputError(f"{workload.name} holds no network bandwidth; give --bandwidth")
    hop = _latency(workload, latency)
    hosts, rings = workload.tasks.servers, workload.orders
    network: Network
    routes: Routes
    if name == "ideal":
        network, routes = ideal_switch(hosts, rate, hop)
        merged = fabric = Fabric("ideal switch", network, routes, rings, transport=transport)
        what = "ideal switch"
    else:
        over = ratio if name.startswith("over") else 1.0
        network, routes = fat_tree(hosts, rate, hop, over)
        fabric = Fabric(name, network, routes, rings, transport=transport)
        merged = Fabric(
            name, *merge_equivalent_links(network, routes)[:2], rings, transport=transport
        )
        what = network.name if over == 1.0 else f"{network.name}, {over:g}:1 oversubscribed"
    return Replay(
        fabric,
        merged,
        f"{what}, {counted(hosts, 'server')}, {format_bandwidth(rate)} a server ({source}), "
        f"{format_time(hop)} a hop",
        rate,
        hop,
    )


def _from_file(
    workload: Workload, path: Path, routing: str | None, transport: Transport, seed: int
) -> Replay:
    kind = _kind(path)
    if kind is Document.ROUTES:
        raise InputError(
            f"fabric is {str(path)!r}, {kind}, which no simulation reads; give the network file, "
            "and how it is routed with --routing"
        )
    if kind in (Document.COMPARISON, Document.FRONTIER, Document.MANIFEST):
        raise InputError(f"fabric is {str(path)!r}, {kind}; give a plan or a network file")
    if kind is Document.PLAN:
        if routing is not None:
            raise InputError(
                "--routing does not go with a plan, which has its routes; leave it out"
            )
        from topoopt.plan.plan import load_plan
        from topoopt.plan.rebuild import rebuild_fabric

        plan = load_plan(path)
        try:
            fabric = replace(rebuild_fabric(plan), transport=transport)
        except InputError as error:
            raise type(error)(f"plan file {str(path)!r}: {error}") from None
        about = "network, rings and routes of plan"
    else:
        way = "ecmp" if routing is None else routing
        # Some routes are chosen for the traffic of one strategy, which only a plan has.
        known = [each.value for each in Routing if each not in (Routing.MCF, Routing.BALANCED)]
        if way not in known:
            raise InputError(f"routing is {routing!r}; choose {', '.join(known)}")
        network = load_network(path)
        try:
            fabric = _routed(network, Routing(way), transport, seed)
        except InputError as error:
            raise type(error)(f"network file {str(path)!r}: {error}") from None
        if fabric.network.switches:
            fabric = replace(fabric, rings=workload.orders)
        about = f"network ({way} routes)"
    if fabric.network.hosts < workload.tasks.servers:
        raise InputError(
            f"{path} has {counted(fabric.network.hosts, 'server')}, but {workload.name} uses "
            f"{workload.tasks.servers}; give a network of as many"
        )
    network = fabric.network
    switches = f", {counted(network.switches, 'switch', 'switches')}" if network.switches else ""
    return Replay(
        fabric,
        fabric,
        f"{about} {path}, {counted(network.hosts, 'server')}{switches}, "
        f"{counted(network.links, 'link')}",
        None,
        None,
    )


def _kind(path: Path) -> Document:
    """Return what a file is; those that are not called JSON are networks."""
    if path.suffix.lower() != ".json":
        return Document.NETWORK
    return kind_of(parse_json(read_text(path, "fabric file"), f"fabric file {str(path)!r}"))


def _routed(network: Network, way: Routing, transport: Transport, seed: int) -> Fabric:
    """Route a network as plans are routed."""
    if way is Routing.SINGLE:
        routes = shortest_routes(network, seed=seed)
    else:
        routes = transfer_router(network, way)()
    if network.switches:
        return Fabric(network.name, network, routes, {}, None, transport)
    # As where a plan is compared with the file: the same network takes the same time.
    rings = allreduce_routes(network, (), way)
    orders, _ = whole_rings(network, routes if rings is None else rings, seed)
    whole = {tuple(range(network.hosts)): orders} if network.hosts > 1 else {}
    return Fabric(network.name, network, routes, whole, rings, transport)
