"""config.json of hybrid models: parameters, kinds of layers, and what is refused."""

from dataclasses import replace
from typing import Any

import hybrid_configs
import pytest
from counted_hybrids import COUNTED_HYBRIDS
from hybrid_configs import PUBLISHED_HYBRIDS
from published_configs import llama_like, parse

from codesign_base import InputError
from parallelism.transformers.architecture import Transformer


def kinds_of(model: Transformer) -> str:
    """Return a letter for each layer's mixer, and one for its feed-forward part."""
    layers = range(model.layers)
    mixers = (".flb"[model.has_attention(i) + 2 * model.has_linear(i)] for i in layers)
    fed = ("e" if model.has_experts(i) else ".d"[model.has_feed_forward(i)] for i in layers)
    return f"{''.join(mixers)}|{''.join(fed)}"


@pytest.mark.parametrize(("data", "parameters", "layers"), COUNTED_HYBRIDS)
def test_parameters_and_layers_are_those_of_the_librarys_classes(
    data: dict[str, Any], parameters: int, layers: str
) -> None:
    model = parse(data)
    assert model.parameters == parameters
    assert kinds_of(model) == layers


@pytest.mark.parametrize("name", PUBLISHED_HYBRIDS)
def test_parameters_are_those_of_the_published_hybrid(name: str) -> None:
    data, count, active = PUBLISHED_HYBRIDS[name]
    model = replace(parse(data), mtp_layers=0)
    assert model.parameters == count
    assert model.active_parameters / 1e9 == pytest.approx(active or count / 1e9, abs=0.005)


def test_every_fourth_layer_of_qwen_meets_all_keys() -> None:
    model = parse(hybrid_configs.QWEN3_NEXT)
    assert kinds_of(model) == "lllf" * 12 + "|" + "e" * 48
    data = {k: v for k, v in hybrid_configs.QWEN3_NEXT.items() if k != "layer_types"}
    assert parse(data) == model
    assert kinds_of(parse(data | {"full_attention_interval": 3})).startswith("llfllf")


def test_the_module_of_qwen_has_attention_to_all_keys_and_experts() -> None:
    """Its weights: two norms and a projection of both inputs, a layer, and a norm."""
    model = parse(hybrid_configs.QWEN35_35B)
    assert model.mtp_layers == 1
    layer = model.layer_parameters(39)
    assert model.has_attention(39)
    more = model.parameters - replace(model, mtp_layers=0).parameters
    assert more == layer + 3 * 2048 + 2 * 2048**2
    # Whatever the last layer of the model is.
    kinds = ["full_attention"] + ["linear_attention"] * 39
    other = parse(hybrid_configs.QWEN35_35B | {"layer_types": kinds})
    assert more == other.parameters - replace(other, mtp_layers=0).parameters


def test_blocks_of_nemotron_are_layers_of_one_part() -> None:
    model = parse(hybrid_configs.NEMOTRON_NANO)
    pattern = str(hybrid_configs.NEMOTRON_NANO["hybrid_override_pattern"])
    letters = {"M": "l.", "*": "f.", "E": ".e"}
    parts = kinds_of(model).split("|")
    assert list(zip(*parts, strict=True)) == [tuple(letters[letter]) for letter in pattern]
    assert all(model.parts(layer) == model.norms(layer) == 1 for layer in range(52))
    names = {"M": "mamba", "*": "attention", "E": "moe"}
    data = {k: v for k, v in hybrid_configs.NEMOTRON_NANO.items() if "pattern" not in k}
    assert parse(data | {"layers_block_type": [names[letter] for letter in pattern]}) == model
    assert model.linear is not None
    assert (model.linear.chunk, model.linear.full_layers) == (128, (5, 12, 19, 26, 33, 42))


def test_the_module_of_nemotron_3_is_a_block_of_attention_and_one_of_experts() -> None:
    model = parse(hybrid_configs.NEMOTRON_SUPER)
    assert model.mtp_layers == 1
    assert (model.has_attention(88), model.has_experts(88), model.norms(88)) == (True, True, 2)
    # As printed of Nemotron 3.5 Lightning, which is Nemotron 3 Nano with one.
    lightning = parse(hybrid_configs.NEMOTRON_NANO | {"num_nextn_predict_layers": 1})
    assert lightning.parameters == 32_913_266_240
    # It is trained on two further tokens, by one module; as Megatron Bridge reads the file.
    assert replace(lightning, mtp_layers=2).parameters == 32_913_266_240
    apart = {"num_nextn_predict_layers": 2, "mtp_use_repeated_layer": False}
    module = 32_913_266_240 - replace(lightning, mtp_layers=0).parameters
    several = parse(hybrid_configs.NEMOTRON_NANO | apart).parameters
    assert several == 32_913_266_240 + module


