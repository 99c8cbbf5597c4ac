"""`topoopt plan`: the main job."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topoopt.cli import common
from topoopt.cli.transformer_options import plan_layouts, plans_layouts, refuse_unused

if TYPE_CHECKING:
    from topoopt.plan.plan import Plan
    from topoopt.transformers.plan import TransformerPlan

_SEARCH = "Search of models planned by operators"
_LAYOUTS = "Transformers, planned by layouts"
_OUTPUT = "Files"


def plan_command(
    context: typer.Context,
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
        float | None,
        typer.Option(rich_help_panel=_SEARCH, help="Search budget in seconds, instead of --steps."),
    ] = None,
    chains: Annotated[
        int,
        typer.Option(rich_help_panel=_SEARCH, help="Search chains, each with its own topology."),
    ] = 3,
    faithful: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_SEARCH,
            help="paper or artifact: switch back everything that departs from it.",
        ),
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
        typer.Option(
            rich_help_panel=_SEARCH,
            help="train: choose among the best plans by simulating packet trains.",
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            rich_help_panel=_SEARCH, help="Independent searches, of which the best plan is kept."
        ),
    ] = 1,
    workers: Annotated[
        int, typer.Option(rich_help_panel=_SEARCH, help="Searches at a time, each in a process.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            rich_help_panel=_SEARCH,
            help="local processes, ray on this machine, or ray://HOST:PORT.",
        ),
    ] = "local",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_SEARCH,
            help="Keep searches here (those under way beside it), and go on from them.",
        ),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            rich_help_panel=_SEARCH,
            help="Order, buckets and overlap inside the iteration: plain (as published), compute "
            "(devices take the longest remaining path first), barrier (the best that keeps the "
            "barrier between iterations) or auto.",
        ),
    ] = "plain",
    global_batch: Annotated[
        int | None, typer.Option(help="Samples of an iteration.", rich_help_panel=_LAYOUTS)
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a sample.", show_default="the model's own", rich_help_panel=_LAYOUTS
        ),
    ] = None,
    tensor: Annotated[
        str | None,
        typer.Option(
            help="Tensor-parallel degrees considered, such as 4,8.",
            show_default="all within a server",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            help="Pipeline stages considered.", show_default="all", rich_help_panel=_LAYOUTS
        ),
    ] = None,
    context_degrees: Annotated[
        str | None,
        typer.Option(
            "--context",
            help="Context-parallel degrees considered.",
            show_default="powers of two that leave 1024 tokens",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    expert: Annotated[
        str | None,
        typer.Option(
            help="Expert-parallel degrees considered.",
            show_default="all",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    microbatch: Annotated[
        str | None,
        typer.Option(
            help="Samples of a microbatch considered.",
            show_default="1,2,4,8",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    pipeline_schedule: Annotated[
        str | None,
        typer.Option(
            help="gpipe, 1f1b, interleaved, zero-bubble: which are considered.",
            show_default="all but gpipe",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    zero: Annotated[
        str | None,
        typer.Option(
            help="ZeRO stages considered; 3 only without pipelines.",
            show_default="1,3",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    recompute: Annotated[
        str | None,
        typer.Option(
            help="none, selective, full: recomputation considered.",
            show_default="none,full",
            rich_help_panel=_LAYOUTS,
        ),
    ] = None,
    tensor_across_servers: Annotated[
        bool,
        typer.Option(
            "--tensor-across-servers",
            rich_help_panel=_LAYOUTS,
            help="Tensor groups may span servers.",
        ),
    ] = False,
    load_imbalance: Annotated[
        float,
        typer.Option(
            help="Tokens of the busiest expert rank over the mean.", rich_help_panel=_LAYOUTS
        ),
    ] = 1.0,
    simulated: Annotated[
        int, typer.Option(help="Layouts that are simulated.", rich_help_panel=_LAYOUTS)
    ] = 24,
    per_operator: Annotated[
        bool,
        typer.Option(
            "--per-operator",
            help="Plan by operators, like other models.",
            rich_help_panel=_LAYOUTS,
        ),
    ] = False,
    objective: common.ObjectiveName = "time",
    max_cost: common.MaxCost = None,
    max_ports: common.MaxPorts = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", rich_help_panel=_OUTPUT, help="Write the whole plan (JSON)."
        ),
    ] = None,
    save_traffic: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_OUTPUT, help="Write what one iteration sends (.npz)."),
    ] = None,
    save_network: Annotated[
        Path | None, typer.Option(rich_help_panel=_OUTPUT, help="Write the network (JSON).")
    ] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Co-design strategy, topology and routing for a training job.

    Example: topoopt plan dlrm --servers 128 --degree 4 --bandwidth 100Gbps -o plan.json
    """
    from dataclasses import replace

    from topoopt.codesign.designs import Limits
    from topoopt.codesign.pareto import choose_degree
    from topoopt.codesign.solve import co_optimize

    common.check_outputs(
        output, save_traffic, save_network, checkpoint, inputs=[model, profile, prices]
    )
    layouts = plans_layouts(model, global_batch, per_operator)
    refuse_unused(context, model, layouts)
    if layouts:
        considered = {
            "tensor": tensor,
            "pipeline": pipeline,
            "context": context_degrees,
            "expert": expert,
            "microbatch": microbatch,
            "pipeline-schedule": pipeline_schedule,
            "zero": zero,
            "recompute": recompute,
            "tensor-across-servers": tensor_across_servers,
        }
        _show(
            plan_layouts(
                model,
                (servers, degree, bandwidth, ports, latency),
                device=device,
                gpus=gpus,
                global_batch=global_batch,
                sequence=sequence,
                considered=considered,
                load_imbalance=load_imbalance,
                simulated=simulated,
                prices=prices,
                seed=seed,
                quiet=quiet,
            ),
            output,
            as_json,
        )
        return
    if restarts == 1:
        asked = ("engine",) if workers == 1 else ("workers", "engine")
        common.refuse_given(
            context, asked, "there is one search only; give --restarts, the number of searches"
        )
    job = common.make_job(model, device, gpus, batch, profile, optimizer)
    cluster = common.make_cluster(servers, degree, bandwidth, ports, latency)
    table = common.make_prices(prices)
    how: dict[str, Any] = {
        "seconds": seconds,
        "chains": chains,
        "faithful": faithful,
        "confirm": confirm,
        "schedule": schedule,
        "method": method,
        "parameter_splits": not no_parameter_splits,
    }
    weighed = ""
    if objective != "time" or max_cost is not None or max_ports is not None:
        # Fewer ports than there are may be the better buy.
        with common.progress_reports(quiet) as progress:
            explored = choose_degree(
                job,
                cluster,
                objective,
                Limits(max_cost, max_ports),
                seed=seed,
                steps=steps,
                prices=table,
                options=how,
                progress=progress,
            )
        weighed = explored.summary()
        assert explored.best is not None  # else it was refused
        cluster = replace(cluster, degree=explored.best.point.degree)
    with common.progress_reports(quiet) as progress:
        plan = co_optimize(
            job,
            cluster,
            seed=seed,
            steps=steps,
            prices=table,
            restarts=restarts,
            workers=workers,
            engine=engine,
            checkpoint=checkpoint,
            progress=progress,
            **how,
        )
    if save_traffic is not None or save_network is not None:
        _save_parts(plan, save_traffic, save_network)
    _show(plan, output, as_json)
    if weighed and not as_json:
        print(f"\n{weighed}")


def _show(plan: "Plan | TransformerPlan", output: Path | None, as_json: bool) -> None:
    """Write the plan where it is wanted, and print it."""
    if output is not None:
        plan.save(output)
    if as_json:
        # On one line as in the file: a large plan has a million numbers in its routes.
        sys.stdout.write(plan.to_json() + "\n")
        return
    print(plan.summary())
    if output is not None:
        print(f"plan written to {output}")


def _save_parts(plan: "Plan", traffic: Path | None, network: Path | None) -> None:
    from parallelism.taskgraph import traffic_of
    from topoopt.formats.traffic import save_traffic
    from topoopt.plan.rebuild import rebuild
    from topoopt.topology.network_json import save_network

    parts = rebuild(plan)
    if traffic is not None:
        save_traffic(traffic_of(parts.builder.build(parts.strategy)), traffic)
    if network is not None:
        save_network(parts.fabric.network, network)
