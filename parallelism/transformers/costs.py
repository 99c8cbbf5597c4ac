"""Products, fused attention and element-wise traffic of a transformer's parts on one GPU.

Everything is for one microbatch on one rank of a layout: ``microbatch * sequence / context``
tokens, weights split over the tensor group, experts over the expert group.
"""

from dataclasses import replace
from functools import lru_cache
from math import ceil

from codesign_base import InputError
from parallelism.transformers.architecture import Attention, Experts, Transformer
from parallelism.transformers.implementation import FUSED_LOSS, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.reach import copies_sent
from parallelism.transformers.work import (
    NOTHING,
    Gemm,
    PassCosts,
    Work,
    elementwise,
    product,
)

DEFAULT = Implementation()


@lru_cache(maxsize=512)
def layer_kinds(model: Transformer, first: int, count: int) -> tuple[tuple[int, int], ...]:
    """Return (an example's index, count) of dense layers and of those with experts in a range.

    The example is the model's first layer of the kind, be it outside the range.
    """
    if model.experts is None:
        return ((0, count),) if count else ()
    found: list[tuple[int, int]] = []
    for experts in (False, True):
        same = sum(model.has_experts(i) == experts for i in range(first, first + count))
        if same:
            found.append((_first_of(model, experts), same))
    return tuple(found)


@lru_cache(maxsize=64)
def _first_of(model: Transformer, experts: bool) -> int:
    """Return the first layer with experts, or without."""
    return next(i for i in range(model.layers) if model.has_experts(i) == experts)


def sequence_of(model: Transformer, sequence: int | None) -> int:
    """Return the tokens of a sample: the job's, or else the model's own.

    Raises
    ------
    InputError
        If it is below 1, or beyond the learned positions.
    """
    length = model.sequence if sequence is None else sequence
    if length < 1:
        raise InputError(f"sequence is {length}; give at least 1")
    if model.positions and length > model.positions:
        raise InputError(
            f"sequence is {length}, but {model.name} has {model.positions} learned positions; "
            "give at most these"
        )
    return length


def tokens_of(model: Transformer, layout: Layout, sequence: int | None = None) -> float:
    """Return the tokens of a microbatch on one rank.

    Raises
    ------
    InputError
        If the context degree does not divide the sequence.
    """
    length = sequence_of(model, sequence)
    if length % layout.context:
        raise InputError(
            f"layout: context is {layout.context}, which does not divide sequence = {length}; "
            "give a divisor"
        )
    return layout.microbatch * length / layout.context


def split_tokens(tokens: float, layout: Layout) -> float:
    """Return the tokens on which one rank does norms, dropouts and residual sums."""
    return tokens / layout.tensor if layout.sequence_parallel else tokens


def arriving_tokens(
    model: Transformer, layout: Layout, implementation: Implementation, tokens: float
) -> float:
    """Return the tokens on which the routed experts of the busiest rank work."""
    assert model.experts is not None
    share = layout.expert_split / layout.tensor
    return tokens * share * model.experts.per_token * implementation.load_imbalance


def kv_heads_of(attention: Attention, layout: Layout) -> int:
    """Return the key and value heads of one tensor rank: at least one, then replicated."""
    return max(1, ceil(attention.kv_heads / layout.tensor))


