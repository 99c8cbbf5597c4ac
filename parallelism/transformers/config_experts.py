"""Hugging Face's families of decoders with experts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from parallelism.transformers.attention import Attention
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_parts import (
    biased,
    body_of,
    grouped_queries,
    heads_of,
    layers_of,
    modules_of,
    plain,
    windowed,
    windowed_throughout,
)
from parallelism.transformers.config_windows import chunks, late_window, window_of_all
from parallelism.transformers.experts import Experts
from parallelism.transformers.limits import MOST_GROUPS

# Spellings of the experts of a layer and of those that a token goes to.
_COUNT = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_EACH = (
    "num_experts_per_token", "num_experts_per_tok", "experts_per_token", "moe_topk", "moe_top_k",
    "moe_k",
)  # fmt: skip


def experts_of(
    config: ConfigFields, count: int, per_token: int, width: int, **more: Any
) -> Experts:
    """Return `Experts` of numbers that were read, whose contradictions name the file's fields.

    Raises
    ------
    InputError
        If a token goes to more experts than there are, or its groups do not hold as many.
    """
    of, each = config.spelt(*_COUNT), config.spelt(*_EACH)
    if per_token > count:
        if config.value(each) is None:
            raise config.wrong(of, f"a token goes to {per_token} without a field {each!r}; give it")
        raise config.wrong(each, f"give at most {of} = {count}")
    groups, chosen = more.get("groups", 1), more.get("groups_per_token", 1)
    divided, taken = config.spelt("num_expert_group", "n_group"), "topk_group"
    if count % groups or groups > MOST_GROUPS:
        most = f", of at most {MOST_GROUPS}" if groups > MOST_GROUPS else ""
        raise config.wrong(divided, f"give a divisor of {of} = {count}{most}")
    if chosen > groups:
        raise config.wrong(taken, f"give at most {divided} = {groups}")
    if (reached := chosen * count // groups) < per_token:
        given = taken if config.value(taken) is not None else divided
        raise config.wrong(
            given, f"{chosen} of {divided} = {groups} groups hold {reached} of {of} = {count} "
            f"experts, fewer than {each} = {per_token}; give fewer groups, or a larger {taken}",
        )  # fmt: skip
    return Experts(count, per_token, width, **more)


def _sparse_layers(config: ConfigFields, layers: int) -> dict[str, Any]:
    """Return which layers have experts, from a step and a list of dense layers."""
    step = config.count("decoder_sparse_step", default=1)
    dense = sorted(set(config.indices("mlp_only_layers")))
    if dense == []:
        return {"every": step}
    if step == 1 and dense == list(range(len(dense))) and len(dense) < layers:
        return {"first_dense": len(dense)}
    raise config.wrong("mlp_only_layers", "only the first layers may be dense; plan without it")


def _mixtral(config: ConfigFields) -> dict[str, Any]:
    return of_one_width(config, windowed_throughout(config))


def _phimoe(config: ConfigFields) -> dict[str, Any]:
    # The bias of the vocabulary projection is left out: 32,064 parameters of 42 billion.
    config.flag("lm_head_bias", False)
    described = windowed_throughout(config, **biased(config))
    return of_one_width(config, described) | {"norm": "layernorm"}


def _dbrx(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("d_model", "hidden_size")
    heads, width = heads_of(config, hidden)
    attention, experts = config.inside("attn_config"), config.inside("ffn_config")
    feed_forward, keys = experts.count("ffn_hidden_size"), attention.count("kv_n_heads")
    config.expect("num_key_value_heads", keys, because="give kv_n_heads of attn_config, or none")
    # Its norms have no offset, as RMSNorm has none.
    return {
        "layers": layers_of(config, "n_layers", "num_hidden_layers"),
        "hidden": hidden,
        "attention": Attention(heads, keys, width),
        "feed_forward": feed_forward,
        "vocabulary": config.count("vocab_size"),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", False),
        "experts": experts_of(
            experts, experts.count("moe_num_experts"), experts.count("moe_top_k"), feed_forward
        ),
    }


def of_one_width(config: ConfigFields, described: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add experts as wide as ``intermediate_size`` says, in every layer."""
    experts = experts_of(
        config,
        config.count("num_local_experts", "num_experts"),
        config.alike("num_experts_per_tok", "experts_per_token", "moe_topk"),
        described["feed_forward"],
        **more,
    )
    return described | {"experts": experts}


