"""Chrome trace JSON of a simulated iteration, for Perfetto and chrome://tracing.

Process 1 holds one thread a device, with its compute as complete slices (``X``). Every link is a
process of its own, with the transfers and AllReduces that cross it as asynchronous slices
(``b``/``e`` with an id), because these overlap. Times are microseconds.
"""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.taskgraph import TaskGraph, TaskKind
from topoopt.base.atomic import open_atomically
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.timeline import Timeline, critical_path
from topoopt.problem.units import format_bandwidth

DEVICES = 1
"""Process of the devices; link i has process ``DEVICES + 1 + i``."""

_NANOSECONDS = 1e9
Event = dict[str, Any]


def save_trace(
    path: str | Path,
    fabric: Fabric,
    tasks: TaskGraph,
    timeline: Timeline,
    *,
    label: Callable[[int], str],
    processors: int | None = None,
    most_links: int = 64,
) -> tuple[str, ...]:
    """Write the trace of an iteration.

    Parameters
    ----------
    path : str or Path
    fabric : Fabric
        With its real links: not one whose links were merged.
    tasks : TaskGraph
    timeline : Timeline
    label : callable
        The name of a task, by its index.
    processors : int, optional
        Devices from this on serve transfers inside a server. By default all are processors.
    most_links : int
        Links to show at most, those with the most bytes per capacity.

    Returns
    -------
    tuple of str
        Notes on what was left out.

    Raises
    ------
    InputError
        If the file cannot be written, or ``most_links`` is negative.
    """
    shown, used = _shown_links(fabric, tasks, most_links)
    notes = []
    if len(shown) < used:
        notes.append(
            f"the trace shows the {len(shown)} busiest of {counted(used, 'link')} in use; what "
            "crosses only others is left out (--timeline-links shows more)"
        )
    events = trace_events(fabric, tasks, timeline, shown, label=label, processors=processors)
    header = {"displayTimeUnit": "ms", "otherData": {"fabric": fabric.name, "notes": notes}}
    with open_atomically(path) as stream:
        stream.write(json.dumps(header)[:-1].encode() + b', "traceEvents": [')
        separator = b"\n"
        for event in events:
            stream.write(separator + json.dumps(event, allow_nan=False).encode())
            separator = b",\n"
        stream.write(b"\n]}\n")
    return tuple(notes)


def _shown_links(fabric: Fabric, tasks: TaskGraph, most: int) -> tuple[list[int], int]:
    """Return the links to show, in order, and how many are in use."""
    if most < 0:
        raise InputError(f"{most} links in the trace; give zero or more")
    load = link_bytes(fabric, tasks) / fabric.network.capacity
    ranked = np.argsort(-load, kind="stable")
    used = int((load > 0.0).sum())
    return sorted(ranked[: min(most, used)].tolist()), used


def trace_events(
    fabric: Fabric,
    tasks: TaskGraph,
    timeline: Timeline,
    links: list[int],
    *,
    label: Callable[[int], str],
    processors: int | None = None,
) -> Iterator[Event]:
    """Yield the events of a trace: names of tracks, compute slices, network slices.

    Parameters
    ----------
    fabric, tasks, timeline, label, processors
        As in `save_trace`.
    links : list of int
        Links to show.

    Yields
    ------
    dict
        The events of each track are in order of time.
    """
    yield from _names(fabric, tasks, links, tasks.devices if processors is None else processors)
    critical = set(critical_path(tasks, timeline))
    begin = np.rint(timeline.start * _NANOSECONDS).astype(np.int64).tolist()
    end = np.rint(timeline.finish * _NANOSECONDS).astype(np.int64).tolist()
    compute = np.flatnonzero(tasks.kind == TaskKind.COMPUTE)
    order = np.lexsort((timeline.finish[compute], timeline.start[compute], tasks.first[compute]))
    for task in compute[order].tolist():
        yield {
            "ph": "X",
            "pid": DEVICES,
            "tid": int(tasks.first[task]),
            "ts": begin[task] / 1e3,
            "dur": (end[task] - begin[task]) / 1e3,
            "name": label(task),
            "cat": "compute",
            "args": {"task": task, "critical": task in critical},
        }
    crossing = _crossings(fabric, tasks, links)
    network = fabric.network
    named: dict[int, tuple[str, Event]] = {}
    for link in links:
        moments = sorted(
            moment
            for task in crossing[link]
            for moment in ((begin[task], task, 0), (end[task], task, 1))
        )
        # A slice without length ends after it began; others that end make room first.
        moments.sort(key=lambda m: (m[0], 1 if begin[m[1]] == end[m[1]] else -m[2], m[1], m[2]))
        for time, task, ends in moments:
            if task not in named:
                named[task] = (label(task), _args(tasks, task) | {"critical": task in critical})
            name, args = named[task]
            event = {
                "ph": "e" if ends else "b",
                "pid": DEVICES + 1 + link,
                "tid": 0,
                "ts": time / 1e3,
                "name": name,
                "cat": "network",
                "id": f"{task}/{network.source[link]}-{network.target[link]}",
            }
            yield event if ends else event | {"args": args}


