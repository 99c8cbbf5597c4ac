"""Valiant load balancing: every byte goes by way of an intermediate node drawn at random."""

import numpy as np

from codesign_base import InfeasibleError
from routing.network import Network
from routing.paths import forwarding_nodes, hop_distances
from routing.routes import Routes


def valiant_routes(network: Network) -> Routes:
    """Split every pair's traffic over all forwarding nodes, by shortest paths on both legs.

    Whatever the demand, no link is then loaded more than by two all-to-all exchanges in which
    every host sends what its busiest host sends or receives.

    Parameters
    ----------
    network : Network
        Intermediate nodes, in equal parts, are its hosts where they forward, else its switches.

    Returns
    -------
    Routes
        Each leg is split equally over shortest next hops (ECMP). Where the two legs of a pair
        make a loop, the loop is taken out, so that routes are loop-free; this only takes load
        off.

    Raises
    ------
    InfeasibleError
        If a leg has no path.

    References
    ----------
    L. Valiant, "A scheme for fast parallel communication", SIAM J. Computing 11, 1982.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> float(valiant_routes(ring).link_bytes(ring, demand).max())
    2500000.0
    """
    from routing.valiant_kernels import two_leg_rows

    may = forwarding_nodes(network)
    nodes = np.flatnonzero(may)
    distance = hop_distances(network)
    hosts = np.arange(network.hosts)
    for legs in (distance[hosts[:, None], nodes], distance[nodes[:, None], hosts].T):
        if legs.size and legs.min() < 0:
            host, which = np.argwhere(legs < 0)[0].tolist()
            raise InfeasibleError(
                f"network {network.name!r}: no path between host {host} and intermediate node "
                f"{nodes[which]}; add links between them"
            )
    offsets, links, parts, latency, hops = two_leg_rows(
        network.out_offsets, network.target, network.latency, may,
        np.ascontiguousarray(distance.T), network.hosts, nodes,
    )  # fmt: skip
    return Routes(network.hosts, offsets, links, np.minimum(parts, 1.0), latency, hops)
