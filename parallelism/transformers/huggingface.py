"""Transformers from Hugging Face's ``config.json``.

Each family takes its own defaults for fields that a file leaves out, as the library's classes
do: tied embeddings, biases, head widths. Fields that change parameters or FLOPs and that a
family is not known with are refused; all others (dropout, rotary scaling, token numbers) are of
no consequence here. The file holds no batch, sequence length of training or number format.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.paths import is_directory
from parallelism.reading import parse_json, read_text
from parallelism.suggestions import suggestion
from parallelism.transformers.architecture import (
    Attention,
    Experts,
    LatentAttention,
    Transformer,
)
from parallelism.transformers.config_fields import ConfigFields

# The sequence of a job that names none, if the model allows as many.
DEFAULT_SEQUENCE = 4096
_MOST_LAYERS = 10_000

# What changes the architecture where a family has it.
_ARCHITECTURAL = (
    "add_cross_attention", "attention_bias", "bias", "head_dim", "is_encoder_decoder",
    "kv_lora_rank", "mlp_bias", "moe_intermediate_size", "n_routed_experts", "n_shared_experts",
    "num_experts", "num_key_value_heads", "num_kv_heads", "num_local_experts", "pruned_heads",
    "q_lora_rank", "qk_layernorm", "qkv_bias", "shared_expert_intermediate_size",
    "shared_intermediate_size", "text_config", "type_vocab_size", "use_bias", "use_qk_norm",
    "vision_config", "word_embed_proj_dim",
)  # fmt: skip


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
        raise InputError(f"{where}: field 'model_type' is missing; add it")
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise InputError(
            f"{where}: field 'model_type' is {kind!r}, a family that is not known; "
            f"{suggestion(str(kind), list(FAMILIES))}"
        )
    config = ConfigFields(data, where, kind)
    _check_head(config)
    described = _FAMILIES[kind](config)
    config.refuse_leftovers(_ARCHITECTURAL)
    if described["layers"] > _MOST_LAYERS:
        raise InputError(
            f"{where}: {described['layers']} layers; give at most {_MOST_LAYERS} layers"
        )
    if "sequence" in described:
        if sequence not in (None, described["sequence"]):
            raise InputError(
                f"sequence is {sequence}, but {where} has {described['sequence']} positions, the "
                "patches of an image; leave it out"
            )
    else:
        described["sequence"] = _sequence(config, sequence, described.get("positions", 0))
    try:
        return Transformer(
            name=name, dense_bytes=dense_bytes, source=f"{kind} configuration", **described
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _check_head(config: ConfigFields) -> None:
    """Refuse models with another head than the family's usual one."""
    names = config.data.get("architectures")
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


def _sequence(config: ConfigFields, given: int | None, positions: int) -> int:
    """Return the sequence length, within positions and sliding window."""
    limit = config.count("max_position_embeddings", "n_positions", "n_ctx", default=0)
    window = config.count("sliding_window", default=0)
    if not config.flag("use_sliding_window", config.kind not in ("qwen2", "qwen2_moe", "qwen3",
                                                                 "qwen3_moe")):  # fmt: skip
        window = 0
    if given is None:
        return min(value for value in (DEFAULT_SEQUENCE, limit, window) if value)
    if window and given > window:
        raise InputError(
            f"sequence is {given}, but {config.where} attends within a sliding window of "
            f"{window}; give at most that"
        )
    if positions and limit and given > limit:
        raise InputError(
            f"sequence is {given}, but {config.where} has {limit} learned positions; "
            "give at most that"
        )
    return given


def _body(config: ConfigFields) -> dict[str, Any]:
    """Read what nearly all decoders spell alike."""
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": config.count("hidden_size"),
        "feed_forward": config.count("intermediate_size"),
        "vocabulary": config.count("vocab_size"),
    }


def _heads(config: ConfigFields, hidden: int, width: int | None = None) -> tuple[int, int]:
    """Return heads and their width, which by default share the hidden width."""
    heads = config.count("num_attention_heads", "n_head", "num_heads")
    if width is None and hidden % heads:
        raise config.wrong(
            "num_attention_heads", f"it does not divide hidden_size {hidden}; give a divisor, "
            "or head_dim",
        )  # fmt: skip
    return heads, hidden // heads if width is None else width


def _grouped(
    config: ConfigFields,
    hidden: int,
    *,
    head_dim: int | None = None,
    kv_default: bool = False,
    **more: Any,
) -> Attention:
    """Read grouped-query attention; ``head_dim`` is the family's own where the file has none."""
    given = config.count("head_dim", default=head_dim or 0)
    heads, width = _heads(config, hidden, given or None)
    default = {"default": heads} if kv_default else {}
    return Attention(heads, config.count("num_key_value_heads", **default), width, **more)


