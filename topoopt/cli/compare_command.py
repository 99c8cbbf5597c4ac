"""`topoopt compare`: one job over all fabrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topoopt.base.option_groups import takes
from topoopt.cli import common
from topoopt.cli.given import make_cluster, make_job, make_options, plans_layouts
from topoopt.cli.plan_options import CLUSTER, JOB, SEARCH

# What says something about fabrics that are rewired during the iteration only.
_REWIRED = {
    "reconfiguration_delay": ("sip-ml", "ocs-reconfig"),
    "demand_window": ("ocs-reconfig",),
    "forwarding": ("ocs-reconfig",),
}


@takes(CLUSTER, JOB, SEARCH)
def compare_command(
    context: typer.Context,
    model: common.Model,
    given: Mapping[str, Any],
    fabrics: Annotated[
        str,
        typer.Option(
            help="paper (ideal switch, Fat-trees, expander, SiP-ML, OCS-reconfig), all, or names "
            "and network files (.json, .graphml) separated by commas; `all` lists the names. "
            "Parameters follow a name: rail-only:ports=gpus, leaf-spine:oversubscription=3, "
            "torus:4x4x8."
        ),
    ] = "paper",
    reconfiguration_delay: Annotated[
        str | None,
        typer.Option(
            help="sip-ml, ocs-reconfig: how long ports that move are dark, with its unit.",
            show_default="25us and 10ms",
        ),
    ] = None,
    demand_window: Annotated[
        str, typer.Option(help="ocs-reconfig: time between two decisions, with its unit.")
    ] = "50ms",
    forwarding: Annotated[
        bool, typer.Option(help="ocs-reconfig: whether servers forward for each other.")
    ] = True,
    save_plan: Annotated[
        Path | None,
        typer.Option(help="Write the co-designed plan (JSON); topoopt report links to its page."),
    ] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Compare the co-designed fabric with switched, direct and rewired ones.

    Every fabric runs the best strategy or layout that was found for it.

    Example: topoopt compare vgg16-16 --servers 16 --degree 4 --bandwidth 100Gbps
    """
    from topoopt.codesign.ahead import beginning_ahead

    context.with_resource(beginning_ahead(plans_layouts(model, given), given["servers"]))
    from topoopt.baselines.baselines import BASELINES
    from topoopt.codesign.comparison import compare
    from topoopt.problem.reconfiguration import Reconfiguration

    names = BASELINES if fabrics == "paper" else tuple(n.strip() for n in fabrics.split(","))
    for parameter, rewired_fabrics in _REWIRED.items():
        if names == ("all",) or set(names) & set(rewired_fabrics):
            continue
        common.refuse_given(
            context,
            (parameter,),
            f"none of {fabrics} is rewired by it; leave it out, or compare with "
            f"{' or '.join(rewired_fabrics)}",
        )
    common.check_outputs(save_plan, inputs=[model, *names, given["profile"], given["prices"]])
    job = make_job(context, model, given)
    rewired = Reconfiguration(reconfiguration_delay, demand_window, forwarding)
    table = common.make_prices(given["prices"])
    with common.progress_reports(quiet) as progress:
        result = compare(
            job,
            make_cluster(given),
            make_options(given, reconfiguration=rewired),
            fabrics="all" if names == ("all",) else names,
            seed=given["seed"],
            prices=table,
            progress=progress,
            plan_file=save_plan,
        )
    if as_json:
        common.print_json(result.to_dict())
    else:
        print(result.summary())
        if save_plan is not None:
            print(f"plan written to {save_plan}")
