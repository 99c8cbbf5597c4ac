"""Which schedule of a collective is fastest at which size, and how fast any could be."""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from codesign_base import InputError
from routing.collectives.cuts import Cuts
from routing.collectives.exchange import Exchange, exchanges
from routing.collectives.forest import gather_forest
from routing.collectives.rate import gather_rate, members_of, roots_of, whole_capacities
from routing.collectives.rings import ring_forest, strided_rings
from routing.collectives.shortest import shortest_forest
from routing.collectives.trees import Forest, turned
from routing.network import Network

MOST_RINGS = 8
_SAME = 1e-9  # rates that differ by less are the same number, rounded in another order
MOST_PACKED = 128
"""Members that trees of the best rate are made for: the work grows with their cube."""

COLLECTIVES = (
    "allreduce", "allgather", "reduce-scatter", "broadcast", "reduce", "all-to-all",
)  # fmt: skip
ROOTED = ("broadcast", "reduce")
"""Collectives from one member, or to one."""


@dataclass(frozen=True)
class Schedule:
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
        Bytes of the whole buffer over the time that they take without latency; of an all-to-all
        those of one member's.
    latency_s : float
    exchange : Exchange or None
        Of the all-to-all.
    """

    name: str
    scatter: Forest | None
    gather: Forest | None
    bytes_per_s: float
    latency_s: float
    exchange: Exchange | None = None

    def time(self, size: float) -> float:
        """Return the seconds of a collective of a buffer of so many bytes."""
        return size / self.bytes_per_s + self.latency_s


@dataclass(frozen=True)
class Choice:
    """Schedules of a collective on a network, and a bound of all.

    Parameters
    ----------
    collective : str
    members : tuple of int
    root : int or None
        Of a Broadcast or Reduce.
    schedules : tuple of Schedule
    rate_bound : float
        Bytes per second that no schedule passes.
    latency_bound : float
        Seconds that every schedule takes.
    """

    collective: str
    members: tuple[int, ...]
    root: int | None
    schedules: tuple[Schedule, ...]
    rate_bound: float
    latency_bound: float

    def best(self, size: float) -> Schedule:
        """Return the fastest schedule of a buffer of so many bytes."""
        return min(self.schedules, key=lambda schedule: schedule.time(size))

    def bound(self, size: float) -> float:
        """Return seconds that no schedule of so many bytes goes below."""
        return max(size / self.rate_bound, self.latency_bound)

    def crossings(self) -> list[tuple[float, Schedule]]:
        """Return from which size on, in bytes, which schedule is fastest, ascending."""
        size = 0.0
        found = [(size, min(self.schedules, key=lambda s: (s.latency_s, -s.bytes_per_s)))]
        while True:
            now = found[-1][1]
            later = []
            for other in self.schedules:
                gain = 1.0 / now.bytes_per_s - 1.0 / other.bytes_per_s
                if gain > _SAME / now.bytes_per_s:
                    later.append(((other.latency_s - now.latency_s) / gain, other))
            later = [(at, other) for at, other in later if at >= size]
            if not later:
                return found
            size, following = min(later, key=lambda one: (one[0], -one[1].bytes_per_s))
            found.append((size, following))


def choose_schedules(
    network: Network, group: Sequence[int], collective: str, root: int | None = None
) -> Choice:
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
    Choice
        Trees of the best rate are among them for up to `MOST_PACKED` members.

    Raises
    ------
    InputError
        If group or collective are none, or the root does not go with them.
    InfeasibleError
        If members cannot reach each other, or no trees of the best rate are found.

    Notes
    -----
    Times are of bytes that are forwarded as they come: all of a buffer over the rate, and the
    latency of the longest way. An AllReduce is a ReduceScatter and then an AllGather, or, as
    "add-all", an AllGather of whole buffers that each member adds by itself. Bounds: of
    an AllGather or Broadcast (and, turned, their reverses) the bottleneck cut, see `gather_rate`;
    of an
    AllReduce that the smallest cut between members is passed by the whole buffer once, and that
    members together send 2 (n - 1) buffers (Patarasuk and Yuan, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", 2009). Latency: the longest distance of two members,
    or of one from the root.
    """
    if collective not in COLLECTIVES:
        raise InputError(f"collective is {collective!r}; choose {', '.join(COLLECTIVES)}")
    if (root is None) == (collective in ROOTED):
        raise InputError(
            f"root is {root} for collective {collective!r}; give one for {' and '.join(ROOTED)} "
            "only"
        )
    members = members_of(network, group)
    if collective == "all-to-all":
        ways, rate = exchanges(network, members)
        made = tuple(
            Schedule(way.name, None, None, way.bytes_per_s, way.latency_s, way) for way in ways
        )
        return Choice(collective, members, None, made, rate, _farthest(network, members, None))
    gathers = collective not in ("reduce-scatter", "reduce")
    scatters = collective not in ("allgather", "broadcast")
    back = turned(network)
    scatter = _forests(back, members, root) if scatters else {}
    gather = _forests(network, members, root) if gathers else {}
    schedules = [
        _schedule(name, network, back, scatter.get(name), gather.get(name))
        for name in dict.fromkeys([*scatter, *gather])
    ]
    if collective == "allreduce":
        whole = gather["shortest-trees"]
        schedules.append(
            Schedule("add-all", None, whole, whole.bytes_per_s, whole.latency(network))
        )
        rate = _allreduce_rate(network, members)
    else:
        best = gather_rate(network if gathers else back, members, root)
        rate = best.bytes_per_s * len(best.roots)
    far = _farthest(network if gathers else back, members, root)
    return Choice(collective, members, root, tuple(schedules), rate, far)


def _forests(network: Network, members: Sequence[int], root: int | None) -> dict[str, Forest]:
    found = [ring_forest(network, strided_rings(network, members, 1), root)]
    orders = strided_rings(network, members, MOST_RINGS)
    if len(orders) > 1:
        found.append(ring_forest(network, orders, root))
    found.append(shortest_forest(network, members, root))
    if len(members) <= MOST_PACKED:
        found.append(gather_forest(network, members, root))
    return {forest.name: forest for forest in found}


def _schedule(
    name: str, network: Network, back: Network, scatter: Forest | None, gather: Forest | None
) -> Schedule:
    seconds = latency = 0.0
    for forest, on in ((scatter, back), (gather, network)):
        if forest is not None:
            seconds += 1.0 / forest.whole_bytes_per_s
            latency += forest.latency(on)
    return Schedule(name, scatter, gather, 1.0 / seconds, latency)


def _allreduce_rate(network: Network, members: Sequence[int]) -> float:
    """Return the bytes per second that no AllReduce passes."""
    unit, capacity = whole_capacities(network)
    cuts, first = Cuts(capacity), members[0]
    least = min(min(cuts.value(first, m), cuts.value(m, first)) for m in members[1:])
    inside = set(members)
    sent = sum(amount for (a, _), amount in capacity.items() if a in inside)
    return min(float(least), sent / (2.0 * (len(members) - 1))) * unit


def _farthest(network: Network, members: tuple[int, ...], root: int | None) -> float:
    """Return the largest distance of two members, or of one from the root, in seconds."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    for (a, b), seconds in zip(ends, network.latency.tolist(), strict=True):
        graph.add_edge(a, b, weight=seconds)
    most = 0.0
    for member in roots_of(members, root):
        far = nx.single_source_dijkstra_path_length(graph, member)
        most = max(most, *(far[other] for other in members))
    return most
