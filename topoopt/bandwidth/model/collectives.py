"""Collectives over several dimensions: bytes on each, usable links, and latency.

Equal patterns are what makes problems small: AllReduce, ReduceScatter and AllGather over one
group put proportional loads on the dimensions, so all of them share one pattern.
"""

from enum import StrEnum
from math import prod

from codesign_base import InputError
from topoopt.bandwidth.model.communicator import NpuGroup
from topoopt.bandwidth.model.network import MultiDimNetwork
from topoopt.topology.zoo.blocks import BuildingBlock


class Collective(StrEnum):
    """Collective operations, by their names in workload files."""

    NONE = "NONE"
    ALL_REDUCE = "ALLREDUCE"
    REDUCE_SCATTER = "REDUCESCATTER"
    ALL_GATHER = "ALLGATHER"
    ALL_TO_ALL = "ALLTOALL"


class PartialGroups(StrEnum):
    """What a group that fills only a part of a dimension may use of its bandwidth."""

    USABLE = "usable"
    FULL = "full"


def usable_fraction(block: BuildingBlock, members: int, size: int, stride: int = 1) -> float:
    """Return the share of a dimension's bandwidth that a smaller group can use.

    All groups of the dimension work at once.

    - Switch: an NPU's one link serves any group: 1.
    - FullyConnected: of the n-1 links of an NPU, those to the other g-1 members.
    - Ring: neighbours in a block form a path. Its ends have one link of b/2, and a ring laid
      over the path (forth on one direction, back on the other) reaches that: 1/2. Members
      ``stride`` apart share every link with stride-1 other groups: 1/stride if the group goes
      around the whole ring, half of that if it does not.

    Parameters
    ----------
    block : BuildingBlock
    members, size, stride : int
        Of the dimension, of the group, and the distance of the group's neighbours.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> round(usable_fraction(BuildingBlock.FULLY_CONNECTED, 8, 4), 4)
    0.4286
    """
    if size in (1, members) or block == BuildingBlock.SWITCH:
        return 1.0
    if block == BuildingBlock.FULLY_CONNECTED:
        return (size - 1) / (members - 1)
    around = 1.0 if size * stride == members and stride > 1 else 0.5
    return around / stride


def pattern(
    network: MultiDimNetwork, group: NpuGroup, kind: Collective, partial: PartialGroups
) -> tuple[tuple[float, ...], float, float]:
    """Return what a collective of one byte loads on the dimensions.

    Parameters
    ----------
    network : MultiDimNetwork
    group : NpuGroup
    kind : Collective
        Not ``NONE``.
    partial : PartialGroups

    Returns
    -------
    load : tuple of float
        Bytes on each dimension per byte of the pattern, divided by the usable fraction.
    multiple : float
        Bytes of the pattern per byte of the collective.
    latency : float
        Seconds of the collective's steps on all dimensions; the pipeline of chunks passes
        through every dimension, so the steps add up.

    Notes
    -----
    AllReduce of s bytes puts ``2 (s / P) (g - 1) / g`` on a dimension, P the product of the
    group's sizes before it; ReduceScatter half of that; AllGather of a shard of s bytes,
    from the last dimension to the first, ``s (product of later sizes) (g - 1)``; All-to-All
    ``s (g - 1) / g``. A switch that reduces in the network takes an AllReduce's shard up once
    and its result down once, ``s / P`` on the group's last dimension and ``(s / P)
    (1 + 1 / g)`` before it, where that is less.

    Steps: on a Ring g-1 each for scattering, gathering and exchanging; one each on
    FullyConnected; on a Switch ceil(log2 g) each for scattering and gathering (halving and
    doubling), one for exchanging, two for reducing in the network.

    References
    ----------
    Won et al., LIBRA, ISPASS 2024, section III (multi-rail collectives).
    """
    steps = _steps(network, group, kind)
    latency = sum(
        count * alpha if size > 1 else 0.0
        for count, alpha, size in zip(steps, network.latencies, group.sizes, strict=True)
    )
    total = prod(group.sizes)
    if kind == Collective.ALL_TO_ALL:
        load = [(g - 1) / g for g in group.sizes]
        multiple = 1.0
    else:
        load, before = [], 1
        for g in group.sizes:
            load.append((g - 1) / (before * g))
            before *= g
        multiple = {
            Collective.ALL_REDUCE: 2.0,
            Collective.REDUCE_SCATTER: 1.0,
            Collective.ALL_GATHER: float(total),
        }[kind]
        if kind == Collective.ALL_REDUCE:
            load = _reduced_in_network(network, group, load)
    if partial == PartialGroups.USABLE:
        load = [
            bytes_ / usable_fraction(block, n, g, stride)
            for bytes_, block, n, g, stride in zip(
                load, network.blocks, network.sizes, group.sizes, group.strides, strict=True
            )
        ]
    return tuple(load), multiple, latency


def _reduced_in_network(
    network: MultiDimNetwork, group: NpuGroup, load: list[float]
) -> list[float]:
    used = [d for d, g in enumerate(group.sizes) if g > 1]
    before = 1
    found = list(load)
    for d, g in enumerate(group.sizes):
        if g > 1 and network.reducing[d]:
            both = 1.0 if d == used[-1] else 1.0 + 1.0 / g
            found[d] = min(load[d], both / before / 2.0)
        before *= g
    return found


def _steps(network: MultiDimNetwork, group: NpuGroup, kind: Collective) -> list[int]:
    passes = 2 if kind == Collective.ALL_REDUCE else 1
    steps = []
    for block, g, reducing in zip(network.blocks, group.sizes, network.reducing, strict=True):
        if block == BuildingBlock.RING:
            steps.append(passes * (g - 1))
        elif block == BuildingBlock.FULLY_CONNECTED or kind == Collective.ALL_TO_ALL:
            steps.append(passes)
        elif reducing and kind == Collective.ALL_REDUCE:
            steps.append(2)
        else:
            steps.append(passes * (g - 1).bit_length())
    return steps


def collective_of(name: str, where: str) -> Collective:
    """Return the collective of a workload file's word.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    try:
        return Collective(name)
    except ValueError:
        raise InputError(
            f"{where}: unknown collective {name!r}; known: {', '.join(Collective)}"
        ) from None
