"""`topoopt pareto`: which cluster to buy."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from codesign_base.paths import make_directory
from topoopt.base.option_groups import takes
from topoopt.cli import common
from topoopt.cli.given import make_job, make_options, plans_layouts
from topoopt.cli.plan_options import JOB, SEARCH, SPENDING, WIRING

if TYPE_CHECKING:
    from topoopt.codesign.designs import Point
    from topoopt.plan.plan import Plan


@takes(WIRING, SPENDING, JOB, SEARCH)
def pareto_command(
    context: typer.Context,
    model: common.Model,
    servers: Annotated[
        str,
        typer.Option(
            rich_help_panel="Cluster", help="Numbers of servers: 16,24 or 16..256 (doubling)."
        ),
    ],
    degree: Annotated[
        str,
        typer.Option(rich_help_panel="Cluster", help="Network ports of each server: 4,8 or 2..8."),
    ],
    bandwidth: Annotated[
        str,
        typer.Option(
            rich_help_panel="Cluster",
            help="Speeds of a port, separated by commas: 100Gbps,400Gbps.",
        ),
    ],
    given: Mapping[str, Any],
    server_usd: Annotated[
        float, typer.Option(help="US dollars of a server without its network ports.")
    ] = 0.0,
    prune: Annotated[
        bool, typer.Option(help="Skip designs whose bound shows that a cheaper one is as fast.")
    ] = True,
    least_gain: Annotated[
        float, typer.Option(help="Share by which a more expensive design must be faster: 0.01.")
    ] = 0.0,
    store: Annotated[
        Path | None,
        typer.Option(help="Keep finished designs in this file, and go on from what it holds."),
    ] = None,
    save_plans: Annotated[
        Path | None, typer.Option(help="Write every plan into this directory.")
    ] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Plan a job on a grid of clusters; list those that none beats in cost and time.

    Example: topoopt pareto dlrm-16 --servers 8..32 --degree 2..4 --bandwidth 40Gbps,100Gbps
    """
    from topoopt.codesign.ahead import beginning_ahead

    context.with_resource(beginning_ahead(plans_layouts(model, given)))
    from topoopt.codesign.designs import Limits, none_planned, parse_counts
    from topoopt.codesign.pareto import Grid, explore

    batch, global_batch = given["batch"], given["global_batch"]
    if batch is not None and global_batch is not None:
        raise InputError(
            f"both --batch-per-gpu {batch} and --global-batch {global_batch} are given; "
            "give one of them"
        )
    job = make_job(context, model, given, batch_is_grid=True)
    grid = Grid(
        parse_counts(servers, "servers", doubling=True),
        parse_counts(degree, "degree", doubling=False),
        tuple(rate.strip() for rate in bandwidth.split(",")),
        given["ports"],
        given["latency"],
    )
    common.check_outputs(store, inputs=[model, given["profile"], given["prices"]])
    common.refuse_dash(save_plans, "folder")
    if save_plans is not None:
        make_directory(save_plans)

    def keep(point: "Point", plan: "Plan") -> None:
        if save_plans is not None:
            plan.save(save_plans / _plan_file(point))

    with common.progress_reports(quiet) as progress:
        found = explore(
            job,
            grid,
            make_options(given),
            objective=given["objective"],
            limits=Limits(given["max_cost"], given["max_ports"]),
            global_batch=None if job.kind == "layouts" else global_batch,
            server_usd=server_usd,
            seed=given["seed"],
            prune=prune,
            least_gain=least_gain,
            prices=common.make_prices(given["prices"]),
            store=store,
            save_plan=keep,
            progress=progress,
        )
    if save_plans is not None:
        planned = [design for design in found.designs if design.state == "planned"]
        lacking = [d for d in planned if not (save_plans / _plan_file(d.point)).exists()]
        if lacking:
            print(
                f"note: {save_plans} lacks {len(lacking)} of {counted(len(planned), 'plan')}: "
                f"{store} holds these designs without plans; leave out --store to make them again",
                file=sys.stderr,
            )
    if as_json:
        common.print_json(found.to_dict())
    else:
        print(found.summary())
    if not found.interrupted and (why := none_planned(found.designs)):
        raise InfeasibleError(why)


def _plan_file(point: "Point") -> str:
    """Return the name of the file of a point's plan."""
    gbps = f"{point.bandwidth_bytes_per_s * 8e-9:.12g}"  # two rates of a grid are two files
    return f"{point.servers}-servers-{point.degree}x{gbps}Gbps.json"
