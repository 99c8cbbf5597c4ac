"""`topoopt export`: a plan in the formats of other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codesign_base import InputError
from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.formats.fbuf_file import FbufFile
    from topoopt.plan.plan import Plan

FORMATS = ("fbuf", "graphml", "node-link")
ALLREDUCES = ("auto", "rings", "rounds")


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
            "cannot say of rings.",
        ),
    ] = False,
    allreduce: Annotated[
        str,
        typer.Option(
            help="fbuf: AllReduces as rings of the format, or as messages round by round, which "
            "can say any group and ring. auto: as rings where all servers are in every group.",
        ),
    ] = "auto",
) -> None:
    """Write a plan as a task-graph file, or its network as GraphML or node-link JSON.

    Example: topoopt export plan.json --format fbuf -o plan.fbuf
    """
    if kind not in FORMATS:
        raise InputError(f"format is {kind!r}; choose {', '.join(FORMATS)}")
    if omit_updates and kind != "fbuf":
        raise InputError(f"--omit-updates does not go with format {kind!r}; leave it out")
    if allreduce not in ALLREDUCES:
        raise InputError(f"allreduce is {allreduce!r}; choose {', '.join(ALLREDUCES)}")
    if allreduce != "auto" and kind != "fbuf":
        raise InputError(f"--allreduce does not go with format {kind!r}; leave it out")
    common.check_outputs(output, inputs=[plan])

    from topoopt.formats.fbuf_plan import AllReduces, plan_fbuf
    from topoopt.plan.plan import load_plan
    from topoopt.plan.rebuild import rebuild_network

    loaded = load_plan(plan)
    notes: list[str] = []
    if kind == "fbuf":
        from topoopt.formats.fbuf_export import Updates
        from topoopt.formats.fbuf_write import save_fbuf

        updates = Updates.OMIT if omit_updates else Updates.REFUSE
        try:
            file = plan_fbuf(loaded, updates=updates, allreduces=AllReduces(allreduce))
        except InputError as error:
            # The same sentence, with the words that the command line has for the remedy.
            text = str(error).replace("have these updates omitted", "give --omit-updates")
            text = text.replace(
                "write collectives as rounds of messages", "give --allreduce rounds"
            )
            text = text.replace("export AllReduces as rings", "give --allreduce rings")
            text = text.replace("confirm='packet'", "--confirm packet")
            raise InputError(text) from None
        notes = _fbuf_notes(loaded, file)
        save_fbuf(file, output)
    elif kind == "graphml":
        from topoopt.topology.graphml import save_graphml

        save_graphml(rebuild_network(loaded), output)
    else:
        from topoopt.topology.network_json import save_network

        save_network(rebuild_network(loaded), output)
    print(f"{kind} written to {output}")
    for note in notes:
        print(f"note: {note}")


def _fbuf_notes(plan: "Plan", file: "FbufFile") -> list[str]:
    """Return in what the file's iteration differs from the plan's."""
    import numpy as np

    from parallelism.taskgraph import TaskKind
    from topoopt.fabric.report import collective_noun
    from topoopt.formats.fbuf_check import COMPUTES
    from topoopt.formats.fbuf_file import FbufTask
    from topoopt.formats.fbuf_ring_routes import moved_ring_edges
    from topoopt.plan.rebuild import rebuild
    from topoopt.problem.schedule import ORDERED
    from topoopt.studies.workload import fbuf_workload, schedule_left_out

    built = rebuild(plan)
    if built.schedule == ORDERED:
        notes = ["the order of compute is in the file, as dependencies between tasks of a device"]
    else:
        notes = schedule_left_out(plan)
    tasks = built.tasks()
    computed = int((tasks.kind == TaskKind.COMPUTE).sum())
    omitted = computed - int(np.isin(file.task_type, COMPUTES).sum())
    if omitted:
        notes.append(f"{omitted} optimizer steps that wait for an AllReduce are left out")
    reduced = sum(len(tasks.groups[g]) > 1 for g in tasks.first[tasks.collective].tolist())
    if reduced and not file.ring_size.size:
        messages = int((file.task_type == FbufTask.NOMINAL_COMM).sum())
        messages -= int((tasks.kind == TaskKind.TRANSFER).sum())
        notes.append(
            f"{reduced} {collective_noun(tasks)} are in the file as {messages} messages, round by "
            "round"
        )
    if not file.ring_size.size:
        return notes
    own = fbuf_workload(file, "file").own_fabric(file.net_bandwidth, plan.cluster.latency_s)
    moved = moved_ring_edges(built.fabric, own)
    if moved:
        notes.append(
            f"{moved} ring edges take one path in the file, which the plan splits over several: "
            "the format has one list of links a ring"
        )
    if int(file.ring_size.min()) < file.nodes:
        notes.append(
            "TopoOpt's packet simulator plays AllReduces over some of the servers on other ones; "
            "give --allreduce rounds to replay it"
        )
    return notes
