"""Trees of shortest paths: the least latency, and a good rate where networks are symmetric."""

from collections.abc import Sequence

import numpy as np

from codesign_base import InfeasibleError
from codesign_base.arrays import Floats
from routing.collectives.cuts import Arc
from routing.collectives.rate import members_of, roots_of
from routing.collectives.trees import Forest, Tree, shared_rate
from routing.network import Network

_SAME = 1e-12


def shortest_forest(
    network: Network, group: Sequence[int], root: int | None = None, *, nearest: bool = False
) -> Forest:
    """Return one tree of shortest paths a root, over the links that others use least.

    Each hop's load is shared out by itself, so that links are alike hop by hop (see `waves`).

    Members copy and forward; hosts outside the group and switches only forward, so that a path
    through them ends at one member.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts.
    root : int, optional
        The member that broadcasts; all do without.
    nearest : bool
        Paths of least latency, not of fewest hops.

    Returns
    -------
    Forest

    Raises
    ------
    InputError
        If the group is none, or the root not in it.
    InfeasibleError
        If members cannot reach each other.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    members = members_of(network, group)
    roots = roots_of(members, root)
    nodes = network.hosts + network.switches
    hop = np.ones(network.source.size)
    if nearest and network.latency.max() > 0.0:
        # Of as little latency the fewest hops.
        hop = 1e-9 + network.latency / network.latency.max()
    graph = csr_array((hop, (network.source, network.target)), shape=(nodes, nodes))
    away = dijkstra(graph, indices=np.array(roots, dtype=np.int64))
    into: list[list[tuple[int, float]]] = [[] for _ in range(nodes)]
    ends = list(zip(network.source.tolist(), network.target.tolist(), strict=True))
    for (a, b), length in zip(ends, hop.tolist(), strict=True):
        into[b].append((a, length))
    cost = dict(zip(ends, (1.0 / network.capacity).tolist(), strict=True))
    load: list[dict[Arc, float]] = []
    trees = tuple(
        _tree(each, members, into, far, cost, load, network.name)
        for each, far in zip(roots, away, strict=True)
    )
    name = "nearest-trees" if nearest else "shortest-trees"
    return Forest(name, members, shared_rate(network, trees, 1), 1, trees)


def _tree(
    root: int, members: Sequence[int], into: Sequence[Sequence[tuple[int, float]]],
    away: Floats, cost: dict[Arc, float], load: list[dict[Arc, float]], name: str,
) -> Tree:  # fmt: skip
    """Return a tree of shortest paths, and add to each hop's load (seconds a byte)."""
    parent, depth = {root: root}, {root: 0}
    inside = set(members)
    order = np.lexsort((np.arange(away.size), away))
    far = away.tolist()
    found = []
    for there in order[: np.isfinite(away).sum()].tolist():
        if there == root:
            continue
        found.append(there)
        limit = far[there] * (1.0 + _SAME)
        chosen = least = None
        for node, length in into[there]:
            if node not in depth or far[node] + length > limit:
                continue
            hop = depth[node]
            weight = (load[hop].get((node, there), 0.0) if hop < len(load) else 0.0) + cost[
                node, there
            ]
            if least is None or (weight, node) < least:
                chosen, least = node, (weight, node)
        assert chosen is not None
        parent[there], depth[there] = chosen, depth[chosen] + 1
    if not inside <= parent.keys():
        raise InfeasibleError(
            f"network {name!r}: host {min(inside - parent.keys())} cannot be reached from host "
            f"{root}; choose a group that is connected both ways"
        )
    paths = []
    for member in (node for node in found if node in inside):
        path = [member]
        while len(path) == 1 or path[-1] not in inside:
            path.append(parent[path[-1]])
            hop = depth[path[-1]]
            while len(load) <= hop:
                load.append({})
            pair = path[-1], path[-2]
            load[hop][pair] = load[hop].get(pair, 0.0) + cost[pair]
        paths.append(tuple(reversed(path)))
    return Tree(root, 1, tuple(paths))
