"""Fields of config.json that change the architecture of other families, and harmless values."""

import json
from pathlib import Path
from typing import Any

import pytest
from published_configs import llama_like, parse

from codesign_base import InputError
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.huggingface import FAMILIES, _check_head

CLASS_CONFIGS = json.loads(
    (Path(__file__).parents[2] / "helpers" / "class_configs.json").read_text()
)

LLAMA = llama_like("llama", 2, 64, 4, 2, 96, 99)
UNKNOWN = {
    "index_topk": 2048, "indexer_types": ["full"], "index_topk_pattern": "F", "index_topk_freq": 4,
    "attn_output_gate": True, "attn_type_list": [0, 1], "use_cla": True,
    "use_bidirectional_attention": True,
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
        {"is_causal": True},
    ],
)  # fmt: skip
def test_values_that_change_nothing_are_read(harmless: dict[str, Any]) -> None:
    assert parse(LLAMA | harmless) == parse(LLAMA)


@pytest.mark.parametrize("name", CLASS_CONFIGS)
def test_kinds_of_layers_are_one_for_each_layer(name: str) -> None:
    """As transformers refuses such files, too, of families that do not look at the list."""
    data = CLASS_CONFIGS[name]["fields"]
    spellings = ("num_hidden_layers", "n_layer", "n_layers")
    layers = next((data[n] for n in spellings if n in data), 6)
    for wrong in (["full_attention"] * (layers + 1), ["hyena"] * layers, "full_attention"):
        with pytest.raises(
            InputError, match=r"'layer_types' is |of field 'layer_types' is 'hyena'"
        ):
            parse(data | {"layer_types": wrong})


@pytest.mark.parametrize(("field", "one"), [("attn_type_list", 1), ("sliding_windows", 0)])
def test_other_lists_of_layers_have_an_entry_for_each(field: str, one: int) -> None:
    with pytest.raises(InputError, match=r"it names 3 of 2 layers \(num_hidden_layers\)"):
        parse(LLAMA | {field: [one] * 3})
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 9,
            "n_positions": 4}  # fmt: skip
    with pytest.raises(InputError, match=r"it names 3 of 2 layers \(n_layer\)"):
        parse(gpt2 | {field: [one] * 3})


def test_a_class_of_another_family_is_refused() -> None:
    for kind, name, of in (
        ("llama", "Qwen2ForCausalLM", "qwen2"), ("qwen2", "LlamaForCausalLM", "llama"),
        ("llama", "JambaForCausalLM", "jamba"), ("gpt2", "GPTNeoXForCausalLM", "gpt_neox"),
        ("mistral", "MixtralForCausalLM", "mixtral"),
    ):  # fmt: skip
        words = f"a class of model_type '{of}', but field 'model_type' is '{kind}'; correct one of"
        with pytest.raises(InputError, match=rf"'architectures' is \['{name}'\]; that is {words}"):
            parse(LLAMA | {"model_type": kind, "architectures": [name]})


REMOTE = (
    ("kimi_k2", "DeepseekV3ForCausalLM"), ("kimi_k2", "KimiK2ForCausalLM"),
    ("llama", "LLaMAForCausalLM"), ("llama", "YiForCausalLM"), ("llama", "MyFineTuneForCausalLM"),
    ("phimoe", "PhiMoEForCausalLM"), ("stablelm", "StableLMEpochForCausalLM"),
    ("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"), ("ernie4_5", "Ernie4_5_ForCausalLM"),
    ("bailing_moe_v2", "BailingMoeV2ForCausalLM"), ("gemma3_text", "Gemma3ForCausalLM"),
    ("mimo", "MiMoForCausalLM"), ("internlm2", "InternLM2ForCausalLM"),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), REMOTE)
def test_classes_in_code_beside_the_file_are_no_contradiction(kind: str, name: str) -> None:
    _check_head(ConfigFields({"architectures": [name]}, "x", kind))


def test_the_classes_of_transformers_are_no_contradiction() -> None:
    mapping = pytest.importorskip("transformers.models.auto.modeling_auto")
    classes = mapping.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    known = [kind for kind in FAMILIES if kind in classes]
    assert len(known) > 50
    for kind in known:
        names = [classes[kind]] if isinstance(classes[kind], str) else [*classes[kind]]
        _check_head(ConfigFields({"architectures": names}, "x", kind))
        others = {name for other in known for name in [classes[other]] if other != kind}
        found = 0
        for name in sorted(others - {classes[kind]}):
            try:
                _check_head(ConfigFields({"architectures": [name]}, "x", kind))
            except InputError:
                found += 1
        assert found > 40


def test_parts_without_a_gate_may_square_what_is_positive() -> None:
    data = LLAMA | {"model_type": "nemotron"}
    assert parse(data | {"hidden_act": "relu2"}) == parse(data)


def test_tokens_that_look_ahead_are_refused() -> None:
    """As models of embeddings made from decoders say it: all scores count, not half of them."""
    with pytest.raises(InputError, match="'is_causal' is false; only causal attention is known"):
        parse(LLAMA | {"is_causal": False})


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
