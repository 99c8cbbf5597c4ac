"""The passes of feed-forward parts and of mixtures of experts on one GPU."""

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.experts import Experts
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.operands import cast_shares, operands
from parallelism.transformers.reach import copies_sent
from parallelism.transformers.shares import arriving_tokens, split_tokens
from parallelism.transformers.work import PassCosts, elementwise, product_costs


def feed_forward_costs(
    model: Transformer,
    width: float,
    tokens: float,
    degree: int,
    implementation: Implementation,
    count: float = 1.0,
    casts: tuple[float, float] | None = None,
    read: int = 0,
) -> PassCosts:
    """Return the passes of a feed-forward part, or of ``count`` experts of ``tokens`` each.

    It is split over ``degree`` ranks, and reads and returns ``read`` elements of a token, or the
    hidden width.

    ``casts`` are the factors of `operands.cast_shares`, where a tensor group gathers for products.
    """
    element, sums = float(model.dense_bytes), operands(model, implementation, layer=True)
    own, inputs, read = width / degree, 2 if model.gated else 1, read or model.hidden
    cast, gathered = casts or sums[4]
    costs = product_costs(tokens, inputs * own, read, count, *sums[:4], (gathered, cast))
    costs += product_costs(tokens, read, own, count, *sums[:4], (cast, gathered))
    middle = count * tokens * own * element
    # Forward: inputs read, output written. Backward: these and the gradient read, theirs written.
    return costs + elementwise((inputs + 1) * middle, (2 * inputs + 1) * middle)


def expert_costs(
    model: Transformer,
    experts: Experts,
    layout: Layout,
    implementation: Implementation,
    tokens: float,
) -> PassCosts:
    """Return the passes of router, routed experts of the busiest rank, and shared experts.

    Where experts read a latent width, each rank projects its own tokens to it and back.
    """
    element, sums = float(model.dense_bytes), operands(model, implementation)
    own = split_tokens(tokens, layout)
    local = experts.count / layout.expert
    # Each rank of the expert group sends ``per_token`` copies of its tokens and gets as many;
    # those that split an expert gather what came to them.
    arriving = arriving_tokens(model, layout, implementation, tokens)
    costs = product_costs(own, experts.count, model.hidden, 1, *sums)
    scores = 4.0 * own * experts.count
    # Softmax and choice; permutation before and weighted sum after, there and back. Exchanged
    # tokens are read and written on the way, and sorted by expert where a rank has several.
    read = experts.reads(model.hidden)
    moved = own * experts.per_token * read * element
    ways: float = 4 * (1 + (layout.expert > 1) + (layout.expert > 1 and local > 1))
    if implementation.forwarded_tokens and not implementation.overlap_expert and layout.expert > 1:
        # The kernels that exchange move what is sent and received, while nothing runs beside
        # them; only sorting by expert is left, of what arrived once at a rank.
        ways = 2.0 + 2.0 * copies_sent(experts, layout, implementation) / experts.per_token
    moved /= implementation.elementwise  # by kernels of their own in every stack
    costs += elementwise(2 * scores + ways * moved, 3 * scores + (ways + 1) * moved, round(ways))
    costs += feed_forward_costs(
        model, experts.width, arriving / local, layout.expert_split, implementation, count=local,
        read=read,
    )  # fmt: skip
    if experts.latent_width:
        costs += product_costs(own, read, model.hidden, 1, *sums)
        costs += product_costs(own, model.hidden, read, 1, *sums)
    if experts.shared:
        costs += shared_costs(model, experts, layout, implementation, tokens)
    return costs


def shared_costs(
    model: Transformer,
    experts: Experts,
    layout: Layout,
    implementation: Implementation,
    tokens: float,
) -> PassCosts:
    """Return the passes of shared experts."""
    return feed_forward_costs(
        model, experts.shared * experts.shared_width, tokens, layout.tensor, implementation,
        casts=cast_shares(implementation, layout),
    )  # fmt: skip
