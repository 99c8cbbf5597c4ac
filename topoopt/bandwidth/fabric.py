"""A multi-dimensional network with its bandwidths as links, routes and rings: a fabric.

NPUs are hosts, numbered with the innermost coordinate running fastest. A Ring is two cables of
half the bandwidth to each side, FullyConnected an equal part of it to everybody, a Switch one
node for each of its groups.
"""

from itertools import product

import numpy as np

from codesign_base import InputError
from routing.network import FloatArray, IntArray, Network
from routing.routes import Routes
from topoopt.bandwidth.network import Block, MultiDimNetwork
from topoopt.bandwidth.time_model import Floats
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.transport import PACKETS, Transport

MOST_HOSTS = 65_536
MOST_ROUTED = 2_048


def strides(network: MultiDimNetwork) -> tuple[int, ...]:
    """Return how far neighbours of each dimension are apart in NPU numbers."""
    found, step = [], 1
    for size in network.sizes:
        found.append(step)
        step *= size
    return tuple(found)


def unit_links(network: MultiDimNetwork) -> tuple[Network, IntArray]:
    """Return the links of a network, each with its share of the bandwidth of its dimension.

    Parameters
    ----------
    network : MultiDimNetwork

    Returns
    -------
    Network
        Capacities are shares: 1/2 on a Ring (1 if it has two members, which two cables join),
        1/(n-1) on FullyConnected, 1 on a Switch. The latency of a Switch's step is half on
        each of the two links through it.
    dimension : int64 array, shape (links,)

    Raises
    ------
    InputError
        If it has more NPUs than can be listed.
    """
    if network.npus > MOST_HOSTS:
        raise InputError(
            f"network {network.notation} has {network.npus} NPUs; links are listed for at most "
            f"{MOST_HOSTS}"
        )
    hosts = np.arange(network.npus)
    sources, targets, shares, latencies, dims = [], [], [], [], []
    nodes = network.npus
    for d, (block, n, step) in enumerate(
        zip(network.blocks, network.sizes, strides(network), strict=True)
    ):
        at = hosts // step % n
        base = hosts - at * step
        if block == Block.SWITCH:
            _, line = np.unique(base, return_inverse=True)
            pairs = [(hosts, nodes + line), (nodes + line, hosts)]
            share, latency = 1.0, network.latencies[d] / 2
            nodes += network.npus // n
        else:
            jumps = (1, n - 1) if block == Block.RING else range(1, n)
            pairs = [(hosts, base + (at + jump) % n * step) for jump in jumps]
            share = 0.5 if block == Block.RING else 1.0 / (n - 1)
            latency = network.latencies[d]
        for source, target in pairs:
            sources.append(source)
            targets.append(target)
            shares.append(np.full(len(hosts), share))
            latencies.append(np.full(len(hosts), latency))
            dims.append(np.full(len(hosts), d))
    source, target = np.concatenate(sources), np.concatenate(targets)
    made = Network.from_links(
        network.notation, network.npus, nodes - network.npus, source, target,
        np.concatenate(shares), np.concatenate(latencies),
    )  # fmt: skip
    keys, first = np.unique(source * nodes + target, return_index=True)
    assert len(keys) == made.links
    return made, np.concatenate(dims)[first].astype(np.int64)


def build_network(network: MultiDimNetwork, bandwidth: Floats) -> Network:
    """Return the hosts, switches and links of a network.

    Parameters
    ----------
    network : MultiDimNetwork
    bandwidth : float64 array, shape (dimensions,)
        Bytes/s per NPU of each dimension, in each of both ways.

    Returns
    -------
    Network

    Raises
    ------
    InputError
        If a dimension has no bandwidth, or there are too many NPUs.
    """
    if bandwidth.shape != (network.dimensions,):
        raise InputError(
            f"bandwidth has shape {bandwidth.shape} for {network.dimensions} dimensions; "
            "give one each"
        )
    for d, rate in enumerate(bandwidth):
        if not 0 < rate < np.inf:
            raise InputError(
                f"dimension b{d} of {network.notation} has {rate:g} bytes/s, so that no network "
                f"can be built; add a constraint such as 'b{d} >= 1'"
            )
    unit, dimension = unit_links(network)
    return Network(
        unit.name, unit.hosts, unit.switches, unit.source, unit.target,
        unit.capacity * bandwidth[dimension], unit.latency, unit.multiplicity,
    )  # fmt: skip


