"""Layers in which a token meets only the keys near it: scores, costs, weights, and refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_transformers import LLAMA3_8B, MIXTRAL
from trainings import training_of

from codesign_base import InputError
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, SlidingWindow
from parallelism.transformers.attention_costs import attention_core
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.huggingface import transformer_from_config
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.load import load_transformer
from parallelism.transformers.overrides import override
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.shares import layer_kinds
from parallelism.transformers.stages import stage_weights

UNFUSED = Implementation(flash=False)


def area(window: SlidingWindow, sequence: int, fine: int = 8) -> float:
    """Return the share of a square of queries and keys that is met, by points within it."""
    at = (np.arange(sequence * fine) + 0.5) / fine
    query, key = at[:, None], at[None, :]
    met = key < query
    if window.chunked:
        met &= query // window.width == key // window.width
    else:
        met &= key > query - window.width
    return float(met.mean() + 0.5 * (query == key).mean())


@given(st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_the_share_of_scores_is_the_area_within_the_mask(
    width: int, sequence: int, chunked: bool
) -> None:
    window = SlidingWindow(width, chunked=chunked)
    # Points on the other edge of the mask count half, too.
    edge = 0.5 * max(0, sequence - width) / (8 * sequence**2) if not chunked else 0.0
    assert window.share(sequence) == pytest.approx(area(window, sequence) + edge, rel=1e-9)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_window_as_long_as_the_sequence_costs_what_none_does(chunked: bool) -> None:
    wide = replace(LLAMA3_8B, window=SlidingWindow(LLAMA3_8B.sequence, chunked=chunked))
    for layout in (Layout(), Layout(tensor=4, context=2)):
        assert layer_costs(training_of(wide, layout), 0) == layer_costs(
            training_of(LLAMA3_8B, layout), 0
        )
    assert model_flops(wide, 3, wide.sequence) == model_flops(LLAMA3_8B, 3, LLAMA3_8B.sequence)


def test_fused_attention_does_the_scores_within_the_window() -> None:
    near = replace(LLAMA3_8B, window=SlidingWindow(1024, (0, 2)))
    whole, part = (attention_core(training_of(near, Layout()), layer) for layer in (0, 1))
    assert whole == attention_core(training_of(LLAMA3_8B, Layout()))
    share = 1024 * 8192 - 1024**2 / 2
    assert part.forward.flops == pytest.approx(4 * share * 32 * 128)
    assert part.flops / whole.flops == pytest.approx(share / (8192**2 / 2))
    # Without fusion all scores are worked out, and masked.
    plain = [attention_core(training_of(near, Layout(), UNFUSED), layer) for layer in (0, 1)]
    assert plain[0] == plain[1]


def test_model_flops_count_twice_the_scores_within() -> None:
    """As they count all scores of a causal layer, of which half are within its mask."""
    near = replace(LLAMA3_8B, window=SlidingWindow(1024, tuple(range(0, 32, 2))))
    scores = 4 * 32 * 128 * (8192**2 - 2 * (1024 * 8192 - 1024**2 / 2))
    less = model_flops(LLAMA3_8B, 1, LLAMA3_8B.sequence) - model_flops(near, 1, near.sequence)
    assert less == pytest.approx(3 * 16 * scores)


def test_kinds_of_layers_differ_by_experts_and_window() -> None:
    experts = replace(MIXTRAL.experts, every=2)
    model = replace(MIXTRAL, experts=experts, window=SlidingWindow(8, (0, 1, 2, 31)))
    # Layers 0 to 2 and 31 meet all keys; odd ones have experts.
    assert layer_kinds(model, 0, 32) == ((0, 2), (4, 14), (1, 2), (3, 14))
    assert layer_kinds(model, 1, 3) == ((0, 1), (1, 1), (3, 1))
    assert layer_kinds(model, 4, 0) == ()


@pytest.mark.parametrize("name", ["gpt-oss-20b", "minimax-m2", "gemma3-27b", "llama4-scout"])
@pytest.mark.parametrize("layout", [Layout(), Layout(tensor=8, pipeline=2)])
def test_weights_of_the_ranks_are_the_models(name: str, layout: Layout) -> None:
    model = get_transformer(name, layers=4)
    counts = stage_weights(model, layout)
    held = layout.tensor * sum(count.dense + count.expert for count in counts)
    # Each rank of a tensor group holds all norms, router weights and biases after the sum.
    again = (layout.tensor - 1) * repeated(model)
    if layout.pipeline > 1 and model.tied:
        again += model.vocabulary * model.hidden
    assert held == pytest.approx(model.parameters + again)


def repeated(model: Transformer) -> float:
    attention, hidden = model.attention, model.hidden
    layer = model.layer_norms * model.norm_parameters() + model.router_parameters()
    layer += hidden if attention.output_bias else 0
    layer += 2 * attention.head_width if attention.head_norm else 0
    experts = model.experts
    copies = 1 if experts is None else experts.count + experts.shared
    layer += copies * hidden if model.bias else 0
    return model.layers * layer + model.norm_parameters()


KINDS = ["sliding_attention", "full_attention"]
QWEN = {
    "model_type": "qwen3", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 99, "sliding_window": 32,
}  # fmt: skip
LLAMA4 = QWEN | {
    "model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1,
    "intermediate_size_mlp": 96, "sliding_window": None,
}  # fmt: skip
SMOLLM3 = QWEN | {"model_type": "smollm3"}
GEMMA3 = QWEN | {"model_type": "gemma3_text", "num_hidden_layers": 7}


@pytest.mark.parametrize(
    ("data", "sliding", "width"),
    [
        (QWEN, [], 0),
        (QWEN | {"use_sliding_window": True, "max_window_layers": 4}, [4, 5], 32),
        (QWEN | {"use_sliding_window": True, "layer_types": KINDS * 3}, [0, 2, 4], 32),
        (QWEN | {"model_type": "mistral"}, [0, 1, 2, 3, 4, 5], 32),
        (QWEN | {"model_type": "mistral", "sliding_window": None}, [], 0),
        (QWEN | {"model_type": "gemma2"}, [0, 2, 4], 32),
        (GEMMA3, [0, 1, 2, 3, 4, 6], 32),
        (GEMMA3 | {"sliding_window_pattern": 3}, [0, 1, 3, 4, 6], 32),
        (QWEN | {"model_type": "exaone4", "sliding_window_pattern": "LLG"}, [0, 1, 3, 4], 32),
        (SMOLLM3, [], 0),
        (SMOLLM3 | {"use_sliding_window": True}, [3], 32),
        (SMOLLM3 | {"use_sliding_window": True, "sliding_window": None}, [], 0),
        (SMOLLM3 | {"use_sliding_window": True, "no_rope_layers": [1, 0, 0, 1, 1, 1]}, [1, 2], 32),
        (SMOLLM3 | {"use_sliding_window": True, "layer_types": KINDS * 3}, [0, 2, 4], 32),
        (LLAMA4, [0, 1, 2, 4, 5], 8192),
        (LLAMA4 | {"no_rope_layers": [1, 0, 1, 0, 1, 1]}, [0, 2, 4, 5], 8192),
        (LLAMA4 | {"attention_chunk_size": 16, "no_rope_layer_interval": 2}, [0, 2, 4], 16),
    ],
)
def test_files_say_which_layers_slide(data: dict[str, Any], sliding: list[int], width: int) -> None:
    model = transformer_from_config(data, "x", name="x")
    assert [layer for layer in range(model.layers) if model.slides(layer)] == sliding
    assert (model.window.width if model.window else 0) == width
    if model.window is not None:
        assert model.window.chunked == (data["model_type"] == "llama4_text")


# Of these transformers 5.24.0 does not look at kinds of layers, nor at max_window_layers.
ALIKE = ("mistral", "ministral3", "mixtral", "phi3", "qwen3_moe", "starcoder2")


@pytest.mark.parametrize("kinds", [KINDS * 3, KINDS[:1] * 6, KINDS[1:] * 6])
@pytest.mark.parametrize("kind", ALIKE)
def test_classes_that_window_all_layers_alike(kind: str, kinds: list[str]) -> None:
    data = QWEN | {"model_type": kind, "layer_types": kinds}
    if kind in ("mixtral", "qwen3_moe"):
        data |= {"num_local_experts": 8, "num_experts_per_tok": 2}
    if kind == "qwen3_moe":
        data |= {"moe_intermediate_size": 48}
    data |= {"use_sliding_window": True, "max_window_layers": 3, "sliding_window_pattern": 2}
    read = lambda **more: transformer_from_config(data | more, "x", name="x").window  # noqa: E731
    assert read() == read(layer_types=None) == SlidingWindow(32)
    assert read(sliding_window=None) is None
    asked = kind == "qwen3_moe"
    assert (read(use_sliding_window=False) is None) == asked
    if asked:
        del data["sliding_window"]
        assert read() == SlidingWindow(4096)
    with pytest.raises(InputError, match="it names 2 of 6 layers"):
        read(layer_types=KINDS)


def test_ministral_follows_kinds_of_layers() -> None:
    data = QWEN | {"model_type": "ministral", "layer_types": KINDS * 3}
    window = transformer_from_config(data, "x", name="x").window
    assert window == SlidingWindow(32, (1, 3, 5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer_types": KINDS}, "it names 2 of 6 layers"),
        ({"layer_types": ["linear_attention"] * 6}, "only full_attention and sliding_attention"),
        ({"layer_types": KINDS * 3}, "'use_sliding_window' is missing"),
        ({"layer_types": KINDS * 3, "use_sliding_window": False}, "'use_sliding_window' is false"),
        ({"layer_types": KINDS * 3, "use_sliding_window": True, "sliding_window": None},
         "'sliding_window' is missing; a qwen3 configuration with layers of sliding_attention"),
        ({"sliding_window": -1}, "'sliding_window' is -1"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LGL"}, "letters such as LLLG"),
        ({"model_type": "smollm3", "layer_types": KINDS * 3}, "'use_sliding_window' is missing"),
        ({"model_type": "smollm3", "layer_types": KINDS}, "it names 2 of 6 layers"),
        ({"model_type": "smollm3", "layer_types": ["x"] * 6}, "only full_attention and sliding"),
        ({"model_type": "gemma3_text", "layer_types": ["chunked_attention"] * 6},
         "only full_attention and sliding_attention are known"),
        (LLAMA4 | {"layer_types": KINDS * 3}, "only full_attention and chunked_attention are"),
        (LLAMA4 | {"no_rope_layers": [1, 1]}, "[1, 1]; give 0 or 1 for each of the 6 layers"),
        (LLAMA4 | {"no_rope_layers": [5, -1, 1, 1, 1, 0]}, "give 0 or 1 for each"),
        (LLAMA4 | {"sliding_window": 32}, "'sliding_window' is 32"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_windows_is_said(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        transformer_from_config(QWEN | change, "x", name="x")
    assert words in str(error.value)


# Families whose classes know no window.
NEVER = (
    "ernie4_5", "ernie4_5_moe", "gemma", "glm", "glm4", "glm4_moe", "granitemoe", "hunyuan_v1_moe",
    "llama", "minimax_m2", "olmo2", "olmoe", "solar_open", "stablelm",
)  # fmt: skip


@pytest.mark.parametrize("kind", NEVER)
def test_families_without_windows_refuse_them(kind: str) -> None:
    data = QWEN | {"model_type": kind, "sliding_window": None}
    if kind in ("glm4_moe", "solar_open", "ernie4_5_moe"):
        data |= {"moe_intermediate_size": 48}
    if kind in ("glm4_moe", "granitemoe", "hunyuan_v1_moe", "minimax_m2", "olmoe", "solar_open"):
        data |= {"num_experts": 8, "num_experts_per_tok": 2}
    full = KINDS[1:] * 6
    assert transformer_from_config(data | {"layer_types": full}, "x", name="x").window is None
    for field, value in {"sliding_window": 32, "layer_types": KINDS * 3}.items():
        with pytest.raises(InputError) as error:
            transformer_from_config(data | {field: value}, "x", name="x")
        assert f"field '{field}' is " in str(error.value)
        assert f"{kind} models are not known with it" in str(error.value)


@pytest.mark.parametrize("layers", [1, 2, 5, 12, 23, 48, 100, 10_000])
@pytest.mark.parametrize(
    ("name", "every"), [("gpt-oss-20b", 2), ("gemma3-27b", 6), ("llama4-scout", 4)]
)
def test_other_numbers_of_layers_keep_the_pattern(name: str, every: int, layers: int) -> None:
    window = get_transformer(name).window
    again = load_transformer(name, layers=layers).window
    assert again == replace(window, full_layers=tuple(range(every - 1, layers, every)))


def test_layers_of_a_model_with_a_window() -> None:
    first = replace(LLAMA3_8B, window=SlidingWindow(8, tuple(range(28))))
    assert override(first, layers=30).window == SlidingWindow(8, tuple(range(28)))
    assert override(first, layers=28).window is None
    with pytest.raises(InputError) as error:
        override(first, layers=40)
    assert "layers is 40, but which of its 32 layers slide" in str(error.value)
    given = SlidingWindow(8, (39,))
    assert override(first, layers=40, window=given).window == given
    every = replace(LLAMA3_8B, window=SlidingWindow(8))
    assert override(every, layers=40).window == SlidingWindow(8)
    for layers, words in {True: "layers is True", 10**9: "layers is 1000000000"}.items():
        with pytest.raises(InputError, match=words):
            override(every, layers=layers)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SlidingWindow(0), "width is 0"),
        (lambda: SlidingWindow(8, (2, 1)), "full_layers is (2, 1)"),
        (lambda: SlidingWindow(8, (-1,)), "full_layers is (-1,)"),
        (lambda: SlidingWindow(8, [1, 3]), "full_layers is [1, 3]; give a tuple"),
        (lambda: SlidingWindow(8, ("a",)), "full_layers is ('a',); give a tuple"),
        (lambda: SlidingWindow(8, None), "full_layers is None; give a tuple"),
        (lambda: SlidingWindow(8, 3), "full_layers is 3; give a tuple"),
        (lambda: SlidingWindow(8, (1.5,)), "full_layers is (1.5,); give a tuple"),
        (lambda: SlidingWindow(8, (True,)), "full_layers is (True,); give a tuple"),
        (lambda: SlidingWindow(8, range(1, 4, 2)), "full_layers is range(1, 4, 2); give a tuple"),
        (lambda: replace(LLAMA3_8B, window=SlidingWindow(8, (32,))), "layer 32 of 32"),
        (lambda: replace(LLAMA3_8B, window=SlidingWindow(8), causal=False), "causal is False"),
        (lambda: Attention(4, 2, 8, head_norm=True, wide_norm=True), "wide_norm is set"),
    ],
)
def test_windows_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert words in str(error.value)
