"""Routes on unions of "+p" rings: a route is a multiset of generators that sums to a distance.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4, CoinChangeMod. In a union of rings
i -> i + p (mod n) every server sees the same network, so one table of n entries, indexed by
the distance (j - i) mod n, serves every pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from codesign_base.rows import starts
from routing.network import Network
from routing.routes import Routes


@dataclass(frozen=True, eq=False)
class CoinTable:
    """The fewest generators that sum to each distance modulo n.

    Parameters
    ----------
    generators : tuple of int
        Distinct ring steps in 1 .. n-1, in the order given.
    count : int64 array, shape (n,)
        Number of generators used for each distance (the hops); -1 if it cannot be reached.
    coins : int64 array, shape (n, generators)
        How often each generator is used for each distance.
    """

    generators: tuple[int, ...]
    count: Ints
    coins: Ints


def coin_change(servers: int, generators: Sequence[int]) -> CoinTable:
    """Find the fewest ring steps for every distance.

    Parameters
    ----------
    servers : int
        Number of servers n on the rings, at least 2.
    generators : sequence of int
        Distinct ring steps in 1 .. n-1. For bidirectional rings give p and n - p.

    Returns
    -------
    CoinTable

    Raises
    ------
    InputError
        If n or a generator is out of range, or a generator occurs twice.

    Notes
    -----
    Breadth first over distances. Among equally short multisets the one found from the
    earliest distance and generator counts, so the table depends on the order of generators.
    """
    rings = tuple(int(p) for p in generators)
    if servers < 2:
        raise InputError(f"coin change over {counted(servers, 'server')}; give at least 2")
    for p in rings:
        if not 1 <= p < servers:
            raise InputError(f"ring step {p} lies outside 1..{servers - 1}; choose one inside")
    if len(set(rings)) < len(rings):
        raise InputError(f"ring steps {rings} repeat; give each once")
    count = np.full(servers, -1, dtype=np.int64)
    coins = np.zeros((servers, len(rings)), dtype=np.int64)
    count[0] = 0
    reached = [0]
    for distance in reached:
        for index, p in enumerate(rings):
            farther = (distance + p) % servers
            if count[farther] < 0:
                count[farther] = count[distance] + 1
                coins[farther] = coins[distance]
                coins[farther, index] += 1
                reached.append(farther)
    count.setflags(write=False)
    coins.setflags(write=False)
    return CoinTable(rings, count, coins)


def coin_change_routes(
    network: Network,
    generators: Sequence[int],
    places: Sequence[int] | None = None,
    *,
    pairs: Ints | None = None,
) -> Routes:
    """Route every pair of a circulant network by its coin-change path.

    Parameters
    ----------
    network : Network
        Without switches; must have every link i -> i + p (mod hosts). It may have more links.
    generators : sequence of int
        As in `coin_change`.
    places : sequence of int, optional
        The host at each place of the rings; i and i + p above are places. By default host i is
        at place i.
    pairs : int64 array, optional
        The pairs to route, ascending; by default all.

    Returns
    -------
    Routes
        One path a pair, steps in the order of ``generators``.

    Raises
    ------
    InputError
        If the network has switches or lacks a ring link, a generator is out of range, or the
        places are no permutation of the hosts.
    InfeasibleError
        If the generators do not reach every distance (they share a factor with n).
    """
    n = network.hosts
    if network.switches:
        raise InputError(
            f"network {network.name!r} has {counted(network.switches, 'switch', 'switches')}; "
            "coin-change routes need hosts joined directly"
        )
    table = coin_change(n, generators)
    if table.count.min() < 0:
        distance = int(np.argmin(table.count))
        raise InfeasibleError(
            f"ring steps {table.generators} never sum to {distance} modulo {n}; "
            "add a step that is coprime to the number of servers"
        )
    start = np.arange(n, dtype=np.int64)
    host = start if places is None else np.array(places, dtype=np.int64)
    if not np.array_equal(np.sort(host), start):
        raise InputError(f"ring places {host.tolist()} must name each of {n} hosts once")
    place = np.argsort(host)
    ring_links = _ring_links(network, table.generators, host)
    asked = np.arange(n * n) if pairs is None else pairs
    distances = (place[asked % n] - place[asked // n]) % n
    lengths = table.count[distances]
    offsets = starts(lengths)
    links = np.empty(int(offsets[-1]), dtype=np.int64)
    latency = np.zeros(asked.size)
    order = np.argsort(distances, kind="stable")
    edges = np.searchsorted(distances[order], np.arange(n + 1))
    for distance in np.unique(distances).tolist():
        row = order[edges[distance] : edges[distance + 1]]
        path = np.empty((row.size, int(table.count[distance])), dtype=np.int64)
        at = place[asked[row] // n]
        column = 0
        for index, p in enumerate(table.generators):
            for _ in range(int(table.coins[distance, index])):
                path[:, column] = ring_links[index, at]
                at = (at + p) % n
                column += 1
        latency[row] = network.latency[path].sum(axis=1)
        path.sort(axis=1)
        links[offsets[row][:, None] + np.arange(path.shape[1])] = path
    hops = lengths.astype(np.float64)
    return Routes(n, offsets, links, np.ones(links.size), latency, hops, pairs)


def _ring_links(network: Network, generators: tuple[int, ...], host: Ints) -> Ints:
    """Return the link i -> i + p for each generator and place, shape (generators, hosts)."""
    n = network.hosts
    start = np.arange(n, dtype=np.int64)
    keys = network.source * n + network.target
    found = np.empty((len(generators), n), dtype=np.int64)
    for index, p in enumerate(generators):
        wanted = host * n + host[(start + p) % n]
        position = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        missing = keys[position] != wanted if keys.size else np.ones(n, dtype=np.bool_)
        if missing.any():
            at = int(np.flatnonzero(missing)[0])
            raise InputError(
                f"network {network.name!r} has no link {host[at]}->{host[(at + p) % n]}, so it is "
                f"not a union of rings {generators}; leave out ring step {p}"
            )
        found[index] = position
    return found
