"""The passes of attention on one GPU: its projections and its core."""

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.operands import cast_shares, operands
from parallelism.transformers.shares import kv_heads_of, sequence_of, split_tokens
from parallelism.transformers.work import Gemm, PassCosts, Work, elementwise, product_costs


def attention_core(
    model: Transformer,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    *,
    layer: int = 0,
    sequence: int | None = None,
) -> PassCosts:
    """Return scores, softmax and weighted values of one layer on one GPU.

    With context parallelism each rank has its share of the queries and meets all keys; causal
    work is balanced over ranks. A fused kernel skips what a mask hides, an unfused one does not.
    """
    length = sequence_of(model, sequence)
    attention, element = model.attention, float(model.dense_bytes)
    local = length / layout.context
    heads = attention.heads / layout.tensor
    batched = layout.microbatch * heads
    key = attention.query_width / attention.heads
    value = attention.value_width / attention.heads
    if implementation.flash:
        visible = model.score_share(layer, length)
        flops = 2.0 * batched * local * length * (key + value) * visible
        # Queries, keys, values and output once; the backward pass also reads their gradients.
        moved = element * batched * (local * (key + value) + length * (key + value))
        # S = QK and dP = dO V' ; dV = P' dO, dQ = dS K, dK = dS' Q.
        back = 2.0 * batched * local * length * (3 * key + 2 * value) * visible
        return PassCosts(
            forward=Work(attention_flops=flops, attention_traffic=moved, kernels=1),
            backward_input=Work(attention_flops=back, attention_traffic=2.0 * moved, kernels=1),
        )
    scores = batched * local * length * element
    masks = batched * local * length if implementation.dropout else 0.0
    drop = 2 * scores + masks if implementation.dropout else 0.0
    kernels = 2 if implementation.dropout else 1
    return PassCosts(
        forward=Work(
            (
                Gemm(local, length, key, batched, element, element),
                Gemm(local, value, length, batched, element, element),
            ),
            traffic=2 * scores + drop,
            kernels=kernels,
        ),
        backward_input=Work(
            (
                Gemm(local, key, length, batched, element, element),
                Gemm(length, key, local, batched, element, element),
                Gemm(local, length, value, batched, element, element),
                Gemm(length, value, local, batched, element, element),
            ),
            traffic=3 * scores + drop,
            kernels=kernels,
        ),
    )


def projections(
    model: Transformer, layout: Layout, implementation: Implementation, tokens: float
) -> PassCosts:
    """Return the passes of projections to queries, keys, values and output, and of positions."""
    attention, hidden = model.attention, model.hidden
    element, sums = float(model.dense_bytes), operands(model, implementation, layer=True)
    tensor = layout.tensor
    cast, gathered = cast_shares(implementation, layout)
    query = attention.query_width / tensor
    out = product_costs(
        tokens, hidden, attention.value_width / tensor, 1, *sums[:4], (cast, gathered)
    )
    rotary = 0.0 if model.positions or model.patch else 2 * element * tokens
    if attention.latent is not None:
        latent = attention.latent
        # Projections to latent vectors are replicated; with sequence parallelism each rank does
        # them for its own tokens.
        own = split_tokens(tokens, layout)
        costs = product_costs(own, latent.kv_rank + latent.rope_width, hidden, 1, *sums)
        norm = own * latent.kv_rank * element
        if latent.query_rank:
            costs += product_costs(own, latent.query_rank, hidden, 1, *sums)
            norm += own * latent.query_rank * element
        else:
            costs += product_costs(tokens, query, hidden, 1, *sums[:4], (gathered, cast))
        costs += up_projections(model, layout, implementation, tokens)
        rope = rotary * latent.rope_width * (attention.heads / tensor + 1)
        return costs + out + elementwise(2 * norm + rope, 3 * norm + rope, 3)
    key_value = kv_heads_of(attention, layout) * attention.head_width
    gate = attention.value_width / tensor if attention.output_gate else 0.0
    read = query + 2 * key_value + gate
    costs = product_costs(tokens, read, hidden, 1, *sums[:4], (gathered, cast)) + out
    if gate:
        # Output and gate read, their product written; these and its gradient read, theirs written.
        costs += elementwise(3 * element * tokens * gate, 5 * element * tokens * gate)
    rope = rotary * (query + key_value)
    normed = attention.head_norm or attention.wide_norm
    head_norm = 2 * element * tokens * (query + key_value) if normed else 0.0
    if rope or head_norm:
        costs += elementwise(rope + head_norm, rope + 1.5 * head_norm, 1 + normed)
    return costs


def up_projections(
    model: Transformer, layout: Layout, implementation: Implementation, tokens: float
) -> PassCosts:
    """Return the products of latent vectors with the weights of queries, keys and values."""
    attention, sums = model.attention, operands(model, implementation, layer=True)
    latent = attention.latent
    assert latent is not None
    key_value = attention.heads * (attention.head_width + latent.value_width) / layout.tensor
    costs = product_costs(tokens, key_value, latent.kv_rank, 1, *sums)
    if latent.query_rank:
        query = attention.query_width / layout.tensor
        costs += product_costs(tokens, query, latent.query_rank, 1, *sums)
    return costs
