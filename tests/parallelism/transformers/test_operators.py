"""A transformer's operator graph against its parameter count and closed forms of its FLOPs."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.graph import Mode, ModelGraph, OperatorKind
from parallelism.models import get_model
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import (
    Attention,
    Indexer,
    LatentAttention,
    SlidingWindow,
)
from parallelism.transformers.experts import Experts
from parallelism.transformers.linear_attention import LinearAttention, Recurrence
from parallelism.transformers.linear_costs import core_flops_of_token
from parallelism.transformers.operators import default_batch, model_graph
from parallelism.transformers.presets import TRANSFORMERS, get_transformer
from tests.helpers.small_transformers import CHOSEN

MATRIX = (OperatorKind.DENSE, OperatorKind.ATTENTION)


def products(graph: ModelGraph) -> float:
    return sum(op.forward_flops for op in graph.operators if op.kind in MATRIX)


def closed_form(model: Transformer) -> float:
    """Multiply-adds of every weight matrix a token meets, and the attention scores, twice."""
    a, h, s = model.attention, model.hidden, model.sequence
    out = a.value_width * h
    if a.latent is None:
        attention = h * (a.heads + 2 * a.kv_heads) * a.head_width + out
    else:
        m = a.latent
        queries = a.heads * (a.head_width + m.rope_width)
        query = h * m.query_rank + m.query_rank * queries if m.query_rank else h * queries
        up = m.kv_rank * a.heads * (a.head_width + m.value_width)
        attention = query + h * (m.kv_rank + m.rope_width) + up + out
    rope = a.latent.rope_width if a.latent else 0
    value = a.latent.value_width if a.latent else a.head_width
    scores = a.heads * s * s * (2 * (a.head_width + rope) + 2 * value + 5)
    matrices = 3 if model.gated else 2
    if a.output_gate:
        attention += out
    total = 0.0
    for layer in range(model.layers + model.mtp_layers):
        if model.has_linear(layer):
            total += of_linear(model)
        if model.has_attention(layer):
            indexer = a.latent.indexer if a.latent else None
            if a.latent and indexer and s > indexer.keys:
                each = 2 * (2 * a.latent.kv_rank + rope) + 5
                scores = a.heads * each * (s * indexer.keys - indexer.keys**2 / 2)
                total += 2.0 * s * attention + scores
            else:
                total += 2.0 * s * attention + scores * model.score_share(layer, s)
            if a.latent and indexer and (layer == model.layers or layer not in indexer.shared):
                queries = indexer.heads * indexer.width
                total += 2.0 * s * a.latent.query_rank * queries + s * s * queries
                total += 2.0 * s * h * (indexer.width + indexer.heads)
        if not model.has_feed_forward(layer):
            continue
        read = h
        if model.has_experts(layer):
            e = model.experts
            assert e is not None
            read = e.latent_width or h
            total += 2.0 * s * h * (e.count + e.shared_gate)
            total += 2.0 * s * 2 * h * e.latent_width
            total += 2.0 * s * read * matrices * e.per_token * e.width
            width = e.shared * e.shared_width
        else:
            width = model.feed_forward
        total += 2.0 * s * h * matrices * width
    if model.patch:
        return total + 2.0 * (s - 1) * model.patch * h + 2.0 * h * model.classes
    total += model.mtp_layers * 2.0 * s * 2 * h * h
    return total + (1 + model.mtp_layers) * 2.0 * s * h * model.vocabulary


def of_linear(model: Transformer) -> float:
    """Twice the multiply-adds of projections and convolution; operations of chunked kernels."""
    a, h, s = model.linear, model.hidden, model.sequence
    assert a is not None
    keys, values = a.key_heads * a.key_width, a.heads * a.value_width
    qkv = 2 * keys + values
    weights = (
        h * values
        + {
            "mamba-2": h * (qkv + values + a.heads) + a.convolution * qkv,
            "kda": h * (qkv + a.heads + 2 * a.value_width)
            + a.value_width * (keys + values)
            + a.convolution * qkv,
            "gated-deltanet": h * (qkv + values + 2 * a.heads) + a.convolution * qkv,
            "lightning": h * (qkv + values),
            "mamba-1": h * 2 * values
            + a.convolution * values
            + values * (2 * a.step_rank + 2 * a.key_width),
            "short-convolution": h * 3 * values + a.convolution * values,
        }[a.kind]
    )
    return s * (2.0 * weights + a.heads * core_flops_of_token(replace(a, chunk=min(a.chunk, s)))[0])


@st.composite
def hybrids(draw: st.DrawFn) -> Transformer:
    """A transformer with linear attention, and perhaps with layers of one part."""
    model = draw(transformers().filter(lambda one: one.causal and not one.parallel))
    kind = draw(st.sampled_from(get_args(Recurrence)))
    key_heads, more = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    key_heads = 1 if kind == "mamba-1" else key_heads
    more = 1 if kind in ("kda", "lightning", "short-convolution") else more
    widest = 1 if kind == "short-convolution" else 6
    numbers = st.lists(st.integers(0, model.layers - 1), unique=True).map(sorted).map(tuple)
    linear = LinearAttention(
        kind, key_heads, key_heads * more, draw(st.integers(1, widest)),
        draw(st.integers(1, 1 if kind == "mamba-1" else widest)), draw(st.integers(1, 4)),
        draw(st.booleans()), draw(numbers), draw(st.integers(1, 8)),
        draw(st.integers(1, 4)) if kind == "mamba-1" else 0, draw(st.booleans()),
        draw(st.booleans()),
    )  # fmt: skip
    bare = draw(numbers)
    alone = tuple(layer for layer in draw(numbers) if layer not in bare)
    full = tuple(layer for layer in linear.full_layers if layer not in alone)
    linear = replace(linear, full_layers=full)
    return replace(model, linear=linear, without_feed_forward=bare, without_attention=alone)


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    kv = draw(st.integers(1, 3))
    latent = draw(
        st.none()
        | st.builds(LatentAttention, st.integers(1, 9), st.integers(0, 9), st.integers(0, 4),
                    st.integers(1, 9))
    )  # fmt: skip
    attention = Attention(
        kv * draw(st.integers(1, 3)), kv, draw(st.integers(1, 8)),
        *(draw(st.booleans()) for _ in range(3)), latent, sinks=draw(st.booleans()),
        output_gate=latent is None and draw(st.booleans()),
    )  # fmt: skip
    if latent is None and not attention.head_norm:
        attention = replace(attention, wide_norm=draw(st.booleans()))
    layers = draw(st.integers(1, 4))
    count = draw(st.integers(1, 5))
    shared = draw(st.integers(0, 2))
    experts = draw(
        st.none()
        | st.builds(
            Experts, st.just(count), st.integers(1, count), st.integers(1, 8), st.just(shared),
            st.integers(1, 8), st.booleans(), st.integers(0, layers - 1), st.integers(1, 2),
            st.booleans(), latent_width=st.sampled_from([0, 0, 5]),
        )
    )  # fmt: skip
    image, causal = draw(st.booleans()), draw(st.booleans())
    full = st.sets(st.integers(0, layers - 1)).map(sorted).map(tuple)
    window = st.builds(SlidingWindow, st.integers(1, 10), full, st.booleans())
    parallel = draw(st.booleans())
    sequence = draw(st.integers(2, 9))
    return Transformer(
        "drawn", layers, draw(st.integers(1, 12)), attention, draw(st.integers(1, 20)),
        0 if image else draw(st.integers(1, 30)), sequence,
        gated=draw(st.booleans()), bias=draw(st.booleans()),
        norm=draw(st.sampled_from(["layernorm", "rmsnorm"])),
        layer_norms=draw(st.sampled_from([1, 2, 4] if parallel else [2, 4])), parallel=parallel,
        positions=sequence if image else draw(st.sampled_from([0, sequence + 1])),
        tied=not image and draw(st.booleans()), causal=causal, experts=experts,
        patch=draw(st.integers(1, 6)) if image else 0,
        classes=draw(st.integers(1, 5)) if image else 0,
        window=draw(st.none() | window) if causal else None,
        mtp_layers=draw(st.integers(0, 2)) if causal and not image else 0,
        mtp_dense=experts is not None and draw(st.booleans()),
        mtp_repeated=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def indexed(draw: st.DrawFn) -> Transformer:
    """A transformer, perhaps with linear attention, whose indexers choose keys."""
    drawn = (transformers() | hybrids()).filter(
        lambda one: one.causal and not one.window and one.attention.latent is not None
    )
    model = draw(drawn)
    latent = model.attention.latent
    assert latent is not None
    later = [layer for layer in range(model.layers) if model.has_attention(layer)][1:]
    shared = draw(st.lists(st.sampled_from(later), unique=True, max_size=2)) if later else []
    indexer = Indexer(
        draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 9)),
        tuple(sorted(shared)),
    )  # fmt: skip
    latent = replace(latent, query_rank=latent.query_rank or 3, indexer=indexer)
    return replace(model, attention=replace(model.attention, latent=latent))


@pytest.mark.slow
@given(transformers() | hybrids() | indexed())
@settings(max_examples=60, deadline=None)
def test_the_graph_has_the_transformers_parameters_and_flops(model: Transformer) -> None:
    graph = model_graph(model, batch_per_gpu=2)
    assert graph.parameters == model.parameters
    assert products(graph) == pytest.approx(closed_form(model), rel=1e-12)
    for op in graph.operators:
        if op.kind in MATRIX:
            assert op.backward_flops == 2 * op.forward_flops
        assert op.inputs or op.kind in (OperatorKind.EMBEDDING, OperatorKind.DENSE)
    readers = graph.consumers
    unread = [op.name for op, read in zip(graph.operators, readers, strict=True) if not read]
    assert unread[-1] == graph.operators[-1].name
    assert unread[:-1] == ["loss", *(f"mtp_{i}_loss" for i in range(model.mtp_layers))][:-1]


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_preset_has_a_graph(name: str) -> None:
    graph = get_model(name)
    model = get_transformer(name)
    assert graph.name == name
    assert graph.parameters == model.parameters
    assert products(graph) == pytest.approx(closed_form(model), rel=1e-12)
    assert graph.element_bytes == 2
    assert graph.batch_per_gpu == 1 or graph.batch_per_gpu * model.sequence <= 8192


def test_gpt3_has_the_papers_flops_a_token() -> None:
    # Brown et al., 2020, table D.1: 3.14e23 FLOP for 300e9 tokens, twice its parameters a
    # forward pass; scores come on top.
    model = get_transformer("gpt3-175b", sequence=1)
    assert 3 * products(model_graph(model)) * 300e9 == pytest.approx(3.14e23, rel=0.01)


def test_splits_are_heads_experts_and_features() -> None:
    graph = get_model("mixtral-8x7b")
    splits = {op.name: {split.mode: split.extent for split in op.splits} for op in graph.operators}
    assert splits["layer_0_attention"] == {Mode.HEADS: 8}  # groups of queries
    assert splits["layer_0_experts"] == {Mode.HEADS: 8}  # whole experts
    assert splits["vocabulary_projection"] == {Mode.OUTPUT: 32000, Mode.REDUCTION: 4096}
    assert splits["loss"] == {Mode.CHANNEL: 32000}
    assert splits["token_embedding"] == {Mode.OUTPUT: 4096, Mode.REDUCTION: 32000}
    dense = get_model("llama3-8b")
    assert dense.operators[dense.index("layer_0_expand")].splits[0].extent == 14336
    assert dense.operators[dense.index("layer_0_expand")].split(Mode.REDUCTION) is None


def test_layers_that_share_a_choice_read_it_from_the_layer_before() -> None:
    graph = model_graph(CHOSEN)
    reads = {op.name: [graph.operators[i].name for i in op.inputs] for op in graph.operators}
    latent = "layer_{}_attention_latent_norm".format
    for layer, chooser in ((0, 0), (1, 1), (2, 1), (3, 3)):
        assert reads[f"layer_{layer}_attention"] == [
            latent(layer), f"layer_{chooser}_attention_indexer"
        ]  # fmt: skip
    assert reads["layer_1_attention_indexer"] == ["layer_1_attention_norm", latent(1)]
    assert "layer_2_attention_indexer" not in reads
    indexer = graph.operators[graph.index("layer_1_attention_indexer")]
    assert indexer.output_shape == (512, 128)
    assert indexer.splits == ()


def test_a_tied_embedding_stands_at_the_projection_and_an_own_one_is_sparse() -> None:
    tied, own = get_model("gpt2"), get_model("llama3-8b")
    assert tied.operators[tied.index("token_lookup")].parameters == 0
    assert tied.operators[tied.index("vocabulary_projection")].parameters == 50257 * 768
    assert not any(op.sparse for op in tied.operators)
    assert [op.name for op in own.operators if op.sparse] == ["token_embedding"]


def test_overrides_reach_the_transformer_and_the_graph() -> None:
    graph = get_model("gpt2", layers=2, sequence=128, batch_per_gpu=3, element_bytes=4)
    assert graph.batch_per_gpu == 3
    assert graph.element_bytes == 4
    assert graph.operators[graph.index("loss")].output_shape == (128, 50257)
    assert [default_batch(s) for s in (1, 197, 1024, 8192, 100_000)] == [8192, 32, 8, 1, 1]


def test_a_sequence_beyond_learned_positions_is_refused() -> None:
    with pytest.raises(InputError, match="learned positions"):
        get_model("gpt2", sequence=1025)
