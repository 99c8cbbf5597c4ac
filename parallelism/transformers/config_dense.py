"""Hugging Face's families of dense decoders, and vision transformers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from parallelism.transformers.attention import Attention
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_parts import (
    biased,
    body_of,
    heads_of,
    layers_of,
    llama,
    plain,
    windowed,
    windowed_throughout,
)
from parallelism.transformers.config_windows import late_window, window_without_positions


def _mistral(config: ConfigFields) -> dict[str, Any]:
    return windowed_throughout(config, width=4096)


def _ministral(config: ConfigFields) -> dict[str, Any]:
    return windowed(config, width=4096)


def _ministral3(config: ConfigFields) -> dict[str, Any]:
    return windowed_throughout(config, head_dim=128)


def _phi3(config: ConfigFields) -> dict[str, Any]:
    return windowed_throughout(config, kv_default=True)


def _qwen2(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, query_bias=True)
    return described | {"window": late_window(config, described["layers"], 28)}


def _mimo(config: ConfigFields) -> dict[str, Any]:
    config.expect("attention_bias", True, because="only MiMo with query biases; give true")
    return _qwen2(config)


def _qwen3(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, head_dim=128, head_norm=True, **biased(config))
    return described | {"window": late_window(config, described["layers"], 28)}


def _gemma(config: ConfigFields) -> dict[str, Any]:
    return plain(config, head_dim=256, tied=True, **biased(config))


def _gemma2(config: ConfigFields) -> dict[str, Any]:
    described = windowed(config, head_dim=256, tied=True, width=4096, every=2, **biased(config))
    return described | {"layer_norms": 4}


def _gemma3(config: ConfigFields) -> dict[str, Any]:
    config.expect(
        "use_bidirectional_attention", False, because="only causal attention is known; give false"
    )
    # Published files leave out what is as in the class.
    config.assume(
        vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4,
    )  # fmt: skip
    described = windowed(
        config, head_dim=256, head_norm=True, tied=True, width=4096, every=6, **biased(config)
    )
    return described | {"layer_norms": 4}


def _internlm2(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("bias", True)
    return plain(config, kv_default=True, query_bias=bias, output_bias=bias)


def _apertus(config: ConfigFields) -> dict[str, Any]:
    config.expect("qk_norm", True, because="only Apertus with norms of heads; give true")
    config.expect("post_norm", False, because="only Apertus with norms before parts; give false")
    # Two numbers of each layer's nonlinearity, which it learns, are left out.
    described = plain(config, kv_default=True, head_norm=True, **biased(config))
    return described | {"gated": False}


def _arcee(config: ConfigFields) -> dict[str, Any]:
    return llama(config) | {"gated": False}


def _smollm3(config: ConfigFields) -> dict[str, Any]:
    described = llama(config, tied=True)
    return described | {"window": window_without_positions(config, described["layers"])}


def _seed_oss(config: ConfigFields) -> dict[str, Any]:
    output = config.flag("attention_out_bias", False)
    return llama(config, biased=True, output_bias=output, head_dim=128)


def _hunyuan(config: ConfigFields) -> dict[str, Any]:
    config.expect("use_qk_norm", True, because="only Hunyuan with norms of heads; give true")
    return llama(config, head_norm=True)


def _olmo2(config: ConfigFields) -> dict[str, Any]:
    return plain(config, kv_default=True, wide_norm=True, **biased(config))


def _olmo3(config: ConfigFields) -> dict[str, Any]:
    return windowed(config, kv_default=True, wide_norm=True, width=4096, every=4, **biased(config))


def _exaone4(config: ConfigFields) -> dict[str, Any]:
    return windowed(config, head_norm=True, width=4096, every=4)


def _glm(config: ConfigFields) -> dict[str, Any]:
    return plain(config, head_dim=128, query_bias=config.flag("attention_bias", True))


def _glm4(config: ConfigFields) -> dict[str, Any]:
    return _glm(config) | {"layer_norms": 4}


def _ernie(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("use_bias", False)
    described = plain(config, head_dim=128, tied=True, query_bias=bias, output_bias=bias)
    return described | {"bias": bias}


def _nemotron(config: ConfigFields) -> dict[str, Any]:
    return llama(config) | {"gated": False, "norm": "layernorm"}


def _starcoder2(config: ConfigFields) -> dict[str, Any]:
    bias = config.flag("use_bias", True)
    described = windowed_throughout(config, tied=True, query_bias=bias, output_bias=bias)
    return described | {"gated": False, "bias": bias, "norm": "layernorm"}


def _stablelm(config: ConfigFields) -> dict[str, Any]:
    described = plain(
        config,
        query_bias=config.flag("use_qkv_bias", False),
        wide_norm=config.flag("qk_layernorm", False),
    )
    parallel = config.flag("use_parallel_residual", False)
    return described | {
        "norm": "layernorm", "parallel": parallel, "layer_norms": 1 if parallel else 2
    }  # fmt: skip


def _cohere(config: ConfigFields) -> dict[str, Any]:
    described = llama(config, tied=True, wide_norm=config.flag("use_qk_norm", False))
    # Its norms have no offset, as RMSNorm has none.
    return described | {"parallel": True, "layer_norms": 1}


def _cohere2(config: ConfigFields) -> dict[str, Any]:
    described = windowed(config, kv_default=True, tied=True, width=4096, every=4, **biased(config))
    return described | {"parallel": True, "layer_norms": 1}


def _gpt2(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("n_embd", "hidden_size")
    heads, width = heads_of(config, hidden)
    return {
        "layers": layers_of(config, "n_layer", "num_hidden_layers"),
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
    body = body_of(config)
    heads, width = heads_of(config, body["hidden"])
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
    heads, width = heads_of(config, hidden)
    only = "only OPT models with norms before each part, over the hidden width, are known"
    config.expect("word_embed_proj_dim", hidden, because=only)
    config.expect("do_layer_norm_before", True, because=only)
    config.expect("layer_norm_elementwise_affine", True, because=only)
    config.expect("_remove_final_layer_norm", False, because=only)
    bias = config.flag("enable_bias", True)
    return {
        "layers": layers_of(config),
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
    heads, width = heads_of(config, hidden)
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
        "layers": layers_of(config, "num_hidden_layers", "n_layer"),
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


def _vit(config: ConfigFields) -> dict[str, Any]:
    hidden = config.count("hidden_size")
    heads, width = heads_of(config, hidden)
    image, side = config.count("image_size"), config.count("patch_size")
    labels = config.value("id2label")
    classes = len(labels) if isinstance(labels, dict) else config.count("num_labels", default=0)
    if not classes:
        raise config.missing("id2label")
    if image % side:
        raise config.wrong("patch_size", f"it does not divide image_size {image}; give a divisor")
    tokens = (image // side) ** 2 + 1
    return {
        "layers": layers_of(config),
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


DENSE_FAMILIES: Mapping[str, Callable[[ConfigFields], dict[str, Any]]] = MappingProxyType(
    {
        "llama": llama,
        "mistral": _mistral,
        "ministral": _ministral,
        "ministral3": _ministral3,
        "qwen2": _qwen2,
        "qwen2_5_vl": _qwen2,
        "qwen2_5_vl_text": _qwen2,
        "qwen3": _qwen3,
        "qwen3_vl_text": _qwen3,
        "gemma": _gemma,
        "gemma2": _gemma2,
        "gemma3_text": _gemma3,
        "gpt2": _gpt2,
        "gpt_neox": _gpt_neox,
        "opt": _opt,
        "falcon": _falcon,
        "phi3": _phi3,
        "apertus": _apertus,
        "arcee": _arcee,
        "cohere": _cohere,
        "cohere2": _cohere2,
        "ernie4_5": _ernie,
        "exaone4": _exaone4,
        "glm": _glm,
        "glm4": _glm4,
        "granite": llama,
        "hunyuan_v1_dense": _hunyuan,
        "internlm2": _internlm2,
        "mimo": _mimo,
        "nemotron": _nemotron,
        "olmo2": _olmo2,
        "olmo3": _olmo3,
        "seed_oss": _seed_oss,
        "smollm3": _smollm3,
        "stablelm": _stablelm,
        "starcoder2": _starcoder2,
        "vit": _vit,
    }
)
"""Readers by ``model_type``."""
