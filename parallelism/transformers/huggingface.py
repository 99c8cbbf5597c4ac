"""Transformers from Hugging Face's ``config.json``.

Each family takes its own defaults for fields that a file leaves out, as the library's classes
do: tied embeddings, biases, head widths. Fields that change parameters or FLOPs and that a
family is not known with are refused; all others (dropout, rotary scaling, token numbers) are of
no consequence here. The file holds no batch, sequence length of training or number format.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.paths import is_directory
from parallelism.reading import parse_json, read_text
from parallelism.suggestions import misspelt, suggestion
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.config_dense import DENSE_FAMILIES
from parallelism.transformers.config_experts import EXPERT_FAMILIES
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_hybrid import HYBRID_FAMILIES
from parallelism.transformers.config_latent import LATENT_FAMILIES
from parallelism.transformers.config_mixers import MIXER_FAMILIES
from parallelism.transformers.config_parts import modules_of

# The sequence of a job that names none, if the model allows as many.
DEFAULT_SEQUENCE = 4096
CONFIGURATION = " configuration"
"""What the source of a transformer read from a file says; a colon and a remark may follow."""
_FAMILIES = {
    **DENSE_FAMILIES, **EXPERT_FAMILIES, **LATENT_FAMILIES, **HYBRID_FAMILIES, **MIXER_FAMILIES
}  # fmt: skip

# What changes the architecture where a family has it, and values with which it does not.
_ARCHITECTURAL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys((
        "add_cross_attention", "attention_bias", "attention_chunk_size", "attn_layer_indices",
        "attn_output_gate", "attn_res_block_size", "bias", "block_configs",
        "full_attention_interval", "head_dim", "hybrid_override_pattern", "index_topk",
        "index_topk_pattern", "indexer_types", "is_encoder_decoder", "kv_lora_rank",
        "linear_attn_config", "lm_head_bias",
        "mla_use_output_gate", "mlp_bias", "mlp_layer_types", "moe_intermediate_size",
        "moe_latent_size", "mtp_num_hidden_layers", "n_routed_experts", "n_shared_experts",
        "num_experts", "num_experts_per_tok", "num_key_value_heads", "num_kv_heads",
        "num_kv_shared_layers", "num_local_experts", "num_mtp_layers", "num_mtp_modules",
        "pruned_heads", "q_lora_rank", "qk_layernorm", "qkv_bias", "routed_expert_hidden_size",
        "shared_expert_intermediate_size", "shared_intermediate_size", "sliding_window",
        "text_config", "type_vocab_size", "use_bias", "use_bidirectional_attention", "use_cla",
        "use_qk_norm", "use_qkv_bias", "vision_config", "word_embed_proj_dim",
    ), ()),
    "attn_type_list": (1,),
    "index_topk_freq": (1,),
    "layer_types": ("full_attention",),
    "layers_block_type": ("attention",),
    "mtp_layer_types": ("full_attention",),
    "moe_layer_freq": (1,),
    "sliding_windows": (None, 0),
}  # fmt: skip

# Of these, lists with an entry for each layer.
_OF_LAYERS = frozenset({"attn_type_list", "layer_types", "layers_block_type", "sliding_windows"})

# Which layers are dense, of models with experts.
_DENSE_LAYERS = ("mlp_layer_types", "moe_layer_start_index", "first_k_dense_replace")

# Known although no reader asks for them; the last is what the class of Gemma 3 writes, but reads as
# `sliding_window_pattern`.
_KNOWN = frozenset({*_ARCHITECTURAL, "_sliding_window_pattern"})

# Families whose files name a class of another one.
_CLASSES_OF: Mapping[str, str] = {"kimi_k2": "deepseekv3"}

# What no part of a `Transformer` says, of families that many people have files of.
_UNREAD: Mapping[str, str] = {
    "deepseek_v4": "attention to compressed keys",
    "longcat_flash": "two attentions beside one set of experts in a layer",
    "mamba": "layers of Mamba-1 alone",
    "mimo_v2_flash": "more key heads where a window slides than elsewhere",
    "recurrentgemma": "recurrence of gated linear units",
    "rwkv": "recurrence",
    "t5": "pair of encoder and decoder",
    "zamba2": "attention that layers share",
}


def is_config(data: Any) -> bool:
    """Whether parsed JSON looks like a Hugging Face configuration."""
    return isinstance(data, dict) and ("model_type" in data or "architectures" in data)


def read_config(
    path: str | Path, *, sequence: int | None = None, dense_bytes: int = 2
) -> Transformer:
    """Read a transformer from a ``config.json``.

    Parameters
    ----------
    path : str or Path
        The file, or the directory that holds it.
    sequence : int, optional
        Tokens of a sample; otherwise as many as the model takes, at most 4096.
    dense_bytes : int, optional
        Bytes of an element in training.

    Returns
    -------
    Transformer
        Named after the directory of a ``config.json``, or the file.

    Raises
    ------
    InputError
        If the file is unreadable, its family unknown, a field missing or wrong, or a field
        changes the architecture in a way that is not known.
    """
    file = Path(path)
    if is_directory(file):
        file = file / "config.json"
    where = f"configuration {str(file)!r}"
    data = parse_json(read_text(file, "configuration"), where)
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return transformer_from_config(
        data, where, name=name or file.stem, sequence=sequence, dense_bytes=dense_bytes
    )


def transformer_from_config(
    data: Any, where: str, *, name: str, sequence: int | None = None, dense_bytes: int = 2
) -> Transformer:
    """Return the transformer that a parsed configuration describes; see `read_config`."""
    if not is_config(data):
        raise InputError(f"{where}: field 'model_type' is missing; give a model's config.json")
    kind = data.get("model_type")
    if kind is None:
        meant = [name for name in data if name != "model_type" and misspelt(name, "model_type")]
        remedy = f"rename {meant[0]!r}" if meant else "add it"
        raise InputError(f"{where}: field 'model_type' is missing; {remedy}")
    known = isinstance(kind, str) and kind in _FAMILIES
    if isinstance(data.get("text_config"), dict) and data["text_config"]:
        raise InputError(
            f"{where}: field 'model_type' is {kind!r}, which reads more than text; give its field "
            "'text_config' as a file to plan the language model alone"
        )
    if not known:
        raise InputError(f"{where}: field 'model_type' is {kind!r}, {_not_read(kind)}")
    config = ConfigFields(data, where, kind)
    _check_head(config)
    try:
        described = _FAMILIES[kind](config)
    except InputError as error:  # of attention or experts that cannot be, without the file's name
        config.refuse_misspelt(_KNOWN)
        text = str(error)
        raise (error if where in text else InputError(f"{where}: {text}")) from None
    if described.get("gated"):
        config.refuse("hidden_act", "relu2")
    if described.get("causal", True):
        config.expect("is_causal", True, because="only causal attention is known; give true")
    described = {"mtp_layers": modules_of(config)} | described
    if config.value("use_sliding_window") is False:
        config.ignore("sliding_window")
    config.refuse_leftovers(_ARCHITECTURAL, _OF_LAYERS, described["layers"])
    experts = described.get("experts")
    if experts and experts.first_dense >= described["layers"]:
        listed = (name for name in _DENSE_LAYERS if config.value(name) is not None)
        raise config.wrong(
            next(listed, _DENSE_LAYERS[-1]), f"all {described['layers']} layers are dense then, "
            "and none has the experts of the file; give fewer dense layers",
        )  # fmt: skip
    remark = ""
    if "sequence" in described:
        if sequence not in (None, described["sequence"]):
            raise InputError(
                f"sequence is {sequence}, but {where} has {described['sequence']} positions, the "
                "patches of an image; leave it out"
            )
    else:
        described["sequence"], remark = _sequence(config, sequence, described.get("positions", 0))
    config.refuse_misspelt(_KNOWN)
    try:
        return Transformer(
            name=name,
            dense_bytes=dense_bytes,
            source=f"{kind}{CONFIGURATION}{remark}",
            **described,
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _not_read(kind: object) -> str:
    """Return why a family is not read, and what to do."""
    name = str(kind)
    if name in _UNREAD:
        why = f"a family that is not known: {_UNREAD[name]} cannot be described"
        remedy = "plan its operators by a model file, or a model that is like it, described"
    else:
        text = f"{name}_text"  # the language model of one that reads more
        near = [text] if text in FAMILIES else get_close_matches(name, FAMILIES, n=1, cutoff=0.8)
        why = "a family that is not known" + (f", the nearest being {near[0]!r}" if near else "")
        remedy = "rename it if it is one of these, or describe the model"
    return (
        f"{why}; {suggestion('', list(FAMILIES))}; {remedy} in Python by "
        "parallelism.transformers.architecture.Transformer"
    )


def _check_head(config: ConfigFields) -> None:
    """Refuse models with another head than the family's usual one, or a class of another family.

    Classes of no family here say nothing: they may be in code beside the file.
    """
    names = config.value("architectures")
    if names is None:
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise config.wrong("architectures", "give a list of class names")
    ends = ("ForImageClassification",) if config.kind == "vit" else ("ForCausalLM", "LMHeadModel")
    if any(not name.endswith(ends) for name in names):
        raise config.wrong(
            "architectures", f"only models that end in {' or '.join(ends)} are known; "
            "name one, or remove the field",
        )  # fmt: skip
    others = {_plain(kind): kind for kind in (*_UNREAD, *reversed(FAMILIES))}
    own = {_plain(config.kind), _CLASSES_OF.get(config.kind)}
    for name in names:
        of = re.sub(f"({'|'.join(ends)})$", "", name).lower().replace("_", "")
        if of in others and of not in own:
            raise config.wrong(
                "architectures", f"that is a class of model_type {others[of]!r}, but field "
                f"'model_type' is {config.kind!r}; correct one of the two",
            )  # fmt: skip


def _plain(kind: str) -> str:
    """Return a ``model_type`` as its classes are named, in small letters."""
    return kind.removesuffix("_text").replace("_", "")


def _sequence(config: ConfigFields, given: int | None, positions: int) -> tuple[int, str]:
    """Return the sequence length, within learned positions, and what is to be said of it."""
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
    limit = next(filter(None, (config.count(name, default=0) for name in names)), 0)
    if given is None:
        taken = min(DEFAULT_SEQUENCE, limit or DEFAULT_SEQUENCE)
        of = f", of {limit} positions" if limit else ""
        return taken, f": samples have {taken} tokens by default{of}"
    if positions and limit and given > limit:
        raise InputError(
            f"sequence is {given}, but {config.where} has {limit} learned positions; "
            "give at most that"
        )
    if limit and given > limit:
        return given, f": samples have {given} tokens, more than its {limit} positions"
    return given, ""


FAMILIES: tuple[str, ...] = tuple(_FAMILIES)
"""Values of ``model_type`` that `read_config` knows."""