def test_kimi_counts_layers_from_one() -> None:
    model = parse(hybrid_configs.KIMI)
    assert kinds_of(model) == "lllf" * 6 + "llf|d" + "e" * 26
    # Without a list the classes of the library take each fourth layer after the first.
    short = {k: v for k, v in hybrid_configs.KIMI.items() if k != "linear_attn_config"}
    assert kinds_of(parse(short)).startswith("llllflllf")


def test_layers_of_one_kind_need_no_linear_attention() -> None:
    data = hybrid_configs.QWEN35_27B | {"layer_types": ["full_attention"] * 64}
    assert parse(data).linear is None
    assert kinds_of(parse(hybrid_configs.GRANITE_TINY | {"layer_types": None}))[0:3] == "lll"


def without(data: dict[str, Any], *starts: str) -> dict[str, Any]:
    """Leave out fields whose names begin so."""
    return {name: value for name, value in data.items() if not name.startswith(starts)}


def test_what_a_file_leaves_out_is_as_in_the_classes() -> None:
    qwen = parse(without(hybrid_configs.QWEN35_35B, "linear_", "layer_types", "full_attention"))
    assert qwen.linear == parse(hybrid_configs.QWEN35_35B).linear
    kimi = {k: v for k, v in KIMI.items() if k != "linear_attn_config"}
    heads = parse(kimi | {"linear_head_dim": 64, "linear_conv_kernel_dim": 3}).linear
    assert heads is not None
    assert (heads.heads, heads.key_width, heads.value_width, heads.convolution) == (32, 64, 64, 3)
    granite = parse(without(hybrid_configs.GRANITE_SMALL, "mamba_"))
    assert granite.linear is not None
    assert (granite.linear.heads, granite.linear.key_width, granite.linear.chunk) == (128, 256, 256)
    assert granite.linear.convolution_bias
    mamba = parse(without(NANO, "n_groups", "mamba_", "ssm_", "conv_", "chunk_", "use_conv"))
    assert mamba.linear is not None
    assert parse(NANO | {"mamba_num_heads": 128}).linear == mamba.linear
    bamba = without(hybrid_configs.BAMBA, "num_key_value_heads")
    assert parse(bamba).attention.kv_heads == 8
    assert parse(bamba | {"num_key_value_heads": None}).attention.kv_heads == 32


def test_other_spellings_of_nemotron_and_kimi() -> None:
    nemotron = hybrid_configs.NEMOTRON_8B
    assert parse(nemotron | {"attention_head_dim": 48}).attention.head_width == 48
    assert parse(nemotron | {"attention_head_dim": 48, "head_dim": 64}).attention.head_width == 64
    grouped = parse(KIMI | {"num_expert_group": 8, "topk_group": 4}).experts
    assert grouped is not None
    assert (grouped.groups, grouped.groups_per_token) == (8, 4)
    spelt_twice = KIMI | {"num_experts_per_tok": KIMI["num_experts_per_token"]}
    assert parse(spelt_twice) == parse(KIMI)
    assert (parse(KIMI).sequence, parse(KIMI | {"model_max_length": 2048}).sequence) == (4096, 2048)


def test_a_module_has_experts_wherever_the_last_block_of_them_is() -> None:
    pattern = {"hybrid_override_pattern": "M*EM", "num_hidden_layers": 4}
    model = parse(NANO | pattern | {"num_nextn_predict_layers": 1})
    assert (model.has_experts(4), model.has_experts(3)) == (True, False)


def test_layers_of_minimax_are_a_list_of_numbers_or_of_words() -> None:
    model = parse(MINIMAX)
    assert kinds_of(model) == "lllllllf" * 10 + "|" + "e" * 80
    named = parse(hybrid_configs.MINIMAX)
    assert replace(named, source=model.source) == model
    assert model.linear is not None
    assert (model.linear.chunk, model.linear.key_width) == (256, 128)
    # As the class has it, which is not released.
    assert kinds_of(parse(without(hybrid_configs.MINIMAX, "layer_types"))).startswith("flflfl")


