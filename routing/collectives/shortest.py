"""Trees of shortest paths: the least latency, and a good rate where networks are symmetric."""

from collections.abc import Sequence

from codesign_base import InfeasibleError
from routing.collectives.rate import members_of, roots_of
from routing.collectives.trees import Forest, Tree, shared_rate
from routing.network import Network

Arc = tuple[int, int]


def shortest_forest(network: Network, group: Sequence[int], root: int | None = None) -> Forest:
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
    members = members_of(network, group)
    after: list[list[int]] = [[] for _ in range(network.hosts + network.switches)]
    cost: dict[Arc, float] = {}
    for a, b, capacity in zip(
        network.source.tolist(), network.target.tolist(), network.capacity.tolist(), strict=True
    ):
        after[a].append(b)
        cost[a, b] = 1.0 / capacity
    load: list[dict[Arc, float]] = []
    roots = roots_of(members, root)
    trees = tuple(_tree(each, members, after, cost, load, network.name) for each in roots)
    return Forest("shortest-trees", members, shared_rate(network, trees, 1), 1, trees)


def _tree(
    root: int, members: Sequence[int], after: Sequence[Sequence[int]], cost: dict[Arc, float],
    load: list[dict[Arc, float]], name: str,
) -> Tree:  # fmt: skip
    """Return a tree of fewest hops, and add what it sends to each hop's load (seconds a byte)."""
    parent = {root: root}
    depth = {root: 0}
    layer, order = [root], [root]
    while layer:
        # Each node of the next layer takes the parent whose link would be loaded least.
        hop = depth[layer[0]]
        if hop == len(load):
            load.append(dict.fromkeys(cost, 0.0))
        found: dict[int, list[int]] = {}
        for node in layer:
            for there in after[node]:
                if there not in parent:
                    found.setdefault(there, []).append(node)
        layer = sorted(found)
        for there in layer:
            parent[there] = min(
                found[there], key=lambda node: (load[hop][node, there] + cost[node, there], node)
            )
            depth[there] = hop + 1
        order += layer
    inside = set(members)
    paths = []
    for member in (node for node in order[1:] if node in inside):
        path = [member]
        while len(path) == 1 or path[-1] not in inside:
            path.append(parent[path[-1]])
            load[depth[path[-1]]][path[-1], path[-2]] += cost[path[-1], path[-2]]
        paths.append(tuple(reversed(path)))
    if len(paths) < len(members) - 1:
        raise InfeasibleError(
            f"network {name!r}: host {min(inside - parent.keys())} cannot be reached from host "
            f"{root}; choose a group that is connected both ways"
        )
    return Tree(root, 1, tuple(paths))
