"""Weighted paths of least congestion, for the transfers of one strategy beside its AllReduces."""

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Floats
from codesign_base.rows import starts
from parallelism.taskgraph import TaskGraph, TaskKind
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes, tabled
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.loads import link_bytes, transfer_demand

# The congestion is proven to be within this share of the least.
_ACCURACY = 0.03
# Of the time that the busiest ring occupies its links, so much counts as lost to transfers: the
# backward pass shares links with AllReduces, the forward pass does not.
_RING_SHARE = 0.8
_ROUNDS = 400


def transfer_problem(fabric: Fabric, tasks: TaskGraph) -> tuple[Network, Floats]:
    """Return the network that rings leave to transfers, and the bytes between servers.

    Parameters
    ----------
    fabric : Fabric
        Its routes of transfers are not looked at.
    tasks : TaskGraph
        One iteration.

    Returns
    -------
    Network
        Each link with the capacity that is left beside the rings.
    float64 array, shape (hosts, hosts)
        Bytes from row to column.
    """
    moves = tasks.kind == TaskKind.TRANSFER
    rings = link_bytes(fabric, replace(tasks, size=np.where(moves, 0.0, tasks.size)))
    busy = rings / fabric.network.capacity
    taken = _RING_SHARE * busy / max(float(busy.max(initial=0.0)), 1e-300)
    left = replace(fabric.network, capacity=fabric.network.capacity * (1.0 - taken))
    return left, transfer_demand(fabric, tasks)


def least_congestion_routes(fabric: Fabric, tasks: TaskGraph) -> Routes:
    """Return routes of least congestion for the transfers of one iteration.

    Parameters
    ----------
    fabric : Fabric
        Network and rings; its ring edges are routed apart from transfers.
    tasks : TaskGraph

    Returns
    -------
    Routes
        Pairs without transfers are routed over all shortest paths.
    """
    network, demand = transfer_problem(fabric, tasks)
    best = min_congestion(network, demand, _ACCURACY, rounds=_ROUNDS)
    if not tabled(fabric.network.hosts):
        return replace(best.routes(idle=False), more=partial(ecmp_routes, fabric.network))
    found = best.routes()
    return _with_idle(found, ecmp_routes(fabric.network), demand.ravel() > 0.0)


def check_least_congestion(fabric: Fabric, tasks: TaskGraph) -> None:
    """Check that a fabric's routes are near the least congestion, and the idle ones shortest.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Raises
    ------
    InputError
        If a bound on any routing proves that the transfers could be routed better than
        `_ACCURACY` allows, or a pair without transfers is not routed over all shortest paths.
    """
    network, demand = transfer_problem(fabric, tasks)
    load = fabric.routes.link_bytes(network, demand) / network.capacity
    proof = min_congestion(network, demand, _ACCURACY, rounds=_ROUNDS)
    # Rounds may run out before the accuracy is proven; then what they reach is the measure.
    limit = max(proof.congestion, proof.lower_bound * (1.0 + _ACCURACY)) * (1.0 + _ACCURACY)
    if float(load.max(initial=0.0)) > limit:
        raise InputError(
            f"the routes congest a link for {float(load.max()):.6g} s, but routes with "
            f"{proof.congestion:.6g} s exist, which mcf routing would have found"
        )
    if fabric.routes.pairs is None:
        plain = ecmp_routes(fabric.network)
        as_promised = _with_idle(fabric.routes, plain, demand.ravel() > 0.0).like(fabric.routes)
    else:
        listed = fabric.routes.listed
        idle = listed[demand.ravel()[listed] == 0.0]
        as_promised = ecmp_routes(fabric.network, pairs=idle).like(fabric.routes.of(idle))
    if not as_promised:
        raise InputError("a pair without transfers is not routed over all shortest paths")


def _with_idle(found: Routes, plain: Routes, used: npt.NDArray[np.bool_]) -> Routes:
    """Return the rows of ``found`` where a pair is used, and those of ``plain`` elsewhere."""
    mine, theirs = np.diff(found.offsets), np.diff(plain.offsets)
    lengths = np.where(used, mine, theirs)
    offsets = starts(lengths)
    links = np.empty(int(offsets[-1]), dtype=np.int64)
    weights = np.empty(int(offsets[-1]))
    asked = np.repeat(used, lengths)
    links[asked], weights[asked] = (a[np.repeat(used, mine)] for a in (found.links, found.weights))
    links[~asked], weights[~asked] = (
        a[np.repeat(~used, theirs)] for a in (plain.links, plain.weights)
    )
    hops = np.bincount(
        np.repeat(np.arange(lengths.size), lengths), weights=weights, minlength=lengths.size
    )
    return Routes(
        found.hosts, offsets, links, weights,
        np.where(used, found.latency, plain.latency), hops.astype(np.float64),
    )  # fmt: skip
