"""A routing of one demand over explicit paths, with the proof of how good it is."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arguments import told
from codesign_base.arrays import Floats, Ints, SmallInts
from codesign_base.counted import counted
from codesign_base.rows import starts, summed
from routing.network import Network
from routing.paths import forwarding_nodes, hop_distances, shortest_routes
from routing.routes import Routes

# Sums in another order differ in the last bits; a bound must stay sound.
CUT_ROUNDING = 1.0 - 1e-12


@dataclass(frozen=True, eq=False)
class PathRouting:
    """Paths and shares of every pair that has demand, and a lower bound on any routing.

    Parameters
    ----------
    network : Network
    demand : float64 array, shape (hosts, hosts)
        Bytes from row to column (or bytes/s: then ``congestion`` is a utilisation).
    pairs : int64 array, shape (pairs,)
        Pairs with demand, as ``source * hosts + target``, ascending.
    path_offsets : int64 array, shape (pairs + 1,)
        The paths of each pair.
    link_offsets : int64 array, shape (paths + 1,)
        The links of each path.
    links : int64 array, shape (entries,)
        Link indices in travel order.
    shares : float64 array, shape (paths,)
        Fraction of its pair's demand that each path takes; they sum to one.
    lengths : float64 array, shape (links,)
        Dual solution: a length of each link, such that capacities times lengths sum to one.
    lower_bound : float
        Seconds; no routing of this demand has less congestion. It is the sum of demand times
        distance under ``lengths`` (strong duality makes it exact at the optimum).
    method : str
        How it was found.
    rounds : int
        Iterations that it took.
    """

    network: Network
    demand: Floats
    pairs: Ints
    path_offsets: Ints
    link_offsets: Ints
    links: Ints
    shares: Floats
    lengths: Floats
    lower_bound: float
    method: str
    rounds: int

    def __post_init__(self) -> None:
        if (
            self.path_offsets.shape != (self.pairs.size + 1,)
            or self.link_offsets.shape != (self.shares.size + 1,)
            or self.path_offsets[-1] != self.shares.size
            or self.link_offsets[-1] != self.links.size
        ):
            raise InputError("a path routing's offsets do not fit its pairs, paths and links")

    @cached_property
    def path_hops(self) -> Ints:
        """Links of each path, shape (paths,)."""
        return np.diff(self.link_offsets)

    @cached_property
    def path_demand(self) -> Floats:
        """Demand that each path carries, shape (paths,)."""
        amounts = np.repeat(self.demand.ravel()[self.pairs], np.diff(self.path_offsets))
        return np.asarray(amounts * self.shares, dtype=np.float64)

    @cached_property
    def link_load(self) -> Floats:
        """Demand on each link, shape (links,)."""
        carried = np.repeat(self.path_demand, self.path_hops)
        return summed(self.links, carried, self.network.links)

    @cached_property
    def congestion(self) -> float:
        """Seconds that the most loaded link takes for the demand."""
        return float((self.link_load / self.network.capacity).max(initial=0.0))

    @property
    def throughput(self) -> float:
        """How often a second the demand can be served; infinity without demand."""
        return 1.0 / self.congestion if self.congestion > 0 else float("inf")

    @property
    def gap(self) -> float:
        """At most how much above the best possible the congestion is, as a fraction of it."""
        if self.congestion <= self.lower_bound:
            return 0.0
        return self.congestion / self.lower_bound - 1.0

    @property
    def worst_hops(self) -> int:
        """Links of the longest path in use."""
        return int(self.path_hops.max(initial=0))

    @property
    def bandwidth_tax(self) -> float:
        """Bytes times hops over bytes; zero without demand."""
        total = float(self.demand.sum())
        return float(self.link_load.sum()) / total if total > 0 else 0.0

    def paths(self, source: int, target: int) -> list[tuple[tuple[int, ...], float]]:
        """Return the node sequences of a pair and the share of each; empty without demand."""
        pair = source * self.network.hosts + target
        at = int(np.searchsorted(self.pairs, pair))
        if at == self.pairs.size or self.pairs[at] != pair:
            return []
        found = []
        for path in range(int(self.path_offsets[at]), int(self.path_offsets[at + 1])):
            links = self.links[self.link_offsets[path] : self.link_offsets[path + 1]]
            nodes = (source, *self.network.target[links].tolist())
            found.append((nodes, float(self.shares[path])))
        return found

    def routes(self, *, idle: bool = True) -> Routes:
        """Return the routes of every pair; those without demand take a shortest path by hops.

        Parameters
        ----------
        idle : bool
            List pairs without demand, too.

        Raises
        ------
        InfeasibleError
            If a host cannot reach another, be it without demand.
        """
        from routing.flow_kernels import rows_of_paths

        hosts = self.network.hosts
        latency = np.zeros(hosts * hosts)
        row_offsets, links, weights, slowest = rows_of_paths(
            self.network.links,
            self.path_offsets,
            self.link_offsets,
            self.links.astype(np.int32),
            self.shares,
            self.network.latency,
        )
        if not idle:
            hops = np.add.reduceat(weights, row_offsets[:-1]) if weights.size else np.zeros(0)
            return Routes(hosts, row_offsets, links, weights, slowest, hops, self.pairs.copy())
        latency[self.pairs] = slowest
        lengths = np.zeros(hosts * hosts, dtype=np.int64)
        lengths[self.pairs] = np.diff(row_offsets)
        if self.pairs.size == hosts * (hosts - 1):
            return _table(hosts, lengths, links, weights, latency)
        plain = shortest_routes(self.network)
        unasked = np.ones(hosts * hosts, dtype=np.bool_)
        unasked[self.pairs] = False
        lengths[unasked] = np.diff(plain.offsets)[unasked]
        latency[unasked] = plain.latency[unasked]
        asked = np.repeat(~unasked, lengths)
        merged, parts = np.empty(asked.size, dtype=np.int64), np.ones(asked.size)
        merged[asked], parts[asked] = links, weights
        merged[~asked] = plain.links[np.repeat(unasked, np.diff(plain.offsets))]
        return _table(hosts, lengths, merged, parts, latency)


def _table(hosts: int, lengths: Ints, links: Ints, weights: Floats, latency: Floats) -> Routes:
    offsets = starts(lengths)
    pair = np.repeat(np.arange(hosts * hosts), lengths)
    hops = summed(pair, weights, hosts * hosts)
    return Routes(hosts, offsets, links, weights, latency, hops)


def checked_demand(network: Network, demand: Floats) -> Floats:
    """Return a demand matrix as float64 after checking it against a network.

    Parameters
    ----------
    network : Network
    demand : float array, shape (hosts, hosts)
        Not negative, finite, zero on the diagonal.

    Raises
    ------
    InputError
        If it is not so.
    """
    try:
        matrix = np.ascontiguousarray(demand, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"demand is {told(demand)}; give a matrix of bytes") from None
    if matrix.shape != (network.hosts, network.hosts):
        raise InputError(
            f"demand has shape {matrix.shape}; network {network.name!r} has "
            f"{counted(network.hosts, 'host')}, so give {(network.hosts, network.hosts)}"
        )
    if not np.all(np.isfinite(matrix) & (matrix >= 0)):
        source, target = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))[0].tolist()
        raise InputError(
            f"demand {source}->{target} is {matrix[source, target]}; give zero or more, finite"
        )
    if np.any(np.diag(matrix)):
        host = int(np.flatnonzero(np.diag(matrix))[0])
        raise InputError(f"demand {host}->{host} is not zero; a host needs no network for itself")
    return matrix


def dual_bound(network: Network, demand: Floats, lengths: Floats) -> float:
    """Return the lower bound on congestion that link lengths prove.

    Under any routing, the sum of demand times distance is at most the sum of load times length,
    which is at most the congestion times the sum of capacity times length.

    Parameters
    ----------
    network : Network
    demand : float64 array, shape (hosts, hosts)
    lengths : float64 array, shape (links,)
        Not negative, not all zero.

    Returns
    -------
    float
        Seconds; infinity if a demand cannot be served at all.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> print(f"{dual_bound(ring, demand, np.ones(8)) * 1e6:.1f} us")
    160.0 us
    """
    from routing.flow_kernels import demand_distance

    total = demand_distance(
        network.out_offsets, network.target, forwarding_nodes(network), lengths, demand
    )
    return float(total / float(network.capacity @ lengths)) * CUT_ROUNDING


def require_served(network: Network, demand: Floats) -> Ints:
    """Return the hops between hosts, shape (hosts, hosts), -1 where there is no path.

    Raises
    ------
    InfeasibleError
        Naming a pair that has demand and no path.
    """
    hosts = network.hosts
    hops = hop_distances(network)[:hosts, :hosts]
    missing = (hops < 0) & (demand > 0)
    if missing.any():
        source, target = np.argwhere(missing)[0].tolist()
        raise InfeasibleError(
            f"network {network.name!r}: host {target} cannot be reached from host {source}, which "
            "has demand for it; add links between them"
        )
    return hops


def idle_routing(network: Network, demand: Floats, method: str) -> PathRouting:
    """Return the routing of no demand at all."""
    none = np.zeros(0, dtype=np.int64)
    lengths = np.ones(network.links) / max(float(network.capacity.sum()), 1e-300)
    return PathRouting(
        network, demand, none, np.zeros(1, np.int64), np.zeros(1, np.int64), none, np.zeros(0),
        lengths, 0.0, method, 0,
    )  # fmt: skip


def reversed_rows(offsets: Ints, values: SmallInts) -> Ints:
    """Return concatenated rows with each row turned round."""
    place = np.arange(values.size)
    row = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return np.asarray(values[offsets[row] + offsets[row + 1] - 1 - place], dtype=np.int64)


def normalised(offsets: Ints, amounts: Floats) -> Floats:
    """Return each row's amounts as fractions of their sum; rows are not empty."""
    if amounts.size == 0:
        return amounts
    return np.asarray(
        amounts / np.repeat(np.add.reduceat(amounts, offsets[:-1]), np.diff(offsets)),
        dtype=np.float64,
    )
