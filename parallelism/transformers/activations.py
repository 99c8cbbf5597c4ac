"""Activations that layers and parts of a model keep for their backward passes."""

from dataclasses import dataclass
from functools import lru_cache

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.shares import (
    arriving_tokens,
    done_again,
    gathered_width,
    kv_heads_of,
    sequence_of,
    split_tokens,
    tokens_of,
)
from parallelism.transformers.stages import Part


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
    Of a feed-forward part that is computed again as a whole nothing is kept but its input, as it
    was before casts and before a tensor group gathered it.
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
        core = _core_activations(model, layer, layout, implementation, sequence)
        sparse = model.is_sparse(layer, sequence_of(model, sequence))
        rest += _attention_activations(model, layout, tokens, element, cast, sparse=sparse)
        if model.has_indexer(layer):
            rest += _indexer_activations(model, layout, tokens, sequence, element)
    if model.linear is not None and model.has_linear(layer):
        linear = model.linear.within(sequence_of(model, sequence))
        rest += _linear_activations(linear, layout, tokens, element, cast)
    if "experts" in again or "feed-forward" in again:
        return LayerActivations(input=element * own * hidden, core=core, rest=rest)
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
        if not again:
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
    batched = layout.microbatch * model.attention.heads / layout.tensor
    rows = length / layout.context
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
    repeated for each head (Megatron-Core, ``gated_delta_net``), of a context rank those of its
    heads and all tokens; each token's products with those
    before it in its chunk; numbers of each head in FP32; the gate, the output, and the output as
    the last projection reads it. Lightning attention has queries, keys and values before and after
    their nonlinearity, and no numbers. A short convolution keeps its product with the keys and what
    it made of that, Mamba-1 values before and after the convolution, steps, and what both are made
    of before and after norms.
    """
    linear = linear.shared_by(layout.tensor * layout.context)
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
    kept = element * (linear.mixed + after + 2 * linear.values) + numbers + cast * linear.values
    narrow = element * tokens * (linear.low_ranks + 2 * linear.from_values)
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
            kept += count * (one.rest + one.core - not_kept(one, layout, implementation))
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


def not_kept(one: LayerActivations, layout: Layout, implementation: Implementation) -> float:
    """Return the bytes of a layer that selective recomputation does not keep."""
    if layout.recompute != "selective":
        return 0.0
    if implementation.selective == "products":
        # Of llama's layer 7.75 of 17 hidden widths stay: inputs of norms, every second product.
        return 0.5 * one.rest
    return 0.0 if implementation.flash else one.core
