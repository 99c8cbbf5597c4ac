"""Rings of a task-graph file: from ring orders to lists of jumps, and back.

A ring set holds, for all groups of one size, some rings. Each ring is a list of jumps: the links,
as differences of node ids modulo the number of nodes, that lead from any member of a group to the
next one. So a ring over a group of g of N nodes always steps by the same distance, the sum of
its jumps, and the group is {o, o + N/g, o + 2 N/g, ...}.
"""

import itertools
from collections import deque
from collections.abc import Mapping

from codesign_base import InputError
from parallelism.taskgraph import Group
from routing.network import Network
from topoopt.fabric.rings import Rings
from topoopt.topology.ring_links import ring_links


def jump_list_orders(sets: Mapping[int, tuple[Group, ...]], members: Group, nodes: int) -> Rings:
    """Return the ring orders that jump lists make of a group.

    Parameters
    ----------
    sets : mapping of int to tuple of tuple of int
        Jumps of each ring, by group size.
    members : tuple of int
        Of the group.
    nodes : int

    Returns
    -------
    tuple of tuple of int
        Each starts at the lowest member.

    Raises
    ------
    InputError
        If there is no set for this size, or a ring leaves the group or misses a member.
    """
    group = tuple(sorted(members))
    if not sets.get(len(group)):
        raise InputError(
            f"AllReduce group {brief(group)} has no rings: the file has none for groups of "
            f"{len(group)} nodes; add a ring set"
        )
    orders = []
    for jumps in sets[len(group)]:
        step = sum(jumps) % nodes
        order = tuple((group[0] + k * step) % nodes for k in range(len(group)))
        if tuple(sorted(order)) != group:
            raise InputError(
                f"the ring with jumps {brief(tuple(jumps))} does not visit each node of AllReduce "
                f"group {brief(group)} once; correct the ring set"
            )
        orders.append(order)
    return tuple(orders)


def _ring_steps(group: Group, orders: Rings, nodes: int) -> tuple[int, ...]:
    """Return the distance between consecutive members of each ring of a group.

    Parameters
    ----------
    group : tuple of int
        Sorted, two or more.
    orders : tuple of tuple of int
    nodes : int

    Raises
    ------
    InputError
        If the group is not at equal distances around all nodes, or a ring steps unevenly.
    """
    stride = nodes // len(group)
    if nodes % len(group) or any(b - a != stride for a, b in itertools.pairwise(group)):
        raise InputError(
            f"a .fbuf file cannot express AllReduce group {brief(group)}: only groups of every "
            f"k-th of the {nodes} servers fit the format; place its replicas at equal distances"
        )
    steps = []
    for order in orders:
        if tuple(sorted(order)) != group:
            raise InputError(
                f"ring {brief(order)} does not visit each server of AllReduce group "
                f"{brief(group)} once; correct the ring"
            )
        found = {(b - a) % nodes for a, b in ring_links(order)}
        if len(found) > 1:
            raise InputError(
                f"a .fbuf file cannot express ring {brief(order)} of AllReduce group "
                f"{brief(group)}: its steps differ ({brief(tuple(sorted(found)))}); give the "
                'group rings "+p"'
            )
        steps.append(found.pop())
    return tuple(steps)


def jump_lists(
    network: Network, rings: Mapping[Group, Rings]
) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return the ring sets of a direct-connect network.

    Parameters
    ----------
    network : Network
    rings : mapping of tuple of int to tuple of tuple of int
        Ring orders of every AllReduce group of two or more servers.

    Returns
    -------
    dict of int to tuple of tuple of int
        Group size to the jumps of each ring: the fewest links, and among these the smallest
        jumps, that lead from every member of every group of the size to its next member, and
        where possible from the servers 0 .. size - 1 as well.

    Raises
    ------
    InputError
        If groups or rings do not fit the format, groups of one size have different rings, or
        no list of jumps exists along the network's links.
    """
    nodes = network.hosts
    found: dict[int, tuple[Group, tuple[int, ...]]] = {}
    members: dict[int, set[int]] = {}
    for group in sorted(rings):
        steps = _ring_steps(group, rings[group], nodes)
        first, agreed = found.setdefault(len(group), (group, steps))
        if sorted(agreed) != sorted(steps):
            raise InputError(
                f"a .fbuf file has one set of rings for all groups of {len(group)} servers, but "
                f"AllReduce group {brief(group)} steps by {list(steps)} and {brief(first)} by "
                f"{list(agreed)}; give both the same"
            )
        members.setdefault(len(group), set()).update(group)
    links: list[set[int]] = [set() for _ in range(nodes)]
    for a, b in zip(network.source.tolist(), network.target.tolist(), strict=True):
        links[a].add((b - a) % nodes)
    sets = {}
    for size in sorted(found):
        group, steps = found[size]
        # The released simulator starts a group's flows at servers 0 .. size - 1.
        choices = (sorted(members[size] | set(range(size))), sorted(members[size]))
        lists = []
        for step in steps:
            jumps = next(filter(None, (_jumps(links, at, step) for at in choices)), None)
            if jumps is None:
                raise InputError(
                    f"a .fbuf file cannot express the ring of step {step} of AllReduce group "
                    f"{brief(group)}: no list of links leads from each of its servers to the next; "
                    "give the group a ring along links"
                )
            lists.append(jumps)
        sets[size] = tuple(lists)
    return sets


def _jumps(links: list[set[int]], members: list[int], step: int) -> tuple[int, ...] | None:
    """Return the fewest jumps that sum to a step and exist from all of these servers at once."""
    nodes = len(links)
    back: dict[int, int] = {0: 0}
    queue = deque([0])
    while queue and step not in back:
        at = queue.popleft()
        shared = set.intersection(*(links[(v + at) % nodes] for v in members))
        for jump in sorted(shared):
            if (at + jump) % nodes not in back:
                back[(at + jump) % nodes] = jump
                queue.append((at + jump) % nodes)
    if step not in back:
        return None
    jumps = []
    while step:
        jumps.append(back[step])
        step = (step - back[step]) % nodes
    return tuple(reversed(jumps))


def brief(members: tuple[int, ...]) -> str:
    """Return a group or ring for a message, brief if it is long."""
    if len(members) <= 8:
        return f"({', '.join(map(str, members))})"
    return f"({', '.join(map(str, members[:4]))}, ... of {len(members)})"