def check_layout(model: Transformer, layout: Layout) -> None:
    """Raise an error where a layout cannot split a model.

    Raises
    ------
    InputError
        If the tensor degree does not divide the heads or the widths, the expert degree the
        experts, the stages exceed the layers, or experts are spread but there are none.
    """
    attention = model.attention
    tensor = layout.tensor
    widths = [("heads", attention.heads, tensor), ("feed_forward", model.feed_forward, tensor)]
    if model.experts is not None:
        widths.append(("experts' width", model.experts.width, layout.expert_split))
    elif layout.expert_tensor is not None:
        raise InputError(
            f"layout: expert_tensor is {layout.expert_tensor}, but {model.name} has no experts; "
            "leave it out"
        )
    for what, size, degree in widths:
        if size % degree:
            raise InputError(
                f"layout: tensor is {degree}, which does not divide {what} = {size} of "
                f"{model.name}; give a divisor"
            )
    if attention.latent is None and max(attention.kv_heads, layout.tensor) % min(
        attention.kv_heads, layout.tensor
    ):
        raise InputError(
            f"layout: tensor is {layout.tensor}, but kv_heads = {attention.kv_heads} of "
            f"{model.name} can be neither split nor replicated evenly; give a divisor or multiple"
        )
    chunks = layout.pipeline * layout.virtual_stages
    if layout.stage_layers:
        if sum(layout.stage_layers) != model.layers:
            raise InputError(
                f"layout: stage_layers adds up to {sum(layout.stage_layers)} layers; give the "
                f"{model.layers} of {model.name}"
            )
    elif chunks > model.layers:
        raise InputError(
            f"layout: pipeline * virtual_stages is {chunks}, more than the {model.layers} layers "
            f"of {model.name}; give fewer stages"
        )
    count = model.experts.count if model.experts else 1
    if count % layout.expert:
        raise InputError(
            f"layout: expert is {layout.expert}, which does not divide the experts of {model.name}"
            f" ({count}); give a divisor"
        )


