"""`topoopt simulate`: simulate a task graph or a plan over a fabric."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.base.text import table_lines
from topoopt.cli import common
from topoopt.problem.seeds import checked_seed
from topoopt.problem.units import format_bytes, format_time, parse_bytes

if TYPE_CHECKING:
    from topoopt.fabric.jitter import Jitter
    from topoopt.fabric.report import Completion, Report
    from topoopt.studies.replay import Replay
    from topoopt.studies.workload import Workload

_SHOWN = 5
_LINKS = 64


def simulate_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="A task graph (.fbuf), a folder of Chakra traces, or a plan (.json).",
            show_default=False,
        ),
    ],
    fabric: Annotated[
        str | None,
        typer.Option(
            help="ideal, fat-tree, oversubscribed-fat-tree, own (the file's network), or a plan "
            "or network file (node-link JSON, GraphML).",
            show_default="own if direct-connect, else ideal",
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            help="Speed of a server's link (own network: of a port), with its unit: 100Gbps.",
            show_default="the file's",
        ),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(help="Time for one hop, with its unit.", show_default="the plan's, or 1us"),
    ] = None,
    oversubscription: Annotated[
        float | None,
        typer.Option(help="Of oversubscribed-fat-tree, at the top of rack.", show_default="2"),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(help="Of a network file: ecmp, k-shortest or single.", show_default="ecmp"),
    ] = None,
    model: Annotated[
        str, typer.Option(help="fluid: max-min fair flows. packet: packet trains, slower, truer.")
    ] = "fluid",
    jitter: Annotated[
        int | None,
        typer.Option(help="Also simulate this many copies with delays moved by up to 2 %."),
    ] = None,
    compat: Annotated[
        str | None,
        typer.Option(
            help="htsim: repeat that simulator's artefacts, to compare with it. reconnect: only "
            "that every round of an AllReduce begins with new connections."
        ),
    ] = None,
    buckets: Annotated[
        str | None,
        typer.Option(help="Fuse the gradients of a group into AllReduces of at least this: 25MB."),
    ] = None,
    compute_order: Annotated[
        str, typer.Option(help="Order on a device: ready (first in first out) or critical-path.")
    ] = "ready",
    priority: Annotated[
        str, typer.Option(help="Among messages: fair, transfers-first or critical-path.")
    ] = "fair",
    seed: Annotated[int, typer.Option(help="Of paths drawn, and of the jitter.")] = 0,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write a trace for Perfetto or chrome://tracing (JSON)."),
    ] = None,
    timeline_links: Annotated[
        int | None,
        typer.Option(help="Most links that the trace shows, the busiest first.", show_default="64"),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Simulate one training iteration over a fabric.

    Example: topoopt simulate 100dlrm_16.fbuf --fabric ideal --bandwidth 100Gbps
    """
    from topoopt.fabric.jitter import check_copies, jittered
    from topoopt.fabric.loads import link_bytes
    from topoopt.fabric.report import report_of
    from topoopt.fabric.simulation import check_model, simulate
    from topoopt.fabric.warm import prepare_rings, warm_up
    from topoopt.problem.schedule import Schedule
    from topoopt.studies.replay import replay_fabric
    from topoopt.studies.workload import load_workload, scheduled_workload, streams_of

    schedule = Schedule(
        compute=compute_order,
        network=priority,
        bucket_bytes=None if buckets is None else parse_bytes(buckets, "buckets"),
    )
    # What is wrong whatever the files hold, before reading them.
    check_model(model)
    if jitter is not None:
        check_copies(jitter)
    checked_seed(seed)
    if timeline_links is not None and timeline is None:
        raise InputError("--timeline-links goes with --timeline only; name the trace to write")
    if timeline_links is not None and timeline_links < 0:
        raise InputError(f"--timeline-links is {timeline_links}; give zero or more links")
    common.check_outputs(timeline, inputs=[file, fabric])
    if compat == "reconnect" and model == "fluid":
        raise InputError("compat is 'reconnect', which the fluid model does not know; use packet")
    if model == "packet" and priority != "fair":
        raise InputError(
            f"priority is {priority!r}, but links of the packet model are first in, first out; "
            "give --priority fair, or --model fluid"
        )
    kernels = "fluid_kernels" if model == "fluid" else "packet_kernels"
    with common.first_run_notice(f"fabric_*/{kernels}*"):
        workload = load_workload(file)
        if model == "fluid" and compat is None:
            workload = streams_of(workload)
        replay = replay_fabric(
            workload,
            fabric,
            bandwidth=bandwidth,
            latency=latency,
            oversubscription=oversubscription,
            routing=routing,
            compat=compat,
            seed=seed,
        )
        warm_up(model)
        simulated = replay.for_model(model)
        prepare_rings(simulated, workload.tasks)
        notes = list(workload.notes)
        if schedule != Schedule.plain():
            workload = scheduled_workload(workload, simulated, schedule)
        tasks = workload.tasks
    copies = None
    began = time.perf_counter()
    run = simulate(simulated, tasks, model=model, seed=seed)
    if jitter is not None:
        copies = jittered(simulated, tasks, jitter, model=model, seed=seed)
    wall = time.perf_counter() - began
    report = report_of(
        replay.fabric,
        tasks,
        run,
        None if simulated is replay.fabric else link_bytes(replay.fabric, tasks),
    )
    if timeline is not None:
        from topoopt.formats.trace import save_trace

        notes += save_trace(
            timeline,
            replay.fabric,
            tasks,
            run,
            label=workload.label,
            processors=workload.processors,
            most_links=_LINKS if timeline_links is None else timeline_links,
        )
    document = _document(workload, replay, report, model, compat, seed, wall, copies)
    document["schedule"] = schedule.describe()
    if as_json:
        common.print_json(document | {"notes": notes})
        return
    print("\n".join(_text(workload, replay, report, document, copies)))
    for note in notes:
        print(f"note: {note}")
    if timeline is not None:
        print(f"trace written to {timeline}")