def _layer_kinds(config: ConfigFields) -> None:
    kinds = config.data.get("layer_types") or []
    if not isinstance(kinds, list) or any(
        kind not in ("full_attention", "sliding_attention") for kind in kinds
    ):
        raise config.wrong(
            "layer_types", "only full_attention and sliding_attention are known; plan with a "
            "model file",
        )  # fmt: skip


def _llama(config: ConfigFields) -> dict[str, Any]:
    body = _body(config)
    bias = config.flag("attention_bias", False)
    return body | {
        "attention": _grouped(
            config, body["hidden"], kv_default=True, query_bias=bias, output_bias=bias
        ),
        "gated": True,
        "bias": config.flag("mlp_bias", False),
        "tied": config.flag("tie_word_embeddings", False),
    }


def _plain(config: ConfigFields, **attention: Any) -> dict[str, Any]:
    """Return gated feed-forward, RMSNorm and rotary positions, without biases outside attention."""
    _layer_kinds(config)
    body = _body(config)
    return body | {
        "attention": _grouped(config, body["hidden"], **attention),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", False),
    }


def _mistral(config: ConfigFields) -> dict[str, Any]:
    return _plain(config)


def _phi3(config: ConfigFields) -> dict[str, Any]:
    return _plain(config, kv_default=True)


def _mixtral(config: ConfigFields) -> dict[str, Any]:
    described = _plain(config)
    experts = Experts(
        config.count("num_local_experts", "num_experts"),
        config.count("num_experts_per_tok"),
        described["feed_forward"],
    )
    return described | {"experts": experts}


def _qwen2(config: ConfigFields) -> dict[str, Any]:
    return _plain(config, query_bias=True)


