"""How many layers each part of a pipeline gets, so that its stages have as much to do."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappush, heapreplace

# Of the busiest stage's work, below which a balanced map is not worth another layout.
_LEAST_GAIN = 0.01
Ends = tuple[float, float]
"""What the first part has to do for the embedding, and the last for the head, in layers."""


def even_layers(layers: int, parts: int) -> tuple[int, ...]:
    """Return as many layers for each part as they go; what is left goes to parts in the middle."""
    least, left = divmod(layers, parts)
    begin = (parts - left) // 2
    return tuple(least + (begin <= index < begin + left) for index in range(parts))


def busiest_stage(layers: Sequence[int], stages: Sequence[int], ends: Ends) -> float:
    """Return what the busiest stage has to do, in layers.

    Parameters
    ----------
    layers, stages : sequence of int
        Of each part along the model.
    ends : Ends
    """
    loads = dict.fromkeys(stages, 0.0)
    for stage, count in zip(stages, layers, strict=True):
        loads[stage] += count
    loads[stages[0]] += ends[0]
    loads[stages[-1]] += ends[1]
    return max(loads.values())


@lru_cache(maxsize=1024)
def balanced_layers(layers: int, stages: tuple[int, ...], ends: Ends) -> tuple[int, ...] | None:
    """Return layers for each part by which the busiest stage has as little to do as can be.

    Parameters
    ----------
    layers : int
    stages : tuple of int
        Of each part along the model, see `Layout.part_stages`.
    ends : Ends

    Returns
    -------
    tuple of int or None
        At least one for each part but the last, which may have the head alone. None if there
        are too few layers.

    Notes
    -----
    Layers are given out one by one to the stage that has least, and of its parts to the one that
    has least: no other numbers have a lesser busiest stage, since all layers are alike.
    """
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


def usual_maps(
    layers: int, stages: tuple[int, ...], ends: Ends, *, folded: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the maps of layers that are looked at without being asked for.

    Parameters
    ----------
    layers : int
    stages : tuple of int
        Of each part along the model.
    ends : Ends
    folded : bool
        Whether the first and the last part are on one stage: only the balanced map is looked at.

    Yields
    ------
    tuple of int
        Empty: as even as they go. That first, then the balanced one where it is better.
    """
    even = even_layers(layers, len(stages)) if layers >= len(stages) else None
    balanced = balanced_layers(layers, stages, ends)
    if balanced == even:
        balanced = None
    better = even is None or (
        balanced is not None
        and busiest_stage(balanced, stages, ends)
        < (1.0 - _LEAST_GAIN) * busiest_stage(even, stages, ends)
    )
    if even is not None and not (folded and better):
        yield ()
    if balanced is not None and better:
        yield balanced


__all__ = ["Ends", "balanced_layers", "busiest_stage", "even_layers", "usual_maps"]
