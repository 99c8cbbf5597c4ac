"""Memory of one GPU of each stage: weights, gradients, optimizer, activations, buffers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.schedules import PipelineSchedule, schedule_of
from parallelism.transformers.shares import (
    arriving_tokens,
    gathered_width,
    kv_heads_of,
    sequence_of,
    split_tokens,
    tokens_of,
)
from parallelism.transformers.stages import (
    Part,
    WeightCount,
    alike_parts,
    layer_weights,
    parts_of,
    stage_weights,
)

FloatArray = npt.NDArray[np.float64]


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


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes that one layer keeps of one microbatch on one GPU.

    Parameters
    ----------
    input : float
        The layer's input.
    core : float
        Scores, softmax and its dropout; nothing but row sums with a fused kernel.
    rest : float
        Everything else, the input included.
    """

    input: float
    core: float
    rest: float


def layer_activations(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> LayerActivations:
    """Return what one layer keeps of one microbatch, if nothing is computed again.

    Parameters
    ----------
    model : Transformer
    layer : int
    layout : Layout
    implementation : Implementation
    sequence : int, optional

    Returns
    -------
    LayerActivations

    Notes
    -----
    For multi-head attention, two feed-forward matrices of 4 h, unfused attention and dropout
    this is equations 1 to 4 of Korthikanti et al. (2022): ``s b h (10 + 24 / t + 5 a s / h t)``
    bytes with tensor parallelism, ``s b h / t (34 + 5 a s / h)`` with sequence parallelism as
    well. Kept are: inputs of norms, of projections and of the nonlinearity; queries, keys,
    values; scores after softmax and after dropout; a byte an element of dropout masks. Where
    attention and feed-forward part are parallel, one input serves the norms before both, and, of
    one norm, its output both parts. Gated layers keep both inputs of the product and the product.
    A layer with experts keeps its router's scores, tokens as they arrive, and expert outputs before
    they are weighted (which forwarding weighs and sums on the experts' server, so that none is
    kept). In FP8 training the inputs of products are kept as they were cast, one byte an element.
    """
    return _layer_activations(model, layer, layout.of_layers, implementation, sequence)


@lru_cache(maxsize=512)
def _layer_activations(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation,
    sequence: int | None,
) -> LayerActivations:
    tokens = tokens_of(model, layout, sequence)
    own, tensor = split_tokens(tokens, layout), layout.tensor
    element, hidden, parts = float(model.dense_bytes), model.hidden, model.parts(layer)
    masks = parts * own * hidden if implementation.dropout else 0.0
    # Inputs of norms, of which those before parallel parts read the same one, and of attention and
    # feed-forward part, which one norm serves alike.
    norms = model.norms(layer) - (model.parallel and model.layer_norms > 1)
    products = 0 if "norms" in layout.modules else min(model.norms(layer), parts)
    # An input of a product, which its weights' gradient needs again.
    cast = 1.0 if implementation.precision == "fp8" else element
    rest = (norms * element + products * cast) * own * hidden + masks
    if implementation.gathered_inputs and products:
        fed, read = model.has_feed_forward(layer), 0
        if model.has_attention(layer):
            read = gathered_width(model, together=products == 1 and fed)
        elif model.has_linear(layer):
            read = hidden
        gathered = read + hidden * (fed and (products > 1 or not read))
        rest += cast * (tokens - own) * gathered
    rest += model.norms(layer) * implementation.norm_bytes * own * hidden
    core = 0.0
    if model.has_attention(layer):
        core = _core_activations(model, layer, layout, implementation, sequence)
        sparse = model.is_sparse(layer, sequence_of(model, sequence))
        rest += _attention_activations(model, layout, tokens, element, cast, sparse=sparse)
        if model.has_indexer(layer):
            rest += _indexer_activations(model, layout, tokens, sequence, element)
    elif model.linear is not None and model.has_linear(layer):
        rest += _linear_activations(model.linear, layout, tokens, element, cast)
    product = 0.0 if "activations" in layout.modules else cast
    middle = ((2 if model.gated else 1) * element + product) / tensor
    if model.has_experts(layer):
        experts = model.experts
        assert experts is not None
        arriving = arriving_tokens(model, layout, implementation, tokens)
        read = experts.reads(model.hidden)
        # Scores, and the sum of experts that the projection from their width reads.
        rest += 4.0 * own * experts.count + cast * own * experts.latent_width
        if not implementation.forwarded_tokens:
            rest += element * own * experts.per_token * read
        split = tensor / layout.expert_split
        rest += arriving * (cast * read + middle * split * experts.width)
        rest += tokens * middle * experts.shared * experts.shared_width
    elif model.has_feed_forward(layer):
        rest += tokens * middle * model.feed_forward
    return LayerActivations(input=element * own * hidden, core=core, rest=rest)


def _core_activations(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation,
    sequence: int | None,
) -> float:
    """Return the bytes of scores and what is made of them; a fused kernel keeps row sums."""
    length, element = sequence_of(model, sequence), float(model.dense_bytes)
    batched, rows = (
        layout.microbatch * model.attention.heads / layout.tensor,
        length / layout.context,
    )
    if implementation.flash or model.is_sparse(layer, length):
        return 4.0 * batched * rows
    kept = 2 * element + 1 if implementation.dropout else element
    return kept * batched * rows * length


def _attention_activations(
    model: Transformer,
    layout: Layout,
    tokens: float,
    element: float,
    cast: float,
    *,
    sparse: bool = False,
) -> float:
    """Return the bytes of queries, keys, values, what they are made of, and of their output.

    Where a kernel reads chosen keys as they are before the up-projections (``sparse``), queries
    before and after they are projected to the keys' latent width, outputs of that width, and
    latent keys with their rotary part, which all heads share.
    """
    attention, own, tensor = model.attention, split_tokens(tokens, layout), layout.tensor
    kept = element * tokens * attention.value_width / tensor
    if attention.output_gate:  # the gate, and the output as the product reads it
        kept += (element + cast) * tokens * attention.value_width / tensor
    elif cast != element:  # fused attention needs its output as it was
        kept += cast * tokens * attention.value_width / tensor
    if attention.latent is None:
        key_value = 2 * kv_heads_of(attention, layout) * attention.head_width
        return kept + element * tokens * (attention.query_width / tensor + key_value)
    latent = attention.latent
    narrow = latent.kv_rank + latent.query_rank
    wide = float(2 * attention.query_width + attention.heads * latent.value_width)
    if sparse:
        key = latent.kv_rank + latent.rope_width
        wide = float(attention.heads * (attention.head_width + key))
        kept += element * tokens * (attention.heads * latent.kv_rank / tensor + key)
    if "norms" in layout.modules:
        kept += own * element * (narrow + latent.rope_width)
    else:
        kept += own * ((element + cast) * narrow + element * latent.rope_width)
    if "up-projections" not in layout.modules:
        kept += element * tokens * wide / tensor
    return kept


def _indexer_activations(
    model: Transformer, layout: Layout, tokens: float, sequence: int | None, element: float
) -> float:
    """Return the bytes of an indexer's inputs, queries, keys before and after their norm, choice.

    Its inputs are kept for other products already but where tensor ranks gathered them.
    """
    latent, indexer = model.attention.latent, model.indexer
    assert latent is not None
    assert indexer is not None
    kept = element * (indexer.heads * indexer.width + 2 * indexer.width + indexer.heads)
    if layout.tensor > 1 and layout.sequence_parallel:
        kept += element * (model.hidden + latent.query_rank)
    return tokens * (kept + 4.0 * min(indexer.keys, sequence_of(model, sequence)))


def _linear_activations(
    linear: LinearAttention, layout: Layout, tokens: float, element: float, cast: float
) -> float:
    """Return the bytes of linear attention between its projections.

    Queries, keys and values before the convolution and after it, where queries and keys are
    repeated for each head (Megatron-Core, ``gated_delta_net``); each token's products with those
    before it in its chunk; numbers of each head in FP32; the gate, the output, and the output as
    the last projection reads it.
    """
    scalars = 4.0 * (linear.keys if linear.kind == "kda" else 3 * linear.heads)
    if linear.kind == "mamba-2":
        # Its kernel convolves again, and multiplies within chunks again (mamba_ssm,
        # ``mamba_split_conv1d_scan_combined``).
        kept = element * (linear.mixed + 2 * linear.values)
    else:
        each = 2 * linear.key_width + linear.value_width + linear.chunk
        kept = element * (linear.mixed + linear.heads * each + 2 * linear.values)
    kept += scalars + cast * linear.values
    narrow = element * tokens * linear.low_ranks
    return narrow + tokens * kept / layout.tensor


def part_activations(
    model: Transformer,
    part: Part,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> float:
    """Return the bytes that one part of a model keeps of one microbatch on one GPU.

    Embedding dropout keeps its mask; the head its two inputs and logits in FP32 (Korthikanti et
    al., 2022, section 4.3), or as they are for a fused loss. A module for multi-token prediction
    keeps as much, and inputs of two norms and of its projection, which is twice as wide.
    """
    kept = 0.0
    for layer, count in part.kinds(model):
        one = layer_activations(model, layer, layout, implementation, sequence=sequence)
        if layout.recompute == "full":
            kept += count * one.input
        else:
            kept += count * (one.rest + one.core - _again(one, layout, implementation))
    tokens = tokens_of(model, layout, sequence)
    own = split_tokens(tokens, layout) * model.hidden
    if part.embedding and implementation.dropout:
        kept += own
    if part.head:
        kept += 2.0 * model.dense_bytes * own
        outputs = layout.microbatch * model.classes if model.classes else 0.0
        logits = 0.0 if model.classes else tokens * model.vocabulary / layout.tensor
        kept += min(4.0, implementation.logit_bytes) * (1 + model.mtp_layers) * (logits + outputs)
        kept += model.mtp_layers * 6.0 * model.dense_bytes * own
    return kept


@lru_cache(maxsize=256)
def _known_activations(
    model: Transformer, layout: Layout, implementation: Implementation, sequence: int | None
) -> dict[object, float]:
    """Return where the bytes of parts are kept that are asked for again under other schedules."""
    return {}


def _again(one: LayerActivations, layout: Layout, implementation: Implementation) -> float:
    """Return the bytes of a layer that selective recomputation does not keep."""
    if layout.recompute != "selective":
        return 0.0
    if implementation.selective == "products":
        # Of llama's layer 7.75 of 17 hidden widths stay: inputs of norms, every second product.
        return 0.5 * one.rest
    return 0.0 if implementation.flash else one.core


def peak_held(schedule: PipelineSchedule, held: FloatArray) -> FloatArray:
    """Return the most bytes that each rank's activations take at once.

    Parameters
    ----------
    schedule : PipelineSchedule
    held : float64 array, shape (stages * chunks,)
        Bytes that each part keeps of one microbatch.

    Returns
    -------
    float64 array, shape (stages,)
    """
    from parallelism.transformers.timeline_kernels import most_held

    return most_held(schedule.passes, schedule.parts, schedule.split_backward, held)


def state_bytes(
    weights: WeightCount, model: Transformer, layout: Layout, implementation: Implementation
) -> tuple[float, float, float]:
    """Return the bytes of weights, gradients and optimizer on one GPU.

    ZeRO shards the optimizer (1), also gradients (2), also weights (3) over the data- and
    context-parallel ranks of a stage (Rajbhandari et al., 2020, section 5), and those of routed
    experts over the ranks that have the same experts.
    """
    ranks = layout.data * layout.context
    found = []
    for each, stage in (
        (model.dense_bytes, 3), (implementation.gradient_bytes, 2),
        (implementation.optimizer_bytes, 1),
    ):  # fmt: skip
        sharded = layout.zero >= stage
        dense = weights.dense / (ranks if sharded else 1)
        expert = weights.expert / (ranks / layout.expert_ranks if sharded else 1)
        found.append(each * (dense + expert))
    return found[0], found[1], found[2]


def memory_use(
    model: Transformer,
    layout: Layout,
    global_batch: int,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
    schedule: PipelineSchedule | None = None,
) -> tuple[MemoryUse, ...]:
    """Return the memory of one GPU of each pipeline stage.

    Parameters
    ----------
    model : Transformer
    layout : Layout
    global_batch : int
        Samples of an iteration, which bound the microbatches in flight.
    implementation : Implementation
    sequence : int, optional
        Tokens of a sample, the model's own by default.
    schedule : PipelineSchedule, optional
        That of the layout, if it is at hand.

    Returns
    -------
    tuple of MemoryUse

    Raises
    ------
    InputError
        If the layout cannot split the model or the batch.
    """
    parts = parts_of(model, layout)
    order = schedule if schedule is not None else schedule_of(layout, global_batch)
    alike = alike_parts(model, layout)
    known = _known_activations(model, layout.of_layers, implementation, sequence)
    kept = {}
    for first in set(alike):
        part = parts[first]
        key = (part.kinds(model), part.embedding, part.head)
        if key not in known:
            known[key] = part_activations(model, part, layout, implementation, sequence=sequence)
        kept[first] = known[key]
    activations = peak_held(order, np.array([kept[first] for first in alike]))
    found = []
    rooms: dict[tuple[int, ...], float] = {}
    for stage, weights in enumerate(stage_weights(model, layout)):
        states = state_bytes(weights, model, layout, implementation)
        mine = order.parts[stage].tolist()
        own = tuple(alike[part] for part in mine)
        if own not in rooms:
            held = [parts[part] for part in mine]
            rooms[own] = _buffers(model, held, layout, implementation, sequence)
        buffers = rooms[own]
        moving = float(activations[stage]) + buffers
        runtime = implementation.runtime_bytes + (implementation.held - 1.0) * moving
        found.append(MemoryUse(*states, float(activations[stage]), buffers, runtime))
    return tuple(found)


def _buffers(
    model: Transformer,
    parts: Sequence[Part],
    layout: Layout,
    implementation: Implementation,
    sequence: int | None,
) -> float:
    """Room of work that passes: the largest layer's, and what is received.

    A layer's input gathered over the tensor group; the loss of one microbatch; two received
    outputs or gradients; with ZeRO 3, the gathered weights of the layer at work and of the
    next; with ZeRO 2 and 3, the gradients of the layer at work, before they are scattered; what
    is computed again; an indexer's scores of all keys in FP32.
    """
    tokens, element = tokens_of(model, layout, sequence), float(model.dense_bytes)
    gathered = element * tokens * model.hidden if layout.tensor > 1 else 0.0
    if any(part.head for part in parts) and model.vocabulary and not model.classes:
        # Beside the logits of this rank, which count as activations.
        ranks = 1 if implementation.gathered_logits else layout.tensor
        copies = implementation.logit_bytes / ranks
        kept = min(4.0, implementation.logit_bytes) / layout.tensor
        gathered += tokens * model.vocabulary * (copies - kept)
    received = 2 * element * split_tokens(tokens, layout) * model.hidden
    again = weights = scores = 0.0
    for layer in {layer for part in parts for layer, _ in part.kinds(model)}:
        if model.has_indexer(layer):
            scores = 4.0 * tokens * sequence_of(model, sequence)
        one = layer_activations(model, layer, layout, implementation, sequence=sequence)
        if layout.recompute == "full":
            again = max(again, one.rest + one.core)
        elif layout.recompute == "modules":
            plain = replace(layout, recompute="none", modules=())
            every = layer_activations(model, layer, plain, implementation, sequence=sequence)
            again = max(again, every.rest - one.rest)
        else:
            again = max(again, _again(one, layout, implementation))
        if layout.zero >= 2:
            count = layer_weights(model, layer, layout)
            whole = 2 * element * (layout.zero == 3) + implementation.gradient_bytes
            weights = max(weights, whole * (count.dense + count.expert))
    return gathered + (received if layout.pipeline > 1 else 0.0) + again + weights + scores
