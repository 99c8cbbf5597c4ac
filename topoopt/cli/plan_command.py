"""`topoopt plan`: the main job."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from topoopt.cli import common


def plan_command(
    model: common.Model,
    servers: common.Servers,
    degree: common.Degree,
    bandwidth: common.Bandwidth,
    ports: common.Ports = "directed",
    latency: common.Latency = "1us",
    device: common.Device = "a100",
    gpus: common.Gpus = 4,
    batch: common.Batch = None,
    profile: common.Profile = None,
    optimizer: common.OptimizerName = "sgd",
    seed: common.Seed = 0,
    steps: common.Steps = None,
    seconds: Annotated[
        float | None, typer.Option(help="Search budget in seconds instead of steps.")
    ] = None,
    chains: Annotated[int, typer.Option(help="Search chains.")] = 3,
    faithful: Annotated[
        str | None, typer.Option(help='Switch departures back: "paper" or "artifact".')
    ] = None,
    prices: common.Prices = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Plan file.")] = None,
    save_traffic: Annotated[Path | None, typer.Option(help="Traffic file (.npz).")] = None,
    save_network: Annotated[Path | None, typer.Option(help="Network file (.json).")] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Co-design strategy, topology and routing for a training job.

    Example: topoopt plan dlrm --servers 128 --degree 4 --bandwidth 100Gbps -o plan.json
    """
    from topoopt.solve import co_optimize

    job = common.make_job(model, device, gpus, batch, profile, optimizer)
    cluster = common.make_cluster(servers, degree, bandwidth, ports, latency)
    for path in (output, save_traffic, save_network):
        common.check_writable(path)
    table = common.make_prices(prices)
    with common.progress_reports(quiet) as progress:
        plan = co_optimize(
            job,
            cluster,
            seed=seed,
            steps=steps,
            seconds=seconds,
            chains=chains,
            faithful=faithful,
            prices=table,
            progress=progress,
        )
    if output is not None:
        plan.save(output)
    if save_traffic is not None or save_network is not None:
        _save_parts(plan, save_traffic, save_network)
    if as_json:
        sys.stdout.write(plan.to_json(indent=2) + "\n")
    else:
        print(plan.summary())
        if output is not None:
            print(f"plan written to {output}")


def _save_parts(plan, traffic: Path | None, network: Path | None) -> None:  # type: ignore[no-untyped-def]
    from parallelism.taskgraph import traffic_of
    from topoopt.formats.network_json import save_network
    from topoopt.formats.traffic import save_traffic
    from topoopt.rebuild import rebuild

    parts = rebuild(plan)
    if traffic is not None:
        save_traffic(traffic_of(parts.builder.build(parts.strategy)), traffic)
    if network is not None:
        save_network(parts.fabric.network, network)
