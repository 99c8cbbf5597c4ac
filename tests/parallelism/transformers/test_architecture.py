"""Parameter counts against published ones, and what a transformer or layout refuses."""

from dataclasses import replace

import pytest
from small_transformers import LLAMA3_8B, MIXTRAL

from codesign_base import InputError
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, SlidingWindow
from parallelism.transformers.choices import Choices
from parallelism.transformers.experts import Experts
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout

GPT2 = Transformer(
    "gpt2", 12, 768, Attention(12, 12, 64, True, True), 3072, 50257, 1024,
    bias=True, norm="layernorm", positions=1024, tied=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "published"),
    [(LLAMA3_8B, 8_030_261_248), (GPT2, 124_439_808), (MIXTRAL, 46_702_792_704)],
    ids=lambda value: getattr(value, "name", None),
)
def test_parameters_are_the_published_ones(model: Transformer, published: int) -> None:
    assert model.parameters == published


def test_active_parameters_leave_out_the_experts_that_a_token_does_not_meet() -> None:
    idle = 6 * MIXTRAL.dense_parameters(14336) * 32
    assert MIXTRAL.parameters - MIXTRAL.active_parameters == idle
    assert LLAMA3_8B.active_parameters == LLAMA3_8B.parameters


def test_experts_sit_in_every_nth_layer_after_the_dense_ones() -> None:
    model = Transformer(
        "m", 7, 8, Attention(2, 1, 4), 16, 10, 4, experts=Experts(4, 2, 8, first_dense=1, every=2)
    )
    assert [layer for layer in range(7) if model.has_experts(layer)] == [2, 4, 6]
    assert sum(model.has_experts(layer) for layer in range(model.layers)) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: Attention(32, 5, 128),
        lambda: Attention(0, 1, 128),
        lambda: Experts(2, 3, 8),
        lambda: Transformer("x", 2, 8, Attention(1, 1, 8), 8, 0, 8),
        lambda: Layout(zero=4),
        lambda: Layout(data=4, replicate=3),
        lambda: Layout(data=4, replicate=4),
        lambda: Layout(data=4, replicate=2, zero=0),
        lambda: Layout(data=8, expert=4, replicate=4),
        lambda: Layout(schedule="other"),  # type: ignore[arg-type]
        lambda: Layout(data=4, expert=3),
        lambda: Layout(virtual_stages=2),
        lambda: Layout(schedule="interleaved"),
        lambda: Layout(data=4).microbatches(6),
    ],
)
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(InputError):
        make()


def gpt2(**fields):
    return replace(GPT2, **fields)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: gpt2(causal="x"), "transformer 'gpt2': causal is 'x'; give True or False"),
        (lambda: gpt2(tied=1), "transformer 'gpt2': tied is 1; give True or False"),
        (lambda: gpt2(gated=None), "gated is None"),
        (lambda: gpt2(bias="no"), "bias is 'no'"),
        (lambda: gpt2(parallel=[]), "parallel is []"),
        (lambda: gpt2(norm="x"), "norm is 'x'; choose layernorm or rmsnorm"),
        (lambda: gpt2(norm=["rmsnorm"]), "norm is ['rmsnorm']; choose layernorm or rmsnorm"),
        (lambda: gpt2(name=5), "name is 5; give a text"),
        (lambda: gpt2(source=None), "source is None; give a text"),
        (lambda: Attention(4, 4, 8, query_bias="x"), "attention: query_bias is 'x'; give True"),
        (lambda: Attention(4, 4, 8, output_bias=0), "output_bias is 0"),
        (lambda: Attention(4, 4, 8, head_norm="x"), "head_norm is 'x'"),
        (lambda: Attention(4, 4, 8, wide_norm="x"), "wide_norm is 'x'"),
        (lambda: Attention(4, 4, 8, sinks="x"), "sinks is 'x'"),
        (lambda: SlidingWindow(8, chunked="x"), "sliding window: chunked is 'x'"),
        (lambda: Experts(4, 2, 8, shared_gate="x"), "experts: shared_gate is 'x'"),
        (lambda: Experts(4, 2, 8, router_bias=1), "experts: router_bias is 1"),
        (lambda: Implementation(flash="x"), "implementation: flash is 'x'; give True or False"),
        (lambda: Implementation(copies="x"), "implementation: copies is 'x'; give a number"),
        (lambda: Implementation(overlap_data=True), "overlap_data is True; give a number"),
        (lambda: Choices(across_servers="x"), "layouts: across_servers is 'x'; give True"),
        (lambda: Layout(stage_layers=5), "layout: stage_layers is 5; give a tuple, such as (8, 8)"),
        (lambda: Layout(stage_layers=0), "layout: stage_layers is 0; give a tuple"),
        (lambda: Layout(stage_layers="44"), "layout: stage_layers is '44'; give a tuple"),
        (lambda: Layout(modules=5), "layout: modules is 5; give a tuple, such as ('norms',)"),
        (lambda: Layout(sequence_parallel="x"), "layout: sequence_parallel is 'x'; give True"),
        (lambda: Layout(zero=True), "layout: zero is True; choose 0, 1, 2 or 3"),
    ],
)
def test_another_kind_of_value_is_named(make, told) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_lists_of_layers_and_modules_are_tuples() -> None:
    layout = Layout(pipeline=2, stage_layers=[4, 4], recompute="modules", modules=["norms"])
    same = Layout(pipeline=2, stage_layers=(4, 4), recompute="modules", modules=("norms",))
    assert layout == same and hash(layout) == hash(same)
