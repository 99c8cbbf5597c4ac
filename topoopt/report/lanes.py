"""The timeline as lanes: segments for the eye as paths, for the pointer as numbers."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Ints
from codesign_base.counted import counted
from parallelism.operator_text import server_names
from parallelism.taskgraph import Phase, TaskKind
from topoopt.fabric.report import collective_noun
from topoopt.problem.units import format_bytes
from topoopt.report.evaluation import Evaluation

MOST_ROWS = 16
"""Servers with lanes of their own."""

MOST_SEGMENTS = 20_000
"""Segments of all servers together; fewer servers are shown where theirs are many."""

MOST_STREAMS = 40
"""Lanes of collectives."""

MOST_COLLECTIVES = 4_000
"""Collectives in them; of more, the longest."""

NANOSECONDS = 1e9
"""Lanes are compared, and written into the page, in whole ones."""

CLASSES = ("forward", "backward", "update", "transfer", "allreduce")


@dataclass(frozen=True)
class Segment:
    """Something that happens from one time to another.

    Parameters
    ----------
    start, end : float
        Seconds.
    kind : str
        One of `CLASSES`.
    label : str
    critical : bool
        Whether (some of) it lies on the critical path.
    """

    start: float
    end: float
    kind: str
    label: str
    critical: bool = False


@dataclass(frozen=True)
class Lane:
    """One line of the timeline; its segments do not overlap, and are in order of time.

    Parameters
    ----------
    name : str
        Empty for a lane that goes on with the one above.
    segments : tuple of Segment
    size : str
        Its class in the style sheet, which sets the height.
    spoken : str
        What the lane is called beside a segment.
    """

    name: str
    segments: tuple[Segment, ...]
    size: str
    spoken: str


@dataclass(frozen=True)
class Lanes:
    """The lanes of a report.

    Parameters
    ----------
    lanes : tuple of Lane
    servers : tuple of int
        Those that have lanes.
    collectives : str
        What the collectives are called: "AllReduces" if that is what all of them are.
    streams, left_out : int
        Collectives over two or more servers, and how many of them are in no lane.
    """

    lanes: tuple[Lane, ...]
    servers: tuple[int, ...]
    collectives: str
    streams: int
    left_out: int


def make_lanes(found: Evaluation) -> Lanes:
    """Return the critical path, collectives, and what chosen servers compute and send.

    Parameters
    ----------
    found : Evaluation

    Returns
    -------
    Lanes
    """
    critical = frozenset(found.critical)
    path = tuple(_segment(found, task, critical) for task in found.critical)
    lanes = [Lane("critical path", path, "lane", "critical path")]
    streams = _streams(found)
    name = collective_noun(found.tasks)
    longest = sorted(streams, key=lambda t: found.timeline.start[t] - found.timeline.finish[t])
    drawn = [_segment(found, task, critical) for task in longest[:MOST_COLLECTIVES]]
    packed = pack(drawn, MOST_STREAMS)
    for number, segments in enumerate(packed):
        lanes.append(Lane(name if number == 0 else "", segments, "lane stream", name))
    servers = shown_servers(found)
    for server in servers:
        lanes += _server_lanes(found, server, critical)
    kept = sum(map(len, packed))
    return Lanes(tuple(lanes), servers, name, len(streams), len(streams) - kept)


def shown_servers(found: Evaluation) -> tuple[int, ...]:
    """Return the servers of the critical path that fit, and an even sample of the others."""
    tasks, servers = found.tasks, found.plan.cluster.servers
    compute = tasks.kind == TaskKind.COMPUTE
    each = max(1, int(compute.sum()) // max(servers, 1))
    most = min(servers, MOST_ROWS, max(2, MOST_SEGMENTS // each))
    if most == servers:
        return tuple(range(servers))
    chosen = list(dict.fromkeys(
        int(tasks.server_of_device[tasks.first[t]]) for t in found.critical if compute[t]
    ))[: most - most // 4]  # fmt: skip
    wanted = np.linspace(0, servers - 1, most).round().astype(int).tolist()
    for server in (*wanted, *range(servers)):
        if len(chosen) == most:
            break
        if server not in chosen:
            chosen.append(server)
    return tuple(sorted(chosen))


def pack(segments: Iterable[Segment], most: int) -> list[tuple[Segment, ...]]:
    """Put segments into as few lanes as possible, the earliest first (interval partitioning).

    Parameters
    ----------
    segments : iterable of Segment
    most : int
        Lanes; segments that find no room in them are left out.

    Returns
    -------
    list of tuple of Segment
    """
    lanes: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda s: (s.start, -s.end, s.label)):
        for lane in lanes:
            if lane[-1].end <= segment.start:
                lane.append(segment)
                break
        else:
            if len(lanes) < most:
                lanes.append([segment])
    return [tuple(lane) for lane in lanes]


def _streams(found: Evaluation) -> list[int]:
    """Return the collectives that use the network."""
    tasks = found.tasks
    over = np.flatnonzero(tasks.collective & (tasks.size > 0.0))
    return [t for t in over.tolist() if len(tasks.groups[tasks.first[t]]) > 1]


def _segment(found: Evaluation, task: int, critical: Set[int]) -> Segment:
    tasks = found.tasks
    label = found.built.family.task_label(tasks, task)
    if tasks.kind[task] == TaskKind.COMPUTE:
        kind = Phase(int(tasks.phase[task])).name.lower()
        server = int(tasks.server_of_device[tasks.first[task]])
        served = np.flatnonzero(found.home == server).tolist()
        label += f" on {server_names(tuple(served))}"
    else:
        kind = "transfer" if tasks.kind[task] == TaskKind.TRANSFER else "allreduce"
        label += f", {format_bytes(float(tasks.size[task]))}"
    start, end = float(found.timeline.start[task]), float(found.timeline.finish[task])
    return Segment(start, end, kind, label, task in critical)


def _server_lanes(found: Evaluation, server: int, critical: frozenset[int]) -> list[Lane]:
    """Return what the devices of a server compute, those that do the same as one, and send."""
    tasks, name = found.tasks, f"server {server}"
    devices = np.flatnonzero(tasks.server_of_device == found.home[server]).tolist()
    alike: dict[bytes, list[tuple[int, Ints]]] = {}
    for device in devices:
        doing = _computed(found, device)
        when = (found.timeline.start[doing], found.timeline.finish[doing])
        what = (tasks.operator[doing], tasks.phase[doing], tasks.part[doing])
        key = np.stack([*(np.rint(time * NANOSECONDS) for time in when), *what]).tobytes()
        alike.setdefault(key, []).append((device, doing))
    lanes = []
    for number, group in enumerate(alike.values()):
        # Of tasks at the same time the lane shows the first; it is critical if any of them is.
        members = np.stack([doing for _, doing in group])
        marked = {
            int(column[0]) for column in members.T if not critical.isdisjoint(column.tolist())
        }
        segments = tuple(_segment(found, task, marked) for task in members[0].tolist())
        ranks = [device for device, _ in group]
        some = f"{name}, {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
        spoken = name if len(ranks) == len(devices) else some
        lanes.append(Lane("" if number else name, segments, "lane", spoken))
    moves = tasks.kind == TaskKind.TRANSFER
    sent = np.flatnonzero(moves & ((tasks.first == server) | (tasks.second == server)))
    if sent.size:
        lanes.append(Lane("", _spans(found, server, sent.tolist(), critical), "lane thin", name))
    return lanes


def _computed(found: Evaluation, device: int) -> Ints:
    """Return the tasks of a device in order of time."""
    tasks = found.tasks
    here = np.flatnonzero((tasks.kind == TaskKind.COMPUTE) & (tasks.first == device))
    return here[np.lexsort((found.timeline.finish[here], found.timeline.start[here]))]


def _spans(
    found: Evaluation, server: int, moves: Sequence[int], critical: frozenset[int]
) -> tuple[Segment, ...]:
    """Return when a server sends or receives transfers, overlapping ones as one segment."""
    tasks, start, finish = found.tasks, found.timeline.start, found.timeline.finish
    runs: list[list[int]] = []
    end = -1.0
    for task in sorted(moves, key=lambda t: (float(start[t]), t)):
        if float(start[task]) < end:
            runs[-1].append(task)
        else:
            runs.append([task])
        end = max(end, float(finish[task]))
    spans = []
    for run in runs:
        out = float(sum(tasks.size[t] for t in run if tasks.first[t] == server))
        into = float(sum(tasks.size[t] for t in run if tasks.second[t] == server))
        count = counted(len(run), "transfer")
        label = f"{count}, sends {format_bytes(out)}, receives {format_bytes(into)}"
        begin, last = float(start[run[0]]), max(float(finish[t]) for t in run)
        spans.append(Segment(begin, last, "transfer", label, not critical.isdisjoint(run)))
    return tuple(spans)
