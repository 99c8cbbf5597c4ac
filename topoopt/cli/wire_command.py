"""`topoopt wire`: topology and routes for a task graph that is given."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.base.text import table_lines
from topoopt.cli import common
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from topoopt.codesign.wire import Wired
    from topoopt.problem.cluster import Cluster
    from topoopt.studies.workload import Workload

_ENDINGS = (".fbuf", ".json", ".graphml")


def wire_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="Chakra traces (a directory of PREFIX.RANK.et), a task graph (.fbuf), or a plan "
            "(.json), of which only the tasks count."
        ),
    ],
    degree: Annotated[int, typer.Option(help="Network ports of each server.")],
    bandwidth: common.Bandwidth,
    ports: common.Ports = "directed",
    latency: common.Latency = "1us",
    seed: Annotated[int, typer.Option(help="Of random shortest paths.")] = 0,
    prices: common.Prices = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write tasks, network, routes and rings (.fbuf, which simulate and export take), "
            "or the network (JSON, GraphML).",
        ),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Wire and route servers for a task graph, without a model or a search of strategies.

    Example: topoopt wire traces --degree 4 --bandwidth 100Gbps -o wired.fbuf
    """
    from topoopt.codesign.wire import wire_tasks
    from topoopt.problem.cluster import Cluster
    from topoopt.studies.workload import load_workload, streams_of

    checked_seed(seed)
    common.check_outputs(output, inputs=[file, prices])
    if output is not None and output.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"output is {str(output)!r}; give a name that ends in {', '.join(_ENDINGS)}"
        )
    table = common.make_prices(prices)
    with common.first_run_notice() as started:
        workload = streams_of(load_workload(file))
        cluster = Cluster(workload.tasks.servers, degree, bandwidth, ports, latency)
        wired = wire_tasks(workload.tasks, cluster, seed=seed, prices=table)
        started()
    # Before the file, which not every format can hold: the answer took long.
    if as_json:
        common.print_json(_document(workload, cluster, wired, seed))
    else:
        print("\n".join(_text(workload, cluster, wired)))
    if output is not None:
        _save(workload, cluster, wired, output)
        if not as_json:
            print(f"wiring written to {output}")


def _save(workload: "Workload", cluster: "Cluster", wired: "Wired", output: Path) -> None:
    from topoopt.fabric.represented import whole_tasks
    from topoopt.formats.fbuf_plan import iteration_fbuf
    from topoopt.formats.fbuf_write import save_fbuf
    from topoopt.topology.network_file import save_network

    if output.suffix.lower() != ".fbuf":
        save_network(wired.pair.fabric.network, output)
        return
    file = iteration_fbuf(
        whole_tasks(workload.tasks),
        wired.pair.fabric,
        net_bandwidth=cluster.port_rate,
        latency=cluster.hop_latency,
        gpus_per_node=1,
        intergpu_bandwidth=cluster.port_rate,
    )
    save_fbuf(file, output)


def _document(
    workload: "Workload", cluster: "Cluster", wired: "Wired", seed: int
) -> dict[str, Any]:
    from topoopt.base.version import installed_version

    pair, network = wired.pair, wired.pair.fabric.network
    assert pair.topology is not None  # of two or more servers
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    return {
        "file": workload.name,
        "kind": workload.kind,
        "tasks": workload.tasks.tasks,
        "servers": cluster.servers,
        "degree": cluster.degree,
        "bandwidth_bytes_per_s": cluster.port_rate,
        "ports": cluster.ports,
        "latency_s": cluster.hop_latency,
        "seed": seed,
        "version": installed_version(),
        "iteration_time_s": pair.time,
        "lower_bound_s": wired.bound.seconds,
        "gap": wired.gap,
        "bound": {"term": wired.bound.binding, "terms_s": wired.bound.terms},
        "topology_bound_s": wired.topology.seconds,
        "routes_bound_s": wired.routes.seconds,
        "collective_bound_s": wired.collective.seconds,
        "routing": pair.routing.value,
        "cost_usd": wired.cost_usd,
        "baselines": {name: asdict(base) for name, base in wired.baselines.items()},
        "links": [
            {"source": a, "target": b, "cables": cables}
            for (a, b), cables in zip(ends, network.multiplicity.tolist(), strict=True)
        ],
        "rings": [
            list(order) for orders in pair.fabric.rings.values() for order in orders
        ],
    }  # fmt: skip


def _text(workload: "Workload", cluster: "Cluster", wired: "Wired") -> list[str]:
    pair = wired.pair
    assert pair.topology is not None  # of two or more servers
    lines = [
        f"{workload.name}: {workload.kind} of {counted(cluster.servers, 'server')}, "
        f"{counted(workload.tasks.tasks, 'task')}",
        f"iteration time {format_time(pair.time)} on {counted(cluster.degree, 'port')} of "
        f"{format_bandwidth(cluster.port_rate)} a server, {pair.routing.value} routes",
        f"ports: {pair.topology.degree_allreduce} for rings, {pair.topology.degree_transfer} for "
        "transfers",
        f"no wiring and routing takes less than {format_time(wired.bound.seconds)} "
        f"({wired.bound.binding}): gap {100 * wired.gap:.1f} %",
        f"bounds of this wiring {format_time(wired.topology.seconds)}, of these routes "
        f"{format_time(wired.routes.seconds)}, with these rings "
        f"{format_time(wired.collective.seconds)}",
        "",
    ]
    rows: list[tuple[str, ...]] = [
        ("fabric", "time", "over this", "cost, USD", "a server"),
        ("wired", format_time(pair.time), "", f"{wired.cost_usd:,.0f}", format_bandwidth(
            cluster.degree * cluster.port_rate
        )),
    ]  # fmt: skip
    for name, base in wired.baselines.items():
        cost = "?" if base.cost_usd is None else f"{base.cost_usd:,.0f}"
        ratio = f"{base.time_s / pair.time:.3f}"
        rows.append((name, format_time(base.time_s), ratio, cost, format_bandwidth(
            base.bandwidth_bytes_per_s
        )))  # fmt: skip
    lines += table_lines(rows)
    base = wired.baselines["fat-tree"]
    if pair.time > base.time_s:
        least = (
            "no wiring of these ports could be, by the bound"
            if wired.bound.seconds >= base.time_s * (1.0 - 1e-9)
            else "the bound does not rule out that another wiring is"
        )
        lines.append(f"note: slower than the Fat-tree of the same cost; {least}")
    return lines
