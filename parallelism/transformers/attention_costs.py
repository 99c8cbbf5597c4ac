"""The passes of attention on one GPU: its projections, its core, and what chooses its keys."""

from dataclasses import replace

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.operands import cast_shares, operands
from parallelism.transformers.shares import kv_heads_of
from parallelism.transformers.training import Training
from parallelism.transformers.work import (
    NOTHING,
    Gemm,
    PassCosts,
    Work,
    elementwise,
    product_costs,
)

_SCORE = 4.0
"""Bytes of an indexer's score, and of the number of a key."""


def attention_core(training: Training, layer: int = 0) -> PassCosts:
    """Return scores, softmax and weighted values of one layer on one GPU.

    With context parallelism each rank has its share of the queries and meets all keys; causal
    work is balanced over ranks. A fused kernel skips what a mask hides, an unfused one does not.

    Where an indexer chose keys, a kernel reads them as they are before the up-projections, once for
    all heads: of a head keys are as wide as the latent and the rotary part, values as the latent
    part, and each token meets its chosen keys only (FlashMLA's sparse kernels). They are read from
    memory once, as if caches held what several tokens chose. A sequence of no more tokens than are
    chosen is attended to as without an indexer.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    length, element, attention = training.sequence, training.element, model.attention
    local = length / layout.context
    heads = attention.heads / layout.tensor
    batched = layout.microbatch * heads
    key = attention.query_width / attention.heads
    value = attention.value_width / attention.heads
    sparse, latent = model.is_sparse(layer, length), attention.latent
    if implementation.flash or sparse:
        visible = model.score_share(layer, length)
        kept = batched * length * (key + value)
        if sparse and latent is not None:
            key, value = latent.kv_rank + latent.rope_width, latent.kv_rank
            kept = layout.microbatch * length * key
        flops = 2.0 * batched * local * length * (key + value) * visible
        # Queries, keys, values and output once; the backward pass also reads their gradients.
        moved = element * (batched * local * (key + value) + kept)
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


def projections(training: Training) -> PassCosts:
    """Return the passes of projections to queries, keys, values and output, and of positions."""
    model, layout, tokens = training.model, training.layout, training.tokens
    attention, hidden, tensor = model.attention, model.hidden, layout.tensor
    element, sums = training.element, operands(training, layer=True)
    cast, gathered = cast_shares(training)
    query = attention.query_width / tensor
    out = product_costs(
        tokens, hidden, attention.value_width / tensor, 1, *sums[:4], (cast, gathered)
    )
    rotary = 0.0 if model.positions or model.patch else 2 * element * tokens
    if attention.latent is not None:
        latent = attention.latent
        # Projections to latent vectors are replicated; with sequence parallelism each rank does
        # them for its own tokens.
        own = training.own_tokens
        costs = product_costs(own, latent.kv_rank + latent.rope_width, hidden, 1, *sums)
        norm = own * latent.kv_rank * element
        if latent.query_rank:
            costs += product_costs(own, latent.query_rank, hidden, 1, *sums)
            norm += own * latent.query_rank * element
        else:
            costs += product_costs(tokens, query, hidden, 1, *sums[:4], (gathered, cast))
        costs += up_projections(training)
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


def up_projections(training: Training) -> PassCosts:
    """Return the products of latent vectors with the weights of queries, keys and values."""
    attention, sums = training.model.attention, operands(training, layer=True)
    tokens, tensor, latent = training.tokens, training.layout.tensor, attention.latent
    assert latent is not None
    key_value = attention.heads * (attention.head_width + latent.value_width) / tensor
    costs = product_costs(tokens, key_value, latent.kv_rank, 1, *sums)
    if latent.query_rank:
        query = attention.query_width / tensor
        costs += product_costs(tokens, query, latent.query_rank, 1, *sums)
    return costs


def indexer_costs(training: Training) -> PassCosts:
    """Return the passes of a layer's indexer: projections, scores, and the choice of keys.

    Parameters
    ----------
    training : Training
        Of a model with an indexer.

    Returns
    -------
    PassCosts

    Notes
    -----
    Every tensor rank does all of it (Megatron-Core, ``dsa.py``), for all keys before a token, also
    of a sequence so short that all are chosen. Scores are written in FP32 and read by the choice.
    It learns by a loss of its own (DeepSeek-V3.2, section 2.1.1, sparse training): scores of chosen
    keys by attention's heads, which each rank makes again for its own heads, are compared with its
    own. Its scores of them are made again, and gradients of its queries, keys and weights follow;
    none goes to what it reads. Of the loss nothing but these products is counted. Training on all
    keys, with which it begins, is another job.
    """
    model, layout, length = training.model, training.layout, training.sequence
    latent, indexer = model.attention.latent, model.indexer
    assert latent is not None
    assert indexer is not None
    sums, tokens = operands(training, layer=True), training.tokens
    queries, hidden = indexer.heads * indexer.width, model.hidden
    costs = product_costs(tokens, queries, latent.query_rank, 1, *sums)
    costs += product_costs(tokens, indexer.width + indexer.heads, hidden, 1, *sums)
    costs = replace(costs, backward_input=NOTHING)
    each, scores = 2.0 * queries, 0.5 * tokens * length
    chosen = tokens * length * indexer.share(length)
    heads, key = model.attention.heads / layout.tensor, latent.kv_rank + latent.rope_width
    moved = model.dense_bytes * (tokens * queries + layout.microbatch * length * indexer.width)
    # The norm of the key, and positions of queries and key.
    narrow = 2.0 * model.dense_bytes * tokens * (queries + 2 * indexer.width)
    return (
        costs
        + elementwise(narrow, 1.5 * narrow, 2)
        + PassCosts(
            forward=Work(
                attention_flops=each * scores + 2.0 * chosen * heads * key,
                attention_traffic=moved,
                traffic=2 * _SCORE * scores, kernels=2,
            ),
            backward_input=Work(
                attention_flops=3 * each * chosen, attention_traffic=2.0 * moved,
                traffic=_SCORE * chosen, kernels=1,
            ),
        )
    )  # fmt: skip


def stated_sparse_flops(model: Transformer, layer: int, sequence: int) -> float:
    """Return a third of a sample's operations that published figures count in sparse attention.

    As Megatron Bridge counts (``flop_utils.py``) where the indexer learns from chosen keys: the
    core in the form of `attention_core`, over the keys that were chosen, forward and twice that
    backward; of the indexer, projections forward and gradients of their weights, scores of all
    keys, gradients of those chosen, and attention's scores of these that it learns from.
    """
    attention, latent, indexer = model.attention, model.attention.latent, model.indexer
    assert latent is not None
    assert indexer is not None
    chosen = sequence**2 * indexer.share(sequence)
    found = 2.0 * chosen * attention.heads * (2 * latent.kv_rank + latent.rope_width)
    if model.has_indexer(layer):
        weights = latent.indexer_parameters(model.hidden) - 2 * indexer.width
        one = 2.0 * indexer.heads * (indexer.width + 1)
        learnt = 4.0 * sequence * weights + one * (0.5 * sequence**2 + 2.0 * chosen)
        learnt += 2.0 * chosen * attention.heads * (latent.kv_rank + latent.rope_width)
        found += learnt / 3.0
    return found
