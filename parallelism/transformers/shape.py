"""Who exchanges with whom in an iteration: all ranks, or one of each kind."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Ints
from parallelism.alike import BOTH, READS, SENDS, Classes, Pattern, hash_words, words_of
from parallelism.taskgraph import Group
from parallelism.transformers.groups import (
    AllToAll,
    Exchange,
    all_to_all,
    exchange,
    state_groups,
)
from parallelism.transformers.loads import Loads
from parallelism.transformers.placement import Placement

_NEXT, _TOKENS, _TIED = 2, 5, 6
"""Kinds of elements: 0 and 1 are not used, so that steps 1 and -1 make kinds 3 and 1."""
_HEADS, _COLLECTIVES = 10, (7, 8, 9, 11)


class Collectives(NamedTuple):
    """Collectives of each stage: of ranks of a context group, and of those of `StateGroups`.

    None of groups of one rank.
    """

    context: tuple[Exchange, ...]
    dense: tuple[Exchange, ...]
    expert: tuple[Exchange, ...]
    copies: tuple[Exchange, ...]


@dataclass(frozen=True, eq=False)
class Shape:
    """Ranks of every stage, and what they exchange; see `Exchange` and `AllToAll`.

    Parameters
    ----------
    ranks : int64 array, shape (stages, places)
        Device of each rank.
    home : int64 array, shape (stages, places)
        Its first server.
    server_of_device : int64 array
    collectives : Collectives
    heads, tokens : tuple of AllToAll
        Of each stage: in context groups, and in expert groups.
    sends : dict of (int, int) to int64 array, shape (places,)
        What the messages of a stage to the next (1) or the one before (-1) are called in the
        tasks, where they stand for others, too.
    ties : int64 array, shape (places,)
        The same of the reduction of a tied embedding.
    """

    ranks: Ints
    home: Ints
    server_of_device: Ints
    collectives: Collectives
    heads: tuple[AllToAll, ...]
    tokens: tuple[AllToAll, ...]
    sends: dict[tuple[int, int], Ints]
    ties: Ints | None = None


def whole_shape(placement: Placement) -> Shape:
    """Return the shape of all ranks.

    Parameters
    ----------
    placement : Placement

    Returns
    -------
    Shape
    """
    layout = placement.layout
    # Ranks of a stage by data and, within, context.
    ranks = placement.rank.transpose(2, 1, 0).reshape(layout.pipeline, -1)
    places = np.arange(ranks.shape[1])
    context, expert = places.reshape(-1, layout.context), places.reshape(-1, layout.expert_ranks)
    homes = np.arange(ranks.size) // placement.ranks_per_server * placement.servers_per_rank
    return Shape(
        ranks,
        homes[ranks],
        homes.astype(np.int64),
        Collectives(
            *(
                tuple(exchange(placement, own, groups) for own in ranks if groups.shape[1] > 1)
                for groups in (context, *state_groups(layout))
            )
        ),
        tuple(all_to_all(placement, own, context) for own in ranks),
        tuple(all_to_all(placement, own, expert) for own in ranks),
        {},
    )


def _sent(placement: Placement, loads: Loads) -> list[set[str]]:
    """Return the kinds of exchanges that each stage takes part in."""
    layout = placement.layout
    context, heads, tokens = (
        np.any(sent != 0.0, axis=0).tolist()
        for sent in (loads.context_bytes.sum(axis=0), loads.heads_bytes, loads.expert_bytes)
    )
    found: list[set[str]] = [set() for _ in range(layout.pipeline)]
    for part, stage in enumerate(layout.part_stages):
        weight, gradient = loads.weights[part], loads.gradients[part]
        known = {
            "context": context[part],
            "heads": heads[part],
            "tokens": tokens[part],
            "dense": layout.sharing > 1 and (weight.dense or gradient.dense),
            "expert": layout.sharing > layout.expert_ranks and (weight.expert or gradient.expert),
            "copies": layout.replicate > 1 and (gradient.dense or gradient.expert),
        }
        found[stage].update(name for name, used in known.items() if used)
    return found


class _Elements:
    """Elements of a pattern as they are added."""

    def __init__(self) -> None:
        self.count = 0
        self.group: list[Ints] = []
        self.source: list[Ints] = []
        self.target: list[Ints] = []
        self.word: list[npt.NDArray[np.uint64]] = []
        self.groups: dict[Group, int] = {}
        self.element: list[Ints] = []
        self.place: list[Ints] = []
        self.role: list[npt.NDArray[np.uint64]] = []
        none = np.zeros(0, dtype=np.int64)
        self.meet(self.add(none.astype(np.uint64)), none, BOTH)

    def add(self, word: npt.NDArray[np.uint64], **ends: Ints) -> Ints:
        """Add elements with a group, or a source and target, each; return their numbers."""
        numbers = np.arange(self.count, self.count + word.size)
        self.count += word.size
        none = np.full(word.size, -1, dtype=np.int64)
        for name in ("group", "source", "target"):
            getattr(self, name).append(ends.get(name, none))
        self.word.append(word)
        return numbers

    def meet(self, element: Ints, place: Ints, role: int) -> None:
        """Let elements meet places; negative numbers meet nothing."""
        kept = (element >= 0) & (place >= 0)
        self.element.append(element[kept])
        self.place.append(place[kept])
        self.role.append(np.full(int(kept.sum()), role, dtype=np.uint64))

    def exchange(self, over: Exchange, word: int) -> Ints:
        """Add the collectives of groups."""
        groups = np.array([self.groups.setdefault(g, len(self.groups)) for g in over.servers])
        # What ranks on one server exchange differs where some groups have more there than others.
        _, apart = np.unique(over.inside, return_inverse=True)
        made = self.add((word + (apart << 32)).astype(np.uint64), group=groups)
        self.meet(np.repeat(made, over.members.shape[1]), over.members.ravel(), BOTH)
        return made

    def all_to_all(self, over: AllToAll, word: int) -> AllToAll:
        """Add the transfers of pairs of servers; return the same, called by their numbers."""
        words = hash_words(words_of(over.weight) + np.uint64(word))
        made = self.add(words, source=over.source, target=over.target)
        self.meet(np.repeat(made, over.senders.shape[1]), over.senders.ravel(), SENDS)
        into = over.into.ravel()
        brings = np.where(into >= 0, made[into], -1) if made.size else into
        every = np.arange(over.into.shape[0])
        self.meet(brings, np.repeat(every, over.into.shape[1]), READS)
        return replace(over, element=made)


def pattern_of(placement: Placement, shape: Shape, loads: Loads) -> tuple[Pattern, Shape]:
    """Return the pattern of a shape.

    Parameters
    ----------
    placement : Placement
        Of tensor groups within servers.
    shape : Shape
        `whole_shape` of it.
    loads : Loads
        What is not sent is no element.

    Returns
    -------
    Pattern
    Shape
        The same, its exchanges called by the elements of the pattern.
    """
    found = _Elements()
    stages, places = shape.ranks.shape
    sends: dict[tuple[int, int], Ints] = {}
    named: list[list[Exchange]] = [[] for _ in shape.collectives]
    pairs: dict[str, list[AllToAll]] = {"heads": [], "tokens": []}
    for stage, sent in enumerate(_sent(placement, loads)):
        for name, kind, over, own in zip(
            Collectives._fields, _COLLECTIVES, shape.collectives, named, strict=True
        ):
            if not over:
                continue
            none = np.full(len(over[stage].servers), -1, dtype=np.int64)
            made = found.exchange(over[stage], 16 * stage + kind) if name in sent else none
            own.append(replace(over[stage], element=made))
        for step in (1, -1) if stages > 1 else ():
            source, target = shape.home[stage], shape.home[(stage + step) % stages]
            away = np.flatnonzero(source != target)
            word = np.full(away.size, 16 * stage + _NEXT + step, dtype=np.uint64)
            sends[stage, step] = np.full(places, -1, dtype=np.int64)
            made = found.add(word, source=source[away], target=target[away])
            sends[stage, step][away] = made
            found.meet(made, away, BOTH)
        for name, kind in (("heads", _HEADS), ("tokens", _TOKENS)):
            every: AllToAll = getattr(shape, name)[stage]
            pairs[name].append(
                found.all_to_all(every, 16 * stage + kind) if name in sent else every
            )
    ties = np.full(places, -1, dtype=np.int64)
    if loads.tied_bytes > 0.0 and stages > 1:
        head, tail = shape.home[0], shape.home[-1]
        away = np.flatnonzero(head != tail)
        between = zip(head[away].tolist(), tail[away].tolist(), strict=True)
        groups = [(min(a, b), max(a, b)) for a, b in between]
        numbers = [found.groups.setdefault(g, len(found.groups)) for g in groups]
        word = np.full(away.size, _TIED, dtype=np.uint64)
        made = found.add(word, group=np.array(numbers, dtype=np.int64))
        ties[away] = made
        found.meet(made, away, BOTH)
    pattern = Pattern(
        servers=placement.servers,
        places=places,
        group=np.concatenate(found.group),
        source=np.concatenate(found.source),
        target=np.concatenate(found.target),
        word=np.concatenate(found.word),
        groups=tuple(found.groups),
        element=np.concatenate(found.element),
        place=np.concatenate(found.place),
        role=np.concatenate(found.role),
    )
    called = replace(
        shape,
        collectives=Collectives(*map(tuple, named)),
        heads=tuple(pairs["heads"]),
        tokens=tuple(pairs["tokens"]),
        sends=sends,
        ties=ties,
    )
    return pattern, called


def reduced_shape(shape: Shape, classes: Classes) -> Shape:
    """Return the shape of one rank of each class of places, and one exchange of each class.

    Parameters
    ----------
    shape : Shape
        Whose exchanges are called by the elements of its pattern.
    classes : Classes
        Of that pattern.

    Returns
    -------
    Shape
        Its exchanges are called by classes of elements.
    """
    first = classes.first_place
    stages, kinds = shape.ranks.shape[0], first.size
    home = shape.home[:, first]

    def called(elements: Ints) -> Ints:
        return np.where(elements >= 0, classes.element[elements], -1)

    return Shape(
        ranks=np.arange(stages * kinds).reshape(stages, kinds),
        home=home,
        server_of_device=home.ravel(),
        collectives=Collectives(
            *(tuple(_reduced(over, classes) for over in kind) for kind in shape.collectives)
        ),
        heads=tuple(_reduced_pairs(over, classes) for over in shape.heads),
        tokens=tuple(_reduced_pairs(over, classes) for over in shape.tokens),
        sends={of: called(elements[first]) for of, elements in shape.sends.items()},
        ties=None if shape.ties is None else called(shape.ties[first]),
    )


def _reduced(over: Exchange, classes: Classes) -> Exchange:
    assert over.element is not None
    if over.element[0] < 0:  # nothing is sent
        return over
    kind, first, which = np.unique(
        classes.element[over.element], return_index=True, return_inverse=True
    )
    return Exchange(
        _distinct_rows(classes.place[over.members[first]]),
        tuple(over.servers[number] for number in first.tolist()),
        which[over.of_place[classes.first_place]],
        over.shares,
        over.inside[first],
        kind,
    )


def _reduced_pairs(over: AllToAll, classes: Classes) -> AllToAll:
    if over.element is None or not over.element.size:  # nothing is sent
        none = np.zeros((classes.first_place.size, 0), dtype=np.int64)
        return replace(over, into=none)
    kind, first, which = np.unique(
        classes.element[over.element], return_index=True, return_inverse=True
    )
    senders, into = over.senders[first], over.into[classes.first_place]
    return AllToAll(
        over.source[first],
        over.target[first],
        over.weight[first],
        _distinct_rows(np.where(senders >= 0, classes.place[senders], -1)),
        _distinct_rows(np.where(into >= 0, which[into], -1)),
        kind,
    )


def _distinct_rows(rows: Ints) -> Ints:
    """Return each row's numbers once; what repeats is replaced by the row's largest."""
    if not rows.size:
        return rows
    rows = np.sort(rows, axis=1)
    again = np.zeros(rows.shape, dtype=np.bool_)
    again[:, :-1] = rows[:, 1:] == rows[:, :-1]
    # Largest first, so that the columns kept hold every number of each row.
    kept = np.sort(np.where(again, -1, rows), axis=1)[:, ::-1]
    width = int((~again).sum(axis=1).max())
    kept = kept[:, :width]
    return np.ascontiguousarray(np.where(kept < 0, rows[:, -1:], kept))
