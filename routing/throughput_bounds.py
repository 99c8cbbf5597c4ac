"""Lower bounds on congestion (upper bounds on throughput): of any wiring, and of this one.

Congestion is seconds: what the most loaded link takes for its part of the demand in bytes.
Throughput is its inverse, how often a second the demand can be served.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread
from routing.network import Network
from routing.path_routing import CUT_ROUNDING, checked_demand, dual_bound, require_served

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Share of the pairs with demand from which on all are sorted, be it zeros; on few hosts always.
_DENSE, _SMALL = 0.25, 128

# Nodes up to which a dense solver is faster.
_DENSE_NODES = 600


@dataclass(frozen=True)
class CongestionBound:
    """A lower bound on congestion.

    Parameters
    ----------
    seconds : float
        The largest of the terms; infinity is never one, zero without demand.
    terms : dict of str to float
        Every term, in seconds.
    """

    seconds: float
    terms: dict[str, float]

    @property
    def binding(self) -> str:
        """Name of the largest term."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def throughput(self) -> float:
        """Most times a second that the demand can be served."""
        return 1.0 / self.seconds if self.seconds > 0 else float("inf")

    def excess(self, congestion: float) -> float:
        """Return how far a congestion is above the bound, as a fraction of it; never negative."""
        if congestion <= self.seconds:
            return 0.0
        return congestion / self.seconds - 1.0 if self.seconds > 0 else float("inf")


def any_wiring_bound(demand: Floats, degree: int, port_rate: float) -> CongestionBound:
    """Bound the congestion over all networks of hosts with a number of ports each.

    Parameters
    ----------
    demand : float array, shape (hosts, hosts)
        Bytes from row to column, zero on the diagonal.
    degree : int
        Ports of each host, one transmitter and one receiver each.
    port_rate : float
        Bytes/s of a port, each way.

    Returns
    -------
    CongestionBound
        ``injection``: the busiest host's bytes over its ports. ``distance``: link-bytes in the
        best case (`least_link_bytes`), over all ports.

    Raises
    ------
    InputError
        If the demand is no square matrix of finite numbers of zero or more, or a number is out
        of range.
    """
    matrix = np.ascontiguousarray(demand, dtype=np.float64)
    hosts = matrix.shape[0]
    if matrix.shape != (hosts, hosts) or not np.all(np.isfinite(matrix) & (matrix >= 0)):
        raise InputError(
            f"demand of shape {matrix.shape} must be a square matrix of finite numbers of zero "
            "or more"
        )
    if degree < 1 or not port_rate > 0:
        raise InputError(f"degree {degree} and port rate {port_rate} bytes/s must be positive")
    if hosts == 0 or not matrix.any():
        return CongestionBound(0.0, {"injection": 0.0, "distance": 0.0})
    off = matrix * (1.0 - np.eye(hosts))
    link_bytes = least_link_bytes(off, degree)
    busiest = max(off.sum(axis=1).max(), off.sum(axis=0).max())
    terms = {
        "injection": float(busiest) / (degree * port_rate),
        "distance": link_bytes / (hosts * degree * port_rate),
    }
    return CongestionBound(max(terms.values()) * CUT_ROUNDING, terms)


