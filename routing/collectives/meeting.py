"""AllReduce by members that meet: few add up their neighbours, send sums to few, who pass them on.

A buffer has several parts, and for each part some members gather and some spread. First every
member's part goes to a gatherer near it, and is added on the way. Then every gatherer sends its
sum to all spreaders, each of which adds what it gets; last each spreader passes the sum on to
members near it. Where all gather and spread, every member sends its buffer to all: few hops and
many bytes. With one member of each part that does both, it is a ReduceScatter and then an
AllGather: few bytes and twice the hops. Others are in between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.rows import starts
from routing.collectives.rate import members_of
from routing.collectives.waves import Waves
from routing.network import Network

MOST_MESSAGES = 1_500_000
"""About as many make up a schedule; more parts would share out links more evenly."""
_SWEEPS = 4
# Numbers of hops that are tried, and the bytes of buffers and parts that meetings are judged by.
_MOST_HOPS = 10
_JUDGED = 1e2, 1e8
_JUDGED_PARTS = 2

GATHER, EXCHANGE, SPREAD = 0, 1, 2

_Part = tuple[Ints, Ints, Ints, SmallInts, Ints]


@dataclass(frozen=True)
class Meeting:
    """An AllReduce in which gatherers add and spreaders pass on.

    Parameters
    ----------
    name : str
    members : tuple of int
        Hosts, ascending.
    parts : int
        Into which a buffer is divided equally.
    messages : int64 array, shape (messages, 4)
        Of each message its part, its kind (`GATHER`, `EXCHANGE` or `SPREAD`), the gatherer whose
        sum it is (of an exchange, otherwise -1), and the wave of its first hop. Those of a part
        are in an order in which they can be sent; what waits for others is in a later wave.
    ends : int64 array, shape (messages, 2)
        Members that each message is from and to.
    offsets, links : int64 arrays
        Message i passes the links ``links[offsets[i]:offsets[i + 1]]`` of the network, one a wave.
    waves : Waves
    bytes_per_s : float
        Of the buffer, where all is forwarded as it comes.
    """

    name: str
    members: tuple[int, ...]
    parts: int
    messages: Ints
    ends: Ints
    offsets: Ints
    links: SmallInts
    waves: Waves
    bytes_per_s: float

    @property
    def latency_s(self) -> float:
        """Seconds of all hops that follow each other."""
        return float(sum(self.waves.latency_s))


class Meetings:
    """Meetings of one group on one network.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts; the others and switches forward.

    Raises
    ------
    InputError
        If the group is none.
    InfeasibleError
        If members cannot reach each other.
    """

    def __init__(self, network: Network, group: Sequence[int]) -> None:
        self.network = network
        self.members = np.array(members_of(network, group), dtype=np.int64)
        self.nodes = network.hosts + network.switches
        self.out = _hops(network.source, network.target, self.members, self.nodes)
        self.into = _hops(network.target, network.source, self.members, self.nodes)
        between = self.out[np.ix_(self.members, self.members)]
        if (between < 0).any():
            a, b = self.members[np.argwhere(between < 0)[0]].tolist()
            raise InfeasibleError(
                f"network {network.name!r}: host {b} cannot be reached from host {a}; choose a "
                "group that is connected both ways"
            )
        self.between = between
        self.farthest = int(between.max())
        most = float(network.capacity.max())
        self.cost = most / network.capacity
        self.second = 1.0 / most
        self.member = np.zeros(self.nodes, dtype=np.int64)
        self.member[self.members] = 1
        # Links into a node lead to where a copy comes from, those out of it to where a sum goes.
        self.up_out = _rows(network.target, network.source, self.nodes)
        self.up_into = _rows(network.source, network.target, self.nodes)

    def meeting(self, near: int, far: int) -> Meeting:
        """Return the meeting whose gatherers are near all members, and whose spreaders are.

        Parameters
        ----------
        near : int
            Hops within which every member has a gatherer of each part, at least one.
        far : int
            Hops within which every member is reached from a spreader of each part.

        Returns
        -------
        Meeting
        """
        from routing.collectives.meeting_kernels import level

        first, about, ends, bounds, links, spreads = self._together(near, far, self.members.size)
        start = level(
            first, about, ends, bounds, links, spreads, *self.up_into, *self.up_out, self.member,
            self.cost, _SWEEPS,
        )  # fmt: skip
        parts = first.size - 1
        waves, rate = meeting_waves(self.network, parts, start, bounds, links)
        return Meeting(
            name=f"meeting-{near}-{far}",
            members=tuple(self.members.tolist()),
            parts=parts,
            messages=np.column_stack((np.repeat(np.arange(parts), np.diff(first)), about, start)),
            ends=ends,
            offsets=bounds,
            links=links,
            waves=waves,
            bytes_per_s=rate,
        )

    def chosen(self) -> list[Meeting]:
        """Return meetings that are fastest at some size, judged by their first parts.

        Returns
        -------
        list of Meeting
            Those that wait for fewer messages first.
        """
        hops = np.unique(np.geomspace(1, self.farthest, _MOST_HOPS).round().astype(np.int64))
        some = [
            (near, far)
            for near in hops.tolist()
            for far in [0, *hops[2 * hops >= near].tolist()]
            if far <= near and (near < self.farthest or far == near)
        ]
        found = [(*self._judged(near, far), near, far) for near, far in some]
        best = dict.fromkeys(
            min(found, key=lambda each: (each[0] + max(0.0, each[1] * size - each[0]), each))
            for size in np.geomspace(*_JUDGED, 61).tolist()
        )
        return [self.meeting(near, far) for *_, near, far in sorted(best)]

    def _judged(self, near: int, far: int) -> tuple[float, float]:
        """Return the seconds of all waves, and those that links take for a byte on the mean."""
        from routing.collectives.meeting_kernels import level

        first, about, ends, bounds, links, spreads = self._together(near, far, _JUDGED_PARTS)
        start = level(
            first, about, ends, bounds, links, spreads, *self.up_into, *self.up_out, self.member,
            self.cost, 0,
        )  # fmt: skip
        waves = int((start + np.diff(bounds)).max())
        used = np.bincount(links, self.cost[links], self.cost.size)
        mean = float(used[used > 0.0].mean()) * self.second / (first.size - 1)
        return waves * float(self.network.latency.max()), mean

    def _together(
        self, near: int, far: int, most: int
    ) -> tuple[Ints, Ints, Ints, Ints, SmallInts, Ints]:
        """Return messages of all parts, so many at most, and their spreaders."""
        parts = list(islice(self._parts(near, far), most))
        about, ends, lengths, links, spreads = zip(*parts, strict=True)
        return (
            starts([each.shape[0] for each in about]), np.concatenate(about),
            np.concatenate(ends), starts(np.concatenate(lengths)), np.concatenate(links),
            np.stack(spreads),
        )  # fmt: skip

    def _parts(self, near: int, far: int) -> Iterator[_Part]:
        """Yield messages of each part, as `part_messages` writes them, and its spreaders."""
        load = np.zeros(self.cost.size)
        messages = 0
        for part, (gatherers, spreaders) in enumerate(self._places(near, far)):
            if part > 1 and messages * (part + 1) > MOST_MESSAGES * part:
                return
            found = self._part(gatherers, spreaders, load)
            messages += found[0].shape[0]
            spreads = np.zeros(self.nodes, dtype=np.int64)
            spreads[spreaders] = 1
            yield (*found, spreads)

    def _places(self, near: int, far: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield gatherers and spreaders of each part; all members take turns."""
        from routing.collectives.meeting_kernels import cover

        size = self.members.size
        gathers = self.between <= near
        spreads = np.ascontiguousarray((self.between <= far).T)
        used = np.zeros((2, size), dtype=np.int64)
        for part in range(size):
            turn = (np.arange(size) - part) % size
            first = cover(gathers, used[0] * size + turn)
            # A gatherer that also spreads sends itself nothing.
            apart = np.ones(size, dtype=np.int64)
            apart[first] = 0
            last = cover(spreads, apart * size * size + used[1] * size + turn)
            used[0, first] += 1
            used[1, last] += 1
            yield self.members[first], self.members[last]

    def _part(
        self, gatherers: Ints, spreaders: Ints, load: Floats
    ) -> tuple[Ints, Ints, Ints, SmallInts]:
        """Return kinds, ends, hops and links of the messages of a part."""
        from routing.collectives.meeting_kernels import part_messages

        most = self.members.size * (gatherers.size + 2)
        longest = 1 if self.members.size == self.nodes else self.farthest
        about, ends = np.empty((most, 2), dtype=np.int64), np.empty((most, 2), dtype=np.int64)
        bounds, links = np.empty(most + 1, np.int64), np.empty(most * longest, np.int32)
        count = part_messages(
            self.into, self.out, gatherers, spreaders, *self.up_into, *self.up_out, self.member,
            self.cost, load, ends, about, bounds, links,
        )  # fmt: skip
        return (
            about[:count].copy(), ends[:count].copy(), np.diff(bounds[: count + 1]),
            links[: bounds[count]].copy(),
        )  # fmt: skip


