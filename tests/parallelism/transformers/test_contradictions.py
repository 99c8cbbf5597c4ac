"""Two fields of config.json about the same layers: which pairs are refused, and which are not.

The classes of transformers 5.24.0 take a list of kinds wherever it is given and do not look at the
number beside it. They write both: the list as computed, and the number as it was or by default. So
a number that is the class's default is not refused beside another list, as people who change the
list in Python save such files; any other number was set on purpose, and so was a second list.
"""

from typing import Any

import hybrid_configs
import pytest
from published_configs import PUBLISHED, llama_like, parse

from codesign_base import InputError
from parallelism.transformers.huggingface import _UNREAD, FAMILIES

QWEN = hybrid_configs.QWEN35_27B | {"num_hidden_layers": 4}
QWEN_LIST = ["linear_attention", "full_attention"] * 2
GLM = PUBLISHED["GLM-5"][0] | {"num_hidden_layers": 6}
# As GLM-5.2's file: three layers that choose, then one of each four.
GLM_LIST = ["full"] * 3 + ["shared"] * 3
DENSE = ["dense"] * 2 + ["sparse"] * 4
KIMI = hybrid_configs.KIMI
NANO = hybrid_configs.NEMOTRON_NANO
NANO_NAMES = {"M": "mamba", "*": "attention", "E": "moe"}
NANO_LIST = [NANO_NAMES[letter] for letter in str(NANO["hybrid_override_pattern"])]
KIMI_LIST = [
    "full_attention" if layer in hybrid_configs.KIMI_FULL else "linear_attention"
    for layer in range(1, 28)
]
GEMMA = llama_like("gemma3_text", 4, 64, 4, 2, 96, 99, sliding_window=8)
SLIDING = ["sliding_attention", "full_attention"] * 2
SMOL = llama_like("smollm3", 4, 64, 4, 2, 96, 99, use_sliding_window=True, sliding_window=8)
QWEN2 = llama_like("qwen2", 4, 64, 4, 2, 96, 99, use_sliding_window=True, sliding_window=8)
GRANITE = hybrid_configs.GRANITE_TINY

