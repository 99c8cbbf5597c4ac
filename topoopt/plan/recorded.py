"""The records of a plan, made of the objects that they describe."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

from codesign_base.counted import counted
from routing.network import Network
from topoopt.baselines.baselines import PLAN_BASELINES, usual_baselines
from topoopt.bounds.bounds import Bound
from topoopt.evaluate.schedule_search import Scheduled
from topoopt.evaluate.scheduling import MOST_CROSSINGS, MOST_TRANSFERS, NEAR
from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.fabric.windowed import WindowedCircuits
from topoopt.plan.records import (
    Baseline,
    BoundRecord,
    Link,
    ReconfigurationRecord,
    RingRecord,
    ScheduleRecord,
)
from topoopt.problem.cluster import Cluster
from topoopt.problem.prices import PriceTable
from topoopt.problem.schedule import Schedule
from topoopt.problem.units import format_bytes, format_time
from topoopt.topology.ring_links import ring_links
from topoopt.topology.wiring import Ring


def price_notes(cluster: Cluster, compared: dict[str, Baseline], prices: PriceTable) -> list[str]:
    """Return a sentence that names the prices outside the table's rates; none if all are known."""
    priced = [base for base in compared.values() if base.cost_usd is not None]
    rates = [cluster.port_rate, *(base.bandwidth_bytes_per_s for base in priced)]
    return [note] if (note := prices.note(*rates)) else []


def left_out_notes(servers: int, compared: Iterable[str]) -> list[str]:
    """Return a sentence that names what a plan of so many servers is not compared with unasked."""
    names = set(compared)
    usual = usual_baselines(servers)
    left = [name for name in PLAN_BASELINES if name not in usual]
    if not left or not names.issuperset(usual) or names.intersection(left):
        return []
    return [
        f"not compared with {' and '.join(left)}, whose routes of all pairs of {servers:,} servers "
        "fill memory"
    ]


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


def schedule_notes(scheduled: Scheduled, asked: str) -> list[str]:
    """Return what must be known to compare a plan under another schedule than the plain one.

    ``asked`` is how the schedule was to be chosen (`SearchOptions`).
    """
    if scheduled.schedule == Schedule.plain():
        tried = scheduled.tried
        return [f"none of {tried} schedules tried beats the plain one"] if tried > 1 else []
    bucket = scheduled.schedule.bucket_bytes
    if asked == "fused" and bucket is not None:
        return [
            f"gradients are fused into AllReduces of at least {format_bytes(bucket)}, because some "
            "had less than a packet for each server; so they are on other fabrics, where that is "
            f"faster. Each by itself, the plan takes {format_time(scheduled.plain_time)} "
            "(--schedule plain)"
        ]
    if scheduled.plain_time < scheduled.simulated.time:
        return [
            f"{SLOWER}: the plan takes {format_time(scheduled.plain_time)} under the plain "
            f"schedule, {format_time(scheduled.simulated.time)} under the one asked for "
            f"({scheduled.schedule.describe()}); --schedule plain searches with the former"
        ]
    return [
        f"the iteration time holds for a schedule ({scheduled.schedule.describe()}) that published "
        "results do not use; baselines have the plain one, under which "
        f"the plan takes {format_time(scheduled.plain_time)}"
    ]


def skipped_notes(skipped: Sequence[str], memory: float) -> list[str]:
    """Return a sentence that names what was not simulated for want of memory."""
    if not skipped:
        return []
    return [
        f"{TOO_LARGE}, because a task graph would take more than {format_bytes(memory)}: "
        + "; ".join(skipped)
    ]


IN_VAIN = "asked for, but in no layout that is legal: "
SLOWER = "the schedule asked for is slower"
TOO_LARGE = "not simulated"
TOO_MUCH_WORK = "not simulated, because too few servers are alike"
"""How notes begin, or hold, that the answer shows, since they are about the question."""


def shown_notes(notes: Sequence[str]) -> list[str]:
    """Return the notes that a short answer shows: what was asked in vain, or not looked at.

    Lists of layouts are counted in it.
    """
    shown = []
    for note in notes:
        if note.startswith(TOO_LARGE):
            said, _, listed = note.partition(": ")
            count = len(listed.split("; "))
            layouts = counted(count, "layout")
            shown.append(f"{said}: {layouts}, any of which may be faster (--details names them)")
        elif note.startswith((IN_VAIN, SLOWER)) or TOO_MUCH_WORK in note:
            shown.append(note)
    return shown


def unused_notes(unused: Sequence[str]) -> list[str]:
    """Return a sentence that names what was asked for in vain."""
    if not unused:
        return []
    return [f"{IN_VAIN}{'; '.join(unused)}"]


def unsimulated_notes(count: int) -> list[str]:
    """Return a sentence that says how many wirings were not simulated for their size."""
    if not count:
        return []
    networks = counted(count, "wiring with its routes was", "wirings with routes were")
    return [
        f"{networks} {TOO_MUCH_WORK} on them for the work that a simulation may take; "
        "bounds do not rule out that they are faster"
    ]


def near_notes(near: bool) -> list[str]:
    """Return a sentence that says so where the plan's time is not that of an exact simulation."""
    if not near:
        return []
    return [
        f"the time by flows is off by about 0.1 %: there are more than {MOST_TRANSFERS} transfers, "
        f"or they cross more than {MOST_CROSSINGS / 1e6:g} million links in all, so flows that end "
        f"within {100 * NEAR:g} % of their age are batched"
    ]


def bounded_notes(compared: Mapping[str, Baseline]) -> list[str]:
    """Return a sentence for each fabric whose time is a bound that it is not below."""
    return [
        f"{name} takes at least the time stated: simulating it would take too much work, and what "
        "its ports and links must carry bounds it from below"
        for name, base in compared.items()
        if base.bounded
    ]
