"""`topoopt export`: a plan in the formats of other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codesign_base import InputError
from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.formats.fbuf_file import FbufFile
    from topoopt.plan import Plan

FORMATS = ("fbuf", "graphml", "node-link")


def export_command(
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            help="fbuf: task graph with network, routes and rings, for TopoOpt's packet "
            "simulator. graphml, node-link: the network only.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    omit_updates: Annotated[
        bool,
        typer.Option(
            "--omit-updates",
            help="fbuf: leave out optimizer steps that wait for an AllReduce, which the format "
            "cannot say.",
        ),
    ] = False,
) -> None:
    """Write a plan as a task-graph file, or its network as GraphML or node-link JSON.

    Example: topoopt export plan.json --format fbuf --omit-updates -o plan.fbuf
    """
    if kind not in FORMATS:
        raise InputError(f"format is {kind!r}; choose {', '.join(FORMATS)}")
    if omit_updates and kind != "fbuf":
        raise InputError(f"--omit-updates does not go with format {kind!r}; leave it out")
    common.check_outputs(output, inputs=[plan])

    from topoopt.formats.fbuf_plan import plan_fbuf, plan_network
    from topoopt.plan import load_plan

    loaded = load_plan(plan)
    notes: list[str] = []
    if kind == "fbuf":
        from topoopt.formats.fbuf_export import Updates
        from topoopt.formats.fbuf_write import save_fbuf

        updates = Updates.OMIT if omit_updates else Updates.REFUSE
        try:
            file = plan_fbuf(loaded, updates=updates)
        except InputError as error:
            # The same sentence, with the word that the command line has for the mend.
            text = str(error).replace("have these updates omitted", "give --omit-updates")
            raise InputError(text) from None
        notes = _fbuf_notes(loaded, file)
        save_fbuf(file, output)
    elif kind == "graphml":
        from topoopt.formats.graphml import save_graphml

        save_graphml(plan_network(loaded), output)
    else:
        from topoopt.formats.network_json import save_network

        save_network(plan_network(loaded), output)
    print(f"{kind} written to {output}")
    for note in notes:
        print(f"note: {note}")


def _fbuf_notes(plan: "Plan", file: "FbufFile") -> list[str]:
    """Return in what the file's iteration differs from the plan's."""
    from topoopt.formats.fbuf_ring_routes import moved_ring_edges
    from topoopt.rebuild import rebuild
    from topoopt.scheduling import ORDERED
    from topoopt.workload import fbuf_workload, schedule_left_out

    built = rebuild(plan)
    if built.schedule == ORDERED:
        notes = ["the order of compute is in the file, as dependencies between tasks of a device"]
    else:
        notes = schedule_left_out(plan)
    omitted = built.builder.build(built.strategy).tasks - file.tasks
    if omitted:
        notes.append(f"{omitted} optimizer steps that wait for an AllReduce are left out")
    if not file.ring_size.size:
        return notes
    own = fbuf_workload(file, "file").own(file.net_bandwidth, plan.cluster.latency_s)
    moved = moved_ring_edges(built.fabric, own)
    if moved:
        notes.append(
            f"{moved} ring edges take one path in the file, which the plan splits over several: "
            "the format has one list of links a ring"
        )
    return notes