def least_link_bytes(
    demand: "Floats | csr_array", degree: int, bidirectional: bool = False
) -> float:
    """Return the least link-bytes that a demand takes in any network of a degree.

    At most d + d^2 + ... + d^h hosts are within h hops of a source, so of its demands at least
    those beyond its so many largest take more than h. The same holds for the sources that reach
    a target. For each h the larger counts; bytes times hops are the sum over all h. With one port
    hosts are on rings, where the ways between two go once round it.

    Parameters
    ----------
    demand : float64 array or csr_array, shape (hosts, hosts)
        Bytes from row to column, zero on the diagonal.
    degree : int
        Ports of each host.
    bidirectional : bool
        Whether both directions of a port go to the same host. At most d + d (d - 1) + ... hosts
        are within h hops then (the Moore bound), the same ones of both directions, so the mean
        of the demand and its transpose is beyond them as well.

    Returns
    -------
    float
        Bytes times links, zero without demand.

    References
    ----------
    A. Singla, P. B. Godfrey and A. Kolla, "High throughput data center topology design", NSDI
    2014, section 4 (there for the mean distance, here for a demand matrix).
    """
    hosts = demand.shape[0]
    reached = within_hops(hosts, degree, bidirectional)
    if not reached:
        return float(demand.sum())
    least = _least_first(demand)
    if bidirectional:
        both_ways: Any = demand + demand.T
        least = np.concatenate((least, _least_first(both_ways) / 2.0))
    sums = np.cumsum(least, axis=1)
    beyond = sums[:, hosts - 1 - np.array(reached)].max(axis=0)
    found = float(sums[0, -1] + beyond.sum())
    return max(found, _least_of_rings(demand)) if degree == 1 else found


def _least_of_rings(demand: "Floats | csr_array") -> float:
    """Return the least link-bytes on rings of one direction.

    A ring has at least the hosts that demand joins. What both of a pair send goes round all of it,
    and what one sends beyond that takes a hop.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    pairs = csr_array(demand, copy=True)
    pairs.eliminate_zeros()
    _, ring = connected_components(pairs, directed=False)
    both = np.asarray(csr_array(pairs.minimum(pairs.T)).sum(axis=1))
    return float(pairs.sum() + ((np.bincount(ring)[ring] / 2.0 - 1.0) * both).sum())


def within_hops(hosts: int, degree: int, bidirectional: bool = False) -> list[int]:
    """Return how many others are within 1, 2, ... hops of a host at most, while not all are."""
    found, level, reached = [], degree, degree
    # One port both ways joins two hosts, all others never: as far as a ring's is far enough.
    growth = max(degree - 1, 1) if bidirectional else degree
    while reached < hosts - 1:
        found.append(reached)
        level *= growth
        reached += level
    return found


def _least_first(demand: "Floats | csr_array") -> Floats:
    """Sum the rows, and the columns, each sorted from its least to its largest; (2, hosts)."""
    hosts = demand.shape[0]
    many = (_DENSE if hosts > _SMALL else 0.0) * hosts**2
    if isinstance(demand, np.ndarray) and np.count_nonzero(demand) > many:
        both = np.array((demand, demand.T))
        both.sort(axis=2)
        return np.asarray(both.sum(axis=1))
    from scipy.sparse import csr_array

    pairs, sums = csr_array(demand), np.zeros((2, hosts))
    for one, into in zip((pairs, csr_array(pairs.T)), sums, strict=True):
        counts = np.diff(one.indptr)
        widest = int(counts.max(initial=0))
        rows = np.zeros((hosts, widest))
        rows[np.repeat(np.arange(hosts), counts), spread(np.zeros(hosts, np.int64), counts)] = (
            one.data
        )
        rows.sort(axis=1)
        into[hosts - widest :] = rows.sum(axis=0)
    return sums


def network_bound(
    network: Network, demand: Floats, lengths: Floats | None = None
) -> CongestionBound:
    """Bound the congestion over all routings of a demand on one network.

    Parameters
    ----------
    network : Network
    demand : float array, shape (hosts, hosts)
        Bytes from row to column, zero on the diagonal.
    lengths : float64 array, shape (links,), optional
        A dual solution, as `routing.path_routing.PathRouting.lengths`.

    Returns
    -------
    CongestionBound
        ``hops``: demand times hops over the sum of capacities. ``host``: the busiest host's
        bytes over its links out or in. ``cut``: the worst of the cuts that sweep along the
        hosts' numbers (without switches) and along `cut_order`. ``dual``: demand times distance
        under ``lengths``, if given.

    Raises
    ------
    InputError
        If the demand does not fit the network.
    InfeasibleError
        If a pair with demand has no path.
    """
    matrix = checked_demand(network, demand)
    terms = {"hops": 0.0, "host": 0.0, "cut": 0.0}
    if lengths is not None:
        terms["dual"] = 0.0
    if not matrix.any():
        return CongestionBound(0.0, terms)
    hops = require_served(network, matrix)
    terms["hops"] = float((matrix * hops).sum()) / float(network.capacity.sum())
    terms["host"] = host_seconds(network, matrix)
    orders = [cut_order(network)]
    if not network.switches:
        orders.append(np.arange(network.nodes))
    terms["cut"] = max(sweep_seconds(network, matrix, order) for order in orders)
    if lengths is not None:
        terms["dual"] = dual_bound(network, matrix, lengths)
    return CongestionBound(max(terms.values()) * CUT_ROUNDING, terms)


def host_seconds(network: Network, demand: Floats) -> float:
    """Return the seconds of the busiest host's bytes over all its links out, or in."""
    worst, hosts = 0.0, network.hosts
    for rate, sums in (
        (network.out_rate(), demand.sum(axis=1)),
        (network.in_rate(), demand.sum(axis=0)),
    ):
        asked = np.flatnonzero(sums)
        worst = max(worst, float((sums[asked] / rate[:hosts][asked]).max(initial=0.0)))
    return worst