def test_layers_of_jamba_are_periodic() -> None:
    assert kinds_of(parse(JAMBA)) == "llllflll" * 4 + "|" + "de" * 16
    assert kinds_of(parse(JAMBA | {"num_experts": 1})).endswith("|" + "d" * 32)
    assert parse(JAMBA | {"mamba_dt_rank": "auto"}) == parse(JAMBA)
    kinds = (["mamba"] * 4 + ["attention"] + ["mamba"] * 3) * 4
    assert parse(JAMBA | {"layers_block_type": kinds}) == parse(JAMBA)


def test_widths_of_lfm2_are_those_that_its_class_makes() -> None:
    assert parse(LFM2).feed_forward == 8192
    assert parse(LFM2 | {"block_auto_adjust_ff_dim": False}).feed_forward == 12288
    assert parse(LFM2 | {"block_ffn_dim_multiplier": 1.3}).feed_forward == 10752
    assert parse(LFM2 | {"block_ffn_dim_multiplier": None}).feed_forward == 8192
    assert parse(without(LFM2, "tie_embedding")).tied
    assert not parse(LFM2 | {"tie_embedding": False}).tied
    assert parse(without(LFM2, "full_attn_idxs")).linear is None


NANO, KIMI = hybrid_configs.NEMOTRON_NANO, hybrid_configs.KIMI
LFM2, LFM2_MOE, MINIMAX = hybrid_configs.LFM2, hybrid_configs.LFM2_MOE, hybrid_configs.MINIMAX_M1
JAMBA, FALCON = hybrid_configs.JAMBA, hybrid_configs.FALCON_H1


