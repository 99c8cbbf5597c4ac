"""Schedules of collectives as JSON files: trees with the paths that their copies take."""

import json
from pathlib import Path
from typing import Any

from routing.collectives.choice import CollectiveChoice, CollectiveSchedule
from routing.collectives.meeting import EXCHANGE, GATHER, Meeting
from routing.collectives.trees import Forest
from routing.network import Network
from topoopt.base.atomic import write_text_atomically
from topoopt.topology.network_json import network_document


def save_schedule(
    network: Network,
    choice: CollectiveChoice,
    schedule: CollectiveSchedule,
    size: float,
    path: Path,
) -> None:
    """Write a schedule.

    Parameters
    ----------
    network : Network
    choice : CollectiveChoice
        What it is one of.
    schedule : CollectiveSchedule
    size : float
        Bytes of the buffer that time and bound are stated for.
    path : Path
        Written whole or not at all.

    Notes
    -----
    ``exchange`` of an all-to-all lists paths and the share of their pair's part; it is empty
    where every part is split equally among all shortest paths. A Broadcast is a ``gather`` of one
    root, a Reduce such a ``scatter``.
    ``gather`` and ``scatter`` (null if there is none) hold ``units`` and ``trees``. A tree carries
    ``copies / units`` of the part of its ``root``, or in "reduce-broadcast", where roots have other
    shares, of the buffer; ``paths`` lead from a member that has it to one that has not, in an order
    in which they can be sent. In ``scatter`` paths are those of the data, too: from a member that
    has added what came to it, towards the root, leaves first.
    ``meeting`` lists for each part (one in so many of the buffer) what is gathered, exchanged and
    spread: the wave that a message begins in and its path, and of an exchange the member whose
    sum it is. Messages of a wave wait for those of earlier ones.
    """
    document = {
        "collective": choice.collective,
        "schedule": schedule.name,
        "members": list(choice.members),
        "root": choice.root,
        "bytes": size,
        "seconds": schedule.time(size),
        "lower_bound_s": choice.bound(size),
        "bytes_per_s": schedule.bytes_per_s,
        "latency_s": schedule.latency_s,
        "scatter": _forest(schedule.scatter, back=True),
        "gather": _forest(schedule.gather, back=False),
        "exchange": None
        if schedule.exchange is None
        else [{"path": list(nodes), "share": share} for nodes, share in schedule.exchange.paths],
        "meeting": None if schedule.meeting is None else _meeting(schedule.meeting, network),
        "network": network_document(network),
    }
    write_text_atomically(path, json.dumps(document, allow_nan=False) + "\n")


def _forest(forest: Forest | None, *, back: bool) -> dict[str, Any] | None:
    if forest is None:
        return None
    trees = []
    for tree in forest.trees:
        paths = [list(path) for path in tree.paths]
        if back:
            paths = [path[::-1] for path in reversed(paths)]
        trees.append({"root": tree.root, "copies": tree.copies, "paths": paths})
    return {"units": forest.units, "trees": trees}


def _meeting(meeting: Meeting, network: Network) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [
        {"gather": [], "exchange": [], "spread": []} for _ in range(meeting.parts)
    ]
    target = network.target[meeting.links].tolist()
    bounds = meeting.offsets.tolist()
    for at, ((part, kind, origin, wave), (first, _)) in enumerate(
        zip(meeting.messages.tolist(), meeting.ends.tolist(), strict=True)
    ):
        path = [first, *target[bounds[at] : bounds[at + 1]]]
        if kind == EXCHANGE:
            parts[part]["exchange"].append([wave, origin, path])
        else:
            parts[part]["gather" if kind == GATHER else "spread"].append([wave, path])
    return parts