def cut_order(network: Network) -> Ints:
    """Return the nodes in an order whose first and last parts are joined by little capacity.

    Parameters
    ----------
    network : Network
        Of at least two nodes.

    Returns
    -------
    int64 array, shape (nodes,)
        Along the second eigenvector of the capacities, those of both directions added and scaled
        by the nodes' capacities (the Fiedler vector of the normalised Laplacian).
    """
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigsh

    nodes = network.nodes
    root = np.sqrt(network.out_rate() + network.in_rate())
    root[root == 0.0] = 1.0
    scaled = network.capacity / (root[network.source] * root[network.target])
    matrix = csr_array((scaled, (network.source, network.target)), shape=(nodes, nodes))
    both = matrix + matrix.T
    if nodes <= _DENSE_NODES:
        second = np.linalg.eigh(both.toarray())[1][:, -2]
    else:
        # Started from a fixed vector, so that the order is the same on every run.
        start = np.random.default_rng(0).random(nodes)
        values, vectors = eigsh(both, k=2, which="LA", v0=start)
        second = vectors[:, int(np.argmin(values))]
    along = second / root
    along /= np.abs(along).max()
    # Its sign is arbitrary; rounding keeps ties, which symmetric networks have, in node order.
    along *= np.sign(along[np.argmax(np.abs(along) > 1e-9)])
    return np.argsort(np.round(along, 9), kind="stable")


def sweep_seconds(network: Network, demand: Floats, order: Ints) -> float:
    """Return the largest demand over capacity, in seconds, across the cuts of an order of nodes."""
    nodes = network.nodes
    place = np.empty(nodes, dtype=np.int64)
    place[order] = np.arange(nodes)

    def across(begin: Ints, end: Ints, amount: Floats) -> Floats:
        """Amounts that cross from the first c nodes to the others, shape (nodes - 1,)."""
        change = np.zeros(nodes + 1)
        np.add.at(change, begin + 1, amount)
        np.add.at(change, end + 1, -amount)
        return np.cumsum(change)[1:nodes]

    source, target = np.nonzero(demand)
    worst = 0.0
    for turned in (False, True):
        at = nodes - 1 - place if turned else place
        forward = at[source] < at[target]
        asked = across(at[source][forward], at[target][forward], demand[source, target][forward])
        along = at[network.source] < at[network.target]
        room = across(at[network.source][along], at[network.target][along], network.capacity[along])
        open_cut = room > 1e-9 * network.capacity.max()
        worst = max(worst, float((asked[open_cut] / room[open_cut]).max(initial=0.0)))
    return worst
