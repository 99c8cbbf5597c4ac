"""Activations that layers and parts of a model keep for their backward passes."""

from dataclasses import dataclass, replace
from functools import lru_cache

from parallelism.transformers.shares import done_again, gathered_width, kv_heads_of
from parallelism.transformers.stages import Part
from parallelism.transformers.training import Training


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


def layer_activations(training: Training, layer: int) -> LayerActivations:
    """Return what one layer keeps of one microbatch, if nothing is computed again.

    Parameters
    ----------
    training : Training
    layer : int

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
    Of a feed-forward part that is computed again as a whole nothing is kept but its input, as it
    was before casts and before a tensor group gathered it.
    """
    return _layer_activations(training.of_layers, layer)


@lru_cache(maxsize=512)
def _layer_activations(training: Training, layer: int) -> LayerActivations:
    model, layout, implementation = training.model, training.layout, training.implementation
    tokens, own, tensor = training.tokens, training.own_tokens, layout.tensor
    element, hidden, parts = training.element, model.hidden, model.parts(layer)
    masks = parts * own * hidden if implementation.dropout else 0.0
    # Inputs of norms, of which those before parallel parts read the same one, and of attention and
    # feed-forward part, which one norm serves alike.
    norms = model.norms(layer) - (model.parallel and model.layer_norms > 1)
    products = 0 if "norms" in layout.modules else min(model.norms(layer), parts)
    cast = _cast_bytes(training)
    rest = (norms * element + products * cast) * own * hidden + masks
    again = done_again(model, layer, layout)
    if again and products and cast < element:
        # Beside what was cast for attention, where one norm serves both.
        rest += (element if products < parts else element - cast) * own * hidden
    if implementation.gathered_inputs and products:
        fed, read = model.has_feed_forward(layer) and not again, 0
        if model.has_attention(layer):
            read = gathered_width(model, together=products == 1 and fed)
        if model.has_linear(layer):
            read = max(read, hidden)
        gathered = read + hidden * (fed and (products > 1 or not read))
        rest += cast * (tokens - own) * gathered
    rest += model.norms(layer) * implementation.norm_bytes * own * hidden
    core = 0.0
    if model.has_attention(layer):
        core = _core_activations(training, layer)
        rest += _attention_activations(training, layer)
        if model.has_indexer(layer):
            rest += _indexer_activations(training)
    if model.has_linear(layer):
        rest += _linear_activations(training)
    if "experts" in again or "feed-forward" in again:
        return LayerActivations(input=element * own * hidden, core=core, rest=rest)
    product = 0.0 if "activations" in layout.modules else cast
    middle = ((2 if model.gated else 1) * element + product) / tensor
    if model.has_experts(layer):
        experts = model.experts
        assert experts is not None
        arriving, read = training.arriving_tokens, experts.reads(model.hidden)
        # Scores, and the sum of experts that the projection from their width reads.
        rest += 4.0 * own * experts.count + cast * own * experts.latent_width
        if not implementation.forwarded_tokens:
            rest += element * own * experts.per_token * read
        split = tensor / layout.expert_split
        rest += arriving * (cast * read + middle * split * experts.width)
        if not again:
            rest += tokens * middle * experts.shared * experts.shared_width
    elif model.has_feed_forward(layer):
        rest += tokens * middle * model.feed_forward
    return LayerActivations(input=element * own * hidden, core=core, rest=rest)


def _cast_bytes(training: Training) -> float:
    """Return the bytes of an element of a product's input, which its weights' gradient needs again.

    That is as it was cast in FP8 training.
    """
    return 1.0 if training.fp8 else training.element


def _core_activations(training: Training, layer: int) -> float:
    """Return the bytes of scores and what is made of them; a fused kernel keeps row sums."""
    model, layout, implementation = training.model, training.layout, training.implementation
    length = training.sequence
    batched = layout.microbatch * model.attention.heads / layout.tensor
    rows = length / layout.context
    if implementation.flash or model.is_sparse(layer, length):
        return 4.0 * batched * rows
    kept = 2 * training.element + 1 if implementation.dropout else training.element
    return kept * batched * rows * length


def _attention_activations(training: Training, layer: int) -> float:
    """Return the bytes of queries, keys, values, what they are made of, and of their output.

    Where a kernel reads chosen keys as they are before the up-projections, queries before and
    after they are projected to the keys' latent width, outputs of that width, and latent keys with
    their rotary part, which all heads share.
    """
    layout, element, cast = training.layout, training.element, _cast_bytes(training)
    attention, tokens, tensor = training.model.attention, training.tokens, layout.tensor
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
    if training.model.is_sparse(layer, training.sequence):
        key = latent.kv_rank + latent.rope_width
        wide = float(attention.heads * (attention.head_width + key))
        kept += element * tokens * (attention.heads * latent.kv_rank / tensor + key)
    if "norms" in layout.modules:
        kept += training.own_tokens * element * (narrow + latent.rope_width)
    else:
        kept += training.own_tokens * ((element + cast) * narrow + element * latent.rope_width)
    if "up-projections" not in layout.modules:
        kept += element * tokens * wide / tensor
    return kept


