"""`topoopt compare`: one job over all fabrics."""

from dataclasses import asdict
from typing import Annotated

import typer

from topoopt.cli import common


def compare_command(
    model: common.Model,
    servers: common.Servers,
    degree: common.Degree,
    bandwidth: common.Bandwidth,
    fabrics: Annotated[
        str,
        typer.Option(
            help="all, or some of ideal-switch, fat-tree, oversubscribed-fat-tree, expander and "
            "network files (.json, .graphml), separated by commas."
        ),
    ] = "all",
    ports: common.Ports = "directed",
    latency: common.Latency = "1us",
    device: common.Device = "a100",
    gpus: common.Gpus = 4,
    batch: common.Batch = None,
    profile: common.Profile = None,
    optimizer: common.OptimizerName = "sgd",
    seed: common.Seed = 0,
    steps: common.Steps = None,
    prices: common.Prices = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Compare the co-designed fabric with an ideal switch, Fat-trees and an expander.

    Every fabric runs the best strategy that was found for it.

    Example: topoopt compare vgg16-16 --servers 16 --degree 4 --bandwidth 100Gbps
    """
    from topoopt.baselines import BASELINES
    from topoopt.comparison import compare

    job = common.make_job(model, device, gpus, batch, profile, optimizer)
    cluster = common.make_cluster(servers, degree, bandwidth, ports, latency)
    names = BASELINES if fabrics == "all" else tuple(n.strip() for n in fabrics.split(","))
    table = common.make_prices(prices)
    with common.progress_reports(quiet) as progress:
        result = compare(
            job,
            cluster,
            fabrics=names,
            seed=seed,
            steps=steps,
            prices=table,
            progress=progress,
        )
    if as_json:
        common.print_json(asdict(result))
    else:
        print(result.summary())