def _document(
    workload: "Workload",
    replay: "Replay",
    report: "Report",
    model: str,
    compat: str | None,
    seed: int,
    wall: float,
    copies: "Jitter | None",
) -> dict[str, Any]:
    from topoopt.fabric.jitter import AMPLITUDE

    document: dict[str, Any] = {
        "file": workload.name,
        "kind": workload.kind,
        "model": model,
        "compat": compat,
        "seed": seed,
        "fabric": {
            "name": replay.fabric.name,
            "about": replay.about,
            "servers": replay.fabric.network.hosts,
            "switches": replay.fabric.network.switches,
            "links": replay.fabric.network.links,
            "bandwidth_bytes_per_s": replay.bandwidth,
            "latency_s": replay.latency,
        },
        "iteration_time_s": report.makespan_s if copies is None else copies.mean,
    }
    if copies is not None:
        document |= {
            "iteration_time_spread_s": copies.spread,
            "jitter_iteration_times_s": copies.times.tolist(),
            "jitter_amplitude": AMPLITUDE,
            "unperturbed_iteration_time_s": report.makespan_s,
        }
    return document | {
        "wall_time_s": wall,
        "exposed_communication_s": report.exposed_communication_s,
        "critical_compute_s": report.critical_compute_s,
        "transfer_bytes": report.transfer_bytes,
        "allreduce_bytes": report.allreduce_bytes,
        "bandwidth_tax": report.bandwidth_tax,
        "transfer_completion": asdict(report.transfers),
        "allreduce_completion": asdict(report.allreduces),
        "devices": [
            asdict(use) | {"processor": use.device < workload.processors} for use in report.devices
        ],
        "hottest_links": [asdict(link) for link in report.hottest(10)],
        "links": [asdict(link) for link in report.links],
    }


def _text(
    workload: "Workload",
    replay: "Replay",
    report: "Report",
    document: dict[str, Any],
    copies: "Jitter | None",
) -> list[str]:
    from topoopt.fabric.report import LinkUse, collective_noun

    tasks, collectives = workload.tasks, collective_noun(workload.tasks)
    compat = f", compat {document['compat']}" if document["compat"] else ""
    if document["schedule"] != "plain":
        compat += f", {document['schedule']}"
    lines = [
        f"{workload.name}: {workload.kind} of {counted(tasks.servers, 'server')}, "
        f"{counted(tasks.tasks, 'task')}",
        f"fabric: {replay.about}",
    ]
    took = f"{document['model']} model{compat}, simulated in {format_time(document['wall_time_s'])}"
    if copies is None:
        lines.append(f"iteration time {format_time(report.makespan_s)} ({took})")
    else:
        lines += [
            f"iteration time {format_time(copies.mean)}: mean of "
            f"{counted(copies.times.size, 'copy', 'copies')} with delays within 2 %, spread "
            f"{format_time(copies.spread)} ({took})",
            f"the unperturbed run, {format_time(report.makespan_s)}, in detail:",
        ]
    lines += [
        f"exposed communication {format_time(report.exposed_communication_s)}, compute on the "
        f"critical path {format_time(report.critical_compute_s)}",
        f"sent: transfers {format_bytes(report.transfer_bytes)}, {collectives} "
        f"{format_bytes(report.allreduce_bytes)}; bandwidth tax {report.bandwidth_tax:.2f}",
        "",
    ]
    processors = [use for use in report.devices if use.device < workload.processors]
    if processors:
        busy = [use.busy_s for use in processors]
        idle = [use.exposed_communication_s for use in processors]
        lines.append(
            f"devices: busy {format_time(min(busy))} to {format_time(max(busy))}, exposed "
            f"communication {format_time(min(idle))} to {format_time(max(idle))}"
        )
        first = max(processors, key=lambda use: (use.busy_s, -use.device))
        second = max(processors, key=lambda use: (use.exposed_communication_s, -use.device))
        rows: list[tuple[str, ...]] = [
            ("device", "server", "busy", "exposed communication", "waits for compute")
        ]
        for what, use in (("busiest", first), ("most exposed", second)):
            rows.append(
                (
                    f"{what}: {use.device}",
                    str(use.server),
                    format_time(use.busy_s),
                    format_time(use.exposed_communication_s),
                    format_time(use.waiting_compute_s),
                )
            )
        lines += ["  " + line for line in table_lines(rows)]
    rows = [("completion times", "tasks", "p50", "p90", "p99", "max")]
    for what, times in (("transfers", report.transfers), (collectives, report.allreduces)):
        if times.tasks:
            rows.append((what, str(times.tasks), *_times(times)))
    if len(rows) > 1:
        lines += ["", *table_lines(rows)]

    def end(node: int) -> str:
        hosts = replay.fabric.network.hosts
        return f"server {node}" if node < hosts else f"switch {node - hosts}"

    def row(link: LinkUse) -> tuple[str, ...]:
        return (
            f"{end(link.source)} -> {end(link.target)}",
            format_bytes(link.bytes),
            f"{100 * link.utilisation:.1f} %",
        )

    used = sum(link.bytes > 0.0 for link in report.links)
    if used:
        head = f"hottest of {counted(used, 'link')} in use"
        hot = [row(link) for link in report.hottest(_SHOWN)]
        lines += ["", *table_lines([(head, "bytes", "utilisation"), *hot])]
    return lines


def _times(times: "Completion") -> tuple[str, ...]:
    return tuple(format_time(t) for t in (times.p50_s, times.p90_s, times.p99_s, times.max_s))
