"""AllReduces of large groups: round by round, or over trees of a group's ring edges.

A ring of n members takes 2 (n - 1) rounds, each with its latency: milliseconds over a thousand
servers, however small the buffer. Over the same edges every member can reach all others in a few
hops. Each member's tree adds up one n-th of the buffer from its leaves to it and passes the sum on
from it to them; every edge is used by about as many trees as by any other, so that large buffers
take as long as by rings.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from codesign_base.arrays import Floats, Ints
from topoopt.fabric.transport import Transport

ROUNDS_UP_TO = 128
"""Members of a group up to which AllReduces go round by round: there trees gain some tenths of a
percent of an iteration, at most 1.2."""
# Trees must take less than this share of what rings take alone: where links are full, what the
# busiest edge carries more costs more than less latency gains.
_WORTH = 0.9


class RingTrees(NamedTuple):
    """Trees over the edges of a group's rings, one from each member.

    Parameters
    ----------
    hops : int
        From a root to the member farthest away, or from one to the root.
    crowding : float
        Bytes on the busiest edge, over what each edge carries by rings; at least 1.
    """

    hops: int
    crowding: float


NO_TREES = RingTrees(0, 1.0)


def ring_trees(orders: Ints, *, switched: bool = False) -> RingTrees:
    """Return what trees over the edges of rings take, there and back.

    Parameters
    ----------
    orders : int64 array, shape (rings, members)
        Ring orders over hosts.
    switched : bool
        Whether members reach each other through switches only. They then pass on all that they
        know to the one twice as far as before, which takes log2 rounds and no byte more.

    Returns
    -------
    RingTrees
        `NO_TREES` for groups of up to `ROUNDS_UP_TO` members.

    References
    ----------
    Doubling: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
    message-passing systems", IEEE Transactions on Parallel and Distributed Systems, 1997.
    """
    rings, members = orders.shape
    if members <= ROUNDS_UP_TO:
        return NO_TREES
    if switched:
        return RingTrees(int(np.ceil(np.log2(members))), 1.0)
    place = np.searchsorted(np.sort(orders[0]), orders)
    return _of_places(place.tobytes(), rings)


@lru_cache(maxsize=64)
def _of_places(places: bytes, rings: int) -> RingTrees:
    """Return the same for members numbered in ascending order, as 64-bit integers ring by ring."""
    orders = np.frombuffer(places, dtype=np.int64).reshape(rings, -1)
    hops, busiest = 0, 0
    for way in (orders, orders[:, ::-1]):
        far, _, load = grown_trees(way)
        hops, busiest = max(hops, int(far.max())), max(busiest, int(load.max()))
    return RingTrees(hops, max(1.0, busiest * rings / (orders.shape[1] - 1)))


def grown_trees(orders: Ints) -> tuple[NDArray[np.int32], NDArray[np.int8], Ints]:
    """Return a broadcast tree from each member over the edges of rings.

    Parameters
    ----------
    orders : int64 array, shape (rings, members)
        Members are numbered from 0.

    Returns
    -------
    hops : int32 array, shape (members, members)
        From each root (row) to each member.
    ring : int8 array, shape (members, members)
        On which ring each member hears of each root; -1 for the root itself.
    load : int64 array, shape (rings, members)
        How many trees use the edge to each member on each ring.

    Notes
    -----
    Of the edges over which a member can hear of a root in the fewest hops it takes the one
    used least so far, for the roots with the fewest such edges first.
    """
    from topoopt.fabric.ring_trees_kernels import grow_trees, tree_hops

    rings, members = orders.shape
    each = np.arange(rings)[:, None]
    after, before = np.empty_like(orders), np.empty_like(orders)
    after[each, orders] = np.roll(orders, -1, axis=1)
    before[each, orders] = np.roll(orders, 1, axis=1)
    hops = np.empty((members, members), dtype=np.int32)
    ring = np.empty((members, members), dtype=np.int8)
    load = np.zeros((rings, members), dtype=np.int64)
    tree_hops(after, hops)
    grow_trees(before, hops.T.copy(), ring, load)
    return hops, ring.T, load


def rounds_of(
    transport: Transport, size: Floats, members: Ints, rings: Ints,
    passes: Floats, rate: Floats, lag: Floats, hops: Floats, crowding: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return how collectives are cut into rounds: by rings, or by trees where that is faster.

    Parameters
    ----------
    transport : Transport
    size, members, rings, passes : arrays, shape (collectives,)
        As `Transport.rounds` takes them.
    rate, lag : float64 arrays, of the same shape
        Bytes/s of a ring edge alone on the network, and seconds of a round beyond its bytes.
    hops, crowding : float64 arrays, of the same shape
        Of `RingTrees`.

    Returns
    -------
    rounds, message : float64 arrays, of the same shape
        Rounds, and bytes on each ring edge in one of them. Trees take one round a hop, each with
        as much of the bytes.

    Notes
    -----
    The hops of trees carry more in the middle than at their ends. Bytes are forwarded as they
    come, so only their sum counts.
    """
    rounds, message = transport.rounds(size, members, rings, passes)
    large = np.flatnonzero(hops > 0.0)
    if not large.size:
        return rounds, message
    count = members[large].astype(np.float64)
    part = transport.wire_bytes(size[large] / count)
    waves = passes[large] * hops[large]
    wave = part * crowding[large] * (count - 1.0) / (rings[large] * hops[large])

    def alone(times: Floats, sent: Floats) -> Floats:
        return times * (transport.wire_bytes(sent) / rate[large] + lag[large])

    faster = alone(waves, wave) < _WORTH * alone(rounds[large], message[large])
    chosen = large[faster]
    rounds, message = rounds.copy(), message.copy()
    rounds[chosen], message[chosen] = waves[faster], wave[faster]
    return rounds, message
