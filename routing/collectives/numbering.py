"""Nodes numbered by structure, so that what is found does not depend on how hosts are called.

Where links, roots or members are alike, a search takes the lowest number. So it is done in an
order that follows the network: colours of nodes are refined by those of their neighbours until
none parts any more, then each node of the smallest colour left is given one of its own in turn, and
the one is kept that is told apart from the others best (McKay, "Practical graph isomorphism",
1981, of whose tree of choices one way is gone). Choices that are told apart nowhere are, but
for rare regular networks, alike: any of them gives the same numbered network.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Ints
from codesign_base.rows import starts
from routing.circulant_flow import is_circulant
from routing.collectives.meeting import Meeting
from routing.collectives.trees import Forest, Tree
from routing.network import Network, NodePath

_Hashes = npt.NDArray[np.uint64]

MOST_NUMBERED = 128
"""Members up to which results do not depend on how nodes are numbered."""

# So many numberings are tried, and of n nodes no more than this over n squared.
_MOST_TRIED = 8
_TRIED = 2**16
_SIZES = np.geomspace(1.0, 1e12, 49).tolist()  # whose mean decides
# Entries of tables of colours that are refined at once.
_AT_ONCE = 1 << 20
_SHUFFLED = 2023


@dataclass(frozen=True)
class Numbering:
    """A network whose nodes and links have other numbers.

    Parameters
    ----------
    network : Network
        The numbered one.
    nodes : int64 array, shape (nodes,)
        Given number of each of its nodes.
    links : int64 array, shape (links,)
        Given number of each of its links.
    """

    network: Network
    nodes: Ints
    links: Ints

    @property
    def is_given(self) -> bool:
        """Whether all nodes have the numbers that they are given."""
        return bool((self.nodes == np.arange(self.nodes.size)).all())

    def numbers(self, nodes: Sequence[int]) -> list[int]:
        """Return the numbers here of nodes by their given ones."""
        return [int(each) for each in np.argsort(self.nodes)[list(nodes)]]

    def paths(self, paths: Iterable[NodePath]) -> list[NodePath]:
        """Return paths of the numbered network by given numbers."""
        given = self.nodes.tolist()
        return [tuple([given[node] for node in path]) for path in paths]

    def forest(self, forest: Forest) -> Forest:
        """Return a forest of the numbered network by given numbers."""
        if self.is_given:
            return forest
        return replace(
            forest,
            members=tuple(sorted(self.nodes[list(forest.members)].tolist())),
            trees=tuple(
                Tree(int(self.nodes[tree.root]), tree.copies, tuple(self.paths(tree.paths)))
                for tree in forest.trees
            ),
        )

    def meeting(self, meeting: Meeting) -> Meeting:
        """Return a meeting of the numbered network by given numbers."""
        if self.is_given:
            return meeting
        messages = meeting.messages.copy()
        origin = messages[:, 2]
        messages[:, 2] = np.where(origin < 0, origin, self.nodes[origin])
        return replace(
            meeting,
            members=tuple(sorted(self.nodes[list(meeting.members)].tolist())),
            messages=messages,
            ends=self.nodes[meeting.ends],
            links=self.links[meeting.links].astype(meeting.links.dtype),
        )


def orders(network: Network, members: Sequence[int], root: int | None = None) -> list[Ints]:
    """Return numbers for the nodes of a network that follow its structure, not those they have.

    Parameters
    ----------
    network : Network
    members : sequence of int
        Hosts that are told apart from others.
    root : int, optional
        A member that is told apart from the others.

    Returns
    -------
    list of int64 array, shape (nodes,)
        Hosts before switches. The first is around a circulant; the next breadth first; then so that
        of as near nodes those go first whose neighbours do (Rose et al., "Algorithmic aspects of
        vertex elimination on graphs", 1976), which on tori and hypercubes is as even as numbers by
        coordinates. Others are shuffled. Where there is time for few, a circulant keeps the numbers
        that make it one. Of more than `MOST_NUMBERED` members only the given ones.
    """
    if len(members) > MOST_NUMBERED:
        return [np.arange(network.nodes)]
    count = min(_MOST_TRIED, max(1, _TRIED // network.nodes**2))
    first = _by_structure(network, members, root)
    draw = np.random.default_rng(_SHUFFLED)
    kept = count < _MOST_TRIED and is_circulant(network)
    circle = np.arange(network.nodes) if kept else around(network, members, root)
    found = [] if circle is None else [circle]
    found += [_outward(network, first, 1), _outward(network, first, network.nodes)]
    while len(found) < count:
        hosts, switches = draw.permutation(network.hosts), draw.permutation(network.switches)
        found.append(np.concatenate((hosts, network.hosts + switches))[first])
    return found[:count]


def mean_time(time: Callable[[float], float]) -> float:
    """Return the mean of the logarithms of the times of all sizes, by which schedules are judged.

    Parameters
    ----------
    time : callable
        Seconds of so many bytes.
    """
    return float(np.log([time(size) for size in _SIZES]).mean())


def _outward(network: Network, numbers: Ints, most: int) -> Ints:
    """Return numbers outward from the first node, by so many earlier neighbours at most."""
    count = network.nodes
    beside: list[set[int]] = [set() for _ in range(count)]
    for a, b in zip(network.source.tolist(), network.target.tolist(), strict=True):
        beside[a].add(b)
        beside[b].add(a)
    waiting: dict[int, list[int]] = {int(node): [] for node in np.argsort(numbers)}
    seen: list[int] = []
    while waiting:
        node = max(waiting, key=waiting.__getitem__)  # of equal ones that of the least number
        del waiting[node]
        for other in beside[node]:
            if other in waiting and len(waiting[other]) < most:
                waiting[other].append(count - len(seen))
        seen.append(node)
    found = np.empty(count, dtype=np.int64)
    found[sorted(seen, key=lambda node: node >= network.hosts)] = np.arange(count)
    return found


def around(network: Network, members: Sequence[int] = (), root: int | None = None) -> Ints | None:
    """Return numbers in which moving all hosts on by one leaves the links as they are.

    Parameters
    ----------
    network : Network
    members : sequence of int
    root : int, optional

    Returns
    -------
    int64 array, shape (nodes,) or None
        Of several such numbers, those with the shortest strides, then of the members and the root.
        None where there are none, or switches, no link that leads on to all hosts, or moves that
        two hosts do not tell apart.
    """
    count = network.hosts
    if network.switches or network.links % count or not network.links:
        return None
    after = [network.target[network.source == host].tolist() for host in range(count)]
    pairs = [(0, one) for one in after[0]]
    pairs += [(one, two) for one in after[0] for two in after[one]]
    place = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
    colour = np.full((len(place), count), 2, dtype=np.int64)
    for (one, two), at in place.items():
        colour[at, one], colour[at, two] = 0, 1
    colour, marks = _Links(network).refined(colour)
    best = None
    for one in after[0]:
        here = place[0, one]
        for two in after[one]:
            there = place[one, two]
            if marks[here] != marks[there] or colour[here].max() + 1 < count:
                continue
            move = np.argsort(colour[there])[colour[here]]
            walk = [0]
            while len(walk) < count and move[walk[-1]] != 0:
                walk.append(int(move[walk[-1]]))
            if len(walk) < count:
                continue
            numbers = np.argsort(np.array(walk))
            stride = (numbers[network.target] - numbers[network.source]) % count
            links = np.column_stack((stride, network.capacity, network.latency))
            kinds, found = np.unique(links, axis=0, return_counts=True)
            if (found != count).any() or (best is not None and kinds.tolist() > best[0][0]):
                continue
            for begin in numbers[list(members)].tolist() or [0]:
                moved = (numbers - begin) % count
                rest = sorted(moved[list(members)].tolist())
                key = kinds.tolist(), rest, 0 if root is None else int(moved[root])
                if best is None or key < best[0]:
                    best = key, moved
    return None if best is None else best[1]


def renumbered(network: Network, numbers: Ints) -> Numbering:
    """Return a network in which each node has the number that it is given."""
    source, target = numbers[network.source], numbers[network.target]
    order = np.lexsort((target, source))
    other = replace(
        network, source=source[order], target=target[order], capacity=network.capacity[order],
        latency=network.latency[order], multiplicity=network.multiplicity[order],
    )  # fmt: skip
    return Numbering(other, np.argsort(numbers), order)


def _by_structure(network: Network, members: Sequence[int], root: int | None) -> Ints:
    """Return a number of each node, hosts first, that does not depend on those it has."""
    colour = np.full(network.nodes, 2, dtype=np.int64)
    colour[list(members)] = 1
    colour[network.hosts :] = 3
    if root is not None:
        colour[root] = 0
    links = _Links(network)
    colour = np.asarray(links.refined(colour.reshape(1, -1))[0][0], dtype=np.int64)
    while True:
        sizes = np.bincount(colour)
        if sizes.size == network.nodes:
            return colour
        # The smallest of more than one node: few to try.
        cell = int(np.where(sizes > 1, sizes, network.nodes + 1).argmin())
        nodes = np.flatnonzero(colour == cell)
        least: tuple[int, Ints] | None = None
        step = max(1, _AT_ONCE // max(1, network.links))
        for begin in range(0, nodes.size, step):
            some = nodes[begin : begin + step]
            tried = np.repeat(2 * colour[None, :] + 1, some.size, axis=0)
            tried[np.arange(some.size), some] -= 1
            after, marks = links.refined(tried)
            at = int(marks.argmin())
            if least is None or marks[at] < least[0]:
                least = int(marks[at]), after[at]
        assert least is not None
        colour = least[1]


class _Links:
    """Links of a network, by which colours of nodes are refined."""

    def __init__(self, network: Network) -> None:
        pairs = np.column_stack((network.capacity, network.latency))
        same = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        kind: _Hashes = same.astype(np.uint64)
        self.ways = []
        for here, there in ((network.source, network.target), (network.target, network.source)):
            order = np.argsort(here, kind="stable")
            bounds = starts(np.bincount(here, minlength=network.nodes))
            self.ways.append((bounds, there[order], _mixed(kind[order])))

    def refined(self, colour: Ints) -> tuple[Ints, _Hashes]:
        """Return the coarsest colours, in rows, that neighbours do not part; a mark of each row.

        Rows whose colours have the same pattern of links have the same mark.
        """
        rows, nodes = colour.shape
        take = np.take_along_axis
        count = -1
        while True:
            key = np.zeros((rows, nodes), dtype=np.uint64)
            mixed = _mixed(colour.astype(np.uint64))
            for bounds, there, kind in self.ways:
                each = _mixed(mixed[:, there] + kind)
                total = np.zeros((rows, there.size + 1), dtype=np.uint64)
                np.cumsum(each, axis=1, out=total[:, 1:])
                key = _mixed(key + total[:, bounds[1:]] - total[:, bounds[:-1]])
            order = np.argsort(key, axis=1, kind="stable")
            order = take(order, np.argsort(take(colour, order, 1), axis=1, kind="stable"), 1)
            sorted_key, sorted_colour = take(key, order, 1), take(colour, order, 1)
            parted = (np.diff(sorted_key, axis=1) != 0) | (np.diff(sorted_colour, axis=1) != 0)
            ranks = np.zeros((rows, nodes), dtype=np.int64)
            np.cumsum(parted, axis=1, out=ranks[:, 1:])
            each = _mixed(sorted_key + _mixed(ranks.astype(np.uint64)))
            marks: _Hashes = each.sum(axis=1, dtype=np.uint64)
            colour = np.empty_like(ranks)
            np.put_along_axis(colour, order, ranks, 1)
            if int(ranks[:, -1].sum()) == count:
                return colour, marks
            count = int(ranks[:, -1].sum())


def _mixed(values: _Hashes) -> _Hashes:
    """Return numbers that look random, the same of the same (Steele et al., "SplitMix", 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
