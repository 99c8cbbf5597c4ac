"""config.json of every family: parameters of the released weights, traps, refusals."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counted_configs import COUNTED, KINDS, SIZES
from hybrid_configs import PUBLISHED_HYBRIDS
from published_configs import PUBLISHED, llama_like, parse

from codesign_base import InputError
from parallelism.model_file import load_model
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.huggingface import FAMILIES, read_config, transformer_from_config
from parallelism.transformers.layout import Layout
from parallelism.transformers.load import is_transformer, load_transformer
from parallelism.transformers.placement import Placement
from parallelism.transformers.presets import get_transformer
from topoopt.problem.job import Job

DEEPSEEK = llama_like(
    "deepseek_v2", 27, 2048, 16, 16, 10944, 102400, architectures=["DeepseekV2ForCausalLM"],
    attention_bias=False, first_k_dense_replace=1, kv_lora_rank=512, moe_intermediate_size=1408,
    moe_layer_freq=1, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
    q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    tie_word_embeddings=False,
)  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12,
    "n_head": 12, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257, "n_inner": None,
    "activation_function": "gelu_new",
}  # fmt: skip
OPT = {
    "model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "ffn_dim": 3072, "vocab_size": 50272, "max_position_embeddings": 2048,
    "word_embed_proj_dim": 768, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
}  # fmt: skip
NEOX = {
    "model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44,
    "num_attention_heads": 64, "intermediate_size": 24576, "vocab_size": 50432,
    "max_position_embeddings": 2048, "tie_word_embeddings": False,
}  # fmt: skip
FALCON = {
    "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
    "num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False,
    "parallel_attn": True, "bias": False, "alibi": False, "vocab_size": 65024,
}  # fmt: skip
VIT = {
    "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True,
    "id2label": {str(i): f"LABEL_{i}" for i in range(1000)},
}  # fmt: skip
LLAMA3 = llama_like("llama", 32, 4096, 32, 8, 14336, 128256, tie_word_embeddings=False)
MIXTRAL = llama_like(
    "mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2,
    sliding_window=None, head_dim=None,
)  # fmt: skip
QWEN_MOE = llama_like(
    "qwen2_moe", 24, 2048, 16, 16, 5632, 151936, decoder_sparse_step=1, num_experts=60,
    moe_intermediate_size=1408, num_experts_per_tok=4, shared_expert_intermediate_size=5632,
    use_sliding_window=False, sliding_window=32768,
)  # fmt: skip
QWEN3_MOE = llama_like(
    "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, head_dim=128, num_experts=128,
    num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
    attention_bias=False, tie_word_embeddings=False,
)  # fmt: skip

# Parameters of the released weights (tied matrices once).
RELEASED = {
    "Llama-2-7b": (llama_like("llama", 32, 4096, 32, 32, 11008, 32000), 6_738_415_616),
    "Meta-Llama-3-8B": (LLAMA3, 8_030_261_248),
    "Llama-3.2-1B": (
        llama_like("llama", 16, 2048, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True),
        1_235_814_400,
    ),
    "Mistral-7B-v0.1": (
        llama_like("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=4096), 7_241_732_096,
    ),
    # Heads of 128 that together are narrower than the hidden width.
    "Mistral-Nemo-12B": (
        llama_like("mistral", 40, 5120, 32, 8, 14336, 131072, head_dim=128), 12_247_782_400,
    ),
    "Mixtral-8x7B": (MIXTRAL, 46_702_792_704),
    "Qwen2-0.5B": (
        llama_like("qwen2", 24, 896, 14, 2, 4864, 151936, tie_word_embeddings=True), 494_032_768,
    ),
    "Qwen2-7B": (llama_like("qwen2", 28, 3584, 28, 4, 18944, 152064), 7_615_616_512),
    "Qwen1.5-MoE-A2.7B": (QWEN_MOE, 14_315_784_192),
    # Heads of 128 by the family's default, wider together than the hidden width.
    "Qwen3-4B": (
        llama_like("qwen3", 36, 2560, 32, 8, 9728, 151936, tie_word_embeddings=True),
        4_022_468_096,
    ),
    "Qwen3-30B-A3B": (QWEN3_MOE, 30_532_122_624),
    "Gemma-2B": (llama_like("gemma", 18, 2048, 8, 1, 16384, 256000), 2_506_172_416),
    "Gemma-7B": (llama_like("gemma", 28, 3072, 16, 16, 24576, 256000), 8_537_680_896),
    "Gemma-2-2B": (llama_like("gemma2", 26, 2304, 8, 4, 9216, 256000), 2_614_341_888),
    "Gemma-2-9B": (llama_like("gemma2", 42, 3584, 16, 8, 14336, 256000), 9_241_705_984),
    "Gemma-3-1B": (
        llama_like("gemma3_text", 26, 1152, 4, 1, 6912, 262144, sliding_window=512), 999_885_952,
    ),
    "GPT-2": (GPT2, 124_439_808),
    "GPT-NeoX-20B": (NEOX, 20_554_567_680),
    "OPT-125M": (OPT, 125_239_296),
    "Falcon-7B": (FALCON, 6_921_720_704),
    "Falcon-40B": (
        FALCON | {"hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
                  "num_kv_heads": 8, "new_decoder_architecture": True},
        41_303_293_952,
    ),
    "Phi-3-mini": (
        llama_like("phi3", 32, 3072, 32, 32, 8192, 32064, sliding_window=2047), 3_821_079_552,
    ),
    "DeepSeek-V2-Lite": (DEEPSEEK, 15_706_484_224),
    "DeepSeek-V3": (
        DEEPSEEK | {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
                    "num_attention_heads": 128, "num_key_value_heads": 128,
                    "intermediate_size": 18432, "vocab_size": 129280, "first_k_dense_replace": 3,
                    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
                    "num_experts_per_tok": 8, "q_lora_rank": 1536,
                    "architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1,
                    "n_group": 8, "topk_group": 4,
                    "quantization_config": {"quant_method": "fp8"}},
        671_026_419_200,
    ),
    "ViT-B-16": (VIT, 86_567_656),
}  # fmt: skip


KIMI_K2 = RELEASED["DeepSeek-V3"][0] | {
    "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64,
    "vocab_size": 163840, "first_k_dense_replace": 1, "n_routed_experts": 384, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
GLM_AIR = llama_like(
    "glm4_moe", 46, 4096, 96, 8, 10944, 151552, architectures=["Glm4MoeForCausalLM"],
    attention_bias=True, head_dim=128, use_qk_norm=False, partial_rotary_factor=0.5,
    moe_intermediate_size=1408, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8,
    first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True,
    num_nextn_predict_layers=1, tie_word_embeddings=False,
)  # fmt: skip
GLM = GLM_AIR | {
    "num_hidden_layers": 92, "hidden_size": 5120, "intermediate_size": 12288, "use_qk_norm": True,
    "moe_intermediate_size": 1536, "n_routed_experts": 160, "first_k_dense_replace": 3,
}  # fmt: skip
# Billions of parameters that their makers print: all, and those that a token meets, which GLM's
# count without the embeddings and Kimi's without one of them.
PRINTED = {
    "Kimi K2": (KIMI_K2, 1026, 32, 1), "GLM-4.5": (GLM, 355, 32, 2),
    "GLM-4.5-Air": (GLM_AIR, 106, 12, 2),
}  # fmt: skip


KNOWN = (
    *RELEASED.values(), *PRINTED.values(), *PUBLISHED.values(), *PUBLISHED_HYBRIDS.values()
)  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_are_those_printed(name: str) -> None:
    data, every, active, without = PRINTED[name]
    model = main_model(data)
    assert model.parameters / 1e9 == pytest.approx(every, rel=0.01)
    met = model.active_parameters - without * model.vocabulary * model.hidden
    assert round(met / 1e9) == active


def test_norms_and_biases_of_glm_heads_are_read() -> None:
    """A layer's query, key and value biases, and two norms of a head, as its weights have them."""
    plain = parse(GLM | {"use_qk_norm": False, "attention_bias": False})
    biases, norms = (96 + 2 * 8) * 128, 2 * 128
    # In the layers and in the module for multi-token prediction.
    assert parse(GLM).parameters - plain.parameters == 93 * (biases + norms)
    assert not parse(GLM).attention.output_bias


