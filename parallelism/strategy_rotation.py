"""What a rotation of the servers maps on each other, told from a strategy without its task graph.

Operators that are split alike may change places, as tables on every sixteenth server do: then a
rotation maps each part of an operator on a part of another, on the server so many further. It
leaves the iteration as it is where parts change their samples, and slices of what they read,
together with those that they exchange them with.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Ints
from parallelism.alike import hash_words, numbered, words_of
from parallelism.builder_rows import Edges, SplitArrays, StrategyRecords
from parallelism.memory_kernels import PARAMETER, SAMPLE
from parallelism.reductions import Gradients
from parallelism.rotation import Rotated
from parallelism.rotation_kernels import cycles, places_on, rotated_keys
from parallelism.taskgraph import TaskGraph

# Pairs of slices, of a producer and a reader, up to which what they share is compared one by one.
_COMPARED = 1 << 16


class _Images(NamedTuple):
    """Where a rotation maps operators and their parts.

    ``operator``: image of each operator; ``sample``, ``shard``: how many samples and shards
    further its parts are mapped; ``part``: image of each part of all operators.
    """

    operator: Ints
    sample: Ints
    shard: Ints
    part: Ints


def rotated_strategy(
    rows: StrategyRecords,
    edges: Edges,
    sinks: npt.NDArray[np.bool_],
    gradients: Gradients,
    tasks: TaskGraph,
    period: int,
) -> Rotated | None:
    """Return which tasks of a strategy's graph a rotation of the servers maps on each other.

    Parameters
    ----------
    rows : StrategyRecords
        Of the strategy.
    edges : Edges
    sinks : bool array, shape (operators,)
        Operators that none reads.
    gradients : Gradients
    tasks : TaskGraph
        What `TaskGraphBuilder.build` makes of them.
    period : int
        The rotation goes on by a multiple of so many servers; a divisor of their number.

    Returns
    -------
    Rotated or None
        As `parallelism.rotation.rotated_classes` returns it, by the least step for which images of
        the operators' parts are found. None if there is none, or it has more than half as many
        classes as there are tasks.
    """
    servers, kinds = tasks.servers, _kinds(rows, sinks)
    for step in range(period, servers // 2 + 1, period):
        if servers % step:
            continue
        images = _images(rows, kinds, servers, step)
        if images is None or not _keeps_edges(rows.split, edges, images):
            continue
        reduced = _image_of_reductions(rows, gradients, images)
        if reduced is None:
            continue
        keys = rotated_keys(
            cycles(images.part), cycles(reduced), rows.offsets, rows.servers // step,
            servers // step, tasks.kind, tasks.operator, tasks.phase, tasks.part,
            tasks.successor_offsets, tasks.successors,
        )  # fmt: skip
        of, first = numbered(keys)
        # Of more steps there are more classes.
        return Rotated(step, of, first) if 2 * first.size <= tasks.tasks else None
    return None


def _kinds(rows: StrategyRecords, sinks: npt.NDArray[np.bool_]) -> Ints:
    """Return numbers of operators, the same for those that are split alike and take as long."""
    word = hash_words(sinks.astype(np.uint64))
    for split in rows.splits:
        word = hash_words(word ^ split.astype(np.uint64))
    for times in rows.times:
        word = hash_words(word ^ words_of(times))
    return numbered(word)[0]


def _images(rows: StrategyRecords, kinds: Ints, servers: int, step: int) -> _Images | None:
    """Return where a rotation maps the parts of operators, if all servers have as many of a kind.

    Of operators of one kind on the same servers, the first is mapped on the first.
    """
    shards, offsets = rows.splits[PARAMETER], rows.offsets
    counts = np.diff(offsets)
    operator = np.repeat(np.arange(counts.size), counts)
    number = np.arange(rows.servers.size) - offsets[operator]
    ahead = (rows.servers + step) % servers
    # The servers of an operator, whatever their order, and those of its image.
    here, there = (
        np.add.reduceat(hash_words(where.astype(np.uint64)), offsets[:-1])
        + hash_words(kinds.astype(np.uint64))
        for where in (rows.servers, ahead)
    )
    order, wanted = (np.argsort(words, kind="stable") for words in (here, there))
    if not np.array_equal(here[order], there[wanted]):
        return None
    image = np.empty_like(order)
    image[wanted] = order
    if not np.array_equal(kinds[image], kinds):
        return None
    # Servers hold one part of an operator at most: which is found by sorting both.
    own = np.argsort(operator * servers + rows.servers)
    mapped = np.argsort(image[operator] * servers + ahead)
    if not np.array_equal(
        (operator * servers + rows.servers)[own], (image[operator] * servers + ahead)[mapped]
    ):
        return None
    part = np.empty_like(own)
    part[mapped] = own
    of, at = operator[part], number[part]
    ahead_by = [
        (at // shards[of] - number // shards[operator]) % rows.splits[SAMPLE][operator],
        (at % shards[of] - number % shards[operator]) % shards[operator],
    ]
    samples, slices = (by[offsets[:-1]] for by in ahead_by)
    if not (
        np.array_equal(ahead_by[0], samples[operator])
        and np.array_equal(ahead_by[1], slices[operator])
    ):
        return None
    place = places_on(rows.servers, servers)
    if not np.array_equal(place[part], place):
        return None
    return _Images(image, samples, slices, part)


def _keeps_edges(split: SplitArrays, edges: Edges, images: _Images) -> bool:
    """Whether images of parts exchange what the parts do."""
    count = split.sample.size
    keys = edges.source * count + edges.target
    image = images.operator[edges.source] * count + images.operator[edges.target]
    order = np.argsort(keys)
    found = order[np.minimum(np.searchsorted(keys[order], image), max(keys.size - 1, 0))]
    if not np.array_equal(keys[found], image) or not np.array_equal(
        edges.bytes[found], edges.bytes
    ):
        return False
    a, b = edges.source, edges.target
    whole = split.sample[a] * split.sample[b]
    turned = images.sample[a] * split.sample[b] - images.sample[b] * split.sample[a]
    split_by_both = (split.sample[a] > 1) & (split.sample[b] > 1)
    if (turned % whole)[split_by_both].any():
        return False
    writes = split.slices_output[a] & (split.parameter[a] > 1)
    reads = split.slices_input[b] & (split.parameter[b] > 1)
    beside = edges.beside[1] > 0
    if not np.array_equal(edges.beside[1][found], edges.beside[1]):
        return False
    whole = split.parameter[a] * split.parameter[b]
    turned = images.shard[a] * split.parameter[b] - images.shard[b] * split.parameter[a]
    if (turned % whole)[writes & reads & ~beside].any():
        return False
    still = (
        (images.shard[a] == 0)
        & (images.shard[b] == 0)
        & (edges.beside[0][found] == edges.beside[0])
    )
    return all(
        _shares_alike(split, edges, images, edge, int(found[edge]))
        for edge in np.flatnonzero(reads & beside & ~still).tolist()
    )


def _shares_alike(split: SplitArrays, edges: Edges, images: _Images, edge: int, other: int) -> bool:
    """Whether the slices of a concatenation that parts read of an input are those of images."""
    a, b = int(edges.source[edge]), int(edges.target[edge])
    cuts = int(split.parameter[a]) if split.slices_output[a] else 1
    if cuts * int(split.parameter[b]) > _COMPARED:
        return False
    shared = [
        _shared(
            cuts, int(split.parameter[b]), int(edges.features[edges.target[each]]),
            *edges.beside[:, each].tolist(),
        )
        for each in (edge, other)
    ]  # fmt: skip
    turned = np.roll(shared[0], (int(images.shard[a]) % cuts, int(images.shard[b])), axis=(0, 1))
    return np.array_equal(turned, shared[1])


def _shared(cuts: int, slices: int, features: int, first: int, width: int) -> Ints:
    """Return what each slice of an input shares with each slice of a concatenation.

    In parts of a feature, ``cuts`` of which are one; shape (cuts, slices).
    """
    input_low = (first * cuts + np.arange(cuts) * width)[:, None]
    low = np.arange(slices) * (features // slices) * cuts
    high = low + features // slices * cuts
    shared: Ints = np.minimum(input_low + width, high) - np.maximum(input_low, low)
    return np.maximum(shared, 0)


def _image_of_reductions(
    rows: StrategyRecords, gradients: Gradients, images: _Images
) -> Ints | None:
    """Return where AllReduces are mapped, or None where buckets hold others' gradients."""
    base, place = gradients.base, gradients.place
    counts = np.diff(base)
    operator = np.repeat(np.arange(counts.size), counts)
    shard = np.arange(operator.size) - base[operator]
    of = images.operator[operator]
    if not np.array_equal(counts[images.operator], counts):
        return None
    ahead = (shard + images.shard[operator]) % np.maximum(rows.splits[PARAMETER][operator], 1)
    into = place[base[of] + ahead]
    image = np.full(gradients.group.size, -1, dtype=np.int64)
    image[place] = into
    if (
        not np.array_equal(image[place], into)
        or not np.array_equal(np.sort(image), np.arange(image.size))
        or not np.array_equal(gradients.size[image], gradients.size)
        or not np.array_equal(gradients.delay[image], gradients.delay)
    ):
        return None
    return image
