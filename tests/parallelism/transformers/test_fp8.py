"""FP8 training in closed forms: which products, what casts move, what is kept."""

from dataclasses import replace

import pytest

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.choices import Choices
from parallelism.transformers.collectives import layer_communications, step_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.end_costs import head_costs
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import Implementation, get_stack
from parallelism.transformers.iteration import optimizer_seconds
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from parallelism.transformers.loads import loads_of
from parallelism.transformers.pass_seconds import all_part_seconds
from parallelism.transformers.placement import Placement
from parallelism.transformers.stages import stage_weights
from parallelism.transformers.work import Gemm, product_costs
from tests.helpers.small_transformers import LATENT, LLAMA3_8B, MIXTRAL
from tests.helpers.trainings import training_of
from topoopt.problem.job import nvlink_server

BF16, FP8 = Implementation(), Implementation(precision="fp8")


def test_an_fp8_product_reads_bytes_and_casts_input_and_output_gradient() -> None:
    m, n, k, count = 3.0, 5.0, 7.0, 2.0
    low, high = product_costs(m, n, k, count, fp8=True), product_costs(m, n, k, count)
    assert low.flops == high.flops
    (forward,), (back,), (weight,) = (
        low.forward.gemms, low.backward_input.gemms, low.backward_weight.gemms
    )  # fmt: skip
    assert forward.traffic == count * (m * k + k * n + 2 * m * n)
    assert back.traffic == count * (m * n + n * k + 2 * m * k)
    assert weight.traffic == count * (k * m + m * n + 8 * k * n)
    # Read in two bytes, written in one, twice.
    assert low.forward.traffic == 4 * count * m * k
    assert low.backward_input.traffic == 4 * count * m * n
    apart = product_costs(m, n, k, count, 2.0, 4.0, False, True)
    assert apart.backward_weight.traffic == 10 * count * k * n


@pytest.mark.parametrize("model", [LLAMA3_8B, MIXTRAL, LATENT], ids=lambda m: m.name)
def test_all_products_of_a_layer_but_the_router_are_in_fp8(model) -> None:
    layout = Layout(tensor=2)
    layer = model.layers - 1
    gemms = layer_costs(training_of(model, layout, FP8), layer).forward.gemms
    high = [gemm for gemm in gemms if not gemm.fp8]
    routers = [model.experts.count] if model.has_experts(layer) else []
    assert [gemm.n for gemm in high] == routers
    assert all(gemm.operand_bytes == 1.0 for gemm in gemms if gemm.fp8)
    assert not any(gemm.fp8 for gemm in head_costs(training_of(model, layout, FP8)).forward.gemms)
    plain = layer_costs(training_of(model, layout, BF16), layer)
    assert layer_costs(training_of(model, layout, FP8), layer).flops == pytest.approx(plain.flops)
    assert not any(gemm.fp8 for work in plain.passes for gemm in work.gemms)


def test_large_products_take_their_share_of_the_fp8_peak() -> None:
    rates = rates_of("h100")
    size = 2.0**17
    gemm = Gemm(size, size, size, 1.0, 2.0, 1.0, True)
    endless = 2 * size**3 / (1979e12 * rates.fp8_efficiency)
    assert rates.gemm_seconds(gemm) == pytest.approx(endless * (1 + 300 / size), rel=1e-3)
    with pytest.raises(InputError, match="no fp8 peak"):
        rates_of("a100").gemm_seconds(gemm)
    with pytest.raises(InputError, match="fp8_efficiency"):
        replace(rates, fp8_efficiency=0.0)


def test_kept_inputs_of_products_take_one_byte() -> None:
    """A gated layer keeps inputs of two norms, queries, keys, values, gate, up in two bytes."""
    model, layout = LLAMA3_8B, Layout(tensor=2)
    tokens = float(model.sequence)
    h, f = model.hidden, model.feed_forward
    wide = model.attention.query_width + 2 * model.attention.kv_heads * model.attention.head_width
    high = 2 * (2 * h + wide + model.attention.value_width + 2 * f) * tokens / 2
    low = (2 * h + model.attention.value_width + f) * tokens / 2
    assert layer_activations(training_of(model, layout, FP8), 0).rest == pytest.approx(high + low)
    same = 2 * (4 * h + wide + model.attention.value_width + 3 * f) * tokens / 2
    assert layer_activations(training_of(model, layout, BF16), 0).rest == pytest.approx(same)