def test_norms_of_minimax_queries_and_keys_may_be_left_out() -> None:
    data = llama_like("minimax_m2", 3, 64, 8, 2, 96, 99, num_local_experts=4, num_experts_per_tok=2)
    less = parse(data).parameters - parse(data | {"use_qk_norm": False}).parameters
    assert less == 3 * (8 + 2) * 128


def main_model(data: dict[str, Any]) -> Transformer:
    """Read a configuration; leave out modules for multi-token prediction, as their makers do."""
    return replace(parse(data), mtp_layers=0)


@pytest.mark.parametrize("name", RELEASED)
def test_parameters_are_those_of_the_released_weights(name: str) -> None:
    data, count = RELEASED[name]
    assert main_model(data).parameters == count


def test_every_family_is_tried() -> None:
    tried = {data["model_type"] for data, *_ in KNOWN}
    assert tried | {name.split()[0] for name, *_ in COUNTED} == set(FAMILIES)


@pytest.mark.parametrize(("name", "more", "parameters", "layers"), COUNTED)
def test_parameters_and_windows_are_those_of_the_librarys_classes(
    name: str, more: dict[str, Any], parameters: int, layers: str
) -> None:
    family, *sizes = name.split()
    data = {"model_type": family, "max_position_embeddings": 8192} | more
    data |= {field: int(size) for field, size in zip(SIZES, sizes, strict=True)}
    if "layer_types" in data:
        data["layer_types"] = [KINDS[letter] for letter in data["layer_types"]]
    model = parse(data)
    assert model.parameters == parameters
    assert "".join("fs"[model.slides(layer)] for layer in range(model.layers)) == layers


