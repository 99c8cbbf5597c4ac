"""Experts folded over tensor ranks, and maps of stages: Megatron-Core's counts."""

from dataclasses import replace

import pytest

from codesign_base import InputError
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.collectives import layer_communications, step_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.layout import Layout
from parallelism.transformers.load import load_transformer
from parallelism.transformers.memory import memory_use
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.shares import check_layout
from parallelism.transformers.stages import layer_weights, parts_of
from parallelism.transformers.text import layout_text, order_text, stage_map_text
from tests.helpers.small_transformers import LLAMA3_8B, MIXTRAL
from tests.helpers.trainings import training_of

DEEPSEEK = load_transformer("deepseek-v3")
NVIDIA = Layout(2, 1, 32, 8, expert=64, expert_tensor=1, schedule="interleaved", virtual_stages=4)
"""TP2 EP64 DP32 PP8 with 4 parts a stage."""


def test_folding_over_two_tensor_ranks_is_twice_the_expert_degree() -> None:
    """The same experts a GPU, tokens and messages as on twice the ranks without tensor groups."""
    folded = Layout(2, 1, 4, expert=8, expert_tensor=1)
    alone = Layout(1, 1, 8, expert=8)
    assert folded.expert_ranks == 4
    assert layer_weights(MIXTRAL, 0, folded).expert == layer_weights(MIXTRAL, 0, alone).expert
    products = [
        {
            gemm
            for gemm in layer_costs(training_of(MIXTRAL, each), 0).forward.gemms
            if gemm.count == 1.0
        }
        for each in (folded, alone)
    ]
    # Of an expert: half of the tokens of the pair, whole matrices. (One expert a GPU.)
    tokens, width = MIXTRAL.sequence * 2.0, MIXTRAL.experts.width
    assert {(g.m, g.n) for g in products[1]} >= {(tokens, 2 * width), (tokens, MIXTRAL.hidden)}
    assert {(g.m, g.n) for g in products[0]} >= {
        (tokens / 2, 2 * width), (tokens / 2, MIXTRAL.hidden)
    }  # fmt: skip
    (sent,) = {
        m.size
        for m in layer_communications(training_of(MIXTRAL, folded), 0)
        if m.kind == "alltoall"
    }
    (other,) = {
        m.size for m in layer_communications(training_of(MIXTRAL, alone), 0) if m.kind == "alltoall"
    }
    assert sent == other / 2
    # No group gathers what arrived: attention's gathers are left.
    gathers = [
        m for m in layer_communications(training_of(MIXTRAL, folded), 0) if m.group == "tensor"
    ]
    whole = 2.0 * MIXTRAL.sequence * MIXTRAL.hidden
    assert {(m.ranks, m.size) for m in gathers} == {(2, whole)}