def layer_costs(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation = DEFAULT,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return the passes of one layer over one microbatch on one GPU.

    Parameters
    ----------
    model : Transformer
    layer : int
        Index of the layer, which says whether it has experts.
    layout : Layout
    implementation : Implementation
    sequence : int, optional
        Tokens of a sample, the model's own by default.

    Returns
    -------
    PassCosts

    Notes
    -----
    Recomputation: ``"selective"`` does the attention core again (scores, softmax, dropout,
    values; Korthikanti et al., 2022, section 5), which a fused kernel does anyway, so that it
    changes nothing there; or what else ``implementation.selective`` says. ``"full"`` does the
    whole forward pass again.

    The backward pass of a fused attention kernel does five products where the forward pass does
    two, because it computes the scores again (Dao et al., 2022, algorithm 4).
    """
    return _layer_costs(model, layer, layout.of_layers, implementation, sequence)


@lru_cache(maxsize=512)
def _layer_costs(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation,
    sequence: int | None,
) -> PassCosts:
    length = sequence_of(model, sequence)
    tokens = tokens_of(model, layout, sequence)
    core = attention_core(model, layout, implementation, sequence=length)
    element = float(model.dense_bytes)
    rest = _projections(model, layout, implementation, tokens)
    if model.has_experts(layer):
        assert model.experts is not None
        rest += _experts(model, model.experts, layout, implementation, tokens)
    else:
        rest += _feed_forward(
            model, model.feed_forward, tokens, layout.tensor, implementation,
            casts=_gathering(implementation, layout),
        )  # fmt: skip
    hidden = split_tokens(tokens, layout) * model.hidden * element
    masks = split_tokens(tokens, layout) * model.hidden if implementation.dropout else 0.0
    # Norms; two sums of residuals (with dropout and its mask).
    norms = model.layer_norms
    moved = norms * implementation.norms / implementation.elementwise
    rest += elementwise(moved * 2 * hidden, moved * 3 * hidden, norms)
    rest += elementwise(2 * (3 * hidden + masks), 2 * (3 * hidden + masks), 2)
    whole = core + rest
    if layout.recompute == "full":
        again = whole.forward
        if implementation.selective == "products" and not model.has_experts(layer):
            again = replace(again, gemms=again.gemms[:-1])  # the output of the feed-forward part
        return whole.recomputed(again)
    if layout.recompute == "modules":
        return whole.recomputed(
            _modules_again(model, layer, layout, implementation, tokens, hidden)
        )
    if layout.recompute == "selective":
        if implementation.selective == "products":
            return whole.recomputed(_second_products(model, layer, layout, rest.forward, tokens))
        if not implementation.flash:
            return whole.recomputed(core.forward)
    return whole


def _second_products(
    model: Transformer, layer: int, layout: Layout, rest: Work, tokens: float
) -> Work:
    """Return every second product in the order of a layer, and all element-wise work.

    The order is queries, keys, values, output, and of a gated feed-forward part both inputs of
    the nonlinearity before its output: keys, output and one of the inputs are done again. Of
    latent attention, experts and parts that are not gated half of each product counts.
    """
    attention, element, tensor = model.attention, float(model.dense_bytes), layout.tensor
    if attention.latent is not None or model.has_experts(layer) or not model.gated:
        return rest.every_second_product()
    key = kv_heads_of(attention, layout) * attention.head_width
    again = product(tokens, key, model.hidden, 1, element)
    again += product(tokens, model.hidden, attention.value_width / tensor, 1, element)
    again += product(tokens, model.feed_forward / tensor, model.hidden, 1, element)
    return replace(rest, gemms=again.forward.gemms)


def _modules_again(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation,
    tokens: float,
    hidden: float,
) -> Work:
    """Return what recomputation by modules does again, where ``hidden`` bytes are a norm's."""
    again, element = NOTHING, float(model.dense_bytes)
    latent = model.attention.latent
    if "norms" in layout.modules:
        moved = model.layer_norms * implementation.norms / implementation.elementwise * 2 * hidden
        if latent is not None:
            ranks = latent.kv_rank + latent.query_rank
            moved += 2 * split_tokens(tokens, layout) * ranks * element
        again += Work(traffic=moved, kernels=model.layer_norms)
    if "up-projections" in layout.modules and latent is not None:
        again += _up_projections(model, layout, implementation, tokens).forward
    if "activations" in layout.modules:
        inputs = 3 if model.gated else 2
        width = tokens * model.feed_forward / layout.tensor
        if model.has_experts(layer):
            experts = model.experts
            assert experts is not None
            width = tokens * experts.shared * experts.shared_width / layout.tensor
            arriving = arriving_tokens(model, layout, implementation, tokens)
            width += arriving * experts.width / layout.expert_split
        again += Work(traffic=inputs * width * element, kernels=1)
    return again


def _up_projections(
    model: Transformer, layout: Layout, implementation: Implementation, tokens: float
) -> PassCosts:
    """Products of latent vectors with the weights of queries, keys and values."""
    attention, sums = model.attention, _sums(model, implementation, layer=True)
    latent = attention.latent
    assert latent is not None
    key_value = attention.heads * (attention.head_width + latent.value_width) / layout.tensor
    costs = product(tokens, key_value, latent.kv_rank, 1, *sums)
    if latent.query_rank:
        query = attention.query_width / layout.tensor
        costs += product(tokens, query, latent.query_rank, 1, *sums)
    return costs


def attention_core(
    model: Transformer,
    layout: Layout,
    implementation: Implementation = DEFAULT,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return scores, softmax and weighted values of one layer on one GPU.

    With context parallelism each rank has its share of the queries and meets all keys; causal
    work is balanced over ranks.
    """
    length = sequence_of(model, sequence)
    attention, element = model.attention, float(model.dense_bytes)
    local = length / layout.context
    heads = attention.heads / layout.tensor
    batched = layout.microbatch * heads
    key = attention.query_width / attention.heads
    value = attention.value_width / attention.heads
    if implementation.flash:
        visible = 0.5 if model.causal else 1.0
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


def _sums(
    model: Transformer, implementation: Implementation, *, layer: bool = False
) -> tuple[float, float, bool, bool, tuple[float, float]]:
    """Return how products of weights treat their operands and gradients.

    Of FP8 training only the products inside layers are in FP8: embedding, head and routers stay
    in BF16, as do norms and attention (DeepSeek-V3, 2024, section 3.3.1). Casts are kernels of
    their own in every stack: one whose element-wise work moves more bytes than fused kernels does
    not cast more, but by its ``casts``.
    """
    cast = implementation.casts / implementation.elementwise
    return (
        float(model.dense_bytes), float(implementation.gradient_bytes),
        implementation.fused_gradients, layer and implementation.precision == "fp8", (cast, cast),
    )  # fmt: skip


def _gathering(implementation: Implementation, layout: Layout) -> tuple[float, float]:
    """Return factors of the bytes of casts: of what a rank has whole, and of what it gathers.

    What a tensor group gathers in FP8 each rank reads in BF16 and writes for its own tokens, and
    reads and writes transposed for all.
    """
    cast = implementation.casts / implementation.elementwise
    if layout.tensor == 1 or not (layout.sequence_parallel and implementation.fp8_gather):
        return cast, cast
    return cast, cast * (3.0 / layout.tensor + 2.0) / 4.0


def _projections(
    model: Transformer, layout: Layout, implementation: Implementation, tokens: float
) -> PassCosts:
    """Queries, keys, values and the output projection, with rotary positions."""
    attention, hidden = model.attention, model.hidden
    element, sums = float(model.dense_bytes), _sums(model, implementation, layer=True)
    tensor = layout.tensor
    cast, gathered = _gathering(implementation, layout)
    query = attention.query_width / tensor
    out = product(tokens, hidden, attention.value_width / tensor, 1, *sums[:4], (cast, gathered))
    rotary = 0.0 if model.positions or model.patch else 2 * element * tokens
    if attention.latent is not None:
        latent = attention.latent
        # Projections to latent vectors are replicated; with sequence parallelism each rank does
        # them for its own tokens.
        own = split_tokens(tokens, layout)
        costs = product(own, latent.kv_rank + latent.rope_width, hidden, 1, *sums)
        norm = own * latent.kv_rank * element
        if latent.query_rank:
            costs += product(own, latent.query_rank, hidden, 1, *sums)
            norm += own * latent.query_rank * element
        else:
            costs += product(tokens, query, hidden, 1, *sums[:4], (gathered, cast))
        costs += _up_projections(model, layout, implementation, tokens)
        rope = rotary * latent.rope_width * (attention.heads / tensor + 1)
        return costs + out + elementwise(2 * norm + rope, 3 * norm + rope, 3)
    key_value = kv_heads_of(attention, layout) * attention.head_width
    costs = product(tokens, query + 2 * key_value, hidden, 1, *sums[:4], (gathered, cast)) + out
    rope = rotary * (query + key_value)
    head_norm = 2 * element * tokens * (query + key_value) if attention.head_norm else 0.0
    if rope or head_norm:
        costs += elementwise(rope + head_norm, rope + 1.5 * head_norm, 1 + attention.head_norm)
    return costs


def _feed_forward(
    model: Transformer,
    width: float,
    tokens: float,
    degree: int,
    implementation: Implementation,
    count: float = 1.0,
    casts: tuple[float, float] | None = None,
) -> PassCosts:
    """One feed-forward part (or ``count`` experts of ``tokens`` each), split over ``degree``.

    ``casts`` are the factors of `_gathering`, where a tensor group gathers for products.
    """
    element, sums = float(model.dense_bytes), _sums(model, implementation, layer=True)
    own, inputs = width / degree, 2 if model.gated else 1
    cast, gathered = casts or sums[4]
    costs = product(tokens, inputs * own, model.hidden, count, *sums[:4], (gathered, cast))
    costs += product(tokens, model.hidden, own, count, *sums[:4], (cast, gathered))
    middle = count * tokens * own * element
    # Forward: inputs read, output written. Backward: these and the gradient read, theirs written.
    return costs + elementwise((inputs + 1) * middle, (2 * inputs + 1) * middle)


def _experts(
    model: Transformer,
    experts: Experts,
    layout: Layout,
    implementation: Implementation,
    tokens: float,
) -> PassCosts:
    """Router, routed experts of the busiest rank, shared experts."""
    element, sums = float(model.dense_bytes), _sums(model, implementation)
    own = split_tokens(tokens, layout)
    local = experts.count / layout.expert
    # Each rank of the expert group sends ``per_token`` copies of its tokens and gets as many;
    # those that split an expert gather what came to them.
    arriving = arriving_tokens(model, layout, implementation, tokens)
    costs = product(own, experts.count, model.hidden, 1, *sums)
    scores = 4.0 * own * experts.count
    # Softmax and choice; permutation before and weighted sum after, there and back. Exchanged
    # tokens are read and written on the way, and sorted by expert where a rank has several.
    moved = own * experts.per_token * model.hidden * element
    ways: float = 4 * (1 + (layout.expert > 1) + (layout.expert > 1 and local > 1))
    if implementation.forwarded_tokens and not implementation.overlap_expert and layout.expert > 1:
        # The kernels that exchange move what is sent and received, while nothing runs beside
        # them; only sorting by expert is left, of what arrived once at a rank.
        ways = 2.0 + 2.0 * copies_sent(experts, layout, implementation) / experts.per_token
    moved /= implementation.elementwise  # by kernels of their own in every stack
    costs += elementwise(2 * scores + ways * moved, 3 * scores + (ways + 1) * moved, round(ways))
    costs += _feed_forward(
        model, experts.width, arriving / local, layout.expert_split, implementation, count=local
    )
    if experts.shared:
        costs += _feed_forward(
            model, experts.shared * experts.shared_width, tokens, layout.tensor, implementation,
            casts=_gathering(implementation, layout),
        )  # fmt: skip
    return costs


def embedding_costs(
    model: Transformer,
    layout: Layout,
    implementation: Implementation = DEFAULT,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return the passes of the token or patch embedding over one microbatch on one GPU."""
    tokens = tokens_of(model, layout, sequence)
    element = float(model.dense_bytes)
    if model.patch:
        costs = product(tokens, model.hidden, model.patch, 1, *_sums(model, implementation))
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
    implementation: Implementation = DEFAULT,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return the passes of last norm, output projection and loss over one microbatch.

    Logits are split over the vocabulary in a tensor group. The loss is computed in FP32:
    logits cast, read for maximum and sum, exponentials written; the backward pass scales them
    and casts them back. A fused loss reads logits once, and again to write their gradient.
    """
    tokens = tokens_of(model, layout, sequence)
    element, sums = float(model.dense_bytes), _sums(model, implementation)
    norm = split_tokens(tokens, layout) * model.hidden * element
    costs = elementwise(2 * norm, 3 * norm)
    outputs = model.vocabulary / layout.tensor
    if model.classes:
        # A classifier reads one vector a sample and is too small to be split.
        tokens, outputs = float(layout.microbatch), float(model.classes)
    elif not model.vocabulary:
        return costs
    costs += product(tokens, outputs, model.hidden, 1, *sums)
    whole = implementation.gathered_logits and not model.classes
    logits = tokens * (model.vocabulary if whole else outputs)
    if implementation.logit_bytes == FUSED_LOSS:
        return costs + elementwise(element * logits, 2 * element * logits)
    return costs + elementwise((element + 4 + 12) * logits, (8 + element) * logits, 3)


@lru_cache(maxsize=64)
def model_flops(
    model: Transformer, batch: int, *, sequence: int | None = None, recompute: bool = False
) -> float:
    """Return the operations of one iteration by the convention of published figures.

    Parameters
    ----------
    model : Transformer
    batch : int
        Samples of an iteration.
    sequence : int, optional
    recompute : bool
        Count the layers' forward pass twice, as Narayanan et al. (2021) do.

    Returns
    -------
    float
        Products only, backward twice forward, all attention scores even if masked. For a
        GPT-like model this is ``72 B s l h^2 (1 + s / 6h + V / 12 l h)`` or, with recomputation,
        ``96 B s l h^2 (1 + s / 6h + V / 16 l h)`` (the formulas of Korthikanti et al., 2022, and
        of Narayanan et al., 2021).

    Notes
    -----
    Hardware does less where a fused kernel skips masked scores, and more where it computes
    scores again; `PassCosts.flops` counts that.
    """
    layout = Layout(microbatch=1, sequence_parallel=False)
    plain = Implementation(flash=False)
    layers = sum(
        count * layer_costs(model, layer, layout, plain, sequence=sequence).forward.flops
        for layer, count in layer_kinds(model, 0, model.layers)
    )
    ends = head_costs(model, layout, plain, sequence=sequence).forward.flops
    if model.patch:
        ends += embedding_costs(model, layout, plain, sequence=sequence).forward.flops
    return batch * ((4.0 if recompute else 3.0) * layers + 3.0 * ends)
