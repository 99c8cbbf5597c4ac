"""Groups of ranks that exchange data, and the servers that they do it over."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parallelism.transformers.placement import Group, Placement

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Exchange:
    """Collectives of equal groups of a stage's ranks.

    Ranks within servers exchange over the set of these servers. Of ranks over several servers
    each server holds a share of the tensors, and meets only those that hold the same share:
    then a group has several collectives.

    Parameters
    ----------
    members : int64 array, shape (collectives, ranks of a group)
        Places of ranks in the stage.
    servers : tuple of tuple of int
        Of each collective.
    of_place : int64 array, shape (ranks of the stage, collectives of a rank)
        Collectives that each rank takes part in.
    shares : int
        Collectives that a group's buffer is divided over.
    inside : float
        Mean ranks of a group on one of its servers.
    """

    members: IntArray
    servers: tuple[Group, ...]
    of_place: IntArray
    shares: int
    inside: float


def exchange(placement: Placement, ranks: IntArray, groups: IntArray) -> Exchange:
    """Return the collectives of groups of ranks.

    Parameters
    ----------
    placement : Placement
    ranks : int64 array, shape (places,)
        Ranks of one stage.
    groups : int64 array, shape (groups, size)
        Places of the members; every place is in one group.

    Returns
    -------
    Exchange
    """
    shares = placement.servers_per_rank
    first = ranks // placement.ranks_per_server * shares
    members = np.repeat(groups, shares, axis=0)
    servers = []
    of_place = np.zeros((ranks.size, shares), dtype=np.int64)
    for number, places in enumerate(members):
        share = number % shares
        servers.append(tuple(np.unique(first[places] + share).tolist()))
        of_place[places, share] = number
    return Exchange(members, tuple(servers), of_place, shares, groups.shape[1] / len(servers[0]))


@dataclass(frozen=True, eq=False)
class AllToAll:
    """Pairs of servers between which the ranks of expert groups exchange tokens.

    Parameters
    ----------
    source, target : int64 arrays, shape (pairs,)
        Servers.
    weight : float64 array, shape (pairs,)
        Times that a rank's bytes for one rank of its group cross.
    senders : int64 array, shape (pairs, most)
        Places of the ranks that send; -1 fills rows up.
    into : int64 array, shape (ranks of the stage, most)
        Pairs that bring each rank its tokens; -1 fills rows up.
    """

    source: IntArray
    target: IntArray
    weight: npt.NDArray[np.float64]
    senders: IntArray
    into: IntArray


def all_to_all(placement: Placement, ranks: IntArray, groups: IntArray) -> AllToAll:
    """Return the server pairs of all expert groups of a stage.

    Parameters
    ----------
    placement : Placement
    ranks : int64 array, shape (places,)
    groups : int64 array, shape (groups, expert)
        Places.

    Returns
    -------
    AllToAll
    """
    source: list[int] = []
    target: list[int] = []
    weight: list[float] = []
    senders: list[list[int]] = []
    into: list[list[int]] = [[] for _ in range(ranks.size)]
    for group in groups.tolist():
        at: dict[Group, list[int]] = {}
        for place in group:
            at.setdefault(placement.rank_servers(int(ranks[place])), []).append(place)
        for home, sending in at.items():
            for away, reading in at.items():
                if home == away:
                    continue
                for a, b in zip(home, away, strict=True):
                    for place in reading:
                        into[place].append(len(source))
                    source.append(a)
                    target.append(b)
                    weight.append(len(sending) * len(reading) / len(home))
                    senders.append(sending)
    return AllToAll(
        np.array(source, dtype=np.int64),
        np.array(target, dtype=np.int64),
        np.array(weight, dtype=np.float64),
        _rows(senders),
        _rows(into),
    )


def _rows(lists: list[list[int]]) -> IntArray:
    width = max((len(row) for row in lists), default=0)
    return np.array([row + [-1] * (width - len(row)) for row in lists], dtype=np.int64).reshape(
        len(lists), width
    )
