"""What collectives take and send at least, by any schedule in which only members add and copy.

Take one number of the buffer of an AllReduce, and the member that first knows its sum. By then
each other member has sent once what leads its own number there, and each other member still
receives the sum from somebody: 2 (n - 1) messages, n - 1 of which leave different members, and
n - 1 enter different ones. So all members together send 2 (n - 1) buffers, each sends one and
receives one, and a message goes at least as far as from its sender to the nearest member. Parts
of a ReduceScatter leave each member n - 1 times, and those of an AllGather enter it as often.
"""

from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import TaskGraph, TaskKind

# Columns of what is known of a collective by its kind.
COLLECTIVE_KINDS = (TaskKind.ALLREDUCE, TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER)


class GroupRates(NamedTuple):
    """What the members of each group can send and receive, and how far they are from each other.

    Parameters
    ----------
    mean, least : float64 arrays, shape (groups,)
        Bytes/s that a member sends, or receives if less: all together over their number, and
        the slowest.
    most : float64 array, shape (groups,)
        Bytes/s that the fastest sends.
    far : float64 array, shape (groups,)
        Seconds that bytes take between the two members farthest apart.
    """

    mean: Floats
    least: Floats
    most: Floats
    far: Floats


def group_sizes(tasks: TaskGraph) -> Ints:
    """Return the members of each group, shape (groups,); one entry at least."""
    return np.array([len(group) for group in tasks.groups] or [1], dtype=np.int64)


def farthest(members: Ints | int, degree: int) -> Ints:
    """Return the hops from a server to the farthest of some, itself among them, at least.

    Parameters
    ----------
    members : int64 array or int
    degree : int
        Ports of a server: at most ``degree ** h`` servers are h hops away, in any wiring.

    Returns
    -------
    int64 array, of the shape of ``members``
    """
    count = np.asarray(members, dtype=np.int64)
    hops = np.zeros_like(count)
    reached, width = 1, 1
    while np.any(count > reached):
        hops += count > reached
        width = min(width * degree, int(count.max()))
        reached += width
    return hops


def least_seconds(
    size: Floats | float,
    members: Floats | float,
    passes: Floats | float,
    rates: GroupRates | tuple[Floats | float, ...],
    lag: float,
) -> Floats:
    """Return what collectives take at least, each alone.

    Parameters
    ----------
    size, members, passes : float64 array or float
        Bytes of the buffer; at least two members; 2 of an AllReduce, 1 of others.
    rates : GroupRates
        Of the group of each.
    lag : float
        Seconds that any message takes beyond its bytes.

    Returns
    -------
    float64 array, of the same shape
        Some member sends no less than the mean, or the slowest what it must, and the last of it
        takes a message's lag; and what one of the two farthest apart sends the other has left it
        so long before the end.
    """
    mean, least, most, far = rates
    part = np.asarray(size) / members
    total = passes * (members - 1.0) * part / mean
    own = np.where(np.asarray(passes) == 2.0, size, part)
    found: Floats = np.maximum(np.maximum(total, own / least) + lag, own / most + far)
    return found


def least_collective_seconds(
    tasks: TaskGraph, reduces: Ints, rates: GroupRates, lag: float
) -> Floats:
    """Return what some collectives of a task graph take at least, each alone.

    Parameters
    ----------
    tasks : TaskGraph
    reduces : int64 array
        Its collectives that count.
    rates : GroupRates
    lag : float
        As in `least_seconds`.

    Returns
    -------
    float64 array, shape (collectives,)
        Nothing for groups of one server.
    """
    group = tasks.first[reduces]
    members = group_sizes(tasks)[group].astype(np.float64)
    own = GroupRates(*(each[group] for each in rates))
    found = least_seconds(tasks.size[reduces], members, tasks.passes[reduces], own, lag)
    return np.where(members > 1.0, found, 0.0)


def least_member_bytes(tasks: TaskGraph, sends: Ints) -> tuple[Floats, Floats]:
    """Return what each member of collectives sends, and what it receives, at least.

    Parameters
    ----------
    tasks : TaskGraph
    sends : int64 array
        Some of its tasks.

    Returns
    -------
    sent, received : float64 arrays, shape (sends,)
        Bytes; none for other tasks than collectives of several servers.
    """
    kind = tasks.kind[sends]
    collective = tasks.collective[sends]
    members = group_sizes(tasks)[np.where(collective, tasks.first[sends], 0)]
    part = np.where(collective & (members > 1), tasks.size[sends] / members, 0.0)
    whole = kind == TaskKind.ALLREDUCE
    sent, received = (
        part * np.where(whole, members, np.where(kind == most, members - 1, 1))
        for most in (TaskKind.REDUCE_SCATTER, TaskKind.ALL_GATHER)
    )
    return sent, received


def link_bytes_each(groups: tuple[tuple[int, ...], ...], distance: Ints) -> Floats:
    """Return the link-bytes of a collective of one byte over each group, at least.

    Parameters
    ----------
    groups : tuple of tuple of int
    distance : int64 array, shape (servers, servers)
        Hops.

    Returns
    -------
    float64 array, shape (groups, kinds)
        A column each of `COLLECTIVE_KINDS`.
    """
    found = np.zeros((len(groups), len(COLLECTIVE_KINDS)))
    for number, group in enumerate(groups):
        count = len(group)
        if count > 1:
            among = distance[np.ix_(group, group)] + np.diag([distance.max() + 1] * count)
            out, into = among.min(axis=1), among.min(axis=0)
            both = out + into
            once = (count - 1.0) / count
            found[number] = both.sum() - both.max(), once * out.sum(), once * into.sum()
    return found
