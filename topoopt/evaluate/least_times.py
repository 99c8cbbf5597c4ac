"""What an iteration takes at least by ports, links and devices, without being simulated."""

from typing import TypeVar

import numpy as np

from codesign_base.arrays import Floats
from parallelism.family import Shorter
from parallelism.taskgraph import TRANSFER, TaskGraph
from routing.paths import ecmp_link_bytes, ecmp_routes
from routing.throughput_bounds import least_link_bytes, within_hops
from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.fabric.loads import demand_of, link_bytes
from topoopt.fabric.reconfigurable import AnyFabric, least_time
from topoopt.fabric.rotated import rotated_kinds
from topoopt.fabric.rounding import ROUNDED_DOWN
from topoopt.fabric.windowed import WindowedCircuits

_Amount = TypeVar("_Amount", float, Floats)

# Pairs whose routes are made to see how many links all of them would have.
_SAMPLED = 256


def of_servers(fabric: Fabric | GpuPorts) -> Fabric:
    """Return a fabric whose hosts are the servers, which is bounded by no more."""
    return fabric.pooled if isinstance(fabric, GpuPorts) else fabric


def sent_seconds(load: Floats, leaving: Floats, entering: Floats) -> float:
    """Return the seconds that the busiest server needs for its transfers and its own rings.

    Parameters
    ----------
    load : float64 array, shape (2, servers) or (servers,)
        Bytes that leave and enter each server.
    leaving, entering : float64 arrays, shape (servers,) or ()
        Bytes/s of all links out of and into a server.

    Returns
    -------
    float
        No iteration is shorter, whatever the routes and rings: every byte leaves its source and
        enters its target. Needs no routes, which of many pairs take long to make.
    """
    out, into = np.broadcast_to(load, (2, load.shape[-1]))
    slowest = max(
        (out / np.maximum(leaving, 1e-300)).max(initial=0.0),
        (into / np.maximum(entering, 1e-300)).max(initial=0.0),
    )
    return float(slowest) * ROUNDED_DOWN


def least_hops(tasks: TaskGraph | Shorter, degree: int) -> float:
    """Return the mean hops of a byte where every server has its favoured others nearest.

    Parameters
    ----------
    tasks : TaskGraph or Shorter
        An iteration, or shorter ones in whose place it is.
    degree : int
        Ports of a server.

    Returns
    -------
    float
        At least 1: those of `routing.throughput_bounds.least_link_bytes` for transfers, and one
        for AllReduces, which go round rings. No direct network of the degree does with less,
        whatever its wiring.
    """
    if isinstance(tasks, Shorter):
        _, before, last = tasks.graphs
        rings = lengthened(_ring_bytes(before), _ring_bytes(last), tasks.steps)
        sent = lengthened(before.pair_bytes(), last.pair_bytes(), tasks.steps)
    else:
        rings, sent = _ring_bytes(tasks), tasks.pair_bytes()
    moved = float(sent.sum()) + rings
    return (least_link_bytes(sent, degree) + rings) / moved if moved > 0 else 1.0


def lengthened(before: _Amount, last: _Amount, steps: float) -> _Amount:
    """Return what a whole iteration has of something that shorter ones have so much of.

    Parameters
    ----------
    before, last : float or float64 array
        Of the last two of `parallelism.family.Shorter`.
    steps : float
        Of the same.

    Returns
    -------
    float or float64 array
    """
    return last + steps * (last - before)


def link_seconds(tasks: TaskGraph, degree: int, rate: float, above: float = 0.0) -> float:
    """Return the seconds that all links of a direct network need for all bytes at their hops.

    Parameters
    ----------
    tasks : TaskGraph
    degree : int
        Ports of a server.
    rate : float
        Bytes/s of a port.
    above : float
        Seconds. What cannot be more, were every transfer to go as far as any must, is not worked
        out: 0.

    Returns
    -------
    float
        No iteration is shorter on any wiring, since a byte takes at least `least_hops` links.
    """
    rings, capacity = _ring_bytes(tasks), tasks.servers * degree * rate
    farthest = len(within_hops(tasks.servers, degree)) + 1
    if rings + farthest * float(tasks.moved()[2].sum()) <= above * capacity:
        return 0.0
    return (least_link_bytes(tasks.pair_bytes(), degree) + rings) / capacity * ROUNDED_DOWN


def _ring_bytes(tasks: TaskGraph) -> float:
    """Return the bytes that all members of all rings send together."""
    each = zip(tasks.groups, tasks.group_bytes().tolist(), strict=True)
    return float(sum((len(group) - 1) * amount for group, amount in each))


def routed_links(fabric: Fabric, tasks: TaskGraph) -> tuple[float, float]:
    """Return about how many links the routes of transfers would have, before they are made.

    Parameters
    ----------
    fabric : Fabric
        Direct-connect, of `Routing.ECMP`.
    tasks : TaskGraph

    Returns
    -------
    links : float
        Of all routes, from some hundreds of the pairs; all of them where there are no more. One
        pair of each kind counts that a rotation of the servers maps on each other.
    mean : float
        Of a pair; 0 without transfers.
    """
    found = rotated_kinds(fabric, tasks)
    if found is None:
        source, target, _ = tasks.moved()
    else:
        moves = found.first[tasks.kind[found.first] == TRANSFER]
        source, target = tasks.first[moves], tasks.second[moves]
    pairs = np.unique(source * fabric.network.hosts + target)
    some = pairs[:: max(1, pairs.size // _SAMPLED)]
    if not some.size:
        return 0.0, 0.0
    mean = float(ecmp_routes(fabric.network, pairs=some).links.size / some.size)
    return mean * pairs.size, mean


def busiest_in_sum(fabric: Fabric, tasks: TaskGraph) -> float:
    """Return what `busiest` does under all shortest paths, but for rings that are not given.

    Parameters
    ----------
    fabric : Fabric
        Direct-connect, of `Routing.ECMP`; its routes are not made.
    tasks : TaskGraph

    Returns
    -------
    float
        Seconds, at most those of `busiest`.
    """
    busy = tasks.device_seconds().max(initial=0.0)
    demand = demand_of(fabric, tasks, chosen=False)
    load = (ecmp_link_bytes(fabric.network, demand) / fabric.network.capacity).max(initial=0.0)
    return float(max(busy, load)) * ROUNDED_DOWN


def busiest(fabric: AnyFabric, tasks: TaskGraph, enough: float = float("inf")) -> float:
    """Return the seconds that the busiest link or device of a fabric is occupied.

    No simulated iteration is shorter: where routes are fixed, every link must carry all its
    bytes; elsewhere the ports of every server must.

    Parameters
    ----------
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
    tasks : TaskGraph
    enough : float
        Of a fabric that is occupied for longer than this many seconds, some load above it.

    Returns
    -------
    float
    """
    if isinstance(fabric, DirectCircuits | WindowedCircuits):
        return least_time(fabric, tasks)
    fabric = of_servers(fabric)
    busy = tasks.device_seconds().max(initial=0.0)
    if busy * ROUNDED_DOWN > enough:
        return float(busy) * ROUNDED_DOWN
    load = (link_bytes(fabric, tasks, enough) / fabric.network.capacity).max(initial=0.0)
    return float(max(busy, load)) * ROUNDED_DOWN
