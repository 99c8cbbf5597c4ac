"""A multi-dimensional network as links and routes, and what transfers load on its dimensions.

NPUs are hosts, numbered with the innermost coordinate running fastest. A Ring is two cables of
half the bandwidth to each side, FullyConnected an equal part of it to everybody, a Switch one
node for each of its groups.
"""

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from codesign_base.rows import starts, summed
from routing.network import Network
from routing.routes import Routes
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.topology.zoo.blocks import BuildingBlock

MOST_HOSTS = 65_536
MOST_ROUTED = 2_048


def strides(network: MultiDimNetwork) -> tuple[int, ...]:
    """Return how far neighbours of each dimension are apart in NPU numbers."""
    found, step = [], 1
    for size in network.sizes:
        found.append(step)
        step *= size
    return tuple(found)


def unit_links(network: MultiDimNetwork) -> tuple[Network, Ints]:
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
        if block == BuildingBlock.SWITCH:
            _, line = np.unique(base, return_inverse=True)
            pairs = [(hosts, nodes + line), (nodes + line, hosts)]
            share, latency = 1.0, network.latencies[d] / 2
            nodes += network.npus // n
        else:
            jumps = (1, n - 1) if block == BuildingBlock.RING else range(1, n)
            pairs = [(hosts, base + (at + jump) % n * step) for jump in jumps]
            share = 0.5 if block == BuildingBlock.RING else 1.0 / (n - 1)
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
            f"bandwidth has shape {bandwidth.shape} for "
            f"{counted(network.dimensions, 'dimension')}; give one each"
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
    entries: list[tuple[Ints, Ints, Floats]] = []
    keys = links.source * links.nodes + links.target
    switch = n_hosts

    def use(chosen: Ints, source: Ints, target: Ints, share: Floats) -> None:
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
        if block == BuildingBlock.SWITCH:
            low, high = base % step, base // (step * n)
            middle = switch + high * step + low
            use(moving, source, middle, whole)
            use(moving, middle, target, whole)
            latency[moving] += network.latencies[d]
        elif block == BuildingBlock.FULLY_CONNECTED or n == 2:
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
        if block == BuildingBlock.SWITCH:
            switch += n_hosts // n
        here = here + (end - start) * step
    pair, link, share = (np.concatenate(column) for column in zip(*entries, strict=True))
    order = np.lexsort((link, pair))
    counts = np.bincount(pair, minlength=len(pairs))
    return Routes(
        n_hosts,
        starts(counts),
        link[order].astype(np.int64),
        share[order],
        latency,
        summed(pair, share, len(pairs)),
    )


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
