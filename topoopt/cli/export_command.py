"""`topoopt export`: a plan in the formats of other programs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.plan.plan import Plan

FORMATS = (
    "fbuf", "graphml", "node-link", "chakra", "astra-sim", "msccl", "megatron", "torchtitan",
    "pipeline", "nccl", "netbox",
)  # fmt: skip
_SINGLE, _TRACES = FORMATS[:3], FORMATS[3:5]
_DIRECTORIES = ("chakra", "astra-sim", "msccl", "nccl")
_ENDINGS = {"fbuf": (".fbuf",), "graphml": (".graphml", ".xml"), "node-link": (".json",)}
ALLREDUCES = ("auto", "rings", "rounds")


def export_command(
    plan: Annotated[
        Path,
        typer.Argument(
            help="A plan file; for chakra and astra-sim also a task graph (.fbuf), for msccl also "
            "the schedule of a collective."
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            help="fbuf: task graph with network, routes and rings, for TopoOpt's packet "
            "simulator. graphml, node-link: the network only. chakra, astra-sim: execution traces "
            "and simulator files. msccl, megatron, torchtitan, pipeline, nccl, netbox: single "
            "outputs of `topoopt deploy`.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The file to write; the directory for chakra, astra-sim, msccl and nccl.",
        ),
    ],
    omit_updates: Annotated[
        bool,
        typer.Option(
            "--omit-updates",
            help="fbuf: leave out optimizer steps that wait for an AllReduce, which the format "
            "cannot say of rings.",
        ),
    ] = False,
    allreduce: Annotated[
        str,
        typer.Option(
            help="fbuf: AllReduces as rings of the format, or in rounds of messages, which can say "
            "any group and ring: rings or rounds. auto: rings where every group is all servers.",
        ),
    ] = "auto",
) -> None:
    """Write a plan in the format of another program.

    Example: topoopt export plan.json --format fbuf -o plan.fbuf
    """
    from topoopt.formats.collective_check import schedule_document

    if kind not in FORMATS:
        raise InputError(f"format is {kind!r}; choose {', '.join(FORMATS)}")
    if omit_updates and kind != "fbuf":
        raise InputError(f"--omit-updates does not go with format {kind!r}; leave it out")
    if allreduce not in ALLREDUCES:
        raise InputError(f"allreduce is {allreduce!r}; choose {', '.join(ALLREDUCES)}")
    if allreduce != "auto" and kind != "fbuf":
        raise InputError(f"--allreduce does not go with format {kind!r}; leave it out")
    schedule = schedule_document(plan)
    takes: tuple[str, ...] = FORMATS
    what = "a plan"
    if schedule is not None:
        what, takes = "the schedule of a collective", ("msccl",)
    elif plan.suffix.lower() == ".fbuf":
        what, takes = "a task graph", _TRACES
    if kind not in takes:
        raise InputError(
            f"{plan} is {what}, and --format is {kind!r}; give {' or '.join(takes)}, or a plan file"
        )
    if kind in _DIRECTORIES:
        _check_directory(output)
    else:
        common.check_outputs(output, inputs=[plan])
        if kind in _SINGLE and output.suffix.lower() not in _ENDINGS[kind]:
            raise InputError(
                f"output is {str(output)!r}, and --format is {kind!r}; give a name that ends in "
                f"{' or '.join(_ENDINGS[kind])}"
            )
    if kind in _TRACES:
        notes = _simulator(plan, kind, output)
    elif kind in _SINGLE:
        notes = _network(plan, kind, output, omit_updates, allreduce)
    else:
        notes = _launch(plan, kind, output, schedule)
    print(f"{kind} written to {output}")
    for note in notes:
        print(f"note: {note}")


def _network(source: Path, kind: str, output: Path, omit: bool, allreduce: str) -> list[str]:
    """Write the network of a plan, with its iteration if the format has one; return notes."""
    from topoopt.plan.rebuild import rebuild_network
    from topoopt.plan.verify import load_sound_plan

    with common.first_run_notice() as started:
        loaded = load_sound_plan(source)
        started()
    if kind == "fbuf":
        return _fbuf(loaded, output, omit, allreduce)
    if kind == "graphml":
        from topoopt.topology.graphml import save_graphml

        save_graphml(rebuild_network(loaded), output)
    else:
        from topoopt.topology.network_json import save_node_link

        save_node_link(rebuild_network(loaded), output)
    return []


def _fbuf(plan: "Plan", output: Path, omit: bool, allreduce: str) -> list[str]:
    from topoopt.formats.fbuf_export import Updates
    from topoopt.formats.fbuf_plan import AllReduces, plan_fbuf
    from topoopt.formats.fbuf_write import save_fbuf
    from topoopt.studies.simulator_files import fbuf_notes

    updates = Updates.OMIT if omit else Updates.REFUSE
    file = plan_fbuf(plan, updates=updates, allreduces=AllReduces(allreduce))
    notes = fbuf_notes(plan, file)
    save_fbuf(file, output)
    return notes


def _check_directory(output: Path) -> None:
    from topoopt.base.directory import check_replaceable
    from topoopt.studies.workload import EXPORT_FILE

    common.refuse_dash(output, "folder")
    check_replaceable(output, EXPORT_FILE)


def _simulator(source: Path, kind: str, output: Path) -> list[str]:
    """Write traces, with what a simulator needs beside them; return notes."""
    from topoopt.base.directory import write_directory
    from topoopt.plan.rebuild import rebuild_schedule
    from topoopt.plan.verify import load_sound_plan
    from topoopt.problem.schedule import ORDERED
    from topoopt.studies.replay import LATENCY
    from topoopt.studies.simulator_files import simulator_files
    from topoopt.studies.workload import (
        EXPORT_FILE,
        load_workload,
        plan_workload,
        scheduled_workload,
        streams_of,
    )

    schedule = None
    with common.first_run_notice() as started:
        if source.suffix.lower() == ".json":
            loaded = load_sound_plan(source)
            workload = plan_workload(loaded, source.stem)
            own = rebuild_schedule(loaded.schedule)
            if own.only_fuses:
                fabric = workload.own_fabric(workload.port_rate, LATENCY)
                workload = scheduled_workload(workload, fabric, own)
            elif kind == "astra-sim" and own == ORDERED:
                schedule = ORDERED
            if own.only_fuses or schedule:  # then nothing of the schedule is left out
                workload = replace(workload, notes=())
        else:
            workload = streams_of(load_workload(source))
        latency = LATENCY if workload.latency is None else workload.latency
        files, notes = simulator_files(workload, kind, latency, schedule)
        started()
    write_directory(files, output, EXPORT_FILE)
    return notes


def _launch(source: Path, kind: str, output: Path, schedule: dict[str, Any] | None) -> list[str]:
    """Write one output of a deployment, or of a collective's schedule; return notes."""
    from topoopt.base.atomic import write_text_atomically
    from topoopt.base.directory import mark_text, write_directory
    from topoopt.deploy.deployment import deployment
    from topoopt.deploy.launch_exports import exported
    from topoopt.deploy.msccl_schedule import schedule_msccl
    from topoopt.plan.verify import load_sound_plan
    from topoopt.studies.workload import EXPORT_FILE

    if schedule is not None:
        files, notes = schedule_msccl(schedule)
    else:
        with common.first_run_notice() as started:
            files, notes = exported(deployment(load_sound_plan(source)), kind)
            started()
    if kind not in _DIRECTORIES:
        write_text_atomically(output, *files.values())
        return notes
    said = {"format": kind, "file": source.stem, "notes": notes}
    files[EXPORT_FILE] = mark_text(said, files, EXPORT_FILE)
    write_directory({name: text.encode() for name, text in files.items()}, output, EXPORT_FILE)
    return notes