def test_ranks_with_the_same_experts_are_those_of_the_other_product() -> None:
    """EP x ETP x EDP = TP x CP x DP, the parallel folding of Megatron-Core."""
    for layout in (
        NVIDIA, replace(NVIDIA, data=64), Layout(8, 2, 4, expert=16, expert_tensor=2),
        Layout(4, 1, 8, expert=4),
    ):  # fmt: skip
        everyone = layout.tensor * layout.context * layout.data
        model = MIXTRAL if layout.expert == 4 else DEEPSEEK
        step = step_communications(training_of(model, layout), 32)[-1]
        same = {m.ranks for m in step if m.group == "expert-data"} or {1}
        assert same == {everyone // (layout.expert * layout.expert_split)}


def test_an_expert_split_over_two_of_four_tensor_ranks_gathers_over_two() -> None:
    layout = Layout(4, 1, 4, expert=8, expert_tensor=2)
    found = layer_communications(training_of(MIXTRAL, layout), 0)
    arrived = 2.0 * MIXTRAL.sequence * MIXTRAL.hidden * MIXTRAL.experts.per_token / 2
    assert {m.size for m in found if m.ranks == 2 and m.group == "tensor"} == {arrived}
    parts = [layer_activations(training_of(MIXTRAL, each), 0).rest for each in
             (layout, Layout(4, 1, 4, expert=4))]  # fmt: skip
    # Hidden inputs of the experts are half of those that four ranks gather.
    less = 2.0 * MIXTRAL.sequence * MIXTRAL.experts.per_token * MIXTRAL.hidden / 2
    assert parts[1] - parts[0] == pytest.approx(less)


def test_published_layouts_are_in_the_space() -> None:
    """Megatron-Core's and NeMo's, and DeepSeek's own, without being asked for."""
    for name, gpus, batch, sequence, layout in (
        ("llama3-70b", 64, 128, 8192,
         Layout(4, 2, 2, 4, schedule="interleaved", virtual_stages=5)),
        ("gpt3-175b", 512, 2048, 2048,
         Layout(4, 1, 16, 8, schedule="interleaved", virtual_stages=12)),
        ("llama3.1-405b", 1024, 512, 8192,
         Layout(8, 2, 8, 8, schedule="interleaved", virtual_stages=8)),
        ("deepseek-v3", 512, 4096, 4096, NVIDIA),
        ("deepseek-v3", 1024, 8192, 4096, replace(NVIDIA, data=64)),
        ("deepseek-v3", 2048, 15360, 4096,
         Layout(1, 1, 128, 16, expert=64, sequence_parallel=False, schedule="zero-bubble")),
    ):  # fmt: skip
        model = load_transformer(name)
        choices = Choices(
            tensor=(layout.tensor,), context=(layout.context,), pipeline=(layout.pipeline,)
        )
        space = LayoutSpace(model, gpus, 8, batch, sequence, choices)
        assert layout in enumerate_layouts(space), name


def test_even_parts_of_405b_count_embedding_and_head_as_layers() -> None:
    """126 layers and two on 64 parts are two each, so that the ends have one."""
    layout = Layout(8, 2, 8, 8, schedule="interleaved", virtual_stages=8)
    layers = [part.layers for part in parts_of(load_transformer("llama3.1-405b"), layout)]
    assert layers == [1] + [2] * 62 + [1]


def test_a_map_of_stages_is_followed() -> None:
    """Megatron-Core's of DeepSeek-V3 on 16 stages, Et*3|(t*4|)*14,t*2 and the head."""
    layers = (3, *(4,) * 14, 2)
    layout = Layout(1, 1, 8, 16, expert=8, sequence_parallel=False, stage_layers=layers)
    assert tuple(part.layers for part in parts_of(DEEPSEEK, layout)) == layers
    assert [part.first for part in parts_of(DEEPSEEK, layout)][:3] == [0, 3, 7]
    assert len(memory_use(training_of(DEEPSEEK, layout), schedule_of(layout, 128))) == 16
    assert stage_map_text(layers) == "3,4x14,2"
    assert "layers of the parts 3,4x14,2" in layout_text(layout)
    assert "etp 1" in layout_text(NVIDIA)
    with pytest.raises(InputError, match="adds up to 61"):
        check_layout(LLAMA3_8B, replace(layout, expert=1))
    alone = Layout(1, 1, 1, 4, sequence_parallel=False, stage_layers=(0, 16, 16, 0))
    assert [part.layers for part in parts_of(LLAMA3_8B, alone)] == [0, 16, 16, 0]
    found = enumerate_layouts(
        LayoutSpace(LLAMA3_8B, 4, 4, 8, 8192, Choices(stage_layers=(0, 16, 16, 0)))
    )
    assert found
    assert all(one.pipeline * one.virtual_stages == 4 and one.stage_layers for one in found)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Layout(2, 1, 4, expert=2, expert_tensor=2), "expert_tensor is 2 with tensor 2"),
        (lambda: Layout(4, 1, 4, expert=8, expert_tensor=3), "divides tensor"),
        (lambda: Layout(4, 1, 4, expert=2, expert_tensor=1), "expert is 2"),
        (lambda: Layout(2, 1, 4, expert=16, expert_tensor=1), "expert is 16"),
        (lambda: Layout(2, 1, 4, expert=8, expert_tensor=1, sequence_parallel=False), "give both"),
        (lambda: Layout(pipeline=4, stage_layers=(1, 2)), "lists 2 parts"),
        (lambda: Layout(pipeline=2, stage_layers=(1, -2)), "holds -2"),
        (lambda: check_layout(LLAMA3_8B, Layout(2, expert=2, expert_tensor=1)), "has no experts"),
        (lambda: Placement(Layout(8, 1, 2, expert=8, expert_tensor=1), 4), "over several servers"),
        (lambda: Choices(stage_layers=(1, -1)), "stage_layers"),
        (lambda: Choices(expert_tensor=(0,)), "expert_tensor"),
    ],
)
def test_what_cannot_be_is_refused(make, words) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_the_order_of_ranks_in_words() -> None:
    order = ("data", "context", "pipeline")
    assert order_text(order, NVIDIA) == "servers are filled along data, then pipeline"
    assert order_text(order, Layout(tensor=16)) == "all GPUs are one rank"
