"""Presets of hybrid models: their configurations, and other numbers of layers."""

from dataclasses import replace
from typing import Any

import hybrid_configs
import pytest
from published_configs import parse

from codesign_base import InputError
from parallelism.transformers.overrides import override
from parallelism.transformers.presets import describe, get_transformer

CONFIGS = {
    "qwen3-next-80b-a3b": hybrid_configs.QWEN3_NEXT, "qwen3.5-27b": hybrid_configs.QWEN35_27B,
    "qwen3.5-35b-a3b": hybrid_configs.QWEN35_35B, "qwen3.5-397b-a17b": hybrid_configs.QWEN35_397B,
    "kimi-linear-48b-a3b": hybrid_configs.KIMI,
    "granite-4.0-h-small": hybrid_configs.GRANITE_SMALL,
    "nemotron-h-8b": hybrid_configs.NEMOTRON_8B, "nemotron-h-56b": hybrid_configs.NEMOTRON_56B,
    "nemotron-3-nano-30b-a3b": hybrid_configs.NEMOTRON_NANO,
    "nemotron-3-super-120b-a12b": hybrid_configs.NEMOTRON_SUPER,
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hybrid_preset_is_its_configuration(name: str) -> None:
    model = get_transformer(name)
    read = parse(CONFIGS[name], sequence=model.sequence)
    assert model == replace(read, name=name, source=model.source, mtp_layers=0)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # Printed: 3, 3, 17, 3, 9, 3.6 with embeddings, and 12.7.
        ("qwen3-next-80b-a3b", 3.9), ("qwen3.5-35b-a3b", 3.5), ("qwen3.5-397b-a17b", 17.3),
        ("kimi-linear-48b-a3b", 3.5), ("granite-4.0-h-small", 8.8),
        ("nemotron-3-nano-30b-a3b", 3.6), ("nemotron-3-super-120b-a12b", 12.8),
    ],
)  # fmt: skip
def test_a_token_meets_as_much_as_is_published(name: str, billions: float) -> None:
    assert round(get_transformer(name).active_parameters / 1e9, 1) == billions


def test_the_line_of_a_hybrid_says_how_many_layers_have_no_keys() -> None:
    assert "36 layers of gated-deltanet, 10 of 512" in describe(
        get_transformer("qwen3-next-80b-a3b")
    )


def test_fewer_layers_keep_the_kinds_of_the_first_ones() -> None:
    qwen = get_transformer("qwen3-next-80b-a3b", layers=9)
    assert qwen.linear is not None
    assert qwen.linear.full_layers == (3, 7)
    nano = get_transformer("nemotron-3-nano-30b-a3b", layers=7)
    assert nano.linear is not None
    assert nano.linear.full_layers == (5,)
    assert nano.without_feed_forward == (0, 2, 4, 5)
    assert nano.without_attention == (1, 3, 6)
    first = get_transformer("nemotron-3-nano-30b-a3b")
    assert [nano.layer_parameters(i) for i in range(7)] == [
        first.layer_parameters(i) for i in range(7)
    ]
    full = replace(qwen, linear=replace(qwen.linear, full_layers=(0, 1)))
    assert override(full, layers=2).linear is None


def test_more_layers_repeat_the_pattern() -> None:
    granite = get_transformer("granite-4.0-h-small", layers=60)
    assert granite.linear is not None
    assert granite.linear.full_layers == (5, 15, 25, 35, 45, 55)
    four = get_transformer("nemotron-3-nano-30b-a3b", layers=4)
    assert four.linear is not None
    eight = override(four, layers=8)
    assert (eight.without_feed_forward, eight.without_attention) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert eight.linear == four.linear
    all_linear = replace(granite, linear=replace(granite.linear, full_layers=()))
    assert override(all_linear, layers=80).linear == all_linear.linear


def test_kinds_of_layers_that_are_given_are_taken() -> None:
    qwen = get_transformer("qwen3-next-80b-a3b")
    assert qwen.linear is not None
    other = replace(qwen.linear, full_layers=(0,))
    assert override(qwen, layers=50, linear=other).linear == other
    assert override(qwen, layers=50, linear=None).linear is None
    assert override(qwen, layers=48) == qwen


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("kimi-linear-48b-a3b", {}, "layers is 200, but the order of its 27 layers, which are of "
         "several kinds, has no pattern that could be repeated; give linear, too"),
        ("nemotron-h-8b", {}, "give linear, without_feed_forward, without_attention, too"),
        ("nemotron-h-8b", {"linear": None}, "give without_feed_forward, without_attention, too"),
        ("qwen3-next-80b-a3b", {"without_attention": (300,)}, "names layer 300 of 200"),
    ],
)  # fmt: skip
def test_kinds_without_a_pattern_are_asked_for(
    name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        get_transformer(name, layers=200, **changes)
    assert words in str(error.value)
