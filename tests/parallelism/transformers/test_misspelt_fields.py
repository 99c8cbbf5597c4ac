"""Fields of config.json that nothing reads: the classes' own are left alone, misspelt ones refused.

``class_configs.json`` holds what the classes of transformers 5.24.0 write of each family with 6
layers (Nemotron-H 3): fields that are read with their values, names of all others that are not
null, and other names that the class knows fields by. Four that the classes leave open were set.
"""

import json
from pathlib import Path
from typing import Any

import counted_configs
import pytest
from counted_configs import COUNTED, SIZES
from hypothesis import given
from hypothesis import strategies as st
from published_configs import llama_like, parse

from codesign_base import InputError
from parallelism.suggestions import misspelt
from parallelism.transformers import huggingface
from parallelism.transformers.config_fields import ConfigFields

CLASSES: dict[str, Any] = json.loads(
    Path(counted_configs.__file__).with_name("class_configs.json").read_text()
)
WITHOUT_CLASS = {"qwen2_5_vl", "bailing_moe_v2", "internlm2", "kimi_k2", "mimo"}
WITHOUT_CLASS |= {"minimax_m1", "minimax_text_01"}
# What released files carry beside, of older versions of the library and for generation.
# fmt: off
RELEASED = frozenset("""
_name_or_path _attn_implementation_autoset auto_map torch_dtype dtype transformers_version
quantization_config rope_theta rope_scaling rope_local_base_freq partial_rotary_factor rotary_pct
rotary_emb_base rotary_dim use_cache pretraining_tp attn_pdrop embd_pdrop resid_pdrop hidden_dropout
attention_dropout bos_token_id eos_token_id pad_token_id cache_implementation sliding_window_size
query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping hidden_activation
initializer_range layer_norm_eps layer_norm_epsilon rms_norm_eps norm_eps aux_loss_alpha seq_aux
scoring_func topk_method routed_scaling_factor norm_topk_prob ep_size router_aux_loss_coef
output_router_logits router_jitter_noise qk_head_dim num_beams num_beam_groups top_k top_p
max_length min_length num_return_sequences temperature typical_p no_repeat_ngram_size
task_specific_params summary_type summary_use_proj scale_attn_weights
reorder_and_upcast_attn gradient_checkpointing
attention_multiplier embedding_multiplier logits_scaling residual_multiplier mamba_ssm_dtype
num_logits_to_keep time_step_limit time_step_floor rescale_prenorm_residual residual_in_fp32
original_max_position_embeddings logit_scale attn_temperature_tuning floor_scale moe_renormalize
moe_router_activation_func use_grouped_topk mla_use_nope model_max_length_in_training swiglu_limit
""".split())  # noqa: SIM905
# fmt: on


def config_of(kind: str) -> dict[str, Any]:
    """Return what a family's class writes; fields that nothing reads are all 1."""
    held = CLASSES[kind]
    return {**dict.fromkeys(held["others"].split(), 1), **held["fields"]}


def test_every_family_with_a_class_is_held() -> None:
    assert set(CLASSES) | WITHOUT_CLASS == set(huggingface.FAMILIES)


@pytest.mark.parametrize("kind", CLASSES)
def test_what_the_classes_write_is_read(kind: str) -> None:
    """With what files of all other families and older versions have beside, too."""
    data = config_of(kind)
    model = parse(data)
    beside = {name for held in CLASSES.values() for name in held["others"].split()}
    read = {name for held in CLASSES.values() for name in held["fields"]}
    assert parse(dict.fromkeys({*beside, *RELEASED} - read, 1) | data) == model


@pytest.mark.parametrize("kind", CLASSES)
def test_a_classs_other_name_of_a_field_is_read_as_it_or_refused(kind: str) -> None:
    data = config_of(kind)
    for other, name in CLASSES[kind]["aliases"].items():
        if other in data:
            continue
        renamed = {key: value for key, value in data.items() if key != name} | {other: data[name]}
        try:
            assert parse(renamed) == parse(data), other
        except InputError as error:
            assert name in str(error) or other in str(error)


class Recorded(ConfigFields):
    """Fields that remember under which spellings they were asked for."""

    last: "Recorded"

    def __init__(self, data: dict[str, Any], where: str, kind: str) -> None:
        super().__init__(data, where, kind)
        Recorded.last = self


