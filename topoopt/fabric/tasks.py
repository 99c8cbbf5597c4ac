"""A task graph on a fabric: whether it fits, its routes, and what htsim makes of it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from parallelism.taskgraph import TRANSFER, TaskGraph
from topoopt.fabric.fabric import Fabric


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
