"""Memory against published formulas and figures."""

from dataclasses import replace

import numpy as np
import pytest
from pipeline_parts import part_of
from trainings import training_of

from codesign_base import InputError
from parallelism.transformers.activations import layer_activations, part_activations
from parallelism.transformers.implementation import FSDP2, MEGATRON_2022, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.memory import (
    memory_use,
    peak_held,
    state_bytes,
)
from parallelism.transformers.schedules import PassKind, build_schedule, schedule_of
from parallelism.transformers.stages import (
    WeightCount,
    layer_weights,
    parts_of,
    stage_weights,
)
from tests.helpers.small_transformers import (
    CHOSEN,
    DENSE_MODULES,
    FURTHER_TOKENS,
    GPT3_175B,
    GPT_1T,
    GPT_22B,
    GPT_530B,
    LATENT,
    LLAMA3_8B,
    MIXTRAL,
    VISION,
    gpt,
)

# Korthikanti et al. (2022), table 3: model, tensor, pipeline, interleaving, microbatch, batch.
PUBLISHED = [
    (GPT_22B, 8, 1, 1, 4, 4),
    (GPT3_175B, 8, 8, 3, 1, 64),
    (GPT_530B, 8, 35, 3, 1, 280),
    (GPT_1T, 8, 64, 1, 1, 512),
]


@pytest.mark.parametrize("model", [GPT_22B, GPT3_175B, GPT_530B, GPT_1T], ids=lambda m: m.name)
@pytest.mark.parametrize("tensor", [1, 8])
def test_activations_of_a_layer_are_the_published_formulas(model, tensor) -> None:
    """Korthikanti et al. (2022), table 2."""
    sbh = 2048 * 4 * model.hidden
    scores = 5 * model.attention.heads * 2048 / model.hidden
    plain = Layout(tensor=tensor, microbatch=4, sequence_parallel=False)
    split = replace(plain, sequence_parallel=True)
    one = layer_activations(training_of(model, plain, MEGATRON_2022), 0)
    assert one.rest + one.core == pytest.approx(sbh * (10 + 24 / tensor + scores / tensor))
    assert one.rest == pytest.approx(sbh * (10 + 24 / tensor))
    assert one.input == pytest.approx(2 * sbh)
    one = layer_activations(training_of(model, split, MEGATRON_2022), 0)
    assert one.rest + one.core == pytest.approx(sbh / tensor * (34 + scores))
    assert one.input == pytest.approx(2 * sbh / tensor)


@pytest.mark.parametrize(
    ("model", "saved"), [(GPT3_175B, 0.70), (GPT_530B, 0.65)], ids=["175B", "530B"]
)
def test_selective_recomputation_saves_the_published_share(model, saved) -> None:
    """Korthikanti et al. (2022), section 5: 70 % of GPT-3's activations, 65 % of MT-NLG's."""
    one = layer_activations(training_of(model, Layout(tensor=8), MEGATRON_2022), 0)
    assert one.core / (one.core + one.rest) == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize(("model", "t", "p", "v", "b", "batch"), PUBLISHED)
