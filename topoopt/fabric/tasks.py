"""What a task graph asks of a fabric: whether it fits, and the bytes on each link."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Floats, Ints
from codesign_base.counted import counted
from codesign_base.rows import spread
from parallelism.taskgraph import TRANSFER, TaskGraph
from routing.pair_loads import ecmp_pair_bytes
from routing.rotation import evenly_routed
from routing.routes import Routes, tabled
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.route_rows import MADE_AT_ONCE


class Routed(NamedTuple):
    """Tasks as a fabric runs them, and where its rows hold the routes of their transfers.

    Parameters
    ----------
    tasks : TaskGraph
    moves, pairs, begin, end : int64 arrays, shape (transfers,)
        The transfers, their pairs of hosts, and the entries of `Fabric.rows`. Of tasks that stand
        for their images under a rotation the pairs are images that a route was made of.
    """

    tasks: TaskGraph
    moves: Ints
    pairs: Ints
    begin: Ints
    end: Ints


def check_fit(tasks: TaskGraph, hosts: int, name: str) -> None:
    """Refuse tasks that no fabric of so many hosts could run.

    Parameters
    ----------
    tasks : TaskGraph
    hosts : int
    name : str
        Of the fabric.

    Raises
    ------
    InputError
        If there are too few hosts, or a size or delay is out of range.
    """
    if tasks.servers > hosts:
        raise InputError(
            f"the task graph uses {counted(tasks.servers, 'server')}, fabric {name!r} has {hosts}; "
            "give a fabric with as many servers"
        )
    for what, values in (("size", tasks.size), ("delay", tasks.delay)):
        wrong = np.flatnonzero(~((values >= 0.0) & (values < np.inf)))
        if wrong.size:
            raise InputError(
                f"task graph: the {what} of task {wrong[0]} is {values[wrong[0]]}, negative or not "
                "finite; correct that task"
            )


def never_ran(tasks: int, waiting: int) -> InputError:
    """Return the error of tasks that wait for each other.

    Parameters
    ----------
    tasks, waiting : int
        Of the graph, and those that never became ready.
    """
    return InputError(
        f"task graph: {waiting} of {counted(tasks, 'task')} never ran, because tasks wait for each "
        "other in a cycle; remove a dependency"
    )


def routed_tasks(fabric: Fabric, tasks: TaskGraph) -> Routed:
    """Return the tasks as the fabric runs them, and their routes, after checking that they fit.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    Routed

    Raises
    ------
    InputError
        If there are too few hosts, a size is out of range, or a transfer has no route.
    """
    hosts = fabric.network.hosts
    check_fit(tasks, hosts, fabric.name)
    moves = np.flatnonzero(tasks.kind == TRANSFER)
    pairs = tasks.first[moves] * hosts + tasks.second[moves]
    if tasks.alike is not None and tasks.alike.loads is not None and fabric.rotation:
        pairs, _ = fabric.rotation.first_images(pairs, hosts)
    begin, end = fabric.rows.entries(pairs)
    unrouted = np.flatnonzero(begin == end)
    if unrouted.size:
        source, target = divmod(int(pairs[unrouted[0]]), hosts)
        raise InputError(
            f"fabric {fabric.name!r} has no route {source}->{target}, which task "
            f"{moves[unrouted[0]]} needs; route that pair"
        )
    own = _htsim_tasks(tasks) if fabric.transport.htsim else tasks
    return Routed(own, moves, pairs, begin, end)


def _htsim_tasks(tasks: TaskGraph) -> TaskGraph:
    """Return the tasks with the artefacts of htsim (see `Transport.htsim`).

    An AllReduce over one server takes no time (a barrier, which has no bytes, does), and sizes are
    held modulo 4 GiB.
    """
    reduces = tasks.collective
    alone = np.array([len(g) < 2 for g in tasks.groups] + [False])[
        np.where(reduces, tasks.first, -1)
    ]
    sends = reduces | (tasks.kind == TRANSFER)
    return replace(
        tasks,
        delay=np.where(alone & (tasks.size > 0.0), 0.0, tasks.delay),
        size=np.where(sends, np.mod(tasks.size, 2.0**32), tasks.size),
    )


_BUCKETS = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697,
    1447153,
)  # fmt: skip


def starting_order(fabric: Fabric, tasks: TaskGraph) -> Ints:
    """Return the order in which tasks that are ready at the start are found.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    int64 array, shape (tasks,)
        By number. htsim keeps tasks in a hash table by their ids in the file, and goes through
        that; graphs that come from no file, or are larger than its table of sizes here, go by
        number there, too.
    """
    known = tasks.ids is not None and tasks.tasks <= _BUCKETS[-1] and tasks.ids.min(initial=0) >= 0
    if not fabric.transport.htsim or not known:
        return np.arange(tasks.tasks, dtype=np.int64)
    from topoopt.fabric.htsim_kernels import hash_table_order

    found: Ints = hash_table_order(
        np.array(tasks.ids, dtype=np.int64), np.array(_BUCKETS, dtype=np.int64)
    )
    return found


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
    """
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
        demand = _transferred(fabric, tasks)
        pairs = np.flatnonzero(demand)
        return pairs, demand[pairs]
    # The matrix of all pairs of thousands of hosts takes longer to make than all else.
    source, target, size = tasks.moved()
    pairs, place = np.unique(source * hosts + target, return_inverse=True)
    sums = np.bincount(place, size, pairs.size).astype(np.float64)
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


