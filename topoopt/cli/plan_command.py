"""`topoopt plan`: the main job."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.plan import Plan


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
        float | None, typer.Option(help="Search budget in seconds, instead of --steps.")
    ] = None,
    chains: Annotated[int, typer.Option(help="Search chains, each with its own topology.")] = 3,
    faithful: Annotated[
        str | None,
        typer.Option(help="paper or artifact: switch back everything that departs from it."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="joint, alternating, sequential, strategy-only or topology-only: what is "
            "searched with what."
        ),
    ] = "joint",
    no_parameter_splits: Annotated[
        bool,
        typer.Option(
            "--no-parameter-splits",
            help="Split operators by samples only; profiles measure no other splits.",
        ),
    ] = False,
    prices: common.Prices = None,
    confirm: Annotated[
        str | None,
        typer.Option(help="train: choose among the best plans by simulating packet trains."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the whole plan (JSON).")
    ] = None,
    save_traffic: Annotated[
        Path | None, typer.Option(help="Write what one iteration sends (.npz).")
    ] = None,
    save_network: Annotated[Path | None, typer.Option(help="Write the network (JSON).")] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Co-design strategy, topology and routing for a training job.

    Example: topoopt plan dlrm --servers 128 --degree 4 --bandwidth 100Gbps -o plan.json
    """
    from topoopt.solve import co_optimize

    job = common.make_job(model, device, gpus, batch, profile, optimizer)
    cluster = common.make_cluster(servers, degree, bandwidth, ports, latency)
    common.check_outputs(output, save_traffic, save_network, inputs=[model, profile, prices])
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
            method=method,
            parameter_splits=not no_parameter_splits,
            prices=table,
            confirm=confirm,
            progress=progress,
        )
    if output is not None:
        plan.save(output)
    if save_traffic is not None or save_network is not None:
        _save_parts(plan, save_traffic, save_network)
    if as_json:
        # On one line as in the file: a large plan has a million numbers in its routes.
        sys.stdout.write(plan.to_json() + "\n")
    else:
        print(plan.summary())
        if output is not None:
            print(f"plan written to {output}")


def _save_parts(plan: "Plan", traffic: Path | None, network: Path | None) -> None:
    from parallelism.taskgraph import traffic_of
    from topoopt.formats.network_json import save_network
    from topoopt.formats.traffic import save_traffic
    from topoopt.rebuild import rebuild

    parts = rebuild(plan)
    if traffic is not None:
        save_traffic(traffic_of(parts.builder.build(parts.strategy)), traffic)
    if network is not None:
        save_network(parts.fabric.network, network)
