"""How many layers each part of a pipeline gets, so that its stages have as much to do."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappush, heapreplace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from codesign_base.arrays import Floats

# Of the busiest stage's work, below which a balanced map is not worth another layout.
_LEAST_GAIN = 0.01


class LayerLoads(NamedTuple):
    """What parts of a model have to do, in layers of mean work.

    Parameters
    ----------
    embedding, head : float
        Of the first part and of the last, beside their layers.
    layers : tuple of float
        Each layer, if they differ.
    """

    embedding: float = 0.0
    head: float = 0.0
    layers: tuple[float, ...] = ()


def even_layers(layers: int, parts: int) -> tuple[int, ...]:
    """Return as many layers for each part as they go; what is left goes to parts in the middle."""
    least, left = divmod(layers, parts)
    begin = (parts - left) // 2
    return tuple(least + (begin <= index < begin + left) for index in range(parts))


def busiest_stage(layers: Sequence[int], stages: Sequence[int], loads: LayerLoads) -> float:
    """Return what the busiest stage has to do, in layers.

    Parameters
    ----------
    layers, stages : sequence of int
        Of each part along the model.
    loads : LayerLoads
    """
    return float(_stage_loads(layers, stages, loads).max())


def _stage_loads(layers: Sequence[int], stages: Sequence[int], loads: LayerLoads) -> Floats:
    """Return what each stage has to do, in layers."""
    ends = list(accumulate(layers, initial=0))
    each = loads.layers or (1.0,) * ends[-1]
    found = np.zeros(max(stages) + 1)
    for stage, begin, end in zip(stages, ends[:-1], ends[1:], strict=True):
        found[stage] += sum(each[begin:end])
    found[stages[0]] += loads.embedding
    found[stages[-1]] += loads.head
    return found


@lru_cache(maxsize=1024)
def balanced_layers(
    layers: int, stages: tuple[int, ...], loads: LayerLoads
) -> tuple[int, ...] | None:
    """Return layers for each part by which the busiest stage has as little to do as can be.

    Parameters
    ----------
    layers : int
    stages : tuple of int
        Of each part along the model, see `Layout.part_stages`.
    loads : LayerLoads

    Returns
    -------
    tuple of int or None
        At least one for each part but the last, which may have the head alone. None if there
        are too few layers.

    Notes
    -----
    Layers are given out one by one to the stage that has least, and of its parts to the one that
    has least: no other numbers have a lesser busiest stage, if all layers are alike. If they are
    not, layers at the ends of parts are then passed on (`_passed_on`), if that gains enough.
    """
    found = _alike_layers(layers, stages, (loads.embedding, loads.head))
    if found is None or not loads.layers:
        return found
    starts, even = [found], even_layers(layers, len(stages))
    if min(even) > 0:
        starts.append(even)
    better = min(
        (_passed_on(start, stages, loads) for start in starts),
        key=lambda one: busiest_stage(one, stages, loads),
    )
    enough = (1.0 - _LEAST_GAIN) * busiest_stage(found, stages, loads)
    return better if busiest_stage(better, stages, loads) < enough else found


@lru_cache(maxsize=1024)
def _alike_layers(
    layers: int, stages: tuple[int, ...], ends: tuple[float, float]
) -> tuple[int, ...] | None:
    """Return what `balanced_layers` does if all layers are alike."""
    last = len(stages) - 1
    if layers < last:
        return None
    counts = [1] * last + [0]
    loads = [0.0] * (max(stages) + 1)
    for stage in stages[:-1]:
        loads[stage] += 1.0
    loads[stages[0]] += ends[0]
    loads[stages[-1]] += ends[1]
    own = [ends[0], *[0.0] * (last - 1), ends[1]] if last else [sum(ends)]

    def rank(index: int) -> tuple[float, float, int]:
        return counts[index] + own[index], abs(index - 0.5 * last), index

    # Parts of each stage, and stages with their first part, each with the least at the front.
    parts: list[list[tuple[float, float, int]]] = [[] for _ in loads]
    for index, stage in enumerate(stages):
        heappush(parts[stage], rank(index))
    least = [(load, *first) for load, (first, *_) in zip(loads, parts, strict=True)]
    heapify(least)
    for _ in range(layers - last):
        index = least[0][-1]
        stage = stages[index]
        counts[index] += 1
        loads[stage] += 1.0
        heapreplace(parts[stage], rank(index))
        heapreplace(least, (loads[stage], *parts[stage][0]))
    return tuple(counts)


def _passed_on(
    counts: tuple[int, ...], stages: Sequence[int], loads: LayerLoads
) -> tuple[int, ...]:
    """Return a map whose busiest stage has less to do, where layers differ.

    Of a run of neighbouring parts each passes a layer on to the next, or back to the one before;
    of all runs that with the least busiest stage, and of these with the least sum of squares,
    until none has less.
    """
    known, last = list(counts), len(counts) - 1
    each, each_stage = np.array(loads.layers), np.eye(max(stages) + 1)[list(stages)]
    across = each_stage[1:] - each_stage[:-1]  # of one layer to the next part
    later = ~np.tri(last + 1, dtype=bool)
    now = _stage_loads(known, stages, loads)
    while True:
        ends = np.cumsum(known)[:-1]
        best, run = (float(now.max()), float(now @ now)), None
        for way, layer in ((1, ends - 1), (-1, np.minimum(ends, each.size - 1))):
            moved = np.zeros((last + 1, now.size))
            np.cumsum(way * each[layer, None] * across, axis=0, out=moved[1:])
            # From part i to part j, or back: what stages between them get and give.
            after = now + moved[None, :] - moved[:, None]
            most, squares = after.max(axis=2), (after * after).sum(axis=2)
            gives = np.array(known) > 1
            gives[last] = known[last] > 0
            allowed = later & (gives[:, None] if way > 0 else gives[None, :])
            most = np.where(allowed, most, np.inf)
            squares = np.where(most == most.min(), squares, np.inf)
            first, end = divmod(int(squares.argmin()), last + 1)
            found = float(most[first, end]), float(squares[first, end])
            if found < best:
                best, run = found, (way, first, end, after[first, end])
        if run is None:
            return tuple(known)
        way, first, end, now = run
        known[first] -= way
        known[end] += way


def usual_maps(
    layers: int, stages: tuple[int, ...], loads: LayerLoads, *, folded: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the maps of layers that are looked at without being asked for.

    Parameters
    ----------
    layers : int
    stages : tuple of int
        Of each part along the model.
    loads : LayerLoads
    folded : bool
        Whether the first and the last part are on one stage.

    Yields
    ------
    tuple of int
        Empty: as even as they go. That first, then the balanced one where it is better; of folded
        models the better one only, then the same with a layer more in each part of the first half.
    """
    even = even_layers(layers, len(stages)) if layers >= len(stages) else None
    balanced = balanced_layers(layers, stages, loads)
    if balanced == even:
        balanced = None
    better = even is None or (
        balanced is not None
        and busiest_stage(balanced, stages, loads)
        < (1.0 - _LEAST_GAIN) * busiest_stage(even, stages, loads)
    )
    if even is not None and not (folded and better):
        yield ()
    if balanced is not None and better:
        yield balanced
    if folded:
        one = balanced if better else even
        if one is not None and (ahead := _ahead(one)):
            yield ahead


def _ahead(counts: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a folded map with a layer more in each part of the first half, and less in others.

    Every stage has as many layers as before; only the order differs in which it has them at hand.
    None if a part would have no layer left.
    """
    half = len(counts) // 2
    if min(counts[half:]) < 2:
        return None
    return tuple(count + (1 if part < half else -1) for part, count in enumerate(counts))