@pytest.mark.parametrize(
    ("data", "preset"),
    [
        (LLAMA3, "llama3-8b"), (MIXTRAL, "mixtral-8x7b"), (GPT2, "gpt2"), (VIT, "vit-b-16"),
        (QWEN_MOE, "qwen1.5-moe-a2.7b"), (QWEN3_MOE, "qwen3-30b-a3b"),
        (DEEPSEEK, "deepseek-v2-lite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_configuration_is_the_preset_of_that_model(data: dict[str, Any], preset: str) -> None:
    model = get_transformer(preset)
    sequence = None if data is VIT else model.sequence
    again = transformer_from_config(data, "x", name=preset, sequence=sequence)
    assert again == get_transformer(preset, source=again.source)


def test_attention_and_feed_forward_biases_are_honoured() -> None:
    plain = parse(LLAMA3)
    biased = parse(LLAMA3 | {"attention_bias": True, "mlp_bias": True})
    assert biased.parameters - plain.parameters == 32 * (
        (32 + 2 * 8) * 128 + 4096 + 2 * 14336 + 4096
    )


def test_missing_key_heads_are_as_many_as_heads_and_null_counts_as_missing() -> None:
    data = {key: value for key, value in LLAMA3.items() if key != "num_key_value_heads"}
    assert parse(data).attention.kv_heads == 32
    assert parse(LLAMA3 | {"num_key_value_heads": None}).attention.kv_heads == 32
    assert parse(LLAMA3 | {"head_dim": None}).attention.head_width == 128
    assert parse(LLAMA3 | {"head_dim": 64}).attention.head_width == 64


def test_embeddings_are_tied_where_the_family_ties_them() -> None:
    untied = {key: value for key, value in LLAMA3.items() if key != "tie_word_embeddings"}
    assert not parse(untied).tied
    assert parse(GPT2).tied
    assert parse(OPT).tied
    assert not parse(GPT2 | {"tie_word_embeddings": False}).tied


def test_other_spellings_of_gpt2() -> None:
    data = {
        "model_type": "gpt2", "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "n_ctx": 1024, "vocab_size": 50257,
    }  # fmt: skip
    assert parse(data).parameters == 124_439_808
    assert parse(GPT2 | {"n_inner": 1000}).feed_forward == 1000


def test_layers_with_experts_follow_step_and_list() -> None:
    stepped = parse(QWEN3_MOE | {"decoder_sparse_step": 2})
    assert [i for i in range(6) if stepped.has_experts(i)] == [1, 3, 5]
    first = parse(QWEN3_MOE | {"mlp_only_layers": [1, 0]})
    assert [i for i in range(4) if first.has_experts(i)] == [2, 3]


def test_a_window_of_no_keys_is_none() -> None:
    for data in (QWEN_MOE, RELEASED["Mistral-7B-v0.1"][0], RELEASED["Gemma-3-1B"][0]):
        assert parse(data | {"sliding_window": 0}).window is None


def test_the_sequence_keeps_to_positions() -> None:
    assert parse(LLAMA3).sequence == 4096
    assert parse(GPT2).sequence == 1024
    assert parse(RELEASED["Gemma-3-1B"][0]).sequence == 4096
    assert parse(LLAMA3, sequence=100_000).sequence == 100_000
    with pytest.raises(InputError, match="1024 learned positions"):
        parse(GPT2, sequence=1025)
    with pytest.raises(InputError, match="patches"):
        parse(VIT, sequence=50)


def test_a_sequence_that_nobody_asked_for_is_said() -> None:
    def notes(model, **options):
        job = Job(model, global_batch=16, **options)
        placed = Placement(Layout(data=16, microbatch=1), 8)
        return [note for note in job.family(2).assumptions(placed) if "samples have" in note]

    assert notes(parse(LLAMA3)) == ["x: samples have 4096 tokens by default, of 8192 positions"]
    assert notes(parse(LLAMA3, sequence=4096)) == notes(parse(LLAMA3), sequence=2048) == []
    long = "x: samples have 9000 tokens, more than its 8192 positions"
    assert notes(parse(LLAMA3, sequence=9000)) == [long]
    assert notes(get_transformer("llama3-8b")) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "'model_type' is 'mamba'"),
        ({"model_type": "lama"}, "the nearest being 'llama'"),
        ({"model_type": None}, "'model_type' is missing; add it"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"intermediate_size": "big"}, "'intermediate_size' is 'big'"),
        ({"num_hidden_layers": 0}, "at least 1"),
        ({"num_hidden_layers": True}, "whole number"),
        ({"num_hidden_layers": 10**9}, "at most 10000 layers"),
        ({"num_attention_heads": 31, "num_key_value_heads": 31}, "does not divide"),
        ({"num_key_value_heads": 5}, "kv_heads is 5"),
        ({"attention_bias": "yes"}, "give true or false"),
        ({"num_local_experts": 8}, "'num_local_experts' is 8"),
        ({"kv_lora_rank": 512}, "'kv_lora_rank' is 512"),
        ({"is_encoder_decoder": True}, "'is_encoder_decoder' is true"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "ForCausalLM"),
        ({"architectures": "LlamaForCausalLM"}, "list of class names"),
    ],
)
def test_refusals_name_the_field(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        parse(LLAMA3 | change)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_family_makes_lists_of_more_layers_than_models_have(kind: str) -> None:
    known = [data for data, *_ in KNOWN]
    known += [LLAMA3 | {"model_type": name.split()[0]} | more for name, more, *_ in COUNTED]
    data = next(data for data in known if data["model_type"] == kind)
    layers = {"gpt2": "n_layer", "dbrx": "n_layers"}.get(kind, "num_hidden_layers")
    windows = {"use_sliding_window": True, "max_window_layers": 10**9}
    with pytest.raises(InputError, match="1000000000 layers; give at most 10000 layers"):
        parse(data | windows | {layers: 10**9})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (RELEASED["Mistral-7B-v0.1"][0] | {"attention_bias": True}, "'attention_bias' is true"),
        ({k: v for k, v in MIXTRAL.items() if k != "num_local_experts"}, "'num_local_experts'"),
        (OPT | {"word_embed_proj_dim": 512}, "'word_embed_proj_dim' is 512"),
        (OPT | {"do_layer_norm_before": False}, "'do_layer_norm_before' is false"),
        (DEEPSEEK | {"moe_layer_freq": 2}, "'moe_layer_freq' is 2"),
        (DEEPSEEK | {"attention_bias": True}, "'attention_bias' is true"),
        (QWEN3_MOE | {"mlp_only_layers": [5]}, "'mlp_only_layers'"),
        (QWEN3_MOE | {"mlp_only_layers": 3}, "list of layer numbers"),
        (llama_like("qwen3", 2, 64, 2, 2, 64, 99, layer_types=["linear_attention"]),
         "'layer_types'"),
        ({k: v for k, v in VIT.items() if k != "id2label"}, "'id2label' is missing"),
        (VIT | {"patch_size": 15}, "'patch_size' is 15"),
        (VIT | {"architectures": ["ViTModel"]}, "ForImageClassification"),
    ],
)  # fmt: skip
def test_families_refuse_what_they_do_not_model(data: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        parse(data)
    assert words in str(error.value)


def test_files_and_directories_are_read_wherever_a_model_is(tmp_path: Path) -> None:
    home = tmp_path / "Mixtral-8x7B"
    home.mkdir()
    path = home / "config.json"
    path.write_text(json.dumps(MIXTRAL))
    model = read_config(path)
    assert model.name == "Mixtral-8x7B"
    for text in (str(path), str(home)):
        assert load_transformer(text) == model
        assert is_transformer(text)
        assert load_model(text).parameters == 46_702_792_704
    assert load_transformer(str(path), sequence=64, layers=3).layers == 3
    other = tmp_path / "tiny.json"
    other.write_text(json.dumps(LLAMA3))
    assert read_config(other).name == "tiny"


def test_a_folder_needs_no_separator_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(LLAMA3))
    monkeypatch.chdir(tmp_path)
    assert load_transformer("tiny").name == "tiny"
    with pytest.raises(InputError, match=r"^configuration 'config\.json' does not exist"):
        load_transformer(".")
    with pytest.raises(InputError, match=r"^unknown transformer ''"):
        load_transformer("")


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"model_type": "llama"}', ""])
def test_broken_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        read_config(path)


def test_what_is_no_transformer_is_said_to_be_none(tmp_path: Path) -> None:
    assert not is_transformer(str(tmp_path / "absent.json"))
    assert not is_transformer("model.yaml")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert not is_transformer(str(broken))
    assert not is_transformer(str(tmp_path))
