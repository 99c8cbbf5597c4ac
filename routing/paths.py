"""Shortest, equal-cost and k-shortest routes of host pairs.

Hosts of a network without switches forward for each other (host-based forwarding, TopoOpt);
where there are switches, only switches forward. Paths are chosen by hops; parallel cables are
one link and do not change the choice.
"""

from typing import NamedTuple

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from routing.network import Network
from routing.routes import Routes

# Nodes that the k-shortest search may enter for one pair before it turns to exact pruning.
_SEARCH_BUDGET = 20_000


def forwarding_nodes(network: Network) -> Ints:
    """Return 1 for each node that may forward traffic of others, else 0; shape (nodes,)."""
    mask = np.ones(network.nodes, dtype=np.int64)
    if network.switches:
        mask[: network.hosts] = 0
    return mask


def hop_distances(network: Network) -> Ints:
    """Return the hops of a shortest path between all nodes.

    Parameters
    ----------
    network : Network

    Returns
    -------
    int64 array, shape (nodes, nodes)
        Row node to column node; -1 where there is no path. Paths through a node that must not
        forward do not count.
    """
    into = _hops_into(network, np.arange(network.nodes))
    return np.ascontiguousarray(into.T)


def hops_toward_hosts(network: Network, forwarding: Ints | None = None) -> Ints:
    """Return hops to each host, after checking that all are reached.

    Parameters
    ----------
    network : Network
    forwarding : int64 array, shape (nodes,), optional
        As `forwarding_nodes` returns, which is the default.

    Returns
    -------
    int64 array, shape (hosts, nodes)

    Raises
    ------
    InfeasibleError
        If a host cannot reach another.
    """
    toward = _hops_into(network, np.arange(network.hosts), forwarding)
    between = toward[:, : network.hosts].T
    if between.min() < 0:
        source, target = np.argwhere(between < 0)[0].tolist()
        raise _unreachable(network, source, target)
    return toward


def _hops_into(network: Network, targets: Ints, forwarding: Ints | None = None) -> Ints:
    """Return hops from all nodes to some hosts, shape (targets, nodes); -1: no path."""
    from routing.path_kernels import distances_into

    offsets, links = links_into(network)
    nodes = forwarding_nodes(network) if forwarding is None else forwarding
    return distances_into(offsets, network.source[links], nodes, targets)


def _unreachable(network: Network, source: int, target: int) -> InfeasibleError:
    if network.switches:
        everywhere = np.ones(network.nodes, dtype=np.int64)
        if _hops_into(network, np.array([target]), everywhere)[0, source] >= 0:
            return InfeasibleError(
                f"network {network.name!r}: host {target} is reached from host {source} only "
                "through other hosts, which do not forward here, since the network has switches; "
                "join all hosts by switches, or give the file to topoopt compare --fabrics, where "
                "they forward"
            )
    return InfeasibleError(
        f"network {network.name!r}: host {target} cannot be reached from host {source}; "
        "add links until every host reaches every other"
    )


class _Asked(NamedTuple):
    """Pairs to route, and the hops to their targets; as the kernels take them."""

    toward: Ints
    place: Ints
    pairs: Ints


def _asked(network: Network, pairs: Ints | None, forwarding: Ints | None = None) -> _Asked:
    """Return pairs, by default all, with the hops to their targets.

    Raises
    ------
    InfeasibleError
        If a host cannot reach another that it is to send to.
    """
    hosts = network.hosts
    if pairs is None:
        toward = hops_toward_hosts(network, forwarding)
        return _Asked(toward, np.arange(hosts), np.arange(hosts * hosts))
    source, target = np.divmod(pairs, hosts)
    targets, row = np.unique(target, return_inverse=True)
    toward = _hops_into(network, targets, forwarding)
    lost = np.flatnonzero(toward[row, source] < 0)
    if lost.size:
        raise _unreachable(network, int(source[lost[0]]), int(target[lost[0]]))
    place = np.zeros(hosts, dtype=np.int64)
    place[targets] = np.arange(targets.size)
    return _Asked(toward, place, pairs.copy())  # kernels are compiled anew for read-only ones


def shortest_routes(network: Network, *, seed: int | np.random.Generator | None = None) -> Routes:
    """Route every pair over one shortest path.

    Parameters
    ----------
    network : Network
    seed : int or numpy.random.Generator, optional
        Draw each pair's path uniformly from its shortest paths (one random shortest path, as
        the published TopoOpt code routes transfers). By default the path with the lowest node
        sequence.

    Returns
    -------
    Routes

    Raises
    ------
    InfeasibleError
        If a host cannot reach another.
    """
    from routing.path_kernels import shortest_path_counts, single_paths

    toward = hops_toward_hosts(network)
    graph = (network.out_offsets, network.target, forwarding_nodes(network), toward)
    lengths = toward[:, : network.hosts].T.ravel()
    if seed is None:
        counts, draws = np.zeros((1, 1)), np.zeros(0)
    else:
        counts = shortest_path_counts(*graph, np.argsort(toward, axis=1))
        draws = np.random.default_rng(seed).random(int(lengths.sum()))
    links = single_paths(*graph, counts, draws)
    return single_path_routes(network, lengths, links)


