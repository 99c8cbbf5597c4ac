"""The degree split: how many ports carry AllReduce rings, and how many each group gets.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4, TopologyFinder steps 1 and 2.
"""

import heapq
import math
from collections.abc import Sequence
from enum import StrEnum
from math import inf

import numpy as np

from parallelism.taskgraph import Traffic

# Share of a server's bytes below which all groups that it sends them for get no ports.
_MINOR = 0.01


class Faithful(StrEnum):
    """Whose behaviour to reproduce instead of the default: the paper's or its artifact's."""

    PAPER = "paper"
    ARTIFACT = "artifact"


def degree_for_allreduce(traffic: Traffic, degree: int) -> int:
    """Return d_A = max(1, ceil(d AllReduce / (AllReduce + MP))), in ports.

    Without any traffic all ports count as AllReduce's.
    """
    reduced = traffic.allreduce_sent()
    total = reduced + traffic.transfer_sent()
    if total <= 0:
        return degree
    return min(degree, max(1, _ceil(degree * reduced / total)))


def groups_by_load(traffic: Traffic) -> list[int]:
    """Return group indices by decreasing bytes, ties by members."""
    load = traffic.member_bytes()
    return sorted(range(len(traffic.groups)), key=lambda g: (-load[g], traffic.groups[g]))


def main_traffic(traffic: Traffic) -> Traffic:
    """Leave out groups that reduce next to nothing of what their members send.

    A ring for such a group takes a port of each of its members from all others, for bytes that
    take hardly longer over several hops.

    Parameters
    ----------
    traffic : Traffic

    Returns
    -------
    Traffic
        Without groups for which, together, each of their members sends under a hundredth of its
        bytes, the least first; the same object if there are none, or only such.
    """
    load = traffic.member_bytes()
    spare = traffic.transfers.sum(axis=1)
    for group, amount in zip(traffic.groups, load.tolist(), strict=True):
        spare[list(group)] += amount
    spare *= _MINOR
    kept = []
    for g in reversed(groups_by_load(traffic)):
        members = list(traffic.groups[g])
        if load[g] < spare[members].min():
            spare[members] -= load[g]
        else:
            kept.append(g)
    kept.sort()
    if not kept or len(kept) == len(traffic.groups):
        return traffic
    return Traffic(
        traffic.servers,
        traffic.transfers,
        tuple(traffic.groups[g] for g in kept),
        traffic.group_bytes[kept],
    )


def ports_by_server(traffic: Traffic, ports: int, ring_ports: Sequence[int]) -> list[int]:
    """Share ports among groups where they meet, so that the most loaded ring carries least.

    Ring after ring goes to the group with most bytes a ring that has the ports at all of its
    members; every group gets one before another gets two. Groups without a common server do
    not compete. Where all groups meet at one server, and their rings take as many ports, no
    other shares have a lower largest load of a ring.

    Parameters
    ----------
    traffic : Traffic
    ports : int
        AllReduce ports of each server.
    ring_ports : sequence of int
        Ports that a ring of each group takes at its members.

    Returns
    -------
    list of int
        Ports of each group, in the order of ``traffic.groups``.
    """
    load = traffic.member_bytes()
    left = np.full(traffic.servers, ports, dtype=np.int64)
    shares = [0] * len(traffic.groups)
    waiting = [(-inf, rank, g) for rank, g in enumerate(groups_by_load(traffic)) if load[g] > 0]
    heapq.heapify(waiting)
    while waiting:
        _, rank, g = heapq.heappop(waiting)
        members = list(traffic.groups[g])
        if left[members].min() < ring_ports[g]:
            continue
        left[members] -= ring_ports[g]
        shares[g] += ring_ports[g]
        heapq.heappush(waiting, (-float(load[g]) * ring_ports[g] / shares[g], rank, g))
    return shares


def ports_by_total(traffic: Traffic, ports: int) -> list[int]:
    """Share ports by the paper's formula ceil(ports T_k / sum T), all groups competing.

    Groups by decreasing bytes; each share is taken from the ports that are left.
    """
    sizes = np.array([len(group) for group in traffic.groups], dtype=np.float64)
    sent = 2.0 * (sizes - 1.0) * traffic.group_bytes
    total = float(sent.sum())
    shares = [0] * len(traffic.groups)
    left = ports
    order = sorted(range(len(shares)), key=lambda g: (-sent[g], traffic.groups[g]))
    for g in order if total > 0 else []:
        shares[g] = min(left, _ceil(left * float(sent[g]) / total))
        left -= shares[g]
    return shares


def _ceil(value: float) -> int:
    """Round up, but not because of a rounding error above an integer."""
    nearest = round(value)
    return (
        nearest if math.isclose(value, nearest, rel_tol=1e-9, abs_tol=1e-12) else math.ceil(value)
    )
