"""The bytes that given pairs put on links under equal-cost multipath, without their routes."""

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import summed
from routing.network import Network
from routing.paths import ecmp_link_bytes


def ecmp_pair_bytes(network: Network, pairs: Ints, amounts: Floats) -> Floats:
    """Return the bytes on each link under `routing.paths.ecmp_routes`.

    Where every host has one cable to a switch and one from it, only the switches are routed
    between, of which there are far fewer.

    Parameters
    ----------
    network : Network
    pairs : int64 array, shape (pairs,)
        Different ones, as ``source * hosts + target``.
    amounts : float64 array, shape (pairs,)
        Bytes of each.

    Returns
    -------
    float64 array, shape (links,)

    Raises
    ------
    InfeasibleError
        If a host cannot reach another that it sends to.

    Examples
    --------
    >>> import numpy as np
    >>> star = Network.from_links("star", 3, 1, [0, 1, 2, 3, 3, 3], [3, 3, 3, 0, 1, 2], 1.0, 0.0)
    >>> ecmp_pair_bytes(star, np.array([1, 2]), np.array([5.0, 7.0])).tolist()
    [12.0, 0.0, 0.0, 0.0, 5.0, 7.0]
    """
    hosts = network.hosts
    source, target = np.divmod(pairs, hosts)
    away = source != target
    source, target, amounts = source[away], target[away], amounts[away]
    attached = _attached(network)
    if attached is None:
        return ecmp_link_bytes(network, _matrix(hosts, source, target, amounts))
    up, down = attached
    total: Floats = np.zeros(network.links)
    total[up] = np.bincount(source, amounts, hosts)
    total[down] = np.bincount(target, amounts, hosts)
    leave, enter = network.target[up] - hosts, network.source[down] - hosts
    demand = _matrix(network.switches, leave[source], enter[target], amounts)
    inner = np.flatnonzero((network.source >= hosts) & (network.target >= hosts))
    try:
        total[inner] = ecmp_link_bytes(_switches(network, inner), demand)
    except InfeasibleError:
        # The same, which says between which hosts.
        return ecmp_link_bytes(network, _matrix(hosts, source, target, amounts))
    return total


def _matrix(nodes: int, source: Ints, target: Ints, amounts: Floats) -> Floats:
    return summed(source * nodes + target, amounts, nodes * nodes).reshape(nodes, nodes)


def _attached(network: Network) -> tuple[Ints, Ints] | None:
    """Return each host's link to a switch and that from one; None where a host has other links."""
    hosts = network.hosts
    up, down = np.flatnonzero(network.source < hosts), np.flatnonzero(network.target < hosts)
    down = down[np.argsort(network.target[down], kind="stable")]
    every = np.arange(hosts)
    if not (
        np.array_equal(network.source[up], every) and np.array_equal(network.target[down], every)
    ):
        return None
    if (network.target[up] < hosts).any():
        return None
    return up, down


def _switches(network: Network, inner: Ints) -> Network:
    """Return the network of the switches alone, which are its hosts."""
    return Network(
        network.name,
        network.switches,
        0,
        network.source[inner] - network.hosts,
        network.target[inner] - network.hosts,
        network.capacity[inner],
        network.latency[inner],
        network.multiplicity[inner],
    )
