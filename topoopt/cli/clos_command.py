"""`topoopt clos`: routing persistent training traffic on leaf-spine fabrics."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codesign_base import InputError
from topoopt.cli import common
from topoopt.problem.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    from routing.clos.fabric import Clos
    from routing.clos.jobs import RingJob

clos_app = typer.Typer(
    name="clos",
    help="Route training traffic on a Clos (leaf-spine) fabric.",
    no_args_is_help=True,
)

Tors = Annotated[int, typer.Option(help="Number of ToR (leaf) switches.")]
Spines = Annotated[int, typer.Option(help="Number of spine switches.")]
Cables = Annotated[int, typer.Option(help="Cables between each ToR and spine.")]
Nics = Annotated[
    int | None,
    typer.Option("--nics-per-tor", help="NICs at a ToR.", show_default="spines x cables"),
]
Bandwidth = Annotated[str, typer.Option(help="Speed of a NIC and of a cable, with its unit.")]
Jobs = Annotated[Path | None, typer.Option(help="Jobs file (YAML or JSON).", show_default=False)]
Traffic = Annotated[
    Path | None,
    typer.Option(help="Folder of job files (text), instead of --jobs.", show_default=False),
]
Random = Annotated[
    int | None,
    typer.Option("--random", help="Draw so many jobs, instead of --jobs.", show_default=False),
]
Replicas = Annotated[int, typer.Option(help="Ring size of the jobs of --random.")]
FailSpines = Annotated[int, typer.Option(help="How many spines have failed.")]
FailLink = Annotated[
    list[str] | None,
    typer.Option(help="tor:spine, or with :up or :down; may be repeated.", show_default=False),
]
Degrade = Annotated[
    list[str] | None,
    typer.Option(
        help="tor:spine:share of the capacity left, or with :up or :down; may be repeated.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Of random placement and random routers.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        help="Seconds of work (not of the clock) of one decision, for method optimum.",
        show_default="8",
    ),
]


@clos_app.command("route")
def route_command(
    tors: Tors,
    spines: Spines,
    jobs: Jobs = None,
    traffic: Traffic = None,
    random: Random = None,
    replicas: Replicas = 4,
    method: Annotated[str, typer.Option(help="How to choose a spine for every flow.")] = "best",
    cables: Cables = 1,
    nics: Nics = None,
    fail_spines: FailSpines = 0,
    fail_link: FailLink = None,
    degrade: Degrade = None,
    seed: Seed = 0,
    time_limit: TimeLimit = None,
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
    from topoopt.clos.routing_report import check_tables, report_lines, route_jobs, write_tables

    check_tables(tables)
    clos, loaded = _inputs(
        tors, spines, cables, nics, fail_spines, fail_link, degrade,
        jobs, traffic, random, replicas, seed, time_limit,
    )  # fmt: skip
    common.check_outputs(tables, inputs=[jobs])
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


@clos_app.command("run")
def run_command(
    tors: Tors,
    spines: Spines,
    jobs: Jobs = None,
    traffic: Traffic = None,
    random: Random = None,
    replicas: Replicas = 4,
    epochs: Annotated[int, typer.Option(help="AllReduces of each job.")] = 10,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, separated by commas.")
    ] = "ecmp,greedy,edge-coloring,best",
    cables: Cables = 1,
    nics: Nics = None,
    bandwidth: Bandwidth = "100Gbps",
    fail_spines: FailSpines = 0,
    fail_link: FailLink = None,
    degrade: Degrade = None,
    fail_spine_at: Annotated[
        list[str] | None,
        typer.Option(help="time:spine, a failure on the way; may be repeated.", show_default=False),
    ] = None,
    no_prediction: Annotated[
        bool,
        typer.Option("--no-prediction", help="Count only flows in flight, as if none came back."),
    ] = False,
    no_rotation: Annotated[
        bool,
        typer.Option(
            "--no-rotation", help="Keep routes at barriers: best moves flows only after changes."
        ),
    ] = False,
    move_cost: Annotated[str, typer.Option(help="Time that re-routing one flow costs.")] = "0s",
    seed: Seed = 0,
    time_limit: TimeLimit = None,
    as_json: common.AsJson = False,
) -> None:
    """Simulate epochs of AllReduces under the control loop of each method.

    Example: topoopt clos run --tors 64 --spines 32 --jobs jobs.yaml --methods greedy,best
    """
    from topoopt.clos.fabric_options import failures_at
    from topoopt.clos.run_report import run_document, run_lines
    from topoopt.clos.study import run_methods

    nic_rate = parse_bandwidth(bandwidth)
    cost = parse_time(move_cost, "move-cost", allow_zero=True)
    names = [name.strip() for name in methods.split(",")]
    clos, loaded = _inputs(
        tors, spines, cables, nics, fail_spines, fail_link, degrade,
        jobs, traffic, random, replicas, seed, time_limit,
    )  # fmt: skip
    with common.first_run_notice("clos_*/*"):
        results = run_methods(
            clos,
            loaded,
            names,
            epochs,
            changes=failures_at(clos, fail_spine_at or []),
            seed=seed,
            nic_rate=nic_rate,
            predict=not no_prediction,
            rotate=False if no_rotation else None,
            move_cost=cost,
            time_limit=time_limit,
        )
    if as_json:
        common.print_json(run_document(clos, results, epochs=epochs, seed=seed))
    else:
        print("\n".join(run_lines(clos, results, epochs=epochs)))


def _inputs(
    tors: int,
    spines: int,
    cables: int,
    nics: int | None,
    fail_spines: int,
    fail_link: list[str] | None,
    degrade: list[str] | None,
    jobs: Path | None,
    traffic: Path | None,
    random: int | None,
    replicas: int,
    seed: int,
    time_limit: float | None,
) -> "tuple[Clos, tuple[RingJob, ...]]":
    """Return the fabric and the jobs that the options describe."""
    from topoopt.clos.fabric_options import make_fabric

    common.check_seed(seed)
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise InputError(f"time-limit is {time_limit}; give a positive number of seconds")
    if sum(source is not None for source in (jobs, traffic, random)) != 1:
        raise InputError("name the jobs with exactly one of --jobs, --traffic and --random")
    clos = make_fabric(
        tors,
        spines,
        cables=cables,
        nics_per_tor=nics,
        fail_spines=fail_spines,
        fail_links=fail_link or [],
        degrade=degrade or [],
    )
    if jobs is not None:
        from topoopt.clos.jobs_file import load_jobs

        return clos, load_jobs(jobs, clos, seed)
    if traffic is not None:
        from topoopt.formats.clos_traffic import load_traffic_folder

        return clos, load_traffic_folder(traffic, clos)
    from topoopt.clos.presets import draw_jobs

    assert random is not None
    return clos, draw_jobs(clos, random, replicas, seed)
