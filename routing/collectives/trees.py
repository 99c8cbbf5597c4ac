"""Broadcast trees of all members of a group, and how long collectives over them take."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from codesign_base.arrays import Floats
from routing.network import Network


@dataclass(frozen=True)
class Tree:
    """Copies of a broadcast from one member to all others.

    Parameters
    ----------
    root : int
    copies : int
        Units that it carries.
    paths : tuple of tuple of int
        Nodes from a member that has the data already to one that has not, in an order in which
        they can be sent.
    """

    root: int
    copies: int
    paths: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Forest:
    """Broadcast trees to a group, all at once: of all members an AllGather, of one a Broadcast.

    The same trees from their leaves to their roots are a ReduceScatter, or a Reduce, of the
    network whose links point the other way.

    Parameters
    ----------
    name : str
    members : tuple of int
        Hosts, ascending.
    bytes_per_s : float
        Of a part's broadcast.
    units : int
        A tree carries ``copies / units`` of a part. Each root has a part of its own; or, where
        their shares differ (`routing.collectives.reduce_broadcast`), all have one together.
    trees : tuple of Tree
    """

    name: str
    members: tuple[int, ...]
    bytes_per_s: float
    units: int
    trees: tuple[Tree, ...]

    @property
    def whole_bytes_per_s(self) -> float:
        """Bytes per second of all roots' broadcasts together."""
        return self.bytes_per_s * (self.copies // self.units)

    @property
    def copies(self) -> int:
        """Copies of all trees, which carry all parts."""
        return sum(tree.copies for tree in self.trees)

    def latency(self, network: Network) -> float:
        """Return the longest time that the first byte takes from a root to a member, in seconds."""
        most = 0.0
        link = of_links(network, network.latency)
        for tree in self.trees:
            when = {tree.root: 0.0}
            for path in tree.paths:
                way = sum(link[pair] for pair in pairwise(path))
                when[path[-1]] = when[path[0]] + way
            most = max(most, *when.values())
        return most


def shared_rate(network: Network, trees: Iterable[Tree], units: int) -> float:
    """Return the rate of each member's broadcast where trees share links.

    Parameters
    ----------
    network : Network
    trees : iterable of Tree
    units : int
        As in `Forest`.

    Returns
    -------
    float
        Bytes per second.
    """
    load: dict[tuple[int, int], int] = {}
    for tree in trees:
        for path in tree.paths:
            for pair in pairwise(path):
                load[pair] = load.get(pair, 0) + tree.copies
    capacity = of_links(network, network.capacity)
    return float(min(capacity[pair] * units / amount for pair, amount in load.items()))


def turned(network: Network) -> Network:
    """Return the network whose links point the other way."""
    order = np.lexsort((network.source, network.target))
    return replace(
        network, source=network.target[order], target=network.source[order],
        capacity=network.capacity[order], latency=network.latency[order],
        multiplicity=network.multiplicity[order],
    )  # fmt: skip


def of_links(network: Network, values: Floats) -> dict[tuple[int, int], float]:
    """Return a value of each link by its ends."""
    ends = zip(network.source.tolist(), network.target.tolist(), strict=True)
    return dict(zip(ends, values.tolist(), strict=True))
