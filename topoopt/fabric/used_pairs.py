"""The pairs of hosts that an iteration sends between, and their routes."""

from dataclasses import replace

import numpy as np

from codesign_base.arrays import Ints
from parallelism.taskgraph import TRANSFER, TaskGraph
from routing.routes import Routes, tabled
from topoopt.fabric.fabric import Fabric


def pairs_in_use(fabric: Fabric, tasks: TaskGraph) -> tuple[Ints, Ints]:
    """Return the pairs of hosts that an iteration sends between.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Whose tasks may stand for others.

    Returns
    -------
    transfers, ring edges : int64 arrays
        Pairs as ``source * hosts + target``, ascending.
    """
    edges = [fabric.ring_edges(group).ravel() for group in tasks.groups if len(group) > 1]
    none = np.zeros(0, dtype=np.int64)
    return transfer_pairs(tasks, fabric.network.hosts), np.unique(np.concatenate((none, *edges)))


def transfer_pairs(tasks: TaskGraph, hosts: int) -> Ints:
    """Return the pairs of hosts that an iteration's transfers go between.

    Parameters
    ----------
    tasks : TaskGraph
        Whose tasks may stand for others.
    hosts : int
        Of the fabric, at least the servers of the tasks.

    Returns
    -------
    int64 array
        Pairs as ``source * hosts + target``, ascending.
    """
    if tasks.alike is None:
        moves = tasks.kind == TRANSFER
        source, target = tasks.first[moves], tasks.second[moves]
    else:
        pattern = tasks.alike.pattern
        source, target = pattern.source[pattern.group < 0], pattern.target[pattern.group < 0]
    met = np.zeros(hosts**2, dtype=np.bool_)
    met[source * hosts + target] = True
    return np.flatnonzero(met)


def listing(fabric: Fabric, tasks: TaskGraph) -> Fabric:
    """Return a fabric whose routes are made: they list at least what an iteration uses.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    Fabric
        The same, if its routes are of all pairs.
    """
    if fabric.routes.pairs is None and fabric.edge_routes.pairs is None:
        return fabric
    moves, edges = pairs_in_use(fabric, tasks)
    own = moves if fabric.ring_routes is not None else np.union1d(moves, edges)
    return replace(
        fabric,
        routes=fabric.routes.of(own),
        rings=dict(fabric.rings) | {g: fabric.rings_of(g) for g in tasks.groups if len(g) > 1},
        ring_routes=None if fabric.ring_routes is None else fabric.ring_routes.of(edges),
    )


def recorded_routes(fabric: Fabric, tasks: TaskGraph, *, named: bool) -> Routes:
    """Return the routes that a plan records.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    named : bool
        Whether the network and the name of the routing tell the routes.

    Returns
    -------
    Routes
        Of all pairs of up to `routing.routes.EVERY_PAIR_UP_TO` hosts; of more, none that are
        named, or those of transfers, and of ring edges that are routed like them.
    """
    if tabled(fabric.network.hosts):
        return fabric.routes
    if named:
        return fabric.routes.of(np.zeros(0, dtype=np.int64))
    moves, edges = pairs_in_use(fabric, tasks)
    return fabric.routes.of(moves if fabric.ring_routes is not None else np.union1d(moves, edges))
