"""Memory of one GPU of each stage: weights, gradients, optimizer, activations, buffers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from codesign_base.arrays import Floats
from parallelism.transformers.activations import (
    layer_activations,
    not_kept,
    part_activations,
    part_deferred,
)
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.schedules import PipelineSchedule
from parallelism.transformers.stages import (
    Part,
    WeightCount,
    alike_parts,
    layer_weights,
    parts_of,
    sharded,
    stage_weights,
)
from parallelism.transformers.training import Training


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one GPU.

    Parameters
    ----------
    weights, gradients, optimizer : float
        What is left of them after sharding.
    activations : float
        Kept for backward passes, at the schedule's worst moment.
    buffers : float
        What passing work needs: received outputs, gathered inputs and weights, activations of
        the layer that is computed again.
    runtime : float
        What libraries keep, and what the allocator holds beyond activations and buffers.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    runtime: float = 0.0

    @property
    def states(self) -> float:
        """Weights, gradients and optimizer together."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All of it."""
        return self.states + self.activations + self.buffers + self.runtime


@lru_cache(maxsize=256)
def _known_activations(training: Training) -> dict[object, float]:
    """Return where the bytes of parts are kept that are asked for again under other schedules."""
    return {}


def peak_held(schedule: PipelineSchedule, held: Floats, deferred: Floats | None = None) -> Floats:
    """Return the most bytes that each rank's activations take at once.

    Parameters
    ----------
    schedule : PipelineSchedule
    held : float64 array, shape (stages * chunks,)
        Bytes that each part keeps of one microbatch.
    deferred : float64 array, shape (stages * chunks,), optional
        Bytes that it keeps after the backward pass, where gradients of weights are passes of their
        own; by default the same.

    Returns
    -------
    float64 array, shape (stages,)
    """
    from parallelism.transformers.timeline_kernels import most_held

    after = held if deferred is None else deferred
    return most_held(schedule.passes, schedule.parts, schedule.split_backward, held, after)


def state_bytes(training: Training, weights: WeightCount) -> tuple[float, float, float]:
    """Return the bytes of weights, gradients and optimizer on one GPU.

    ZeRO shards the optimizer (1), also gradients (2), also weights (3) over the data- and
    context-parallel ranks of a stage (Rajbhandari et al., 2020, section 5), or of each of
    ``replicate`` copies, and those of routed experts over the ranks of these that have the same.
    """
    layout, implementation = training.layout, training.implementation
    ranks = layout.sharing
    found = []
    for each, stage in (
        (training.model.dense_bytes, 3), (implementation.gradient_bytes, 2),
        (implementation.optimizer_bytes, 1),
    ):  # fmt: skip
        sharded = layout.zero >= stage
        dense = weights.dense / (ranks if sharded else 1)
        expert = weights.expert / (ranks / layout.expert_ranks if sharded else 1)
        found.append(each * (dense + expert))
    return found[0], found[1], found[2]


def memory_use(training: Training, schedule: PipelineSchedule) -> tuple[MemoryUse, ...]:
    """Return the memory of one GPU of each pipeline stage.

    Parameters
    ----------
    training : Training
    schedule : PipelineSchedule
        Of its layout, see `schedules.schedule_of`.

    Returns
    -------
    tuple of MemoryUse

    Raises
    ------
    InputError
        If the layout cannot split the model.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    parts, alike = parts_of(model, layout), alike_parts(model, layout)
    known = _known_activations(training.of_layers)
    kept, grown = {}, {}
    for first in set(alike):
        part = parts[first]
        key = (part.kinds(model), part.embedding, part.head)
        if key not in known:
            known[key] = part_activations(training, part)
        kept[first] = known[key]
        if schedule.split_backward and layout.recompute != "none":
            if (later := ("deferred", *key)) not in known:
                known[later] = part_deferred(training, part)
            grown[first] = known[later]
    held = np.array([kept[first] for first in alike])
    deferred = held + [grown[first] for first in alike] if grown else held
    activations = peak_held(schedule, held, deferred)
    found = []
    rooms: dict[tuple[int, ...], float] = {}
    for stage, weights in enumerate(stage_weights(model, layout)):
        states = state_bytes(training, weights)
        mine = schedule.parts[stage].tolist()
        own = tuple(alike[part] for part in mine)
        if own not in rooms:
            rooms[own] = _buffers(training, [parts[part] for part in mine], schedule.split_backward)
        buffers = rooms[own]
        moving = float(activations[stage]) + buffers
        runtime = implementation.runtime_bytes + (implementation.held - 1.0) * moving
        found.append(MemoryUse(*states, float(activations[stage]), buffers, runtime))
    return tuple(found)


def _buffers(training: Training, parts: Sequence[Part], split_backward: bool) -> float:
    """Room of work that passes: the largest layer's, and what is received.

    A layer's input gathered over the tensor group; the loss of one microbatch; two received
    outputs or gradients; with ZeRO 3, the gathered weights of what is at work, be it a layer, the
    embedding or the projection to the vocabulary, and of the next layer; with ZeRO 2 and 3, the
    gradients of what is at work, before they are scattered; what is computed again, of which
    activations have what gradients of weights need where these are passes of their own; an
    indexer's scores of all keys in FP32.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    tokens, element = training.tokens, training.element
    gathered = element * tokens * model.hidden if layout.tensor > 1 else 0.0
    if any(part.head for part in parts) and model.vocabulary and not model.classes:
        # Beside the logits of this rank, which count as activations.
        ranks = 1 if implementation.gathered_logits else layout.tensor
        copies = implementation.logit_bytes / ranks
        kept = min(4.0, implementation.logit_bytes) / layout.tensor
        gathered += tokens * model.vocabulary * (copies - kept)
    received = 2 * element * training.own_tokens * model.hidden
    again = weights = layers = scores = 0.0
    plain = training
    if layout.recompute == "modules":
        plain = replace(training, layout=replace(layout, recompute="none", modules=()))
    for layer in {layer for part in parts for layer, _ in part.kinds(model)}:
        if model.has_indexer(layer):
            scores = 4.0 * tokens * training.sequence
        one = layer_activations(training, layer)
        if split_backward:
            again = max(again, one.core if layout.recompute in ("full", "selective") else 0.0)
        elif layout.recompute == "full":
            again = max(again, one.rest + one.core)
        elif layout.recompute == "modules":
            every = layer_activations(plain, layer)
            again = max(again, every.rest - one.rest)
        else:
            again = max(again, not_kept(training, one))
        if layout.zero >= 2:
            count = sharded(layer_weights(model, layer, layout), layout)
            layers = max(layers, count.dense + count.expert)
    if layout.zero >= 2:
        table = 0.0
        if layout.sharing > 1 and any(_has_table(model, part) for part in parts):
            table = model.vocabulary * model.hidden / layout.tensor
        weight = element if layout.zero == 3 else 0.0
        weights = weight * layers + (weight + implementation.gradient_bytes) * max(layers, table)
    return gathered + (received if layout.pipeline > 1 else 0.0) + again + weights + scores


def _has_table(model: Transformer, part: Part) -> bool:
    """Whether a part has the embedding of tokens, or the projection to the vocabulary."""
    return part.embedding or (part.head and not model.classes)
