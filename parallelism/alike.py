"""Which parts of an iteration are alike, so that one of each kind stands for all.

What a large job does over and over is described once by a `Pattern`: places that compute, and
elements (transfers, collectives) that places wait for or start. A partition of places, elements
and resources is *equitable* if all members of a class meet the same numbers of members of every
other class. Then whatever is simulated with max-min fair rates happens to all members of a class
at the same times, and one of each is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from codesign_base.arrays import Floats, Ints, Words
from codesign_base.rows import spread, starts, summed

BOTH, SENDS, READS = 0, 1, 2
"""What an element is to a place that it meets: it waits for the place, the place for it."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Places and elements of an iteration, and which of them meet.

    Parameters
    ----------
    servers, places : int
    group : int64 array, shape (elements,)
        Index into ``groups`` of a collective; -1 of a transfer.
    source, target : int64 arrays, shape (elements,)
        Servers of a transfer; -1 of a collective.
    word : uint64 array, shape (elements,)
        What elements do: those of other words are never alike.
    groups : tuple of tuple of int
        Sorted servers.
    element, place, role : arrays, shape (entries,)
        Which element meets which place, and as what: `SENDS` if it waits for the place only,
        `READS` if the place waits for it, `BOTH` otherwise.
    """

    servers: int
    places: int
    group: Ints
    source: Ints
    target: Ints
    word: Words
    groups: tuple[tuple[int, ...], ...]
    element: Ints
    place: Ints
    role: Words

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(self.group.size)

    @cached_property
    def ports(self) -> "Rows":
        """The ports that elements use: server v to send is resource v, to receive servers + v."""
        moves = np.flatnonzero(self.group < 0)
        counts = np.array([len(group) for group in self.groups] or [0], dtype=np.int64)
        members = np.array([v for group in self.groups for v in group], dtype=np.int64)
        reduces = np.flatnonzero(self.group >= 0)
        reduces = reduces[counts[self.group[reduces]] > 1]
        own = counts[self.group[reduces]]
        element = np.repeat(reduces, own)
        server = members[spread(starts(counts)[self.group[reduces]], own)]
        return Rows(
            np.concatenate((moves, moves, element, element)),
            np.concatenate(
                (self.source[moves], self.servers + self.target[moves], server,
                 self.servers + server)
            ),
            np.ones(2 * (moves.size + element.size)),
        )  # fmt: skip


class Rows(NamedTuple):
    """What elements put on resources: one entry for each pair that meets."""

    element: Ints
    resource: Ints
    weight: Floats


@dataclass(frozen=True, eq=False)
class Classes:
    """An equitable partition; classes are numbered by their first members.

    Parameters
    ----------
    place, element, resource : int64 arrays
        Class of each.
    """

    place: Ints
    element: Ints
    resource: Ints

    @cached_property
    def first_place(self) -> Ints:
        """First place of each class."""
        return firsts(self.place)

    @cached_property
    def first_element(self) -> Ints:
        """First element of each class."""
        return firsts(self.element)

    @cached_property
    def first_resource(self) -> Ints:
        """First resource of each class."""
        return firsts(self.resource)


@dataclass(frozen=True, eq=False)
class Alike:
    """What the tasks of a graph stand for.

    Parameters
    ----------
    patterned : callable
        Returns ``pattern``, the same every time, which is made when it is first needed.
    classes : Classes
        Its first ``2 * servers`` resources are the ports, see `Pattern.ports`.
    rows : Rows
        What elements put on the resources.
    of_task : int64 array, shape (tasks,)
        Class of elements that a task stands for; -1 of compute tasks.
    rebuild : callable
        Makes the `TaskGraph` of other classes, with their rows, on a fabric; of None: the whole
        graph, one task each.
    fabric : object, optional
        Over which its members are alike; by default where all servers are.
    loads : Rows, optional
        `uses`, where ``rows`` hold only where the first element of each class takes longest. Then
        ``rebuild`` makes the whole graph only.
    """

    patterned: Callable[[], Pattern]
    classes: Classes
    rows: Rows
    of_task: Ints
    rebuild: Callable[[Classes | None, Rows, Any], Any]
    fabric: Any = None
    loads: Rows | None = None

    @property
    def pattern(self) -> Pattern:
        """Places and elements of the iteration, and which of them meet."""
        return self.patterned()

    def spread(self, amounts: Floats, chosen: Ints) -> Floats:
        """Sum amounts of some tasks by class; return them for every element, shape (elements,)."""
        of = self.of_task[chosen]
        return summed(of, amounts, self.classes.first_element.size)[self.classes.element]

    @cached_property
    def uses(self) -> Rows:
        """What each class of elements puts on the first resource of each class of resources."""
        if self.loads is not None:
            return self.loads
        first = self.classes.first_resource
        kept = first[self.classes.resource[self.rows.resource]] == self.rows.resource
        count = first.size
        keys = (
            self.classes.element[self.rows.element[kept]] * count
            + self.classes.resource[self.rows.resource[kept]]
        )
        found, which = np.unique(keys, return_inverse=True)
        weight = summed(which, self.rows.weight[kept], found.size)
        return Rows(found // count, found % count, weight)


def refine(
    pattern: Pattern,
    rows: Rows,
    colour: Words,
    gain: int = 2,
    serves: Callable[[Words], bool] | None = None,
) -> Classes | None:
    """Return the coarsest equitable partition, or None where it gains little.

    Parameters
    ----------
    pattern : Pattern
    rows : Rows
    colour : uint64 array, shape (resources,)
        Resources of other colours are never alike.
    gain : int
        Places of a class, on the average, below which None is returned.
    serves : callable, optional
        Says of the colours of elements whether so fine a partition still serves; the next are
        finer. If not, None is returned.

    Returns
    -------
    Classes or None

    Notes
    -----
    Colour refinement with 64-bit hashes; two different neighbourhoods get one colour with a
    probability below 1e-6 for a million elements. Weights equal but for rounding count as equal.

    References
    ----------
    M. Grohe, K. Kersting, M. Mladenov, E. Selman, "Dimension reduction via colour refinement"
    (ESA 2014).
    """
    from parallelism.alike_kernels import met_words

    place: Words = np.zeros(pattern.places, dtype=np.uint64)
    element, resource = hash_words(pattern.word), hash_words(colour)
    role, weight = hash_words(pattern.role), hash_words(words_of(rows.weight) ^ _ODD)
    counts = [0, 0, 0]
    while True:
        met = met_words(pattern.element, pattern.place, place, role, pattern.elements)
        used = met_words(rows.element, rows.resource, resource, weight, pattern.elements)
        element = hash_words(element + hash_words(met) + _ODD * hash_words(used))
        load = met_words(rows.resource, rows.element, element, weight, resource.size)
        resource = hash_words(resource + hash_words(load))
        met = met_words(pattern.place, pattern.element, element, role, place.size)
        place = hash_words(place + hash_words(met))
        known = [numbered(colours) for colours in (place, element, resource)]
        found = [first.size for _, first in known]
        if gain * found[0] > pattern.places or not (serves is None or serves(element)):
            return None
        if found == counts:
            return Classes(*(of for of, _ in known))
        counts = found


def words_of(values: Floats) -> Words:
    """Return the bits of numbers, less the last twelve: equal but for rounding counts as equal."""
    word: Words = np.ascontiguousarray(values).view(np.uint64) + np.uint64(1 << 11)
    word >>= np.uint64(12)
    return word


def hash_words(words: Words) -> Words:
    """Hash word by word, as `codesign_base.hash_kernels.hash_word` does."""
    word: Words = words + _ODD
    word ^= word >> np.uint64(30)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    word ^= word >> np.uint64(27)
    word *= np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return word


def numbered(colour: Words) -> tuple[Ints, Ints]:
    """Return each member's class and the first member of each class, by which they are numbered."""
    from parallelism.alike_kernels import numbered_words

    of, first = numbered_words(colour)
    return of, first


def firsts(classes: Ints) -> Ints:
    """Return the first member of each class, of classes that are numbered by them."""
    return numbered(np.ascontiguousarray(classes).view(np.uint64))[1]
