"""`topoopt route`: routes of a traffic file on a network file, with their bounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.cli import common
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import format_bytes, format_time, parse_time

if TYPE_CHECKING:
    from routing.routed import RoutedTraffic


def route_command(
    context: typer.Context,
    network: Annotated[Path, typer.Argument(help="A network file (JSON or GraphML).")],
    traffic: Annotated[Path, typer.Argument(help="A traffic file (.npz).")],
    method: Annotated[
        str,
        typer.Option(help="mcf, lp, ecmp, k-shortest, shortest, valiant or coin-change."),
    ] = "mcf",
    accuracy: Annotated[
        float, typer.Option(help="Proven distance from the best congestion, as a fraction.")
    ] = 0.01,
    unsplittable: Annotated[
        bool, typer.Option("--unsplittable", help="One path a pair (mcf and lp).")
    ] = False,
    allreduce: Annotated[
        str,
        typer.Option(help="rings: add AllReduce as edges of the network's best rings; leave-out."),
    ] = "rings",
    within: Annotated[
        str, typer.Option(help="Time in which the traffic is sent, for the utilisation.")
    ] = "1s",
    seed: Annotated[int, typer.Option(help="Of the rounding to one path a pair.")] = 0,
    tables: Annotated[Path | None, typer.Option(help="Write forwarding tables (JSON).")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the routes (JSON).")
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Route traffic over a network, and say how far from the best routing it is.

    Example: topoopt route network.json traffic.npz --method mcf --accuracy 0.01
    """
    from routing.routed import route_traffic
    from topoopt.formats.routes_json import save_routes, save_tables
    from topoopt.formats.traffic import load_traffic
    from topoopt.studies.demand import demand_matrix
    from topoopt.topology.network_file import load_network

    if allreduce not in ("rings", "leave-out"):
        raise InputError(f"allreduce is {allreduce!r}; choose rings or leave-out")
    if not unsplittable:
        common.refuse_given(context, ("seed",), "nothing is drawn; add --unsplittable")
    checked_seed(seed)
    seconds = parse_time(within, "within")
    common.check_outputs(tables, output, inputs=[network, traffic])
    graph = load_network(network)
    demand = demand_matrix(graph, load_traffic(traffic), allreduce=allreduce == "rings")
    routed = route_traffic(
        graph, demand, method, accuracy=accuracy, unsplittable=unsplittable, seed=seed
    )
    report = _report(routed, seconds, allreduce)
    if tables is not None:
        save_tables(_tables(routed), tables)
    if output is not None:
        save_routes(routed, output)
    if as_json:
        common.print_json(report)
    else:
        print(_text(report))


def _tables(routed: "RoutedTraffic") -> Any:
    from routing.forwarding import forwarding_tables, path_routing_tables

    if routed.paths is not None and routed.rounding_loss is None:
        return path_routing_tables(routed.paths)
    return forwarding_tables(routed.network, routed.routes)


def _report(routed: "RoutedTraffic", seconds: float, allreduce: str) -> dict[str, Any]:
    from routing.routed import hop_statistics

    network, demand = routed.network, routed.demand
    diameter, mean, weighted = hop_statistics(network, demand)
    load = routed.link_bytes()
    congestion = routed.congestion()
    total = float(demand.sum())
    kind, rules = routed.rules()
    wiring = routed.wiring_bound
    return {
        "method": str(routed.method),
        "network": network.name,
        "hosts": network.hosts,
        "links": network.links,
        "demand_bytes": total,
        "allreduce": allreduce,
        "diameter": diameter,
        "mean_distance": mean,
        "mean_distance_weighted": weighted,
        "worst_path_hops": routed.worst_hops(),
        "bandwidth_tax": float(load.sum()) / total if total else 0.0,
        "congestion_s": congestion,
        "within_s": seconds,
        "max_link_utilisation": congestion / seconds,
        "throughput_lower_bound_per_s": 1.0 / congestion if congestion else None,
        "throughput_upper_bound_per_s": 1.0 / routed.bound.seconds if congestion else None,
        "lower_bound_s": routed.bound.seconds,
        "bound_by": routed.bound.binding,
        "certified_gap": routed.bound.excess(congestion),
        "any_wiring_lower_bound_s": wiring.seconds if wiring else None,
        "any_wiring_gap": wiring.excess(congestion) if wiring else None,
        "rounding_loss": routed.rounding_loss,
        "rules_by": kind,
        "rules_per_host": int(rules[: network.hosts].max(initial=0)),
        "rules_total": int(rules.sum()),
    }


def _text(report: dict[str, Any]) -> str:
    rings = "as ring edges" if report["allreduce"] == "rings" else "left out"
    longest = report["worst_path_hops"]
    hosts, links = counted(report["hosts"], "host"), counted(report["links"], "link")
    lines = [
        f"{report['method']} on {report['network']}: {hosts}, "
        f"{links}, {format_bytes(report['demand_bytes'])} "
        f"(AllReduce {rings})",
        f"distance: diameter {report['diameter']}, mean {report['mean_distance']:.3f} hops, "
        f"weighted by traffic {report['mean_distance_weighted']:.3f}"
        + (f", longest path {longest}" if longest is not None else ""),
        f"bandwidth tax: {report['bandwidth_tax']:.3f}",
        f"most loaded link: {format_time(report['congestion_s'])}, utilisation "
        f"{report['max_link_utilisation']:.4g} within {format_time(report['within_s'])}",
        f"at most {report['certified_gap']:.2%} from the best routing "
        f"({format_time(report['lower_bound_s'])}, by {report['bound_by']})",
    ]
    if report["any_wiring_gap"] is not None:
        lines.append(
            f"at most {report['any_wiring_gap']:.2%} from the best wiring and routing of as many "
            f"ports ({format_time(report['any_wiring_lower_bound_s'])})"
        )
    if report["rounding_loss"] is not None:
        lines.append(f"one path a pair costs {report['rounding_loss']:.2%}")
    rules = counted(report["rules_per_host"], "rule")
    lines.append(f"forwarding: at most {rules} a host, by {report['rules_by']}")
    return "\n".join(lines)