def _qwen3(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    return _plain(config, head_dim=128, head_norm=True, query_bias=bias, output_bias=bias)


def _sparse_layers(config: ConfigFields, layers: int) -> dict[str, Any]:
    """Return which layers have experts, from a step and a list of dense layers."""
    step = config.count("decoder_sparse_step", default=1)
    dense = sorted(set(config.indices("mlp_only_layers")))
    if dense == []:
        return {"every": step}
    if step == 1 and dense == list(range(len(dense))) and len(dense) < layers:
        return {"first_dense": len(dense)}
    raise config.wrong("mlp_only_layers", "only the first layers may be dense; plan without it")


def _qwen2_moe(config: ConfigFields) -> dict[str, Any]:
    described = _plain(config, query_bias=config.flag("qkv_bias", True))
    experts = Experts(
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        config.count("moe_intermediate_size"),
        shared=1,
        shared_width=config.count("shared_expert_intermediate_size"),
        shared_gate=True,
        **_sparse_layers(config, described["layers"]),
    )
    return described | {"experts": experts}


def _qwen3_moe(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    described = _plain(config, head_norm=True, query_bias=bias, output_bias=bias)
    experts = Experts(
        config.count("num_experts", "num_local_experts"),
        config.count("num_experts_per_tok"),
        config.count("moe_intermediate_size"),
        **_sparse_layers(config, described["layers"]),
    )
    return described | {"experts": experts}


def _gemma(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    described = _plain(config, head_dim=256, query_bias=bias, output_bias=bias)
    return described | {"tied": config.flag("tie_word_embeddings", True)}


def _gemma2(config: ConfigFields) -> dict[str, Any]:
    return _gemma(config) | {"layer_norms": 4}


def _gemma3(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("attention_bias", False)
    described = _plain(config, head_dim=256, head_norm=True, query_bias=bias, output_bias=bias)
    return described | {"tied": config.flag("tie_word_embeddings", True), "layer_norms": 4}


def _gpt2(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("n_embd", "hidden_size")
    heads, width = _heads(config, hidden)
    return {
        "layers": config.count("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "attention": Attention(heads, heads, width, query_bias=True, output_bias=True),
        "feed_forward": config.count("n_inner", default=4 * hidden),
        "vocabulary": config.count("vocab_size"),
        "positions": config.count("n_positions", "n_ctx", "max_position_embeddings"),
        "bias": True,
        "norm": "layernorm",
        "tied": config.flag("tie_word_embeddings", True),
    }


def _gpt_neox(config: ConfigFields) -> dict[str, Any]:
    body = _body(config)
    heads, width = _heads(config, body["hidden"])
    bias = config.flag("attention_bias", True)
    return body | {
        "attention": Attention(heads, heads, width, query_bias=bias, output_bias=bias),
        "bias": True,
        "norm": "layernorm",
        "parallel": config.flag("use_parallel_residual", True),
        "tied": config.flag("tie_word_embeddings", False),
    }


def _opt(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("hidden_size")
    heads, width = _heads(config, hidden)
    only = "only OPT models with norms before each part, over the hidden width, are known"
    config.expect("word_embed_proj_dim", hidden, because=only)
    config.expect("do_layer_norm_before", True, because=only)
    config.expect("layer_norm_elementwise_affine", True, because=only)
    config.expect("_remove_final_layer_norm", False, because=only)
    bias = config.flag("enable_bias", True)
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "attention": Attention(heads, heads, width, query_bias=bias, output_bias=bias),
        "feed_forward": config.count("ffn_dim"),
        "vocabulary": config.count("vocab_size"),
        # The table has two rows more than positions.
        "positions": config.count("max_position_embeddings") + 2,
        "bias": bias,
        "norm": "layernorm",
        "tied": config.flag("tie_word_embeddings", True),
    }


def _falcon(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("hidden_size", "n_embed")
    heads, width = _heads(config, hidden)
    grouped = config.flag("new_decoder_architecture", False)
    single = config.flag("multi_query", True)
    kv = config.count("num_kv_heads", "n_head_kv", default=heads)
    if not grouped:
        kv = 1 if single else heads
    parallel = config.flag("parallel_attn", True) or grouped
    norms = config.count("num_ln_in_parallel_attn", default=2 if grouped else 1)
    if norms > 2:
        raise config.wrong("num_ln_in_parallel_attn", "give 1 or 2")
    bias = config.flag("bias", False)
    return {
        "layers": config.count("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "attention": Attention(heads, kv, width, query_bias=bias, output_bias=bias),
        "feed_forward": config.count("ffn_hidden_size", default=4 * hidden),
        "vocabulary": config.count("vocab_size"),
        "bias": bias,
        "norm": "layernorm",
        "layer_norms": norms if parallel else 2,
        "parallel": parallel,
        "tied": config.flag("tie_word_embeddings", True),
    }


def _deepseek(config: ConfigFields) -> dict[str, Any]:
    body = _body(config)
    config.expect("attention_bias", False, because="only latent attention without biases is known")
    config.expect("moe_layer_freq", 1, because="only experts in every layer after the dense ones")
    latent = LatentAttention(
        config.count("kv_lora_rank"),
        config.count("q_lora_rank", default=0),
        config.count("qk_rope_head_dim", default=64),
        config.count("v_head_dim", default=128),
    )
    # A head's width as listed elsewhere is that of the rotary part or of both.
    config.count("head_dim", default=0)
    config.count("num_key_value_heads", default=0)
    heads = config.count("num_attention_heads")
    return body | {
        "attention": Attention(
            heads, heads, config.count("qk_nope_head_dim", default=128), latent=latent
        ),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", False),
        "experts": _with_shared(config, 0, config.kind != "deepseek_v2"),
    }


def _glm4_moe(config: ConfigFields) -> dict[str, Any]:
    described = _plain(
        config, query_bias=config.flag("attention_bias", False),
        head_norm=config.flag("use_qk_norm", False),
    )  # fmt: skip
    return described | {"experts": _with_shared(config, 1, True)}


def _with_shared(config: ConfigFields, usual: int, router_bias: bool) -> Experts:
    """Return experts beside shared ones; ``usual`` is how many are shared, and layers dense."""
    shared = config.count("n_shared_experts", default=usual, least=0)
    width = config.count("moe_intermediate_size")
    return Experts(
        config.count("n_routed_experts", "num_local_experts"),
        config.count("num_experts_per_tok"),
        width,
        shared=shared,
        shared_width=width if shared else 0,
        first_dense=config.count("first_k_dense_replace", default=usual, least=0),
        router_bias=router_bias,
        groups=config.count("n_group", default=1),
        groups_per_token=config.count("topk_group", default=1),
    )


def _vit(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("hidden_size")
    heads, width = _heads(config, hidden)
    image, side = config.count("image_size"), config.count("patch_size")
    labels = config.data.get("id2label")
    classes = len(labels) if isinstance(labels, dict) else config.count("num_labels", default=0)
    if not classes:
        raise config.missing("id2label")
    if image % side:
        raise config.wrong("patch_size", f"it does not divide image_size {image}; give a divisor")
    tokens = (image // side) ** 2 + 1
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "attention": Attention(
            heads, heads, width, query_bias=config.flag("qkv_bias", True), output_bias=True
        ),
        "feed_forward": config.count("intermediate_size"),
        "vocabulary": 0,
        "sequence": tokens,
        "positions": tokens,
        "bias": True,
        "norm": "layernorm",
        "causal": False,
        "patch": config.count("num_channels", default=3) * side * side,
        "classes": classes,
    }


_FAMILIES: dict[str, Callable[[ConfigFields], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "falcon": _falcon,
    "phi3": _phi3,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "glm4_moe": _glm4_moe,
    "vit": _vit,
}

FAMILIES: tuple[str, ...] = tuple(_FAMILIES)
"""Values of ``model_type`` that `read_config` knows."""