def read_alone(data: dict[str, Any]) -> dict[str, set[str]]:
    """Return the fields that are read, but for those given twice, and what else is read as them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(huggingface, "ConfigFields", Recorded)
        parse(data)
    found: dict[str, set[str]] = {}
    for names in Recorded.last._asked:
        for name in names:
            found.setdefault(name, set()).update(names)
    return {
        name: found[name] for name, value in data.items()
        if value is not None and name in found and found[name].isdisjoint(set(data) - {name})
    }  # fmt: skip


def slips(name: str) -> list[str]:
    """Return a name with a letter dropped, doubled, or swapped with the next."""
    places = range(len(name))
    dropped = [name[:i] + name[i + 1 :] for i in places]
    doubled = [name[: i + 1] + name[i:] for i in places]
    swapped = [name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in places[:-1]]
    return sorted({*dropped, *doubled, *swapped} - {name})


@given(st.sampled_from(sorted(CLASSES)), st.data())
def test_a_slip_in_a_field_that_is_read_is_refused_by_name(kind: str, draw: st.DataObject) -> None:
    """Whatever the family's default is: a file that says it another way is refused, too."""
    data = config_of(kind)
    read = read_alone(data)
    name = draw.draw(st.sampled_from(sorted(read)))
    wrong = draw.draw(st.sampled_from(sorted({*slips(name)} - {*data, "n_group"})))
    renamed = {wrong if key == name else key: value for key, value in data.items()}
    with pytest.raises(InputError) as error:
        parse(renamed)
    assert f"{wrong!r}" in str(error.value)
    assert any(f"{each!r}" in str(error.value) for each in read[name])


LLAMA = llama_like("llama", 2, 64, 4, 2, 96, 99)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("num_hiden_layers", "num_hidden_layers"), ("num_key_value_head", "num_key_value_heads"),
        ("num-attention-heads", "num_attention_heads"), ("hiddenSize", "hidden_size"),
        ("tie_word_embedding", "tie_word_embeddings"), ("archtectures", "architectures"),
        ("num_nextn_predict_layer", "num_nextn_predict_layers"), ("hiden_act", "hidden_act"),
        ("max_position_embedings", "max_position_embeddings"), ("heads_dim", "head_dim"),
    ],
)  # fmt: skip
def test_the_sentence_names_both(wrong: str, right: str) -> None:
    data = {key: value for key, value in LLAMA.items() if key != right} | {wrong: 7}
    with pytest.raises(InputError) as error:
        parse(data)
    assert str(error.value) == (
        f"configuration 'x': field {wrong!r} is 7; llama models have no such field, and the file "
        f"has no {right!r}; rename it, or remove it"
    )
    # Beside the right one, and with null, it says nothing.
    assert parse(LLAMA | {right: LLAMA.get(right), wrong: 7}) == parse(LLAMA)
    assert parse(LLAMA | {wrong: None}) == parse(LLAMA)


def test_a_misspelt_family_and_fields_of_objects_are_named() -> None:
    named = {("model_typ" if key == "model_type" else key): LLAMA[key] for key in LLAMA}
    with pytest.raises(InputError, match="'model_type' is missing; rename 'model_typ'"):
        parse(named | {"architectures": ["LlamaForCausalLM"]})
    data = config_of("dbrx")
    data["attn_config"] = {"kv_n_head": 8}
    with pytest.raises(InputError, match="field 'attn_config': field 'kv_n_head' is 8; dbrx"):
        parse(data)


def test_two_spellings_of_a_field_must_agree() -> None:
    data = config_of("mixtral")
    experts = data["num_local_experts"]
    assert parse(data | {"num_experts": experts}) == parse(data)
    with pytest.raises(InputError, match="'num_experts' is 3; 'num_local_experts', which says the"):
        parse(data | {"num_experts": 3})
    # What a class assumes is no spelling of the file's.
    sparse = {key: value for key, value in config_of("deepseek_v32").items() if "shared" not in key}
    experts_of = parse(sparse | {"num_shared_experts": 2}).experts
    assert experts_of is not None
    assert experts_of.shared == 2


WORDS = st.text("ab_", min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_slips_are_edits(word: str, known: str) -> None:
    """One edit of a short name, by trying all of them, or other separators."""
    one = word
    edits = {one} | {one[:i] + one[i + 1 :] for i in range(len(one))}
    edits |= {
        one[:i] + letter + one[j:]
        for letter in "ab_" for i in range(len(one) + 1) for j in (i, i + 1)
    }  # fmt: skip
    edits |= {one[:i] + one[i + 1] + one[i] + one[i + 2 :] for i in range(len(one) - 1)}
    alike = word.replace("_", "") == known.replace("_", "")
    assert misspelt(word, known) == (alike or known in edits)


def test_names_of_other_fields_are_no_slips() -> None:
    for word, known in (
        ("v_head_dim", "head_dim"), ("qk_head_dim", "v_head_dim"), ("num_beams", "num_heads"),
        ("moe_intermediate_size", "intermediate_size"), ("attn_layer_offset", "attn_layer_period"),
        ("num_key_value_heads", "num_attention_heads"), ("linear_num_heads", "num_kv_heads"),
    ):  # fmt: skip
        assert not misspelt(word, known)
        assert not misspelt(known, word)
    assert misspelt("num_experts_per_token", "num_experts_per_tok")


def test_files_without_most_fields_are_read() -> None:
    """Nothing of them is taken for a slip of what they leave out."""
    small = {name.split()[0]: (name.split()[1:], more) for name, more, *_ in COUNTED}
    for kind, (sizes, more) in small.items():
        data = {"model_type": kind, **dict(zip(SIZES, map(int, sizes), strict=True))}
        plain = {key: value for key, value in more.items() if key != "layer_types"}
        parse(dict.fromkeys(RELEASED, 1) | data | plain)