def _granite_moe(config: ConfigFields) -> dict[str, Any]:
    return of_one_width(config, plain(config, kv_default=True, **biased(config)))


def _olmoe(config: ConfigFields) -> dict[str, Any]:
    return of_one_width(config, plain(config, kv_default=True, wide_norm=True, **biased(config)))


def _minimax_m2(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, wide_norm=config.flag("use_qk_norm", True), head_dim=128)
    config.expect("mtp_transformer_layers", 1, because="only modules of one layer are known")
    described = of_one_width(config, described, router_bias=True)
    return described | {"mtp_layers": modules_of(config, "num_mtp_modules")}


def _gpt_oss(config: ConfigFields) -> dict[str, Any]:
    described = windowed(
        config, head_dim=64, width=128, every=2, sinks=True, **biased(config, True)
    )
    return of_one_width(config, described, router_bias=True) | {"bias": True}


def _hunyuan_moe(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, kv_default=True, head_norm=True, **biased(config))
    # Its experts' width is the shared one's, too.
    width = described["feed_forward"]
    config.expect("use_qk_norm", True, because="only Hunyuan with norms of heads; give true")
    for name, only in (("num_shared_expert", 1), ("moe_intermediate_size", width)):
        if config.alike(name, default=only, least=0) != only:
            raise config.wrong(name, f"only {only} is known; plan with a model file")
    return of_one_width(config, described, shared=1, shared_width=width)


def _llama4(config: ConfigFields) -> dict[str, Any]:
    body = body_of(config)
    layers, width = body["layers"], body["feed_forward"]
    config.flag("use_qk_norm", True)  # without weights
    every = config.count("interleave_moe_layer_step", default=1)
    first = config.indices("moe_layers")
    if first and first != list(range(every - 1, layers, every)):
        raise config.wrong(
            "moe_layers", "only each interleave_moe_layer_step-th layer may have experts"
        )
    experts = experts_of(
        config, config.count("num_local_experts"), config.count("num_experts_per_tok"), width,
        shared=1, shared_width=width, every=every,
    )  # fmt: skip
    return body | {
        "attention": grouped_queries(config, body["hidden"], head_dim=128, **biased(config)),
        "feed_forward": config.count("intermediate_size_mlp"),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", False),
        "experts": experts,
        "window": chunks(config, layers),
    }


def _qwen2_moe(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, query_bias=config.flag("qkv_bias", True))
    if config.flag("use_sliding_window", False) and not config.words("layer_types"):
        raise config.wrong("use_sliding_window", "give layer_types, or false")
    experts = qwen_experts(config, described["layers"])
    window = late_window(config, described["layers"], 28, early=True)
    return described | {"experts": experts, "window": window}


def qwen_experts(config: ConfigFields, layers: int) -> Experts:
    """Return experts beside a shared one that has a gate."""
    return experts_of(
        config,
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        config.count("moe_intermediate_size"),
        shared=1,
        shared_width=config.count("shared_expert_intermediate_size"),
        shared_gate=True,
        **_sparse_layers(config, layers),
    )


def _qwen3_moe(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, head_norm=True, **biased(config))
    config.expect("use_qk_norm", True, because="only Qwen3 with norms of heads; give true")
    experts = experts_of(
        config,
        config.count("num_experts", "num_local_experts"),
        config.count("num_experts_per_tok"),
        config.count("moe_intermediate_size"),
        **_sparse_layers(config, described["layers"]),
    )
    window = window_of_all(config, described["layers"], width=4096, asked=True)
    return described | {"experts": experts, "window": window}


def _bailing(config: ConfigFields) -> dict[str, Any]:
    config.expect("use_bias", False, because="only Ling models without biases; give false")
    described = plain(
        config, query_bias=config.flag("use_qkv_bias", False),
        head_norm=config.flag("use_qk_norm", True),
    )  # fmt: skip
    experts = with_shared(config, 0, config.flag("moe_router_enable_expert_bias", True))
    if experts.shared:
        width = config.count("moe_shared_expert_intermediate_size", default=experts.width)
        experts = replace(experts, shared_width=width)
    return described | {"experts": experts}


def _glm4_moe(config: ConfigFields) -> dict[str, Any]:
    described = plain(
        config, query_bias=config.flag("attention_bias", False),
        head_norm=config.flag("use_qk_norm", False),
    )  # fmt: skip
    return described | {"experts": with_shared(config, 1, True)}


