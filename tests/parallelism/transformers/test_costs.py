"""Costs of a layer against published FLOP formulas and independent counts."""

from dataclasses import replace

import pytest

from codesign_base import InputError
from parallelism.transformers.attention_costs import attention_core
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.implementation import MEGATRON_2022, Implementation, get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.work import Gemm
from tests.helpers.small_transformers import (
    GPT3_175B,
    GPT_22B,
    GPT_530B,
    LATENT,
    LLAMA3_8B,
    MIXTRAL,
    VISION,
)
from tests.helpers.trainings import training_of


@pytest.mark.parametrize("model", [GPT_22B, GPT3_175B, GPT_530B], ids=lambda m: m.name)
def test_model_flops_are_the_published_formulas(model) -> None:
    """Narayanan et al. (2021), equation 3; Korthikanti et al. (2022), appendix."""
    s, h, layers, v = 2048, model.hidden, model.layers, 51200
    full = 96 * 7 * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    plain = 72 * 7 * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert model_flops(model, 7, model.sequence, recompute=True) == pytest.approx(full)
    assert model_flops(model, 7, model.sequence) == pytest.approx(plain)


def test_selective_recomputation_does_scores_and_values_again() -> None:
    costs = layer_costs(
        training_of(GPT_22B, Layout(tensor=8, recompute="selective"), MEGATRON_2022), 0
    )
    assert costs.recompute.flops == 4 * 2048**2 * 6144 / 8
    fused = layer_costs(training_of(GPT_22B, Layout(tensor=8, recompute="selective")), 0)
    assert fused.recompute.flops == 0


def test_full_recomputation_does_the_forward_pass_again() -> None:
    costs = layer_costs(training_of(GPT_22B, Layout(recompute="full"), MEGATRON_2022), 0)
    assert costs.recompute == costs.forward
    assert costs.backward_input.flops == pytest.approx(
        costs.forward.flops
        + attention_core(training_of(GPT_22B, Layout(), MEGATRON_2022)).forward.flops
    )


@pytest.mark.parametrize("model", [LLAMA3_8B, MIXTRAL, LATENT], ids=lambda m: m.name)
def test_products_are_two_operations_a_weight_and_token(model) -> None:
    """Forward products against the parameters that a token meets, counted elsewhere."""
    layer, tokens = 1, model.sequence
    costs = layer_costs(training_of(model, Layout(), Implementation(flash=False)), layer)
    core = attention_core(training_of(model, Layout(), Implementation(flash=False))).forward.flops
    vectors = 2 * model.norm_parameters()
    if model.attention.latent:
        vectors += model.attention.latent.kv_rank + model.attention.latent.query_rank
    matrices = model.layer_parameters(layer, active=True) - vectors
    assert costs.forward.flops - core == pytest.approx(2 * tokens * matrices)
    assert costs.backward_weight.flops == pytest.approx(2 * tokens * matrices)


def test_scores_of_fused_causal_attention_are_half_of_all() -> None:
    plain = attention_core(training_of(LLAMA3_8B, Layout(), Implementation(flash=False)))
    fused = attention_core(training_of(LLAMA3_8B, Layout()))
    assert fused.forward.flops == pytest.approx(plain.forward.flops / 2)
    assert fused.backward_input.flops == pytest.approx(2.5 * fused.forward.flops)
    assert plain.forward.flops == 4 * 8192**2 * 4096
    bidirectional = replace(LLAMA3_8B, causal=False)
    assert attention_core(training_of(bidirectional, Layout())).flops == pytest.approx(
        2 * fused.flops
    )


@pytest.mark.parametrize("model", [GPT_22B, LLAMA3_8B, MIXTRAL], ids=lambda m: m.name)
def test_degrees_divide_the_work(model) -> None:
    whole = layer_costs(training_of(model, Layout()), 0)
    for layout in (Layout(tensor=8), Layout(context=8), Layout(tensor=2, context=4)):
        assert layer_costs(training_of(model, layout), 0).flops == pytest.approx(whole.flops / 8)
    many = layer_costs(training_of(model, Layout(microbatch=3)), 0)
    assert many.flops == pytest.approx(3 * whole.flops)


def test_experts_spread_without_changing_the_work_and_imbalance_adds_to_it() -> None:
    one = layer_costs(training_of(MIXTRAL, Layout(data=8)), 0)
    spread = layer_costs(training_of(MIXTRAL, Layout(data=8, expert=8)), 0)
    assert spread.flops == pytest.approx(one.flops)
    routed = 2 * 4096 * 2 * 3 * 4096 * 14336
    skewed = layer_costs(
        training_of(MIXTRAL, Layout(data=8, expert=8), Implementation(load_imbalance=1.5)), 0
    )
    assert skewed.forward.flops - spread.forward.flops == pytest.approx(0.5 * routed)
    # Each of the eight experts has an eighth of the copies of tokens, or all ranks' on its own.
    assert max(g.m for g in spread.forward.gemms) == 2 * 4096
    assert min(g.m for g in one.forward.gemms) == 2 * 4096 / 8