def _names(fabric: Fabric, tasks: TaskGraph, links: list[int], processors: int) -> Iterator[Event]:
    """Yield the names and the order of processes and threads."""
    network = fabric.network

    def meta(what: str, pid: int, tid: int, **args: str | int) -> Event:
        return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}

    yield meta("process_name", DEVICES, 0, name="devices")
    yield meta("process_sort_index", DEVICES, 0, sort_index=0)
    servers = tasks.server_of_device.tolist()
    for device, server in enumerate(servers):
        name = f"server {server}"
        if device >= processors:
            name += f", transfers inside (device {device})"
        elif servers[:processors].count(server) > 1:
            name += f", device {device}"
        yield meta("thread_name", DEVICES, device, name=name)
        yield meta("thread_sort_index", DEVICES, device, sort_index=device)

    def end(node: int) -> str:
        return f"{node}" if node < network.hosts else f"switch {node - network.hosts}"

    for place, link in enumerate(links):
        pid = DEVICES + 1 + link
        rate = format_bandwidth(float(network.capacity[link]))
        ends = f"{end(int(network.source[link]))} -> {end(int(network.target[link]))}"
        yield meta("process_name", pid, 0, name=f"link {ends} ({rate})")
        yield meta("process_sort_index", pid, 0, sort_index=1 + place)


def _crossings(fabric: Fabric, tasks: TaskGraph, links: list[int]) -> dict[int, list[int]]:
    """Return, for each link, the network tasks that may cross it, by task."""
    wanted = set(links)
    found: dict[int, list[int]] = {link: [] for link in links}
    rows: dict[tuple[int, int], list[int]] = {}
    for task in np.flatnonzero(tasks.kind != TaskKind.COMPUTE).tolist():
        if not tasks.size[task] > 0.0:
            continue
        first, second = int(tasks.first[task]), int(tasks.second[task])
        key = (first, second)
        if key not in rows:
            if second >= 0:
                row = fabric.routes.row(first, second)[0].tolist()
            elif len(tasks.groups[first]) > 1:
                row = fabric.group_streams(tasks.groups[first]).links.tolist()
            else:
                row = []
            rows[key] = [link for link in row if link in wanted]
        for link in rows[key]:
            found[link].append(task)
    return found


def _args(tasks: TaskGraph, task: int) -> Event:
    size = float(tasks.size[task])
    if tasks.kind[task] == TaskKind.TRANSFER:
        servers = f"{tasks.first[task]} -> {tasks.second[task]}"
        return {"task": task, "bytes": size, "servers": servers}
    group = tasks.groups[int(tasks.first[task])]
    steps = {b - a for a, b in pairwise(group)}
    servers = ", ".join(map(str, group))
    if len(group) > 2 and len(steps) == 1:
        step = steps.pop()
        servers = f"{group[0]}..{group[-1]}" + ("" if step == 1 else f" by {step}")
    return {
        "task": task,
        "bytes": size,
        "servers": servers,
        "group_size": len(group),
        "delay_us": round(float(tasks.delay[task]) * 1e6, 3),
    }