def test_weights_are_cast_once_an_iteration() -> None:
    rates, layout = rates_of("h100"), Layout(tensor=2, pipeline=2, data=4)
    most = max(count.dense + count.expert for count in stage_weights(LLAMA3_8B, layout))
    low, high = (
        optimizer_seconds(training_of(LLAMA3_8B, layout, stack), rates) for stack in (FP8, BF16)
    )
    assert low - high == pytest.approx(rates.traffic_seconds(4 * most))


def test_fp8_needs_units_for_it() -> None:
    def family(name: str) -> LayoutFamily:
        server = nvlink_server(name, 8)
        return LayoutFamily(
            LLAMA3_8B, 64, 2, server, 8192, FP8, Choices(), rates_of(server.accelerator), 0.0
        )

    with pytest.raises(InputError, match="accelerator 'a100-80gb' has no fp8 peak"):
        family("a100")
    placement = Placement(Layout(8, data=2), 8)
    assert any("FP8" in line for line in family("h100").assumptions(placement))
    assert get_accelerator("h100").fp8_flops == 1979e12
    with pytest.raises(InputError, match="precision is 'fp4'; give bf16 or fp8"):
        get_stack("megatron-core", precision="fp4")  # type: ignore[arg-type]
    assert get_stack("fsdp2", precision="fp8").precision == "fp8"
    assert get_stack("fsdp2").precision == "bf16"


def test_casts_of_a_stack_move_its_factor_of_their_bytes() -> None:
    layout, width = Layout(), LLAMA3_8B.attention.query_width
    tokens, h, f = float(LLAMA3_8B.sequence), LLAMA3_8B.hidden, LLAMA3_8B.feed_forward
    plain, more = (
        layer_costs(training_of(LLAMA3_8B, layout, replace(FP8, casts=c)), 0) for c in (1.0, 3.0)
    )
    inputs = tokens * (h + width + h + f)
    key_value = 2 * LLAMA3_8B.attention.kv_heads * LLAMA3_8B.attention.head_width
    gradients = tokens * (width + key_value + h + 2 * f + h)
    assert more.forward.traffic - plain.forward.traffic == pytest.approx(2 * 4 * inputs)
    moved = more.backward_input.traffic - plain.backward_input.traffic
    assert moved == pytest.approx(2 * 4 * gradients)
    with pytest.raises(InputError, match="casts"):
        replace(FP8, casts=0.5)


def test_what_a_tensor_group_gathers_in_fp8_is_cast_before_and_sent_in_bytes() -> None:
    """Each of t ranks reads two bytes and writes one of its tokens, then moves two of all."""
    t, h = 4, LLAMA3_8B.hidden
    layout, tokens = Layout(tensor=t), float(LLAMA3_8B.sequence)
    high, low = (
        layer_costs(training_of(LLAMA3_8B, layout, replace(FP8, fp8_gather=g)), 0)
        for g in (False, True)
    )
    saved = 2 * tokens * h * (4 - (3 / t + 2))  # before attention, before the feed-forward part
    for when in ("forward", "backward_input"):
        traffic = [getattr(each, when).traffic for each in (high, low)]
        assert traffic[0] - traffic[1] == pytest.approx(saved)
    alone = Layout(tensor=t, sequence_parallel=False)
    assert layer_costs(
        training_of(LLAMA3_8B, alone, replace(FP8, fp8_gather=True)), 0
    ) == layer_costs(training_of(LLAMA3_8B, alone, FP8), 0)
    whole = 2.0 * tokens * h
    sizes = {
        (m.kind, m.size)
        for m in layer_communications(
            training_of(LLAMA3_8B, layout, replace(FP8, fp8_gather=True)), 0
        )
    }
    assert sizes == {("allgather", whole / 2), ("reducescatter", whole)}
    mixed = layer_communications(
        training_of(MIXTRAL, Layout(tensor=2), replace(FP8, fp8_gather=True)), 0
    )
    arriving = 2.0 * MIXTRAL.sequence * MIXTRAL.hidden * MIXTRAL.experts.per_token
    assert {m.size for m in mixed if m.exposed} == {arriving}


