"""`topoopt clos`: routing persistent training traffic on leaf-spine fabrics."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from topoopt.base.option_groups import Options, option, takes
from topoopt.cli import common
from topoopt.cli.brief_help import BriefCommand, with_brief_help
from topoopt.cli.titled_help import TitledGroup
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import parse_port_rate, parse_time

if TYPE_CHECKING:
    from routing.clos.fabric import Clos
    from routing.clos.jobs import RingJob

clos_app = typer.Typer(
    name="clos",
    cls=TitledGroup,
    help="Route training traffic on a Clos (leaf-spine) fabric.",
)

FABRIC: Options = {
    "tors": option(int, ..., "Number of ToR (leaf) switches."),
    "spines": option(int, ..., "Number of spine switches."),
    "cables": option(int, 1, "Cables between each ToR and spine."),
    "nics": option(
        int | None, None, "NICs at a ToR.", "--nics-per-tor", show_default="spines x cables"
    ),
    "fail_spines": option(int, 0, "How many spines have failed."),
    "fail_link": option(
        list[str] | None, None, "tor:spine, or with :up or :down; may be repeated.",
        show_default=False,
    ),
    "degrade": option(
        list[str] | None, None,
        "tor:spine:share of the capacity left, or with :up or :down; may be repeated.",
        show_default=False,
    ),
}  # fmt: skip
"""The leaf-spine fabric, and what of it has failed."""

JOBS: Options = {
    "jobs": option(Path | None, None, "Jobs file (YAML or JSON).", show_default=False),
    "traffic": option(
        Path | None, None, "Folder of job files (text), instead of --jobs.", show_default=False
    ),
    "random": option(
        int | None, None, "Draw so many jobs, instead of --jobs.", "--random", show_default=False
    ),
    "replicas": option(int, 4, "Ring size of the jobs of --random."),
    "seed": option(int, 0, "Of random placement and random routers."),
    "time_limit": option(
        float | None, None,
        "Seconds of work (not of the clock) of one decision, for method optimum.",
        show_default="8",
    ),
}  # fmt: skip
"""What trains on it, and what decisions on its routes depend on."""


@clos_app.command("route", cls=BriefCommand)
@with_brief_help
@takes(FABRIC, JOBS)
def clos_route_command(
    context: typer.Context,
    given: Mapping[str, Any],
    method: Annotated[str, typer.Option(help="How to choose a spine for every flow.")] = "best",
    tables: Annotated[
        Path | None,
        typer.Option(help="Write the spine of every flow (.json or .csv).", show_default=False),
    ] = None,
    udp_ports: Annotated[
        bool, typer.Option("--udp-ports", help="Add UDP source ports for ECMP to the tables.")
    ] = False,
    as_json: common.AsJson = False,
) -> None:
    """Assign every flow a spine, and say how fast each job then is and how far from optimal.

    Example: topoopt clos route --tors 64 --spines 32 --jobs jobs.yaml --fail-spines 1
    """
    from topoopt.clos.routing_report import (
        check_table_format,
        report_lines,
        route_jobs,
        write_tables,
    )

    check_table_format(tables)
    clos, loaded = _inputs(context, given, [method])
    seed, time_limit = given["seed"], given["time_limit"]
    common.check_outputs(tables, inputs=[given["jobs"]])
    if udp_ports and tables is None:
        raise InputError("--udp-ports adds to the tables; name their file with --tables")
    with common.first_run_notice("clos_*/*"):
        report = route_jobs(clos, loaded, method, seed=seed, time_limit=time_limit)
    if tables is not None:
        write_tables(clos, loaded, report, tables, ports=udp_ports)
    if as_json:
        common.print_json(asdict(report))
    else:
        print("\n".join(report_lines(report)))
        if tables is not None:
            print(f"route tables written to {tables}")


@clos_app.command("run", cls=BriefCommand)
@with_brief_help
@takes(FABRIC, JOBS)
def clos_run_command(
    context: typer.Context,
    given: Mapping[str, Any],
    epochs: Annotated[int, typer.Option(help="AllReduces of each job.")] = 10,
    methods: Annotated[
        str,
        typer.Option(help="Methods to compare, separated by commas."),
    ] = "ecmp,greedy,edge-coloring,best,spray",
    bandwidth: Annotated[
        str, typer.Option(help="Speed of a NIC and of a cable, with its unit.")
    ] = "100Gbps",
    fail_spine_at: Annotated[
        list[str] | None,
        typer.Option(help="time:spine, a failure on the way; may be repeated.", show_default=False),
    ] = None,
    prediction: Annotated[
        bool | None,
        typer.Option(
            "--prediction/--no-prediction",
            help="Count flows that wait or compute, too, or only those in flight.",
            show_default="for best only",
        ),
    ] = None,
    no_rotation: Annotated[
        bool,
        typer.Option(
            "--no-rotation", help="Keep routes at barriers: best moves flows only after changes."
        ),
    ] = False,
    move_cost: Annotated[
        str, typer.Option(help="Time for which a flow sends nothing when it is re-routed.")
    ] = "0s",
    as_json: common.AsJson = False,
) -> None:
    """Simulate epochs of AllReduces under the control loop of each method.

    Example: topoopt clos run --tors 64 --spines 32 --jobs jobs.yaml --methods greedy,best
    """
    from topoopt.clos.fabric_options import failures_at
    from topoopt.clos.run_report import check_failures, run_document, run_lines
    from topoopt.clos.study import run_methods

    nic_rate = parse_port_rate(bandwidth)
    cost = parse_time(move_cost, "move-cost", allow_zero=True)
    names = [name.strip() for name in methods.split(",")]
    clos, loaded = _inputs(context, given, names)
    seed, time_limit = given["seed"], given["time_limit"]
    changes = failures_at(clos, fail_spine_at or [])
    with common.first_run_notice("clos_*/*"):
        results = run_methods(
            clos,
            loaded,
            names,
            epochs,
            changes=changes,
            seed=seed,
            nic_rate=nic_rate,
            predict=prediction,
            rotate=False if no_rotation else None,
            move_cost=cost,
            time_limit=time_limit,
        )
    check_failures(results, changes)
    if as_json:
        common.print_json(
            run_document(clos, results, epochs=epochs, seed=seed, move_cost=cost, changes=changes)
        )
    else:
        lines = run_lines(clos, results, epochs=epochs, move_cost=cost, changes=changes)
        print("\n".join(lines))


def _inputs(
    context: typer.Context, given: Mapping[str, Any], methods: Sequence[str]
) -> "tuple[Clos, tuple[RingJob, ...]]":
    """Return the fabric and the jobs that the options describe."""
    from topoopt.clos.fabric_options import make_fabric

    seed, time_limit = given["seed"], given["time_limit"]
    checked_seed(seed)
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise InputError(f"time-limit is {time_limit}; give a positive number of seconds")
    if "optimum" not in methods:
        common.refuse_given(context, ("time_limit",), "only the method optimum takes one")
    if sum(given[source] is not None for source in ("jobs", "traffic", "random")) != 1:
        raise InputError("name the jobs with exactly one of --jobs, --traffic and --random")
    if given["random"] is None:
        common.refuse_given(context, ("replicas",), "the jobs have theirs; give it with --random")
    clos = make_fabric(
        given["tors"],
        given["spines"],
        cables=given["cables"],
        nics_per_tor=given["nics"],
        fail_spines=given["fail_spines"],
        fail_links=given["fail_link"] or [],
        degrade=given["degrade"] or [],
    )
    if given["jobs"] is not None:
        from topoopt.clos.jobs_file import load_jobs

        return clos, load_jobs(given["jobs"], clos, seed)
    if given["traffic"] is not None:
        from topoopt.formats.clos_traffic import load_traffic_folder

        return clos, load_traffic_folder(given["traffic"], clos)
    from topoopt.clos.presets import draw_jobs

    return clos, draw_jobs(clos, given["random"], given["replicas"], seed)
