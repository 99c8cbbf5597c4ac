"""The degree split: how many ports carry AllReduce rings, and how many each group gets.

Source: TopoOpt (NSDI 2023, arXiv 2202.00433), section 4, TopologyFinder steps 1 and 2.
"""

import math
from enum import StrEnum

import numpy as np

from parallelism.taskgraph import Traffic
from topoopt.topology.matching import FloatArray


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


def group_load(traffic: Traffic) -> FloatArray:
    """Bytes that each member of each group sends in its ring, 2 (n - 1) / n S; shape (groups,)."""
    sizes = np.array([len(group) for group in traffic.groups], dtype=np.float64)
    return np.asarray(2.0 * (sizes - 1.0) / sizes * traffic.group_bytes, dtype=np.float64)


def groups_by_load(traffic: Traffic) -> list[int]:
    """Return group indices by decreasing bytes, ties by members."""
    load = group_load(traffic)
    return sorted(range(len(traffic.groups)), key=lambda g: (-load[g], traffic.groups[g]))


def ports_by_server(traffic: Traffic, ports: int) -> list[int]:
    """Share ports among groups where they meet: ceil(ports T_k / busiest member's sum of T).

    Groups without a common server do not compete. Shares may add up to more than ``ports``;
    the caller serves groups by decreasing bytes while ports last.

    Returns
    -------
    list of int
        Ports of each group, in the order of ``traffic.groups``.
    """
    load = group_load(traffic)
    busy = np.zeros(traffic.servers)
    for group, bytes_sent in zip(traffic.groups, load, strict=True):
        busy[list(group)] += bytes_sent
    return [
        _ceil(ports * float(sent) / float(busy[list(group)].max())) if sent > 0 else 0
        for group, sent in zip(traffic.groups, load, strict=True)
    ]


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
