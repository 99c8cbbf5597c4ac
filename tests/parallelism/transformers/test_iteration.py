"""Times of products and iterations: limits, closed forms and what should move them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.transformers.collectives import Communication, layer_communications
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.exposure import breadth_first_seconds, group_placement
from parallelism.transformers.gpu import GpuRates, rates_of
from parallelism.transformers.implementation import MEGATRON_2022, MEGATRON_CORE, Implementation
from parallelism.transformers.iteration import iteration_time, optimizer_seconds, pass_times
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import GroupPlacement, Links, switched_links
from parallelism.transformers.pass_seconds import (
    all_part_seconds,
    layer_seconds,
    part_seconds,
    shard_seconds,
)
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import all_part_weights, parts_of
from parallelism.transformers.timeline import PipelineTimeline, timeline
from parallelism.transformers.work import Gemm
from tests.helpers.small_transformers import GPT_22B, LLAMA3_8B, MIXTRAL, gpt
from tests.helpers.trainings import training_of

RATES = rates_of("a100")
LINKS = switched_links(8, 300e9, 25e9)
FREE = Links(8, 1e30, 1e30)


def pipeline(model, layout, batch, links=LINKS, stack=MEGATRON_CORE) -> PipelineTimeline:
    training = training_of(model, layout, stack)
    times = pass_times(training, all_part_seconds(training, RATES, links), links)
    return timeline(schedule_of(layout, batch), times)


def exposed_sums_of(model, layout, batch, links=LINKS, stack=MEGATRON_CORE) -> float:
    """The rest of an iteration but for pipeline and optimizer: sums of gradients, weights."""
    training, schedule = training_of(model, layout, stack), schedule_of(layout, batch)
    step = optimizer_seconds(training, RATES) + stack.iteration_s
    ends = pipeline(model, layout, batch, links, stack).makespan
    return iteration_time(training, schedule, RATES, links) - step - ends


def test_large_products_reach_their_efficiency_and_small_ones_do_not() -> None:
    huge = Gemm(1e6, 1e6, 1e6)
    peak = get_accelerator("a100").bf16_flops * RATES.product_efficiency
    assert RATES.gemm_seconds(huge) == pytest.approx(huge.flops / peak, rel=0.001)
    reached = [
        Gemm(n, n, n).flops / RATES.gemm_seconds(Gemm(n, n, n)) for n in (64, 256, 1024, 8192)
    ]
    assert reached == sorted(reached)
    assert reached[-1] < peak
    assert RATES.gemm_seconds(Gemm(1, 1, 1)) == pytest.approx(RATES.launch, rel=0.01)


def test_thin_products_move_bytes() -> None:
    thin = Gemm(1e6, 1e6, 1)
    least = RATES.traffic_seconds(thin.traffic)
    assert RATES.gemm_seconds(thin) > least
    assert RATES.traffic_seconds(1e9) == pytest.approx(1e9 / (2.039e12 * 0.85))


def test_unknown_accelerators_and_rates_are_refused() -> None:
    with pytest.raises(InputError, match="no rates"):
        rates_of(replace(get_accelerator("a100"), name="tpu-9"))
    with pytest.raises(InputError, match="product_efficiency"):
        replace(RATES, product_efficiency=1.2)
    with pytest.raises(InputError, match="launch"):
        GpuRates(get_accelerator("a100"), 0.8, 64.0, 0.5, 0.8, -1.0)


def test_a_lone_stage_takes_its_microbatches_one_after_the_other() -> None:
    layout = Layout(tensor=8, microbatch=2, zero=0)
    training = training_of(GPT_22B, layout, MEGATRON_2022)
    (part,) = all_part_seconds(training, RATES, LINKS)
    found = iteration_time(training, schedule_of(layout, 8), RATES, LINKS)
    each = part.forward + part.backward + part.weight
    step = optimizer_seconds(training, RATES) + MEGATRON_2022.iteration_s
    assert found == pytest.approx(4 * each + step)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubbles_follow_the_closed_form_where_stages_are_alike(name) -> None:
    # Embedding and head are small beside 24 wide layers a stage.
    model = gpt(96, 8192, 64, vocabulary=1)
    layout = Layout(tensor=8, pipeline=4, schedule=name, recompute="full")
    run = pipeline(model, layout, 16, FREE, Implementation())
    busiest = float(run.duration.sum(axis=1).max())
    assert run.makespan / busiest - 1.0 == pytest.approx(3 / 16, rel=0.01)


def test_zero_bubble_and_interleaving_shorten_the_pipeline() -> None:
    base = Layout(tensor=8, pipeline=4)
    times = {
        layout.schedule: pipeline(GPT_22B, layout, 16).makespan
        for layout in (
            base,
            replace(base, schedule="zero-bubble"),
            replace(base, schedule="interleaved", virtual_stages=4),
        )
    }
    assert times["zero-bubble"] < times["1f1b"]
    assert times["interleaved"] < times["1f1b"]


def test_recomputation_costs_a_forward_pass_and_selective_far_less() -> None:
    times = {}
    for kind in ("none", "selective", "full"):
        layout = Layout(tensor=8, microbatch=4, recompute=kind, zero=0)  # type: ignore[arg-type]
        training = training_of(GPT_22B, layout, MEGATRON_2022)
        times[kind] = iteration_time(training, schedule_of(layout, 4), RATES, LINKS)
    # Korthikanti et al. (2022), table 4: 39 % and 7 % more.
    assert times["full"] / times["none"] - 1 == pytest.approx(0.36, abs=0.05)
    assert times["selective"] / times["none"] - 1 == pytest.approx(0.06, abs=0.02)


def test_gradients_hide_behind_the_backward_pass_where_there_is_room() -> None:
    layout = Layout(tensor=8, data=16, microbatch=4, zero=0)
    shown = exposed_sums_of(GPT_22B, layout, 64, stack=MEGATRON_2022)
    size = 4 * (GPT_22B.parameters - 2 * 6144 * 48 * 3) / 8
    assert shown == pytest.approx(2 * 15 / 16 * size / (25e9 * 0.8), rel=0.02)
    (part,) = all_part_seconds(training_of(GPT_22B, layout), RATES, LINKS)
    over = exposed_sums_of(GPT_22B, layout, 64)
    assert over == pytest.approx(shown - part.backward - part.weight)
    long = exposed_sums_of(GPT_22B, replace(layout, microbatch=16), 256)
    assert long == pytest.approx(0.0, abs=1e-9)


def simulated_one_by_one(sent, passes, rounds) -> float:
    """Event by event: backward passes from the inner part out, sums in the order they begin."""
    now = free = 0.0
    for part in reversed(range(len(passes))):
        now += (rounds - 1) * passes[part]
        begin = now  # of the last microbatch
        now += passes[part]
        free = max(free, begin) + sent[part]
    return max(0.0, free - now)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 2)), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_breadth_first_parts_sum_behind_those_outside_of_them(parts, rounds) -> None:
    sent, passes = zip(*parts, strict=True)
    found = breadth_first_seconds(sent, passes, rounds)
    assert found == pytest.approx(simulated_one_by_one(sent, passes, rounds), abs=1e-9)


def test_breadth_first_the_outermost_part_s_sum_stays() -> None:
    """With 64 microbatches inner parts' sums are long done; one pass hides of the outermost's."""
    slow = replace(LINKS, inter_bandwidth=2e9)
    layout = Layout(
        tensor=8, pipeline=4, data=2, schedule="breadth-first", virtual_stages=4, zero=0
    )
    weights = [count.dense for count in all_part_weights(GPT_22B, layout)]
    tied = GPT_22B.vocabulary * GPT_22B.hidden / 8
    rate = slow.rates()[1]
    sums = [4 * weight / rate for weight in weights]
    passes = [
        one.backward + one.weight
        for one in all_part_seconds(training_of(GPT_22B, layout), RATES, slow)
    ]
    # The last stage waits for the tied embedding besides, and its outermost part is smaller.
    ends = [sums[0] - passes[0] + 4 * tied / rate, sums[3] - passes[3] + 4 * tied / rate]
    found = exposed_sums_of(GPT_22B, layout, 128, slow)
    assert found == pytest.approx(max(ends), rel=0.02)
    whole = pipeline(GPT_22B, layout, 128, slow).makespan
    assert max(sums) - min(passes) > 0.1 * whole


def test_sharding_the_optimizer_shortens_its_step() -> None:
    layout = Layout(tensor=8, data=16)
    whole = optimizer_seconds(training_of(GPT_22B, replace(layout, zero=0)), RATES)
    assert optimizer_seconds(training_of(GPT_22B, layout), RATES) == pytest.approx(whole / 16)


def test_context_rings_hide_behind_long_attention() -> None:
    slow = Links(8, 1e12, 1e8)
    for links, hidden in ((LINKS, True), (slow, False)):
        times = []
        for layout, messages in _with_rings(Layout(tensor=2, context=8)):
            training = training_of(LLAMA3_8B, layout, sequence=131072)
            one = part_seconds(training, layer_costs(training, 0), messages, RATES, links)
            times.append(one.communication)
        assert (times[0] == pytest.approx(times[1])) == hidden


def _with_rings(layout: Layout):
    messages = layer_communications(training_of(LLAMA3_8B, layout, sequence=131072), 0)
    yield layout, messages
    yield layout, tuple(m for m in messages if m.kind != "ring")


def test_expert_parallelism_pays_for_distance_and_imbalance() -> None:
    near = Layout(data=8, expert=8)
    far = Layout(tensor=8, data=8, expert=8)
    for layout in (near, far):
        training, schedule = training_of(MIXTRAL, layout), schedule_of(layout, 64)
        uneven = training_of(MIXTRAL, layout, Implementation(load_imbalance=1.5))
        even = iteration_time(training, schedule, RATES, LINKS)
        assert iteration_time(uneven, schedule, RATES, LINKS) > even
        (part,) = all_part_seconds(training, RATES, LINKS)
        assert part.communication > 0
    assert model_flops(MIXTRAL, 64, MIXTRAL.sequence) / (even * 64) < 312e12


@pytest.mark.parametrize(
    ("layout", "group", "ranks", "span"),
    [
        (Layout(tensor=8, data=4), "tensor", 8, GroupPlacement(8, 8)),
        (Layout(tensor=8, data=4), "data", 4, GroupPlacement(4, 1)),
        (Layout(tensor=2, context=2, data=4), "data", 8, GroupPlacement(8, 4)),
        (Layout(tensor=2, context=2, data=4), "context", 2, GroupPlacement(2, 2)),
        (Layout(data=32, expert=8), "expert", 8, GroupPlacement(8, 8)),
        (Layout(data=32, expert=8), "expert-data", 4, GroupPlacement(4, 1)),
        (Layout(tensor=2, pipeline=4), "pipeline", 2, GroupPlacement(2, 2)),
        (Layout(tensor=4, pipeline=4), "pipeline", 2, GroupPlacement(2, 1)),
        (Layout(pipeline=8), "embedding", 2, GroupPlacement(2, 2)),
    ],
)
def test_groups_lie_on_servers_in_rank_order(layout, group, ranks, span) -> None:
    message = Communication("allreduce", group, ranks, 1.0, 1, "forward")
    assert group_placement(message, layout, LINKS) == span


@pytest.mark.parametrize(("expert", "recompute", "passes"), [
    (8, "none", (1, 0)), (8, "full", (1, 1)), (1, "none", (0, 0)),
])  # fmt: skip
def test_experts_on_several_ranks_wait_to_know_their_tokens(expert, recompute, passes) -> None:
    """Once forward, and again where the layer is done again."""
    layout, wait = Layout(data=8, expert=expert, recompute=recompute), 1e-3
    rates, links = rates_of("h100"), switched_links(8, 450e9, 50e9)
    stacks = [Implementation(dispatch_s=each) for each in (0.0, wait)]
    plain, waiting = (
        layer_seconds(training_of(MIXTRAL, layout, stack), 0, rates, links) for stack in stacks
    )
    more = (waiting.forward - plain.forward, waiting.backward - plain.backward)
    assert more == pytest.approx([count * wait for count in passes], abs=1e-12)
    dense = [
        layer_seconds(training_of(LLAMA3_8B, Layout(data=8), stack), 0, rates, links)
        for stack in stacks
    ]
    assert dense[0] == dense[1]


def test_messages_that_a_network_simulates_can_be_left_out() -> None:
    layout = Layout(tensor=2, data=8, expert=8)
    whole, rest, bare = (
        layer_seconds(training_of(MIXTRAL, layout), 0, RATES, LINKS, without=frozenset(left))
        for left in ((), ("expert",), ("expert", "tensor"))
    )
    assert whole.communication > rest.communication > bare.communication == 0.0
    assert whole.forward + whole.backward - whole.communication == pytest.approx(
        bare.forward + bare.backward
    )


@pytest.mark.parametrize("zero", [2, 3])
def test_experts_on_one_rank_each_are_not_copied_to_be_shared(zero: int) -> None:
    """What is gathered and scattered passes through flat buffers, 4 bytes an element."""
    seconds = {}
    for data in (8, 16):
        layout = Layout(data=data, expert=8, zero=zero)
        part = parts_of(MIXTRAL, layout)[0]
        seconds[data] = shard_seconds(training_of(MIXTRAL, layout), part, RATES)
    routed = 32 * 3 * 4096 * 14336
    dense = MIXTRAL.parameters - 8 * routed
    assert seconds[8].weight == pytest.approx(RATES.traffic_seconds(4.0 * dense))
    assert seconds[16].weight == pytest.approx(RATES.traffic_seconds(4.0 * (dense + routed)))
    assert seconds[8].forward == (seconds[8].weight if zero == 3 else 0.0)
    alone = Layout(pipeline=2, zero=zero)
    training = training_of(MIXTRAL, alone)
    assert shard_seconds(training, parts_of(MIXTRAL, alone)[0], RATES).weight == 0.0
