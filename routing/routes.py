"""Routes of every ordered host pair, as weighted link lists in one sparse table."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from routing.network import FloatArray, IntArray, Network


@dataclass(frozen=True, eq=False)
class Routes:
    """For each ordered host pair, the links that its traffic uses and in what proportion.

    Row ``source * hosts + target`` of the table lists links with weights; a flow of rate r puts
    ``weight * r`` on each. Traffic of a pair may be split over several paths; then weights are
    path fractions summed per link. The rows of pairs (v, v) are empty.

    Parameters
    ----------
    hosts : int
        Number of hosts.
    offsets : int64 array, shape (hosts * hosts + 1,)
        Row boundaries.
    links : int64 array, shape (entries,)
        Link indices of a `Network`, ascending within a row.
    weights : float64 array, shape (entries,)
        Fractions in (0, 1].
    latency : float64 array, shape (hosts * hosts,)
        Seconds of the slowest path in use (zero on the diagonal).
    hops : float64 array, shape (hosts * hosts,)
        Mean number of links a byte crosses (sum of the row's weights).
    """

    hosts: int
    offsets: IntArray
    links: IntArray
    weights: FloatArray
    latency: FloatArray
    hops: FloatArray

    def __post_init__(self) -> None:
        pairs = self.hosts * self.hosts
        shapes = (self.offsets.shape, self.latency.shape, self.hops.shape)
        if shapes != ((pairs + 1,), (pairs,), (pairs,)) or self.links.shape != self.weights.shape:
            raise InputError(f"routes for {self.hosts} hosts have inconsistent shapes {shapes}")
        for array in (self.offsets, self.links, self.weights, self.latency, self.hops):
            array.setflags(write=False)

    def row(self, source: int, target: int) -> tuple[IntArray, FloatArray]:
        """Return the links and weights of one ordered pair."""
        pair = source * self.hosts + target
        start, stop = self.offsets[pair], self.offsets[pair + 1]
        return self.links[start:stop], self.weights[start:stop]

    def like(self, other: "Routes") -> bool:
        """Whether another table has the same links, and weights and latencies within rounding."""
        return (
            np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.links, other.links)
            and np.allclose(self.weights, other.weights, rtol=0.0, atol=1e-9)
            and np.allclose(self.latency, other.latency, rtol=1e-9, atol=0.0)
        )

    def link_bytes(self, network: Network, traffic: FloatArray) -> FloatArray:
        """Return the bytes that a (hosts, hosts) demand matrix puts on each link."""
        per_entry = np.repeat(traffic.ravel(), np.diff(self.offsets)) * self.weights
        total = np.bincount(self.links, weights=per_entry, minlength=network.links)
        return total.astype(np.float64, copy=False)