def pairs_in_use(fabric: Fabric, tasks: TaskGraph) -> tuple[Ints, Ints]:
    """Return the pairs of hosts that an iteration sends between.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
        Whose tasks may stand for others.

    Returns
    -------
    transfers, ring edges : int64 arrays
        Pairs as ``source * hosts + target``, ascending.
    """
    edges = [fabric.ring_edges(group).ravel() for group in tasks.groups if len(group) > 1]
    none = np.zeros(0, dtype=np.int64)
    return transfer_pairs(tasks, fabric.network.hosts), np.unique(np.concatenate((none, *edges)))


def transfer_pairs(tasks: TaskGraph, hosts: int) -> Ints:
    """Return the pairs of hosts that an iteration's transfers go between.

    Parameters
    ----------
    tasks : TaskGraph
        Whose tasks may stand for others.
    hosts : int
        Of the fabric, at least the servers of the tasks.

    Returns
    -------
    int64 array
        Pairs as ``source * hosts + target``, ascending.
    """
    if tasks.alike is None:
        moves = tasks.kind == TRANSFER
        source, target = tasks.first[moves], tasks.second[moves]
    else:
        pattern = tasks.alike.pattern
        source, target = pattern.source[pattern.group < 0], pattern.target[pattern.group < 0]
    met = np.zeros(hosts**2, dtype=np.bool_)
    met[source * hosts + target] = True
    return np.flatnonzero(met)


def listing(fabric: Fabric, tasks: TaskGraph) -> Fabric:
    """Return a fabric whose routes are made: they list at least what an iteration uses.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph

    Returns
    -------
    Fabric
        The same, if its routes are of all pairs.
    """
    if fabric.routes.pairs is None and fabric.edge_routes.pairs is None:
        return fabric
    moves, edges = pairs_in_use(fabric, tasks)
    own = moves if fabric.ring_routes is not None else np.union1d(moves, edges)
    return replace(
        fabric,
        routes=fabric.routes.of(own),
        rings=dict(fabric.rings) | {g: fabric.rings_of(g) for g in tasks.groups if len(g) > 1},
        ring_routes=None if fabric.ring_routes is None else fabric.ring_routes.of(edges),
    )


def recorded_routes(fabric: Fabric, tasks: TaskGraph, *, named: bool) -> Routes:
    """Return the routes that a plan records.

    Parameters
    ----------
    fabric : Fabric
    tasks : TaskGraph
    named : bool
        Whether the network and the name of the routing tell the routes.

    Returns
    -------
    Routes
        Of all pairs of up to `routing.routes.EVERY_PAIR_UP_TO` hosts; of more, none that are
        named, or those of transfers, and of ring edges that are routed like them.
    """
    if tabled(fabric.network.hosts):
        return fabric.routes
    if named:
        return fabric.routes.of(np.zeros(0, dtype=np.int64))
    moves, edges = pairs_in_use(fabric, tasks)
    return fabric.routes.of(moves if fabric.ring_routes is not None else np.union1d(moves, edges))


def demand_of(fabric: Fabric, tasks: TaskGraph) -> Floats:
    """Return the bytes that servers send each other in one iteration, ring edges included.

    Parameters
    ----------
    fabric : Fabric
        Its given rings carry AllReduces. Groups without any, whose rings are chosen for the
        routes, count as if all pairs of members sent the same.
    tasks : TaskGraph

    Returns
    -------
    float64 array, shape (hosts, hosts)
        From row to column.
    """
    return _demand(fabric, tasks, chosen=True)


def given_demand(fabric: Fabric, tasks: TaskGraph) -> Floats:
    """Return the same without the groups whose rings are chosen for the routes."""
    return _demand(fabric, tasks, chosen=False)


def _demand(fabric: Fabric, tasks: TaskGraph, *, chosen: bool) -> Floats:
    hosts = fabric.network.hosts
    total = _transferred(fabric, tasks)
    for group, amount in _reduced(tasks):
        if fabric.rings.get(group):
            edges = fabric.ring_edges(group)
            np.add.at(total, edges, amount / edges.shape[0])
        elif chosen:
            members = np.array(group)
            total[members[:, None] * hosts + members] += amount / (len(group) - 1)
    total = total.reshape(hosts, hosts)
    np.fill_diagonal(total, 0.0)
    return total


def _transferred(fabric: Fabric, tasks: TaskGraph) -> Floats:
    """Return the bytes of the transfers of each ordered pair."""
    hosts, servers = fabric.network.hosts, tasks.servers
    total: Floats = np.zeros((hosts, hosts))
    total[:servers, :servers] = tasks.pair_bytes()
    return total.ravel()


def _reduced(tasks: TaskGraph) -> list[tuple[tuple[int, ...], float]]:
    """Return the groups whose collectives send anything, with what each member sends."""
    sent = zip(tasks.groups, tasks.member_bytes().tolist(), strict=True)
    return [(group, amount) for group, amount in sent if amount > 0]
