"""What no schedule of a collective goes below: cuts, distances, and both together.

Bytes that must get from one member to another far away leave the first early and enter the other
late: of a time T those that are needed d seconds away have T - d to leave in, and those that come
from there T - d to enter in. So a collective takes their distance and, besides, what the bytes
take over a member's links.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base.arrays import Floats, Ints
from routing.collectives.cuts import Cuts
from routing.collectives.rate import whole_capacities
from routing.collectives.shares import MOST_LINKS, best_shares
from routing.network import Network

MOST_PARTED = 128
"""Members up to which parts of more than one are looked for."""

Line = tuple[float, float]
"""Seconds, and seconds a byte of the buffer."""


@dataclass(frozen=True)
class Distances:
    """How far members are from each other, and what enters and leaves them.

    Parameters
    ----------
    seconds : float64 array, shape (members, members)
        Least latency from the row's member to the column's.
    out, into : float64 arrays, shape (members,)
        Bytes a second of the links out of each member, and into it.
    """

    seconds: Floats
    out: Floats
    into: Floats


def distances(network: Network, members: Sequence[int]) -> Distances:
    """Return the least latencies between members, infinite where no way leads.

    Parameters
    ----------
    network : Network
    members : sequence of int
        Hosts.

    Returns
    -------
    Distances
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    ends, nodes = (network.source, network.target), network.nodes
    graph = csr_array((network.latency, ends), shape=(nodes, nodes))
    at = np.array(members, dtype=np.int64)
    return Distances(
        dijkstra(graph, indices=at)[:, at],
        network.out_rate()[at],
        network.in_rate()[at],
    )


def shared_lines(far: Distances, collective: str) -> tuple[Line, ...]:
    """Return lines in the size of a buffer that no schedule for all members goes below.

    Parameters
    ----------
    far : Distances
    collective : str
        "allreduce", "allgather", "reduce-scatter" or "all-to-all".

    Returns
    -------
    tuple of Line
        Only those that are above all others at some size.

    Notes
    -----
    AllReduce: the whole buffer must leave each member in time for the one farthest from it, and
    the whole sum, of which every byte depends on the member farthest away, enters it only then.
    In the others a member sends to each, or gets from each, one part in n of a buffer, and those
    that go or come at least d seconds far do so in T - d.
    """
    count = far.out.size
    lines: list[Line] = []
    if collective == "allreduce":
        lines += zip(far.seconds.max(axis=1).tolist(), (1.0 / far.out).tolist(), strict=True)
        lines += zip(far.seconds.max(axis=0).tolist(), (1.0 / far.into).tolist(), strict=True)
        return _upper(lines)
    # A part that is copied, or added, on its way leaves, or enters, a member only once.
    sent = (1.0 if collective == "allgather" else None, far.seconds, far.out)
    got = (1.0 if collective == "reduce-scatter" else None, far.seconds.T, far.into)
    for once, seconds, rate in (sent, got):
        for row, each in zip(np.sort(seconds, axis=1), rate.tolist(), strict=True):
            if once is not None:
                lines.append((float(row[-1]), once / (count * each)))
                continue
            # The member itself is nearest; ties count with the first of them.
            away, first = np.unique(row[1:], return_index=True)
            some: Ints = count - 1 - first
            lines += zip(away.tolist(), (some / (count * each)).tolist(), strict=True)
    return _upper(lines)


def rooted_lines(far: Distances, root: int) -> tuple[Line, ...]:
    """Return such lines of a Broadcast.

    Parameters
    ----------
    far : Distances
        Of a Reduce those on the network turned round.
    root : int
        Place of the root among the members.

    Returns
    -------
    tuple of Line
    """
    away = far.seconds[root]
    lines = [(float(away.max()), 1.0 / float(far.out[root]))]
    lines += [
        (seconds, 1.0 / rate)
        for at, (seconds, rate) in enumerate(zip(away.tolist(), far.into.tolist(), strict=True))
        if at != root
    ]
    return _upper(lines)


def allreduce_rate(network: Network, members: Sequence[int]) -> float:
    """Return the bytes per second that no AllReduce passes.

    Parameters
    ----------
    network : Network
    members : sequence of int

    Returns
    -------
    float
        The smallest cut between members, which a buffer passes once; or what ``k`` parts of the
        network send, or receive, over the 2 (k - 1) buffers that they must.

    Notes
    -----
    Of parts, each with members, a part does what a member would that has their sum. Members alone
    are such parts; others, of up to `MOST_PARTED` members and `MOST_LINKS` links, are those that
    prices of links tell apart, see `routing.collectives.shares`. Where all hosts are members and
    links are as fast both ways, these are best, and trees reach the bound (Nash-Williams, Tutte,
    1961).
    """
    unit, capacity = whole_capacities(network)
    cuts, first = Cuts(capacity), members[0]
    least = float(min(min(cuts.value(first, m), cuts.value(m, first)) for m in members[1:]))
    alone = np.full(network.nodes, -1)
    alone[list(members)] = np.arange(len(members))
    parted = [alone]
    if len(members) <= MOST_PARTED and network.links <= MOST_LINKS:
        parted.append(best_shares(network, members).parts)
    for parts in parted:
        needed = set(parts[list(members)].tolist())
        between = [
            (int(parts[a]) in needed, int(parts[b]) in needed, amount)
            for (a, b), amount in capacity.items()
            if parts[a] != parts[b]
        ]
        if len(needed) > 1:
            sent = sum(amount for out, _, amount in between if out)
            received = sum(amount for _, into, amount in between if into)
            least = min(least, min(sent, received) / (2.0 * (len(needed) - 1)))
    return least * unit


def _upper(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines above all others at some size, not below zero."""
    kept: list[Line] = []
    for line in sorted(set(lines), reverse=True):
        if not kept or line[1] > kept[-1][1]:
            kept.append(line)
    return tuple(kept)
