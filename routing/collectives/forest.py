"""Broadcast trees, of every member or one, that together reach the best rate.

Trees grow one at a time. A link may join a tree if what remains is enough for all trees that have
not grown yet, which one smallest cut tells (Tarjan, "A good algorithm for edge-disjoint
branching", 1974; Bérczi and Frank, "Packing arborescences", 2010; Zhao et al., "ForestColl",
2024, section 5.3). Of the links that may, the one nearest to the root is taken, so that trees
stay shallow; any choice leads to the best rate.
"""

from collections.abc import Iterable, Mapping, Sequence

from codesign_base import InfeasibleError
from routing.collectives.cuts import Arc, Capacities, Cuts, joined_arcs
from routing.collectives.member_links import SharedPaths, link_members
from routing.collectives.rate import gather_rate
from routing.collectives.trees import Forest, Tree
from routing.network import Network


def gather_forest(network: Network, group: Sequence[int], root: int | None = None) -> Forest:
    """Return trees that broadcast to all members of a group at the best rate.

    Parameters
    ----------
    network : Network
    group : sequence of int
        Hosts; the others and switches forward.
    root : int, optional
        The member that broadcasts; all do without.

    Returns
    -------
    Forest

    Raises
    ------
    InputError, InfeasibleError
        As `gather_rate`; and InfeasibleError if nodes outside the group receive and send
        different capacity, and no trees of the best rate are found. TooMuchWorkError if nodes
        outside the group are too many (`routing.collectives.member_links.MOST_WORK`).
    """
    rate = gather_rate(network, group, root)
    units, scale = rate.per_root.numerator, rate.per_root.denominator
    capacity = {pair: amount * scale for pair, amount in rate.capacity.items()}
    trees = packed_trees(capacity, rate.members, dict.fromkeys(rate.roots, units), network.name)
    return Forest("trees", rate.members, rate.bytes_per_s, units, trees)


def packed_trees(
    capacity: Capacities, members: Sequence[int], copies: Mapping[int, int], name: str
) -> tuple[Tree, ...]:
    """Return broadcast trees of so many copies of each root, where every cut has room for them.

    Parameters
    ----------
    capacity : mapping of (int, int) to int
        Copies that each link may carry.
    members : sequence of int
        Hosts, ascending; the others and switches forward.
    copies : mapping of int to int
        Of each root.
    name : str
        Of the network.

    Returns
    -------
    tuple of Tree

    Raises
    ------
    InfeasibleError
        If nodes outside the group receive and send different capacity, and none are found.
    TooMuchWorkError
        As `gather_forest`.
    """
    try:
        return _pack(link_members(capacity, members, copies), members, copies, name)
    except InfeasibleError:
        links = link_members(capacity, members, copies, near=False)
        return _pack(links, members, copies, name)


def _pack(
    paths: dict[Arc, SharedPaths], members: Sequence[int], copies: Mapping[int, int], name: str
) -> tuple[Tree, ...]:
    left = {pair: sum(amount for _, amount in some) for pair, some in paths.items()}
    out: dict[int, list[Arc]] = {member: [] for member in members}
    for pair in sorted(left):
        out[pair[0]].append(pair)
    # Trees that are still to grow: hosts reached so far, links used, copies; single roots first.
    waiting = dict(copies)
    started: list[tuple[tuple[int, ...], tuple[Arc, ...], int]] = []
    grown: list[Tree] = []
    while waiting or started:
        if started:
            reached, used, count = started.pop()
        else:
            root = next(iter(waiting))
            reached, used, count = (root,), (), waiting.pop(root)
        cuts, others = _cuts(left, members, waiting, started)
        ends = list(reached)  # that may have links to hosts not reached
        while len(reached) < len(members):
            pair, amount = _next_link(cuts, others, left, out, reached, ends, count, name)
            left[pair] -= amount
            if amount < count:
                started.append((reached, used, count - amount))
                count = amount
                cuts, others = _cuts(left, members, waiting, started)
            else:
                cuts.change({pair: left[pair]})
            reached, used = (*reached, pair[1]), (*used, pair)
            ends.append(pair[1])
        grown += _along(paths, reached[0], used, count)
    return tuple(grown)


def _cuts(
    left: dict[Arc, int], members: Sequence[int], waiting: dict[int, int],
    started: list[tuple[tuple[int, ...], tuple[Arc, ...], int]],
) -> tuple[Cuts, int]:  # fmt: skip
    """Return cuts of what is left for a tree and those after it, and how many these are."""
    others = sum(waiting.values()) + sum(n for *_, n in started)
    # The end that has the data feeds every other tree: a cut behind it counts those that need it.
    feed = _feed(members)
    trees: list[tuple[Arc, int]] = [((feed, root), n) for root, n in waiting.items()]
    for at, (hosts, _, n) in enumerate(started, start=feed + 1):
        trees += [((feed, at), n), *(((at, host), n) for host in hosts)]
    ends = (((member, feed), 0) for member in members)
    return Cuts(joined_arcs(left.items(), trees, ends)), others


def _feed(members: Iterable[int]) -> int:
    """Return the node of `_cuts` that feeds other trees."""
    return max(members) + 1


def _next_link(
    cuts: Cuts, others: int, left: dict[Arc, int], out: dict[int, list[Arc]],
    reached: tuple[int, ...], ends: list[int], copies: int, name: str,
) -> tuple[Arc, int]:  # fmt: skip
    """Return a link that a tree may grow along, and for how many of its copies.

    Hosts from which none leads on are taken from ``ends``: none ever will.
    """
    inside = set(reached)
    feed = _feed(out)
    for here in tuple(ends):
        open_links = sorted(
            (pair for pair in out[here] if left[pair] and pair[1] not in inside),
            key=lambda pair: (-left[pair], pair),
        )
        if not open_links:
            ends.remove(here)
            continue
        cuts.change({(here, feed): others})
        for pair in open_links:
            most = min(left[pair], copies, cuts.value(here, pair[1]) - others)
            if most > 0:
                cuts.change({(here, feed): 0})
                return pair, most
        cuts.change({(here, feed): 0})
    raise InfeasibleError(
        f"network {name!r}: no trees of the best rate from host {reached[0]}; nodes that forward "
        "receive and send different capacity: choose a group of all hosts, or repair links"
    )


def _along(
    paths: dict[Arc, SharedPaths], root: int, used: Sequence[Arc], copies: int
) -> list[Tree]:
    """Give every link of a tree a path; copies part where paths do."""
    found = []
    while copies:
        amount = min(copies, *(paths[pair][-1][1] for pair in used)) if used else copies
        chosen = []
        for pair in used:
            path, here = paths[pair].pop()
            chosen.append(path)
            if here > amount:
                paths[pair].append((path, here - amount))
        found.append(Tree(root, amount, tuple(chosen)))
        copies -= amount
    return found
