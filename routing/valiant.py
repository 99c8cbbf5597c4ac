"""Valiant load balancing: every byte goes by way of an intermediate node drawn at random."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from codesign_base import InfeasibleError, InputError
from routing.network import FloatArray, IntArray, Network
from routing.paths import forwarding_nodes, hop_distances
from routing.routes import Routes


def valiant_routes(
    network: Network,
    intermediates: Sequence[int] | None = None,
    weights: npt.ArrayLike | None = None,
) -> Routes:
    """Split every pair's traffic over intermediate nodes, by shortest paths on both legs.

    Whatever the demand, no link is then loaded more than by two all-to-all exchanges in which
    every host sends what its busiest host sends or receives.

    Parameters
    ----------
    network : Network
    intermediates : sequence of int, optional
        Nodes that may forward; by default all of them: hosts where they forward, else switches.
    weights : array_like of float, shape (intermediates,), optional
        Shares of the intermediates, not negative; scaled to sum to one. Default equal.

    Returns
    -------
    Routes
        Each leg is split equally over shortest next hops (ECMP). Where the two legs of a pair
        make a loop, the loop is taken out, so that routes are loop-free; this only takes load
        off.

    Raises
    ------
    InputError
        If an intermediate may not forward or stands twice, or weights do not fit.
    InfeasibleError
        If a leg has no path.

    References
    ----------
    L. Valiant, "A scheme for fast parallel communication", SIAM J. Computing 11, 1982.
    """
    from routing.valiant_kernels import two_leg_rows

    may = forwarding_nodes(network)
    nodes = np.flatnonzero(may) if intermediates is None else _checked(network, may, intermediates)
    share = _checked_weights(nodes, weights)
    distance = hop_distances(network)
    hosts = np.arange(network.hosts)
    for legs in (distance[hosts[:, None], nodes], distance[nodes[:, None], hosts].T):
        if legs.size and legs.min() < 0:
            host, which = np.argwhere(legs < 0)[0].tolist()
            raise InfeasibleError(
                f"network {network.name!r}: no path between host {host} and intermediate node "
                f"{nodes[which]}; add links or choose other intermediates"
            )
    offsets, links, parts, latency, hops = two_leg_rows(
        network.out_offsets, network.source, network.target, network.latency, may,
        np.ascontiguousarray(distance.T), network.hosts, nodes.astype(np.int64), share,
    )  # fmt: skip
    return Routes(network.hosts, offsets, links, np.minimum(parts, 1.0), latency, hops)


def _checked(network: Network, may: IntArray, intermediates: Sequence[int]) -> IntArray:
    nodes = np.asarray(intermediates, dtype=np.int64)
    if nodes.size == 0:
        raise InputError("Valiant routes need at least one intermediate node; give some")
    for node in nodes.tolist():
        if not 0 <= node < network.nodes or not may[node]:
            raise InputError(
                f"intermediate {node} is not a node of network {network.name!r} that forwards; "
                f"choose among {np.flatnonzero(may)[:8].tolist()}..."
            )
    if np.unique(nodes).size < nodes.size:
        raise InputError(f"intermediates {nodes.tolist()} repeat; give each once")
    return nodes


def _checked_weights(nodes: IntArray, weights: npt.ArrayLike | None) -> FloatArray:
    if weights is None:
        return np.full(nodes.size, 1.0 / max(nodes.size, 1))
    share = np.asarray(weights, dtype=np.float64)
    if share.shape != nodes.shape or not np.all(np.isfinite(share) & (share >= 0)):
        raise InputError(
            f"weights have shape {share.shape} for {nodes.size} intermediates; give one finite "
            "number of zero or more for each"
        )
    if not share.sum() > 0:
        raise InputError("weights of the intermediates are all zero; make one positive")
    return np.asarray(share / share.sum(), dtype=np.float64)
