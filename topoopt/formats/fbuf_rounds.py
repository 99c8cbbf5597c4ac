"""Routes of a task-graph file in which AllReduces are written as messages, round by round."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from codesign_base import InputError
from codesign_base.rows import spread, starts
from parallelism.taskgraph import Group, TaskGraph
from routing.routes import Routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import Rings
from topoopt.formats.fbuf_rings import brief


def message_routes(fabric: Fabric, tasks: TaskGraph, rings: Mapping[Group, Rings]) -> Routes:
    """Return one route a pair for transfers and for the messages of rings.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Of the plan, with its collectives.
    rings : mapping of tuple of int to tuple of tuple of int
        Ring orders of every group in use.

    Returns
    -------
    Routes
        Those of the fabric, but along its rings for pairs that send to each other there only.

    Raises
    ------
    InputError
        If a pair sends over other links along a ring than otherwise, and does both.
    """
    routes, along = fabric.routes.complete(), fabric.edge_routes.complete()
    if fabric.ring_routes is None:
        return routes
    hosts = routes.hosts
    sends = tasks.pair_bytes().ravel() > 0.0
    moved = np.zeros(hosts * hosts, dtype=np.bool_)
    for group, orders in sorted(rings.items()):
        for order in orders:
            for a, b in pairwise((*order, order[0])):
                if _alike(routes.row(a, b), along.row(a, b)):
                    continue
                if sends[a * hosts + b]:
                    raise InputError(
                        f"server {a} sends to {b} over other links along a ring of AllReduce group "
                        f"{brief(group)} than otherwise, and a .fbuf file has one route a pair; "
                        "write the network alone (.json, .graphml); of a plan --allreduce rings or "
                        "planning with --confirm packet may help"
                    )
                moved[a * hosts + b] = True
    if not moved.any():
        return routes
    lengths = np.where(moved, np.diff(along.offsets), np.diff(routes.offsets))
    begins = np.where(moved, along.offsets[:-1] + routes.links.size, routes.offsets[:-1])
    at = spread(begins, lengths)
    return Routes(
        hosts,
        starts(lengths),
        np.concatenate((routes.links, along.links))[at],
        np.concatenate((routes.weights, along.weights))[at],
        np.where(moved, along.latency, routes.latency),
        np.where(moved, along.hops, routes.hops),
    )


def _alike(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    return np.array_equal(one[0], other[0]) and np.allclose(one[1], other[1], rtol=0.0, atol=1e-9)