def with_shared(config: ConfigFields, usual: int, router_bias: bool) -> Experts:
    """Return experts beside shared ones; ``usual`` is how many are shared, and layers dense."""
    shared = config.count("n_shared_experts", "num_shared_experts", default=usual, least=0)
    width = config.count("moe_intermediate_size")
    return experts_of(
        config,
        config.count("n_routed_experts", "num_local_experts", "num_experts"),
        config.count("num_experts_per_tok"),
        width,
        shared=shared,
        shared_width=width if shared else 0,
        first_dense=config.count("first_k_dense_replace", default=usual, least=0),
        router_bias=router_bias,
        groups=config.count("n_group", default=1),
        groups_per_token=config.count("topk_group", default=1),
    )


def dense_first(config: ConfigFields, described: dict[str, Any], usual: int) -> dict[str, Any]:
    """Count the dense layers before those with experts where ``mlp_layer_types`` lists them.

    ``usual`` is how many the class has where the file says nothing.
    """
    name, experts, layers = "mlp_layer_types", described["experts"], described["layers"]
    kinds = config.words(name, ("dense", "sparse"))
    if not kinds:
        return described
    config.check_length(name, len(kinds), layers)
    dense = kinds.index("sparse") if "sparse" in kinds else layers
    if "dense" in kinds[dense:]:
        later = kinds.index("dense", dense)
        raise config.wrong_entry(name, later, "only the first layers may be dense")
    first = min(experts.first_dense, layers)
    made = ["dense"] * first + ["sparse"] * (layers - first)
    config.agree(name, kinds, "first_k_dense_replace", made, usual=usual)
    return described | {"experts": replace(experts, first_dense=dense)}


def _solar_open(config: ConfigFields) -> dict[str, Any]:
    if not config.count("first_k_dense_replace", default=0, least=0):
        # No layer is dense; the width of one is of no consequence.
        config.assume(intermediate_size=config.count("moe_intermediate_size"))
    described = plain(config, head_dim=128, query_bias=config.flag("attention_bias", False))
    return described | {"experts": with_shared(config, 0, True)}


def _dots1(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, head_norm=True, kv_default=True, **biased(config))
    window = late_window(config, described["layers"], 62, asked=False)
    return described | {"experts": with_shared(config, 0, True), "window": window}


def _exaone_moe(config: ConfigFields) -> dict[str, Any]:
    described = windowed(config, head_norm=True, width=4096, every=4)
    described |= {"experts": with_shared(config, 1, True), "mtp_dense": True}
    described["mtp_repeated"] = config.flag("mtp_share_layers", False)
    return dense_first(config, described, 1)


def _ernie_moe(config: ConfigFields) -> dict[str, Any]:
    config.expect("use_bias", False, because="only ERNIE's experts without biases; give false")
    described = plain(config, tied=True)
    layers, width = described["layers"], config.count("moe_intermediate_size")
    config.expect("moe_layer_interval", 1, because="only experts in each layer of a range; give 1")
    config.expect(
        "moe_layer_end_index", -1, layers - 1, because="only experts up to the last layer; give -1"
    )
    shared = config.count("moe_num_shared_experts", default=2, least=0)
    experts = experts_of(
        config,
        config.count("moe_num_experts", default=64),
        config.count("moe_k", default=6),
        width,
        shared=shared,
        shared_width=width if shared else 0,
        first_dense=config.count("moe_layer_start_index", default=1, least=0),
        router_bias=True,
    )
    # Its modules have no norm before the output projection: 8,192 parameters of 300 billion.
    return described | {"experts": experts, "mtp_dense": True}


EXPERT_FAMILIES: Mapping[str, Callable[[ConfigFields], dict[str, Any]]] = MappingProxyType(
    {
        "mixtral": _mixtral,
        "qwen2_moe": _qwen2_moe,
        "phimoe": _phimoe,
        "dbrx": _dbrx,
        "qwen3_moe": _qwen3_moe,
        "qwen3_vl_moe_text": _qwen3_moe,
        "glm4_moe": _glm4_moe,
        "bailing_moe_v2": _bailing,
        "dots1": _dots1,
        "ernie4_5_moe": _ernie_moe,
        "exaone_moe": _exaone_moe,
        "gpt_oss": _gpt_oss,
        "granitemoe": _granite_moe,
        "hunyuan_v1_moe": _hunyuan_moe,
        "llama4_text": _llama4,
        "minimax_m2": _minimax_m2,
        "olmoe": _olmoe,
        "solar_open": _solar_open,
    }
)
"""Readers by ``model_type``, but of those with latent attention."""
