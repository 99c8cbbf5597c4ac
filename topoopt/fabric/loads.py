"""The bytes that an iteration puts on links, and sends between servers."""

import numpy as np

from codesign_base import InputError
from codesign_base.arguments import is_number, told
from codesign_base.arrays import Floats, Ints
from codesign_base.rows import spread, summed
from parallelism.taskgraph import TaskGraph
from routing.pair_loads import ecmp_pair_bytes
from routing.rotation import evenly_routed
from routing.routes import tabled
from topoopt.fabric.fabric import Fabric, check_simulated
from topoopt.fabric.route_rows import MADE_AT_ONCE


def link_bytes(fabric: Fabric, tasks: TaskGraph, enough: float = float("inf")) -> Floats:
    """Return the bytes that each link carries in one iteration.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    enough : float
        Seconds; once a link is known to be busy for longer, the rest may be left out.

    Returns
    -------
    float64 array, shape (links,)

    Raises
    ------
    InputError
        If an argument is of another kind.
    """
    check_simulated(fabric, tasks)
    if not is_number(enough):
        raise InputError(f"enough is {told(enough)}; give a number of seconds")
    total = _carried(fabric, *_sent(fabric, tasks))
    amounts = _reduced(tasks)
    fabric.prepare((group for group, _ in amounts), given=True)
    if enough < float("inf"):
        # Rings that are still to be chosen take long, and are often no longer needed.
        amounts.sort(key=lambda pair: pair[0] not in fabric.rings)
    given = True
    for number, (group, amount) in enumerate(amounts):
        if enough < float("inf") and (total > enough * fabric.network.capacity).any():
            break
        if given and group not in fabric.rings:
            given = False
            fabric.prepare(other for other, _ in amounts[number:])
        streams = fabric.group_streams(group)
        total[streams.links] += streams.weights * (amount / streams.rings)
    return total


def _sent(fabric: Fabric, tasks: TaskGraph) -> tuple[Ints, Floats]:
    """Return the ordered pairs that transfers send between, ascending, and their bytes."""
    hosts = fabric.network.hosts
    if tabled(hosts):
        demand = transfer_demand(fabric, tasks).ravel()
        pairs = np.flatnonzero(demand)
        return pairs, demand[pairs]
    # The matrix of all pairs of thousands of hosts takes longer to make than all else.
    source, target, size = tasks.moved()
    pairs, place = np.unique(source * hosts + target, return_inverse=True)
    sums = summed(place, size, pairs.size)
    return pairs[sums != 0.0], sums[sums != 0.0]


def _carried(fabric: Fabric, sent: Ints, bytes_sent: Floats) -> Floats:
    """Return the bytes that transfers put on each link."""
    hosts = fabric.network.hosts
    if not tabled(hosts) and evenly_routed(fabric.network, fabric.routes):
        # Without the routes of pairs, which fill memory.
        return ecmp_pair_bytes(fabric.network, sent, bytes_sent)
    total: Floats = np.zeros(fabric.network.links)
    # Part by part, because what is added takes more memory than the routes.
    for first in range(0, sent.size, MADE_AT_ONCE):
        part = slice(first, first + MADE_AT_ONCE)
        begin, end = fabric.rows.entries(sent[part])
        counts = end - begin
        at = spread(begin, counts)
        bytes_ = np.repeat(bytes_sent[part], counts) * fabric.rows.weights[at]
        total += np.bincount(fabric.rows.links[at], weights=bytes_, minlength=total.size)
    return total


def demand_of(fabric: Fabric, tasks: TaskGraph, *, chosen: bool = True) -> Floats:
    """Return the bytes that servers send each other in one iteration, ring edges included.

    Parameters
    ----------
    fabric : Fabric
        Its given rings carry AllReduces.
    tasks : TaskGraph
    chosen : bool
        Whether groups without rings, whose are chosen for the routes, count: as if all pairs of
        members sent the same.

    Returns
    -------
    float64 array, shape (hosts, hosts)
        From row to column.
    """
    hosts = fabric.network.hosts
    demand = transfer_demand(fabric, tasks)
    total = demand.ravel()  # a view
    for group, amount in _reduced(tasks):
        if fabric.rings.get(group):
            edges = fabric.ring_edges(group)
            np.add.at(total, edges, amount / edges.shape[0])
        elif chosen:
            members = np.array(group)
            total[members[:, None] * hosts + members] += amount / (len(group) - 1)
    np.fill_diagonal(demand, 0.0)
    return demand


def transfer_demand(fabric: Fabric, tasks: TaskGraph) -> Floats:
    """Return the bytes of the transfers from row to column, shape (hosts, hosts)."""
    hosts, servers = fabric.network.hosts, tasks.servers
    total: Floats = np.zeros((hosts, hosts))
    total[:servers, :servers] = tasks.pair_bytes()
    return total


def _reduced(tasks: TaskGraph) -> list[tuple[tuple[int, ...], float]]:
    """Return the groups whose collectives send anything, with what each member sends."""
    sent = zip(tasks.groups, tasks.member_bytes().tolist(), strict=True)
    return [(group, amount) for group, amount in sent if amount > 0]
