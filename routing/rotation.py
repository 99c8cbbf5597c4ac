"""Rotations of hosts that a network does not notice.

A rotation by some hosts, which maps host v on v + step modulo their number, is an automorphism of
a circulant for every step; of rings over a part of the hosts, or of racks below a switch, for some.
Routes over all shortest paths follow it: those of a pair's image are the image of its routes.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from codesign_base.arrays import Ints
from routing.network import Network
from routing.paths import ecmp_routes
from routing.routes import Routes


@dataclass(frozen=True)
class Rotation:
    """A rotation of the hosts that a network does not notice.

    Parameters
    ----------
    hosts : int
        By how many.
    links : int64 array, shape (links,)
        On which link each is mapped.
    """

    hosts: int
    links: Ints

    def first_images(self, pairs: Ints, hosts: int) -> tuple[Ints, Ints]:
        """Return the image of each pair that goes to the first hosts, and rotations from it.

        Parameters
        ----------
        pairs : int64 array
            As ``source * hosts + target``.
        hosts : int
            Of the network.
        """
        source, target = np.divmod(pairs, hosts)
        turns = target // self.hosts
        back = turns * self.hosts
        return (source - back) % hosts * hosts + target - back, turns

    def times(self, count: int) -> "Rotation":
        """Return what comes of rotating so many times, at least once."""
        links, double, left = np.arange(self.links.size), self.links, count
        while left:
            if left % 2:
                links = double[links]
            double, left = double[double], left // 2
        return Rotation(count * self.hosts, links)


def least_rotation(network: Network) -> Rotation | None:
    """Return the rotation of a network by the fewest hosts, or None.

    Parameters
    ----------
    network : Network

    Returns
    -------
    Rotation or None
        By a divisor of the number of hosts, at most half of it; None if there is none.
    """
    hosts = network.hosts
    for step in range(1, hosts // 2 + 1):
        if hosts % step == 0 and (links := rotated_links(network, step)) is not None:
            return Rotation(step, links)
    return None


def rotated_links(network: Network, step: int) -> Ints | None:
    """Return on which link a rotation of the hosts maps each link, or None where it does not.

    Parameters
    ----------
    network : Network
    step : int
        Hosts.

    Returns
    -------
    int64 array, shape (links,), or None
        With the same capacities, latencies and cables. Switches go with what hangs below them, as
        long as each host, and each switch, hangs below one; the others stay.
    """
    hosts = network.hosts
    node = np.arange(network.nodes)
    node[:hosts] = (node[:hosts] + step) % hosts
    level, left = np.arange(hosts), np.arange(network.nodes) >= hosts
    while left.any():
        # What hangs below one switch each carries that along.
        up = np.isin(network.source, level) & left[network.target]
        if not np.array_equal(network.source[up], level):
            break
        above = np.full(network.nodes, -1)
        above[level] = network.target[up]
        node[above[level]] = above[node[level]]
        if not np.array_equal(node[above[level]], above[node[level]]):
            return None
        level = np.unique(above[level])
        left[level] = False
    if not np.array_equal(np.sort(node), np.arange(network.nodes)):
        return None
    keys = network.source * network.nodes + network.target
    image = node[network.source] * network.nodes + node[network.target]
    place = np.minimum(np.searchsorted(keys, image), max(keys.size - 1, 0))
    same = np.array_equal(keys[place], image) and all(
        np.array_equal(values[place], values)
        for values in (network.capacity, network.latency, network.multiplicity)
    )
    return place if same else None


def evenly_routed(network: Network, routes: Routes) -> bool:
    """Whether routes are made on demand over all shortest paths, as `ecmp_routes` does it.

    Parameters
    ----------
    network : Network
    routes : Routes
        None of which are listed yet.
    """
    more = routes.more
    return (
        isinstance(more, partial)
        and more.func is ecmp_routes
        and not more.keywords
        and more.args == (network,)
        and routes.pairs is not None
        and not routes.pairs.size
    )
