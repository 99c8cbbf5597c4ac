"""A transformer as a graph of operators, which the per-operator co-design plans.

A sample is one sequence. Attention is fused, so that scores stay out of memory; a causal mask
halves them. A tied embedding is, with its gradient, at the vocabulary projection, which is
where every row of it gets one; the lookup then has no parameters of its own.
"""

from codesign_base import InputError
from codesign_base.arguments import of_python_numbers
from parallelism.graph import Mode, ModelGraph, OperatorKind
from parallelism.operators.builder import INDEX_BYTES, GraphBuilder, legal_splits
from parallelism.operators.elementwise import add, softmax_split
from parallelism.operators.layers import dense, embedding, layer_norm, rms_norm
from parallelism.operators.shapes import Tensor
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, Indexer, LatentAttention
from parallelism.transformers.experts import Experts
from parallelism.transformers.linear_costs import core_flops_of_token

# Tokens of a GPU in one iteration that the default batch stays within.
_DEFAULT_TOKENS = 8192


def default_batch(sequence: int) -> int:
    """Return the default batch of a GPU: the largest power of two within 8192 tokens."""
    return 1 << (max(1, _DEFAULT_TOKENS // sequence).bit_length() - 1)


def core_flops(attention: Attention, sequence: int, share: float, *, sparse: bool = False) -> float:
    """Return the forward FLOPs of scores, softmax and weighted sum of one sample.

    Parameters
    ----------
    attention : Attention
    sequence : int
    share : float
        Of the scores that count, half under a causal mask.
    sparse : bool
        Keys were chosen, and each head meets them as they are before the up-projections.
    """
    scores = sequence * sequence * share
    widths = attention.query_width + attention.value_width
    if sparse and attention.latent:
        widths = attention.heads * (2 * attention.latent.kv_rank + attention.latent.rope_width)
    return scores * (2.0 * widths + 5.0 * attention.heads)


@of_python_numbers
def model_graph(
    model: Transformer,
    *,
    batch_per_gpu: int | None = None,
    element_bytes: int | None = None,
) -> ModelGraph:
    """Return the operators of a transformer at its sequence length.

    Parameters
    ----------
    model : Transformer
    batch_per_gpu : int, optional
        Sequences; `default_batch` otherwise.
    element_bytes : int, optional
        ``model.dense_bytes`` otherwise.

    Returns
    -------
    ModelGraph
        Named like the transformer, with exactly its parameters.

    Raises
    ------
    InputError
        If the sequence is longer than the learned positions.

    Notes
    -----
    Modules for multi-token prediction look tokens up again and use the output projection again; its
    weights, those of the embedding, and those of a module that is used again (``mtp_repeated``)
    are counted where they are used first.

    Experts are one operator a layer, split by experts: each part takes all tokens and returns
    a partial sum, as with expert parallelism over replicated activations. An all-to-all that
    sends every token to its experts alone moves fewer bytes where there are more parts than
    experts a token.

    An indexer is an operator of its own, which is not split and returns the numbers of a token's
    keys; layers that share a choice read that of the layer before.
    """
    if model.positions and model.sequence > model.positions:
        raise InputError(
            f"transformer {model.name!r}: sequence {model.sequence} is longer than its "
            f"{model.positions} learned positions; give a shorter sequence"
        )
    batch = default_batch(model.sequence) if batch_per_gpu is None else batch_per_gpu
    build = GraphBuilder(
        model.name, batch, model.dense_bytes if element_bytes is None else element_bytes
    )
    x = _embed(build, model)
    chosen: list[Tensor] = []
    for layer in range(model.layers):
        x = _layer(build, model, layer, f"layer_{layer}", x, chosen)
    normed = _norm(build, model, "final_norm", x)
    if model.classes:
        dense(build, "classifier", normed, model.classes, first_only=True)
    elif model.vocabulary:
        logits = dense(build, "vocabulary_projection", normed, model.vocabulary, bias=False)
        build.share("embedding" if model.tied else "projection", logits.operator)
        softmax_split(build, "loss", logits)
    for number in range(model.mtp_layers):
        build.reused = model.mtp_repeated and number > 0
        begin = build.operators
        x = _predict_further(build, model, f"mtp_{number}", x)
        for place in range(build.operators - begin if model.mtp_repeated else 0):
            build.share(f"mtp_{place}", begin + place)
    return build.build()


def _predict_further(build: GraphBuilder, model: Transformer, at: str, x: Tensor) -> Tensor:
    """Append a module for multi-token prediction; return the states of its layer."""
    tokens, hidden = model.sequence, model.hidden
    states = _norm(build, model, f"{at}_states_norm", x)
    following = _norm(build, model, f"{at}_tokens_norm", _lookup(build, model, f"{at}_lookup"))
    flops, traffic = 4.0 * tokens * hidden**2, 3 * tokens * hidden
    joined = build.append(
        f"{at}_projection", OperatorKind.DENSE, [states, following], (tokens, hidden),
        flops=(flops, 2 * flops), elements=(traffic, 2 * traffic), parameters=2 * hidden**2,
        splits=legal_splits((Mode.OUTPUT, hidden)), profile_key=f"Dense_{2 * hidden}_{hidden}",
    )  # fmt: skip
    x = _layer(build, model, model.layers, at, joined, [])
    normed = _norm(build, model, f"{at}_final_norm", x)
    build.reused = True  # the projection of the main model
    logits = dense(build, f"{at}_vocabulary_projection", normed, model.vocabulary, bias=False)
    build.share("embedding" if model.tied else "projection", logits.operator)
    softmax_split(build, f"{at}_loss", logits)
    return x


def _embed(build: GraphBuilder, model: Transformer) -> Tensor:
    """Embed tokens or patches, and add learned positions."""
    tokens, hidden = model.sequence, model.hidden
    if model.patch:
        # A class token is before the patches.
        x = dense(build, "patch_embedding", build.input(tokens - 1, model.patch), hidden)
    elif model.tied:
        x = _lookup(build, model, "token_lookup")
    else:
        x = embedding(build, "token_embedding", model.vocabulary, hidden, positions=tokens)
        build.share("embedding", x.operator)
    if model.positions or model.patch:
        first = hidden if model.patch else 0
        x = build.append(
            "positions", OperatorKind.ADD, [x], (tokens, hidden),
            flops=(float(tokens * hidden), 0.0),
            elements=(2 * tokens * hidden, 2 * tokens * hidden),
            parameters=model.positions * hidden + first,
            splits=legal_splits((Mode.CHANNEL, hidden)),
        )  # fmt: skip
    return x


def _lookup(build: GraphBuilder, model: Transformer, name: str) -> Tensor:
    """Look tokens up in an embedding whose parameters another operator has."""
    tokens, hidden = model.sequence, model.hidden
    indices = float(INDEX_BYTES * tokens)
    found = build.append(
        name, OperatorKind.EMBEDDING, [], (tokens, hidden),
        elements=(2 * tokens * hidden, 3 * tokens * hidden), byte_counts=(indices, indices),
        profile_key=f"Lookup_{model.vocabulary}x{hidden}",
    )  # fmt: skip
    build.share("embedding", found.operator)
    return found


def _norm(build: GraphBuilder, model: Transformer, name: str, x: Tensor) -> Tensor:
    return (layer_norm if model.norm == "layernorm" else rms_norm)(build, name, x)


def _layer(
    build: GraphBuilder, model: Transformer, layer: int, at: str, x: Tensor, chosen: list[Tensor]
) -> Tensor:
    """Append one layer: attention, then (or beside it) the feed-forward part.

    Its own choice of keys is added to those of the layers before.
    """
    parts: list[Tensor] = []
    normed = x
    if model.has_linear(layer) or model.has_attention(layer):
        normed = _norm(build, model, f"{at}_attention_norm", x)
        name, beside = f"{at}_attention", model.has_attention(layer)
        if model.has_linear(layer):
            own = f"{at}_linear_attention" if beside else name
            parts.append(_linear_attention(build, model, own, normed))
        if beside:
            parts.append(_attention(build, model, layer, name, normed, chosen))
        if model.layer_norms == 4:
            total = parts[0] if len(parts) == 1 else add(build, f"{at}_mixers_add", parts)
            parts = [_norm(build, model, f"{at}_attention_post_norm", total)]
        if not model.parallel:
            x = add(build, f"{at}_attention_add", [x, *parts])
            parts = []
    if not model.has_feed_forward(layer):
        return x
    if model.layer_norms > 1:
        normed = _norm(build, model, f"{at}_feed_forward_norm", x)
    fed = (
        _experts(build, model, at, normed)
        if model.has_experts(layer)
        else [_feed_forward(build, model, at, normed, model.feed_forward)]
    )
    if model.layer_norms == 4:
        total = fed[0] if len(fed) == 1 else add(build, f"{at}_experts_add", fed)
        fed = [_norm(build, model, f"{at}_feed_forward_post_norm", total)]
    return add(build, f"{at}_feed_forward_add", [x, *parts, *fed])


def _attention(
    build: GraphBuilder, model: Transformer, layer: int, name: str, x: Tensor, chosen: list[Tensor]
) -> Tensor:
    """Append the attention layer; latent vectors and indexers are operators of their own."""
    attention, hidden, tokens = model.attention, model.hidden, model.sequence
    parameters = attention.parameters(hidden)
    latent = attention.latent
    inputs = [x]
    if latent is None:
        read = attention.query_width + 2 * attention.kv_heads * attention.head_width
        read += attention.value_width if attention.output_gate else 0
        flops = 2.0 * tokens * hidden * read
        extent = attention.kv_heads
    else:
        made = latent.query_rank + latent.kv_rank + latent.rope_width
        norms = latent.query_rank + latent.kv_rank
        low = dense(build, f"{name}_latent", x, made, bias=False)
        low = build.append(
            f"{name}_latent_norm", OperatorKind.NORM, [low], low.shape,
            flops=(4.0 * tokens * norms, 8.0 * tokens * norms),
            elements=(3 * low.elements, 5 * low.elements), parameters=norms,
        )  # fmt: skip
        parameters -= hidden * made + norms + latent.indexer_parameters(hidden)
        inputs = [low] if latent.query_rank else [x, low]
        if latent.indexer is not None:
            if model.has_indexer(layer):
                chosen.append(_indexer(build, model, latent, latent.indexer, name, [x, low]))
            inputs += chosen[-1:]
        keys = attention.heads * (attention.head_width + latent.value_width)
        read = attention.query_width + keys
        flops = (
            2.0
            * tokens
            * ((latent.query_rank or hidden) * attention.query_width + latent.kv_rank * keys)
        )
        extent = attention.heads
    sparse = model.is_sparse(layer, tokens)
    flops += core_flops(attention, tokens, model.score_share(layer, tokens), sparse=sparse)
    flops += 2.0 * tokens * attention.value_width * hidden
    # Inputs, queries, keys and values written and read again, the sum, and the output.
    width = sum(t.channels for t in inputs) + 2 * read + 2 * attention.value_width + hidden
    traffic = tokens * width
    return build.append(
        name, OperatorKind.ATTENTION, inputs, (tokens, hidden),
        flops=(flops, 2 * flops), elements=(traffic, 2 * traffic), parameters=parameters,
        splits=legal_splits((Mode.HEADS, extent)),
        profile_key=_attention_key(model, layer, latent),
    )  # fmt: skip


def _indexer(
    build: GraphBuilder,
    model: Transformer,
    latent: LatentAttention,
    indexer: Indexer,
    name: str,
    inputs: list[Tensor],
) -> Tensor:
    """Append what scores all keys before a token and chooses some."""
    tokens, hidden, keys = model.sequence, model.hidden, min(indexer.keys, model.sequence)
    parameters = latent.indexer_parameters(hidden)
    queries = indexer.heads * indexer.width
    flops = 2.0 * tokens * (parameters - 2 * indexer.width) + float(tokens) ** 2 * queries
    # Inputs; queries, key and weights of heads, written and read again; scores, and the choice.
    width = sum(t.channels for t in inputs) + 2 * (queries + indexer.width + indexer.heads)
    traffic = tokens * (width + tokens + keys)
    numbers = (latent.query_rank, hidden, indexer.heads, indexer.width, keys)
    return build.append(
        f"{name}_indexer", OperatorKind.ATTENTION, inputs, (tokens, keys),
        flops=(flops, 2 * flops), elements=(traffic, 2 * traffic), parameters=parameters,
        profile_key="_".join(["Indexer", *(str(number) for number in numbers)]),
    )  # fmt: skip


def _linear_attention(build: GraphBuilder, model: Transformer, name: str, x: Tensor) -> Tensor:
    """Append linear attention, split by heads of keys; Mamba-1, whose keys need all heads, not."""
    linear, hidden, tokens = model.linear, model.hidden, model.sequence
    assert linear is not None
    parameters = linear.parameters(hidden)
    inputs = [x]
    if linear.low_ranks:
        low = dense(build, f"{name}_low_ranks", x, linear.low_ranks, bias=False)
        parameters -= hidden * linear.low_ranks
        inputs.append(low)
    gates = linear.low_ranks // 2 * (linear.keys + linear.values)
    products = hidden * (linear.projected + linear.values) + gates
    products += linear.values * (linear.from_values + linear.step_rank)
    # The convolution is a product of each element with those before it.
    each = 2.0 * (products + linear.convolution * linear.convolved)
    flops = tokens * (each + linear.heads * core_flops_of_token(linear.within(tokens))[0])
    # Inputs; what they are projected to, written and read again, and so after the convolution;
    # output, its gated norm, and what is made of it.
    width = hidden + 2 * linear.projected + 2 * linear.mixed + 4 * linear.values + hidden
    # Of Mamba-1 step, key and query, before and after their norms, and each channel's step.
    width += 4 * linear.from_values + (2 * linear.values if linear.from_values else 0)
    traffic = tokens * (width + linear.low_ranks)
    numbers = [hidden, linear.key_heads, linear.heads, linear.key_width, linear.value_width]
    numbers += [linear.step_rank] if linear.step_rank else []
    key = "_".join(["LinearAttention", linear.kind, *(str(number) for number in numbers)])
    splits = () if linear.from_values else legal_splits((Mode.HEADS, linear.key_heads))
    return build.append(
        name, OperatorKind.ATTENTION, inputs, (tokens, hidden),
        flops=(flops, 2 * flops), elements=(traffic, 2 * traffic), parameters=parameters,
        splits=splits, profile_key=key,
    )  # fmt: skip


def _attention_key(model: Transformer, layer: int, latent: LatentAttention | None) -> str:
    """Name what is to be timed: widths read, heads, widths of a head, and the mask."""
    attention, window = model.attention, model.window
    numbers = (
        (latent.query_rank if latent else 0) or model.hidden,
        latent.kv_rank if latent else model.hidden,
        attention.heads,
        attention.heads if latent else attention.kv_heads,
        attention.head_width,
        latent.rope_width if latent else 0,
        latent.value_width if latent else attention.head_width,
    )
    mask = "causal" if model.causal else "full"
    if window is not None and model.slides(layer) and window.width < model.sequence:
        mask = f"{'chunks' if window.chunked else 'window'}_{window.width}"
    if latent and latent.indexer and model.is_sparse(layer, model.sequence):
        mask = f"chosen_{latent.indexer.keys}"
    name = "GatedAttention" if attention.output_gate else "GroupedAttention"
    return "_".join([name, *(str(number) for number in numbers), mask])


def _feed_forward(
    build: GraphBuilder, model: Transformer, at: str, x: Tensor, width: int, kind: str = ""
) -> Tensor:
    """Append two dense operators; the gate is part of the first."""
    if model.gated:
        y = _gated(build, f"{at}_{kind}expand", x, width, bias=model.bias)
    else:
        y = dense(build, f"{at}_{kind}expand", x, width, bias=model.bias)
    return dense(build, f"{at}_{kind}contract", y, model.hidden, bias=model.bias)


def _gated(build: GraphBuilder, name: str, x: Tensor, width: int, *, bias: bool) -> Tensor:
    """Two dense layers of one input and the product of their outputs, fused.

    A reduction split would sum before a product of two sums, so that there is none.
    """
    hidden, tokens = x.channels, x.positions
    flops = 4.0 * tokens * hidden * width
    traffic = tokens * (hidden + width)
    return build.append(
        name, OperatorKind.DENSE, [x], (tokens, width),
        flops=(flops, 2 * flops), elements=(traffic, 2 * traffic),
        parameters=2 * width * (hidden + (1 if bias else 0)),
        splits=legal_splits((Mode.OUTPUT, width)),
        profile_key=f"GatedDense_{hidden}_{width}",
    )  # fmt: skip


def _experts(build: GraphBuilder, model: Transformer, at: str, x: Tensor) -> list[Tensor]:
    """Append router, routed experts and shared experts; return what is to be summed."""
    experts = model.experts
    assert experts is not None
    outputs = [_routed(build, model, at, x, experts)]
    if model.bias:
        for number in range(experts.shared):
            kind = f"shared_{number}_"
            outputs.append(_feed_forward(build, model, at, x, experts.shared_width, kind))
    elif experts.shared:
        # Without biases, experts that all tokens go to are one wider one.
        width = experts.shared * experts.shared_width
        outputs.append(_feed_forward(build, model, at, x, width, "shared_"))
    return outputs


def _routed(
    build: GraphBuilder, model: Transformer, at: str, x: Tensor, experts: Experts
) -> Tensor:
    tokens, hidden = model.sequence, model.hidden
    outs = experts.count + experts.shared_gate
    scores = build.append(
        f"{at}_router", OperatorKind.DENSE, [x], (tokens, outs),
        flops=(2.0 * tokens * hidden * outs, 4.0 * tokens * hidden * outs),
        elements=(tokens * (hidden + outs), 2 * tokens * (hidden + outs)),
        parameters=model.router_parameters(),
        profile_key=f"Dense_{hidden}_{outs}",
    )  # fmt: skip
    if experts.latent_width:
        x = dense(build, f"{at}_latent", x, experts.latent_width, bias=False)
    read, matrices = x.channels, 3 if model.gated else 2
    copies = tokens * experts.per_token
    flops = 2.0 * matrices * copies * read * experts.width
    # Tokens are gathered to their experts, and each expert's product written and read again.
    traffic = 2 * tokens * read + copies * (2 * read + 2 * experts.width)
    routed = build.append(
        f"{at}_experts", OperatorKind.DENSE, [x, scores], (tokens, read),
        flops=(flops, 2 * flops), elements=(traffic, 2 * traffic),
        parameters=experts.count * model.dense_parameters(experts.width, read),
        splits=legal_splits((Mode.HEADS, experts.count)),
        profile_key=f"Experts_{read}_{experts.width}_{matrices}"
        f"_{experts.per_token}_{experts.count}",
    )  # fmt: skip
    if experts.latent_width:
        return dense(build, f"{at}_back", routed, hidden, bias=False)
    return routed
