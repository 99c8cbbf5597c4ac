"""Which schedule of a collective is fastest at which size, and how fast any could be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codesign_base import InputError
from routing.collectives.bounds import (
    Line,
    allreduce_rate,
    distances,
    rooted_lines,
    shared_lines,
)
from routing.collectives.exchange import AllToAllRouting, exchanges
from routing.collectives.found import MOST_MET, MOST_RINGS, Sought
from routing.collectives.joint import JOINT_TREES, joint_forests, rate_at_once
from routing.collectives.meeting import Meeting
from routing.collectives.numbering import mean_time
from routing.collectives.rate import gather_rate, members_of, roots_of
from routing.collectives.reduce_broadcast import MOST_LOST, REDUCE_BROADCAST, rate_both_ways
from routing.collectives.rings import ring_forest, strided_rings
from routing.collectives.shortest import shortest_forest
from routing.collectives.trees import Forest, turned
from routing.collectives.waves import Waves, waves_of
from routing.network import Network

_SAME = 1e-9  # times that differ by less are the same number, rounded in another order
LARGEST_SIZE = 1e12
"""Bytes up to which crossing points are sought."""

COLLECTIVES = (
    "allreduce", "allgather", "reduce-scatter", "broadcast", "reduce", "all-to-all",
)  # fmt: skip
AT_ONCE = ("allreduce", "allgather", "reduce-scatter")
"""Collectives that several groups can be asked for at once."""
ROOTED = ("broadcast", "reduce")
"""Collectives from one member, or to one."""


@dataclass(frozen=True)
class CollectiveSchedule:
    """A way to do a collective.

    Parameters
    ----------
    name : str
    scatter : Forest or None
        Of the ReduceScatter or Reduce, on the network whose links point the other way: parts go
        from leaves to roots, and are added where they meet.
    gather : Forest or None
        Of the AllGather or Broadcast.
    bytes_per_s : float
        Bytes of the whole buffer over the time that they take without latency: of one forest after
        the other, but of "reduce-broadcast" of both at once; of an all-to-all those of one
        member's.
    latency_s : float
    exchange : AllToAllRouting or None
        Of the all-to-all.
    waves : tuple of Waves
        Of `scatter` and `gather`, those that there are, or of `meeting`; what a link sends hop by
        hop.
    meeting : Meeting or None
    """

    name: str
    scatter: Forest | None
    gather: Forest | None
    bytes_per_s: float
    latency_s: float
    exchange: AllToAllRouting | None = None
    waves: tuple[Waves, ...] = ()
    meeting: Meeting | None = None

    def time(self, size: float) -> float:
        """Return the seconds of a collective of a buffer of so many bytes.

        The less of two: all trees at once at one rate, or hop by hop.
        """
        at_once = size / self.bytes_per_s + self.latency_s
        return min(at_once, sum(each.time(size) for each in self.waves)) if self.waves else at_once


@dataclass(frozen=True)
class CollectiveChoice:
    """Schedules of a collective on a network, and a bound of all.

    Parameters
    ----------
    collective : str
    members : tuple of int
    root : int or None
        Of a Broadcast or Reduce.
    schedules : tuple of CollectiveSchedule
    rate_bound : float
        Bytes per second that no schedule passes.
    latency_bound : float
        Seconds that every schedule takes.
    link_latency_s : float
        The least of a link, which the last byte takes.
    lines : tuple of Line
        What no schedule goes below at any size, see `routing.collectives.bounds`.
    """

    collective: str
    members: tuple[int, ...]
    root: int | None
    schedules: tuple[CollectiveSchedule, ...]
    rate_bound: float
    latency_bound: float
    link_latency_s: float
    lines: tuple[Line, ...]

    def best(self, size: float) -> CollectiveSchedule:
        """Return the fastest schedule of a buffer of so many bytes."""
        return min(self.schedules, key=lambda schedule: schedule.time(size))

    def bound(self, size: float) -> float:
        """Return seconds that no schedule of so many bytes goes below."""
        least = max(size / self.rate_bound + self.link_latency_s, self.latency_bound)
        return max(least, *(seconds + each * size for seconds, each in self.lines))

    def crossings(self) -> list[tuple[float, CollectiveSchedule]]:
        """Return from which size on, in bytes, which schedule is fastest, ascending.

        Sizes up to `LARGEST_SIZE` are looked at, eight per decade; between two of them a schedule
        that is fastest for less than that may be missed.
        """
        now = self.best(1.0)
        found = [(0.0, now)]
        low = 1.0
        for high in np.geomspace(1.0, LARGEST_SIZE, 8 * round(np.log10(LARGEST_SIZE)) + 1).tolist():
            while self._beaten(now, high):
                above = high
                while above > low * (1.0 + _SAME):
                    middle = (low * above) ** 0.5
                    low, above = (low, middle) if self._beaten(now, middle) else (middle, above)
                low, now = above, self.best(above)
                found.append((low, now))
            low = high
        return found

    def _beaten(self, schedule: CollectiveSchedule, size: float) -> bool:
        return schedule.time(size) > self.best(size).time(size) * (1.0 + _SAME)


def choose_schedules(
    network: Network, group: Sequence[int], collective: str, root: int | None = None
) -> CollectiveChoice:
    """Return schedules of a collective: rings, trees of shortest paths, trees of the best rate.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts; the others and switches forward.
    collective : str
        One of `COLLECTIVES`.
    root : int, optional
        The member that has the buffer of a Broadcast, or gets that of a Reduce; with these only.

    Returns
    -------
    CollectiveChoice
        Trees of the best rate are among them for up to `MOST_PACKED` members, unless nodes outside
        the group make them too much work (`routing.collectives.member_links.MOST_WORK`). Where such
        nodes receive and send different capacity, as after a failure, and none are found,
        "joint-trees", which come near to it (`joint_forests`).

    Raises
    ------
    InputError
        If group or collective are none, or the root does not go with them.
    InfeasibleError
        If members cannot reach each other.

    Notes
    -----
    Times are of bytes that are forwarded as they come: all of a buffer over the rate, and the
    latency of the longest way; of trees also hop by hop (`Waves`), where that is faster. An
    AllReduce is a ReduceScatter and then an AllGather, or, as "add-all", an AllGather of whole
    buffers that each member adds by itself, or a `Meeting`; or both at the same time, of shares
    that suit the network ("reduce-broadcast", `routing.collectives.reduce_broadcast`), which is
    sought unless rings are as fast as the bound. Bounds: of an AllGather or Broadcast
    (and, turned, their reverses) the bottleneck cut, see `gather_rate`; of an AllReduce that the
    smallest cut between members is passed by the whole buffer once, and that n members, or parts
    of the network, together send 2 (n - 1) buffers (Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", 2009). Distances and bytes together:
    `routing.collectives.bounds`.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> choice = choose_schedules(ring, range(4), "allreduce")
    >>> choice.best(1e9).time(1e9) >= choice.bound(1e9) > 0.0
    True
    """
    if collective not in COLLECTIVES:
        raise InputError(f"collective is {collective!r}; choose {', '.join(COLLECTIVES)}")
    if (root is None) == (collective in ROOTED):
        raise InputError(
            f"root is {root} for collective {collective!r}; give one for {' and '.join(ROOTED)} "
            "only"
        )
    members = members_of(network, group)
    roots_of(members, root)
    if collective == "all-to-all":
        ways, rate = exchanges(network, members)
        made = tuple(
            CollectiveSchedule(way.name, None, None, way.bytes_per_s, way.latency_s, way)
            for way in ways
        )
        far = distances(network, members)
        lines = shared_lines(far, collective)
        return _choice(collective, members, None, made, rate, lines, network)
    gathers = collective not in ("reduce-scatter", "reduce")
    scatters = collective not in ("allgather", "broadcast")
    back = turned(network)
    sought = Sought(network, members, root)
    gather = sought.forests(network) if gathers else {}
    scatter = {}
    if scatters:
        packed = not gather or "trees" in gather
        alike = bool(gather) and _alike(network, back)
        scatter = dict(gather) if alike else sought.forests(back, packed=packed)
    if gather and scatter and "trees" not in scatter:
        # Trees of the best rate one way only would be no schedule of their own.
        gather.pop("trees", None)
    # One way round several rings may be no faster than one.
    schedules = [
        _schedule(
            name, network, back,
            scatter.get(name, scatter["ring"]) if scatter else None,
            gather.get(name, gather["ring"]) if gather else None,
        )
        for name in dict.fromkeys([*scatter, *gather])
    ]  # fmt: skip
    if collective == "allreduce":
        whole = gather["shortest-trees"]
        waves = waves_of(network, whole).times(len(members))
        schedules.append(
            CollectiveSchedule(
                "add-all", None, whole, whole.bytes_per_s, whole.latency(network), waves=(waves,)
            )
        )
        rate = allreduce_rate(network, members)
        others = []
        rings = max(each.bytes_per_s for each in schedules if each.name in ("ring", "rings"))
        if rings * (1.0 + MOST_LOST) < rate:
            at_once = [_at_once(network, back, *both) for both in sought.reduce_broadcasts()]
            others += sorted(at_once, key=lambda each: mean_time(each.time))[:1]
        if len(members) <= MOST_MET:
            others += [_met(meeting) for meeting in sought.meetings()]
        schedules = _with_faster(schedules, others)
    else:
        best = gather_rate(network if gathers else back, members, root)
        rate = best.bytes_per_s * len(best.roots)
    if root is None:
        lines = shared_lines(distances(network, members), collective)
    else:
        # A Reduce is a Broadcast backwards.
        far = distances(network if gathers else back, members)
        lines = rooted_lines(far, members.index(root))
    return _choice(collective, members, root, schedules, rate, lines, network)


def choose_at_once(
    network: Network, groups: Sequence[Sequence[int]], collective: str
) -> CollectiveChoice:
    """Return schedules of collectives of several groups that start at once on the same links.

    Parameters
    ----------
    network : Network
    groups : sequence of sequence of int
        Hosts of each group, which has a buffer of the same size as the others.
    collective : str
        "allreduce", "allgather" or "reduce-scatter".

    Returns
    -------
    CollectiveChoice
        Times are those until all groups are done.

    Raises
    ------
    InputError
        If there is no group or one is none, or the collective is another.
    InfeasibleError
        If members of a group cannot reach each other.

    Notes
    -----
    "joint-trees" are within 5 % of the best rate of all groups together, unless
    `joint_forests` ends before. The bound of an AllReduce is over a ReduceScatter and an AllGather
    after it.
    """
    if collective not in AT_ONCE:
        raise InputError(
            f"collective is {collective!r} for several groups; choose {', '.join(AT_ONCE)}"
        )
    back = turned(network)
    on = {"allreduce": (back, network), "allgather": (network,)}.get(collective, (back,))
    seconds: dict[str, float] = {}
    latency: dict[str, float] = {}
    least = 0.0
    for there in on:
        joint = joint_forests(there, groups)
        least += 1.0 / joint.rate_bound
        ways = {
            "rings": [
                ring_forest(there, strided_rings(there, group, MOST_RINGS)) for group in groups
            ],
            "shortest-trees": [shortest_forest(there, group) for group in groups],
            JOINT_TREES: joint.forests,
        }
        for name, forests in ways.items():
            seconds[name] = seconds.get(name, 0.0) + 1.0 / rate_at_once(there, forests)
            far = max(forest.latency(there) for forest in forests)
            latency[name] = latency.get(name, 0.0) + far
    made = tuple(
        CollectiveSchedule(name, None, None, 1.0 / seconds[name], latency[name]) for name in seconds
    )
    lines = [
        line
        for group in groups
        for line in shared_lines(distances(network, members_of(network, group)), collective)
    ]
    members = tuple(sorted({member for group in groups for member in group}))
    return _choice(collective, members, None, made, 1.0 / least, lines, network)


def _alike(network: Network, back: Network) -> bool:
    """Return whether every link has one the other way that is as fast."""
    return all(
        np.array_equal(getattr(network, name), getattr(back, name))
        for name in ("source", "target", "capacity", "latency")
    )


def _schedule(
    name: str, network: Network, back: Network, scatter: Forest | None, gather: Forest | None
) -> CollectiveSchedule:
    seconds = latency = 0.0
    waves = []
    for forest, on in ((scatter, back), (gather, network)):
        if forest is not None:
            seconds += 1.0 / forest.whole_bytes_per_s
            latency += forest.latency(on)
            waves.append(waves_of(on, forest))
            if forest.name == JOINT_TREES:
                name = JOINT_TREES
    return CollectiveSchedule(name, scatter, gather, 1.0 / seconds, latency, waves=tuple(waves))


def _at_once(
    network: Network, back: Network, scatter: Forest, gather: Forest
) -> CollectiveSchedule:
    """Return the AllReduce over trees whose sums and whole parts flow at the same time."""
    one = _schedule(REDUCE_BROADCAST, network, back, scatter, gather)
    return replace(one, bytes_per_s=rate_both_ways(network, scatter, gather))


def _met(meeting: Meeting) -> CollectiveSchedule:
    return CollectiveSchedule(
        meeting.name, None, None, meeting.bytes_per_s, meeting.latency_s, waves=(meeting.waves,),
        meeting=meeting,
    )  # fmt: skip


def _with_faster(
    schedules: Sequence[CollectiveSchedule], others: Sequence[CollectiveSchedule]
) -> list[CollectiveSchedule]:
    """Return schedules and those others that are faster than all at some size."""
    everything = [*schedules, *others]
    sizes = np.geomspace(1.0, LARGEST_SIZE, 16 * round(np.log10(LARGEST_SIZE)) + 1)
    best = {id(min(everything, key=lambda each: each.time(size))) for size in sizes.tolist()}
    return [*schedules, *(each for each in others if id(each) in best)]


def _choice(
    collective: str, members: tuple[int, ...], root: int | None,
    schedules: Sequence[CollectiveSchedule], rate: float, lines: Sequence[Line], network: Network,
) -> CollectiveChoice:  # fmt: skip
    return CollectiveChoice(
        collective, members, root, tuple(schedules), rate, max(seconds for seconds, _ in lines),
        float(network.latency.min()), tuple(lines),
    )  # fmt: skip
