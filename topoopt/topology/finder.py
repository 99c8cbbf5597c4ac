"""TopologyFinder: from traffic and a port budget to a network with AllReduce rings.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4. Departures, all undone by
``faithful="paper"``: groups that share no server do not compete for ports; the demand of pairs
that a ring already joins is halved before the matching as if it had been matched; and of the
ports left over, more rings of a group come before more matching where they carry more bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import Group, Traffic
from routing.network import Network
from topoopt.problem.cluster import Cluster
from topoopt.problem.ports import PortModel, port_model
from topoopt.topology.cables import check_rates
from topoopt.topology.choosing import RingChooser, Selection, selection_named
from topoopt.topology.matching import square_demand
from topoopt.topology.select import artifact_generators
from topoopt.topology.spending import spend_surplus, wire_rings
from topoopt.topology.split import (
    Faithful,
    degree_for_allreduce,
    ports_by_server,
    ports_by_total,
)
from topoopt.topology.wiring import (
    DegreeTooSmallError,
    Ring,
    Wiring,
    is_strongly_connected,
    labelled,
)


@dataclass(frozen=True, eq=False)
class Topology:
    """A direct-connect network of servers, and the AllReduce rings wired in it.

    Parameters
    ----------
    network : Network
        All servers are hosts; there are no switches.
    rings : tuple of Ring
        A ring that occurs twice has two cables a hop. In bidirectional mode +p and -p are two
        rings.
    degree_allreduce, degree_transfer : int
        Of all ports of a server, those planned for rings (a reserved ring over all servers
        included) and the others, for matching.
    matching_gap : float
        No round of matching could carry more than ``1 + matching_gap`` times its bytes; 0 (exact)
        but for very many bidirectional servers that send to each other.
    """

    network: Network
    rings: tuple[Ring, ...]
    degree_allreduce: int
    degree_transfer: int
    matching_gap: float = 0.0

    @classmethod
    def wired(
        cls,
        network: Network,
        cluster: Cluster,
        rings: tuple[Ring, ...] = (),
        degree_allreduce: int = 0,
    ) -> "Topology":
        """Return a network that the ports of a cluster are wired as, whatever wired them."""
        return cls(network, rings, degree_allreduce, cluster.degree - degree_allreduce)


def find_topology(
    traffic: Traffic,
    degree: int,
    bandwidth: float,
    *,
    latency: float = 1e-6,
    ports: PortModel = PortModel.DIRECTED,
    degree_allreduce: int | None = None,
    surplus: str = "matching",
    selection: str = Selection.GEOMETRIC,
    placement: bool = False,
    joined: Sequence[Group] = (),
    faithful: str | None = None,
) -> Topology:
    """Build the network of one job from the traffic of one iteration.

    Parameters
    ----------
    traffic : Traffic
        Of at least two servers.
    degree : int
        Ports a server, d.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds a hop.
    ports : PortModel
        What a port connects.
    degree_allreduce : int, optional
        Ports for AllReduce rings, d_A in 0 .. d; by default the paper's formula.
    surplus : {"matching", "rings", "parallel"}
        What gets ports that a group has no further generators for: matching on whatever
        transfers are left and then parallel cables; or first a parallel ring where it would
        carry more bytes a port than the next matching; or parallel rings until the group has
        its share of d_A, and then as for "rings".
    selection : {"geometric", "exact", "traffic", "cayley"}
        How a group's rings are chosen: steps of the paper's geometric sequence, of the shortest
        circulant network, or of the one that serves the group's transfers best; or the rings of
        a Cayley graph where its paths are shorter than those of circulant networks.
    placement : bool
        Seat the members of each group on its rings so that heavy transfer pairs come near.
    joined : sequence of tuple of int
        Servers in the orders of rings that come before all others, as far as there are ports.
        They need not reduce anything.
    faithful : {"paper", "artifact"}, optional
        ``"paper"`` undoes the departures named above. ``"artifact"`` wires rings over all
        servers on every port, with the published code's generators.

    Returns
    -------
    Topology
        Strongly connected; no server has more than d transmit or d receive fibres in use.

    Raises
    ------
    InputError
        If a number is out of range, or there is only one server.
    DegreeTooSmallError
        If the ports cannot join all servers.

    Notes
    -----
    Ports go, in this order, to: rings of the groups by decreasing bytes, d_A ports; rounds of
    maximum-weight matching on the transfers, d - d_A ports; surplus ports (a group has fewer
    generators than ports, a server is in no group) to more matching and more rings, parallel
    cables where the generators have run out; then to any servers with ports left. In
    bidirectional mode a ring step takes two ports (one in a group of two), so an odd port goes
    to the matching, and d_A = 1 is raised to 2. If the result is not strongly connected, it is
    built again with one ring over all servers reserved first.
    """
    if surplus not in ("matching", "rings", "parallel"):
        raise InputError(f"surplus is {surplus!r}; choose 'matching', 'rings' or 'parallel'")
    chosen = selection_named(selection)
    if faithful is not None and (placement or chosen is not Selection.GEOMETRIC):
        raise InputError(
            f"faithful is {faithful!r} with selection {chosen.value!r} and placement {placement}; "
            "leave them at 'geometric' and False to reproduce others' work"
        )
    mode = _checked(traffic, degree, bandwidth, latency, degree_allreduce, faithful)
    _check_orders(joined, traffic.servers)
    servers = traffic.servers
    kind = port_model(ports)
    everyone = tuple(range(servers))
    wiring = Wiring(servers, degree, kind)
    chooser = RingChooser(chosen, placement, traffic.transfers, wiring.bidirectional)
    needed = wiring.ring_ports(everyone)
    if degree < needed:
        raise DegreeTooSmallError(
            f"degree {degree} cannot join {servers} servers with {kind} ports; "
            f"give at least {needed}"
        )
    if mode is Faithful.ARTIFACT:
        share = degree
    elif degree_allreduce is None:
        share = max(needed, degree_for_allreduce(traffic, degree))
    else:
        share = degree_allreduce
    reserved = _join(wiring, joined)
    share = max(share, reserved)
    _wire(wiring, traffic, share, reserved, mode, surplus, chooser)
    # A ring of all servers joins them; asking the cables takes a tenth of a search.
    ringed = any(len(ring.group) == servers for ring in wiring.rings)
    if not ringed and not is_strongly_connected(wiring.cables):
        wiring = Wiring(servers, degree, kind)
        wiring.seat(chooser.arrange(everyone, 1))
        wiring.add_ring(everyone, 1)
        reserved = _join(wiring, joined)
        share = max(share, reserved)
        _wire(wiring, traffic, share, reserved, mode, surplus, chooser)
    return topology_of(wiring, share, bandwidth, latency)


def _join(wiring: Wiring, orders: Sequence[Group]) -> int:
    """Wire a ring in each order that ports are left for; return what some server spent."""
    for order in orders:
        group = tuple(sorted(order))
        if wiring.free(group) >= wiring.ring_ports(group):
            if group not in wiring.orders:
                wiring.seat(order)
            wiring.add_ring(group, 1)
    return wiring.degree - int(wiring.free_out.min())


def topology_of(wiring: Wiring, share: int, bandwidth: float, latency: float) -> Topology:
    """Return a finished wiring as a topology.

    Parameters
    ----------
    wiring : Wiring
        Its rings get their steps, where they have none.
    share : int
        Ports planned for rings; the others are for matching.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds a hop.

    Returns
    -------
    Topology
    """
    return Topology(
        network=wiring.network("topoopt", bandwidth, latency),
        rings=labelled(wiring.rings),
        degree_allreduce=share,
        degree_transfer=wiring.degree - share,
        matching_gap=wiring.matching_gap,
    )


def _checked(
    traffic: Traffic,
    degree: int,
    bandwidth: float,
    latency: float,
    degree_allreduce: int | None,
    faithful: str | None,
) -> Faithful | None:
    """Check the arguments of `find_topology` and return the mode."""
    if traffic.servers < 2:
        raise InputError(
            f"a topology of {traffic.servers} server: one server needs no network; "
            "give at least 2 servers"
        )
    if degree < 1:
        raise DegreeTooSmallError(
            f"degree {degree} cannot join {traffic.servers} servers; give at least 1 port"
        )
    check_rates(traffic.servers, bandwidth, latency)
    if degree_allreduce is not None and not 0 <= degree_allreduce <= degree:
        raise InputError(
            f"degree_allreduce is {degree_allreduce}; give 0 to {degree}, the ports of a server"
        )
    if traffic.transfers.shape != (traffic.servers, traffic.servers):
        raise InputError(
            f"the transfers have shape {traffic.transfers.shape}; "
            f"give one row and column for each of {traffic.servers} servers"
        )
    if not np.all(np.isfinite(traffic.group_bytes) & (traffic.group_bytes >= 0)):
        raise InputError(f"AllReduce bytes {traffic.group_bytes} must be zero or positive")
    for group in traffic.groups:
        if len(group) < 2 or list(group) != sorted(set(group)) or group[0] < 0:
            raise InputError(f"AllReduce group {group} must be two or more sorted servers")
        if group[-1] >= traffic.servers:
            raise InputError(
                f"AllReduce group {group} names server {group[-1]} of {traffic.servers}"
            )
    try:
        return None if faithful is None else Faithful(faithful)
    except ValueError:
        raise InputError(
            f"faithful is {faithful!r}; choose {', '.join(Faithful)}, or leave it out"
        ) from None


def _check_orders(joined: Sequence[Group], servers: int) -> None:
    """Check that rings to be wired first visit different servers, and servers that are there."""
    for order in joined:
        if len(order) < 2 or len(set(order)) != len(order):
            raise InputError(f"joined ring {order} must visit two or more different servers")
        if not 0 <= min(order) <= max(order) < servers:
            raise InputError(
                f"joined ring {order} visits a server that is not of 0 to {servers - 1}"
            )


def _wire(
    wiring: Wiring,
    traffic: Traffic,
    share: int,
    reserved: int,
    mode: Faithful | None,
    surplus: str,
    chooser: RingChooser,
) -> None:
    """Spend all ports: rings, matching, parallel rings, then whatever can be joined.

    ``reserved`` ports of every server are taken already; they come out of AllReduce's share.
    """
    for_rings = max(0, share - reserved)
    demand = square_demand(traffic.transfers)
    if mode is Faithful.ARTIFACT:
        demand[:] = 0.0  # the published code never matches
        everyone = tuple(range(wiring.servers))
        for p in artifact_generators(wiring.servers, wiring.degree, wiring.bidirectional):
            if wiring.free(everyone) >= wiring.ring_ports(everyone):
                wiring.add_ring(everyone, p)
    else:
        if mode is Faithful.PAPER:
            shares = ports_by_total(traffic, for_rings)
        else:
            each = [wiring.ring_ports(group) for group in traffic.groups]
            shares = ports_by_server(traffic, for_rings, each)
        wire_rings(wiring, traffic, for_rings, shares, chooser, surplus == "parallel")
    if mode is None:
        joined = np.nonzero(wiring.cables)
        demand[joined] /= 2.0 ** np.minimum(wiring.cables[joined], 64)
    for _ in range(wiring.degree - share):
        wiring.match(demand, wiring.next_matching(demand))
    first = surplus == "matching" or mode is not None
    spend_surplus(wiring, traffic, demand, first, chooser)
