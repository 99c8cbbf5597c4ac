"""Published configurations: parameters of each model, and what of their families is refused."""

from dataclasses import replace
from typing import Any

import pytest
from published_configs import PUBLISHED, WITH_MODULES, parse

from codesign_base import InputError
from parallelism.transformers.presets import get_transformer


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_published_model(name: str) -> None:
    data, count, active = PUBLISHED[name]
    model = replace(parse(data), mtp_layers=0)
    assert model.parameters == count
    if active is None:
        assert model.experts is None
    else:
        assert model.active_parameters / 1e9 == pytest.approx(active, abs=0.05)


@pytest.mark.parametrize("name", WITH_MODULES)
def test_modules_for_multi_token_prediction_are_read(name: str) -> None:
    modules, billions = WITH_MODULES[name]
    model = parse(PUBLISHED[name][0])
    assert model.mtp_layers == modules
    assert model.parameters / 1e9 == pytest.approx(billions, abs=0.005)


def test_the_files_of_gemma_3_hold_what_the_preset_does() -> None:
    model = parse(PUBLISHED["Gemma-3-27B"][0])
    preset = get_transformer("gemma3-27b")
    assert model == replace(preset, name=model.name, source=model.source, sequence=model.sequence)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("Granite-4.0-micro", {"layer_types": ["mamba2"] * 40}, "entry 0 (from 0) of field"),
        ("Granite-4.0-micro", {"layer_types": ["attention"] * 3}, "names 3 of 40 layers (num_hid"),
        ("Granite-4.0-micro", {"num_local_experts": 8}, "per_token"),
        ("Hunyuan-A13B", {"moe_topk": [8, 1]}, "only layers that are alike"),
        ("Hunyuan-A13B", {"moe_topk": ["8"]}, "whole number of at least 1"),
        ("Hunyuan-A13B", {"num_shared_expert": 2}, "'num_shared_expert' is 2; only 1"),
        ("Hunyuan-7B", {"use_qk_norm": False}, "'use_qk_norm' is false"),
        ("DBRX", {"attn_config": {}}, "'attn_config': field 'kv_n_heads' is missing"),
        ("DBRX", {"ffn_config": 3}, "'ffn_config' is 3; give an object"),
        ("DBRX", {"ffn_config": None}, "'ffn_config' is missing"),
        ("MiMo-7B", {"attention_bias": False}, "'attention_bias' is false"),
        ("Qwen2.5-VL-7B, flat", {"vision_config": {"depth": 32}}, "'vision_config'"),
    ],
)  # fmt: skip
def test_families_refuse_what_they_do_not_model(
    name: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        parse(PUBLISHED[name][0] | change)
    assert words in str(error.value)
