"""Parameter counts against published ones, and what a transformer or layout refuses."""

import pytest

from codesign_base import InputError
from parallelism.transformers.architecture import Attention, Experts, Transformer
from parallelism.transformers.layout import Layout

LLAMA3_8B = Transformer(
    "llama3-8b", 32, 4096, Attention(32, 8, 128), 14336, 128256, 8192, gated=True
)
GPT2 = Transformer(
    "gpt2", 12, 768, Attention(12, 12, 64, True, True), 3072, 50257, 1024,
    bias=True, norm="layernorm", positions=1024, tied=True,
)  # fmt: skip
MIXTRAL = Transformer(
    "mixtral-8x7b", 32, 4096, Attention(32, 8, 128), 14336, 32000, 4096, gated=True,
    experts=Experts(8, 2, 14336),
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
