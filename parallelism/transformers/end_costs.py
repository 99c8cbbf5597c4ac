"""The passes of embedding, head and loss on one GPU."""

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import FUSED_LOSS, MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.operands import operands
from parallelism.transformers.shares import split_tokens, tokens_of
from parallelism.transformers.work import NOTHING, PassCosts, Work, elementwise, product_costs


def embedding_costs(
    model: Transformer,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return the passes of the token or patch embedding over one microbatch on one GPU."""
    tokens = tokens_of(model, layout, sequence)
    element = float(model.dense_bytes)
    if model.patch:
        costs = product_costs(
            tokens, model.hidden, model.patch, 1, *operands(model, implementation)
        )
        # The image needs no gradient.
        return PassCosts(costs.forward, NOTHING, NOTHING, costs.backward_weight)
    rows = tokens * model.hidden * element
    own = split_tokens(tokens, layout) * model.hidden
    after = 3 * own * element if model.positions else 0.0
    drop = own * (2 * element + 1) if implementation.dropout else 0.0
    summed = tokens * model.hidden * 2.0 * implementation.gradient_bytes
    return PassCosts(
        forward=Work(traffic=2 * rows + after + drop, kernels=2),
        backward_weight=Work(traffic=rows + summed + drop, kernels=1),
    )


def head_costs(
    model: Transformer,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return the passes of last norm, output projection and loss over one microbatch.

    Logits are split over the vocabulary in a tensor group. The loss is computed in FP32:
    logits cast, read for maximum and sum, exponentials written; the backward pass scales them
    and casts them back. A fused loss reads logits once, and again to write their gradient. Modules
    for multi-token prediction do all of it again, and what leads to their layers.
    """
    costs = _loss_costs(model, layout, implementation, sequence)
    for _ in range(model.mtp_layers):
        costs += _loss_costs(model, layout, implementation, sequence)
        costs += _joining_costs(model, layout, implementation, sequence)
    return costs


def _joining_costs(
    model: Transformer, layout: Layout, implementation: Implementation, sequence: int | None
) -> PassCosts:
    """Return the passes of what joins states and embeddings of the tokens that follow.

    The embedding of these, two norms, the concatenation and the projection.
    """
    tokens, element = tokens_of(model, layout, sequence), float(model.dense_bytes)
    own = split_tokens(tokens, layout) * model.hidden * element
    costs = embedding_costs(model, layout, implementation, sequence=sequence)
    costs += elementwise(2 * 2 * own, 2 * 3 * own, 2) + elementwise(4 * own, 4 * own)
    wide, outputs = 2.0 * model.hidden, model.hidden / layout.tensor
    return costs + product_costs(tokens, outputs, wide, 1, *operands(model, implementation))


def _loss_costs(
    model: Transformer, layout: Layout, implementation: Implementation, sequence: int | None
) -> PassCosts:
    """Return the passes of one norm, output projection and loss."""
    tokens = tokens_of(model, layout, sequence)
    element, sums = float(model.dense_bytes), operands(model, implementation)
    norm = split_tokens(tokens, layout) * model.hidden * element
    costs = elementwise(2 * norm, 3 * norm)
    outputs = model.vocabulary / layout.tensor
    if model.classes:
        # A classifier reads one vector a sample and is too small to be split.
        tokens, outputs = float(layout.microbatch), float(model.classes)
    elif not model.vocabulary:
        return costs
    costs += product_costs(tokens, outputs, model.hidden, 1, *sums)
    whole = implementation.gathered_logits and not model.classes
    logits = tokens * (model.vocabulary if whole else outputs)
    if implementation.logit_bytes == FUSED_LOSS:
        return costs + elementwise(element * logits, 2 * element * logits)
    return costs + elementwise((element + 4 + 12) * logits, (8 + element) * logits, 3)