def dimension_routes(network: MultiDimNetwork, links: Network) -> Routes:
    """Route every pair dimension by dimension, the innermost first.

    Parameters
    ----------
    network : MultiDimNetwork
    links : Network
        From `unit_links` or `build_network`.

    Returns
    -------
    Routes
        The shorter way around a Ring, half on each if both are equal.

    Raises
    ------
    InputError
        If there are too many pairs.
    """
    if network.npus > MOST_ROUTED:
        raise InputError(
            f"network {network.notation} has {network.npus} NPUs; routes are listed for at most "
            f"{MOST_ROUTED}"
        )
    n_hosts = network.npus
    pairs = np.arange(n_hosts * n_hosts)
    here, goal = pairs // n_hosts, pairs % n_hosts
    latency = np.zeros(len(pairs))
    entries: list[tuple[IntArray, IntArray, FloatArray]] = []
    keys = links.source * links.nodes + links.target
    switch = n_hosts

    def use(chosen: IntArray, source: IntArray, target: IntArray, share: FloatArray) -> None:
        at = np.searchsorted(keys, source * links.nodes + target)
        entries.append((chosen, at, share))

    for d, (block, n, step) in enumerate(
        zip(network.blocks, network.sizes, strides(network), strict=True)
    ):
        start, end = here // step % n, goal // step % n
        moving = np.flatnonzero(start != end)
        source, base = here[moving], (here - start * step)[moving]
        a, b = start[moving], end[moving]
        target = base + b * step
        whole = np.ones(len(moving))
        if block == Block.SWITCH:
            low, high = base % step, base // (step * n)
            middle = switch + high * step + low
            use(moving, source, middle, whole)
            use(moving, middle, target, whole)
            latency[moving] += network.latencies[d]
        elif block == Block.FULLY_CONNECTED or n == 2:
            use(moving, source, target, whole)
            latency[moving] += network.latencies[d]
        else:
            for sign in (1, -1):
                length = sign * (b - a) % n
                share = np.where(2 * length < n, 1.0, np.where(2 * length == n, 0.5, 0.0))
                for hop in range(n // 2):
                    on = np.flatnonzero((share > 0) & (hop < length))
                    one = base[on] + (a[on] + sign * hop) % n * step
                    two = base[on] + (a[on] + sign * (hop + 1)) % n * step
                    use(moving[on], one, two, share[on])
            latency[moving] += np.minimum((b - a) % n, (a - b) % n) * network.latencies[d]
        if block == Block.SWITCH:
            switch += n_hosts // n
        here = here + (end - start) * step
    pair, link, share = (np.concatenate(column) for column in zip(*entries, strict=True))
    order = np.lexsort((link, pair))
    counts = np.bincount(pair, minlength=len(pairs))
    return Routes(
        n_hosts,
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        link[order].astype(np.int64),
        share[order],
        latency,
        np.bincount(pair, weights=share, minlength=len(pairs)).astype(np.float64),
    )


def block_rings(block: Block, members: int) -> tuple[tuple[int, ...], ...]:
    """Return rings that load all links of a block equally.

    Parameters
    ----------
    block : Block
    members : int

    Returns
    -------
    tuple of tuple of int
        Orders of 0 .. members - 1. A Ring both ways, a Switch once. On FullyConnected the
        2 (n-1) rotations and reversals of a zigzag through all members: every directed link
        lies on exactly two of them, for any n.

    Notes
    -----
    The zigzag 0, 1, -1, 2, -2, ... modulo m = n - 1, closed over one more member, meets each
    difference twice (half a turn once), so that its m rotations meet each pair twice. This is
    Walecki's construction, turned all the way around.
    """
    order = tuple(range(members))
    if members == 2:
        return (order,)
    if block == Block.SWITCH:
        return (order,)
    if block == Block.RING:
        return (order, order[::-1])
    m = members - 1
    zigzag = [0]
    for k in range(1, m):
        zigzag.append((k + 1) // 2 if k % 2 else m - k // 2)
    turned = [(*((v + turn) % m for v in zigzag), m) for turn in range(m)]
    return tuple(ring for order in turned for ring in (order, order[::-1]))


def lines(network: MultiDimNetwork, dimension: int) -> list[tuple[int, ...]]:
    """Return the NPUs of each group that spans one dimension, in coordinate order."""
    step, n = strides(network)[dimension], network.sizes[dimension]
    starts = product(range(network.npus // (step * n)), range(step))
    return [tuple(high * step * n + low + k * step for k in range(n)) for high, low in starts]


def build_fabric(
    network: MultiDimNetwork, bandwidth: Floats, transport: Transport = PACKETS
) -> Fabric:
    """Return a network with its routes, and rings over the groups of each dimension.

    Parameters
    ----------
    network : MultiDimNetwork
    bandwidth : float64 array, shape (dimensions,)
        Bytes/s per NPU of each dimension.
    transport : Transport, optional

    Returns
    -------
    Fabric
        Dimension-ordered routes. An AllReduce over a whole dimension uses all of its links, so
        that it takes `2 (n-1) / n` of its bytes over the bandwidth; groups over several
        dimensions get rings as on any fabric.

    Raises
    ------
    InputError
        If a dimension has no bandwidth, or there are too many NPUs.
    """
    made = build_network(network, bandwidth)
    rings = {}
    for d, (block, n) in enumerate(zip(network.blocks, network.sizes, strict=True)):
        orders = block_rings(block, n)
        for line in lines(network, d):
            rings[line] = tuple(tuple(line[v] for v in order) for order in orders)
    return Fabric(network.notation, made, dimension_routes(network, made), rings, None, transport)


class PairLoads:
    """What transfers between NPUs load on the dimensions, over dimension-ordered routes."""

    def __init__(self, network: MultiDimNetwork) -> None:
        self.network = network
        self.links, self.dimension = unit_links(network)
        self.routes = dimension_routes(network, self.links)

    def of(self, sent: Floats) -> tuple[list[float], float]:
        """Return the load of transfers that start together.

        Parameters
        ----------
        sent : float64 array, shape (NPUs, NPUs)
            Bytes from row to column.

        Returns
        -------
        load : list of float
            Bytes on each dimension over the share of its bandwidth that the busiest link has.
            The transfers take at least the largest load over its bandwidth, and no more if
            rates are shared well.
        latency : float
            Seconds of the slowest pair in use.
        """
        busy = self.routes.link_bytes(self.links, sent) / self.links.capacity
        load = np.zeros(self.network.dimensions)
        np.maximum.at(load, self.dimension, busy)
        return load.tolist(), float(self.routes.latency[sent.ravel() > 0].max(initial=0.0))