# A file with the list, the other field as it agrees, and as it does not; the class's default.
PAIRS: dict[str, tuple[dict[str, Any], str, Any, Any, Any]] = {
    "interval": (QWEN | {"layer_types": QWEN_LIST}, "full_attention_interval", 2, 3, 4),
    "step": (
        GLM | {"indexer_types": GLM_LIST, "index_skip_topk_offset": 3}, "index_topk_freq", 4, 2, 1,
    ),
    "letters": (GLM | {"indexer_types": GLM_LIST}, "index_topk_pattern", "FFFSSS", "FFFSSF", None),
    "dense": (GLM | {"mlp_layer_types": DENSE}, "first_k_dense_replace", 2, 1, 3),
    "kimi": (
        KIMI | {"layer_types": KIMI_LIST}, "linear_attn_config", KIMI["linear_attn_config"],
        {"full_attn_layers": [1], "kda_layers": list(range(2, 28))}, {"num_heads": 32},
    ),
    "kimi heads": (KIMI, "linear_num_heads", 32, 16, None),
    "kimi dense": (
        KIMI | {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 25}, "first_k_dense_replace", 2, 3,
        1,
    ),
    "blocks": (NANO, "layers_block_type", NANO_LIST, NANO_LIST[::-1], None),
    "kinds": (NANO, "layer_types", NANO_LIST, NANO_LIST[:-1], None),
    "old kinds": (
        GRANITE, "layers_block_type", GRANITE["layer_types"], ["mamba"] * 40, None,
    ),
    "pattern": (GEMMA | {"layer_types": SLIDING}, "sliding_window_pattern", 2, 3, 6),
    "late": (
        QWEN2 | {"layer_types": sorted(SLIDING)}, "max_window_layers", 2, 1, 28,
    ),
    "rotary": (SMOL | {"no_rope_layers": [1, 0] * 2}, "no_rope_layer_interval", 2, 3, 4),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_fields_that_disagree_are_refused_by_both_names(pair: str) -> None:
    data, other, agrees, differs, usual = PAIRS[pair]
    alone = {name: value for name, value in data.items() if name != other}
    model = parse(alone)
    assert parse(data | {other: agrees}) == model
    if usual is not None:
        assert parse(data | {other: usual}) == model
    with pytest.raises(InputError) as error:
        parse(data | {other: differs})
    assert f"field {other!r}" in str(error.value)
    assert "remove one of " in str(error.value)
    (listed,) = {
        "kimi heads": ["num_heads"], "old kinds": ["layer_types"], "rotary": ["no_rope_layers"],
        "blocks": ["hybrid_override_pattern"], "kinds": ["hybrid_override_pattern"],
    }.get(pair, [name for name in data if name.endswith("_types")])  # fmt: skip
    assert listed in str(error.value)


@pytest.mark.parametrize(
    ("data", "change", "words"),
    [
        (QWEN, {"layer_types": QWEN_LIST, "full_attention_interval": 3},
         "is 3; it makes layer 1 (from 0) linear_attention, but field 'layer_types' says full_"),
        (GLM, {"mlp_layer_types": ["dense", "sparse", "dense", *["sparse"] * 3]},
         "entry 2 (from 0) of field 'mlp_layer_types' is 'dense'; only the first layers may be"),
        (GLM, {"mlp_layer_types": ["dense"]}, "it names 1 of 6 layers (num_hidden_layers)"),
        (NANO, {"hybrid_override_pattern": "M*E"}, "give a kind for each, or remove num_hidden"),
        (NANO, {"hybrid_override_pattern": "MEMEMEMEMEMEMEMEX"},
         "letter 16 (from 0) of field 'hybrid_override_pattern' is 'X'; only the letters M * - E"),
        (QWEN, {"layer_types": ["linear_attention"] * 60 + ["sliding"]},
         "entry 60 (from 0) of field 'layer_types' is 'sliding'; only full_attention, linear_"),
        (QWEN, {"layer_types": ["linear_attention"] * 60},
         "field 'layer_types' is a list of 60 entries; it names 60 of 4 layers"),
        (hybrid_configs.BAMBA, {"attn_layer_indices": [9, 32]},
         "entry 1 (from 0) of field 'attn_layer_indices' is 32; give layers from 0 to 31"),
        (hybrid_configs.BAMBA, {"attn_layer_indices": [9, "18"]}, "entry 1 (from 0) of field"),
        (PUBLISHED["Hunyuan-A13B"][0], {"moe_topk": [8] * 31 + [4]}, "entry 31 (from 0) of"),
    ],
)  # fmt: skip
def test_messages_name_the_place(data: dict[str, Any], change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        parse(data | change)
    assert words in str(error.value)
    assert len(str(error.value)) < 300


SPARSE = {
    name: data for name, (data, *_) in (PUBLISHED | hybrid_configs.PUBLISHED_HYBRIDS).items()
    if parse(data).experts
}  # fmt: skip
V3 = PUBLISHED["DeepSeek-V3.2"][0] | {"n_group": 8, "topk_group": 4}


@pytest.mark.parametrize("name", SPARSE)
def test_a_token_goes_to_no_more_experts_than_there_are_by_the_files_names(name: str) -> None:
    data, inner = SPARSE[name], "ffn_config"
    spellings = ("num_experts_per_token", "num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k")
    each = next(each for each in spellings if each in data | data.get(inner, {}))
    changed = data | {each: 9999}
    if inner in data:
        changed = data | {inner: data[inner] | {each: 9999}}
    with pytest.raises(InputError) as error:
        parse(changed)
    text = str(error.value)
    count = text.partition("give at most ")[2].partition(" = ")[0]
    assert f"field {each!r} is 9999; give at most {count} = {parse(data).experts.count}" in text
    assert count in data | data.get(inner, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topk_group": 9}, "field 'topk_group' is 9; give at most n_group = 8"),
        ({"n_group": None}, "field 'topk_group' is 4; give at most n_group = 1"),
        ({"n_group": 7}, "field 'n_group' is 7; give a divisor of n_routed_experts = 256"),
        ({"n_routed_experts": 4096, "n_group": 2048}, "n_routed_experts = 4096, of at most 1024"),
        ({"n_group": 128, "topk_group": 1}, "field 'topk_group' is 1; 1 of n_group = 128 groups "
         "hold 2 of n_routed_experts = 256 experts, fewer than num_experts_per_tok = 8; give"),
        ({"first_k_dense_replace": 61}, "field 'first_k_dense_replace' is 61; all 61 layers are"),
    ],
)  # fmt: skip
def test_groups_of_experts_are_refused_by_the_files_names(change, words: str) -> None:
    with pytest.raises(InputError) as error:
        parse(V3 | change)
    assert words in str(error.value)


@pytest.mark.parametrize("data", [V3, GLM, KIMI])
def test_latent_attention_has_as_many_key_heads_as_heads(data: dict[str, Any]) -> None:
    heads = data["num_attention_heads"]
    for said in (heads, None):
        assert parse(data | {"num_key_value_heads": said}) == parse(data)
    words = f"is 8; latent attention .* num_attention_heads is {heads}; give {heads}, or remove"
    with pytest.raises(InputError, match=f"field 'num_key_value_heads' {words}"):
        parse(data | {"num_key_value_heads": 8})


def test_groups_and_experts_that_a_file_leaves_out_are_named() -> None:
    with pytest.raises(InputError, match="'num_expert_group' is 128; 1 of num_expert_group = 128"):
        parse({**KIMI, "num_expert_group": 128, "topk_group": None})
    ernie = PUBLISHED["ERNIE-4.5-21B"][0] | {"moe_num_experts": 4, "moe_k": None}
    with pytest.raises(InputError, match="is 4; a token goes to 6 without a field 'moe_k'; give"):
        parse(ernie)
    glm = GLM | {"mlp_layer_types": ["dense"] * 6}
    with pytest.raises(InputError, match=r"'mlp_layer_types' is .*; all 6 layers are dense then"):
        parse(glm)


@pytest.mark.parametrize(
    ("full", "kda", "words"),
    [
        ([4], [*range(1, 27)], "it has layer 4, as kda_layers does"),
        ([4], [*range(5, 28), 1, 2], "it lacks layer 3, as kda_layers does"),
        ([], [*range(1, 27)], "it lacks layer 27, as kda_layers does"),
        ([4, 28], [*range(1, 4), *range(5, 28)], "it names layer 28"),
        ([4, 4], [*range(1, 4), *range(5, 28)], "has layer 4 twice"),
        ([4], [0, *range(1, 4), *range(5, 28)], "names layer 0"),
    ],
)
def test_lists_of_kimi_say_which_layer_is_wrong(full: list[int], kda: list[int], words) -> None:
    lists = {"full_attn_layers": full, "kda_layers": kda}
    with pytest.raises(InputError, match="give each of the layers 1 to 27 in one of the") as error:
        parse(KIMI | {"linear_attn_config": lists})
    assert words in str(error.value)


@pytest.mark.parametrize("kind", [*_UNREAD, "lama", "quite-another", "qwen3_5_moe", 7])
def test_unknown_families_say_what_to_do(kind: object) -> None:
    with pytest.raises(InputError) as error:
        parse(llama_like("llama", 2, 64, 4, 2, 96, 99) | {"model_type": kind})
    text = str(error.value)
    assert f"field 'model_type' is {kind!r}, a family that is not known" in text
    assert "; known: llama, mistral" in text
    assert "in Python by parallelism.transformers.architecture.Transformer" in text
    near = {"lama": "llama", "qwen3_5_moe": "qwen3_5_moe_text"}.get(str(kind), "")
    assert not near or f"the nearest being {near!r};" in text
    assert (kind in _UNREAD) == ("cannot be described" in text)


def test_no_family_is_both_known_and_unknown() -> None:
    assert not set(_UNREAD) & set(FAMILIES)


def test_windows_that_exaones_class_writes_as_none_are_read() -> None:
    """Without a window the class writes 0 for its pattern."""
    data = llama_like("exaone4", 4, 64, 4, 2, 96, 99, layer_types=["full_attention"] * 4)
    assert parse(data | {"sliding_window": None, "sliding_window_pattern": 0}).window is None


def test_a_list_of_experts_in_all_but_the_first_layers_is_read():
    glm = GLM | {"first_k_dense_replace": 2}
    assert parse(glm | {"moe_layer_freq": [0, 0, 1, 1, 1, 1]}) == parse(glm)
    for other in ([0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 1], 2):
        with pytest.raises(InputError, match=r"moe_layer_freq.*first_k_dense_replace.*give 1"):
            parse(glm | {"moe_layer_freq": other})


def test_a_sliding_window_that_is_switched_off_is_none():
    plain = llama_like("llama", 4, 64, 4, 2, 96, 99)
    off = {"sliding_window": 4096, "use_sliding_window": False}
    assert parse(plain | off) == parse(plain)
    with pytest.raises(InputError, match="sliding_window"):
        parse(plain | {"sliding_window": 4096})