def single_path_routes(network: Network, lengths: Ints, links: Ints) -> Routes:
    """Return the routes of one path a pair.

    Parameters
    ----------
    network : Network
    lengths : int64 array, shape (hosts * hosts,)
        Links of each pair's path, zero on the diagonal.
    links : int64 array, shape (sum of lengths,)
        The paths' links, pair after pair.

    Returns
    -------
    Routes
    """
    row = np.repeat(np.arange(lengths.size), lengths)
    latency = np.zeros(lengths.size)
    np.add.at(latency, row, network.latency[links])
    return Routes(
        hosts=network.hosts,
        offsets=starts(lengths),
        links=links[np.argsort(row * np.int64(network.links + 1) + links, kind="stable")],
        weights=np.ones(links.size),
        latency=latency,
        hops=lengths.astype(np.float64),
    )


def ecmp_routes(
    network: Network, *, hosts_forward: bool = False, pairs: Ints | None = None
) -> Routes:
    """Split every pair's traffic equally over all shortest next hops, at each node (fluid ECMP).

    Parameters
    ----------
    network : Network
    hosts_forward : bool, optional
        Let hosts forward for each other although there are switches.
    pairs : int64 array, optional
        The pairs to route, ascending; by default all.

    Returns
    -------
    Routes

    Raises
    ------
    InfeasibleError
        If a host cannot reach another that it is to send to.

    Notes
    -----
    Node by node is how switches split; it equals an equal split over paths only where the
    shortest-path graph is symmetric, as in a fat-tree.

    Examples
    --------
    >>> import numpy as np
    >>> from routing.network import Network
    >>> around = np.arange(4)
    >>> ends = np.append(around, (around + 1) % 4), np.append((around + 1) % 4, around)
    >>> ring = Network.from_links("ring", 4, 0, *ends, 12.5e9, 1e-6)
    >>> demand = 1e6 * (1.0 - np.eye(4))
    >>> float(ecmp_routes(ring).link_bytes(ring, demand).max())
    2000000.0
    """
    from routing.path_kernels import ecmp_rows

    forwarding = (
        np.ones(network.nodes, dtype=np.int64) if hosts_forward else forwarding_nodes(network)
    )
    offsets, links, weights, latency, hops = ecmp_rows(
        network.out_offsets,
        network.target,
        network.latency,
        forwarding,
        *_asked(network, pairs, forwarding),
    )
    np.minimum(weights, 1.0, out=weights)
    return Routes(network.hosts, offsets, links, weights, latency, hops, pairs)


def ecmp_link_bytes(network: Network, demand: Floats) -> Floats:
    """Return the bytes that a demand puts on each link under `ecmp_routes`, which are not made.

    Target by target, in time and memory of the distances to hosts that are sent something: routes
    of all pairs of thousands of hosts fill memory.

    Parameters
    ----------
    network : Network
    demand : float64 array, shape (hosts, hosts)
        Bytes from row to column.

    Returns
    -------
    float64 array, shape (links,)

    Raises
    ------
    InfeasibleError
        If a host cannot reach another that it sends to.
    """
    from routing.path_kernels import ecmp_loads

    sent = np.array(demand, dtype=np.float64)
    np.fill_diagonal(sent, 0.0)
    targets = np.flatnonzero(sent.any(axis=0))
    if targets.size == 0:
        return np.zeros(network.links)
    toward = _hops_into(network, targets)
    lost = np.argwhere((toward[:, : network.hosts] < 0).T & (sent[:, targets] > 0.0))
    if lost.size:
        raise _unreachable(network, int(lost[0, 0]), int(targets[lost[0, 1]]))
    loads: Floats = ecmp_loads(
        network.out_offsets, network.target, forwarding_nodes(network), toward, targets, sent
    )
    return loads


def links_into(network: Network) -> tuple[Ints, Ints]:
    """Return CSR offsets and indices of the links into each node, by their source."""
    counts = np.bincount(network.target, minlength=network.nodes)
    offsets = starts(counts)
    return offsets, np.argsort(network.target, kind="stable")


USUAL_PATHS, USUAL_SLACK = 8, 1
"""Paths a pair, and hops more than the shortest, of what is called ``k-shortest``."""


def k_shortest_routes(
    network: Network, k: int, *, slack: int | None = None, pairs: Ints | None = None
) -> Routes:
    """Split every pair's traffic equally over its k shortest loopless paths.

    Parameters
    ----------
    network : Network
    k : int
        Paths a pair, at least 1; fewer are used where there are fewer.
    slack : int, optional
        Leave out paths longer than the shortest by more than this many hops.
    pairs : int64 array, optional
        The pairs to route, ascending; by default all.

    Returns
    -------
    Routes

    Raises
    ------
    InputError
        If k or slack is out of range.
    InfeasibleError
        If a host cannot reach another that it is to send to.

    Notes
    -----
    The set is that of Yen's algorithm; ties go to the lower node sequence. TopoOpt section 4
    routes model-parallel transfers so.
    """
    from routing.k_shortest_kernels import k_shortest_rows

    if k < 1:
        raise InputError(f"k = {k} paths a pair; give at least 1")
    if slack is not None and slack < 0:
        raise InputError(f"slack = {slack} hops; give zero or more, or None for no limit")
    back_offsets, back = links_into(network)
    offsets, links, weights, latency, hops = k_shortest_rows(
        network.out_offsets,
        network.target,
        network.latency,
        back_offsets,
        network.source[back],
        forwarding_nodes(network),
        *_asked(network, pairs),
        k,
        -1 if slack is None else slack,
        _SEARCH_BUDGET,
    )
    return Routes(network.hosts, offsets, links, weights, latency, hops, pairs)
