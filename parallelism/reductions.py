"""The AllReduces of a strategy's gradients: one of each shard of weights, or of several."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.rows import starts
from parallelism.buckets import fill_buckets, least_bucket
from parallelism.taskgraph import Group


class Gradients(NamedTuple):
    """Which shards have AllReduces, and what these are.

    ``base``: number of the first shard of each operator that has any, shape (operators + 1,).
    ``place``: which AllReduce each of these shards has. The others are of the AllReduces: index of
    the group, bytes, seconds inside servers, operator and shard.
    """

    base: Ints
    place: Ints
    group: Ints
    size: Floats
    delay: Floats
    operator: Ints
    part: Ints


class Reductions(NamedTuple):
    """The AllReduces of a strategy: their groups, whether some are of several gradients, all."""

    groups: tuple[Group, ...]
    fused: bool
    gradients: Gradients


def reductions_of(
    sample: Ints,
    shards: Ints,
    size: Floats,
    delay: Floats,
    numbers: Ints,
    groups: Sequence[Group],
    packet_bytes: float,
) -> Reductions:
    """Return the AllReduces of gradients, in buckets where some are less than packets.

    Parameters
    ----------
    sample, shards : int64 arrays, shape (operators,)
        In how many parts samples and weights are split.
    size, delay : float64 arrays, shape (operators,)
        Bytes of a shard's gradients, and seconds inside servers.
    numbers : int64 array, shape (sum of shards,)
        Group of each shard of every operator, of ``groups``.
    groups : sequence of tuple of int
        Servers.
    packet_bytes : float
        Where an AllReduce has less than so many bytes for each member, gradients are in buckets
        (`parallelism.buckets`), filled in the reverse order of the operators.

    Returns
    -------
    Reductions
        Groups in order of first use.

    Examples
    --------
    >>> import numpy as np
    >>> one, bytes_ = np.ones(2, np.int64), np.array([8.0, 4.0])
    >>> two = reductions_of(2 * one, one, bytes_, 0 * bytes_, 0 * one, [(0, 1)], 5.0)
    >>> two.fused, two.gradients.place.tolist(), two.gradients.size.tolist()
    (True, [0, 0], [12.0])
    """
    used, first_use, place = np.unique(numbers, return_index=True, return_inverse=True)
    # In order of first use, whatever was built before: results must not depend on history.
    order = np.argsort(first_use)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    own = tuple(groups[number] for number in used[order].tolist())
    reduced = (size > 0.0) & ((sample > 1) | (delay > 0.0))
    counts = np.where(reduced, shards, 0)
    base = starts(counts)
    operator = np.repeat(np.arange(counts.size), counts)
    part = np.arange(operator.size) - base[operator]
    group = rank[place][np.repeat(reduced, shards)]
    size, delay = size[operator], delay[operator]
    into = np.arange(operator.size)
    members = np.array([len(each) for each in own], dtype=np.int64)
    bucket = least_bucket(members[group], size, packet_bytes)
    if bucket is not None:
        # The order in which a network would have them ready is known with the network only.
        ready = -operator.astype(np.float64)
        into, size, delay = fill_buckets(group, size, delay, ready, bucket)
    stays = into == np.arange(operator.size)
    gradients = Gradients(
        base, (np.cumsum(stays) - 1)[into], group[stays], size[stays], delay[stays],
        operator[stays], part[stays],
    )  # fmt: skip
    return Reductions(own, bucket is not None, gradients)
