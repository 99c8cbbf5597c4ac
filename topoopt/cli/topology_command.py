"""`topoopt topology`: build a network by name and measure it."""

from pathlib import Path
from typing import Annotated

import typer

from codesign_base import InputError
from topoopt.cli import common
from topoopt.problem.seeds import checked_seed


def topology_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A fabric; `topoopt topology list` lists them.")],
    servers: Annotated[
        int | None, typer.Option(help="Number of servers.", show_default="from --dims or --traffic")
    ] = None,
    degree: Annotated[
        int | None,
        typer.Option(help="Network ports of each server.", show_default="what the fabric needs"),
    ] = None,
    bandwidth: common.Bandwidth = "100Gbps",
    ports: common.Ports = "directed",
    latency: common.Latency = "1us",
    traffic: Annotated[
        Path | None,
        typer.Option(help="What an iteration sends (.npz).", show_default="uniform"),
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(
            help="torus, twisted-torus: 4x4x8; hamming-mesh: 2x2x4x4; product: RI(4)_FC(8)_SW(4)."
        ),
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(
            help="Servers a rack or pod.", show_default="square root of all; rail-only: 64"
        ),
    ] = None,
    oversubscription: Annotated[
        float, typer.Option(help="Of fat-tree, leaf-spine, rail and rail-only: 2 is 2:1.")
    ] = 1.0,
    tier: Annotated[str, typer.Option(help="Where a Fat-tree tapers: tor or aggregation.")] = "tor",
    selection: Annotated[
        str, typer.Option(help="Rings of totient: geometric (paper), exact, traffic or cayley.")
    ] = "exact",
    placement: Annotated[
        bool, typer.Option("--placement", help="totient: seat servers on rings by traffic.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of cayley, annealed, expander and xpander.")] = 0,
    layer: Annotated[
        str, typer.Option(help="What joins servers' ports: patch-panel, ocs or none.")
    ] = "patch-panel",
    fibre_usd: Annotated[float, typer.Option(help="US dollars of a cable.")] = 0.0,
    prices: common.Prices = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the network (JSON or GraphML; SVG: a drawing)."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Build a network by name, and measure its paths, loads and cost against bounds.

    Example: topoopt topology totient --servers 128 --degree 4 --traffic traffic.npz
    """
    from topoopt.base.atomic import write_text_atomically
    from topoopt.formats.traffic import load_traffic
    from topoopt.problem.prices import default_prices
    from topoopt.problem.units import parse_latency, parse_port_rate
    from topoopt.report.picture import network_picture
    from topoopt.studies.topology_report import report_text, topology_report
    from topoopt.topology.network_file import save_network
    from topoopt.topology.zoo.registry import (
        DRAWN,
        FABRICS,
        PORTED,
        SWITCHED,
        TAPERED,
        build_fabric,
    )

    if name == "list":
        others = {parameter.name or "" for parameter in context.command.params}
        common.refuse_given(
            context, others - {"name", "as_json"}, "list builds nothing; leave it out"
        )
        if as_json:
            common.print_json(FABRICS)
        else:
            width = max(map(len, FABRICS))
            print("\n".join(f"{fabric:{width}}  {what}" for fabric, what in FABRICS.items()))
        return
    if name != "totient":
        common.refuse_given(
            context, ("selection", "placement"), f"{name} has no rings to choose; leave it out"
        )
    if name not in PORTED:
        common.refuse_given(context, ("ports",), f"{name} has its own; leave it out")
    if name not in DRAWN:
        common.refuse_given(context, ("seed",), f"nothing of {name} is drawn; leave it out")
    if name in SWITCHED:
        common.refuse_given(context, ("layer",), f"{name} has switches for it; leave it out")
    if name in FABRICS and name not in TAPERED:
        common.refuse_given(
            context, ("oversubscription",), f"nothing of {name} tapers; leave it out"
        )
    if name in FABRICS and name != "fat-tree":
        common.refuse_given(context, ("tier",), f"{name} has no choice of tiers; leave it out")
    elif oversubscription == 1:
        common.refuse_given(
            context, ("tier",), "nothing tapers there; give --oversubscription above 1, too"
        )
    checked_seed(seed)
    common.check_outputs(output, inputs=[traffic, prices])
    kinds = (".json", ".graphml", ".xml", ".svg")
    if output is not None and output.suffix.lower() not in kinds:
        raise InputError(
            f"output {output} is of no known kind; give a name that ends in {', '.join(kinds)}"
        )
    rate = parse_port_rate(bandwidth)
    sent = None if traffic is None else load_traffic(traffic)
    if servers is None and sent is not None and dims is None:
        servers = sent.servers
    built = build_fabric(
        name,
        servers,
        degree,
        rate,
        parse_latency(latency),
        ports=ports,
        dims=dims,
        group=group,
        oversubscription=oversubscription,
        tier=tier,
        traffic=sent,
        selection=selection,
        placement=placement,
        seed=seed,
    )
    table = common.make_prices(prices) or default_prices()
    report = topology_report(built, rate, table, sent, layer=layer, fibre_usd=fibre_usd)
    if output is not None:
        if output.suffix.lower() == ".svg":
            write_text_atomically(output, network_picture(built.network))
        else:
            save_network(built.network, output)
    if as_json:
        common.print_json(report.to_dict())
    else:
        print(report_text(report))
        if output is not None:
            print(f"network written to {output}")
