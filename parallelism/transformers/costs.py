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
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_costs import (
    linear_core,
    linear_projections,
    stated_flops_of_token,
)
from parallelism.transformers.shares import (
    done_again,
    ends_with_product,
    kv_heads_of,
    layer_kinds,
)
from parallelism.transformers.training import Training
from parallelism.transformers.work import NOTHING, PassCosts, Work, elementwise, product_costs


def layer_costs(training: Training, layer: int) -> PassCosts:
    """Return the passes of one layer over one microbatch on one GPU.

    Parameters
    ----------
    training : Training
    layer : int
        Index of the layer, which says whether it has experts and a sliding window.

    Returns
    -------
    PassCosts

    Notes
    -----
    Recomputation: ``"selective"`` does the attention core again (scores, softmax, dropout,
    values; Korthikanti et al., 2022, section 5), which a fused kernel does anyway, so that it
    changes nothing there; or what else `Implementation.selective` says. ``"full"`` does the
    whole forward pass again. ``"modules"`` does those that the layout names, one after another:
    a nonlinearity within experts that are computed again comes twice, and so do shared experts
    there, as nested checkpoints of Megatron-Core do them.

    The backward pass of a fused attention kernel does five products where the forward pass does
    two, because it computes the scores again (Dao et al., 2022, algorithm 4).
    """
    return _layer_costs(training.of_layers, layer)


@lru_cache(maxsize=512)
def _layer_costs(training: Training, layer: int) -> PassCosts:
    model, layout, implementation = training.model, training.layout, training.implementation
    core = met = rest = fed = PassCosts()
    if model.has_attention(layer):
        core = attention_core(training, layer)
        rest = projections(training)
        if model.has_indexer(layer):
            rest += indexer_costs(training)
    if model.has_linear(layer):
        met = linear_core(training)
        rest += linear_projections(training)
    if model.has_experts(layer):
        fed = expert_costs(training)
    elif model.has_feed_forward(layer):
        fed = feed_forward_costs(training, model.feed_forward)
    rest += fed
    hidden = training.own_tokens * model.hidden * training.element
    masks = training.own_tokens * model.hidden if implementation.dropout else 0.0
    # Norms; sums of residuals of each part (with dropout and its mask).
    norms, parts = model.norms(layer), model.parts(layer)
    moved = norms * implementation.norms / implementation.elementwise
    rest += elementwise(moved * 2 * hidden, moved * 3 * hidden, norms)
    rest += elementwise(parts * (3 * hidden + masks), parts * (3 * hidden + masks), parts)
    whole = core + met + rest
    if layout.recompute == "full":
        again = whole.forward
        if ends_with_product(model, layer):
            again = _as_needed(again, implementation)
        return whole.recomputed(again)
    if layout.recompute == "modules":
        return whole.recomputed(_modules_again(training, layer, fed.forward))
    if layout.recompute == "selective":
        if implementation.selective == "products":
            return whole.recomputed(_second_products(training, layer, rest.forward))
        if not implementation.flash and model.has_attention(layer):
            return whole.recomputed(core.forward)
    return whole


def _second_products(training: Training, layer: int, rest: Work) -> Work:
    """Return every second product in the order of a layer, and all element-wise work.

    The order is queries, keys, values, output, and of a gated feed-forward part both inputs of
    the nonlinearity before its output: keys, output and one of the inputs are done again. Of
    latent, gated or linear attention, experts and parts that are not gated half of each product
    counts.
    """
    model, layout, tokens = training.model, training.layout, training.tokens
    attention, element, tensor = model.attention, training.element, layout.tensor
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


def _modules_again(training: Training, layer: int, fed: Work) -> Work:
    """Return what recomputation by modules does again, where the feed-forward part does ``fed``."""
    model, layout, implementation = training.model, training.layout, training.implementation
    again, own, element = NOTHING, training.own_tokens, training.element
    latent = model.attention.latent if model.has_attention(layer) else None
    experts = model.experts if model.has_experts(layer) else None
    parts = done_again(model, layer, layout)
    if "norms" in layout.modules:
        read = own * model.hidden * element
        moved = model.norms(layer) * implementation.norms / implementation.elementwise * 2 * read
        if latent is not None:
            ranks = latent.kv_rank + latent.query_rank
            moved += 2 * own * ranks * element
        again += Work(traffic=moved, kernels=model.norms(layer))
    if "up-projections" in layout.modules and latent is not None:
        again += up_projections(training).forward
    if "activations" in layout.modules and model.has_feed_forward(layer):
        inputs = 3 if model.gated else 2
        dense = experts.shared * experts.shared_width if experts else model.feed_forward
        # Within parts that are done again only routed experts do theirs once more.
        width = 0.0 if parts else training.tokens * dense / layout.tensor
        if experts is not None:
            width += training.arriving_tokens * experts.width / layout.expert_split
        if width:
            again += Work(traffic=inputs * width * element, kernels=1)
    for part in parts:
        if part == "experts" or experts is None:
            again += fed if experts is not None else _as_needed(fed, implementation)
        else:
            again += _as_needed(shared_costs(training).forward, implementation)
    return again


def _as_needed(again: Work, implementation: Implementation) -> Work:
    """Return what is done again of work whose last product is a feed-forward part's output.

    No backward pass needs that, and PyTorch's checkpoints leave it out.
    """
    if implementation.selective == "products":
        return replace(again, gemms=again.gemms[:-1])
    return again


@lru_cache(maxsize=64)
def model_flops(model: Transformer, batch: int, sequence: int, *, recompute: bool = False) -> float:
    """Return the operations of one iteration by the convention of published figures.

    Parameters
    ----------
    model : Transformer
    batch : int
        Samples of an iteration.
    sequence : int
        Tokens of a sample.
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
    alone = Layout(microbatch=1, sequence_parallel=False)
    plain = Training(model, alone, Implementation(flash=False), sequence)
    layers = 0.0
    for layer, count in layer_kinds(model, 0, model.layers, model.mtp_layers):
        one = layer_costs(plain, layer).forward.flops
        if model.slides(layer):
            core = attention_core(plain).forward.flops
            one -= (1.0 - 2.0 * model.score_share(layer, sequence)) * core
        if model.linear is not None and model.has_linear(layer):
            one -= linear_core(plain).forward.flops
            one += sequence * model.linear.heads * stated_flops_of_token(model.linear)
        if model.indexer is not None and model.has_attention(layer):
            one -= attention_core(plain, layer).forward.flops
            if model.has_indexer(layer):
                one -= indexer_costs(plain).forward.flops
            one += stated_sparse_flops(model, layer, sequence)
        layers += count * one
    ends = head_costs(plain).forward.flops
    if model.patch:
        ends += embedding_costs(plain).forward.flops
    return batch * ((4.0 if recompute else 3.0) * layers + 3.0 * ends)
