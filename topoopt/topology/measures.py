"""What `topoopt topology` says of a network: distances, throughput, bounds and cost."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import Traffic
from routing.multicommodity import min_congestion
from routing.network import FloatArray
from routing.paths import ecmp_routes, hop_distances
from topoopt.fabric.fabric import Fabric
from topoopt.fabrics.bill import Bill, network_bill
from topoopt.problem.prices import PriceTable
from topoopt.topology.moore import moore_bound
from topoopt.topology.spectrum import spectral_gap
from topoopt.topology.throughput import (
    RateBound,
    best_wiring_seconds,
    port_rate_bound,
    rate_upper_bound,
    routed_rate,
)
from topoopt.topology.zoo.registry import BuiltFabric

# The best routing is sought to 1 % up to this many servers, to 5 % beyond; never for more pairs
# with demand, nor in more rounds, than take some seconds.
_SMALL = 512
_MOST_PAIRS = 1_200_000
_ROUNDS = 100


@dataclass(frozen=True)
class TopologyReport:
    """A network's figures, each beside the best possible. Hops are links.

    Parameters
    ----------
    fabric : str
    servers, switches, degree : int
        ``degree`` is the ports of a server in use.
    links, cables : int
        Directed links (parallel ones once), and cables.
    diameter : int
        Hops between the servers farthest apart.
    mean_distance : float
        Hops, over ordered pairs of different servers.
    moore_diameter, moore_mean_distance : int, float, or None
        No wiring of this degree has less; None where there are switches.
    mean_distance_excess : float or None
        ``mean_distance / moore_mean_distance - 1``.
    spectral_gap : float
        1 - Re(second eigenvalue) of the random walk.
    traffic : str
        "uniform" (the same from every server to every other) or "given".
    worst_path_hops, transfer_path_hops : float
        Longest shortest path between servers with transfers, and the mean weighted by bytes
        (0 without transfers).
    bandwidth_tax : float
        Bytes over links per byte sent, AllReduces included.
    max_link_utilisation : float
        Load of the busiest link over its capacity, when equal-cost routing carries the traffic
        at the rate at which the busiest server's ports are full; above 1 the link is the limit.
    throughput_lower, throughput_upper : float
        What equal-cost routing carries, and what no routing exceeds, as shares of the rate at
        which the busiest server's ports are full.
    throughput_best : float
        What the best routing found carries: `routing.multicommodity.min_congestion`, or where
        that would take long equal-cost routing.
    throughput_limit : str
        What the upper bound comes from: server, distance, cut, or dual (of the best routing).
    certified_gap : float
        ``throughput_upper / throughput_lower - 1``: no routing of this network is faster than
        equal-cost routing by more.
    busiest_link_s : float or None
        Seconds that an iteration's traffic keeps the busiest link; None for uniform traffic.
    best_wiring_s : float or None
        Seconds below which no wiring of this degree carries it.
    wiring_gap : float or None
        With the best routing found, busiest link's time over that of the best wiring and
        routing, less 1, at most; None where there are switches.
    cost_usd : float
    bill : Bill
    """

    fabric: str
    servers: int
    switches: int
    degree: int
    links: int
    cables: int
    diameter: int
    mean_distance: float
    moore_diameter: int | None
    moore_mean_distance: float | None
    mean_distance_excess: float | None
    spectral_gap: float
    traffic: str
    worst_path_hops: int
    transfer_path_hops: float
    bandwidth_tax: float
    max_link_utilisation: float
    throughput_lower: float
    throughput_upper: float
    throughput_best: float
    throughput_limit: str
    certified_gap: float
    busiest_link_s: float | None
    best_wiring_s: float | None
    wiring_gap: float | None
    cost_usd: float
    bill: Bill

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return asdict(self)


def topology_report(
    built: BuiltFabric,
    bandwidth: float,
    prices: PriceTable,
    traffic: Traffic | None = None,
    *,
    layer: str = "patch-panel",
    fibre_usd: float = 0.0,
) -> TopologyReport:
    """Measure a fabric under equal-cost routing, and prove how far that is from the best.

    Parameters
    ----------
    built : BuiltFabric
    bandwidth : float
        Bytes per second of a server's port in one direction.
    prices : PriceTable
    traffic : Traffic, optional
        By default the same from every server to every other.
    layer, fibre_usd
        See `topoopt.fabrics.bill.network_bill`.

    Returns
    -------
    TopologyReport

    Raises
    ------
    InputError
        If the traffic is of another number of servers, or there is none.
    InfeasibleError
        If a server cannot reach another.
    """
    network = built.network
    n = network.hosts
    uniform = np.ones((n, n)) - np.eye(n)
    given = Traffic(n, uniform, (), np.zeros(0)) if traffic is None else traffic
    if given.servers != n:
        raise InputError(f"the traffic is of {given.servers} servers, the network has {n}")
    routes = ecmp_routes(network)
    demand = total_demand(built, given, Fabric(built.name, network, routes, _rings(built)))
    if not demand.any():
        raise InputError("the traffic has no bytes; give one that has transfers or AllReduces")
    distance = hop_distances(network)
    between = distance[:n, :n]
    full = port_rate_bound(network, demand)
    carried = routed_rate(network, routes, demand)
    bound = rate_upper_bound(network, demand, distance)
    best = carried
    if np.count_nonzero(demand) <= _MOST_PAIRS:
        small = n <= _SMALL
        routed = min_congestion(network, demand, 0.01 if small else 0.05, rounds=_ROUNDS)
        best = max(best, routed.throughput)
        if routed.lower_bound * bound.rate > 1.0:
            bound = RateBound(1.0 / routed.lower_bound, "dual")
    moved = given.transfers
    direct = network.switches == 0
    moore = moore_bound(n, built.degree, built.bidirectional) if direct else None
    mean = float(between.sum()) / (n * (n - 1))
    fastest = None
    if direct:
        fastest = best_wiring_seconds(given, built.degree, bandwidth, built.bidirectional)
    bill = network_bill(network, prices, layer=layer, own=built.own, fibre_usd=fibre_usd)
    return TopologyReport(
        fabric=built.name,
        servers=n,
        switches=network.switches - built.own,
        degree=built.degree,
        links=network.links,
        cables=bill.cables,
        diameter=int(between.max()),
        mean_distance=mean,
        moore_diameter=moore.diameter if moore else None,
        moore_mean_distance=moore.mean_distance if moore else None,
        mean_distance_excess=mean / moore.mean_distance - 1.0 if moore else None,
        spectral_gap=spectral_gap(network),
        traffic="uniform" if traffic is None else "given",
        worst_path_hops=int(between[moved > 0].max(initial=0)),
        transfer_path_hops=float((moved * between).sum() / moved.sum()) if moved.any() else 0.0,
        bandwidth_tax=float((demand.ravel() * routes.hops).sum() / demand.sum()),
        max_link_utilisation=full / carried,
        throughput_lower=carried / full,
        # The routes prove that the bound is no lower than what they carry, but for rounding.
        throughput_upper=max(bound.rate, best) / full,
        throughput_best=best / full,
        throughput_limit=bound.binding,
        certified_gap=max(bound.rate / carried - 1.0, 0.0),
        busiest_link_s=None if traffic is None else 1.0 / carried,
        best_wiring_s=None if traffic is None else fastest,
        wiring_gap=max(1.0 / best / fastest - 1.0, 0.0) if fastest else None,
        cost_usd=bill.cost,
        bill=bill,
    )


def total_demand(built: BuiltFabric, traffic: Traffic, fabric: Fabric) -> FloatArray:
    """Return the bytes of each server pair, transfers and ring edges; shape (hosts, hosts).

    Each ring edge of a group of g servers with R rings carries 2 (g - 1) / g S / R bytes.
    """
    n = built.network.hosts
    demand = traffic.transfers.astype(np.float64).ravel()
    for group, size in zip(traffic.groups, traffic.group_bytes.tolist(), strict=True):
        edges = fabric.ring_edges(group)
        each = 2.0 * (len(group) - 1) / len(group) * size / edges.shape[0]
        np.add.at(demand, edges.ravel(), each)
    return demand.reshape(n, n)


def _rings(built: BuiltFabric) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    rings: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {}
    for ring in built.rings:
        rings[ring.group] = (*rings.get(ring.group, ()), ring.members)
    return rings


def report_text(report: TopologyReport) -> str:
    """Return the report as a page of text."""
    from topoopt.base.text import dollars, table_lines
    from topoopt.problem.units import format_time

    ports = f"{report.degree} {'port' if report.degree == 1 else 'ports'} a server"
    rows: list[tuple[str, ...]] = [
        ("diameter", f"{report.diameter} hops", _at_least(report.moore_diameter)),
        ("mean distance", f"{report.mean_distance:.4g} hops",
         _at_least(report.moore_mean_distance, report.mean_distance_excess)),
        ("longest transfer path", f"{report.worst_path_hops} hops", ""),
        ("mean path by bytes", f"{report.transfer_path_hops:.4g} hops", "transfers"),
        ("bandwidth tax", f"{report.bandwidth_tax:.4g}", "bytes over links per byte sent"),
        ("busiest link", f"{report.max_link_utilisation:.4g}",
         "of its capacity, with the busiest server's ports full"),
        ("throughput", f"{report.throughput_lower:.4g} to {report.throughput_upper:.4g}",
         f"of full ports with equal-cost routing; best routing found {report.throughput_best:.4g}"),
        ("routing gap", _from_best(report.certified_gap),
         f"at most, from the best routing ({report.throughput_limit} bound)"),
        ("spectral gap", f"{report.spectral_gap:.4g}", ""),
        ("cost", dollars(report.cost_usd),
         f"{report.bill.cables} cables, {report.bill.transceivers} transceivers"),
    ]  # fmt: skip
    if report.busiest_link_s is not None:
        least = report.best_wiring_s
        against = "" if least is None else f"no wiring takes less than {format_time(least)}"
        rows.insert(6, ("busiest link, time", format_time(report.busiest_link_s), against))
    if report.wiring_gap is not None:
        at = next(i for i, row in enumerate(rows) if row[0] == "routing gap")
        rows.insert(at, ("wiring gap", _from_best(report.wiring_gap),
                         "at most, from the best wiring, with the best routing found"))  # fmt: skip
    title = (
        f"{report.fabric}: {report.servers} servers, {report.switches} "
        f"{'switch' if report.switches == 1 else 'switches'}, {ports}, "
        f"{report.traffic} traffic"
    )
    return "\n".join([title, "", *table_lines(rows, left=(0, 2))])


def _from_best(gap: float) -> str:
    return f"{100 * gap:.2f} %"


def _at_least(bound: float | None, excess: float | None = None) -> str:
    if bound is None:
        return ""
    over = "" if excess is None else f" ({100 * excess:.1f} % above)"
    return f"Moore bound {bound:.4g}{over}"
