"""The groups of a layout's ranks that exchange data, and the links that they do it over."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import LOOPED, Layout
from parallelism.transformers.stages import mixing_stages
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.rings import pair_loads
from topoopt.plan.rank_groups import (
    copy_groups,
    expert_groups,
    groups_along,
    servers_of,
    sharing_groups,
    token_groups,
)
from topoopt.plan.ranks import Rank


@dataclass(frozen=True)
class RankGroups:
    """All groups of one kind.

    Parameters
    ----------
    name : {"tensor", "context", "expert", "data", "expert-data", "copies", "pipeline"}
    what : str
        What they exchange.
    groups : list of list of Rank
        Of at least two ranks each.
    rings, pairs : frozenset of int
        Stages whose groups send along rings, and whose ranks each send to every other.
    """

    name: str
    what: str
    groups: list[list[Rank]]
    rings: frozenset[int] = frozenset()
    pairs: frozenset[int] = frozenset()

    @property
    def servers(self) -> list[tuple[int, ...]]:
        """Sorted servers of each group."""
        return [servers_of(group) for group in self.groups]


def kinds_of(model: Transformer, layout: Layout, ranks: list[Rank]) -> list[RankGroups]:
    """Return the kinds of groups that a layout has, the innermost first.

    Parameters
    ----------
    model : Transformer
    layout : Layout
    ranks : list of Rank
    """
    every = frozenset(range(layout.pipeline))
    keys, heads = (mixing_stages(model, layout, heads=heads) for heads in (False, True))
    linear, passed = model.linear, ""
    if linear is not None and linear.passed_on is not None:
        passed = f"{'states' if linear.kind == 'lightning' else 'last tokens'} of {linear.title}"
    attending = any(map(model.has_attention, range(model.layers + (model.mtp_layers > 0))))
    what = [
        *(["keys and values"] if attending else []),
        *([passed] if passed else []),
        *(["heads of linear attention, all to all"] if heads else []),
    ]
    along = {axis: groups_along(ranks, (axis,)) for axis in ("tensor", "context", "pipeline")}
    sharing, holding = sharing_groups(layout, ranks), expert_groups(layout, ranks)
    apart = model.experts is not None and [*holding.values()] != [*sharing.values()]
    kinds = [
        RankGroups("tensor", "activations in every layer", [*along["tensor"].values()], every),
        RankGroups("context", "; ".join(what), [*along["context"].values()], keys, heads),
        RankGroups("expert", "tokens, all to all",
             [*token_groups(layout, ranks).values()], pairs=every),
        RankGroups("data", "gradients and weights" + (" but of experts" if apart else ""),
             [*sharing.values()], every),
        RankGroups("expert-data", "gradients and weights of experts",
             [*holding.values()] if apart else [], every),
        RankGroups("copies", "gradients of the same share of each copy",
             [*copy_groups(layout, ranks).values()], every),
        RankGroups("pipeline", "activations between stages", [*along["pipeline"].values()]),
    ]  # fmt: skip
    return [kind for kind in kinds if kind.groups and len(kind.groups[0]) > 1]


def rank_numbers(group: Sequence[Rank]) -> str:
    """Return the numbers of ranks, shortened: "0, 1, 2, 3 .. 7"."""
    numbers = ", ".join(str(rank.number) for rank in group[:4])
    return f"{numbers} .. {group[-1].number}" if len(group) > 4 else numbers


def wires_of(kind: RankGroups, layout: Layout, fabric: Fabric) -> tuple[int, ...]:
    """Return the links that the groups of a kind send over.

    Sums and gathers go along the rings of the group's servers, tokens and heads from every server
    to every other, activations from a stage to the next and back, over the fabric's routes.

    Parameters
    ----------
    kind : RankGroups
    layout : Layout
    fabric : Fabric

    Returns
    -------
    tuple of int
        Ascending; none if all groups lie within servers.
    """
    network = fabric.network
    used = np.zeros(network.links, dtype=bool)
    pairs: set[tuple[int, int]] = set()
    ringed: dict[tuple[int, ...], None] = {}
    for group, servers in zip(kind.groups, kind.servers, strict=True):
        stage = group[0].place["pipeline"]
        if stage in kind.pairs:
            pairs.update(permutations(servers, 2))
        if stage in kind.rings:
            ringed[servers] = None
        if kind.name == "pipeline":
            after = group[1:] + group[: layout.schedule in LOOPED]
            for a, b in zip(group, after, strict=False):
                pairs |= {(a.server, b.server), (b.server, a.server)}
    for servers in ringed:
        if len(servers) > 1:
            used[fabric.group_streams(servers).links] = True
    numbers = [a * network.hosts + b for a, b in sorted(pairs) if a != b]
    if numbers:
        flat = np.array([numbers], dtype=np.int64)
        used |= pair_loads(fabric.rows, network.links, flat)[0] > 0.0
    return tuple(np.flatnonzero(used).tolist())
