"""Regular networks of short paths, annealed under a rotation, that fall into AllReduce rings.

The servers fall into a few orbits: server i + r p is server i turned p times, for r orbits, and
links turn with them. So breadth-first searches from one server of each orbit measure a network,
and exchanging the ends of two orbits of links makes another. With one orbit the network is
circulant; with more, orbits need not commute, and paths come close to the Moore bound.

References
----------
N. Shimizu and R. Mori, "Average shortest path length of graphs of diameter 3", 2016, and the
entries of the Graph Golf competition (T. Fujiwara et al.), which anneal graphs with a rotation.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from routing.network import Network
from routing.paths import ecmp_link_bytes
from topoopt.base.interrupts import interruptible
from topoopt.problem.ports import PortModel
from topoopt.topology.cables import check_rates
from topoopt.topology.hamiltonian import disjoint_cycles, hamiltonian_cycles, ring_of
from topoopt.topology.known_rings import known_rings
from topoopt.topology.wiring import Ring, Wiring, labelled

# Orbits that are tried; where none divides the servers, every server is one.
_ORBITS = (2, 3, 4, 5, 6, 7, 8, 9, 16)
_FEW_SERVERS = 32
# Visits of a server by breadth-first searches, of one number of orbits.
_VISITS = 8e8
_MOST_MOVES = 60_000
# Random starts, where that many moves take less.
_MOST_STARTS = 6
# Temperature of the first move, in hops over all servers from one of each orbit.
_HOT = 6.0
# Networks whose mean distance is so close to the least are told apart by their busiest link.
_ALIKE = 1.002
_MOST_RINGED = 4
_LARGEST = 4096


def annealed(
    servers: int,
    degree: int,
    bandwidth: float,
    latency: float,
    ports: PortModel = PortModel.DIRECTED,
    seed: int = 0,
) -> tuple[Network, tuple[Ring, ...]]:
    """Wire a regular network of short paths whose links fall into AllReduce rings.

    Parameters
    ----------
    servers : int
        n, 4 to 4096.
    degree : int
        Ports of a server, 2 to n - 2. Bidirectional ports of odd number need an even number of
        servers.
    bandwidth : float
        Bytes per second of one port in one direction.
    latency : float
        Seconds of each link.
    ports : PortModel
    seed : int
        Of the annealing and of the search for rings.

    Returns
    -------
    network : Network
    rings : tuple of Ring
        Hamiltonian cycles over all servers that share no link: one a port, or of bidirectional
        ports one every two and each beside its reverse; fewer where no network with as many was
        found. An odd bidirectional port is on none.

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If no network was found.

    Notes
    -----
    Of the networks of least mean distance that which has the least load on its busiest link, with
    all servers sending to each other along all shortest paths, is taken. Of 64 servers with eight
    bidirectional ports a shorter one is kept (`topoopt.topology.known_rings`), whatever the seed.

    Examples
    --------
    >>> from topoopt.problem.ports import PortModel
    >>> network, rings = annealed(12, 4, 12.5e9, 1e-6, PortModel.BIDIRECTIONAL)
    >>> network.source.size, len(rings)  # links; two rings, both ways
    (48, 4)
    """
    check_rates(servers, bandwidth, latency)
    if not 4 <= servers <= _LARGEST:
        raise InputError(
            f"an annealed network of {counted(servers, 'server')}; give 4 to {_LARGEST}"
        )
    both_ways = ports is PortModel.BIDIRECTIONAL
    if not 2 <= degree <= servers - 2 or (both_ways and servers * degree % 2):
        even = both_ways and servers % 2 == 1
        most = servers - 3 if even else servers - 2
        allowed = f"2 to {most}" if most > 2 else "2"
        if even and most > 2:
            allowed = f"an even one of {allowed}, as the number of servers is odd"
        raise InputError(
            f"an annealed network of {servers} servers and degree {degree}; give {allowed}"
        )
    rings, rest = _ringed(servers, degree, both_ways, seed)
    wiring = Wiring(servers, degree, ports)
    for ring in rings:
        wiring.add_cycle(ring)
    wiring.cables += rest
    return wiring.network("annealed", bandwidth, latency), labelled(wiring.rings)


@lru_cache(maxsize=16)
def _ringed(
    n: int, degree: int, both_ways: bool, seed: int
) -> tuple[tuple[tuple[int, ...], ...], Ints]:
    """Return rings and the cables of none, shape (n, n)."""
    known = known_rings(n, degree) if both_ways else ()
    if known:
        return known, np.zeros((n, n), dtype=np.int64)
    found: list[tuple[float, int, Ints]] = []
    for orbits in _orbits(n, both_ways and degree % 2 == 1):
        moves = int(_VISITS / (orbits * n * degree))
        for start in range(max(1, min(_MOST_STARTS, moves // _MOST_MOVES))):
            rng = np.random.default_rng((seed, n, degree, both_ways, orbits, start))
            near, mean = _anneal(n, degree, both_ways, orbits, min(moves, _MOST_MOVES), rng)
            if mean is not None:
                found.append((mean, len(found), near))
    if not found:
        raise InfeasibleError(
            f"no annealed network of {n} servers and degree {degree} was found; give another "
            "degree or seed"
        )
    least = min(mean for mean, _, _ in found)
    # Those alike by their busiest links, then the others by their paths.
    ranked = sorted(
        found,
        key=lambda each: (
            (0.0, _busiest(each[2]), each[1])
            if each[0] <= _ALIKE * least
            else (each[0], 0.0, each[1])
        ),
    )[:_MOST_RINGED]
    columns = degree // 2 if both_ways else degree
    rings, near = _most_rings([near for _, _, near in ranked], columns, both_ways, seed)
    rest = _cables(near)
    for ring in rings:
        after = np.roll(ring, -1)
        rest[ring, after] = 0
        if both_ways:
            rest[after, ring] = 0
    return rings, rest


def _cables(near: Ints) -> Ints:
    """Return the cables from row to column."""
    n = near.shape[0]
    cables = np.zeros((n, n), dtype=np.int64)
    cables[np.arange(n)[:, None], near] = 1
    return cables


def _most_rings(
    networks: list[Ints], columns: int, both_ways: bool, seed: int
) -> tuple[tuple[tuple[int, ...], ...], Ints]:
    """Return the most rings of one of the networks, the first that has as many, and it."""
    if both_ways and networks[0].shape[1] % 2:
        # A ring may need links of the odd port, which are in no column.
        of = [disjoint_cycles(_cables(near), seed)[::2] for near in networks]
        best = max(range(len(networks)), key=lambda i: (len(of[i]), -i))
        return of[best], networks[best]
    for count in range(columns, 0, -1):
        for near in networks:
            following = near[:, : 2 * columns : 2] if both_ways else near
            rows = hamiltonian_cycles(following.T, count, both_ways=both_ways, seed=seed)
            if rows is not None:
                return tuple(ring_of(row) for row in rows[:count]), near
    return (), networks[0]


def _orbits(n: int, matched: bool) -> Iterator[int]:
    """Yield numbers of orbits; with a matching between neighbouring orbits even ones."""
    fitting = [r for r in _ORBITS if n % r == 0 and n // r > 1 and not (matched and r % 2)]
    yield from fitting
    if n <= _FEW_SERVERS or not fitting:
        yield n


def _anneal(
    n: int, degree: int, both_ways: bool, orbits: int, moves: int, rng: np.random.Generator
) -> tuple[Ints, float | None]:
    """Anneal with so many orbits; the mean distance is None if no simple network was found."""
    from topoopt.topology.annealed_kernels import anneal_links

    columns = degree // 2 if both_ways else degree
    turns = n // orbits
    target = np.stack([rng.permutation(orbits) for _ in range(columns)], axis=1)
    shift = rng.integers(turns, size=(orbits, columns))
    # One ring from server to server, so that all are joined from the start.
    target[:, 0] = (np.arange(orbits) + 1) % orbits
    shift[:, 0] = np.arange(orbits) == orbits - 1
    server = np.arange(n)
    orbit, place = server % orbits, server // orbits
    near = np.empty((n, degree), dtype=np.int64)
    for k in range(columns):
        there = (place + shift[orbit, k]) % turns * orbits + target[orbit, k]
        if both_ways:
            near[:, 2 * k] = there
            near[there, 2 * k + 1] = server
        else:
            near[:, k] = there
    if both_ways and degree % 2:
        near[:, -1] = server ^ 1
    # As many rings as directed ports make a product of this parity (`hamiltonian.parity`).
    odd = -1 if both_ways else degree * (n - 1) % 2
    draws = rng.random((moves, 6))
    hops = interruptible(
        lambda stop: anneal_links(near, target, shift, both_ways, odd, draws, _HOT, stop)
    )
    simple = all(np.unique(near[i]).size == degree and i not in near[i] for i in range(orbits))
    return near, (hops / (orbits * (n - 1)) if hops < 1 << 49 and simple else None)


def _busiest(near: Ints) -> float:
    """Return the most units on a link where every server sends one to every other."""
    n, degree = near.shape
    links = n * degree
    order = np.argsort(near, axis=1)
    network = Network(
        name="annealed",
        hosts=n,
        switches=0,
        source=np.repeat(np.arange(n), degree),
        target=np.take_along_axis(near, order, axis=1).ravel(),
        capacity=np.ones(links),
        latency=np.zeros(links),
        multiplicity=np.ones(links, dtype=np.int64),
    )
    return float(ecmp_link_bytes(network, np.ones((n, n))).max())
