"""Fields of config.json that change the architecture of other families, and harmless values."""

from typing import Any

import pytest
from published_configs import llama_like, parse

from codesign_base import InputError

LLAMA = llama_like("llama", 2, 64, 4, 2, 96, 99)
UNKNOWN = {
    "index_topk": 2048, "indexer_types": ["full"], "index_topk_pattern": "F", "index_topk_freq": 4,
    "attn_output_gate": True, "attn_type_list": [0, 1], "use_cla": True,
    "num_kv_shared_layers": 3, "hybrid_override_pattern": "M-*", "moe_layer_freq": [0, 1],
    "num_experts_per_tok": 2, "lm_head_bias": True, "hidden_act": "relu2", "sliding_windows": [64],
    "mtp_num_hidden_layers": 1, "num_mtp_modules": 3, "num_mtp_layers": 2,
    "linear_attn_config": {"num_heads": 4}, "block_configs": [{}], "layers_block_type": ["mamba"],
}  # fmt: skip


@pytest.mark.parametrize("field", UNKNOWN)
def test_fields_of_other_architectures_are_refused(field: str) -> None:
    with pytest.raises(InputError, match=f"'{field}' is .*llama models are not known with it"):
        parse(LLAMA | {field: UNKNOWN[field]})


@pytest.mark.parametrize("field", UNKNOWN)
@pytest.mark.parametrize("nothing", [None, False, 0])
def test_fields_of_other_architectures_may_say_that_they_are_not_used(field, nothing) -> None:
    assert parse(LLAMA | {field: nothing}) == parse(LLAMA)


@pytest.mark.parametrize(
    "harmless",
    [
        {"moe_layer_freq": 1}, {"attn_type_list": [1] * 2}, {"sliding_windows": [0] * 2},
        {"layer_types": ["full_attention"] * 2}, {"layers_block_type": ["attention"] * 2},
        {"block_configs": []}, {"num_mtp_modules": 3, "use_mtp": False}, {"hidden_act": "silu"},
    ],
)  # fmt: skip
def test_values_that_change_nothing_are_read(harmless: dict[str, Any]) -> None:
    assert parse(LLAMA | harmless) == parse(LLAMA)


def test_parts_without_a_gate_may_square_what_is_positive() -> None:
    data = LLAMA | {"model_type": "nemotron"}
    assert parse(data | {"hidden_act": "relu2"}) == parse(data)


@pytest.mark.parametrize("kind", ["glm4_moe", "dots1"])
def test_experts_in_some_layers_are_refused_where_a_family_has_them_in_all(kind: str) -> None:
    data = LLAMA | {
        "model_type": kind, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1,
    }  # fmt: skip
    assert parse(data | {"moe_layer_freq": 1}) == parse(data)
    for freq in (2, [0, 1]):
        with pytest.raises(InputError, match="'moe_layer_freq' is "):
            parse(data | {"moe_layer_freq": freq})


def test_a_language_model_within_another_is_to_be_given_alone() -> None:
    with pytest.raises(InputError, match="give its field 'text_config' as a file"):
        parse(LLAMA | {"text_config": LLAMA})
