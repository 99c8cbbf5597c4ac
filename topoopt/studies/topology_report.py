"""What `topoopt topology` says of a network: its figures and its cost."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import check_kind, check_number
from codesign_base.counted import counted
from parallelism.taskgraph import Traffic
from routing.paths import ecmp_link_bytes, ecmp_routes
from routing.routes import Routes, tabled
from topoopt.base.text import dollars, table_lines
from topoopt.baselines.bill import Bill, network_bill
from topoopt.fabric.fabric import Fabric
from topoopt.problem.prices import PriceTable
from topoopt.problem.units import format_time
from topoopt.studies.demand import total_demand
from topoopt.topology.measures import Measures, measure
from topoopt.topology.wiring import ring_orders
from topoopt.topology.zoo.registry import BuiltFabric


@dataclass(frozen=True)
class TopologyReport:
    """A network's figures, each beside the best possible, and its bill.

    Parameters
    ----------
    measures : Measures
    bill : Bill
    """

    measures: Measures
    bill: Bill

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        rest = asdict(self.measures)
        head = {
            name: rest.pop(name) for name in ("fabric", "servers", "switches", "degree", "links")
        }
        paid = {"cost_usd": self.bill.cost, "bill": asdict(self.bill)}
        return {**head, "cables": self.bill.cables, **rest, **paid}


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
        See `topoopt.baselines.bill.network_bill`.

    Returns
    -------
    TopologyReport

    Raises
    ------
    InputError
        If there is one server only, the traffic is of another number of them, or there is none.
    InfeasibleError
        If a server cannot reach another.
    """
    check_kind("built", built, BuiltFabric, "what build_fabric returns")
    check_number("bandwidth", bandwidth)
    check_kind("prices", prices, PriceTable, "a table, such as default_prices() returns")
    check_kind("traffic", traffic, Traffic | None, "what parallelism.taskgraph.traffic_of returns")
    network = built.network
    n = network.hosts
    if n < 2:  # plans may have one server on a switch, but nothing is measured there
        raise InputError(f"a network of {counted(n, 'server')}; give at least 2")
    uniform = np.ones((n, n)) - np.eye(n)
    given = Traffic(n, uniform, (), np.zeros(0)) if traffic is None else traffic
    if given.servers != n:
        raise InputError(
            f"the traffic is of {counted(given.servers, 'server')}, the network has {n}"
        )
    routes = Routes.of_all(n, partial(ecmp_routes, network))
    demand = total_demand(Fabric(built.name, network, routes, ring_orders(built.rings)), given)
    loads = (
        routes.link_bytes(network, demand)
        if tabled(n)
        else ecmp_link_bytes(network, demand)  # routes of many pairs fill memory
    )
    bill = network_bill(
        network, prices, layer=layer, forwarders=built.forwarders, fibre_usd=fibre_usd
    )
    return TopologyReport(measure(built, bandwidth, loads, demand, traffic), bill)


def report_text(report: TopologyReport) -> str:
    """Return the report as a page of text."""
    measures = report.measures
    ports = f"{counted(measures.degree, 'port')} a server"
    rows: list[tuple[str, ...]] = [
        ("diameter", counted(measures.diameter, "hop"), _at_least(measures.moore_diameter)),
        ("mean distance", counted(f"{measures.mean_distance:.4g}", "hop"),
         _at_least(measures.moore_mean_distance, measures.mean_distance_excess)),
        ("longest transfer path", counted(measures.worst_path_hops, "hop"), ""),
        ("mean path by bytes", counted(f"{measures.transfer_path_hops:.4g}", "hop"), "transfers"),
        ("bandwidth tax", f"{measures.bandwidth_tax:.4g}", "bytes over links per byte sent"),
        ("busiest link", f"{measures.max_link_utilisation:.4g}",
         "of its capacity, with the busiest server's ports full"),
        ("throughput", f"{measures.throughput_lower:.4g} to {measures.throughput_upper:.4g}",
         "of full ports with equal-cost routing; "
         f"best routing found {measures.throughput_best:.4g}"),
        ("routing gap", _from_best(measures.certified_gap),
         f"at most, from the best routing ({measures.throughput_limit} bound)"),
        ("spectral gap", f"{measures.spectral_gap:.4g}", ""),
        ("cost", dollars(report.bill.cost),
         f"{counted(report.bill.cables, 'cable')}, "
         f"{counted(report.bill.transceivers, 'transceiver')}"),
    ]  # fmt: skip
    if measures.busiest_link_s is not None:
        least = measures.best_wiring_s
        against = "" if least is None else f"no wiring takes less than {format_time(least)}"
        rows.insert(6, ("busiest link, time", format_time(measures.busiest_link_s), against))
    if measures.wiring_gap is not None:
        at = next(i for i, row in enumerate(rows) if row[0] == "routing gap")
        rows.insert(at, ("wiring gap", _from_best(measures.wiring_gap),
                         "at most, from the best wiring, with the best routing found"))  # fmt: skip
    title = (
        f"{measures.fabric}: {counted(measures.servers, 'server')}, "
        f"{counted(measures.switches, 'switch', 'switches')}, {ports}, "
        f"{measures.traffic} traffic"
    )
    return "\n".join([title, "", *table_lines(rows, left=(0, 2))])


def _from_best(gap: float) -> str:
    return f"{100 * gap:.2f} %"


def _at_least(bound: float | None, excess: float | None = None) -> str:
    if bound is None:
        return ""
    over = "" if excess is None else f" ({100 * excess:.1f} % above)"
    return f"Moore bound {bound:.4g}{over}"