@pytest.mark.parametrize(
    ("data", "change", "words"),
    [
        (NANO, {"hybrid_override_pattern": None}, "'hybrid_override_pattern' is missing"),
        (NANO, {"hybrid_override_pattern": "MX"}, "is 'X'; only the letters M * - E"),
        (NANO, {"hybrid_override_pattern": 3}, "give a text"),
        (NANO, {"hybrid_override_pattern": "M*E"}, "it names 3 of 52 layers"),
        (NANO, {"layers_block_type": ["mamba"] * 52}, "it makes layer 1 (from 0) E, but "
         "field 'layers_block_type' says mamba; remove one"),
        (NANO, {"layers_block_type": ["lstm"]}, "only mamba, attention, linear_attention, full_"),
        (NANO, {"hybrid_override_pattern": "M-E", "num_hidden_layers": 3}, "some have experts"),
        (NANO, {"hybrid_override_pattern": "M" * 10_001, "num_hidden_layers": None}, "at most"),
        (NANO, {"n_shared_experts": 2}, "'n_shared_experts' is 2; only one shared expert"),
        (NANO, {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "M"},
         "'mtp_hybrid_override_pattern' is 'M'; only modules of the blocks attention and moe (*E)"),
        (hybrid_configs.NEMOTRON_8B, {"num_nextn_predict_layers": 1}, "attention and mlp (*-)"),
        (NANO, {"use_bias": True}, "'use_bias' is true; only Nemotron-H without biases"),
        (NANO, {"mamba_proj_bias": True}, "'mamba_proj_bias' is true"),
        (NANO, {"sliding_window": 512}, "'sliding_window' is 512"),
        (NANO, {"block_configs": [{}]}, "'block_configs' is [{}]"),
        (KIMI, {"mla_use_output_gate": True}, "kimi_linear models are not known with it"),
        (KIMI, {"attn_res_block_size": 12}, "kimi_linear models are not known with it"),
        (KIMI, {"routed_expert_hidden_size": 512}, "kimi_linear models are not known with it"),
        (KIMI, {"attention_bias": True}, "only latent attention without biases"),
        (KIMI, {"linear_attn_config": {"use_full_rank_gate": True}}, "only gates of low rank"),
        (KIMI, {"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [1]}},
         "field 'full_attn_layers' is [1]; it has layer 1, as kda_layers does; give each of the"),
        (KIMI, {"linear_attn_config": 4}, "give an object"),
        (KIMI, {"num_experts_per_tok": 4}, "'num_experts_per_tok' is 4; 'num_experts_per_token', "
         "which says the same of kimi_linear models, is 8; remove one of them"),
        (KIMI, {"n_group": 2, "num_expert_group": 4}, "'n_group' is 2; 'num_expert_group'"),
        (hybrid_configs.QWEN35_27B, {"attn_output_gate": False}, "only Qwen with gated attention"),
        (hybrid_configs.QWEN35_27B, {"mtp_num_hidden_layers": 2}, "only a module of one layer"),
        (hybrid_configs.QWEN35_27B, {"mtp_use_dedicated_embeddings": True}, "share the model's"),
        (hybrid_configs.QWEN35_27B, {"layer_types": ["linear_attention"]}, "names 1 of 64 layers"),
        (hybrid_configs.QWEN35_27B, {"linear_num_key_heads": 7}, "key_heads is 7 beside 48 heads"),
        (hybrid_configs.QWEN3_NEXT, {"mlp_only_layers": [7]}, "only the first layers may be dense"),
        (hybrid_configs.GRANITE_TINY, {"mamba_d_head": 32}, "heads of 32 are not mamba_expand *"),
        (hybrid_configs.GRANITE_TINY, {"mamba_proj_bias": True}, "without biases of projections"),
        (hybrid_configs.GRANITE_TINY, {"layer_types": ["moe"] * 40}, "entry 0 (from 0) of field"),
        (hybrid_configs.BAMBA, {"attn_layer_indices": "9"}, "give a list of layer numbers"),
        (LFM2, {"conv_bias": True}, "only short convolutions without biases"),
        (LFM2, {"block_dim": 1024}, "only widths of hidden_size 2048 are known"),
        (LFM2, {"tie_word_embeddings": False}, "tie_word_embeddings says otherwise"),
        (LFM2, {"block_ff_dim": 10752}, "intermediate_size says otherwise"),
        (LFM2, {"block_ffn_dim_multiplier": "1"}, "give a number that leaves feed-forward parts"),
        (LFM2, {"block_ffn_dim_multiplier": 1e300}, "give a number that leaves feed-forward parts"),
        (LFM2, {"full_attn_idxs": [16]}, "give layers from 0 to 15"),
        (LFM2, {"layer_types": ["conv"] * 16}, "'full_attn_idxs' is [2, 5, 8, 10, 12, 14]; it mak"),
        (LFM2, {"layer_types": ["mamba"] * 16}, "only full_attention and conv are known"),
        (LFM2_MOE, {"layer_types": None}, "'layer_types' is missing"),
        (MINIMAX, {"attn_type_list": None}, "'attn_type_list' is missing"),
        (MINIMAX, {"attn_type_list": [1] * 79}, "names 79 of 80 layers"),
        (MINIMAX, {"attn_type_list": [2] * 80}, "only 0, lightning attention, and 1 are known"),
        (MINIMAX, {"shared_intermediate_size": [8] * 80}, "without shared experts"),
        (MINIMAX, {"sliding_window": 512}, "'sliding_window' is 512"),
        (JAMBA, {"attn_layer_offset": 8}, "the offset is 8 of a period of 8 layers"),
        (JAMBA, {"expert_layer_offset": 0}, "only experts in the last of each 2 layers"),
        (JAMBA, {"layers_block_type": ["mamba"] * 32}, "'attn_layer_period' is 8; it makes lay"),
        (JAMBA, {"mamba_dt_rank": "half"}, "give a whole number of at least 1"),
        (JAMBA, {"mamba_proj_bias": True}, "without biases of projections"),
        (FALCON, {"mamba_n_heads": 12}, "heads of 128 are not mamba_d_ssm = 3072 together"),
        (FALCON, {"projectors_bias": True}, "'projectors_bias' is true"),
        (FALCON, {"layers_block_type": ["mamba"] * 44}, "only hybrid is known"),
        (llama_like("mimo_v2_flash", 2, 64, 4, 2, 96, 99), {}, "more key heads where a window"),
        (llama_like("longcat_flash", 2, 64, 4, 2, 96, 99), {}, "two attentions beside one set of"),
    ],
)  # fmt: skip
def test_hybrids_refuse_what_they_do_not_model(
    data: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        parse(data | change)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
