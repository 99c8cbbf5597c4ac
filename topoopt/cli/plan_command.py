"""`topoopt plan`: the main job."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from topoopt.base.atomic import write_text_atomically
from topoopt.base.option_groups import takes
from topoopt.cli import common
from topoopt.cli.given import make_cluster, make_job, make_options, plans_layouts
from topoopt.cli.job_file import job_file_of, job_file_text, read_job_file
from topoopt.cli.plan_options import CLUSTER, JOB, SEARCH, SPENDING, WIRED

if TYPE_CHECKING:
    from topoopt.plan.plan import Plan

_OUTPUT = "Files"
# What `topoopt report` writes, and what others would take for it.
_PAGES = (".html", ".htm", ".svg", ".png", ".pdf")


@takes(CLUSTER, WIRED, SPENDING, JOB, SEARCH)
def plan_command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="A preset (`topoopt models` lists them), an operator-graph file, a config.json, "
            "or a job file that holds options too.",
            autocompletion=common.model_names,
            is_eager=True,
            callback=read_job_file,
        ),
    ],
    given: Mapping[str, Any],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_OUTPUT,
            help="Keep searches here (those under way beside it), and go on from them.",
        ),
    ] = None,
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
        Path | None,
        typer.Option(rich_help_panel=_OUTPUT, help="Write the network (JSON, or .graphml)."),
    ] = None,
    save_job: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_OUTPUT, help="Write the question, to be asked again (YAML)."),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Print all bounds, the gap and every assumption.")
    ] = False,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Co-design parallelization, topology and routing for a training job.

    Example: topoopt plan dlrm --servers 128 --degree 4 --bandwidth 100Gbps -o plan.json
    """
    from topoopt.codesign.ahead import beginning_ahead

    context.with_resource(beginning_ahead(plans_layouts(model, given), given["servers"]))
    from topoopt.codesign.solve import co_optimize

    if as_json:
        common.refuse_given(context, ("details",), "--json prints the whole plan; give one of them")
    if output is not None and output.suffix.lower() in _PAGES:
        raise InputError(
            f"output {output} is to be a plan, which is JSON; give a name that ends in .json, of "
            "which topoopt report makes a page or picture"
        )
    files = (given[name] for name in ("profile", "prices", "wiring"))
    inputs = [model, job_file_of(context), *files]
    common.check_outputs(output, save_traffic, save_network, checkpoint, save_job, inputs=inputs)
    job = make_job(context, model, given)
    if given["restarts"] == 1:
        asked = ("engine",) if given["workers"] == 1 else ("workers", "engine")
        common.refuse_given(
            context, asked, "there is one search only; give --restarts, the number of searches"
        )
    if given["wiring"] is not None:
        common.refuse_given(
            context, SPENDING, "the servers are wired already (--wiring); leave out one of them"
        )
    options = make_options(given)
    cluster, seed = make_cluster(given), given["seed"]
    table = common.make_prices(given["prices"])
    if save_job is not None:
        write_text_atomically(save_job, job_file_text(context, model, save_job))
        context.with_resource(common.kept_if_interrupted(f"the job is in {save_job}"))
    weighed = ""
    if any(given[name] != default for name, (_, default) in SPENDING.items()):
        # Fewer ports than there are may be the better buy.
        from topoopt.codesign.designs import Limits
        from topoopt.codesign.pareto import choose_degree

        with common.progress_reports(quiet) as progress:
            explored = choose_degree(
                job,
                cluster,
                replace(options, restarts=1, workers=1, engine="local"),
                objective=given["objective"],
                limits=Limits(given["max_cost"], given["max_ports"]),
                seed=seed,
                prices=table,
                progress=progress,
            )
        weighed = explored.summary()
        assert explored.best is not None  # else it was refused
        cluster = replace(cluster, degree=explored.best.point.degree)
    with common.progress_reports(quiet) as progress:
        plan = co_optimize(
            job,
            cluster,
            options,
            seed=seed,
            prices=table,
            wiring=given["wiring"],
            checkpoint=checkpoint,
            progress=progress,
        )
    if save_traffic is not None or save_network is not None:
        _save_parts(plan, save_traffic, save_network)
    _show(plan, output, as_json, details)
    if weighed and not as_json:
        print(f"\n{weighed}")


def _show(plan: "Plan", output: Path | None, as_json: bool, details: bool) -> None:
    """Write the plan where it is wanted, and print it."""
    if output is not None:
        plan.save(output)
    if as_json:
        # On one line as in the file: a large plan has a million numbers in its routes.
        sys.stdout.write(plan.to_json() + "\n")
        return
    print(plan.summary(details=details))
    if output is not None:
        print(f"plan written to {output}")


def _save_parts(plan: "Plan", traffic: Path | None, network: Path | None) -> None:
    from parallelism.taskgraph import traffic_of
    from topoopt.formats.traffic import save_traffic
    from topoopt.plan.rebuild import rebuild
    from topoopt.topology.network_file import save_network

    parts = rebuild(plan)
    if traffic is not None:
        save_traffic(traffic_of(parts.represented()), traffic)
    if network is not None:
        save_network(parts.fabric.network, network)