def meeting_waves(
    network: Network, parts: int, start: Ints, bounds: Ints, links: SmallInts
) -> tuple[Waves, float]:
    """Return what links carry in each wave, and the rate where all is forwarded as it comes.

    Parameters
    ----------
    network : Network
    parts : int
        Into which a buffer is divided equally.
    start : int64 array, shape (messages,)
        Wave of the first hop of each message.
    bounds, links : arrays
        Message i passes ``links[bounds[i]:bounds[i + 1]]``, one a wave.

    Returns
    -------
    waves : Waves
    bytes_per_s : float
        Of the buffer.
    """
    hops = np.diff(bounds)
    wave = np.repeat(start - bounds[:-1], hops) + np.arange(links.size)
    count = network.source.size
    carried = np.bincount(wave * count + links, minlength=(int(wave.max()) + 1) * count)
    carried = carried.reshape(-1, count)
    seconds = carried / (parts * network.capacity)
    latency = np.where(carried > 0, network.latency, 0.0)
    waves = Waves(tuple(seconds.max(axis=1).tolist()), tuple(latency.max(axis=1).tolist()))
    return waves, 1.0 / float(seconds.sum(axis=0).max())


def _rows(here: Ints, above: Ints, nodes: int) -> tuple[Ints, Ints, Ints]:
    """Return the links at each node and their other ends, as rows."""
    order = np.argsort(here, kind="stable")
    return starts(np.bincount(here, minlength=nodes)), order, above[order]


def _hops(source: Ints, target: Ints, members: Ints, nodes: int) -> Ints:
    """Return the hops from members, in their rows, to all nodes; -1 where none lead there."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    graph = csr_array((np.ones(source.size), (source, target)), shape=(nodes, nodes))
    found = np.full((nodes, nodes), -1, dtype=np.int64)
    far = dijkstra(graph, indices=members, unweighted=True)
    found[members] = np.where(np.isfinite(far), far, -1.0).astype(np.int64)
    return found