def test_outputs_that_a_tensor_group_sums_may_be_sent_in_bytes_forward_only() -> None:
    layout, whole = Layout(tensor=4), 2.0 * LLAMA3_8B.sequence * LLAMA3_8B.hidden
    stack = replace(FP8, fp8_scatter=True)
    for precision, forward in (("fp8", whole / 2), ("bf16", whole)):
        found = layer_communications(
            training_of(LLAMA3_8B, layout, replace(stack, precision=precision)), 0
        )
        sums = {m.when: m.size for m in found if m.kind == "reducescatter"}
        assert sums == {"forward": forward, "backward": whole}
        assert {m.size for m in found if m.kind == "allgather"} == {whole}
    mixed = layer_communications(training_of(MIXTRAL, Layout(tensor=2), stack), 0)
    arriving = 2.0 * MIXTRAL.sequence * MIXTRAL.hidden * MIXTRAL.experts.per_token
    assert {m.size for m in mixed if m.exposed} == {arriving}


def test_updated_weights_may_be_gathered_in_bytes() -> None:
    layout = Layout(data=8)
    plain, low = (
        {m.kind: m.size for m in step_communications(training_of(LLAMA3_8B, layout, stack), 1)[0]}
        for stack in (FP8, replace(FP8, fp8_weights=True))
    )
    assert low["allgather"] == plain["allgather"] / 2
    assert low["reducescatter"] == plain["reducescatter"]
    wide = step_communications(training_of(LLAMA3_8B, layout, replace(BF16, fp8_weights=True)), 1)
    assert wide == step_communications(training_of(LLAMA3_8B, layout, BF16), 1)


@pytest.mark.parametrize(
    ("layout", "steps"),
    [
        (Layout(tensor=2, data=4), 7 * 3e-6),
        (Layout(tensor=4, data=8), 7 * 3e-6 + 2 * 10e-6),  # on four servers: up a tree of two steps
        (Layout(), 0.0),
    ],
)
def test_delayed_scales_cost_two_small_allreduces_a_part_and_microbatch(layout, steps) -> None:
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    layout = replace(layout, pipeline=2, virtual_stages=2, schedule="interleaved", microbatch=1)
    stack = replace(FP8, delayed_scaling=True)
    plain, scaled = (
        all_part_seconds(training_of(LLAMA3_8B, layout, each), rates, links)
        for each in (FP8, stack)
    )
    for before, after in zip(plain, scaled, strict=True):
        # Up and down.
        assert after.forward - before.forward == pytest.approx(2 * steps, abs=1e-12)
        assert after.backward - before.backward == pytest.approx(2 * steps, abs=1e-12)
        assert after.weight == before.weight
    wide = replace(BF16, delayed_scaling=True)
    assert all_part_seconds(training_of(LLAMA3_8B, layout, wide), rates, links) == all_part_seconds(
        training_of(LLAMA3_8B, layout, BF16), rates, links
    )


def test_a_placed_layout_sums_scales_and_gathers_weights_as_the_formula_does() -> None:
    server, rates = nvlink_server("h100", 8), rates_of("h100")
    placement = Placement(Layout(data=16), 8)
    stack = replace(FP8, delayed_scaling=True, fp8_weights=True)
    plain, low = (
        loads_of(training_of(LLAMA3_8B, placement.layout, each), placement, rates, server)
        for each in (FP8, stack)
    )
    once = 2 * (7 * 3e-6 + 10e-6)
    assert low.seconds[:2] - plain.seconds[:2] == pytest.approx(once, abs=1e-12)
    assert [w.dense for w in low.weights] == [w.dense / 2 for w in plain.weights]
    assert low.gradients == plain.gradients