@pytest.mark.parametrize("saving", [False, True])
def test_first_stages_are_within_five_per_cent_of_the_published_model(
    model, t, p, v, b, batch, saving
) -> None:
    """Korthikanti et al. (2022), equation 5 and figure 1: activations of the first stage."""
    layout = Layout(
        tensor=t, pipeline=p, virtual_stages=v, microbatch=b, sequence_parallel=saving, zero=0,
        recompute="selective" if saving else "none",
        schedule="interleaved" if v > 1 else "1f1b",
    )  # fmt: skip
    scores = 5 * model.attention.heads * 2048 / model.hidden
    factor = 34 / t if saving else 10 + 24 / t + scores / t
    share = 1 + (p - 1) / (p * v) if v > 1 else 1
    published = 2048 * b * model.hidden * model.layers * factor * share
    use = memory_use(training_of(model, layout, MEGATRON_2022), schedule_of(layout, batch))
    assert use[0].activations == pytest.approx(published, rel=0.05)
    # 18 bytes a weight of the matrices; stages in the middle have no embedding.
    states = 18 * 12 * model.layers * model.hidden**2 / (t * p)
    assert use[p // 2].states == pytest.approx(states, rel=0.05)


@pytest.mark.parametrize(
    ("billions", "published"),
    [(7.5, (31.4, 16.6, 1.88)), (128, (536, 284, 32)), (1000, (4187, 2218, 250))],
)
def test_states_are_those_of_the_zero_paper(billions, published) -> None:
    """Rajbhandari et al. (2020), table 1, 64 data-parallel ranks, gigabytes."""
    kept = Implementation(gradient_bytes=2, optimizer_bytes=12)
    for zero, gigabytes in enumerate((16 * billions, *published)):
        layout = Layout(data=64, zero=zero)
        states = state_bytes(training_of(GPT_22B, layout, kept), WeightCount(billions * 1e9))
        assert sum(states) / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_each_copy_of_sharded_states_takes_what_fewer_ranks_do(zero) -> None:
    """16 ranks in copies of 4 hold what 4 ranks do."""
    copied = Layout(data=8, context=2, expert=2, zero=zero, replicate=4)
    few = replace(copied, data=2, replicate=1)
    counts = WeightCount(7e9, 3e9)
    one, other = (state_bytes(training_of(MIXTRAL, each), counts) for each in (copied, few))
    assert one == other


@pytest.mark.parametrize(
    "model", [GPT_22B, LLAMA3_8B, MIXTRAL, LATENT, CHOSEN, FURTHER_TOKENS, DENSE_MODULES, VISION]
)
def test_weights_of_one_gpu_are_the_parameters(model) -> None:
    (one,) = stage_weights(model, Layout())
    assert one.dense + one.expert == model.parameters


@pytest.mark.parametrize(
    "model", [GPT_22B, LLAMA3_8B, MIXTRAL, LATENT, FURTHER_TOKENS, DENSE_MODULES]
)
def test_splitting_loses_no_weights(model) -> None:
    layers = [layer_weights(model, i, Layout(tensor=4, data=4, expert=4)) for i in range(4)]
    for index, one in enumerate(layers):
        whole = model.layer_parameters(index)
        replicated = 4 * (one.dense + 4 * one.expert) - whole
        assert 0 < replicated < 0.35 * whole
    # The last stage has an embedding of its own, as output projection or to look tokens up.
    again = model.vocabulary * model.hidden if model.tied or model.mtp_layers else 0
    total = sum(w.dense + w.expert for w in stage_weights(model, Layout(pipeline=4)))
    assert total == model.parameters + again


def test_parts_cover_the_layers_and_spare_the_ends() -> None:
    layout = Layout(pipeline=4, virtual_stages=2, schedule="interleaved")
    parts = parts_of(gpt(11, 512, 8), layout)
    assert [part.layers for part in parts] == [1, 1, 2, 2, 2, 1, 1, 1]
    assert [part.stage for part in parts] == [0, 1, 2, 3] * 2
    assert parts[0].embedding
    assert parts[-1].head
    assert parts[-1].first + parts[-1].layers == 11


def test_peaks_follow_the_order_of_passes() -> None:
    for name, chunks in (("gpipe", 1), ("1f1b", 1), ("breadth-first", 3), ("zero-bubble", 1),
                         ("zero-bubble-v", 2), ("breadth-first", 8)):  # fmt: skip
        schedule = build_schedule(name, 4, 200 if chunks == 8 else 8, chunks)
        held = np.random.default_rng(1).uniform(1.0, 2.0, 4 * chunks)
        for more in (0.0, 0.5):
            peaks = peak_held(schedule, held, held + more) if more else peak_held(schedule, held)
            for stage in range(4):
                now = best = 0.0
                for kind, chunk, _ in schedule.passes[stage].tolist():
                    size = held[part_of(name, 4, stage, chunk)]
                    after = size + more if schedule.split_backward else 0.0
                    now += (size, after - size, -after)[kind]
                    best = max(best, now)
                assert peaks[stage] == pytest.approx(best)
                assert now == pytest.approx(0.0)


@pytest.mark.parametrize("schedule", ["zero-bubble", "zero-bubble-v"])
@pytest.mark.parametrize("recompute", ["full", "selective", "modules"])
def test_what_is_computed_again_stays_for_gradients_of_weights(schedule, recompute) -> None:
    """They need the inputs of products, which the backward pass for inputs has made again."""
    folded = schedule == "zero-bubble-v"
    model = replace(LLAMA3_8B, vocabulary=32)
    layout = Layout(pipeline=4, schedule=schedule, virtual_stages=1 + folded)
    names = ("norms", "activations") if recompute == "modules" else ()
    stack = replace(FSDP2, held=1.0)  # whose selective recomputation does more than scores again
    some = replace(layout, recompute=recompute, modules=names)
    order = schedule_of(layout, 16)
    plain, again = (memory_use(training_of(model, one, stack), order) for one in (layout, some))
    one = part_activations(training_of(model, layout, stack), parts_of(model, layout)[1])
    kept = part_activations(training_of(model, some, stack), parts_of(model, some)[1])
    assert kept < one
    # Weight passes of the last stage lag most.
    kinds = order.passes[3, :, 0]
    late = int((np.cumsum(kinds == PassKind.BACKWARD) - np.cumsum(kinds == PassKind.WEIGHT)).max())
    assert late == (7 if folded else 4)
    assert again[3].activations >= 0.99 * late * one  # but for sums of rows of scores
    for less, more in zip(again, plain, strict=True):
        assert less.activations <= more.activations * (1 + 1e-12)
    joint = Layout(pipeline=4, recompute=recompute, modules=names)
    before = memory_use(training_of(model, joint, stack), schedule_of(joint, 16))
    assert again[3].activations > 2 * before[3].activations


def test_recomputation_and_sharding_save_what_they_should() -> None:
    base = Layout(tensor=4, data=8, pipeline=2, zero=0)
    schedule = schedule_of(base, 64)
    totals = [
        memory_use(training_of(GPT_22B, replace(base, recompute=kind), MEGATRON_2022), schedule)[
            0
        ].activations
        for kind in ("none", "selective", "full")
    ]
    assert totals == sorted(totals, reverse=True)
    sharded = [
        memory_use(training_of(GPT_22B, replace(base, zero=z)), schedule)[0].states
        for z in range(4)
    ]
    assert sharded == sorted(sharded, reverse=True)
    assert sharded[3] == pytest.approx(sharded[0] / 8)


def test_expert_states_are_sharded_over_fewer_ranks() -> None:
    layout = Layout(data=8, expert=4, zero=1)
    dense, expert = (
        state_bytes(training_of(MIXTRAL, layout, Implementation()), count)[2]
        for count in (WeightCount(8.0, 0.0), WeightCount(0.0, 8.0))
    )
    assert (dense, expert) == (12.0, 48.0)


def test_a_fused_kernel_keeps_no_scores() -> None:
    plain = memory_use(
        training_of(LLAMA3_8B, Layout(), Implementation(flash=False)), schedule_of(Layout(), 1)
    )[0].activations
    fused = memory_use(training_of(LLAMA3_8B, Layout()), schedule_of(Layout(), 1))[0].activations
    assert plain - fused == pytest.approx(32 * 32 * (2 * 8192**2 - 4 * 8192))


def test_layouts_that_do_not_split_the_model_are_refused() -> None:
    for layout, words in (
        (Layout(tensor=3), "heads"),
        (Layout(pipeline=64), "layers"),
        (Layout(data=3, expert=3), "experts"),
    ):
        with pytest.raises(InputError, match=words):
            memory_use(training_of(LLAMA3_8B, layout), schedule_of(layout, 192))


@pytest.mark.parametrize("norms", [1, 2, 4])
@pytest.mark.parametrize("experts", [False, True])
def test_parts_hold_every_parameter_whatever_the_norms(norms, experts) -> None:
    model = replace(
        LATENT if experts else LLAMA3_8B, layer_norms=norms, parallel=norms == 1
    )  # fmt: skip
    total = stage_weights(model, Layout())[0]
    assert total.dense + total.expert == model.parameters
    one, two = (
        layer_activations(
            training_of(replace(model, layer_norms=n, parallel=n == 1), Layout()), 1
        ).rest
        for n in (norms, 2)
    )
    # An input of every norm; attention and feed-forward part share theirs where one norm does.
    inputs = {1: -2, 2: 0, 4: 2}[norms] * 2.0 * model.sequence * model.hidden
    assert one - two == pytest.approx(inputs)


@pytest.mark.parametrize("vocabulary", [32000, 128256])
def test_what_is_sharded_is_whole_while_it_is_at_work(vocabulary: int) -> None:
    """Gradients of the largest of layer, embedding and projection; its weights and a layer's."""
    model = replace(LLAMA3_8B, vocabulary=vocabulary)

    def rooms(layout: Layout) -> list[float]:
        uses = [
            memory_use(training_of(model, replace(layout, zero=zero)), schedule_of(layout, 8))
            for zero in range(4)
        ]
        assert uses[0][0].buffers == uses[1][0].buffers
        return [use[stage].buffers - uses[1][stage].buffers
                for use in uses[2:] for stage in range(layout.pipeline)]  # fmt: skip

    layer = model.layer_parameters(0)
    most = max(layer, vocabulary * 4096)
    assert rooms(Layout(data=8)) == pytest.approx([4 * most, 2 * layer + (2 + 4) * most])
    assert rooms(Layout(data=2, pipeline=4))[:4] == pytest.approx(
        [4 * most, 4 * layer, 4 * layer, 4 * most]
    )
    # Nothing is gathered or scattered where no other rank has the same.
    assert rooms(Layout(pipeline=2)) == [0.0] * 4


def test_experts_on_one_rank_each_need_no_room_to_be_gathered() -> None:
    """Mixtral's eight on eight ranks; on 16 two ranks have each."""
    rooms = []
    for data in (8, 16):
        uses = [
            memory_use(training_of(MIXTRAL, layout), schedule_of(layout, 16))[0].buffers
            for layout in (Layout(data=data, expert=8, zero=zero) for zero in (1, 3))
        ]
        rooms.append(uses[1] - uses[0])
    table, expert = 32000 * 4096, 3 * 4096 * 14336
    dense = MIXTRAL.layer_parameters(0) - 8 * expert
    assert rooms == pytest.approx([2 * dense + 6 * table, (2 + 6) * (dense + expert)])


def test_modules_that_are_computed_again_are_not_kept() -> None:
    """Outputs of two norms, queries, keys and values of 24 heads, products of gate and input."""
    plain = Layout(tensor=2)
    tokens, heads = float(LATENT.sequence), LATENT.attention.heads
    latent, experts = LATENT.attention.latent, LATENT.experts
    assert latent is not None
    assert experts is not None
    kept = layer_activations(training_of(LATENT, plain), 1).rest
    less = {
        "norms": 2 * tokens / 2 * (2 * LATENT.hidden + latent.kv_rank + latent.query_rank),
        "up-projections": 2 * tokens / 2
        * (2 * LATENT.attention.query_width + heads * latent.value_width),
        "activations": 2 * tokens / 2
        * (experts.per_token * experts.width + experts.shared * experts.shared_width),
    }  # fmt: skip
    for name, size in less.items():
        one = replace(plain, recompute="modules", modules=(name,))
        assert kept - layer_activations(training_of(LATENT, one), 1).rest == pytest.approx(size)
    every = replace(plain, recompute="modules", modules=tuple(less))
    assert kept - layer_activations(training_of(LATENT, every), 1).rest == pytest.approx(
        sum(less.values())
    )
    with pytest.raises(InputError, match="in this order"):
        Layout(recompute="modules", modules=("activations", "norms"))
    with pytest.raises(InputError, match="modules is"):
        Layout(recompute="modules")
    with pytest.raises(InputError, match="modules is"):
        Layout(modules=("norms",))
