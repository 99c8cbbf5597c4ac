"""Pipeline schedules as explicit orders of passes on every stage, and what they keep in memory.

A pipeline has ``stages`` ranks; each holds ``chunks`` parts of the model. Part ``c`` of rank
``s`` is number ``c * stages + s`` along the model; or, where the schedule folds the model, part 0
is number ``s`` and part 1 number ``2 * stages - 1 - s``. A pass is forward, backward (for inputs,
and for weights unless the schedule splits them), or weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from parallelism.transformers.layout import (
    FOLDED,
    LOOPED,
    SPLIT,
    Layout,
    PipelineScheduleName,
    part_stages,
)


class PassKind(IntEnum):
    """What a pass computes."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2


SCHEDULE_WORDS: dict[PipelineScheduleName, str] = {
    "gpipe": "all forward passes, then all backward passes",
    "1f1b": "a forward and a backward pass in turn, after a forward pass for each later stage",
    "eager-1f1b": "as 1f1b, after two forward passes for each later stage, which hide messages",
    "interleaved": "several parts a stage; as many microbatches as stages go through each in turn",
    "breadth-first": "several parts a stage; all microbatches go through one before the next",
    "zero-bubble": "as 1f1b; gradients of weights are passes of their own, which fill gaps",
    "zero-bubble-v": "two parts a stage, there and back; gradients of weights fill gaps",
}
"""What each schedule does, in a few words; see `build_schedule`."""


@dataclass(frozen=True, eq=False)
class PipelineSchedule:
    """The order in which each rank of a pipeline runs its passes.

    Parameters
    ----------
    name : PipelineScheduleName
    stages, chunks, microbatches : int
        Ranks of the pipeline, parts of the model a rank, microbatches of an iteration.
    split_backward : bool
        Gradients of weights are passes of their own.
    passes : int64 array, shape (stages, passes of a rank, 3)
        Kind (`PassKind`), chunk and microbatch of each pass, in the order of execution.
    """

    name: PipelineScheduleName
    stages: int
    chunks: int
    microbatches: int
    split_backward: bool
    passes: Ints

    @cached_property
    def parts(self) -> Ints:
        """The part of the model that each chunk of each rank is, shape (stages, chunks)."""
        stage = np.array(part_stages(self.name, self.stages, self.chunks), dtype=np.int64)
        order = np.argsort(stage, kind="stable")
        return np.asarray(order.reshape(self.stages, self.chunks), dtype=np.int64)

    @property
    def length(self) -> int:
        """Passes of each rank."""
        return int(self.passes.shape[1])


@lru_cache(maxsize=512)
def build_schedule(
    name: PipelineScheduleName, stages: int, microbatches: int, chunks: int = 1
) -> PipelineSchedule:
    """Return the order of passes of a named schedule.

    Parameters
    ----------
    name : PipelineScheduleName
        GPipe (Huang et al., 2019): all forward, then all backward passes in reverse. 1F1B
        (Narayanan et al., 2019; PipeDream-Flush): stage ``s`` runs ``stages - 1 - s`` forward
        passes, then alternates. Eager-1f1b (Zhuang et al., On Optimizing the Communication of
        Model Parallelism, 2023; Alpa's overlap-friendly 1F1B): twice as many before it
        alternates, so that a message between stages may take half as long as a microbatch's
        passes and hold up nobody; at the price of nearly twice the activations. Interleaved 1F1B
        (Narayanan et al., 2021, section 2.2): groups of as many microbatches as stages go through
        chunk after chunk. Breadth-first (Lamy-Poirier, Breadth-First Pipeline Parallelism, 2023,
        section 4): all microbatches go through a chunk before the next, so that gradients of a
        chunk are summed beside the passes of all others, and messages between stages have as long
        as the other microbatches take; at the price of the activations of all. Other than there
        the last chunk's forward and backward passes alternate, as in Megatron-Core with a
        microbatch group of the whole iteration.
        Zero-bubble: ZB-H1 (Qi et al., 2023, section 2.2): 1F1B with weight passes put off, by
        one more microbatch a stage, so that no rank holds more than the first of 1F1B.
        Zero-bubble-v: ZB-V (the same, section 6), in which the model goes to the last stage and
        back: half the bubble of ZB-H1 where the three passes take equally long, with the
        activations of 1F1B's first stage on every rank. As PyTorch's ZBVZeroBubble orders it.
    stages, microbatches : int
    chunks : int
        Model parts a rank: of interleaved and breadth-first schedules; 2 of zero-bubble-v.

    Returns
    -------
    PipelineSchedule

    Raises
    ------
    InputError
        If a number is below 1, another schedule than these has chunks, the microbatches of the
        interleaved one are no multiple of the stages, or those of the breadth-first one are fewer.
    """
    for what, value in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise InputError(f"pipeline schedule: {what} is {value}; give at least 1")
    if chunks != 1 + (name in FOLDED) and name not in LOOPED:
        raise InputError(
            f"pipeline schedule: chunks is {chunks} with {name!r}; give {1 + (name in FOLDED)}, or "
            f"{' or '.join(LOOPED)}"
        )
    several = counted(microbatches, "microbatch is", "microbatches are")
    if name == "interleaved" and microbatches % stages:
        raise InputError(
            f"pipeline schedule: {several} no multiple of {stages} stages, which 'interleaved' "
            "needs; choose another batch, microbatch, degree or schedule"
        )
    if name == "breadth-first" and microbatches < stages:
        raise InputError(
            f"pipeline schedule: {several} fewer than the {stages} stages, of which "
            "'breadth-first' needs as many; choose another batch, microbatch, degree or schedule"
        )
    makers: dict[PipelineScheduleName, Callable[[int], Ints]] = {
        "gpipe": lambda _: _gpipe(microbatches),
        "1f1b": lambda stage: _one_forward_one_backward(stage, stages, microbatches),
        "eager-1f1b": lambda stage: _one_forward_one_backward(stage, stages, microbatches, 2),
        "interleaved": lambda stage: _interleaved(stage, stages, microbatches, chunks, stages),
        "breadth-first": lambda stage: _interleaved(
            stage, stages, microbatches, chunks, microbatches
        ),
        "zero-bubble": lambda stage: _zero_bubble(stage, stages, microbatches),
        "zero-bubble-v": lambda stage: _zero_bubble_v(stage, stages, microbatches),
    }
    if name not in makers:
        raise InputError(f"unknown pipeline schedule {name!r}; choose {', '.join(makers)}")
    orders = [makers[name](stage) for stage in range(stages)]
    return PipelineSchedule(
        name=name,
        stages=stages,
        chunks=chunks,
        microbatches=microbatches,
        split_backward=name in SPLIT,
        passes=np.stack(orders).astype(np.int64),
    )


