"""The passes of feed-forward parts and of mixtures of experts on one GPU."""

from parallelism.transformers.operands import cast_shares, operands
from parallelism.transformers.reach import copies_sent
from parallelism.transformers.training import Training
from parallelism.transformers.work import PassCosts, elementwise, product_costs


def feed_forward_costs(training: Training, width: int) -> PassCosts:
    """Return the passes of a feed-forward part of some width, split over the tensor group."""
    model, own = training.model, width / training.layout.tensor
    return _products(training, own, model.hidden, training.tokens, 1.0, cast_shares(training))


def _products(
    training: Training,
    width: float,
    read: int,
    tokens: float,
    count: float,
    casts: tuple[float, float],
) -> PassCosts:
    """Return the passes of ``count`` experts, or parts, that see ``tokens`` each.

    Of each a rank has ``width``, and it reads and returns ``read`` elements of a token. ``casts``
    are factors of the bytes of casts, as of `operands.cast_shares`.
    """
    sums, inputs = operands(training, layer=True), 2 if training.model.gated else 1
    cast, gathered = casts
    costs = product_costs(tokens, inputs * width, read, count, *sums[:4], (gathered, cast))
    costs += product_costs(tokens, read, width, count, *sums[:4], (cast, gathered))
    middle = count * tokens * width * training.element
    # Forward: inputs read, output written. Backward: these and the gradient read, theirs written.
    return costs + elementwise((inputs + 1) * middle, (2 * inputs + 1) * middle)


def expert_costs(training: Training) -> PassCosts:
    """Return the passes of router, routed experts of the busiest rank, and shared experts.

    Where experts read a latent width, each rank projects its own tokens to it and back.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    experts, own, sums = model.experts, training.own_tokens, operands(training)
    assert experts is not None
    local = experts.count / layout.expert
    costs = product_costs(own, experts.count, model.hidden, 1, *sums)
    scores = 4.0 * own * experts.count
    # Softmax and choice; permutation before and weighted sum after, there and back. Exchanged
    # tokens are read and written on the way, and sorted by expert where a rank has several.
    read = experts.reads(model.hidden)
    moved = own * experts.per_token * read * training.element
    ways: float = 4 * (1 + (layout.expert > 1) + (layout.expert > 1 and local > 1))
    if implementation.forwarded_tokens and not implementation.overlap_expert and layout.expert > 1:
        # The kernels that exchange move what is sent and received, while nothing runs beside
        # them; only sorting by expert is left, of what arrived once at a rank.
        ways = 2.0 + 2.0 * copies_sent(training) / experts.per_token
    moved /= implementation.elementwise  # by kernels of their own in every stack
    costs += elementwise(2 * scores + ways * moved, 3 * scores + (ways + 1) * moved, round(ways))
    # Each rank of the expert group sends ``per_token`` copies of its tokens and gets as many;
    # those that split an expert gather what came to them.
    arrived, width = training.arriving_tokens / local, experts.width / layout.expert_split
    costs += _products(training, width, read, arrived, local, operands(training, layer=True)[4])
    if experts.latent_width:
        costs += product_costs(own, read, model.hidden, 1, *sums)
        costs += product_costs(own, model.hidden, read, 1, *sums)
    if experts.shared:
        costs += shared_costs(training)
    return costs


def shared_costs(training: Training) -> PassCosts:
    """Return the passes of shared experts."""
    experts = training.model.experts
    assert experts is not None
    return feed_forward_costs(training, experts.shared * experts.shared_width)
