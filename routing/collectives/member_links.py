"""Links between members only, each over a path through those who forward.

Nodes outside the group are taken out one by one: capacity into a node and out of it becomes
capacity past it, as much as leaves every cut that the rate needs (edge splitting; Frank, "On a
theorem of Mader", 1992; Zhao et al., "ForestColl", 2024, section 5.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codesign_base import InputError
from routing.collectives.cuts import Arc, Capacities, Cuts, joined_arcs
from routing.network import NodePath

MOST_WORK = 6e8
"""Arcs of all flows by which nodes are taken out; about 1.4e7 take a second."""

SharedPaths = list[tuple[NodePath, int]]
"""Nodes of each path, and its capacity."""


class TooMuchWorkError(InputError):
    """Nodes outside the group are too many, or have too many links, to be taken out."""


@dataclass
class _Budget:
    """Arcs of flows that may still be looked at."""

    left: float

    def spend(self, arcs: int) -> None:
        self.left -= arcs
        if self.left < 0.0:
            raise TooMuchWorkError(
                "trees of the best rate over hosts and switches outside the group would take too "
                "much work; choose a group of all hosts, or a smaller one"
            )


def link_members(
    capacity: Capacities, members: Sequence[int], trees: Mapping[int, int], *, near: bool = True
) -> dict[Arc, SharedPaths]:
    """Return links between members that allow as many trees as the whole network.

    Parameters
    ----------
    capacity : mapping of (int, int) to int
        Trees that each link may join.
    members : sequence of int
    trees : mapping of int to int
        How many of each root reach all members.
    near : bool
        Leave out the nodes farthest from the group without which there are as many, so that paths
        are short. What is left may receive and send different capacity.

    Returns
    -------
    dict of (int, int) to list of (tuple of int, int)
        Of each pair of members, the paths that join it and the capacity of each; together they
        take no more of a link than its capacity. Without ``near``, or if forwarders receive what
        they send, for all trees.

    Raises
    ------
    TooMuchWorkError
        Beyond `MOST_WORK`.
    """
    far = _distances(capacity, members)
    forwarders = sorted(far.keys() - set(members), key=lambda node: (-far[node], node))
    if near:
        capacity = _without(capacity, forwarders, members, trees)
    paths: dict[Arc, SharedPaths] = {pair: [(pair, amount)] for pair, amount in capacity.items()}
    budget = _Budget(MOST_WORK)
    for forwarder in forwarders:
        _take_out(paths, forwarder, members, trees, budget)
    return paths


def _distances(capacity: Capacities, members: Sequence[int]) -> dict[int, int]:
    """Return the hops from and to the nearest member of every node, added."""
    found: dict[int, int] = {}
    for ends in (capacity, [(b, a) for a, b in capacity]):
        after: dict[int, list[int]] = {}
        for a, b in ends:
            after.setdefault(a, []).append(b)
        hops = dict.fromkeys(members, 0)
        queue = list(members)
        for node in queue:
            for there in after.get(node, ()):
                if there not in hops:
                    hops[there] = hops[node] + 1
                    queue.append(there)
        nodes = {node for pair in capacity for node in pair}
        for node in nodes:
            found[node] = found.get(node, 0) + hops.get(node, len(nodes))
    return found


def _without(
    capacity: Capacities,
    forwarders: Sequence[int],
    members: Sequence[int],
    trees: Mapping[int, int],
) -> dict[Arc, int]:
    """Return the links that are left without the first forwarders that no cut needs."""
    source = max(max(pair) for pair in capacity) + 1
    cuts = Cuts(joined_arcs(capacity.items(), (((source, m), n) for m, n in trees.items())))
    needed = sum(trees.values())
    kept = dict(capacity)
    for forwarder in forwarders:
        mine = [pair for pair in kept if forwarder in pair]
        cuts.change(dict.fromkeys(mine, 0))
        if all(cuts.value(source, m) == needed for m in members):
            for pair in mine:
                del kept[pair]
        else:
            cuts.change({pair: kept[pair] for pair in mine})
    return kept


def _take_out(
    paths: dict[Arc, SharedPaths], forwarder: int, members: Sequence[int],
    trees: Mapping[int, int], budget: _Budget,
) -> None:  # fmt: skip
    """Replace capacity through a node by capacity past it."""
    into = sorted(a for a, b in paths if b == forwarder)
    out = sorted(b for a, b in paths if a == forwarder)
    for target, origin in ((b, a) for b in out for a in into if a != b):
        most = min(_amount(paths, (origin, forwarder)), _amount(paths, (forwarder, target)))
        amount = 0
        if most:
            amount = _spare(paths, origin, forwarder, target, members, trees, most, budget)
        if amount:
            first = _taken(paths, (origin, forwarder), amount)
            second = _taken(paths, (forwarder, target), amount)
            paths.setdefault((origin, target), []).extend(_concatenated(first, second))
    # What is left is needed by no cut.
    for pair in [pair for pair in paths if forwarder in pair]:
        del paths[pair]


def _spare(
    paths: dict[Arc, SharedPaths], origin: int, forwarder: int, target: int,
    members: Sequence[int], trees: Mapping[int, int], most: int, budget: _Budget,
) -> int:  # fmt: skip
    """Return how much capacity may go past a node instead of through it.

    A cut loses it that has the forwarder on one side and both ends on the other. Every set that
    holds the source of all broadcasts and lacks a member must keep what all trees need.
    """
    source, needed = -1, sum(trees.values())
    nodes = sorted({node for pair in paths for node in pair} | set(members))
    index = {node: at for at, node in enumerate([source, *nodes])}
    free = needed + most
    capacity = joined_arcs(
        (((index[a], index[b]), _amount(paths, (a, b))) for a, b in paths),
        (((index[source], index[root]), n) for root, n in trees.items()),
    )
    for sources, sinks in (((origin, target), (forwarder,)), ((forwarder,), (origin, target))):
        held = joined_arcs(
            capacity.items(),
            (((index[source], index[node]), free) for node in sources),
            (((index[a], index[b]), free) for a in sinks for b in sinks if a != b),
            (((index[member], index[sinks[0]]), 0) for member in members if member != sinks[0]),
            (((index[sinks[0]], index[member]), 0) for member in members if member != sinks[0]),
        )
        cuts = Cuts(held)
        for member in members:
            if member in sources:
                continue
            # The member and the sinks are on one side.
            one, two = index[member], index[sinks[0]]
            if one != two:
                cuts.change({(one, two): held[one, two] + free, (two, one): held[two, one] + free})
            budget.spend(cuts.arcs)
            most = min(most, cuts.value(index[source], two) - needed)
            if one != two:
                cuts.change({(one, two): held[one, two], (two, one): held[two, one]})
            if most <= 0:
                return 0
    return most


def _amount(paths: dict[Arc, SharedPaths], pair: Arc) -> int:
    return sum(amount for _, amount in paths.get(pair, ()))


def _taken(paths: dict[Arc, SharedPaths], pair: Arc, amount: int) -> SharedPaths:
    """Remove capacity from a link, and return its paths."""
    found: SharedPaths = []
    left = paths[pair]
    while amount:
        path, here = left.pop()
        taken = min(here, amount)
        found.append((path, taken))
        amount -= taken
        if here > taken:
            left.append((path, here - taken))
    if not left:
        del paths[pair]
    return found


def _concatenated(first: SharedPaths, second: SharedPaths) -> SharedPaths:
    found: SharedPaths = []
    one, two = [*first], [*second]
    while one:
        (a, x), (b, y) = one.pop(), two.pop()
        amount = min(x, y)
        found.append(((*a, *b[1:]), amount))
        if x > amount:
            one.append((a, x - amount))
        if y > amount:
            two.append((b, y - amount))
    return found
