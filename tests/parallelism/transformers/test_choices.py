"""What was asked for in vain, against layouts that are listed; schedules that a stack lacks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign_base import InfeasibleError
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from topoopt.problem.job import Job, nvlink_server

MODEL = Transformer("small", 4, 64, Attention(8, 4, 8), 128, 1000, 4096)
DEGREES = st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 16]), max_size=3, unique=True).map(tuple)


@given(DEGREES, DEGREES, DEGREES)
def test_values_without_effect_are_those_that_change_no_list(tensor, context, pipeline):
    """Leaving them out leaves the same layouts, and leaving any other out leaves fewer."""
    asked = {"tensor": (*tensor, 1), "context": (*context, 1), "pipeline": (*pipeline, 1)}
    asked = {name: tuple(dict.fromkeys(values)) for name, values in asked.items()}

    def listed(**values):
        chosen = Choices(microbatch=(1,), zero=(1,), **values)
        return enumerate_layouts(LayoutSpace(MODEL, 16, 8, 64, 4096, chosen))

    every = listed(**asked)
    chosen = Choices(microbatch=(1,), zero=(1,), **asked)
    vain = {}
    for line in chosen.without_effect(every):
        name, values = line.split(" ", 1)
        vain[name] = [int(value) for value in values.split(", ")]
    for name, values in asked.items():
        for value in values:
            rest = tuple(other for other in values if other != value)
            if rest and value != 1:
                same = listed(**(asked | {name: rest})) == every
                assert same == (value in vain.get(name, []))


@pytest.mark.parametrize(
    ("stack", "schedule", "said"),
    [("megatron-core", "eager-1f1b", True), ("nemo", "zero-bubble", True),
     ("megatron-moe", "1f1b", False), ("fsdp2", "eager-1f1b", False)],
)  # fmt: skip
def test_a_plan_says_that_megatron_lacks_its_schedule(stack, schedule, said):
    job = Job(
        MODEL, global_batch=8, server=nvlink_server("h100", 2), implementation=get_stack(stack)
    )
    placement = Placement(Layout(pipeline=4, schedule=schedule), 2)
    lines = job.family(2).assumptions(placement)
    assert any("no schedule" in line and schedule in line for line in lines) == said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"context": (3,)}, "16 GPUs are no multiple of context 3; give a divisor"),
        ({"tensor": (3, 5)}, "16 GPUs are no multiple of tensor 3 or 5; give a divisor"),
        ({"pipeline": (32,)}, "16 GPUs are no multiple of pipeline 32; give a divisor"),
        ({"tensor": (16,)}, "tensor-parallel groups stay within a server of "),
        ({"tensor": (12,)}, "16 GPUs are no multiple of tensor 12; give a divisor"),
    ],
)
def test_degrees_that_divide_nothing_are_named(asked, said):
    with pytest.raises(InfeasibleError, match=said):
        enumerate_layouts(LayoutSpace(MODEL, 16, 8, 64, 4096, Choices(**asked)))
    with pytest.raises(
        InfeasibleError, match="4095 tokens of a sample are no multiple of context 2"
    ):
        enumerate_layouts(LayoutSpace(MODEL, 16, 8, 64, 4095, Choices(context=(2,))))


@pytest.mark.parametrize(("gpus", "sequence"), [(12, 6144), (24, 98304), (16, 4096), (20, 3072)])
def test_every_context_degree_that_leaves_enough_tokens_is_considered(gpus, sequence):
    """Of 3, 5, 6 or 7 servers, degrees that are powers of two alone leave ranks without use."""
    considered = {
        layout.context for layout in enumerate_layouts(LayoutSpace(MODEL, gpus, 4, 60, sequence))
    }
    least = {c for c in range(1, gpus + 1) if gpus % c == 0 and sequence % c == 0}
    assert considered == {c for c in least if c == 1 or sequence / c >= 1024}


def test_a_schedule_without_stages_is_asked_for_in_vain():
    chosen = Choices(pipeline=(1,), schedules=("eager-1f1b",))
    layouts = enumerate_layouts(LayoutSpace(MODEL, 16, 8, 64, 4096, chosen))
    assert chosen.without_effect(layouts) == ["schedule eager-1f1b"]
    assert Choices(pipeline=(1,)).without_effect(layouts) == []
    assert {layout.schedule for layout in layouts} == {"1f1b"}


def test_without_stages_the_order_of_schedules_changes_nothing():
    # Such a rank would keep all microbatches of gpipe, and add up gradients later in zero-bubble.
    found = [
        enumerate_layouts(
            LayoutSpace(MODEL, 16, 8, 64, 4096, Choices(pipeline=(1, 2), schedules=schedules))
        )
        for schedules in (("1f1b", "gpipe"), ("gpipe", "1f1b"), ("gpipe",), ("zero-bubble",))
    ]
    alone = [[layout for layout in each if layout.pipeline == 1] for each in found]
    assert alone[0] and all(each == alone[0] for each in alone)
    assert set(found[0]) == set(found[1])


def test_models_without_latent_attention_have_no_up_projections_to_do_again():
    chosen = Choices(pipeline=(1,), recompute=("modules",))
    layouts = enumerate_layouts(LayoutSpace(MODEL, 16, 8, 64, 4096, chosen))
    assert {layout.modules for layout in layouts} == {("norms", "activations")}