def _indexer_activations(training: Training) -> float:
    """Return the bytes of an indexer's inputs, queries, keys before and after their norm, choice.

    Its inputs are kept for other products already but where tensor ranks gathered them.
    """
    model, layout, element = training.model, training.layout, training.element
    latent, indexer = model.attention.latent, model.indexer
    assert latent is not None
    assert indexer is not None
    kept = element * (indexer.heads * indexer.width + 2 * indexer.width + indexer.heads)
    if layout.tensor > 1 and layout.sequence_parallel:
        kept += element * (model.hidden + latent.query_rank)
    return training.tokens * (kept + 4.0 * min(indexer.keys, training.sequence))


def _linear_activations(training: Training) -> float:
    """Return the bytes of linear attention between its projections.

    Queries, keys and values before the convolution and after it, where queries and keys are
    repeated for each head (Megatron-Core, ``gated_delta_net``), of a context rank those of its
    heads and all tokens; each token's products with those
    before it in its chunk; numbers of each head in FP32; the gate, the output, and the output as
    the last projection reads it. Lightning attention has queries, keys and values before and after
    their nonlinearity, and no numbers. A short convolution keeps its product with the keys and what
    it made of that, Mamba-1 values before and after the convolution, steps, and what both are made
    of before and after norms.
    """
    layout, tokens, element = training.layout, training.tokens, training.element
    linear = training.model.linear
    assert linear is not None
    linear = linear.within(training.sequence).shared_by(layout.tensor * layout.context)
    numbers, after = 0.0, 0
    if linear.kind == "mamba-2":
        # Its kernel convolves again, and multiplies within chunks again (mamba_ssm,
        # ``mamba_split_conv1d_scan_combined``).
        numbers = 12.0 * linear.heads
    elif linear.kind == "lightning":
        after = linear.mixed
    elif linear.kind == "mamba-1":
        after = 2 * linear.values
    elif linear.kind != "short-convolution":
        numbers = 4.0 * (linear.keys if linear.kind == "kda" else 3 * linear.heads)
        after = linear.heads * (2 * linear.key_width + linear.value_width + linear.chunk)
    kept = element * (linear.mixed + after + 2 * linear.values) + numbers
    kept += _cast_bytes(training) * linear.values
    narrow = element * tokens * (linear.low_ranks + 2 * linear.from_values)
    return narrow + tokens * kept / layout.tensor


def part_activations(training: Training, part: Part) -> float:
    """Return the bytes that one part of a model keeps of one microbatch on one GPU.

    Embedding dropout keeps its mask; the head its two inputs and logits in FP32 (Korthikanti et
    al., 2022, section 4.3), or as they are for a fused loss. A module for multi-token prediction
    keeps as much, and inputs of two norms and of its projection, which is twice as wide.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    kept = sum(count * _layer_kept(training, layer) for layer, count in part.kinds(model))
    own = training.own_tokens * model.hidden
    if part.embedding and implementation.dropout:
        kept += own
    if part.head:
        kept += 2.0 * model.dense_bytes * own
        outputs = layout.microbatch * model.classes if model.classes else 0.0
        logits = 0.0 if model.classes else training.tokens * model.vocabulary / layout.tensor
        kept += min(4.0, implementation.logit_bytes) * (1 + model.mtp_layers) * (logits + outputs)
        kept += model.mtp_layers * 6.0 * model.dense_bytes * own
    return kept


def part_deferred(training: Training, part: Part) -> float:
    """Return the bytes that a part keeps more until gradients of its weights are made.

    These need inputs and output gradients of products, about what the layers keep if nothing but
    scores is computed again (Qi et al., Zero Bubble Pipeline Parallelism, 2023, section 3.2: 32 of
    34 + 5 a s / h times s b h bytes): what was computed again stays.
    """
    layout = replace(training.layout, recompute="none", modules=())
    plain = replace(training, layout=layout)
    return sum(
        count * max(0.0, layer_activations(plain, layer).rest - _layer_kept(training, layer))
        for layer, count in part.kinds(training.model)
    )


def _layer_kept(training: Training, layer: int) -> float:
    """Return the bytes that one layer keeps of one microbatch for its backward pass."""
    one = layer_activations(training, layer)
    if training.layout.recompute == "full":
        return one.input
    return one.rest + one.core - not_kept(training, one)


def not_kept(training: Training, one: LayerActivations) -> float:
    """Return the bytes of a layer that selective recomputation does not keep."""
    implementation = training.implementation
    if training.layout.recompute != "selective":
        return 0.0
    if implementation.selective == "products":
        # Of llama's layer 7.75 of 17 hidden widths stay: inputs of norms, every second product.
        return 0.5 * one.rest
    return 0.0 if implementation.flash else one.core