def test_replicated_key_heads_are_not_split_further() -> None:
    wide = layer_costs(training_of(LLAMA3_8B, Layout(tensor=16)), 0).forward.gemms
    widths = [gemm.n for gemm in wide]
    assert 4096 / 16 + 2 * 128 in widths


def test_sequence_parallelism_splits_element_wise_traffic() -> None:
    split, whole = (
        layer_costs(training_of(GPT_22B, Layout(tensor=8, sequence_parallel=on), MEGATRON_2022), 0)
        for on in (True, False)
    )
    assert split.flops == whole.flops
    assert whole.forward.traffic - split.forward.traffic == pytest.approx(
        7 / 8 * (10 * 2 + 2) * 2048 * 6144
    )


def test_traffic_of_a_product_counts_operands_and_result_once() -> None:
    gemm = Gemm(4, 5, 6, 2, output_bytes=8, operand_bytes=2)
    assert gemm.flops == 2 * 2 * 4 * 5 * 6
    assert gemm.traffic == 2 * (2 * 6 * (4 + 5) + 8 * 4 * 5)


def test_ends_of_the_model() -> None:
    head = head_costs(training_of(LLAMA3_8B, Layout(tensor=8)))
    assert head.forward.flops == 2 * 8192 * 4096 * 128256 / 8
    assert head_costs(training_of(VISION, Layout(microbatch=2))).forward.flops == 2 * 2 * 256 * 1000
    assert embedding_costs(training_of(VISION, Layout())).forward.flops == 2 * 197 * 256 * 768
    assert embedding_costs(training_of(VISION, Layout())).backward_input.flops == 0
    assert embedding_costs(training_of(LLAMA3_8B, Layout())).forward.flops == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: layer_costs(training_of(GPT_22B, Layout(), sequence=4096), 0),
        lambda: layer_costs(training_of(LLAMA3_8B, Layout(), sequence=0), 0),
        lambda: layer_costs(training_of(LLAMA3_8B, Layout(context=3)), 0),
        lambda: Implementation(load_imbalance=0.5),
        lambda: Implementation(overlap_tensor=1.5),
        lambda: Implementation(gradient_bytes=3),
        lambda: Implementation(optimizer_bytes=-1),
    ],
)
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(InputError):
        make()


def test_modules_are_computed_again_as_in_the_forward_pass() -> None:
    latent = LATENT.attention.latent
    assert latent is not None
    layout = Layout(tensor=2, recompute="modules", modules=("up-projections",))
    again = layer_costs(training_of(LATENT, layout), 1).recompute
    widths = LATENT.attention.heads * (LATENT.attention.head_width + latent.value_width)
    flops = 2 * LATENT.sequence / 2 * latent.kv_rank * widths
    if latent.query_rank:
        flops += 2 * LATENT.sequence / 2 * latent.query_rank * LATENT.attention.query_width
    assert again.flops == flops
    assert again.traffic == 0
    moved = layer_costs(
        training_of(LLAMA3_8B, replace(layout, modules=("norms", "activations"))), 0
    ).recompute
    assert moved.flops == 0
    # Two norms read and write; gate and input are read, their product written.
    tokens = LLAMA3_8B.sequence / 2
    assert moved.traffic == 2 * tokens * (4 * LLAMA3_8B.hidden + 3 * LLAMA3_8B.feed_forward)


@pytest.mark.parametrize("tensor", [1, 4])
def test_checkpoints_of_pytorch_do_again_what_the_backward_pass_needs(tensor: int) -> None:
    """Llama 3 8B by hand: keys, output and one input of the nonlinearity; or all but the last."""
    model, tokens = get_transformer("llama3-8b"), 2 * 8192
    stack = get_stack("fsdp2")
    layout = Layout(tensor=tensor, sequence_parallel=tensor > 1, microbatch=2)
    plain = layer_costs(training_of(model, replace(layout, recompute="none"), stack), 0)
    some = layer_costs(
        training_of(model, replace(layout, recompute="selective"), stack), 0
    ).recompute
    assert some.attention_flops == 0.0
    assert some.flops * tensor == 2 * tokens * 4096 * (1024 + 4096 + 14336)
    whole = layer_costs(training_of(model, replace(layout, recompute="full"), stack), 0).recompute
    assert (plain.forward.flops - whole.flops) * tensor == 2 * tokens * 4096 * 14336
    assert whole.attention_flops == plain.forward.attention_flops
    megatron = layer_costs(training_of(model, replace(layout, recompute="full")), 0)
    assert megatron.recompute.flops == megatron.forward.flops
    # A norm after the last product reads what that makes.
    normed = replace(model, layer_norms=4)
    every = layer_costs(training_of(normed, replace(layout, recompute="full"), stack), 0)
    assert every.recompute.flops == every.forward.flops
