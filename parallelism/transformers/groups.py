"""Groups of ranks that exchange data, and the servers that they do it over."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from parallelism.taskgraph import Group
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement


class StateGroups(NamedTuple):
    """Which ranks of a stage share states: places, by data and within it context, of each group.

    Parameters
    ----------
    dense, expert : int64 array, shape (groups, size)
        Ranks of a copy that share its dense weights, and each expert.
    copies : int64 array, shape (groups, Layout.replicate)
        Those that hold the same share of both in every copy.
    """

    dense: Ints
    expert: Ints
    copies: Ints


def state_groups(layout: Layout) -> StateGroups:
    """Return which ranks of a stage share states.

    Parameters
    ----------
    layout : Layout

    Returns
    -------
    StateGroups
        Every place is in one group of each kind.
    """
    dense = np.arange(layout.data * layout.context).reshape(layout.replicate, -1)
    # By place among those that hold all experts, and copy.
    expert = dense.reshape(layout.replicate, -1, layout.expert_ranks).transpose(2, 0, 1)
    return StateGroups(dense, expert.reshape(-1, expert.shape[2]), dense.T)


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
    inside : float64 array, shape (collectives,)
        Mean ranks of the group on one of its servers.
    element : int64 array, shape (collectives,), optional
        What each is called in the tasks, where it stands for others, too.
    """

    members: Ints
    servers: tuple[Group, ...]
    of_place: Ints
    shares: int
    inside: Floats
    element: Ints | None = None

    @cached_property
    def as_servers(self) -> Floats:
        """Of each collective, see `as_servers`."""
        servers = _lengths(self.servers)
        return as_servers(self.inside * servers, servers)

    @cached_property
    def near(self) -> Floats | None:
        """What each rank passes on of a byte where others are on its server, if any are."""
        if self.inside.max() <= 1.0:
            return None
        ranks = self.inside * _lengths(self.servers)
        return np.where(self.inside > 1.0, 1.0 - 1.0 / ranks, 0.0)


def as_servers(ranks: Floats, servers: Floats) -> Floats:
    """Return the size of a buffer that a ring of servers passes on, over that of a ring of ranks.

    Parameters
    ----------
    ranks, servers : float64 arrays
        Of groups. A ring, as NCCL's, goes through all ranks of a server before it leaves.

    Returns
    -------
    float64 array
        Each server then sends as much to the next; 1 where one server has all ranks.
    """
    others = np.maximum(servers - 1.0, 1.0)
    return np.where(servers > 1.0, (1.0 - 1.0 / ranks) * servers / others, 1.0)


def exchange(placement: Placement, ranks: Ints, groups: Ints) -> Exchange:
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
    if shares == 1:
        own = np.zeros((ranks.size, 1), dtype=np.int64)
        own[groups] = np.arange(len(groups))[:, None, None]
        homes = _distinct(first[groups])
        return Exchange(groups, homes, own, 1, groups.shape[1] / _lengths(homes))
    members = np.repeat(groups, shares, axis=0)
    servers = []
    of_place = np.zeros((ranks.size, shares), dtype=np.int64)
    for number, places in enumerate(members):
        share = number % shares
        servers.append(tuple(np.unique(first[places] + share).tolist()))
        of_place[places, share] = number
    inside = groups.shape[1] / _lengths(tuple(servers))
    return Exchange(members, tuple(servers), of_place, shares, inside)


def _lengths(servers: tuple[Group, ...]) -> Floats:
    return np.array([float(len(group)) for group in servers])


@dataclass(frozen=True, eq=False)
class AllToAll:
    """Pairs of servers between which the ranks of groups exchange tokens, or heads of them.

    Parameters
    ----------
    source, target : int64 arrays, shape (pairs,)
        Servers.
    weight : float64 array, shape (pairs,)
        Times that a rank's bytes for one rank of its group cross.
    senders : int64 array, shape (pairs, most)
        Places of the ranks that send; -1 fills rows up.
    into : int64 array, shape (ranks of the stage, most)
        Pairs that bring each rank what is sent to it; -1 fills rows up.
    element : int64 array, shape (pairs,), optional
        What each is called in the tasks, where it stands for others, too.
    """

    source: Ints
    target: Ints
    weight: npt.NDArray[np.float64]
    senders: Ints
    into: Ints
    element: Ints | None = None


def all_to_all(placement: Placement, ranks: Ints, groups: Ints) -> AllToAll:
    """Return the server pairs of all groups of a stage, where each rank sends to each other.

    Parameters
    ----------
    placement : Placement
    ranks : int64 array, shape (places,)
    groups : int64 array, shape (groups, size)
        Places.

    Returns
    -------
    AllToAll
    """
    even = _even_all_to_all(placement, ranks, groups)
    if even is not None:
        return even
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


def _even_all_to_all(placement: Placement, ranks: Ints, groups: Ints) -> AllToAll | None:
    """Return the same at once where all groups have as many ranks on each of as many servers."""
    if placement.servers_per_rank > 1 or groups.size == 0:
        return None
    home = (ranks // placement.ranks_per_server)[groups]
    order = np.argsort(home, axis=1, kind="stable")
    home = np.take_along_axis(home, order, axis=1)
    count, size = groups.shape
    begins = np.flatnonzero(np.diff(home[0], prepend=-1))
    per = size // begins.size
    blocks = home.reshape(count, -1, per) if size % begins.size == 0 else home[:, :, None]
    if np.any(blocks[:, :, :1] != blocks) or np.any(np.diff(blocks[:, :, 0], axis=1) <= 0):
        return None
    if per > 1 and blocks.shape[2] == 1:
        return None
    servers = blocks.shape[1]
    # Servers by their first rank, ranks in the order of the group.
    seen = np.argsort(order.reshape(blocks.shape)[:, :, 0], axis=1)
    home = np.take_along_axis(blocks[:, :, 0], seen, axis=1)
    members = np.take_along_axis(groups, order, axis=1).reshape(blocks.shape)
    members = np.take_along_axis(members, seen[:, :, None], axis=1)
    one, other = np.nonzero(~np.eye(servers, dtype=np.bool_))
    pairs = np.arange(count * one.size).reshape(count, one.size)
    into: Ints = np.zeros((ranks.size, servers - 1), dtype=np.int64)
    bring = np.argsort(other, kind="stable").reshape(servers, servers - 1)
    into[members] = pairs[:, bring][:, :, None, :]
    return AllToAll(
        home[:, one].ravel(),
        home[:, other].ravel(),
        np.full(pairs.size, float(per * per)),
        members[:, one].reshape(pairs.size, per),
        into,
    )


def _distinct(servers: Ints) -> tuple[Group, ...]:
    """Return the sorted distinct servers of each row."""
    rows = np.sort(servers, axis=1)
    kept = np.ones(rows.shape, dtype=np.bool_)
    kept[:, 1:] = rows[:, 1:] != rows[:, :-1]
    counts = kept.sum(axis=1)
    flat = rows[kept]
    if (counts == counts[0]).all():
        return tuple(map(tuple, flat.reshape(-1, counts[0]).tolist()))
    return tuple(tuple(row.tolist()) for row in np.split(flat, np.cumsum(counts)[:-1]))


def _rows(lists: list[list[int]]) -> Ints:
    width = max((len(row) for row in lists), default=0)
    return np.array([row + [-1] * (width - len(row)) for row in lists], dtype=np.int64).reshape(
        len(lists), width
    )
