"""Products, fused attention and element-wise traffic of a transformer's parts on one GPU.

Everything is for one microbatch on one rank of a layout: ``microbatch * sequence / context``
tokens, weights split over the tensor group, experts over the expert group.
"""

from dataclasses import replace
from functools import lru_cache

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention_costs import (
    attention_core,
    indexer_costs,
    projections,
    stated_sparse_flops,
    up_projections,
)
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.feed_forward_costs import (
    expert_costs,
    feed_forward_costs,
    shared_costs,
)
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_costs import (
    linear_core,
    linear_projections,
    stated_flops_of_token,
)
from parallelism.transformers.operands import cast_shares
from parallelism.transformers.shares import (
    arriving_tokens,
    done_again,
    kv_heads_of,
    layer_kinds,
    sequence_of,
    split_tokens,
    tokens_of,
)
from parallelism.transformers.work import NOTHING, PassCosts, Work, elementwise, product_costs


def layer_costs(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    *,
    sequence: int | None = None,
) -> PassCosts:
    """Return the passes of one layer over one microbatch on one GPU.

    Parameters
    ----------
    model : Transformer
    layer : int
        Index of the layer, which says whether it has experts and a sliding window.
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
    whole forward pass again. ``"modules"`` does those that the layout names, one after another:
    a nonlinearity within experts that are computed again comes twice, and so do shared experts
    there, as nested checkpoints of Megatron-Core do them.

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
    element = float(model.dense_bytes)
    core = met = rest = fed = PassCosts()
    if model.has_attention(layer):
        core = attention_core(model, layout, implementation, layer=layer, sequence=length)
        rest = projections(model, layout, implementation, tokens)
        latent = model.attention.latent
        if latent is not None and model.has_indexer(layer):
            rest += indexer_costs(model, latent, layout, implementation, length)
    if model.linear is not None and model.has_linear(layer):
        met = linear_core(model, model.linear.within(length), layout, tokens)
        rest += linear_projections(model, model.linear, layout, implementation, tokens)
    if model.has_experts(layer):
        assert model.experts is not None
        fed = expert_costs(model, model.experts, layout, implementation, tokens)
    elif model.has_feed_forward(layer):
        fed = feed_forward_costs(
            model, model.feed_forward, tokens, layout.tensor, implementation,
            casts=cast_shares(implementation, layout),
        )  # fmt: skip
    rest += fed
    hidden = split_tokens(tokens, layout) * model.hidden * element
    masks = split_tokens(tokens, layout) * model.hidden if implementation.dropout else 0.0
    # Norms; sums of residuals of each part (with dropout and its mask).
    norms, parts = model.norms(layer), model.parts(layer)
    moved = norms * implementation.norms / implementation.elementwise
    rest += elementwise(moved * 2 * hidden, moved * 3 * hidden, norms)
    rest += elementwise(parts * (3 * hidden + masks), parts * (3 * hidden + masks), parts)
    whole = core + met + rest
    if layout.recompute == "full":
        again = whole.forward
        if model.has_feed_forward(layer) and not model.has_experts(layer):
            again = _as_needed(again, implementation)
        return whole.recomputed(again)
    if layout.recompute == "modules":
        return whole.recomputed(
            _modules_again(model, layer, layout, implementation, tokens, hidden, fed.forward)
        )
    if layout.recompute == "selective":
        if implementation.selective == "products":
            return whole.recomputed(_second_products(model, layer, layout, rest.forward, tokens))
        if not implementation.flash and model.has_attention(layer):
            return whole.recomputed(core.forward)
    return whole


def _second_products(
    model: Transformer, layer: int, layout: Layout, rest: Work, tokens: float
) -> Work:
    """Return every second product in the order of a layer, and all element-wise work.

    The order is queries, keys, values, output, and of a gated feed-forward part both inputs of
    the nonlinearity before its output: keys, output and one of the inputs are done again. Of
    latent, gated or linear attention, experts and parts that are not gated half of each product
    counts.
    """
    attention, element, tensor = model.attention, float(model.dense_bytes), layout.tensor
    usual = attention.latent is None and not attention.output_gate
    usual = usual and model.has_attention(layer) and not model.has_linear(layer)
    fed = model.has_feed_forward(layer) and not model.has_experts(layer) and model.gated
    if not (usual and fed):
        return rest.every_second_product()
    key = kv_heads_of(attention, layout) * attention.head_width
    again = product_costs(tokens, key, model.hidden, 1, element)
    again += product_costs(tokens, model.hidden, attention.value_width / tensor, 1, element)
    again += product_costs(tokens, model.feed_forward / tensor, model.hidden, 1, element)
    return replace(rest, gemms=again.forward.gemms)


def _modules_again(
    model: Transformer,
    layer: int,
    layout: Layout,
    implementation: Implementation,
    tokens: float,
    hidden: float,
    fed: Work,
) -> Work:
    """Return what recomputation by modules does again.

    A norm's input has ``hidden`` bytes, and the feed-forward part does ``fed``.
    """
    again, element = NOTHING, float(model.dense_bytes)
    latent = model.attention.latent if model.has_attention(layer) else None
    experts = model.experts if model.has_experts(layer) else None
    parts = done_again(model, layer, layout)
    if "norms" in layout.modules:
        moved = model.norms(layer) * implementation.norms / implementation.elementwise * 2 * hidden
        if latent is not None:
            ranks = latent.kv_rank + latent.query_rank
            moved += 2 * split_tokens(tokens, layout) * ranks * element
        again += Work(traffic=moved, kernels=model.norms(layer))
    if "up-projections" in layout.modules and latent is not None:
        again += up_projections(model, layout, implementation, tokens).forward
    if "activations" in layout.modules and model.has_feed_forward(layer):
        inputs = 3 if model.gated else 2
        dense = experts.shared * experts.shared_width if experts else model.feed_forward
        # Within parts that are done again only routed experts do theirs once more.
        width = 0.0 if parts else tokens * dense / layout.tensor
        if experts is not None:
            arriving = arriving_tokens(model, layout, implementation, tokens)
            width += arriving * experts.width / layout.expert_split
        if width:
            again += Work(traffic=inputs * width * element, kernels=1)
    for part in parts:
        if part == "experts" or experts is None:
            again += fed if experts is not None else _as_needed(fed, implementation)
        else:
            shared = shared_costs(model, experts, layout, implementation, tokens)
            again += _as_needed(shared.forward, implementation)
    return again


def _as_needed(again: Work, implementation: Implementation) -> Work:
    """Return what is done again of work whose last product is a feed-forward part's output.

    No backward pass needs that, and PyTorch's checkpoints leave it out.
    """
    if implementation.selective == "products":
        return replace(again, gemms=again.gemms[:-1])
    return again


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
        Products only, backward twice forward, all attention scores even if masked, of a layer with
        a sliding window twice those within, of linear attention what
        `linear_costs.stated_flops_of_token` says, of an indexer and the keys that it chose what
        `attention_costs.stated_sparse_flops` does. For a GPT-like model this is
        ``72 B s l h^2 (1 + s / 6h + V / 12 l h)`` or, with recomputation,
        ``96 B s l h^2 (1 + s / 6h + V / 16 l h)`` (the formulas of Korthikanti et al., 2022, and
        of Narayanan et al., 2021).

    Notes
    -----
    Hardware does less where a fused kernel skips masked scores, and more where it computes
    scores again; `PassCosts.flops` counts that.
    """
    layout = Layout(microbatch=1, sequence_parallel=False)
    plain = Implementation(flash=False)
    layers = 0.0
    for layer, count in layer_kinds(model, 0, model.layers, model.mtp_layers):
        one = layer_costs(model, layer, layout, plain, sequence=sequence).forward.flops
        if model.slides(layer):
            length = sequence_of(model, sequence)
            core = attention_core(model, layout, plain, sequence=length).forward.flops
            one -= (1.0 - 2.0 * model.score_share(layer, length)) * core
        if model.linear is not None and model.has_linear(layer):
            tokens = sequence_of(model, sequence)
            one -= linear_core(model, model.linear.within(tokens), layout, tokens).forward.flops
            one += tokens * model.linear.heads * stated_flops_of_token(model.linear)
        latent = model.attention.latent
        if latent is not None and latent.indexer is not None and model.has_attention(layer):
            length = sequence_of(model, sequence)
            one -= attention_core(model, layout, plain, layer=layer, sequence=length).forward.flops
            if model.has_indexer(layer):
                one -= indexer_costs(model, latent, layout, plain, length).forward.flops
            one += stated_sparse_flops(model, latent, layer, length)
        layers += count * one
    ends = head_costs(model, layout, plain, sequence=sequence).forward.flops
    if model.patch:
        ends += embedding_costs(model, layout, plain, sequence=sequence).forward.flops
    return batch * ((4.0 if recompute else 3.0) * layers + 3.0 * ends)
