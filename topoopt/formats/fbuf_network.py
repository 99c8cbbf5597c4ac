"""The network, routes and rings that a task-graph file describes."""

from collections.abc import Mapping

import numpy as np

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.rows import spread, starts, summed
from parallelism.taskgraph import Group
from routing.network import Network
from routing.routes import Routes
from topoopt.fabric.rings import Rings
from topoopt.formats.fbuf_file import FbufFile, FbufTask
from topoopt.formats.fbuf_rings import jump_list_orders


def network_of(file: FbufFile, latency: float = 1e-6, name: str = "task-graph file") -> Network:
    """Return the network that a file describes: cables carry the file's port rate both ways.

    Parameters
    ----------
    file : FbufFile
    latency : float
        Seconds of each hop, which the file does not hold (the published simulations take 1 us).
    name : str

    Returns
    -------
    Network

    Raises
    ------
    InputError
        If it has no connections, no port rate, or two numbers of cables for one pair.
    """
    if not file.conn_source.size or file.net_bandwidth <= 0.0:
        raise InputError(
            "the task graph holds no connections or no network bandwidth; name another fabric"
        )
    cables: dict[tuple[int, int], int] = {}
    for a, b, count in zip(
        file.conn_source.tolist(), file.conn_target.tolist(), file.conn_cables.tolist(), strict=True
    ):
        pair = (min(a, b), max(a, b))
        if cables.setdefault(pair, count) != count:
            raise InputError(
                f"nodes {a} and {b} are joined by {counted(cables[pair], 'cable')} and by {count}; "
                "the format means both directions at once, so keep one"
            )
    ends = sorted([*cables, *((b, a) for a, b in cables)])
    multiplicity = np.array([cables[min(e), max(e)] for e in ends], dtype=np.int64)
    return Network(
        name=name,
        hosts=file.nodes,
        switches=file.switches,
        source=np.array([a for a, _ in ends], dtype=np.int64),
        target=np.array([b for _, b in ends], dtype=np.int64),
        capacity=multiplicity.astype(np.float64) * file.net_bandwidth,
        latency=np.full(len(ends), latency),
        multiplicity=multiplicity,
    )


def routes_of(file: FbufFile, network: Network) -> Routes:
    """Return the routes that a file gives the pairs of hosts.

    Parameters
    ----------
    file : FbufFile
    network : Network
        From `network_of`.

    Returns
    -------
    Routes
        Chances of each pair scaled to sum to 1.

    Raises
    ------
    InputError
        If a pair has no route or two, or a path uses a link that does not exist.
    """
    hosts = network.hosts
    crosses = (file.route_source < hosts) & (file.route_target < hosts)
    crosses &= file.route_source != file.route_target
    counts = np.diff(file.route_offsets)
    routed = np.sort((file.route_source * hosts + file.route_target)[crosses & (counts > 0)])
    twice = np.flatnonzero(routed[1:] == routed[:-1])
    if twice.size:
        a, b = divmod(int(routed[twice[0]]), hosts)
        raise InputError(f"the pair {a}->{b} has two routes; keep one")
    # A table of all pairs must not grow beyond what the file gives paths for.
    if routed.size < hosts * (hosts - 1):
        raise InputError(
            f"{routed.size} of the {hosts * (hosts - 1)} ordered pairs of nodes have paths; "
            "give every pair its route"
        )
    route = np.repeat(np.arange(file.route_source.size), counts)
    between = crosses[route]
    pair_of_path = file.route_source[route] * hosts + file.route_target[route]
    paths = np.flatnonzero(between)
    steps = np.diff(file.hop_offsets)[paths] - 1
    at = spread(file.hop_offsets[:-1][paths], steps)
    keys = network.source * network.nodes + network.target
    wanted = file.hops[at] * network.nodes + file.hops[at + 1]
    links = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    missing = np.flatnonzero(keys[links] != wanted)
    if missing.size:
        a, b = divmod(int(wanted[missing[0]]), network.nodes)
        raise InputError(f"a path goes from {a} to {b}, which no connection joins; correct it")
    total = np.bincount(pair_of_path[paths], file.path_chance[paths], minlength=hosts * hosts)
    if np.any(total[pair_of_path[paths]] <= 0.0):
        pair = pair_of_path[paths][np.argmin(total[pair_of_path[paths]])]
        a, b = divmod(int(pair), hosts)
        raise InputError(
            f"the paths of the pair {a}->{b} have no chance; give shares that sum to 1"
        )
    share = file.path_chance[paths] / total[pair_of_path[paths]]
    # A link in several paths of a pair carries the sum of their shares.
    row = np.repeat(pair_of_path[paths], steps)
    entries, inverse = np.unique(row * network.links + links, return_inverse=True)
    shares = summed(inverse, np.repeat(share, steps), entries.size)
    used = shares > 0.0
    entries, weights = entries[used], np.minimum(shares[used], 1.0)
    rows = entries // network.links
    latency = np.zeros(hosts * hosts)
    slowest = np.bincount(
        np.repeat(np.arange(paths.size), steps), network.latency[links], minlength=paths.size
    )
    np.maximum.at(latency, pair_of_path[paths], np.where(share > 0.0, slowest, 0.0))
    return Routes(
        hosts=hosts,
        offsets=starts(np.bincount(rows, minlength=hosts * hosts)),
        links=(entries % network.links).astype(np.int64),
        weights=weights,
        latency=latency,
        hops=summed(rows, weights, hosts * hosts),
    )


def rings_of(file: FbufFile) -> Mapping[Group, Rings]:
    """Return the ring orders of the AllReduce groups of a file.

    Parameters
    ----------
    file : FbufFile

    Returns
    -------
    mapping of tuple of int to tuple of tuple of int
        By sorted group: the rings that the file's ring sets make over it; in files without ring
        sets one ring, in the order in which the (first) AllReduce lists its group.

    Raises
    ------
    InputError
        If the file has ring sets, but none for this size, or they do not visit the group.
    """
    sets = file.ring_jumps()
    found: dict[Group, Rings] = {}
    for task in np.flatnonzero(file.task_type == FbufTask.ALLREDUCE).tolist():
        members = tuple(file.nexts(task).tolist())
        group = tuple(sorted(members))
        if len(group) < 2 or group in found:
            continue
        found[group] = jump_list_orders(sets, members, file.nodes) if sets else (members,)
    return found
