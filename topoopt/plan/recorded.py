"""The records of a plan, made of the objects that they describe."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, cast

import numpy as np

from routing.network import Network
from routing.routes import Routes
from topoopt.bounds.bounds import Bound
from topoopt.bounds.gap import GapPart, how
from topoopt.evaluate.schedule_search import Scheduled
from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.fabric.windowed import WindowedCircuits
from topoopt.plan.records import (
    BoundRecord,
    GapRecord,
    Link,
    ReconfigurationRecord,
    RingRecord,
    RouteTable,
    ScheduleRecord,
)
from topoopt.topology.ring_links import ring_links
from topoopt.topology.wiring import Ring


def reconfiguration_record(fabric: AnyFabric) -> ReconfigurationRecord | None:
    """Return how a fabric is rewired, as a plan file holds it; None if it stays as it is."""
    if isinstance(fabric, DirectCircuits):
        return ReconfigurationRecord(delay_s=fabric.delay, window_s=None, forwarding=False)
    if isinstance(fabric, WindowedCircuits):
        return ReconfigurationRecord(
            delay_s=fabric.delay, window_s=fabric.window, forwarding=fabric.forwarding
        )
    return None


def ring_records(rings: Iterable[Ring]) -> list[RingRecord]:
    """Return rings as a plan file holds them: each from its lowest server on, in one order."""
    records = []
    for ring in rings:
        order = [int(v) for v in ring.members]
        first = order.index(min(order))
        records.append(RingRecord(int(ring.generator), [*order[first:], *order[:first]]))
    return sorted(records, key=ring_key)


def ring_key(ring: RingRecord) -> tuple[tuple[int, ...], int, list[int]]:
    """Return what rings are sorted by: their group, generator and order."""
    return ring.group, ring.generator, ring.order


def ring_edges(rings: Iterable[RingRecord]) -> Counter[tuple[int, int]]:
    """Return how many rings go from a server to another."""
    edges: Counter[tuple[int, int]] = Counter()
    for ring in rings:
        edges.update(ring_links(ring.order))
    return edges


def link_records(network: Network, rings: Iterable[RingRecord]) -> list[Link]:
    """Return the links of a network as a plan file holds them."""
    edges = ring_edges(rings)
    return [
        Link(
            source=int(network.source[link]),
            target=int(network.target[link]),
            cables=int(network.multiplicity[link]),
            rings=edges[int(network.source[link]), int(network.target[link])],
            capacity_bytes_per_s=float(network.capacity[link]),
            latency_s=float(network.latency[link]),
        )
        for link in range(network.links)
    ]


def route_record(routes: Routes) -> RouteTable:
    """Return routes as a plan file holds them: every weight once."""
    values, which = np.unique(routes.weights, return_inverse=True)
    return RouteTable(
        offsets=routes.offsets.tolist(),
        links=routes.links.tolist(),
        weights=which.tolist(),
        weight_values=values.tolist(),
        latency_s=routes.latency.tolist(),
        pairs=None if routes.pairs is None else routes.pairs.tolist(),
    )


def degree_split(links: Iterable[Link], degree: int) -> tuple[int, int]:
    """Return the ports that rings take of the server that they take most of, and its others.

    Parameters
    ----------
    links : iterable of Link
    degree : int
        Ports of each server.

    Returns
    -------
    rings, others : int
        Rings take all cables of the links that they go over: their bytes use them evenly.
    """
    taken: Counter[int] = Counter()
    for link in links:
        taken[link.source] += link.cables if link.rings else 0
    most = max(taken.values(), default=0)
    return most, degree - most


def bound_record(bound: Bound) -> BoundRecord:
    """Return a bound as a plan file holds it."""
    return BoundRecord(
        seconds=bound.seconds,
        binding=bound.binding,
        terms_s={name: float(value) for name, value in bound.terms.items()},
        weights=bound.weights,
    )


def gap_record(part: GapPart, noun: str) -> GapRecord:
    """Return a part of the gap as a plan file holds it; ``noun`` is what the family calls one."""
    return GapRecord(part.name, part.seconds, part.binding, how(part.name, noun))


def schedule_record(scheduled: Scheduled) -> ScheduleRecord:
    """Return a schedule as a plan file holds it."""
    schedule = scheduled.schedule
    return ScheduleRecord(
        overlap=cast(Literal["barrier", "next-forward"], schedule.overlap),
        compute=cast(Literal["ready", "critical-path"], schedule.compute),
        network=cast(Literal["fair", "transfers-first", "critical-path"], schedule.network),
        bucket_bytes=schedule.bucket_bytes,
        microbatches=schedule.microbatches,
        plain_time_s=scheduled.plain_time,
    )