def schedule_of(layout: Layout, global_batch: int) -> PipelineSchedule:
    """Return the schedule of a layout for a global batch.

    Raises
    ------
    InputError
        If the batch does not divide, or the schedule cannot have so many microbatches.
    """
    return build_schedule(
        layout.schedule,
        layout.pipeline,
        layout.microbatches(global_batch),
        layout.virtual_stages,
    )


def _passes(kind: PassKind, chunk: npt.ArrayLike, microbatch: Ints) -> Ints:
    """Return passes of one kind, one a microbatch."""
    chunks = np.broadcast_to(np.asarray(chunk, dtype=np.int64), microbatch.shape)
    return np.stack([np.full(microbatch.shape, int(kind)), chunks, microbatch], axis=1)


def _alternate(warm_up: int, forward: Ints, backward: Ints) -> Ints:
    """Forward passes first, then one forward and one backward, then backward passes."""
    count = len(forward)
    paired = count - warm_up
    order = np.empty((2 * count, 3), dtype=np.int64)
    order[:warm_up] = forward[:warm_up]
    order[warm_up : warm_up + 2 * paired : 2] = forward[warm_up:]
    order[warm_up + 1 : warm_up + 2 * paired : 2] = backward[:paired]
    order[warm_up + 2 * paired :] = backward[paired:]
    return order


def _gpipe(microbatches: int) -> Ints:
    each = np.arange(microbatches)
    forward = _passes(PassKind.FORWARD, 0, each)
    return np.concatenate([forward, _passes(PassKind.BACKWARD, 0, each[::-1])])


def _one_forward_one_backward(stage: int, stages: int, microbatches: int, ahead: int = 1) -> Ints:
    """So many forward passes ahead of the next stage."""
    each = np.arange(microbatches)
    return _alternate(
        min(ahead * (stages - 1 - stage), microbatches),
        _passes(PassKind.FORWARD, 0, each),
        _passes(PassKind.BACKWARD, 0, each),
    )


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int, together: int) -> Ints:
    """Groups of so many microbatches go through chunk after chunk."""
    group, within = np.divmod(np.arange(microbatches * chunks), together)
    rounds, chunk = np.divmod(group, chunks)
    microbatch = rounds * together + within
    forward = _passes(PassKind.FORWARD, chunk, microbatch)
    backward = _passes(PassKind.BACKWARD, chunks - 1 - chunk, microbatch)
    warm_up = 2 * (stages - 1 - stage) + (chunks - 1) * together
    return _alternate(min(warm_up, len(forward)), forward, backward)


def _zero_bubble(stage: int, stages: int, microbatches: int) -> Ints:
    """Weight passes lag ``stage`` microbatches behind backward ones, and fill the end."""
    order = _one_forward_one_backward(stage, stages, microbatches)
    after = np.flatnonzero((order[:, 0] == PassKind.BACKWARD) & (order[:, 2] >= stage)) + 1
    late = np.full(microbatches - len(after), len(order))
    weight = _passes(PassKind.WEIGHT, 0, np.arange(microbatches))
    return np.insert(order, np.concatenate([after, late]), weight, axis=0)


def _zero_bubble_v(stage: int, stages: int, microbatches: int) -> Ints:
    """Passes of the part on the way there (0) and of the one on the way back (1).

    Two forward passes of the first part for each stage that is ahead; then both parts in turn,
    until the first microbatch has come back here; then backward passes of the second part after
    each of its forward passes; then of both. At the end weight passes fill what would be idle.
    """
    last = stages - 1 - stage
    # In a full pipeline; passes of microbatches that there are none of are left out.
    count = max(microbatches, 2 * stages - 1)
    there, back = [(kind, 0) for kind in PassKind], [(kind, 1) for kind in PassKind]
    order = there[:1] * (2 * last + 1)
    order += (back[:1] + there[:1]) * stage
    order += back * (last + 1)
    order += (there + back) * (count + stage + 1 - 2 * stages)
    order += (there[1:] + back) * last
    order += (there[1:2] + back[1:2]) * stage
    order += there[1:] * (last + 1)
    order += back[2:] * stage + there[2:] * stage
    kind, chunk = np.array(order, dtype=np.int64).T
    microbatch = np.empty_like(kind)
    for one, part in (*there, *back):
        own = np.flatnonzero((kind == one) & (chunk == part))
        microbatch[own] = np.arange(own.size)
    passes = np.stack([kind, chunk, microbatch], axis=1)
    return np.asarray(passes[microbatch < microbatches], dtype=np.int64)
