"""The passes of embedding, head and loss on one GPU."""

from parallelism.transformers.implementation import FUSED_LOSS
from parallelism.transformers.operands import operands
from parallelism.transformers.training import Training
from parallelism.transformers.work import NOTHING, PassCosts, Work, elementwise, product_costs


def embedding_costs(training: Training) -> PassCosts:
    """Return the passes of the token or patch embedding over one microbatch on one GPU."""
    model, implementation = training.model, training.implementation
    tokens, element = training.tokens, training.element
    if model.patch:
        costs = product_costs(tokens, model.hidden, model.patch, 1, *operands(training))
        # The image needs no gradient.
        return PassCosts(costs.forward, NOTHING, NOTHING, costs.backward_weight)
    rows = tokens * model.hidden * element
    own = training.own_tokens * model.hidden
    after = 3 * own * element if model.positions else 0.0
    drop = own * (2 * element + 1) if implementation.dropout else 0.0
    summed = tokens * model.hidden * 2.0 * implementation.gradient_bytes
    return PassCosts(
        forward=Work(traffic=2 * rows + after + drop, kernels=2),
        backward_weight=Work(traffic=rows + summed + drop, kernels=1),
    )


def head_costs(training: Training) -> PassCosts:
    """Return the passes of last norm, output projection and loss over one microbatch.

    Logits are split over the vocabulary in a tensor group. The loss is computed in FP32:
    logits cast, read for maximum and sum, exponentials written; the backward pass scales them
    and casts them back. A fused loss reads logits once, and again to write their gradient. Modules
    for multi-token prediction do all of it again, and what leads to their layers.
    """
    costs = _loss_costs(training)
    for _ in range(training.model.mtp_layers):
        costs += _loss_costs(training)
        costs += _joining_costs(training)
    return costs


def _joining_costs(training: Training) -> PassCosts:
    """Return the passes of what joins states and embeddings of the tokens that follow.

    The embedding of these, two norms, the concatenation and the projection.
    """
    hidden = training.model.hidden
    own = training.own_tokens * hidden * training.element
    costs = embedding_costs(training)
    costs += elementwise(2 * 2 * own, 2 * 3 * own, 2) + elementwise(4 * own, 4 * own)
    wide, outputs = 2.0 * hidden, hidden / training.layout.tensor
    return costs + product_costs(training.tokens, outputs, wide, 1, *operands(training))


def _loss_costs(training: Training) -> PassCosts:
    """Return the passes of one norm, output projection and loss."""
    model, layout, implementation = training.model, training.layout, training.implementation
    tokens, element, sums = training.tokens, training.element, operands(training)
    norm = training.own_tokens * model.hidden * element
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
