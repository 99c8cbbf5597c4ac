"""Whole feed-forward parts that are computed again in the backward pass."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_transformers import DENSE_MODULES, FURTHER_TOKENS, HYBRID, LATENT, LLAMA3_8B, ONE_PART
from trainings import training_of

from codesign_base import InputError
from parallelism.transformers.activations import layer_activations, part_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.choices import Choices
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.experts import Experts
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import MEGATRON_CORE, STACKS, get_stack
from parallelism.transformers.layout import Layout, Module
from parallelism.transformers.links import links_of
from parallelism.transformers.memory import memory_use
from parallelism.transformers.pass_seconds import layer_seconds
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import parts_of
from topoopt.problem.job import Job, nvlink_server

MODELS = [LLAMA3_8B, LATENT, FURTHER_TOKENS, DENSE_MODULES, HYBRID, ONE_PART]
ALL: tuple[Module, ...] = (
    "norms", "up-projections", "activations", "shared-experts", "experts", "feed-forward",
)  # fmt: skip


def again(layout: Layout, *modules: Module) -> Layout:
    return replace(layout, recompute="modules", modules=modules)


def less_kept(model: Transformer, layer: int, layout: Layout, *modules: Module) -> float:
    """Bytes that a layer no longer keeps."""
    plain, some = (
        layer_activations(training_of(model, one), layer)
        for one in (layout, again(layout, *modules))
    )
    assert plain.core == some.core
    return plain.rest - some.rest


def messages(model: Transformer, layer: int, layout: Layout) -> list[tuple[object, ...]]:
    """What is sent again, but for when."""
    found = layer_communications(training_of(model, layout), layer)
    return sorted(
        (m.group, m.kind, m.ranks, m.size, m.count) for m in found if m.when == "recompute"
    )


def test_a_mixture_by_hand_keeps_its_input_alone() -> None:
    """Of a token in BF16, with 4 of 16 gated experts of width 512 and one that all share.

    Megatron-Core's checkpoint of its ``MoELayer`` saves the hidden states that it gets.
    """
    layout, tokens = Layout(data=4, expert=4), LATENT.sequence
    scores, copies = 4 * 16, 4
    arrived = copies * 2 * (1024 + 3 * 512)  # as they come; gate, input and their product
    returned = copies * 2 * 1024  # before they are weighted
    shared = 2 * 3 * 512
    assert less_kept(LATENT, 1, layout, "experts") == tokens * (
        scores + arrived + returned + shared
    )
    assert less_kept(LATENT, 1, layout, "shared-experts") == tokens * shared
    # What is left: inputs of two norms and of both parts, and what attention keeps.
    bare = replace(LATENT, without_feed_forward=(1,))
    kept = layer_activations(training_of(LATENT, again(layout, "experts")), 1).rest
    assert kept - layer_activations(training_of(bare, layout), 1).rest == tokens * 2 * 2 * 1024
    with_norms = less_kept(LATENT, 1, layout, "norms", "experts")
    apart = less_kept(LATENT, 1, layout, "norms") + less_kept(LATENT, 1, layout, "experts")
    assert with_norms == apart


def test_a_dense_part_by_hand_keeps_its_input_alone() -> None:
    layout = Layout(tensor=2)
    assert less_kept(LLAMA3_8B, 0, layout, "feed-forward") == 8192 * 2 * 3 * 14336 / 2
    assert less_kept(LLAMA3_8B, 0, layout, "experts") == 0
    assert less_kept(LATENT, 0, layout, "experts") == 0
    assert less_kept(LATENT, 1, layout, "feed-forward") == 0


def test_an_input_that_is_kept_for_a_checkpoint_is_not_cast_or_gathered() -> None:
    stack = replace(MEGATRON_CORE, precision="fp8", gathered_inputs=True)
    layout, tokens = Layout(tensor=4), 8192
    plain, some = (
        layer_activations(training_of(LLAMA3_8B, one, stack), 0)
        for one in (layout, again(layout, "feed-forward"))
    )
    # Gate and input in two bytes, their product in one; the input in one byte on all ranks.
    part = tokens * (5 * 14336 / 4 + 4096)
    assert plain.rest - some.rest == part - tokens * 2 * 4096 / 4


def test_the_whole_forward_pass_of_a_part_is_done_again() -> None:
    layout = Layout(data=4, expert=4)
    bare = replace(LATENT, without_feed_forward=(1,))
    more = (
        layer_costs(training_of(LATENT, layout), 1).forward.flops
        - layer_costs(training_of(bare, layout), 1).forward.flops
    )
    assert layer_costs(training_of(LATENT, again(layout, "experts")), 1).recompute.flops == more
    shared = layer_costs(training_of(LATENT, again(layout, "shared-experts")), 1).recompute
    assert shared.flops == 2 * 512 * 3 * 1024 * 512
    # A checkpoint within one is done again with it, and before its own backward pass.
    both = layer_costs(training_of(LATENT, again(layout, "shared-experts", "experts")), 1).recompute
    assert both.flops == more + shared.flops
    twice = layer_costs(training_of(LATENT, again(layout, "activations", "experts")), 1).recompute
    once = layer_costs(training_of(LATENT, again(layout, "experts")), 1).recompute
    assert twice.traffic - once.traffic == 512 * 4 * 3 * 512 * 2
    dense = layer_costs(training_of(LLAMA3_8B, again(Layout(), "feed-forward")), 0).recompute
    assert dense.flops == 2 * 8192 * 3 * 4096 * 14336
    early = layer_costs(
        training_of(LLAMA3_8B, again(Layout(), "feed-forward"), get_stack("fsdp2")), 0
    ).recompute
    assert early.flops == 2 * 8192 * 2 * 4096 * 14336


def test_tokens_are_exchanged_both_ways_again() -> None:
    layout = Layout(data=4, expert=4)
    full = messages(LATENT, 1, replace(layout, recompute="full"))
    assert messages(LATENT, 1, again(layout, "experts")) == full
    assert [(m[0], m[4]) for m in full] == [("expert", 2)]
    for modules in (("norms",), ("shared-experts",), ("feed-forward",)):
        assert messages(LATENT, 1, again(layout, *modules)) == []
    # Megatron-Core waits for the numbers of tokens each time.
    stack = replace(MEGATRON_CORE, dispatch_s=1.0)
    for name, waits in (("experts", 3), ("shared-experts", 2)):
        seconds = layer_seconds(
            training_of(LATENT, again(layout, name), stack),
            1,
            rates_of("h100"),
            links_of("h100", 8, 50e9),
        )
        assert seconds.forward + seconds.backward == pytest.approx(waits - 1, abs=0.1)


@pytest.mark.parametrize("split", [False, True])
def test_tensor_ranks_gather_and_sum_the_part_again(split) -> None:
    layout = Layout(tensor=4, data=4, expert=4, sequence_parallel=split)
    full = messages(LATENT, 1, replace(layout, recompute="full"))
    bare = replace(LATENT, without_feed_forward=(1,))
    for message in messages(bare, 1, replace(layout, recompute="full")):
        full.remove(message)
    assert messages(LATENT, 1, again(layout, "experts")) == full
    shared = messages(LATENT, 1, again(layout, "shared-experts"))
    assert 0 < len(shared) < len(full)
    assert {message[0] for message in shared} == {"tensor"}
    assert messages(LLAMA3_8B, 0, again(replace(layout, expert=1), "feed-forward")) == sorted(
        ("tensor", kind, 4, 2.0 * 8192 * 4096, 1)
        for kind in (("allgather", "reducescatter") if split else ("allreduce",))
    )


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Transformer, Layout, tuple[Module, ...]]:
    modules = tuple(name for name in ALL if draw(st.booleans())) or ("experts",)
    tensor = draw(st.sampled_from([1, 2, 4]))
    layout = Layout(
        tensor, 1, 4, draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 4])),
        draw(st.booleans()), microbatch=2, zero=draw(st.sampled_from([0, 1])),
    )  # fmt: skip
    return draw(st.sampled_from(MODELS)), layout, modules


@given(drawn(), st.sampled_from(sorted(STACKS)), st.sampled_from(["bf16", "fp8"]))
@example(
    (LATENT, Layout(4, 1, 4, sequence_parallel=False, microbatch=2, zero=0), ("shared-experts",)),
    "aleph-alpha-2023", "fp8",
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_it_takes_time_and_spares_memory(case, name, precision) -> None:
    model, layout, modules = case
    if model.experts is None:
        layout = replace(layout, expert=1)
    stack = get_stack(name, precision=precision)
    some, full = again(layout, *modules), replace(layout, recompute="full")
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    whole = training_of(model, layout, stack)

    def room(layers):
        # The input of a part that is done again is kept as it is, not as it was cast to FP8; what
        # narrow experts spare may be less.
        return layers * whole.fp8 * whole.element * whole.own_tokens * model.hidden

    for layer in range(model.layers + 1):
        seconds = [
            layer_seconds(training_of(model, one, stack), layer, rates, links)
            for one in (layout, some)
        ]
        assert seconds[1].backward >= seconds[0].backward
        assert (seconds[1].forward, seconds[1].weight) == (seconds[0].forward, seconds[0].weight)
    for part in parts_of(model, layout):
        least, kept, most = (
            part_activations(training_of(model, one, stack), part) for one in (full, some, layout)
        )
        assert least <= kept <= most + room(part.layers + model.mtp_layers)
    order = schedule_of(layout, 32)
    for less, more in zip(
        memory_use(training_of(model, some, stack), schedule_of(some, 32)),
        memory_use(training_of(model, layout, stack), order),
        strict=True,
    ):
        more_room = order.microbatches * room(model.layers + model.mtp_layers) * stack.held
        assert less.total <= (more.total + more_room) * (1 + 1e-12)
        assert less.states == more.states


@pytest.mark.parametrize(
    ("model", "part"),
    [(LLAMA3_8B, "experts"), (replace(LATENT, experts=Experts(8, 2, 64)), "shared-experts"),
     (replace(LATENT, experts=Experts(8, 2, 64)), "feed-forward")],
)  # fmt: skip
def test_parts_that_a_model_has_not_are_refused(model, part) -> None:
    choices = Choices(recompute=("modules",), modules=(part,))
    with pytest.raises(InputError, match=f"modules names {part}, but {model.name} has no such"):
        Job(model, global_batch=32, server=nvlink_server("h100", 8), choices=choices)
