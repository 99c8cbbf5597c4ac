"""Groups of a layout's ranks that exchange data, as Megatron-LM orders them."""

from collections.abc import Callable, Iterable, Sequence

from parallelism.transformers.layout import Layout
from topoopt.plan.ranks import Rank

Groups = dict[tuple[int, ...], list[Rank]]
"""By what the ranks of a group have in common; groups and their ranks in the order of ranks."""


def groups_along(ranks: Iterable[Rank], axes: Sequence[str]) -> Groups:
    """Return the ranks that differ in the given axes only.

    Parameters
    ----------
    ranks : iterable of Rank
    axes : sequence of str
        Of "tensor", "context", "data" and "pipeline".

    Returns
    -------
    dict of tuple of int to list of Rank
        By their places on the other axes, the innermost first. Every rank is in one group.
    """
    return _by(ranks, lambda at: tuple(place for axis, place in at.items() if axis not in axes))


def sharing_groups(layout: Layout, ranks: Iterable[Rank]) -> Groups:
    """Return the ranks that share the states of a copy, by stage, tensor rank and copy."""
    return _by(ranks, lambda at: (at["pipeline"], at["tensor"], _copy(layout, at)))


def copy_groups(layout: Layout, ranks: Iterable[Rank]) -> Groups:
    """Return the ranks that hold one share in every copy.

    By stage, tensor rank, context rank, and place among the data ranks of a copy.
    """
    each = layout.data // layout.replicate

    def key(at: dict[str, int]) -> tuple[int, ...]:
        return at["pipeline"], at["tensor"], at["context"], at["data"] % each

    return _by(ranks, key)


def expert_groups(layout: Layout, ranks: Iterable[Rank]) -> Groups:
    """Return the ranks of a copy that have the same experts, by stage, these, and copy."""
    whole = layout.expert * layout.expert_split
    return _by(ranks, lambda at: (at["pipeline"], _place(layout, at) % whole, _copy(layout, at)))


def token_groups(layout: Layout, ranks: Iterable[Rank]) -> Groups:
    """Return the ranks that exchange tokens.

    Ranks of a stage count tensor innermost, then context, then data; of these the ones that split
    an expert are next to each other, then come those with other experts.

    Parameters
    ----------
    layout : Layout
    ranks : iterable of Rank

    Returns
    -------
    dict of tuple of int to list of Rank
        By stage, the number of the ranks that hold all experts, and the part of each expert.
    """
    split, whole = layout.expert_split, layout.expert * layout.expert_split

    def key(at: dict[str, int]) -> tuple[int, ...]:
        place = _place(layout, at)
        return at["pipeline"], place // whole, place % split

    return _by(ranks, key)


def servers_of(group: Iterable[Rank]) -> tuple[int, ...]:
    """Return the servers of some ranks, ascending."""
    return tuple(sorted({rank.server for rank in group}))


def _place(layout: Layout, at: dict[str, int]) -> int:
    return at["tensor"] + layout.tensor * (at["context"] + layout.context * at["data"])


def _copy(layout: Layout, at: dict[str, int]) -> int:
    return at["data"] * layout.replicate // layout.data


def _by(ranks: Iterable[Rank], key: Callable[[dict[str, int]], tuple[int, ...]]) -> Groups:
    found: Groups = {}
    for rank in ranks:
        found.setdefault(key(rank.place), []).append(rank)
    return found
